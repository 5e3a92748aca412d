//! Names of errors and statuses, where a text only names them: in a list, a declaration, a compiler's note, a page of a manual.

use crate::phrase::{has_any, has_any_caseless};
use crate::talk::is_name_only_mentioned;

/// Whether a name, which stands at `at..end`, is no more than named there.
pub(crate) fn is_only_named(line: &str, at: usize, end: usize) -> bool {
    let (start, stop) = whole_name(line, at, end);
    is_listed(line, at, end)
        || is_declared(line, start, stop)
        || is_explained(line, start, stop)
        || is_searched(&line[..start])
        || is_condition(&line[..start], &line[stop..])
        || !is_value_of_row(line, at, end)
            && (is_count_of_none(&line[..start], &line[stop..]) || is_name_only_mentioned(line, at, end))
}

/// `4242|test|OUT_OF_MEMORY|0:125`, `test   0/1   OOMKilled   0`, `4242 test OUT_OF_ME+ 0:125`: a row of a table has names and figures, and no words.
fn is_value_of_row(line: &str, at: usize, end: usize) -> bool {
    const GAPS: [&str; 3] = ["|", "\t", "  "];
    let (before, after) = (&line[..at], line[end..].trim_start_matches('+'));
    let is_pair = |word: Option<&str>, sign| {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        word.and_then(|word| word.split_once(sign)).is_some_and(|(one, other)| is_number(one) && is_number(other))
    };
    let is_joined = after.strip_prefix(',').is_some_and(|rest| !rest.starts_with(' '));
    let opens = before.ends_with(',')
        || GAPS.iter().any(|gap| before.ends_with(gap))
        || is_pair(before.split_whitespace().next_back(), '/');
    let goes_on =
        is_joined || GAPS.iter().any(|gap| after.starts_with(gap)) || is_pair(after.split_whitespace().next(), ':');
    goes_on && (opens || before.ends_with(' ')) || opens && after.is_empty()
}

/// Whether a line is no more than the name of the number for no memory: what it means stands below it, in a manual.
pub(crate) fn is_name_of_errno(line: &str) -> bool {
    let line = line.trim();
    line.ends_with("ENOMEM") && line.split_whitespace().count() < 3
}

/// The name that a part of it stands in, with its path.
fn whole_name(line: &str, at: usize, end: usize) -> (usize, usize) {
    let start = line[..at].trim_end_matches(|c| is_part(c) || c == '.').len();
    let behind = line[end..].trim_start_matches(is_part);
    (start, line.len() - behind.len())
}

/// `FAILED,OUT_OF_MEMORY,TIMEOUT`, `[OOMKilled, Evicted]`, `states: FAILED, OUT_OF_MEMORY`: one of several names of a kind, in brackets,
/// of three or more, or of what a key in the plural has. Two are as often a state and what comes next.
pub(crate) fn is_listed(line: &str, at: usize, end: usize) -> bool {
    let (at, end) = whole_name(line, at, end);
    let name = &line[at..end];
    let (head, before) = items_before(&line[..at], name);
    let (rest, after) = items_behind(&line[end..], name);
    // `(torch.OutOfMemoryError,)`
    let is_single = before == 0 && head.ends_with('(') && rest.starts_with(",)");
    if before + after == 0 {
        return is_single;
    }
    let opens = head.is_empty() || head.ends_with(['[', '(', '{', ':', '=']);
    let closes = after > 0 || rest.is_empty() || rest.starts_with([']', ')', '}', '.']);
    let is_enclosed = head.ends_with(['[', '(', '{']) || rest.starts_with([']', ')', '}']);
    let is_long = || before + after > 1 || is_plural(head.trim_end_matches([':', '=']));
    (if before > 0 { closes } else { opens }) && (is_enclosed || is_long())
}

/// Whether a text ends with the key of several things: `states`, and not `status`.
fn is_plural(text: &str) -> bool {
    text.ends_with('s') && !["us", "ss"].iter().any(|end| text.ends_with(end))
}

const QUOTES: [char; 3] = ['"', '\'', '`'];
/// No list is followed further.
const MOST_ITEMS: usize = 3;

/// How many names of the kind stand before one in its list, and what stands before them.
fn items_before<'a>(text: &'a str, name: &str) -> (&'a str, usize) {
    let mut head = text.trim_end_matches(QUOTES).trim_end();
    for count in 0..MOST_ITEMS {
        let Some(left) = head.strip_suffix(',') else { return (head, count) };
        let left = left.trim_end().trim_end_matches(QUOTES);
        let start = left.trim_end_matches(is_part).len();
        if !is_like(&left[start..], name) {
            return (head, count);
        }
        head = left[..start].trim_end_matches(QUOTES).trim_end();
    }
    (head, MOST_ITEMS)
}

/// How many stand behind it, and what stands behind them.
fn items_behind<'a>(text: &'a str, name: &str) -> (&'a str, usize) {
    let mut rest = text.trim_start_matches(QUOTES).trim_start();
    for count in 0..MOST_ITEMS {
        let Some(right) = rest.strip_prefix(',') else { return (rest, count) };
        let right = right.trim_start().trim_start_matches(QUOTES);
        let (item, behind) = right.split_at(right.find(|c| !is_part(c)).unwrap_or(right.len()));
        let behind = behind.trim_start_matches(QUOTES).trim_start();
        let ends = behind.is_empty() || behind.starts_with([',', ']', ')', '}', '.']);
        if !is_like(item, name) || !ends {
            return (rest, count);
        }
        rest = behind;
    }
    (rest, MOST_ITEMS)
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether two names are written alike: both in capitals, or both as classes are.
fn is_like(one: &str, other: &str) -> bool {
    let is_constant = |name: &str| name.len() > 2 && !name.contains(|c: char| c.is_ascii_lowercase());
    let is_class = |name: &str| name.starts_with(|c: char| c.is_ascii_uppercase()) && !is_constant(name);
    let other = other.rsplit('.').next().unwrap_or(other);
    let begins = |name: &str| name.starts_with(|c: char| c.is_ascii_alphabetic());
    begins(one) && begins(other) && (is_constant(one) && is_constant(other) || is_class(one) && is_class(other))
}

/// `driver_types.h:270: note: NAME = 2,`, `use of undeclared identifier 'NAME'`, `NAME -> OTHER_NAME`, `NAME is deprecated`.
fn is_declared(line: &str, at: usize, end: usize) -> bool {
    const NOTES: [&str; 5] = [": note: ", "undeclared", "undefined", "enum ", "typedef "];
    let (before, after) = (&line[..at], &line[end..]);
    let is_number = |rest: &str| rest.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit());
    let is_mapped = [" -> ", " => "].iter().any(|arrow| {
        let names_next = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphabetic());
        after.strip_prefix(arrow).is_some_and(names_next)
            || before.strip_suffix(arrow).is_some_and(|head| head.ends_with(is_part))
    });
    is_mapped
        || has_any(line, &NOTES)
        // A report that tells a status and its number has words before it.
        || before.trim().is_empty() && after.strip_prefix(" = ").is_some_and(is_number)
        || [" != ", "=~"].iter().any(|sign| before.ends_with(sign))
        || has_any_caseless(line, &["ignored", "deprecated"])
}

/// `Found 0 OOMKilled pods`
fn is_count_of_none(before: &str, after: &str) -> bool {
    let what = after.strip_prefix(' ').unwrap_or_default();
    before.ends_with(" 0 ") && what.starts_with(|c: char| c.is_ascii_lowercase())
}

/// `kubectl get pods | grep OOMKilled`, `sacct --state OUT_OF_MEMORY -u me`: what somebody asks for.
fn is_searched(before: &str) -> bool {
    let before = before.trim_end_matches(['"', '\'']).trim_end().trim_end_matches('=');
    let last = before.rsplit(' ').next().unwrap_or_default();
    // With the items of a list before it.
    let option = last.split('=').next().unwrap_or(last);
    let name = option.trim_start_matches('-');
    let is_option = name.len() < option.len()
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| is_part(c) || c == '-');
    is_option || before.ends_with("grep")
}

/// `throws: NAME if the size is too large`, `returns NAME when ...`: when it comes, for everybody.
fn is_condition(before: &str, after: &str) -> bool {
    let is_verb = ["throws", "raises", "returns"]
        .iter()
        .any(|verb| before.trim_end_matches([' ', ':', '`', '*']).ends_with(verb));
    let after = after.trim_start_matches(['`', '*', ':', ' ', ',']);
    is_verb && ["if ", "when "].iter().any(|word| after.starts_with(word))
}

/// `* `OOMKilled` - the container used more than its limit`, `[ENOMEM] Insufficient memory is available.`: an item of a glossary.
fn is_explained(line: &str, at: usize, end: usize) -> bool {
    let (before, after) = (line[..at].trim_start(), &line[end..]);
    let is_item = ["* ", "- ", "+ ", "\u{2022} ", "| "].iter().any(|mark| before.starts_with(mark));
    let is_marked = before.ends_with(['`', '*']) && after.starts_with(['`', '*']);
    is_item && is_marked && before.trim_matches(['*', '-', '+', '\u{2022}', '|', ' ', '`']).is_empty()
        || before == "[" && after.starts_with("] ") && line[at..].starts_with("ENOMEM")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, name: &str) -> bool {
        let at = line.find(name).expect("the name");
        is_only_named(line, at, at + name.len())
    }

    #[test]
    fn names_in_lists_and_declarations_report_nothing() {
        for (line, name) in [
            ("sacct --state=FAILED,OUT_OF_MEMORY,TIMEOUT", "OUT_OF_MEMORY"),
            ("states: NODE_FAIL, OUT_OF_MEMORY, PREEMPTED", "OUT_OF_MEMORY"),
            ("retryOn: [OOMKilled, Evicted]", "OOMKilled"),
            ("retryOn: ['Evicted', 'OOMKilled']", "OOMKilled"),
            ("errno: EAGAIN, ENOMEM, EINTR", "ENOMEM"),
            ("a.h:270: note: cudaErrorMemoryAllocation = 2,", "cudaErrorMemoryAllocation"),
            ("enum VK_ERROR_OUT_OF_DEVICE_MEMORY = -2", "VK_ERROR_OUT_OF_DEVICE_MEMORY"),
            ("hipify: cudaErrorMemoryAllocation -> hipErrorOutOfMemory", "hipErrorOutOfMemory"),
            ("retry_exceptions=(torch.cuda.OutOfMemoryError,)", "OutOfMemoryError"),
            ("Supports: VK_ERROR_OUT_OF_DEVICE_MEMORY, VK_ERROR_DEVICE_LOST", "OUT_OF_DEVICE_MEMORY"),
            ("terminated.reason != OOMKilled", "OOMKilled"),
            ("* `OOMKilled` - the container used more than its limit", "OOMKilled"),
            ("[ENOMEM] Insufficient memory is available.", "ENOMEM"),
            ("std::bad_alloc is thrown when operator new fails", "std::bad_alloc"),
            ("use of undeclared identifier 'CUDA_ERROR_OUT_OF_MEMORY'", "CUDA_ERROR_OUT_OF_MEMORY"),
            ("Found 0 OOMKilled pods", "OOMKilled"),
            ("kubectl get pods | grep OOMKilled", "OOMKilled"),
            ("sacct --state OUT_OF_MEMORY -u me", "OUT_OF_MEMORY"),
            ("sacct -s FAILED,OUT_OF_MEMORY", "OUT_OF_MEMORY"),
            ("sacct --state=OUT_OF_MEMORY", "OUT_OF_MEMORY"),
            ("throws: std::bad_alloc if the size is too large", "std::bad_alloc"),
            ("states: FAILED, OUT_OF_MEMORY", "OUT_OF_MEMORY"),
            ("no container of the test was OOMKilled", "OOMKilled"),
            ("it may be OOMKilled, or not", "OOMKilled"),
            ("If it failed with OOMKilled, raise the limit", "OOMKilled"),
            ("It should be checked whether cuInit returned CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_OUT_OF_MEMORY"),
            ("could not reproduce CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_OUT_OF_MEMORY"),
            ("add a test for CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_OUT_OF_MEMORY"),
        ] {
            assert!(check(line, name), "{line}");
        }
        for (line, name) in [
            ("7,train,8,OUT_OF_MEMORY,0:125", "OUT_OF_MEMORY"),
            ("JobState=OUT_OF_MEMORY, ExitCode=0:125", "OUT_OF_MEMORY"),
            ("Reason: OOMKilled, Exit Code: 137", "OOMKilled"),
            ("std::bad_alloc is thrown when I read it", "std::bad_alloc"),
            ("spawn failed: ENOMEM, try later", "ENOMEM"),
            ("cudaMalloc(&p, n) -> cudaErrorMemoryAllocation", "cudaErrorMemoryAllocation"),
            ("error = CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_OUT_OF_MEMORY"),
            ("Pod train-0 status changed: OOMKilled, Restarting", "OOMKilled"),
            ("Pod status: OOMKilled, Restarting", "OOMKilled"),
            ("train.py --fp16: OOMKilled", "OOMKilled"),
            ("7 train 0 OUT_OF_MEMORY 0:125", "OUT_OF_MEMORY"),
            (">     0 CUDA Error: out of memory", "CUDA Error: out of memory"),
            ("Error code: CUDA_ERROR_OUT_OF_MEMORY, ABORTING", "CUDA_ERROR_OUT_OF_MEMORY"),
            ("4242,TRAIN,OUT_OF_MEMORY,0:125", "OUT_OF_MEMORY"),
            ("vkAllocateMemory returned VK_ERROR_OUT_OF_DEVICE_MEMORY = -2", "OUT_OF_DEVICE_MEMORY"),
            ("Container identifier 3f2a was terminated, reason OOMKilled", "OOMKilled"),
            ("mmap() = -1 ENOMEM", "ENOMEM"),
            ("pods of step 10 OOMKilled", "OOMKilled"),
            ("train - OOMKilled", "OOMKilled"),
            ("throws std::bad_alloc in step 3", "std::bad_alloc"),
            ("4242|test|OUT_OF_MEMORY|0:125", "OUT_OF_MEMORY"),
            ("4242   test OUT_OF_ME+  0:125", "OUT_OF_ME"),
            ("test   0/1   OOMKilled   0   12m", "OOMKilled"),
            ("no-if-0 OOMKilled", "OOMKilled"),
            ("test-train,OOMKilled,137", "OOMKilled"),
            ("vkAllocateMemory in test scene failed with OUT_OF_DEVICE_MEMORY", "OUT_OF_DEVICE_MEMORY"),
            ("could not retain CUDA primary context CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_OUT_OF_MEMORY"),
            ("Cannot go on, expected CUDA_SUCCESS but got CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_OUT_OF_MEMORY"),
            ("ERROR in test loader std::bad_alloc", "std::bad_alloc"),
        ] {
            assert!(!check(line, name), "{line}");
        }
    }
}
