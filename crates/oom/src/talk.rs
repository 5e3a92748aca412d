//! Text that reports an error, told from text that talks about one: quoted source code, advice, hypotheses.

use crate::phrase::has_any;
use crate::reference::has_any_word;
use crate::sieve::{LateTable, quick};

/// Whether a line is source code, as tracebacks and compilers quote it.
pub(crate) fn is_source_code(line: &str) -> bool {
    let line = without_margin(line);
    // A link to a line of code in a sentence is no code.
    let is_linked = line.contains("://") && has_any(line, &[" I ", " i ", " we "]);
    let linkless = is_linked.then(|| without_links(line));
    let line = linkless.as_deref().unwrap_or(line);
    if is_native_crash_note(line) || ends_in_report(line) {
        return false;
    }
    static MARKS: LateTable = LateTable::new();
    let has_mark = || match MARKS.get(|| quick(CODE_MARKS.iter().copied())) {
        Some(marks) => marks.is_match(line),
        None => has_any(line, CODE_MARKS),
    };
    starts_like_code(line) || has_mark() || goes_on_as_code(line) || hands_over_an_error(line)
}

fn without_links(line: &str) -> String {
    line.split(' ').filter(|word| !word.contains("://")).collect::<Vec<_>>().join(" ")
}

/// Whether an exception is made to be handed to a function: `is_out_of_memory(RuntimeError('CUDA error: out of memory'))`.
fn hands_over_an_error(line: &str) -> bool {
    let Some(at) = line.find("Error('").or_else(|| line.find("Error(\"")) else { return false };
    let call = line[..at].trim_end_matches(|c: char| c.is_alphanumeric() || c == '.').strip_suffix('(');
    let name = call.and_then(|call| call.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next());
    name.is_some_and(|name| name.contains('_') && !name.contains(|c: char| c.is_uppercase()))
}

/// A condition that goes on in the next line.
fn goes_on_as_code(line: &str) -> bool {
    let end = line.trim_end();
    end.ends_with(" ||") || end.ends_with(" &&")
}

/// Whether behind code and a wide gap an error stands by its class: the last two lines of a traceback, as terminals hand them
/// over where the first one filled their width.
fn ends_in_report(line: &str) -> bool {
    let Some((_, last)) = line.rsplit_once(GAP) else { return false };
    let Some((class, _)) = last.trim_start().split_once(": ") else { return false };
    let is_class = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
    class.ends_with("Error") && class.chars().all(is_class)
}

/// No code has as many blanks between two words.
const GAP: &str = "        ";

/// What a traceback puts before a quoted line: ranks, rulers, line numbers, arrows.
fn without_margin(line: &str) -> &str {
    let mut rest = line.trim_start();
    loop {
        let before = rest;
        rest = rest.trim_start_matches(['│', '|', '❱', '>', '╭', '╰', '─', ' ', '\t']);
        rest = without_arrow(without_number(without_rank(rest)));
        if rest.len() == before.len() {
            return rest;
        }
    }
}

fn without_rank(text: &str) -> &str {
    match text.strip_prefix("[rank").and_then(|rest| rest.split_once("]:")) {
        Some((rank, rest)) if rank.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        _ => text,
    }
}

fn without_number(text: &str) -> &str {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.len() < text.len() && rest.starts_with([' ', '│', '|']) { rest } else { text }
}

fn without_arrow(text: &str) -> &str {
    text.strip_prefix("--").map_or(text, |rest| rest.strip_prefix('>').unwrap_or(text))
}

/// The JVM writes its crash notes behind a `#`.
fn is_native_crash_note(line: &str) -> bool {
    line.starts_with("# There is insufficient memory") || line.starts_with("# Native memory allocation")
}

fn starts_like_code(line: &str) -> bool {
    if CODE_STARTS.iter().any(|start| line.starts_with(start)) {
        return true;
    }
    let is_branch = line.starts_with("if ") || line.starts_with("return ") || line.starts_with("while ");
    // `while running it I got RuntimeError: ... (2)` is somebody's sentence.
    let is_own = has_any(line, &[" I ", " i ", " we ", " my "]);
    is_branch && !is_own && (line.trim_end().ends_with([':', '{', ';', ')']) || has_any(line, &["(", "\"", "'"]))
}

const CODE_STARTS: &[&str] = &[
    "except ",
    "except(",
    "except:",
    "raise ",
    "elif ",
    "def ",
    "class ",
    "import ",
    "assert ",
    "throw ",
    "catch",
    "} catch",
    "if (",
    "if not ",
    "print(",
    "printf(",
    "fprintf(",
    "println!",
    "eprintln!",
    "panic!(",
    "warnings.warn(",
    "warn(",
    "logger.",
    "logging.",
    "log.",
    "self.",
    "super().",
    "TORCH_CHECK",
    "AT_ERROR",
    "C10_",
    "//",
    "/*",
    "# ",
    "## ",
    "#include",
    "#define",
    "fn ",
    "pub ",
    "let ",
    "const ",
    "static ",
    "std::",
    "echo ",
    "grep ",
    "with pytest",
    "match ",
    "case ",
];

const CODE_MARKS: &[&str] = &[
    " in str(",
    " in repr(",
    " not in str(",
    ".lower()",
    "isinstance(",
    "pytest.raises(",
    "assertRaises(",
    " = \"",
    " = '",
    " = f\"",
    " += \"",
    " == \"",
    " == '",
    "::OutOfMemoryError {",
    "OutOfMemoryError as ",
    "MemoryError as ",
    "bad_alloc&",
    "bad_alloc &",
    "grep -",
    " import ",
    "std::string(",
    "std::endl",
    "#L",
];

/// Whether the words around an anchor make it a piece of advice or a hypothesis instead of a report.
///
/// `at..end` is where the anchor stands in `line`. Only the clause it stands in is looked at.
pub(crate) fn is_only_mentioned(line: &str, at: usize, end: usize) -> bool {
    let clause = clause_before(&line[..at]);
    is_hypothetical(clause) || is_asked(clause) || is_topic(&line[end..]) || is_quoted(line, at)
}

/// `Am I out of memory here?`
pub(crate) fn is_asked(clause: &str) -> bool {
    let opening = clause.trim().to_ascii_lowercase();
    ["am i", "are we", "is it", "is this"].contains(&&*opening)
}

/// Whether the anchor stands in quotes that a sentence opens to name it: ``an error like `CUDA out of memory` ``.
///
/// JSON and exceptions quote what they report too, but behind a colon, not behind such words.
pub(crate) fn is_quoted(line: &str, at: usize) -> bool {
    ['"', '`', '\u{201c}'].into_iter().any(|quote| {
        let before = &line[..at];
        let is_open = quote == '\u{201c}' || before.matches(quote).count() % 2 == 1;
        let Some(open) = before.rfind(quote).filter(|_| is_open) else { return false };
        let clause = clause_before(before[..open].trim_end());
        let last = clause.rsplit(|c: char| !c.is_alphanumeric() && c != '.').find(|word| !word.is_empty());
        is_hypothetical(clause)
            || last.is_some_and(|last| NAMING.split(' ').any(|word| word.eq_ignore_ascii_case(last)))
    })
}

/// `I keep getting the error message`: what happened to who writes, and not what may happen to a reader.
pub(crate) fn tells_of_oneself(head: &str) -> bool {
    let head = head.to_ascii_lowercase();
    has_any_word(&head, "i we my our") && !has_any_word(&head, "you your")
}

/// Words that open a quotation to name what is in it.
const NAMING: &str = "like see as is are called named string phrase e.g. e.g";

fn clause_before(text: &str) -> &str {
    let start = text.rfind([':', ';', '!', '?', '(']).map_or(0, |at| at + 1);
    let sentence = text.rfind(". ").map_or(0, |at| at + 2);
    &text[start.max(sentence)..]
}

pub(crate) fn is_hypothetical(clause: &str) -> bool {
    let mut words = clause.split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '_').peekable();
    while let Some(word) = words.next() {
        // `about 1,000 samples` is a number, and no talk about something.
        let is_number =
            word == "about" && words.peek().is_some_and(|next| next.starts_with(|c: char| c.is_ascii_digit()));
        let is = |known: &str| known.split(' ').any(|hint| hint.eq_ignore_ascii_case(word));
        if !is_number && is(HYPOTHETICAL) || is(OCCASIONS) && !tells_of_oneself(clause) {
            return true;
        }
    }
    false
}

/// Words for an occasion: `when I train with 8 I get it` is a report, `when memory runs out` none.
const OCCASIONS: &str = "when whenever";

/// Words that make a clause a wish, a doubt or a piece of advice.
const HYPOTHETICAL: &str = "avoid avoids avoided avoiding prevent prevents prevented preventing if may might could can would should no not \
    never without against unless whether handle handles handling case potential potentially possible risk \
    until before expected simulate simulated simulating isn't wasn't doesn't don't didn't won't can't couldn't \
    catch catches detect detects zero about recover recovers retry_on reduce reduces fix fixes fixed solve \
    solved help helps since likely cause causes lead leads usually often sometimes probably how test \
    testing what thought think suspect suspected guess guessed assume assumed believe believed supposed took mistook";

/// Whether a line opens as a sentence about something does, with nothing set apart before the anchor: `The out of memory error ...`.
pub(crate) fn is_prose(head: &str) -> bool {
    const OPENINGS: &str =
        "the this these those that our we users some any every each such since after while although because";
    let first =
        head.trim_start_matches([' ', '*', '_']).split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    !head.contains([':', ']']) && OPENINGS.split(' ').any(|word| word.eq_ignore_ascii_case(first))
}

/// Whether what follows the anchor makes it the name of a subject: `errors`, `handling`, `killer`.
fn is_topic(after: &str) -> bool {
    let after = after.trim_start();
    TOPICS.iter().any(|topic| after.starts_with(topic))
}

const TOPICS: &[&str] = &[
    "errors",
    "issue",
    "problem",
    "handling",
    "handler",
    "exceptions",
    "protection",
    "killer",
    "situation",
    "condition",
    "detection",
    "recovery",
    "retries",
    "guard",
    "safe",
    "crashes",
    "failures",
    "event ",
    "events: 0",
    "count: 0",
    "(OOM) errors",
    "(OOM) issue",
    "?",
    "= 0",
    ": 0 ",
    ": no",
    ": False",
    ": false",
    "#",
    "(#",
    "means ",
    "happens ",
    "occurs ",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_code_is_no_report() {
        for line in [
            "    except torch.cuda.OutOfMemoryError:",
            "[rank0]:     raise torch.OutOfMemoryError(",
            "│ ❱ 12 │   if \"out of memory\" in str(e):",
            "--> 123     raise MemoryError(msg)",
            "# to avoid out of memory",
            "    message = \"CUDA out of memory\"",
            "This is False: is_cuda_out_of_memory(RuntimeError('CUDA error: out of memory'))",
        ] {
            assert!(is_source_code(line), "{line}");
        }
        let joined =
            format!("return F.cross_entropy(input, target){:20}torch.OutOfMemoryError: CUDA out of memory.", "");
        for line in [
            "RuntimeError: CUDA out of memory.",
            "if it helps: out of memory",
            "MemoryError",
            "[RuntimeError('CUDA error: out of memory')]",
            "return code: 137",
            "It ends with exit code 137. I take it for memory, at https://github.com/a/b/blob/c/d.py#L169 .",
            "while running main.py I got RuntimeError: cuda runtime error (2) : out of memory",
            &joined,
        ] {
            assert!(!is_source_code(line), "{line}");
        }
    }

    #[test]
    fn advice_is_no_report() {
        let check = |line: &str| {
            let at = line.find("out of memory").expect("the anchor");
            is_only_mentioned(line, at, at + "out of memory".len())
        };
        assert!(check("To avoid CUDA out of memory errors, reduce the batch"));
        assert!(check("If you run out of memory, lower it"));
        assert!(check("no out of memory so far"));
        assert!(check("It fails. Am I out of memory here, or is it something else?"));
        assert!(check("Originally I thought it is due to out of memory error"));
        assert!(check("I took it for an out of memory error at first"));
        assert!(check("See \"CUDA out of memory\" in the FAQ"));
        assert!(check("If you see an error like `RuntimeError: CUDA out of memory`, lower it"));
        assert!(!check("if this fails: CUDA out of memory"));
        assert!(check("whenever a CUDA out of memory error shows up") && check("when you get out of memory, lower it"));
        assert!(
            !check("When I train with 8 I get CUDA out of memory") && !check("whenever we start it, out of memory")
        );
        assert!(check("a page about CUDA out of memory") && !check("about 1,000 samples give CUDA out of memory"));
        assert!(
            is_prose("The ")
                && is_prose("*These ")
                && !is_prose("the worker: ")
                && !is_prose("I get ")
                && !is_prose("")
        );
        assert!(!check("{\"level\": \"ERROR\", \"msg\": \"CUDA out of memory\"}"));
        assert!(!check("Training failed with \"CUDA out of memory\""));
        assert!(!check("ran out of memory on step 3, skipping the batch"));
    }
}
