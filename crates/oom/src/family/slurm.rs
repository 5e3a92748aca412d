//! Slurm.
//!
//! `Job 7518 exceeded memory limit (626359956 > 512000000)` is in KiB: Slurm hands memory out in whole MiB, and 512000000 KiB is 500000 of
//! them while 512000000 bytes is no whole number. The form with `StepId=` came with the change to bytes.

use lowtide_core::Bytes;

use crate::message::Message;
use crate::phrase::{between, has_any, has_word};
use crate::{Certainty, Engine, Oom, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if has_any(line, &["exceeded memory limit (", "exceeded virtual memory limit ("]) {
        let (in_use, limit) = figures(line).unzip();
        return Some(Oom { in_use, limit, ..slurm(Source::Scheduler) });
    }
    if has_any(line, &["oom-kill event", "oom_kill event", "OOM Killed", "OOM-killed"]) {
        return (!line.contains("Detected 0 oom")).then(|| slurm(Source::Cgroup));
    }
    if has_any(line, &["Exceeded job memory limit", "Exceeded step memory limit", "xceeded memory limit at some point"])
    {
        return Some(slurm(Source::Scheduler));
    }
    let is_task = line.contains(": Out Of Memory") && has_any(line, &["srun", "task", "slurm"]);
    if is_task || has_word(line, "OUT_OF_MEMORY") || has_word(line, "OUT_OF_ME") {
        return Some(slurm(Source::Cgroup));
    }
    None
}

fn slurm(source: Source) -> Oom {
    Oom { certainty: Certainty::Sure, ..Oom::host(Engine::Slurm, source) }
}

fn figures(line: &str) -> Option<(Bytes, Bytes)> {
    let inner = between(line, "memory limit (", ")")?;
    let (used, limit) = inner.split_once(" > ")?;
    let unit = if line.contains("StepId=") || line.contains("JobId=") { 1 } else { 1024 };
    let bytes = |text: &str| text.trim().parse::<u64>().ok()?.checked_mul(unit).map(Bytes);
    Some((bytes(used)?, bytes(limit)?))
}
