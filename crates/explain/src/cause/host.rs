//! Memory of the machine: who saw it run out, and what limit there was.

use lowtide_oom::Source;

use super::judgement::Judgement;
use crate::log::Event;
use crate::verdict::{Cause, Holder};

/// Judges an event of the machine's memory.
pub(super) fn host(event: &Event) -> Judgement {
    let oom = &event.oom;
    let text = match oom.source {
        Source::Kernel => "the kernel ended a process because the whole machine had no memory left",
        Source::Cgroup => "the kernel ended a process because its control group (container or job) was at its limit",
        Source::Scheduler => "the scheduler ended the job for its memory",
        Source::DataWorker => "a data worker was killed, as the kernel does when memory runs out",
        Source::SharedMemory => "shared memory between processes (/dev/shm) is full",
        Source::ExitStatus => "a process was killed (signal 9); the kernel's killer is one of the reasons for that",
        Source::Allocator | Source::Heap => {
            "the system refused memory to the process: the machine had too little left, or a limit of the process \
             itself (ulimit -v, RLIMIT_AS) stood in the way"
        }
        Source::Runtime => "the stack ends where memory of the machine is pinned, and the driver refused it",
        _ => "memory of the machine ran out",
    };
    // Pinned memory is made through the device's driver, which may have failed for the device's own sake.
    let certainty = if oom.source == Source::Runtime { 0.75 } else { 0.98 };
    let mut judgement = Judgement::bare(oom, Cause::HostMemory, certainty, text);
    if matches!(oom.source, Source::Cgroup | Source::Scheduler) || oom.limit.is_some() {
        judgement.contributing.push(Cause::Limit);
    }
    if let Some(tried) = oom.requested {
        judgement.evidence.push(format!("asked for {tried}"));
    }
    match (oom.in_use, oom.limit) {
        (Some(used), Some(limit)) => judgement.evidence.push(format!("{used} in use, {limit} allowed")),
        (Some(used), None) => judgement.evidence.push(format!("the process held {used}")),
        (None, Some(limit)) => judgement.evidence.push(format!("{limit} allowed")),
        (None, None) => {}
    }
    judgement.holders = oom.processes.iter().map(Holder::from).collect();
    for (_, message) in event.also.iter().take(2) {
        let short: String = message.chars().take(100).collect();
        judgement.evidence.push(format!("the log also says: {short}"));
    }
    judgement
}
