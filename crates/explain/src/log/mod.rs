//! What the log says of each event, and of the run as a whole.

mod cards;
mod carried;
mod event;
mod flags;
mod given;
mod group;
mod growth;
mod model_words;
mod narrative;
mod packaging;
mod printout;
mod ranks;
mod remark;
mod sharing;
mod sign;
mod sign_context;
mod sign_words;
mod size;
mod spanish;
mod switches;
mod told_cards;
mod told_moment;
mod unwrapped;
mod weight_bits;

pub(crate) use cards::CardFacts;
pub(crate) use carried::CarriedText;
pub(crate) use event::{Circumstances, Event, dummy_requests};
pub(crate) use flags::{Flag, Flags};
pub(crate) use model_words::names_language;
pub(crate) use narrative::Narrative;
pub(crate) use packaging::{LONGEST_POST, readable, without_known_margin, without_shared_margin};
pub(crate) use printout::Printout;
pub(crate) use ranks::RankNotes;
pub use ranks::{RankError, RankErrors};
pub use remark::Remark;
pub(crate) use sharing::SharingSwitches;
pub(crate) use sign::{Sign, Signs};
pub(crate) use unwrapped::{Evidence, Unwrapped};
pub(crate) use weight_bits::WeightBits;

/// Every line of the threads that are kept.
#[cfg(test)]
fn lines_of_threads() -> impl Iterator<Item = String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/threads");
    let logs = std::fs::read_dir(folder).expect("the threads are there").map(|entry| entry.expect("an entry").path());
    let logs = logs.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    let text = |path| String::from_utf8_lossy(&std::fs::read(path).expect("a log")).into_owned();
    logs.map(text).flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
}
