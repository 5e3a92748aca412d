//! Messages that look like memory running out and are something else.

use serde::Serialize;

use crate::figure::{ABSURD, figure_at};
use crate::phrase::{has_any, has_any_caseless};
use crate::sieve::{LateTable, Sieve, quick};

/// What a text is instead of an out-of-memory error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LookAlike {
    /// The size asked for is corrupted, negative or overflowed; no memory would be enough.
    CorruptedSize,
    /// A kernel wants more of the chip's own scratch memory or registers than there is.
    KernelResources,
    /// A single buffer is above what the interface permits.
    BufferLimit,
    /// A disk is full.
    DiskFull,
    /// A wild or misaligned access on the device.
    IllegalAccess,
    /// Too many open files.
    FileLimit,
    /// Recursion without end, or a stack too small.
    StackOverflow,
    /// A service refused: quota, rate, message size.
    Quota,
    /// The loader's static block for thread variables is full; the order of imports matters, not memory.
    StaticThreadStorage,
    /// A device or a launch setting that does not exist.
    InvalidArgument,
    /// Somebody ended the process: a user, a time limit, a scheduler that wanted the place for another.
    Ended,
    /// The process crashed: a segmentation fault, an abort, a worker that could not start.
    Crashed,
    /// A try that was given up for another way: a warning, no failure.
    Attempt,
    /// The kernel's note about another program than the one that failed here.
    OtherProgram,
    /// The text talks about running out of memory without reporting it.
    Mentioned,
}

/// What a text, which is no out-of-memory error, resembles one in.
pub(crate) fn resemblance(text: &str) -> Option<LookAlike> {
    text.lines().find_map(|line| never_memory(line).or_else(|| by_phrase(line, OTHERS))).or_else(|| mentioned(text))
}

/// Look-alikes that share words with real messages, so that they must be ruled out before any family is asked.
pub(crate) fn never_memory(line: &str) -> Option<LookAlike> {
    // One search for all of them: nearly every line has none.
    static ANY: Sieve = Sieve::new(|| FIRST.iter().flat_map(|(_, phrases)| phrases.iter().copied()).collect());
    if is_corrupted_size(line) {
        return Some(LookAlike::CorruptedSize);
    }
    ANY.passes(line)
        .then(|| by_phrase(line, FIRST))
        .flatten()
        .filter(|kind| *kind != LookAlike::Attempt || is_warning(line))
        // Heroku's quota is of memory.
        .filter(|kind| *kind != LookAlike::Quota || !line.contains("Memory quota exceeded"))
}

/// Whether a line names another error of the system than that there is no memory; the line is given in small letters.
pub(crate) fn names_other_errno(lower: &str) -> bool {
    const TEXTS: [&str; 20] = [
        "no space left on device",
        "no such device",
        "no such file or directory",
        "permission denied",
        "operation not permitted",
        "operation not supported",
        "device or resource busy",
        "address already in use",
        "connection refused",
        "connection reset",
        "connection timed out",
        "input/output error",
        "invalid argument",
        "bad file descriptor",
        "too many open files",
        "disk quota exceeded",
        "read-only file system",
        "file exists",
        "broken pipe",
        "bad address",
    ];
    has_any(lower, &TEXTS)
}

/// Whether a line does not call itself an error.
fn is_warning(line: &str) -> bool {
    !has_any(line, &["ERROR", "[E]", "Error:"])
}

fn by_phrase(line: &str, table: &[(LookAlike, &[&str])]) -> Option<LookAlike> {
    table.iter().find(|(_, phrases)| has_any(line, phrases)).map(|(kind, _)| *kind)
}

const FIRST: &[(LookAlike, &[&str])] = &[
    (
        LookAlike::CorruptedSize,
        &[
            "more than 1EB",
            "called with negative number",
            "bad_array_new_length",
            "size calculation overflow",
            "negative dimension",
            // numpy's, whose older releases said no more than that the array is too big.
            "is larger than the maximum possible size",
        ],
    ),
    (
        LookAlike::KernelResources,
        &[
            "out of resource: ",
            "OutOfResources",
            "too many resources requested for launch",
            "uses too much shared data",
            "memory space vmem",
            "memory space smem",
            "scoped vmem",
            "VmemOom",
            "Shared memory size limit exceeded",
            // Tenstorrent's scratch memory; what a card has for tensors it calls DRAM.
            "B L1 buffer across",
            "B L1_SMALL buffer across",
            "out of shared memory per block",
            "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
            "cudaErrorLaunchOutOfResources",
        ],
    ),
    (
        LookAlike::BufferLimit,
        &[
            "is greater than the maximum buffer size",
            "max_storage_buffer_binding_size",
            "invalid memory alloc request size",
        ],
    ),
    (LookAlike::StaticThreadStorage, &["static TLS block"]),
    // MATLAB's words for it.
    (LookAlike::StackOverflow, &["The likely cause is an infinite recursion within the program"]),
    (
        LookAlike::Quota,
        &[
            "Received message larger than max",
            "Quota exceeded",
            "quota exceeded",
            "Rate limit",
            "rate limit",
            "RATE_LIMIT",
            "trying to send message larger",
            "nodes are available: ",
            "FailedScheduling",
            "odes are available that match all",
            // What a client says whose server slows it down.
            "Bandwidth exhausted",
            "OOM command not allowed",
            "circuit_breaking_exception",
            "CircuitBreakingException",
        ],
    ),
    (LookAlike::FileLimit, &["Too many open files"]),
    (
        LookAlike::Attempt,
        &[
            "Skipping tactic",
            "is not a failure",
            // How TensorFlow begins the same.
            "with freed_by_count=",
            "memory and trying again",
            "retrying with tiled",
            "TRT]: Requested amount of GPU memory",
            "[W] [TRT] Requested",
            ", using CPU",
            " - using CPU",
            "to CPU due to CUDA OOM",
            "alling back to CPU",
            "alling back to cpu",
            // Memory that is not locked is used all the same.
            "failed to mlock",
            "failed to munlock",
            // Memory that is not pinned is taken instead.
            "MiB of pinned memory: ",
            "MB of pinned memory: ",
            "Failed to allocate pinned memory (",
            // A compiler that tries several kernels leaves one out.
            "; ignoring this choice",
            // Slurm's note at the end of a step whose cached files were let go at its limit; a kill is called an error.
            "slurmstepd: Exceeded step memory limit at some point",
            "slurmstepd: Exceeded job memory limit at some point",
        ],
    ),
];

const OTHERS: &[(LookAlike, &[&str])] = &[
    (
        LookAlike::DiskFull,
        &[
            "No space left on device",
            "Disk quota exceeded",
            "disk full",
            "not enough space on the disk",
            // Kubernetes, of a pod and of a node.
            "low on resource: ephemeral-storage",
            "low on resource: inodes",
            "ephemeral local storage usage exceeds",
            "local ephemeral storage limit",
            "condition: [DiskPressure]",
        ],
    ),
    (
        LookAlike::IllegalAccess,
        &[
            "illegal memory access",
            "misaligned address",
            "ILLEGAL_ADDRESS",
            "Segmentation fault",
            "Memory access fault by GPU",
        ],
    ),
    (LookAlike::Ended, &["DUE TO TIME LIMIT", "DUE TO PREEMPTION", "DUE TO NODE FAILURE", "DUE TO JOB REQUEUE"]),
    (LookAlike::StackOverflow, &["RecursionError", "maximum recursion depth", "stack overflow", "StackOverflowError"]),
    (
        LookAlike::CorruptedSize,
        &["Maximum allowed dimension exceeded", "nteger overflow", "Invalid shape", "capacity overflow"],
    ),
    (
        LookAlike::InvalidArgument,
        &[
            "invalid configuration argument",
            "invalid device ordinal",
            "out of resources",
            "CUDA error: invalid argument",
        ],
    ),
];

/// Who or what ended a process by other reasons than its memory, where a text tells.
///
/// Only for text around an end that has no reason of its own: a bare `Killed`, exit status 137.
#[must_use]
pub fn ended_otherwise(text: &str) -> Option<LookAlike> {
    match () {
        () if has_any(text, CRASHES) => Some(LookAlike::Crashed),
        () if has_any(text, ENDS) => Some(LookAlike::Ended),
        () => None,
    }
}

/// Of somebody who ends a process.
const ENDS: &[&str] = &[
    "DUE TO TIME LIMIT",
    "DUE TO PREEMPTION",
    "DUE TO NODE FAILURE",
    "DUE TO JOB REQUEUE",
    "CANCELLED by ",
    "scancel ",
    "kill -9 ",
    "kill -KILL ",
    "kill -s KILL ",
    "pkill -9",
    "killall -9",
    "KeyboardInterrupt",
    "timeout: sending signal",
    "DeadlineExceeded",
    "received a shutdown signal",
    "The operation was canceled",
    "failed liveness probe",
    // A manager that tells what it sent.
    "signal_sent=SIGKILL",
    // macOS, to a program whose signature is broken.
    "CODE SIGNING: ",
    "Code Signature Invalid",
];

/// Of processes that crashed, and workers that could not start.
const CRASHES: &[&str] = &[
    "finished its bootstrapping phase",
    "Fatal Python error: Segmentation fault",
    "Fatal Python error: Illegal instruction",
    "Fatal Python error: Floating point exception",
    "*** SIGSEGV received at",
    "*** SIGILL received at",
    "*** SIGFPE received at",
    "is killed by signal: Segmentation fault",
    "is killed by signal: Aborted",
    "is killed by signal: Terminated",
    "is killed by signal: Illegal instruction",
    "is killed by signal: Floating point exception",
];

/// Whether a line asks for 1 EiB or more, or for less than nothing.
fn is_corrupted_size(line: &str) -> bool {
    static REQUEST: LateTable = LateTable::new();
    let is_absurd = |end: usize| {
        let asked = line[end..].trim_start();
        is_negative(asked) || figure_at(asked).is_some_and(|figure| figure.bytes >= ABSURD)
    };
    match REQUEST.get(|| quick(REQUESTS.iter().copied())) {
        Some(request) => request.find_overlapping_iter(line).any(|found| is_absurd(found.end())),
        None => REQUESTS.iter().any(|request| line.match_indices(request).any(|(at, _)| is_absurd(at + request.len()))),
    }
}

fn is_negative(text: &str) -> bool {
    text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

const REQUESTS: &[&str] = &[
    "llocate ",
    "llocating ",
    "llocation of ",
    "llocation of size ",
    "malloc of size ",
    "buffer of size ",
    "of size: ",
    "Requested size: ",
];

fn mentioned(text: &str) -> Option<LookAlike> {
    has_any_caseless(text, &["out of memory", "outofmemory", "out-of-memory", "memoryerror", "oom-kill"])
        .then_some(LookAlike::Mentioned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_tell_who_ended_a_process() {
        for text in [
            "(Actor pid=7) *** SIGSEGV received at time=1711500431 on cpu 3 ***",
            "Fatal Python error: Segmentation fault",
            "Fatal Python error: Illegal instruction",
            "Process exited  exit_code=<Negsignal.SIGKILL: -9> pid=820 signal_sent=SIGKILL",
            "Killed: 9\nCODE SIGNING: cs_invalid_page: p=1890[python]",
        ] {
            assert!(ended_otherwise(text).is_some(), "{text}");
        }
        assert_eq!(
            ended_otherwise("DataLoader worker (pid 7) is killed by signal: Aborted. "),
            Some(LookAlike::Crashed)
        );
        assert_eq!(ended_otherwise("slurmstepd: error: *** STEP 7.0 CANCELLED by 0 ***"), Some(LookAlike::Ended));
        let choice = "(3) The worker is crashed unexpectedly due to SIGSEGV or other unexpected errors.";
        assert_eq!(ended_otherwise(choice), None);
    }
}
