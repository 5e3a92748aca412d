//! The words that every message has at least one of, few and rare enough to search a log for at memory speed.
//!
//! The search looks at four bytes in every position, and looks closer where they could be the first of any needle in one of its sixteen
//! buckets. So none begins with what every training log is full of (`step`, `loss`, `memory`, digits), and some begin in the middle of
//! a word. A search that goes on behind a needle knows only the fourth byte of the first position, the third and fourth of the next, and
//! so on: needles that have these alike share a bucket, or else a log full of everyday words has most of them compared at every one.
//!
//! A line is read only where its words go on as a message would: the search finds it by a rare word, and of everyday
//! words (`exceed`, `unable to`) a phrase is asked for first, since reading takes microseconds.

use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::packed::{Config, MatchKind, Searcher};
use aho_corasick::{AhoCorasick, AhoCorasickKind, Span};
use memchr::memmem;

use crate::family::PAGE_FILES;
use crate::line::{line_around, line_within};
use crate::sieve::LateTable;

/// The searches, each built when it is asked for the first time: a short log needs none of them.
pub(crate) struct Needles {
    words: Vec<&'static str>,
    packed: OnceLock<Option<Searcher>>,
    automaton: OnceLock<AhoCorasick>,
    /// The same with [`RARE`], for posts.
    posts: OnceLock<AhoCorasick>,
    /// The phrases of [`EVERYDAY`], in its order; most logs need few of them.
    everyday: Vec<LateTable<Option<Searcher>>>,
    /// How far they reach, in the same order.
    reach: Vec<Reach>,
}

/// Posts up to this size are searched word by word: that takes less time than to build a search.
const SHORT_POST: usize = 4 << 10;

impl Needles {
    /// The one search of this process.
    pub(crate) fn get() -> &'static Self {
        static NEEDLES: OnceLock<Needles> = OnceLock::new();
        NEEDLES.get_or_init(Self::new)
    }

    fn new() -> Self {
        Self {
            words: in_order_of_buckets(),
            packed: OnceLock::new(),
            automaton: OnceLock::new(),
            posts: OnceLock::new(),
            everyday: EVERYDAY.iter().map(|_| LateTable::new()).collect(),
            reach: EVERYDAY.iter().map(|(needle, phrases)| Reach::of(needle, phrases)).collect(),
        }
    }

    fn packed(&self) -> Option<&Searcher> {
        let build = || {
            // The limit on patterns guards against lists whose beginnings fill the buckets; this one was arranged not to.
            Config::new()
                .match_kind(MatchKind::LeftmostFirst)
                .heuristic_pattern_limits(false)
                .builder()
                .extend(&self.words)
                .build()
        };
        self.packed.get_or_init(build).as_ref()
    }

    /// The first needle at or after a position, and where it stands.
    pub(crate) fn find(&self, log: &[u8], from: usize) -> Option<(usize, &'static str)> {
        let span = Span { start: from.min(log.len()), end: log.len() };
        let found = match self.packed() {
            // The packed search has no path for less than its vector's width.
            Some(packed) if span.len() >= packed.minimum_len() => packed.find_in(log, span),
            _ => {
                // For texts of a few bytes: cheap to build.
                let automaton = self.automaton.get_or_init(|| cheap(&self.words));
                automaton.find(aho_corasick::Input::new(log).span(span))
            }
        }?;
        Some((found.start(), self.words[found.pattern().as_usize()]))
    }

    /// The same in a post, which is short: words are found in it that would cost more in a log than they are worth.
    ///
    /// Of several needles the one that ends first is found.
    pub(crate) fn find_in_post(&self, post: &[u8], from: usize) -> Option<(usize, &'static str)> {
        let words = || self.words.iter().chain(RARE).chain(&PAGE_FILES);
        let span = Span { start: from.min(post.len()), end: post.len() };
        if post.len() <= SHORT_POST {
            let find = |word: &&'static str| Some((span.start + memmem::find(&post[span], word.as_bytes())?, *word));
            return words().filter_map(find).min_by_key(|(at, word)| (at + word.len(), *at));
        }
        let found = self.posts.get_or_init(|| cheap(words())).find(aho_corasick::Input::new(post).span(span))?;
        words().nth(found.pattern().as_usize()).map(|word| (found.start(), *word))
    }

    /// Whether the line with this needle at a place is worth reading: one of everyday words is, where it goes on as a message would.
    ///
    /// Reading a line takes a hundred times as long as this, and logs are full of limits that are exceeded. A line may be a list of
    /// thousands of numbers, of which many begin as an exit code does: so no more of it is looked at than the phrases may reach, and
    /// not even its ends are looked for before that.
    pub(crate) fn is_worth(&self, needle: &str, text: &[u8], at: usize, searched: &mut Searched) -> bool {
        let Some(known) = EVERYDAY.iter().position(|(everyday, _)| *everyday == needle) else { return true };
        let is_digit = |byte: &u8| byte.is_ascii_digit();
        let is_longer =
            needle.as_bytes().last().is_some_and(is_digit) && text.get(at + needle.len()).is_some_and(is_digit);
        if is_longer {
            return false;
        }
        let phrases = EVERYDAY[known].1;
        let near = match &self.reach[known] {
            Reach::Needle(offsets) => {
                return phrases.iter().zip(offsets).any(|(phrase, offset)| stands_at(phrase, text, at, *offset));
            }
            Reach::Near => &text[line_within(text, at, NEAR, needle.len() + NEAR)],
            Reach::Line => &text[searched.rest(known, line_around(text, at))],
        };
        // A table that goes on letter by letter takes six times as long on a line.
        let build = || Config::new().builder().extend(phrases).build();
        match self.everyday[known].get(build) {
            Some(Some(packed)) => packed.find(near).is_some(),
            Some(None) | None => phrases.iter().any(|phrase| memmem::find(near, phrase.as_bytes()).is_some()),
        }
    }
}

/// How far before a place in vain was searched for the phrases of each needle: a line may be full of one.
pub(crate) struct Searched {
    until: [usize; EVERYDAY.len()],
}

impl Searched {
    pub(crate) const fn nothing() -> Self {
        Self { until: [0; EVERYDAY.len()] }
    }

    /// What is left of a stretch to be searched for the phrases of a needle; it counts as searched from then on.
    fn rest(&mut self, known: usize, stretch: Range<usize>) -> Range<usize> {
        let until = std::mem::replace(&mut self.until[known], stretch.end);
        let start = until.saturating_sub(LONGEST_PHRASE).clamp(stretch.start, stretch.end);
        start..stretch.end
    }
}

/// No phrase is longer.
const LONGEST_PHRASE: usize = 48;

/// How far from a needle its phrases may stand.
enum Reach {
    /// All of them have it in them, so far behind their beginning.
    Needle(Vec<usize>),
    /// It is a number, and they are what is said right before it.
    Near,
    /// Anywhere in the line.
    Line,
}

/// How far before a number its name may stand.
const NEAR: usize = 48;

impl Reach {
    fn of(needle: &str, phrases: &[&str]) -> Self {
        let offsets: Option<Vec<usize>> = phrases.iter().map(|phrase| phrase.find(needle)).collect();
        match offsets {
            Some(offsets) => Self::Needle(offsets),
            None if needle.ends_with(|c: char| c.is_ascii_digit()) => Self::Near,
            None => Self::Line,
        }
    }
}

/// Whether a phrase begins so far before a place.
fn stands_at(phrase: &str, text: &[u8], at: usize, offset: usize) -> bool {
    at.checked_sub(offset).is_some_and(|start| text[start..].starts_with(phrase.as_bytes()))
}

/// A search that is built in less time than others, and slower.
fn cheap<'a>(words: impl IntoIterator<Item = &'a &'a str>) -> AhoCorasick {
    let search = AhoCorasick::builder().kind(Some(AhoCorasickKind::NoncontiguousNFA)).build(words);
    search.expect("a short list of literals always builds")
}

/// The needles as the packed search shares them out: the first goes to the first bucket, the second to the second, and so on round.
fn in_order_of_buckets() -> Vec<&'static str> {
    let rows = BUCKETS.iter().map(|bucket| bucket.len()).max().unwrap_or(0);
    // A bucket with fewer has its first one twice, so that the others stay in step.
    let row = |row: usize| BUCKETS.iter().map(move |bucket| *bucket.get(row).unwrap_or(&bucket[0]));
    (0..rows).flat_map(row).collect()
}

/// Needles that many a line has that is not about memory, each with the phrases of the families that open with it.
const EVERYDAY: &[(&str, &[&str])] = &[
    (
        "xceed",
        &[
            "memory limit",
            "memory budget",
            "exceed allowed memory",
            "exceeded limit",
            "hbm capacity",
            "maximum array size",
            "exceeds job ",
            "pool size exceeded",
        ],
    ),
    (
        "enough ",
        &[
            "enough memory",
            "enough available memory",
            "enough GPU video memory",
            "enough gpu memory",
            "enough space",
            "isn't enough",
            "emory not enough",
        ],
    ),
    ("nsufficient ", &["nsufficient memory", "nsufficient Memory", "nsufficient shared", "nsufficient system res"]),
    ("OOM ", &["OOM when", "System OOM", "[HAMI-core ERROR"]),
    (
        "vailable ",
        &[
            "vailable RAM",
            "vailable memory of ",
            "vailable memory for the cache",
            "than is available ",
            "vailable KV cache",
        ],
    ),
    ("Allocator.cpp", &["memalign", "NVML_SUCCESS", "enforce fail at CPUAllocator.cpp"]),
    (
        " 137",
        &[
            "ode 137",
            "ode: 137",
            "ode:  ",
            "ode:\t",
            "ode\": 137",
            "ode is 137",
            "tatus 137",
            "tatus: 137",
            "tatus of 137",
            "alue 137",
            "xit 137",
            "ith 137",
            "rror 137",
            "ontainer: 137",
        ],
    ),
    ("(137", &["ode (137)", "xited (137)", "tatus (137)"]),
    ("=137", &["ode=137", " rc=137", "(rc=137", "tatus=137"]),
    ("e -9", &["ode -9"]),
    (": -9", &["ode: -9", "ode\": -9"]),
    ("= -9", &["ode = -9"]),
    ("= -7", &["ode = -7"]),
    ("s -9", &["tatus -9"]),
    ("exhausted", &["esource exhausted", "y exhausted"]),
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
    ("eyond ", &["memory limit"]),
    ("to reserve ", &["memory", "bytes"]),
    ("cation o", &["llocation of ", "Allocation on device"]),
    ("_STATUS_", &["CUDNN_STATUS_", "CUBLAS_STATUS_NOT_INITIALIZED", "STATUS_INSUFFICIENT_RES"]),
    ("utOf", &["OutOfMemory", "OutOfDeviceMemory"]),
    ("illed", &["Killed", "OOM", "oom", "ignal", " killed", "(killed", "=killed"]),
    ("unexpectedly", &["exited unexpectedly", "WorkerError", "was unexpectedly terminated"]),
    ("f shared mem", &["workers are out of shared mem"]),
    ("abruptly", &["process pool", "executor was terminated", "abruptly died during map"]),
    ("SIGBUS", &["Signals.SIGBUS"]),
    ("oom_", &["oom_kill", "oom_reaper"]),
    ("oom-", &["oom-kill"]),
    ("ALLOC", &["ALLOC_FAILED", "ALLOCATION_FAIL"]),
    ("xitcode", &["-9", "137", "-7"]),
    ("os error", &["os error 12", "os error 1455", "os error 8)"]),
    ("No space left", &["shm", "torch_", "shared memory segment", "[Errno 28] No space left"]),
    ("preemptively", &["rejected"]),
    ("WinError ", &["WinError 8]", "WinError 1455"]),
];

/// What few programs end by; Windows' page file has a list of its own where it is read.
const RARE: &[&str] = &[
    "JETSAM",
    "emory on the node (IP",
    "than total mem size",
    "MODULE:SYNHELPER",
    "MODULE:PT_DEVMEM",
    "compressor-space-shortage",
    "array is too big",
    "vector memory ",
    "earlyoom",
    "VmRSS ",
    "low memory! at",
    "executable batch",
    "Object Allocation Failure",
    "Dst tensor is not initialized",
    "ut of GPU memory",
    "emory allocation (m",
    "has gone over ",
    "put on hold",
    "died due to",
    "oc DEVICE memory",
    "message=\"Alloc",
    "emory limit of ",
    "ory_allocation_err",
    "ata onto one or more tiles",
    "more data than it has total memory",
    "EXIT STRING: Bus",
    "StatusType.MEMOUT",
    " RAM dispon",
    "set subdivisions=",
    "Java heap space",
    "increase heap size",
    "Fail to alloc memory of",
    "insufficient shared mem",
    "host allocation of size ",
    "NVML_SUCCESS == r",
    "KILLED",
    " MB; Free ",
    "cublas runtime error",
    "CUDA error 2",
    "Malloc device mem",
    "CUDA host alloc",
    "quota vastly",
    "container oom ",
    "low virtual memory",
    "rrno: 12",
    "rrno=12",
    "rrno = 12",
];

/// The needles, by bucket. `杀死` and its like are `Killed`, as shells of other languages say it.
const BUCKETS: [&[&str]; 16] = [
    &["illed", "eyond ", "os error", "f Memory", "f shared mem"],
    &["ored in KV", "杀死", "c of size", "of device m", "o allocate"],
    &["Morto", "Убито", "esired GPU", "bad_alloc", "죽었음"],
    &["No space left", "UT OF MEMORY", "OUT_OF_", "SOURCE_EXH", "_STATUS_"],
    &["low on ", "bad alloc", "locFailed", "oom-", "OOM "],
    &["ENOMEM", " 137", "(137", "=137"],
    &["強制終了", "Getötet", "WinError ", "oryError", "= -7"],
    &["nsufficient ", "preemptively", "xceed", "nicestwiony", "y segment"],
    &["paging file", "ory_error", "nable to ", "oom_"],
    &["t of memory", "t_of_memory", "vailable ", "Ucciso", "t allocate"],
    &["ut-of-memory", "A calloc", "valid buffer size", "Allocator.cpp", "ALLOC"],
    &["utOf", "ignal 9", "total capac", "memalign", "exhausted"],
    &["SIGBUS", "cating ", "cation o", "cation fail", "oc_cpu.cpp"],
    &["abruptly", "unexpectedly", "enough ", "esourceExh", "llowed; "],
    &["ryAllocation", "SIGKILL", "Errno 12", "ssus arr", "xitcode"],
    &["to reserve ", ": -9", "= -9", "e -9", "s -9"],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyday_words_are_needles_and_need_more() {
        let needles = Needles::get();
        for (word, _) in EVERYDAY {
            assert!(needles.words.contains(word), "{word}");
        }
        let is_worth = |needle: &str, line: &str| {
            needles.is_worth(needle, line.as_bytes(), line.find(needle).unwrap(), &mut Searched::nothing())
        };
        assert!(is_worth("xceed", "job exceeded memory limit (3 > 2)"));
        assert!(!is_worth("xceed", "gradient norm exceeds the limit"));
        assert!(is_worth("oryError", "MemoryError"));
        assert!(!is_worth(" 137", "exited with code 1370"));
        assert!(is_worth(" 137", "  Exit Code:    137") && is_worth(" 137", "exited with code 137"));
        assert!(!is_worth(" 137", "ids 12 137 9 and far away, at the end of the line, the words of an exit code 1"));
        assert!(is_worth("nable to ", "Unable to allocate 3 GiB") && !is_worth("nable to ", "unable to overlap"));
        assert!(is_worth("utOf", "OutOfMemoryError") && !is_worth("utOf", "LayoutOf"));
    }

    #[test]
    fn a_line_is_searched_once_for_the_phrases_of_a_needle() {
        assert!(EVERYDAY.iter().flat_map(|(_, phrases)| *phrases).all(|phrase| phrase.len() <= LONGEST_PHRASE));
        let needles = Needles::get();
        let line = format!("{}, and not enough memory is left", "it is enough ".repeat(2000));
        let mut searched = Searched::nothing();
        let is_worth = |at: usize, searched: &mut Searched| needles.is_worth("enough ", line.as_bytes(), at, searched);
        let mut places = line.match_indices("enough ").map(|(at, _)| at);
        let first = places.find(|at| is_worth(*at, &mut searched)).expect("the phrase comes into reach");
        assert!(first < line.len() && first + (4 << 10) > line.len() - 64, "{first}");
        assert!(places.next().is_some(), "before its needle itself");
    }

    #[test]
    fn phrases_of_other_lines_do_not_count() {
        let needles = Needles::get();
        // So often that the phrases are searched for all at once, too.
        for _ in 0..100 {
            for (needle, line, other) in [
                ("xceed", "the norm exceeds 1.0", "memory limit"),
                ("xceed", "exceeds it", "memory limit"),
                (" 137", "step 137", "exit code 137"),
                ("illed", "filled", "OOM"),
            ] {
                let is_worth = |text: String| {
                    let at = text.find(line).unwrap() + line.find(needle).unwrap();
                    needles.is_worth(needle, text.as_bytes(), at, &mut Searched::nothing())
                };
                assert!(!is_worth(line.to_owned()), "{line}");
                for end in ["\n", "\r", "\r\n"] {
                    assert!(!is_worth(format!("{other}{end}{line}{end}{other}")), "{line}");
                }
                assert!(is_worth(format!("{other} {line}")), "{line}");
            }
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn needles_are_found_by_four_bytes_at_memory_speed() {
        let needles = Needles::get();
        assert!(needles.packed().is_some());
        // One that is shorter would have the search look at fewer bytes of all of them.
        assert!(needles.words.iter().all(|word| word.len() >= 4), "{:?}", needles.words);
    }

    #[test]
    fn a_short_post_is_searched_as_a_longer_one_is() {
        let needles = Needles::get();
        let words: Vec<&str> = needles.words.iter().chain(RARE).chain(&PAGE_FILES).copied().collect();
        for (at, word) in words.iter().enumerate() {
            let short = format!("x{word}{} {}", words[(at + 7) % words.len()], words[(at + 31) % words.len()]);
            let long = format!("{short}{:SHORT_POST$}", "");
            for from in 0..short.len() {
                let found = |post: &str| needles.find_in_post(post.as_bytes(), from);
                assert_eq!(found(&short), found(&long), "{short} from {from}");
            }
        }
    }

    #[test]
    fn no_needle_hides_behind_another() {
        let needles = Needles::get();
        for word in &needles.words {
            let text = format!("{:64}{word}{:64}", "", "");
            assert_eq!(needles.find(text.as_bytes(), 0).map(|(_, found)| found), Some(*word));
            assert_eq!(needles.find(word.as_bytes(), 0).map(|(_, found)| found), Some(*word));
        }
    }
}
