//! Batch systems: Slurm, LSF, PBS, HTCondor, YARN.

use lowtide_core::Bytes;

use crate::message::{Message, without_prefix};
use crate::names::is_only_named;
use crate::phrase::{between, has_any, has_any_caseless, has_word, size_after, size_after_any, size_before};
use crate::{Engine, Oom, Source};

/// Slurm.
///
/// `Job 7518 exceeded memory limit (626359956 > 512000000)` is in KiB: Slurm hands memory out in whole MiB, and 512000000 KiB is 500000 of
/// them while 512000000 bytes is no whole number. The form with `StepId=` came with the change to bytes.
pub(super) fn slurm(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if has_any(line, &["exceeded memory limit (", "exceeded virtual memory limit ("]) {
        let (in_use, limit) = figures(line).unzip();
        return Some(Oom { in_use, limit, ..Oom::host(Engine::Slurm, Source::Scheduler) });
    }
    if has_any(line, &["oom-kill event", "oom_kill event"]) || is_killed_step(line) {
        return (!line.contains("Detected 0 oom")).then(|| Oom::host(Engine::Slurm, Source::Cgroup));
    }
    if has_any(line, &["Exceeded job memory limit", "Exceeded step memory limit", "xceeded memory limit at some point"])
    {
        return Some(Oom::host(Engine::Slurm, Source::Scheduler));
    }
    let is_task = line.contains(": Out Of Memory") && has_any(line, &["srun", "task", "slurm"]);
    let is_state = || ["OUT_OF_MEMORY", "OUT_OF_ME"].iter().any(|state| is_state_of_job(line, state));
    (is_task || is_state()).then(|| Oom::host(Engine::Slurm, Source::Cgroup))
}

/// `Some of the step tasks have been OOM Killed.`
fn is_killed_step(line: &str) -> bool {
    let at = ["OOM Killed", "OOM-killed"].iter().find_map(|words| line.find(words));
    at.is_some_and(|at| {
        has_any_caseless(line, &["slurm", "srun", "step", "job", "task"])
            && !is_only_named(line, at, at + "OOM Killed".len())
    })
}

/// `State: OUT_OF_MEMORY`, `12345.batch  python  OUT_OF_ME+  0:125`: of a job, and not in a list of what jobs may come to.
fn is_state_of_job(line: &str, state: &str) -> bool {
    let Some(at) = line.find(state).filter(|_| has_word(line, state)) else { return false };
    let (before, after) = line.split_at(at);
    let first = without_prefix(before).trim_start().split([' ', '|', ',']).next().unwrap_or_default();
    let is_job = first.starts_with(|c: char| c.is_ascii_digit());
    let is_code = |word: &str| {
        word.split_once(':').is_some_and(|(code, signal)| code.parse::<u8>().is_ok() && signal.parse::<u8>().is_ok())
    };
    let is_row = after[state.len()..].starts_with('+') || after.split([' ', '|', ',']).any(is_code);
    // `Job 4242 is OUT_OF_MEMORY`
    let names_job = || {
        let mut words =
            before.split(|c: char| !c.is_alphanumeric()).skip_while(|word| !word.eq_ignore_ascii_case("job"));
        words.nth(1).is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
    };
    (is_job
        || is_row
        || names_job()
        || has_any_caseless(line, &["state", "status", "slurm", "srun", "sbatch", "exit code", "exitcode"]))
        && !is_only_named(line, at, at + state.len())
}

fn figures(line: &str) -> Option<(Bytes, Bytes)> {
    let inner = between(line, "memory limit (", ")")?;
    let (used, limit) = inner.split_once(" > ")?;
    let unit = if line.contains("StepId=") || line.contains("JobId=") { 1 } else { 1024 };
    let bytes = |text: &str| text.trim().parse::<u64>().ok()?.checked_mul(unit).map(Bytes);
    Some((bytes(used)?, bytes(limit)?))
}

/// LSF, PBS, HTCondor, YARN.
pub(super) fn others(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if has_any(line, &["TERM_MEMLIMIT", "after reaching LSF memory usage limit"]) {
        return Some(Oom::host(Engine::Lsf, Source::Scheduler));
    }
    if line.contains("job killed: ") && line.contains("mem ") && line.contains("exceeded limit") {
        let in_use = size_after(line, "mem ");
        let limit = size_after(line, "exceeded limit ");
        return Some(Oom { in_use, limit, ..Oom::host(Engine::Pbs, Source::Scheduler) });
    }
    if let Some(oom) = grid_engine(line).or_else(|| condor(message)) {
        return Some(oom);
    }
    yarn(message)
}

/// `job 123 exceeds job hard limit "h_vmem" of queue "all.q@node01" (34379685888.00000 > limit:34359738368.00000) - sending SIGKILL`
fn grid_engine(line: &str) -> Option<Oom> {
    let (_, rest) = line.split_once("exceeds job ")?;
    let (name, figures) = rest.split_once("limit \"")?.1.split_once('"')?;
    let is_memory = ["vmem", "rss", "_data", "_stack"].iter().any(|part| name.contains(part));
    let (used, limit) = between(figures, "(", ")")?.split_once(" > limit:")?;
    // It prints whole bytes with decimals.
    let bytes = |text: &str| text.trim().split('.').next()?.parse().ok().map(Bytes);
    is_memory.then(|| Oom { in_use: bytes(used), limit: bytes(limit), ..Oom::host(Engine::Unknown, Source::Scheduler) })
}

/// YARN, which watches what a container has of the machine and what it has of addresses: `is running beyond physical memory limits. Current
/// usage: 8.1 GB of 8 GB physical memory used; 10.2 GB of 16.8 GB virtual memory used. Killing container.`
fn yarn(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    let is_physical = has_any(
        line,
        &[
            "beyond physical memory limits",
            "for exceeding memory limits",
            "for exceeding physical memory limits",
            "beyond the 'PHYSICAL' memory limit",
        ],
    );
    let virtual_words =
        ["beyond virtual memory limits", "for exceeding virtual memory limits", "beyond the 'VIRTUAL' memory limit"];
    if !is_physical && !has_any(line, &virtual_words) {
        return None;
    }
    let kind = if is_physical { " physical memory used" } else { " virtual memory used" };
    let (in_use, limit) = used_of(message.body(), kind).unzip();
    Some(Oom { in_use, limit, ..Oom::host(Engine::Spark, Source::Scheduler) })
}

/// `8.1 GB of 8 GB` before the words for what was counted.
fn used_of(text: &str, counted: &str) -> Option<(Bytes, Bytes)> {
    let (head, _) = text.split_once(counted)?;
    let (used, limit) = head.rsplit_once(" of ")?;
    Some((size_before(&format!("{used} |"), " |")?, size_after(limit, "")?))
}

/// HTCondor, by itself or by a site's own policy: `Job has gone over memory limit of 2048 megabytes. Peak usage: 2100 megabytes`,
/// `Docker job has gone over memory limit of 1024 Mb`,
/// `put on hold by SYSTEM_PERIODIC_HOLD due to memory usage 3000000`, `killed by HTCondor due to excessive memory use (RSS=2250 MB)`.
fn condor(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if let Some((_, limit)) =
        line.split_once("ob has gone over ").and_then(|(_, rest)| rest.split_once("memory limit of "))
    {
        return Some(Oom {
            in_use: size_after_any(message.body(), &["Peak usage: ", "Last measured usage: "]),
            limit: size_after(limit, ""),
            ..Oom::host(Engine::Condor, Source::Scheduler)
        });
    }
    let is_held =
        line.contains("put on hold by ") && has_any(line, &["due to memory usage", "exceeded request_memory"]);
    let is_killed = line.contains("killed by HTCondor due to excessive memory");
    (is_held || is_killed)
        .then(|| Oom { in_use: size_after(line, "RSS="), ..Oom::host(Engine::Condor, Source::Scheduler) })
}
