//! What a Python of the command writes down when its memory runs out, before it dies.
//!
//! `memory.py` is run once the command has imported torch. What it writes is in the run's folder [`REPORTS`]: for each process one
//! JSON file that says what was asked for and by which lines of code, and PyTorch's own snapshot of its allocator beside it. Who
//! allocated what is in a snapshot only where PyTorch kept a history of it, which costs about 2 us in every allocation: nothing that is
//! seen where the card is busy (0.04 % of a step of GPT-2 124M at batch 32 on an H200), and 15 % where the processor is behind (at
//! batch 4). So it is kept only from the first crash on, when it is known to be wanted, and no longer than [`HISTORY`] in each start.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::inside::door::{Moment, Part};
use crate::{EndKind, StartRecord};

/// The folder of a run in which its processes say how they ran out of memory.
pub const REPORTS: &str = "memory";
/// How long a start that follows a crash keeps the history.
const HISTORY: Duration = Duration::from_secs(600);
const TEXT: &str = include_str!("memory.py");

/// What is written down when memory runs out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MemoryWatch {
    /// Nothing.
    Off,
    /// What was asked for, by whom, and the state of the allocator; in the first minutes after a crash also who allocated
    /// what.
    #[default]
    AfterCrash,
    /// All of it from the first start on.
    Always,
}

impl MemoryWatch {
    pub(crate) fn part(self, folder: &Path, starts: &[StartRecord]) -> Option<Part> {
        let has_crashed = starts.iter().any(|start| start.outcome == EndKind::OutOfMemory);
        let (has_history, seconds) = match self {
            Self::Off => return None,
            Self::AfterCrash => (has_crashed, Some(HISTORY.as_secs())),
            Self::Always => (true, None),
        };
        let reports = folder.join(REPORTS);
        let reports = std::path::absolute(&reports).unwrap_or(reports);
        // A name that is no text cannot be handed over; such folders are rare, and the command runs all the same.
        let start = starts.len() + 1;
        let settings =
            json!({ "folder": reports.to_str()?, "start": start, "history": has_history, "history_seconds": seconds });
        let files = vec![("memory.json", settings.to_string().into_bytes())];
        Some(Part { name: "memory", moment: Moment::After("torch"), text: TEXT, files })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// PyTorch with a card, as far as the history goes.
    const RUN: &str = "
import sys, time, types
calls = []
memory = types.SimpleNamespace(_record_memory_history=lambda *words, **named: calls.append(words))
torch = types.SimpleNamespace(cuda=types.SimpleNamespace(memory=memory, _lazy_call=lambda call: call()))
torch._C = types.SimpleNamespace(_cuda_attach_out_of_memory_observer=lambda observer: None)
sys.modules['torch'] = torch
path = sys.argv[1]
exec(compile(open(path).read(), path, 'exec'), {'__file__': path, '__name__': 'memory'})
time.sleep(0.5)
print(calls)
";

    #[test]
    fn a_history_ends_after_a_while() {
        for (seconds, expected) in
            [("0.05", "[('state',), (None,)]\n"), ("600", "[('state',)]\n"), ("null", "[('state',)]\n")]
        {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("memory.py");
            std::fs::write(&path, TEXT).unwrap();
            let settings =
                format!(r#"{{"folder": "none", "start": 2, "history": true, "history_seconds": {seconds}}}"#);
            std::fs::write(place.path().join("memory.json"), settings).unwrap();
            let ran = Command::new("python3").args(["-c", RUN]).arg(path).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&ran.stdout), expected, "{}", String::from_utf8_lossy(&ran.stderr));
        }
    }
}
