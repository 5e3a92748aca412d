//! Whether a run got over an error: a probe for the largest batch, or a step that it caught and went on from.

use lowtide_log::{TRACEBACK_HEADER, TracebackKind, tracebacks};
use memchr::memmem;

/// How far below an error a program says that it only tried.
const BELOW: usize = 12;
/// How sure a cause is at most where another error ended the run.
pub(crate) const GOT_OVER: f64 = 0.3;

/// What programs say that look for the largest batch: Ultralytics, Lightning, Hugging Face, and scripts after them.
const PROBES: [&str; 7] = [
    "AutoBatch: CUDA anomaly detected",
    "AutoBatch: Using batch-size",
    "AutoBatch: batch=",
    "failed, trying batch size",
    "rying batch size",
    "rying with batch size",
    "training with a batch size of: ",
];

/// Whether a program says right below an error that it tries another batch, or takes a smaller one.
pub(crate) fn is_probe(below: &str) -> bool {
    let lines = below.lines().skip(1).take(BELOW).take_while(|line| !line.contains(TRACEBACK_HEADER));
    // An error that speaks to its reader advises to try one.
    let is_own = |line: &&str| !line.contains("ry trying") && !line.contains("rror: ");
    lines.filter(is_own).any(|line| PROBES.iter().any(|words| line.contains(words)))
}

/// The other error that ended a run, where its steps went on after an error of memory.
pub(crate) fn other_end(sequel: &str, goes_on: impl Fn(&[u8]) -> bool) -> Option<String> {
    let first = memmem::find(sequel.as_bytes(), TRACEBACK_HEADER.as_bytes())?;
    if !goes_on(&sequel.as_bytes()[..first]) {
        return None;
    }
    let found = tracebacks(sequel.as_bytes()).filter(|traceback| traceback.kind == TracebackKind::Error).last()?;
    let error = found.error?;
    // A device that failed, and ranks that wait for one, may well follow from it.
    let is_of_device = ["CUDA", "cuda", "NCCL", "HIP", "emory", "Interrupt"].iter().any(|word| error.contains(word));
    (!is_of_device).then_some(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_says_so_below_its_error() {
        for below in [
            "\nWARNING ⚠️ AutoBatch: CUDA anomaly detected, using default batch-size 16.\n",
            "\nTrying batch size: 32\nstep 1\n",
            "\nBatch size 64 failed, trying batch size 32\n",
            "\na\nRetrying with batch size 8\n",
        ] {
            assert!(is_probe(below), "{below}");
        }
        for below in [
            "\nTraceback (most recent call last):\nTrying batch size: 32\n",
            "\nstep 7\n",
            " Trying batch size: 32\n",
            "\nError: too large, keep trying batch size 1\n",
        ] {
            assert!(!is_probe(below), "{below}");
        }
    }

    #[test]
    fn what_ended_a_run_that_went_on() {
        let goes_on = |text: &[u8]| memmem::find(text, b"step").is_some();
        let end = "Traceback (most recent call last):\n  File \"t.py\", line 3\nKeyError: 'labels'\n";
        assert_eq!(other_end(&format!("step 3\n{end}"), goes_on).as_deref(), Some("KeyError: 'labels'"));
        assert_eq!(other_end(end, goes_on), None);
        assert_eq!(other_end("step 3\nstep 4\n", goes_on), None);
        for error in ["RuntimeError: NCCL error: unhandled system error", "RuntimeError: CUDA error: launch failure"] {
            assert_eq!(other_end(&format!("step 3\n{}", end.replace("KeyError: 'labels'", error)), goes_on), None);
        }
    }
}
