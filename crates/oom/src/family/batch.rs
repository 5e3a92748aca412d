//! Batch systems beside Slurm: LSF, PBS, HTCondor, YARN.

use crate::message::Message;
use crate::phrase::{has_any, size_after, size_before};
use crate::{Engine, Oom, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if has_any(line, &["TERM_MEMLIMIT", "after reaching LSF memory usage limit"]) {
        return Some(Oom::host(Engine::Lsf, Source::Scheduler));
    }
    if line.contains("job killed: ") && line.contains("mem ") && line.contains("exceeded limit") {
        let in_use = size_after(line, "mem ");
        let limit = size_after(line, "exceeded limit ");
        return Some(Oom { in_use, limit, ..Oom::host(Engine::Pbs, Source::Scheduler) });
    }
    if line.contains("Job has gone over memory limit of ") {
        let limit = size_after(line, "memory limit of ");
        let in_use = size_after(message.body(), "Peak usage: ");
        return Some(Oom { in_use, limit, ..Oom::host(Engine::Condor, Source::Scheduler) });
    }
    if has_any(
        line,
        &["beyond physical memory limits", "for exceeding memory limits", "running beyond the 'PHYSICAL' memory limit"],
    ) {
        let (used, rest) = line.split_once(" of ").unwrap_or((line, ""));
        let in_use = size_before(&format!("{used} |"), " |");
        return Some(Oom { in_use, limit: size_after(rest, ""), ..Oom::host(Engine::Spark, Source::Scheduler) });
    }
    None
}
