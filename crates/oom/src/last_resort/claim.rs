//! What a line claims of memory, by the words or the status in it, and where they stand.

use super::words::{FAILURES, KINDS, LACKING, LACKS, MEMORIES, OTHERS, OWNERS, SHORTAGES, SIGNATURES, TRANSLATIONS};
use crate::phrase::{has_any, has_any_word};

/// Between `not enough` and `memory`: `free`, `GPU`, `allocatable device`.
const MOST_BETWEEN: usize = 5;

/// What a phrase says by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phrase {
    /// That an attempt failed.
    Failure,
    /// That there is too little.
    Lack,
    /// That a job took more than it had asked for.
    Limit,
    /// That memory ran out, in words that nobody else uses.
    Plain,
}

/// A phrase, and where it stands in its line.
pub(super) struct Claim {
    pub(super) phrase: Phrase,
    pub(super) at: usize,
    pub(super) end: usize,
}

/// What a line claims; `lower` is the same line in small letters.
pub(super) fn claim(line: &str, lower: &str) -> Option<Claim> {
    job_limit(lower)
        .or_else(|| signature(lower))
        .or_else(|| shortage(lower))
        .or_else(|| translation(lower))
        .or_else(|| failure(lower))
        .or_else(|| lack(lower))
        .or_else(|| status(line))
        .or_else(|| check(line))
}

/// `job 3132467 exceeded MEM usage hard limit (2528 > 1126)`, `Job terminated: exceeded requested memory (64G)`: a job that a
/// batch system held to what it had asked for.
fn job_limit(lower: &str) -> Option<Claim> {
    let at = lower.find("exceeded ")?;
    let rest = &lower[at..];
    let limit = rest.find(" limit").map(|end| end + " limit".len());
    let amount =
        || ["requested memory", "memory request"].iter().find_map(|words| Some(rest.find(words)? + words.len()));
    let length = limit.or_else(amount)?;
    let is_memory = has_any_word(&rest[..length], "mem memory vmem pmem pvmem rss");
    let is_job = has_any_word(&lower[..at], "job jobid task step");
    (is_memory && is_job).then_some(Claim { phrase: Phrase::Limit, at, end: at + length })
}

/// A whole sentence of a system or a program that says nothing else by it.
fn signature(lower: &str) -> Option<Claim> {
    let (at, words) = SIGNATURES.iter().find_map(|words| Some((lower.find(words)?, words)))?;
    Some(Claim { phrase: Phrase::Plain, at, end: at + words.len() })
}

/// `RuntimeError: CUDA内存不足`: the word for it, behind the name of an error; elsewhere it is what people ask about.
fn shortage(lower: &str) -> Option<Claim> {
    let (at, words) = SHORTAGES.iter().find_map(|words| Some((lower.find(words)?, words)))?;
    let is_named = lower[..at].contains(':') || lower[..at].contains('：');
    is_named.then_some(Claim { phrase: Phrase::Plain, at, end: at + words.len() })
}

/// An attempt that failed, and where it stands; a port or an address is no memory.
fn failure(lower: &str) -> Option<Claim> {
    let named = || FAILURES.iter().find_map(|phrase| Some((lower.find(phrase)?, phrase.len())));
    let (at, length) = named().or_else(|| call(lower))?;
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let start = lower[..at].trim_end_matches(is_part).len();
    let end = at + length;
    let is_memory =
        has_any(&lower[start..end], &["memory", "malloc", "oom"]) || is_of_memory(&lower[..start], &lower[end..]);
    is_memory.then_some(Claim { phrase: Phrase::Failure, at: start, end })
}

/// How many words before or behind a failure what was to be had may stand: `allocate the requested 1000 Mwords of memory`.
const NEAR: usize = 6;

/// Whether what was to be had is memory, by the words right before and behind; what stands behind a colon is the reason.
fn is_of_memory(before: &str, after: &str) -> bool {
    let is_kind = |word: &str| has_any_word(word, KINDS);
    let ahead = before.rsplit([':', ';']).next().unwrap_or(before);
    let behind = after.split([':', ';']).next().unwrap_or(after);
    ahead.ends_with(' ') && ahead.split_whitespace().next_back().is_some_and(is_owner)
        || is_of_owner(behind)
        || ahead.split_whitespace().rev().take(NEAR).any(is_kind)
        || behind.split_whitespace().take(NEAR).any(is_kind)
}

fn is_owner(word: &str) -> bool {
    OWNERS.split(' ').any(|owner| owner == word)
}

/// `failed on cuda:0`, `allocate 4096 on the GPU`, `allocate GPU storage`: what is on a device or its own is memory, where no other
/// thing that is handed out is named.
fn is_of_owner(behind: &str) -> bool {
    const DEVICES: [&str; 3] = ["gpu", "cuda", "device"];
    let words = || behind.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    if words().take(NEAR).any(|word| OTHERS.split(' ').any(|other| other == word)) {
        return false;
    }
    // Beside a device's name, `on device eth0`, it is another kind of device.
    let is_device = |word: &str, next: Option<&str>| {
        DEVICES.contains(&word)
            && !next.is_some_and(|next| next.contains(|c: char| c.is_ascii_digit()) && next.parse::<u16>().is_err())
    };
    let near: Vec<&str> = words().filter(|word| *word != "the").take(NEAR).collect();
    let is_on = near.iter().enumerate().any(|(at, word)| {
        *word == "on" && near.get(at + 1).is_some_and(|word| is_device(word, near.get(at + 2).copied()))
    });
    let is_own = near.first().is_some_and(|word| is_owner(word)) && near.get(1).is_some_and(|word| !is_small(word));
    is_on || is_own
}

/// Behind an owner, words that name nothing: `no GPU for the job`.
fn is_small(word: &str) -> bool {
    const SMALL: &str = "for on in to from of by at with is was not and or id ids index number";
    SMALL.split(' ').any(|small| small == word) || word.bytes().all(|byte| byte.is_ascii_digit())
}

/// `vkAllocateMemory failed -2`, `cudaMallocPitch() failed`: a function that gets memory.
fn call(lower: &str) -> Option<(usize, usize)> {
    lower.match_indices("alloc").find_map(|(at, _)| {
        let name = lower[at..].find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(lower.len() - at);
        let rest = &lower[at + name..];
        let gap = rest.len() - rest.trim_start_matches(['(', ')', ' ', ':']).len();
        rest[gap..].starts_with("fail").then_some((at, name + gap + "fail".len()))
    })
}

/// What the system says for it in other languages.
fn translation(lower: &str) -> Option<Claim> {
    let (at, words) = TRANSLATIONS.iter().find_map(|words| Some((lower.find(words)?, words)))?;
    Some(Claim { phrase: Phrase::Failure, at, end: at + words.len() })
}

/// What has to do with errors of memory as chips make them.
const PARTS_OF_CHIPS: [&str; 4] = ["correction", "rate", "detection", "report"];

/// `not enough GPU memory`, `insufficient system memory`, `memory exhausted`.
fn lack(lower: &str) -> Option<Claim> {
    // `Memory limit (total) exceeded`, `exceeded per-node memory limit`
    if let (Some(limit), Some(exceeded)) = (lower.find("memory limit"), lower.find("exceeded")) {
        let end = (limit + "memory limit".len()).max(exceeded + "exceeded".len());
        return Some(Claim { phrase: Phrase::Lack, at: limit.min(exceeded), end });
    }
    // `memory error correction` is none.
    let is_error = |at: usize| {
        !lower[at..]
            .strip_prefix("memory error ")
            .is_some_and(|rest| PARTS_OF_CHIPS.iter().any(|word| rest.starts_with(word)))
    };
    let is_of_hardware = || has_any_word(lower, "hardware edac ecc dimm");
    if let Some((at, phrase)) = LACKING.iter().find_map(|phrase| Some((lower.find(phrase)?, phrase)))
        && is_error(at)
        && !is_of_hardware()
    {
        return Some(Claim { phrase: Phrase::Lack, at, end: at + phrase.len() });
    }
    LACKS.iter().find_map(|lack| {
        let at = lower.find(lack)?;
        let behind = at + lack.len();
        let is_word = |c: char| c.is_alphanumeric() || c == '-';
        let mut from = behind;
        for _ in 0..=MOST_BETWEEN {
            let gap = lower[from..].len() - lower[from..].trim_start_matches(' ').len();
            let word = &lower[from + gap..];
            let length = word.find(|c| !is_word(c)).unwrap_or(word.len());
            if gap == 0 || length == 0 {
                return None;
            }
            let until = from + gap + length;
            // `insufficient permissions to read memory`, `insufficient data in memory`, and not `no space in memory`
            let is_room = || ["space", "room"].iter().any(|word| lower[behind..from].trim_end().ends_with(word));
            if &word[..length] == "to" || &word[..length] == "in" && lack.ends_with("sufficient") && !is_room() {
                return None;
            }
            if MEMORIES.contains(&&word[..length]) {
                return Some(Claim { phrase: Phrase::Lack, at, end: until });
            }
            from = until;
        }
        None
    })
}

/// `NVJPEG_STATUS_ALLOCATOR_FAILURE`, `SQLITE_NOMEM`: the name of a status.
fn status(line: &str) -> Option<Claim> {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let mut from = 0;
    while let Some(start) = line[from..].find(is_part).map(|start| from + start) {
        let end = line[start..].find(|c| !is_part(c)).map_or(line.len(), |length| start + length);
        let name = &line[start..end];
        let is_refused = name.contains("ALLOC") && has_any(name, &["FAIL", "ERR"]);
        if name.contains('_') && (is_refused || has_any(name, &["NOMEM", "NO_MEMORY", "INSUFFICIENT_MEM", "MEM_ERROR"]))
        {
            return Some(Claim { phrase: Phrase::Lack, at: start, end });
        }
        from = end;
    }
    None
}

/// `Check failed: err == CUBLAS_STATUS_SUCCESS (1 vs. 0)`: a library that could not be set up on the device, by the number of
/// its status.
fn check(line: &str) -> Option<Claim> {
    let (head, rest) = line.split_once("_STATUS_SUCCESS (")?;
    let (number, _) = rest.split_once(" vs. 0)")?;
    let name = head.rsplit(|c: char| !c.is_ascii_uppercase()).next()?;
    // Not set up, and not allocated.
    let is_refused = match name {
        "CUBLAS" => matches!(number, "1" | "3"),
        "CUDNN" | "CUSOLVER" | "CUSPARSE" => matches!(number, "1" | "2"),
        "CURAND" => matches!(number, "102" | "203"),
        _ => false,
    };
    let (at, end) = (head.len() - name.len(), line.len() - rest.len());
    is_refused.then_some(Claim { phrase: Phrase::Lack, at, end })
}
