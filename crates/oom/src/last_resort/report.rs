//! A line that has the shape of an error and says that memory could not be had.
//!
//! Words that no family knows come last (`oom/last_resort/`): where a log has no event and shows nothing else that went
//! wrong, a line near its end that says in everyday words that memory could not be had, and has the shape of an error,
//! counts for half.

use std::borrow::Cow;
use std::sync::OnceLock;

use aho_corasick::AhoCorasick;
use lowtide_core::Bytes;

use super::claim::{Claim, Phrase, claim};
use super::told::{TOLD, told};
use super::words::{
    CALM, DOCUMENTS, ENDS, ERRORS, FAILURES, GOES_ON, KINDS, LACKING, LACKS, OWNERS, SHORTAGES, SIGNATURES,
    TRANSLATIONS, WORKERS_GONE, WORKERS_KILLED,
};
use crate::figure::figure_at;
use crate::look_alike::{names_other_errno, never_memory};
use crate::message::{clean, without_prefix};
use crate::names::{is_listed, is_name_of_errno};
use crate::phrase::{has_any, has_any_caseless, has_any_word};
use crate::source_code::is_source_code;
use crate::talk::{is_only_mentioned, is_prose, is_within_talk};
use crate::{Certainty, Engine, Oom, OomHit, Place, Source};

/// How many of the lines below may show that a program ended.
const BELOW: usize = 4;
/// How much of what follows is looked at.
const NEAR: usize = 2 << 10;
/// 64 TiB: nobody means more.
const LARGEST: u128 = 64 << 40;
/// A name before a report has no more words.
const LONGEST_NAME: usize = 5;
/// A clock, a name and a level have no more parts.
const LONGEST_HEAD: usize = 6;

/// A post that is no longer may be nothing but what a person tells.
const SHORT_POST: usize = 2 << 10;

/// The last report of a text in words that no family knows.
#[must_use]
pub fn scan_last_resort(text: &[u8]) -> Option<OomHit> {
    static WORDS: OnceLock<AhoCorasick> = OnceLock::new();
    let words = WORDS.get_or_init(|| {
        // Every line of a log may speak of memory; few have a word of these.
        let others = ["alloc", "memory limit", "nomem", "no_memory", "mem_error", "_STATUS_SUCCESS (", "exceeded "];
        let known = FAILURES.iter().chain(&LACKS).chain(&LACKING).chain(&TRANSLATIONS);
        let known = known.chain(&WORKERS_KILLED).chain(&WORKERS_GONE);
        let words = known.chain(&SHORTAGES).chain(&SIGNATURES).chain(TOLD.iter().copied().flatten()).chain(&others);
        let words = AhoCorasick::builder().ascii_case_insensitive(true).build(words);
        words.expect("a short list of literals always builds")
    });
    let mut end = text.len();
    let mut lines: Vec<(usize, &[u8])> = Vec::new();
    let mut start = 0;
    for line in text.split(|byte| *byte == b'\n') {
        lines.push((start, line));
        start += line.len() + 1;
    }
    for (index, (start, line)) in lines.iter().enumerate().rev() {
        let below = &text[end.min(text.len())..];
        end = *start;
        if !words.is_match(*line) {
            continue;
        }
        let line_text = clean(line);
        let above = index.checked_sub(1).map_or(Cow::Borrowed(""), |above| clean(lines[above].1));
        let ended = ended_notebook(&line_text, text, below).or_else(|| ended_workers(&line_text, &text[..*start]));
        let told = || (text.len() <= SHORT_POST).then(|| told(&line_text, &String::from_utf8_lossy(text))).flatten();
        if let Some(oom) = ended.or_else(|| report(&line_text, &above, below)).or_else(told) {
            return Some(OomHit { line: index + 1, range: *start..*start + line.len(), oom });
        }
    }
    None
}

fn report(line: &str, above: &str, below: &[u8]) -> Option<Oom> {
    let line = without_prefix(line).trim();
    // A whole line between backticks is somebody's error, as code.
    let line = line.strip_prefix('`').and_then(|line| line.strip_suffix('`')).unwrap_or(line);
    let lower = line.to_ascii_lowercase();
    let Claim { phrase, at, end } = claim(line, &lower)?;
    let head = &lower[..at];
    let near = String::from_utf8_lossy(&below[..below.len().min(NEAR)]);
    let next = near.lines().next().unwrap_or_default();
    let is_calm = has_any_word(head, CALM) && !ends_by_error(&near);
    let is_talk = DOCUMENTS.iter().any(|mark| line.starts_with(mark))
        || never_memory(line).is_some()
        || names_other_errno(&lower)
        || is_within_talk(above, line, at)
        || is_source_code(line)
        || is_only_mentioned(line, at, end)
        || is_listed(line, at, end)
        || line.starts_with("[ENOMEM]")
        || is_name_of_errno(above)
        || is_prose(head)
        || is_part_of_name(&lower, at, end)
        || has_any(&lower, &GOES_ON)
        || is_calm && phrase != Phrase::Plain
        || is_count(&lower[end..]);
    if is_talk {
        return None;
    }
    let asked = || requested(next).filter(|_| next.to_ascii_lowercase().contains("alloc"));
    // Of a sentence that is taken as a whole, the figures may be limits.
    // `Requested amount of GPU memory (4096 bytes) could not be allocated`
    let before = || requested(&line[..at]).filter(|_| lower[at..end].ends_with("be allocated"));
    // `Insufficient graphics memory! 2.0 GB, needs 3.9 GB`
    let needed = needed(&line[end..]);
    let free = needed.and_then(|_| requested(&line[end..])).and_then(|bytes| u64::try_from(bytes).ok()).map(Bytes);
    let asked = || needed.or_else(|| requested(&line[at..])).or_else(asked).or_else(before);
    let requested = asked().filter(|_| phrase != Phrase::Plain);
    if requested.is_some_and(|bytes| bytes > LARGEST) {
        return None;
    }
    let requested = requested.and_then(|bytes| u64::try_from(bytes).ok()).map(Bytes);
    let is_error = has_any_word(head, ERRORS) || names_class(&line[..at]);
    let is_named = is_name(head);
    let ends = || is_end(&near);
    let has_shape = match phrase {
        Phrase::Failure => is_error || is_named && (requested.is_some() || ends()),
        Phrase::Lack => is_error || is_named && ends(),
        Phrase::Limit | Phrase::Plain => true,
    };
    // `cpu_device_storage.h:75: Failed to allocate CPU Memory`
    let is_of_host = has_any(&lower[at..], &["cpu memory", "host memory", "system memory", "main memory"])
        // What Windows calls `std::bad_alloc`.
        || lower[at..].starts_with("bad allocation");
    let is_of_device = is_of_device(&lower) && !is_of_host;
    let source = match phrase {
        Phrase::Limit => Source::Scheduler,
        // Who says what is there and what is needed knows his figures.
        _ if is_of_device && free.is_some() => Source::Allocator,
        _ => Source::Heap,
    };
    has_shape.then(|| Oom {
        place: if is_of_device { Place::Device } else { Place::Host },
        certainty: Certainty::Possible,
        requested,
        free: free.filter(|free| requested.is_some_and(|requested| *free < requested)),
        ..Oom::host(Engine::Unknown, source)
    })
}

/// `tcmalloc: large alloc 1262256128 bytes == ...` and `^C`, or a kernel that its server starts anew: how Colab shows that it killed
/// what ran. The note alone is none.
fn ended_notebook(line: &str, text: &[u8], below: &[u8]) -> Option<Oom> {
    let is_restarted = || memchr::memmem::find(text, b"KernelRestarter: restarting kernel").is_some();
    let is_ended =
        line.contains("tcmalloc: large alloc ") && (String::from_utf8_lossy(below).trim() == "^C" || is_restarted());
    is_ended.then(|| Oom { certainty: Certainty::Slight, ..Oom::host(Engine::Unknown, Source::ExitStatus) })
}

/// Workers that were gone, where nothing above tells another reason: nnU-Net says that memory was full, Dask and Ray say of a process
/// that vanished only that.
fn ended_workers(line: &str, above: &[u8]) -> Option<Oom> {
    let is_reason = |line: &str| {
        names_class(line) && line.contains("Error: ") && !has_any(line, &["ackground worker", "died unexpectedly"])
    };
    let has_reason = || String::from_utf8_lossy(above).lines().any(is_reason);
    let certainty = match () {
        () if has_any(line, &WORKERS_KILLED) => Certainty::Possible,
        () if has_any(line, &WORKERS_GONE) && !is_source_code(line) => Certainty::Slight,
        () => return None,
    };
    let engine = if certainty == Certainty::Possible { Engine::PyTorch } else { Engine::Unknown };
    (!has_reason()).then(|| Oom { certainty, ..Oom::host(engine, Source::DataWorker) })
}

/// The first figure behind a word for what is needed.
fn needed(text: &str) -> Option<u128> {
    let at = ["needs ", "needed ", "need ", "requires ", "required "].iter().find_map(|word| text.find(word))?;
    requested(&text[at..])
}

/// Whether one of the next lines calls itself an error.
fn ends_by_error(near: &str) -> bool {
    let calls_itself = |line: &str| {
        let mut head = without_prefix(line).split([':', ']', '|']).take(LONGEST_HEAD);
        head.any(|part| has_any_word(&part.to_ascii_lowercase(), "error fatal critical"))
    };
    near.lines().filter(|line| !line.trim().is_empty()).take(BELOW).any(calls_itself)
}

/// Whether the words are part of a setting, a file or a function.
fn is_part_of_name(lower: &str, at: usize, end: usize) -> bool {
    let joins = |c: char| matches!(c, '_' | '/' | '-' | '=' | '.');
    let before = lower[..at].chars().next_back();
    let after = lower[end..].chars().next();
    before.is_some_and(joins) || after.is_some_and(|c| matches!(c, '_' | '/' | '=' | '('))
}

/// `: 0`, `: 12` and nothing else: how often it happened.
fn is_count(after: &str) -> bool {
    let rest = after.trim_start_matches(['s', ' ', '"', '\'', ')']);
    let rest = ["rate", "count", "total"].iter().find_map(|word| rest.strip_prefix(word)).unwrap_or(rest);
    rest.strip_prefix([':', '='])
        .map(|rest| rest.trim_matches([' ', '"', ',', '}']))
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
}

/// The first size behind the words.
fn requested(text: &str) -> Option<u128> {
    let mut starts = text.char_indices().filter(|(at, c)| {
        c.is_ascii_digit()
            && !text[..*at]
                .ends_with(|before: char| before.is_ascii_alphanumeric() || matches!(before, '.' | '_' | ':'))
    });
    starts.find_map(|(at, _)| {
        let figure = figure_at(&text[at..])?;
        // `to allocate buffer: 655360000`: nothing but bytes is counted so high.
        let is_bytes = text[..at].ends_with(": ") && figure.bytes >= 1 << 20 && at + figure.length == text.len();
        (figure.has_unit || is_bytes).then_some(figure.bytes)
    })
}

/// `torch.SomeError: `, `FooException`: a class before its message.
fn names_class(head: &str) -> bool {
    head.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| {
        word.len() > 5 && (word.ends_with("Error") || word.ends_with("Exception") || word.ends_with("Failure"))
    })
}

/// Nothing, or a short name that is set apart, and what was to be had: `[worker] `, `solver: GPU memory `.
fn is_name(head: &str) -> bool {
    let mut head = head.trim_end();
    let is_part = |word: &str| has_any_word(word, KINDS) || has_any_word(word, OWNERS);
    while let Some(word) =
        head.rsplit(' ').next().filter(|word| is_part(word) && word.chars().all(char::is_alphanumeric))
    {
        head = head[..head.len() - word.len()].trim_end();
    }
    let is_apart = head.is_empty() || head.ends_with([':', ']', ')', '-', '|', '>', '.', ',']);
    is_apart && head.split_whitespace().count() <= LONGEST_NAME
}

/// Whether what follows shows an end: words for it, or nothing at all.
fn is_end(near: &str) -> bool {
    let lines: Vec<&str> = near.lines().filter(|line| !line.trim().is_empty()).take(BELOW).collect();
    lines.len() < BELOW || lines.iter().any(|line| has_any_caseless(line, &ENDS))
}

pub(super) fn is_of_device(lower: &str) -> bool {
    has_any(
        lower,
        &[
            "cuda",
            "gpu",
            "device",
            "vram",
            "accelerator",
            "opencl",
            "video mem",
            "graphics mem",
            "graphic mem",
            "hbm",
            "npu",
            "tpu",
            "vkalloc",
            "llama runner",
            "cublas_",
            "cudnn_",
            "curand_",
            "cusolver_",
            "cusparse_",
            "miopen",
            "显存",
            // Sources that only a device's compiler takes.
            ".cu:",
            "/thc/",
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<Oom> {
        scan_last_resort(text.as_bytes()).map(|hit| hit.oom)
    }

    #[test]
    fn reports_of_programs_that_nobody_knows() {
        for (text, place, requested) in [
            ("loading\nERROR: not enough free GPU memory for the scene\n", Place::Device, None),
            ("solver: could not allocate 512 MB for the factor\nexit 1\n", Place::Host, Some(512 << 20)),
            ("SimError: insufficient system memory\n", Place::Host, None),
            ("[mesh] memory allocation failed (1048576 bytes)\n", Place::Host, Some(1 << 20)),
            (
                "terminate called\n  what():  Failed to allocate field buffer on the device\nAborted\n",
                Place::Device,
                None,
            ),
            ("Fatal: memory exhausted\n", Place::Host, None),
            ("Error: insufficient space in memory\n", Place::Host, None),
            ("Unable to allocate the requested 1000.000000 Mwords of memory.\n", Place::Host, None),
            ("Unhandled exception. LibException: Device allocation error\n", Place::Device, None),
            ("Exception in slam: Unable to allocate a buffer: the card is full\n", Place::Host, None),
            ("loading\nvkAllocateMemory failed -2\n", Place::Device, None),
            ("Malloc failed! Crashed! Probably run out of memory.\n", Place::Host, None),
            ("ERROR: too many cells to fit into the available memory, 12 GiB needed\n", Place::Host, Some(12 << 30)),
            ("Betriebssystemfehler: Nicht genügend Hauptspeicher verfügbar\nAbbruch\n", Place::Host, None),
            ("solve: 无法分配内存\n", Place::Host, None),
            ("QueryError: exceeded the memory limit of the node\n", Place::Host, None),
            ("ERR: OOM allocating 1073741816 fds\n", Place::Host, None),
            ("ERROR: allocation failed on cuda:0\n", Place::Device, None),
            ("ERROR: failed to allocate 2147483648 on cuda:0\n", Place::Device, None),
            ("ERROR: Failed to allocate KV cache on device\n", Place::Device, None),
            ("ERROR: unable to allocate GPU storage for the model\n", Place::Device, None),
            ("ERROR: failed to allocate pages on the GPU\n", Place::Device, None),
            ("DecodeError: decoder \"5\" : XJPEG_STATUS_ALLOCATOR_FAILURE of the device\n", Place::Device, None),
            ("<Error> Memory limit (total) exceeded: while merging\n", Place::Host, None),
            ("RuntimeError: CUDA显存不足\n", Place::Device, None),
            ("2m  Warning  Evicted  pod/a  The node had condition: [MemoryPressure].\n", Place::Host, None),
            ("Requested 5000x5000 (18.6GB) array exceeds maximum array size preference (15.9GB).\n", Place::Host, None),
            ("lib.basic.LibError: bad allocation\n", Place::Host, None),
            (
                "[Tool] ERROR: Requested amount of GPU memory (4096 bytes) could not be allocated.\n",
                Place::Device,
                Some(4096),
            ),
            ("Job terminated: exceeded requested memory (64G)\n", Place::Host, Some(64 << 30)),
            ("`Cannot malloc 49.0 MB GPU memory. Please shrink it.`\n", Place::Device, Some(49 << 20)),
            ("job 313 exceeded MEM usage hard limit (2528 > 1126)\n", Place::Host, None),
            (
                "Aborted by the server\nJob exceeded a memory resource limit (vmem, etc.). Job was aborted\n",
                Place::Host,
                None,
            ),
            ("Pool WARNING: failed to allocate memory for x, none is left\nERROR: engine dead\n", Place::Host, None),
            ("Check failed: err == CUBLAS_STATUS_SUCCESS (1 vs. 0) : Create handle failed\n", Place::Device, None),
            (
                "Lib Error: memory of the device not available to allocate buffer: 4194304\n",
                Place::Device,
                Some(4 << 20),
            ),
        ] {
            let oom = found(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(
                (oom.place, oom.requested, oom.certainty),
                (place, requested.map(Bytes), Certainty::Possible),
                "{text}"
            );
        }
    }

    #[test]
    fn workers_that_were_gone_are_a_sign_where_nothing_tells_more() {
        let died =
            "Background workers died. If there is none then your RAM was full and the worker was killed by the OS.\n";
        assert_eq!(found(died).map(|oom| oom.source), Some(Source::DataWorker));
        assert_eq!(found(&format!("FileNotFoundError: no such file\n{died}")), None);
    }

    #[test]
    fn a_kernel_that_its_server_starts_anew_was_killed_where_much_was_asked_for() {
        let note = "WARNING | tcmalloc: large alloc 12884901888 bytes == 0x7f88 @ 0x7f94\n";
        let restart = "INFO | KernelRestarter: restarting kernel (1/5), keep random ports\n";
        for text in [format!("{note}{restart}"), format!("{restart}{note}")] {
            assert_eq!(found(&text).map(|oom| (oom.place, oom.certainty)), Some((Place::Host, Certainty::Slight)));
        }
        assert_eq!(found(note), None);
    }

    #[test]
    fn what_talks_counts_or_goes_on_is_none() {
        for text in [
            "If the solver reports not enough memory, lower the tolerance.\n",
            "WARNING: not enough GPU memory for caching, falling back to disk\nstep 3\n",
            "- Error: not enough memory on small cards (fixed)\n",
            "failed allocations: 0\nmemory errors: 0\n",
            "ERROR: failed to allocate port 8080\n",
            "sudo: unable to allocate pty: No such device\n",
            "UnexpectedAdmissionError: Allocate failed due to requested number of devices unavailable for nvidia.com/gpu.\n",
            "ERROR: could not allocate GPU: no free GPUs on node\n",
            "ERROR: could not allocate GPU for job 7\n",
            "ERROR: failed to allocate port on device eth0\n",
            "ERROR: unable to allocate device address 7\n",
            "ERROR: failed to allocate chunk on device sdb1\n",
            "ERROR: failed to reserve IP from pool: pool exhausted\n",
            "OSError: failed to map file into memory: Permission denied\n",
            "EXT4-fs error (device sda1): ext4_mb_generate_buddy: allocation failed\n",
            "libGL error: failed to allocate buffer object: Permission denied\n",
            "libvirt: error: unable to allocate PCI device address\n",
            "{1}[Hardware Error]:   section_type: memory error\n",
            "memory error rate: 0.0\n",
            "memory error correction is on\n",
            "DIMM memory error: correctable at slot 3\n",
            "Error: insufficient permissions to read memory info\n",
            "error: insufficient data in memory cache\n",
            "  on_error: [OOMKilled, Error, Evicted]\n",
            "[ENOMEM] Insufficient memory is available.\n",
            "       ENOMEM\n              Insufficient memory.\n",
            "Error: the reader stops when the limit is reached, or it has\nnot enough memory for the file.\n",
            "ERROR: could not allocate a job to the queue\n",
            "INFO error budget: out of the available memory we use 10 GiB\n",
            "IpPool.allocate failed: no address left\n",
            "ERROR: the title does not fit into the box of the map\n",
            "raise SimError(\"not enough memory\")\n",
            "显存不足怎么办\n如果显存不足，请减小批量\n",
            "tcmalloc: large alloc 1262256128 bytes == 0x11 @ 0x7f\nstep 3\n",
            "If a job exceeded the memory limit, ask for more.\n",
            "job 7 exceeded the time limit\nmemory was fine\n",
            "Check failed: e == CUBLAS_STATUS_SUCCESS (13 vs. 0) : execution failed\n",
            "error: failed to allocate 9223372036854775807 bytes of memory\n",
            "reserved 12 GiB of memory\nall errors are gone\n",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }

    #[test]
    fn the_last_one_counts_and_its_line_is_right() {
        let hit =
            scan_last_resort(b"a\nERROR: not enough device memory\nb\nERROR: not enough device memory\n").unwrap();
        assert_eq!((hit.line, hit.range), (4, 36..67));
    }
}
