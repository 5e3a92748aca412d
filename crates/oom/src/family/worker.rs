//! Data workers that died.

use crate::message::Message;
use crate::phrase::{between, has_any, number_after};
use crate::{Certainty, Engine, Oom, ProcessUse, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if is_broken_pool(line) {
        return Some(Oom { certainty: Certainty::Slight, ..Oom::host(Engine::Unknown, Source::DataWorker) });
    }
    let (source, certainty) = if line.contains("is killed by signal:") {
        by_signal(line)?
    } else if line.contains("DataLoader worker (pid(s) ") && line.contains("exited unexpectedly") {
        // Several at once did not start: on Windows each imports the script anew.
        let (_, pids) = line.split_once("(pid(s) ")?;
        let is_one = pids.split(')').next().is_some_and(|pids| !pids.contains(','));
        (Source::DataWorker, is_one.then_some(Certainty::Slight)?)
    } else if has_any(line, &["TerminatedWorkerError", "was unexpectedly terminated"]) && line.contains("memory usage")
    {
        (Source::DataWorker, by_exit_codes(message)?)
    } else if has_any(line, &["workers are out of shared memory"]) || is_short_of_shm(line) {
        (Source::SharedMemory, Certainty::Likely)
    } else {
        return None;
    };
    let pid = number_after(line, "(pid ").or_else(|| number_after(line, "(pid(s) "));
    let processes = pid.map(|pid| ProcessUse { pid, name: None, used: None }).into_iter().collect();
    Some(Oom { certainty, processes, ..Oom::host(Engine::PyTorch, source) })
}

/// `It is possible that dataloader's workers are out of shared memory` and `insufficient shared memory (shm)`, as people spell it.
fn is_short_of_shm(line: &str) -> bool {
    line.split_once("insufficient shared mem").is_some_and(|(_, rest)| rest.contains("(shm)"))
}

/// A process of a pool ended without a word, as a kill or a crash ends it.
fn is_broken_pool(line: &str) -> bool {
    let ends = ["process pool", "executor was terminated abruptly", "subprocesses has abruptly died during map"];
    line.contains("abruptly") && has_any(line, &ends)
}

/// loky names memory and a segmentation fault, and its newer versions below them the codes that tell the two apart.
fn by_exit_codes(message: &Message<'_>) -> Option<Certainty> {
    let text = message.with_next_paragraph();
    match between(&text, "exit codes of the workers are {", "}") {
        Some(codes) if has_any(codes, &["SIGKILL", "(-9)"]) => Some(Certainty::Likely),
        Some(_) => None,
        None => Some(Certainty::Possible),
    }
}

/// A worker cannot write past the end of a full `/dev/shm`: that is the bus error.
fn by_signal(line: &str) -> Option<(Source, Certainty)> {
    let (_, signal) = line.split_once("is killed by signal:")?;
    match signal.trim_start().split(['.', ' ']).next()? {
        "Killed" | "SIGKILL" | "9" => Some((Source::DataWorker, Certainty::Likely)),
        "Bus" => Some((Source::SharedMemory, Certainty::Likely)),
        _ => None,
    }
}
