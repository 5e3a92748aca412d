//! The words that every message has at least one of, few and rare enough to search a log for at memory speed.
//!
//! They are chosen by their first bytes: the search looks at those in every position, so none opens with what every training log is full of
//! (`memory`, `alloc`, `step`, digits).

use std::sync::OnceLock;

use aho_corasick::packed::{Config, MatchKind, Searcher};
use aho_corasick::{AhoCorasick, Span};

use crate::phrase::quick;

/// The search, built once.
pub(crate) struct Needles {
    packed: Option<Searcher>,
    automaton: AhoCorasick,
    /// The phrases of [`EVERYDAY`], in its order.
    everyday: Vec<AhoCorasick>,
}

impl Needles {
    /// The one search of this process.
    pub(crate) fn get() -> &'static Self {
        static NEEDLES: OnceLock<Needles> = OnceLock::new();
        NEEDLES.get_or_init(Self::new)
    }

    fn new() -> Self {
        Self {
            packed: Config::new().match_kind(MatchKind::LeftmostFirst).builder().extend(NEEDLES).build(),
            automaton: AhoCorasick::new(NEEDLES).expect("a short list of literals always builds"),
            everyday: EVERYDAY.iter().map(|(_, phrases)| quick(*phrases)).collect(),
        }
    }

    /// The first needle at or after a position, and where it stands.
    pub(crate) fn find(&self, log: &[u8], from: usize) -> Option<(usize, &'static str)> {
        let span = Span { start: from.min(log.len()), end: log.len() };
        let found = match &self.packed {
            // The packed search has no path for less than its vector's width.
            Some(packed) if span.len() >= packed.minimum_len() => packed.find_in(log, span),
            _ => self.automaton.find(aho_corasick::Input::new(log).span(span)),
        }?;
        Some((found.start(), NEEDLES[found.pattern().as_usize()]))
    }

    /// Whether a line with this needle is worth reading: one of everyday words is, where it goes on as a message would.
    ///
    /// Reading a line takes a hundred times as long as this, and logs are full of limits that are exceeded.
    pub(crate) fn is_worth(&self, needle: &str, line: &[u8]) -> bool {
        let known = EVERYDAY.iter().position(|(everyday, _)| *everyday == needle);
        known.is_none_or(|known| self.everyday[known].is_match(line))
    }
}

/// Needles that many a line has that is not about memory, each with the phrases of the families that open with it.
const EVERYDAY: &[(&str, &[&str])] = &[
    ("xceed", &["memory limit", "memory budget", "exceed allowed memory", "exceeded limit", "hbm capacity"]),
    ("enough ", &["enough memory", "enough GPU video memory", "isn't enough", "emory not enough"]),
    ("nsufficient ", &["nsufficient memory", "nsufficient Memory", "nsufficient shared"]),
    (
        " alloc",
        &["to allocate", "t allocate", "total capac", " allowed; ", "bad alloc", "alloc_cpu.cpp", "allocation fail"],
    ),
    ("OOM ", &["OOM when", "System OOM"]),
    (
        "vailable ",
        &[
            "vailable RAM",
            "vailable memory of ",
            "vailable memory for the cache",
            "than is available",
            "vailable KV cache",
        ],
    ),
    ("Allocator.cpp", &["memalign", "NVML_SUCCESS"]),
    (" 137", &["ode 137", "ode: 137", "ode\": 137", "tatus 137", "tatus of 137", "xit 137", "ith 137", "rror 137"]),
    (" -9", &["ode -9", "ode: -9", "ode = -9", "ode\": -9", "tatus -9"]),
    ("cating ", &["ut of ", "ail", "annot", "rror"]),
    (
        "nable to ",
        &[
            "nable to allocate",
            "nable to mmap",
            "nable to write to file",
            "nable to open shared",
            "nable to resize file",
            "nable to create",
            "nable to find a valid cuDNN",
            "nable to find an engine to execute",
        ],
    ),
    ("low on ", &["low on resource: memory", "low on memory"]),
    ("g beyond ", &["memory limit"]),
    ("to reserve ", &["memory", "bytes"]),
    ("cation o", &["llocation of ", "Allocation on device"]),
    ("_STATUS_", &["CUDNN_STATUS_", "CUBLAS_STATUS_NOT_INITIALIZED", "STATUS_INSUFFICIENT_RES"]),
    ("utOf", &["OutOfMemory", "OutOfDeviceMemory", "OutOfResources"]),
    (
        "illed",
        &[
            "Killed",
            "OOM",
            "oom",
            "ignal",
            "zsh: killed",
            " killed  ",
            "(killed)",
            "killed by",
            "job killed",
            "killed due",
            "killed after",
        ],
    ),
    ("unexpectedly", &["exited unexpectedly", "WorkerError"]),
    ("oom_", &["oom_kill", "oom_reaper"]),
    ("oom-", &["oom-kill"]),
    ("ALLOC", &["ALLOC_FAILED", "ALLOCATION_FAIL"]),
    ("xitcode", &["-9", "137", "-7"]),
    ("os error", &["os error 12", "os error 1455", "os error 8)"]),
    ("No space left", &["shm", "torch_"]),
    ("preemptively", &["rejected"]),
    ("WinError ", &["WinError 8]", "WinError 1455"]),
];

const NEEDLES: &[&str] = &[
    "ut of memory",
    "f Memory",
    "UT OF MEMORY",
    "ut-of-memory",
    "ut of device m",
    "ut_of_memory",
    "OUT_OF_",
    "utOf",
    "MemoryError",
    "MemoryAllocation",
    "bad_alloc",
    "OOM ",
    "oom-",
    "oom_",
    "RESOURCE_EXH",
    "esource exhausted",
    "ResourceExh",
    "ALLOC",
    "AllocFailed",
    "_STATUS_",
    " alloc",
    "cating ",
    "to reserve ",
    "preemptively",
    "enough ",
    "nsufficient ",
    "valid buffer size",
    "cation o",
    "oc of size",
    "y segment",
    "nable to ",
    "s_memory_error",
    "illed",
    "unexpectedly",
    "SIGKILL",
    "ignal 9",
    "xitcode",
    " 137",
    " -9",
    "ENOMEM",
    "Errno 12",
    "os error",
    "paging file",
    "WinError ",
    "vailable ",
    "y exhausted",
    "xceed",
    "low on ",
    "g beyond ",
    "No space left",
    "than desired GPU",
    "stored in KV",
    "Allocator.cpp",
    "memalign",
    "CUDA calloc",
    // `Killed`, as shells of other languages say it.
    "杀死",
    "強制終了",
    "Убито",
    "Getötet",
    "rocessus arr",
    "Ucciso",
    "Morto",
    "죽었음",
    "Unicestwiony",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyday_words_are_needles_and_need_more() {
        let needles = Needles::get();
        for (word, _) in EVERYDAY {
            assert!(NEEDLES.contains(word), "{word}");
        }
        assert!(needles.is_worth("xceed", b"job exceeded memory limit (3 > 2)"));
        assert!(!needles.is_worth("xceed", b"gradient norm exceeds the limit"));
        assert!(needles.is_worth("MemoryError", b"MemoryError"));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_list_is_short_enough_for_the_packed_search() {
        assert!(Needles::get().packed.is_some());
    }
}
