//! The part of a run in which something happened.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;

/// What a run was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Building the model, or reading a checkpoint.
    Load,
    /// Computing the loss of a micro-batch.
    Forward,
    /// Computing its gradients.
    Backward,
    /// Clipping the gradients and updating the parameters.
    Optimizer,
    /// Evaluating, without gradients.
    Eval,
    /// Writing a checkpoint.
    Save,
}

impl Phase {
    /// All phases, in the order of a run.
    pub const ALL: [Self; 6] = [Self::Load, Self::Forward, Self::Backward, Self::Optimizer, Self::Eval, Self::Save];

    /// The name, as it is typed and as it stands in events.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
            Self::Eval => "eval",
            Self::Save => "save",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Phase {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wanted = text.trim();
        let found = Self::ALL.into_iter().find(|phase| phase.name().eq_ignore_ascii_case(wanted));
        found.ok_or_else(|| Error::Phase { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_everywhere() {
        for phase in Phase::ALL {
            assert_eq!(phase.to_string().parse(), Ok(phase));
            assert_eq!(serde_json::to_string(&phase).unwrap(), format!("\"{phase}\""));
        }
        let refusal = "`foward` is not a phase: write load, forward, backward, optimizer, eval or save";
        assert_eq!("foward".parse::<Phase>().unwrap_err().to_string(), refusal);
    }
}
