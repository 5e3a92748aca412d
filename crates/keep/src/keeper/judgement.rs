//! Whether memory was the reason that a command ended.

use crate::output::epilogue::Epilogue;
use crate::process::attendant::Interruption;
use crate::{End, EndKind, Evidence};

/// What an end means.
///
/// Words of the command that tell of memory count where it failed. A SIGKILL counts where something shows that the
/// kernel did it for memory; without that, it may have been anybody. So does a code of whoever waited for the process
/// that was killed, where the kernel itself tells of the kill and nothing else of another error. What a process wrote
/// down itself counts likewise: a script may show its errors in words of its own, or not at all. `reports` are the
/// processes that wrote down that their memory ran out, whether they ended by it or not.
pub(crate) fn judge(
    end: End,
    interruption: Interruption,
    epilogue: &Epilogue,
    evidence: Option<Evidence>,
    reports: usize,
) -> EndKind {
    if end == End::Code(0) {
        return EndKind::Finished;
    }
    if interruption == Interruption::Requested {
        return EndKind::Interrupted;
    }
    let said = epilogue.oom.as_ref().is_some_and(|oom| oom.says_so() && oom.may_have_ended(end, reports));
    // Words such as `Killed` or `exitcode: -9` tell of a kill below the process that was started.
    let killed = end.was_killed() || epilogue.oom.is_some();
    // Counted or named, not only likely.
    let is_kill = matches!(evidence, Some(Evidence::ControlGroup { .. } | Evidence::KernelLog { .. }));
    let told_below = matches!(end, End::Code(_)) && !epilogue.other_error && is_kill;
    let is_reported = matches!(evidence, Some(Evidence::Report { .. })) && !epilogue.other_error;
    if said || (killed && evidence.is_some()) || told_below || is_reported {
        EndKind::OutOfMemory
    } else {
        EndKind::Failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::tail::Tail;

    const EVIDENCE: Option<Evidence> = Some(Evidence::ControlGroup { kills: 1, limit_bytes: None });
    const FULL: Option<Evidence> = Some(Evidence::NearTheLimit { held_bytes: 9, limit_bytes: 10 });

    fn judged(end: End, interruption: Interruption, text: &str, evidence: Option<Evidence>) -> EndKind {
        judge(end, interruption, &Epilogue::of(&Tail::from(text)), evidence, 0)
    }

    #[test]
    fn what_an_end_means() {
        use EndKind::{Failed, Finished, Interrupted, OutOfMemory};
        use Interruption::{None as Free, Requested};
        const ERROR: &str = "Traceback (most recent call last):\n  File \"t.py\"\nValueError: no";
        const OOM: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.";
        const REPORT: Option<Evidence> = Some(Evidence::Report { pid: 7, asked_bytes: None });
        let cases = [
            (End::Code(1), Free, "it did not work", REPORT, OutOfMemory),
            (End::Code(1), Free, ERROR, REPORT, Failed),
            (End::Code(0), Free, "", REPORT, Finished),
            (End::Code(1), Requested, "", REPORT, Interrupted),
            (End::Code(0), Free, "", None, Finished),
            // What it caught is its own affair.
            (End::Code(0), Free, OOM, EVIDENCE, Finished),
            (End::Code(1), Free, OOM, None, OutOfMemory),
            (End::Code(1), Requested, OOM, None, Interrupted),
            (End::Code(0), Requested, "", None, Finished),
            (End::Code(1), Free, ERROR, None, Failed),
            (End::Code(1), Free, ERROR, EVIDENCE, Failed),
            // Whoever waited for the process that was killed says nothing.
            (End::Code(1), Free, "", EVIDENCE, OutOfMemory),
            (End::Code(1), Free, "", FULL, Failed),
            (End::Signal(9), Free, "", FULL, OutOfMemory),
            (End::Signal(9), Free, "", None, Failed),
            (End::Signal(9), Free, "", EVIDENCE, OutOfMemory),
            (End::Code(137), Free, "", EVIDENCE, OutOfMemory),
            (End::Signal(9), Requested, "", EVIDENCE, Interrupted),
            (
                End::Signal(6),
                Free,
                "terminate called after throwing an instance of 'std::bad_alloc'",
                None,
                OutOfMemory,
            ),
            (End::Signal(11), Free, "Segmentation fault", EVIDENCE, Failed),
            // A rank of a group was killed; the group ends with 1.
            (End::Code(1), Free, "  exitcode  : -9 (pid: 7)", None, Failed),
            (End::Code(1), Free, "  exitcode  : -9 (pid: 7)", EVIDENCE, OutOfMemory),
        ];
        for (end, asked, text, evidence, expected) in cases {
            assert_eq!(judged(end, asked, text, evidence), expected, "{end:?} {asked:?} {text:?} {evidence:?}");
        }
    }
}
