//! Memory of the machine, or of a container, a job, a unit or a heap on it: whose limit it was.

use lowtide_oom::{Certainty, Engine, Oom, Source};

use super::judgement::{Judgement, Possibility};
use crate::log::{Event, Printout, Sign};
use crate::own_heap::OwnHeap;
use crate::verdict::{Cause, Holder};

/// How sure one of two is at most that a text leaves open.
const EVEN: f64 = 0.6;

/// Judges an event of the machine's memory.
pub(super) fn host(event: &Event, log: &Printout) -> Judgement {
    let oom = &event.oom;
    let heap = OwnHeap::of(oom, &event.message, &log.signs);
    let text = match oom.source {
        Source::Kernel => killer(&event.message),
        Source::Scheduler if oom.engine == Engine::Ray => "Ray ended a task because its node was nearly full",
        Source::Scheduler if is_of_node(oom) => {
            "Kubernetes evicted the pod because its node had hardly any memory left, whatever the pod's own limit"
        }
        Source::Scheduler if oom.engine == Engine::Spark => {
            "YARN ended the container because it took more than the container's limit"
        }
        Source::Cgroup => "the kernel ended a process because its control group (container or job) was at its limit",
        Source::Scheduler => "the scheduler ended the job for its memory",
        Source::DataWorker => "a data worker was killed, as the kernel does when memory runs out",
        Source::SharedMemory => "shared memory between processes (/dev/shm) is full",
        Source::ExitStatus if oom.engine == Engine::Unknown && oom.certainty == Certainty::Slight => {
            "the post says that a process ended, without the reason; the kernel's killer is the usual one"
        }
        Source::ExitStatus => "a process was killed (signal 9); the kernel's killer is one of the reasons for that",
        Source::Heap if oom.engine == Engine::Julia => {
            "Julia was refused memory for its heap: the machine had too little left, or a limit of the process (a container, ulimit \
             -v); --heap-size-hint refuses nothing, it only has garbage collected sooner"
        }
        Source::Allocator if event.message.contains("host_bfc") => {
            "the pool of memory that TensorFlow pins for its cards was at its limit, whatever the machine has"
        }
        Source::Allocator | Source::Heap if log.signs.has(Sign::Windows) => {
            "the system refused memory to the process: the machine had too little left, its page file included"
        }
        Source::Allocator | Source::Heap => {
            "the system refused memory to the process: the machine had too little left, or a limit of the process \
             itself (ulimit -v, RLIMIT_AS) stood in the way"
        }
        Source::Runtime => "the stack ends where memory of the machine is pinned, and the driver refused it",
        Source::Startup => "the server checked before it began, and the machine has too little free",
        _ => "memory of the machine ran out",
    };
    let text = heap.map_or(text, OwnHeap::reason);
    // Pinned memory is made through the device's driver, which may have failed for the device's own sake.
    let certainty = if oom.source == Source::Runtime { 0.75 } else { 0.98 };
    let mut judgement = Judgement::bare(oom, Cause::HostMemory, certainty, text);
    judgement.heap = heap;
    let is_of_a_job = matches!(oom.source, Source::Cgroup | Source::Scheduler) && !is_of_node(oom);
    if is_of_a_job || oom.limit.is_some() || heap.is_some_and(OwnHeap::is_limit) {
        judgement.contributing.push(Cause::Limit);
    }
    if is_of_a_unit(event) {
        judgement.certainty = EVEN / oom.certainty.number() * Certainty::Sure.number();
        judgement.possibilities = whole_or_unit();
    }
    if let Some(tried) = oom.requested {
        judgement.evidence.push(format!("asked for {tried}"));
    }
    let victim = victim(oom);
    match (oom.in_use, oom.limit) {
        (Some(used), Some(limit)) => judgement.evidence.push(format!("{used} in use, {limit} allowed")),
        (Some(used), None) if victim.is_none() => judgement.evidence.push(format!("the process held {used}")),
        (None, Some(limit)) => judgement.evidence.push(format!("{limit} allowed")),
        (Some(_) | None, None) => {}
    }
    judgement.evidence.extend(victim);
    if let Some(request) = is_of_node(oom).then(|| request(&event.message)).flatten() {
        judgement
            .evidence
            .push(format!("its request was {request}: the scheduler reserved only that much on the node"));
    }
    if let (Some(used), Some(capacity)) = (oom.used, oom.capacity) {
        judgement.evidence.push(format!("{used} of the {capacity} of the machine were in use"));
    }
    // `Out of Memory Error` in somebody's own words is of neither; where they go on about a card, it may be its memory.
    let tells_of_card = log.narrative.card_gigabytes.is_some() && log.narrative.machine_gigabytes.is_none();
    let is_of_neither = matches!(oom.source, Source::Allocator | Source::Heap) && oom.certainty != Certainty::Sure;
    if tells_of_card && is_of_neither && oom.requested.is_none() {
        judgement.certainty = judgement.certainty.min(0.5);
        judgement.evidence.push("the post speaks of a GPU's memory, which it may be instead".to_owned());
    }
    if oom.source == Source::ExitStatus && oom.certainty == Certainty::Slight {
        judgement.possibilities.push(Possibility::new(
            Cause::HostMemory,
            "the kernel ended it because memory was full",
            "dmesg -T | grep -i 'killed process' (or sacct -j JOB --format=State,MaxRSS) then names it, with what it held",
        ));
    }
    judgement.holders = oom.processes.iter().map(Holder::from).collect();
    for (_, message) in event.also.iter().take(2) {
        let short: String = message.chars().take(100).collect();
        judgement.evidence.push(format!("the log also says: {short}"));
    }
    judgement
}

/// Who ends processes of a machine that has no memory left.
fn killer(message: &str) -> &'static str {
    let has = |words: &str| message.contains(words);
    match () {
        () if has("systemd-oomd") => "systemd-oomd ended a group of processes that waited too long for memory",
        () if has("earlyoom") || has("badness ") || has("low memory! at") || has("memory! Killing p") => {
            "earlyoom ended a process because the machine had hardly any memory left"
        }
        () if has("process of this unit") || has("'oom-kill'") => {
            "systemd says that a process of the unit was ended for its memory, and not at whose limit"
        }
        () if has("JETSAM") || has("vm-compressor") => "macOS ended a process because the machine had no memory left",
        () => "the kernel ended a process because the whole machine had no memory left",
    }
}

/// Whom the kernel ended, where the log names it: who asked for memory may have been another.
fn victim(oom: &Oom) -> Option<String> {
    let process = oom.processes.first().filter(|_| matches!(oom.source, Source::Kernel | Source::Cgroup))?;
    let held = process.used.or(oom.in_use).map_or(String::new(), |used| format!(", which held {used}"));
    Some(format!("it ended process {} ({}){held}", process.pid, process.name.as_ref()?))
}

/// Whether it was the memory of a whole node, by who watches nodes.
pub(crate) fn is_of_node(oom: &Oom) -> bool {
    oom.source == Source::Scheduler && matches!(oom.engine, Engine::Ray | Engine::Kubernetes)
}

/// What a pod asked for, as Kubernetes writes it: `request is 8Gi`, `exceeds its request of 8Gi`.
fn request(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("request is ").or_else(|| message.split_once("request of "))?;
    rest.split([',', '.', ' ', '\'', '"']).next().filter(|request| !request.is_empty() && *request != "0")
}

/// Whether only systemd tells of a unit of which a process was ended, or of a group that waited too long for memory.
fn is_of_a_unit(event: &Event) -> bool {
    let has = |words: &str| event.message.contains(words);
    let is_note = has("A process of this unit has been killed") || has("with result 'oom-kill'");
    let is_pressure = has("systemd-oomd") && has("due to memory pressure for");
    event.oom.source == Source::Kernel && event.oom.processes.is_empty() && (is_note || is_pressure)
}

/// The machine's memory, or a limit of the unit alone.
fn whole_or_unit() -> Vec<Possibility> {
    vec![
        Possibility::new(
            Cause::HostMemory,
            "the whole machine had no memory left",
            "journalctl -k | grep -i 'out of memory' then has `Out of memory: Killed process`",
        ),
        Possibility::new(
            Cause::Limit,
            "the unit was at its own limit (MemoryMax, MemoryHigh), or a slice above it was",
            "systemctl show UNIT -p MemoryMax -p MemoryPeak; the kernel's log then has `Memory cgroup out of memory`",
        ),
    ]
}
