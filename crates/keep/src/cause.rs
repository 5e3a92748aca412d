//! What the last words of a command say: whether memory ran out, and at which step.
//!
//! [`last_words`] is the one place where text is judged.

use lowtide_core::Bytes;
use lowtide_oom::{Certainty, Found, Oom, Place, scan};
use memchr::memmem;

/// An out-of-memory error that a command ended with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastWords {
    oom: Oom,
    line: String,
}

/// More of a line than people read.
const LONGEST_LINE: usize = 300;
const TRACEBACK: &[u8] = b"Traceback (most recent call last)";
/// Errors of those who wait for a process that ran out of memory.
const CONSEQUENCES: [&str; 15] = [
    "ChildFailedError",
    "CalledProcessError",
    "BrokenPipe",
    "Connection",
    "EOFError",
    "DistBackendError",
    "DistNetworkError",
    "DistStoreError",
    "NCCL",
    "Gloo",
    "gloo",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SystemExit",
    "DataLoader worker",
];

impl LastWords {
    /// Whether the text leaves no doubt, or little.
    pub(crate) fn says_so(&self) -> bool {
        self.oom.certainty >= Certainty::Likely
    }

    /// The line itself, cut where it is very long.
    #[must_use]
    pub fn line(&self) -> &str {
        &self.line
    }

    /// What happened, in a sentence of figures.
    #[must_use]
    pub fn sentence(&self) -> String {
        let oom = &self.oom;
        let place = match (oom.place, oom.device) {
            (Place::Device, Some(device)) => format!("memory of GPU {device} ran out"),
            (Place::Device, None) => "memory of the GPU ran out".to_owned(),
            (Place::Host, _) => "memory of the machine ran out".to_owned(),
        };
        let figure = |bytes: Option<Bytes>, text: &str| bytes.map(|bytes| format!("{bytes} {text}"));
        let figures = [
            figure(oom.requested, "asked for"),
            figure(oom.free, "free"),
            figure(oom.capacity, "in all"),
            figure(oom.allocated, "allocated"),
            figure(oom.reserved_unallocated_or_derived(), "reserved and unused"),
            figure(oom.limit, "allowed"),
        ];
        let figures: Vec<String> = figures.into_iter().flatten().collect();
        if figures.is_empty() { place } else { format!("{place}: {}", figures.join(", ")) }
    }
}

/// The out-of-memory error that a command's output ends with; `None` where it ended with something else.
///
/// An error that the command got over is none: where another traceback follows that is no consequence of it, the
/// command ended by that one.
#[must_use]
pub fn last_words(tail: &[u8]) -> Option<LastWords> {
    let found: Vec<Found> = scan(tail).collect();
    let sure = found.iter().rev().find(|found| found.oom.certainty >= Certainty::Likely);
    let last = sure.or(found.last())?;
    if ends_otherwise(&tail[last.range.end..]) {
        return None;
    }
    let line = String::from_utf8_lossy(&tail[last.range.clone()]);
    Some(LastWords { oom: last.oom.clone(), line: line.trim().chars().take(LONGEST_LINE).collect() })
}

/// Whether a text has a traceback of its own kind.
fn ends_otherwise(rest: &[u8]) -> bool {
    let finder = memmem::Finder::new(TRACEBACK);
    finder.find_iter(rest).any(|at| {
        let before = String::from_utf8_lossy(&rest[at.saturating_sub(200)..at]);
        let after = String::from_utf8_lossy(&rest[at + TRACEBACK.len()..]);
        let chained = before.contains("During handling of the above") || before.contains("was the direct cause");
        // The error stands in the first line that is not indented, after a rank's mark where there is one.
        let error = after.lines().skip(1).map(unmarked).find(|line| !line.is_empty() && !line.starts_with([' ', '\t']));
        !chained && error.is_none_or(|error| !CONSEQUENCES.iter().any(|word| error.contains(word)))
    })
}

/// A line without `[rank3]:` and the like in front.
fn unmarked(line: &str) -> &str {
    let Some(rest) = line.strip_prefix('[') else { return line };
    match rest.split_once("]:") {
        Some((mark, rest)) if mark.len() < 16 => rest.strip_prefix(' ').unwrap_or(rest),
        _ => line,
    }
}

/// The last step that a command told of: `step 12`, `iter 12:`, `global_step=12`, or a progress bar's `12/500 [`.
#[must_use]
pub fn last_step(tail: &[u8]) -> Option<u64> {
    const LINES: usize = 2000;
    let lines = tail.rsplit(|byte| matches!(byte, b'\n' | b'\r'));
    lines.take(LINES).find_map(|line| {
        let line = String::from_utf8_lossy(line).to_ascii_lowercase();
        ["global_step", "iteration", "iter", "step"]
            .iter()
            .find_map(|word| after_word(&line, word))
            .or_else(|| bar(&line))
    })
}

fn after_word(line: &str, word: &str) -> Option<u64> {
    line.match_indices(word).find_map(|(at, _)| {
        let apart = line[..at].chars().next_back().is_none_or(|before| !before.is_alphanumeric() && before != '_');
        let rest = line[at + word.len()..].trim_start_matches([' ', ':', '=', '[', '#', '"', '\'', '\t']);
        if !apart || rest.len() == line.len() - at - word.len() {
            return None;
        }
        leading_number(rest)
    })
}

/// `  3%|▎         | 12/500 [00:01<00:40`
fn bar(line: &str) -> Option<u64> {
    let (before, _) = line.split_once(" [")?;
    let (done, all) = before.rsplit(' ').next()?.split_once('/')?;
    all.parse::<u64>().ok()?;
    done.parse().ok()
}

fn leading_number(text: &str) -> Option<u64> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OOM: &str = "Traceback (most recent call last):\n  File \"t.py\", line 1\n\
                       torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. \
                       GPU 0 has a total capacity of 11.69 GiB of which 2.68 GiB is free.\n";

    fn ran_out(text: &str) -> bool {
        last_words(text.as_bytes()).is_some_and(|words| words.says_so())
    }

    #[test]
    fn figures_as_a_sentence() {
        let words = last_words(OOM.as_bytes()).unwrap();
        assert_eq!(words.sentence(), "memory of GPU 0 ran out: 6.14 GiB asked for, 2.68 GiB free, 11.69 GiB in all");
        assert!(words.line().starts_with("torch.OutOfMemoryError: CUDA"));
    }

    #[test]
    fn the_error_that_ended_it_counts() {
        let other = "Traceback (most recent call last):\n  File \"t.py\", line 9\nValueError: no such split\n";
        let handler = "\nDuring handling of the above exception, another exception occurred:\n\n";
        let group = "Traceback (most recent call last):\n  File \"run.py\"\n\
                     torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n";
        let rank = "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"t.py\"\n\
                    [rank1]: torch.distributed.DistBackendError: NCCL error\n";
        assert!(ran_out(OOM));
        assert!(ran_out(&format!("{other}{OOM}")));
        assert!(!ran_out(&format!("{OOM}going on with less\n{other}")));
        assert!(ran_out(&format!("{OOM}{handler}{other}")));
        assert!(ran_out(&format!("{OOM}{group}")));
        assert!(ran_out(&format!("{OOM}{rank}{group}")));
        assert!(!ran_out(other));
        assert!(!ran_out(""));
    }

    #[test]
    fn steps_as_scripts_tell_them() {
        let cases = [
            ("step 12: train loss 4.2", Some(12)),
            ("iter 7: loss 1.2, time 3ms\nTraceback", Some(7)),
            ("{'loss': 1.0, 'global_step': 40}", Some(40)),
            ("  3%|x         | 15/500 [00:01<00:40,  9.9it/s]", Some(15)),
            ("step 1\nstep 2\nout of memory", Some(2)),
            ("gradient_accumulation_steps = 8\nsteps 300", None),
            ("Epoch 3 | Step: 99 | loss", Some(99)),
            ("", None),
        ];
        for (text, step) in cases {
            assert_eq!(last_step(text.as_bytes()), step, "{text}");
        }
    }
}
