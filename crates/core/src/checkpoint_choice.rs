//! Which checkpoint of a run somebody asks for.

use std::str::FromStr;

/// Which checkpoint of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointChoice {
    /// The newest.
    Newest,
    /// The one with the lowest loss of those that were evaluated.
    Best,
    /// The one after this step.
    Step(u64),
}

impl FromStr for CheckpointChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<CheckpointChoice, String> {
        match text {
            "newest" => Ok(CheckpointChoice::Newest),
            "best" => Ok(CheckpointChoice::Best),
            step => step
                .parse()
                .map(CheckpointChoice::Step)
                .map_err(|_| "expected newest, best or the number of a step".to_owned()),
        }
    }
}
