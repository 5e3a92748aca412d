//! Lines of source code, as tracebacks and compilers quote them.
//!
//! What programs say is full of the words that code begins with: they name their cases, classes and returns. So an everyday word
//! counts only where it is followed by what code has there, and an exception before its message is a report whatever it quotes.

use crate::phrase::has_any;
use crate::sieve::{LateTable, quick};

/// Whether a line is source code.
pub(crate) fn is_source_code(line: &str) -> bool {
    let line = without_margin(line);
    // A link to a line of code is no code, and says nothing by itself.
    let linkless = line.contains("://").then(|| without_links(line));
    let line = linkless.as_deref().unwrap_or(line);
    if line.is_empty() {
        return linkless.is_some();
    }
    if is_native_crash_note(line) || opens_with_exception(line) || ends_in_report(line) || says_it_outright(line) {
        return false;
    }
    static MARKS: LateTable = LateTable::new();
    let has_mark = || match MARKS.get(|| quick(MARKS_OF_CODE.iter().copied())) {
        Some(marks) => marks.is_match(line),
        None => has_any(line, MARKS_OF_CODE),
    };
    starts_like_code(line)
        || has_mark()
        || goes_on_as_code(line)
        || assigns_text(line)
        || hands_over_text(line)
        || names_caught_error(line)
        || hands_over_an_error(line)
}

fn without_links(line: &str) -> String {
    line.split(' ').filter(|word| !word.contains("://")).collect::<Vec<_>>().join(" ")
}

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

/// `torch.OutOfMemoryError: ` and its message.
fn opens_with_exception(line: &str) -> bool {
    line.split_once(": ").is_some_and(|(class, _)| is_exception(class))
}

/// Words of messages with blanks between them.
const OUTRIGHT: [&str; 3] = ["out of memory", "annot allocate memory", "ot enough memory"];

/// Whether a message stands in a line outside of quotes, comments and what a shell was given: its words with blanks between them are no
/// code.
fn says_it_outright(line: &str) -> bool {
    const OTHERS: [&str; 6] = ["#", "//", "/*", "*", "echo ", "grep "];
    let is_other = OTHERS.iter().any(|start| line.starts_with(start));
    let Some(at) = OUTRIGHT.iter().find_map(|words| line.find(words)).filter(|_| !is_other) else { return false };
    let head = &line[..at];
    let is_open = |quote: char| head.matches(quote).count() % 2 == 1;
    !['"', '\'', '`'].into_iter().any(is_open) && !has_any(head, &[" # ", " // ", "grep -"])
}

/// Whether behind code and a wide gap an error stands by its class: the last two lines of a traceback, as terminals hand them
/// over where the first one filled their width.
fn ends_in_report(line: &str) -> bool {
    line.rsplit_once(GAP).is_some_and(|(_, last)| opens_with_exception(last.trim_start()))
}

/// No code has as many blanks between two words.
const GAP: &str = "        ";

/// `OSError`, `torch.cuda.OutOfMemoryError`
fn is_exception(name: &str) -> bool {
    (name.ends_with("Error") || name.ends_with("Exception")) && name.chars().all(is_path)
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_path(c: char) -> bool {
    is_part(c) || c == '.'
}

fn is_identifier(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && word.chars().all(is_part)
}

fn starts_like_code(line: &str) -> bool {
    STARTS.iter().any(|start| line.starts_with(start)) || is_branch(line) || is_statement(line)
}

/// `if x is None:`, `while (x)`
fn is_branch(line: &str) -> bool {
    let is_branch = line.starts_with("if ") || line.starts_with("while ");
    // `while running it I got RuntimeError: ... (2)` is somebody's sentence.
    let is_own = has_any(line, &[" I ", " i ", " we ", " my "]);
    is_branch && !is_own && (line.trim_end().ends_with([':', '{', ';', ')']) || has_any(line, &["(", "\"", "'"]))
}

/// A word that texts begin with, too, and behind it what only code has there.
fn is_statement(line: &str) -> bool {
    let word = line.find(|c| !is_part(c)).unwrap_or(line.len());
    let (word, rest) = line.split_at(word);
    let end = rest.trim_end();
    match word {
        // `class 3 of 10: ...` is one that a program works on.
        "class" => is_definition(end),
        // `case CUDA_ERROR_OUT_OF_MEMORY:`, and not `case 12 failed: ...`
        "case" => {
            end.ends_with([':', ';', '{']) || end.split_once(':').is_some_and(|(value, _)| is_identifier(value.trim()))
        }
        "match" => end.ends_with([':', '{']),
        "static" => end.ends_with([';', '{', ',']) || calls(end),
        // `import failed: ...`
        "import" => end.starts_with(' ') && !end.contains(": "),
        "from" => end.starts_with(' ') && end.contains(" import "),
        "return" => end.ends_with([':', '{', ';']) || end.starts_with([' ', '(']) && (calls(end) || quotes(end)),
        "log" => {
            end.starts_with('.') && end[1..].find(|c| !is_path(c)).is_some_and(|name| end[1 + name..].starts_with('('))
        }
        "catch" => end.is_empty() || end.trim_start().starts_with(['(', '{']) || is_identifier(end.trim_start()),
        "std" => end.starts_with("::") && (end.contains(';') || calls(end)),
        _ => false,
    }
}

/// `class Pool:`, `class Pool(Base):`, `class Pool extends Base {`, behind the word.
fn is_definition(rest: &str) -> bool {
    let Some(rest) = rest.strip_prefix(' ') else { return false };
    let (name, behind) = rest.split_at(rest.find(|c| !is_part(c)).unwrap_or(rest.len()));
    let is_opened =
        behind.is_empty() || behind.trim_start().starts_with(['(', ':', '{', '<', ';']) || behind.ends_with('{');
    is_identifier(name) && is_opened
}

/// A bracket right behind a name.
fn calls(text: &str) -> bool {
    text.match_indices('(').any(|(at, _)| text[..at].ends_with(is_part))
}

/// A text in quotes, right at the beginning.
fn quotes(text: &str) -> bool {
    text.trim_start().trim_start_matches('f').starts_with(['"', '\''])
}

const STARTS: &[&str] = &[
    "except ",
    "except(",
    "except:",
    "raise ",
    "elif ",
    "def ",
    "assert ",
    "throw ",
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
    "echo ",
    "grep ",
    "with pytest",
];

/// What stands anywhere in a line of code, and in nothing that a program says.
const MARKS_OF_CODE: &[&str] = &[
    " in str(",
    " in repr(",
    " not in str(",
    ".lower()",
    "isinstance(",
    "pytest.raises(",
    "assertRaises(",
    " = f\"",
    " += \"",
    " == \"",
    " == '",
    "::OutOfMemoryError {",
    "ErrorKind::OutOfMemory",
    "bad_alloc&",
    "bad_alloc &",
    "grep -",
    "std::string(",
    "std::endl",
];

/// A condition that goes on in the next line.
fn goes_on_as_code(line: &str) -> bool {
    let end = line.trim_end();
    end.ends_with(" ||") || end.ends_with(" &&")
}

/// `message = "CUDA out of memory"`, `const char* message = "..."`: to a name alone, or one behind its type. A program that tells of
/// its values has words before them.
fn assigns_text(line: &str) -> bool {
    const TYPES: &str =
        "const let var auto static final public private mut char char* string String str std::string val";
    let Some(at) = [" = \"", " = '"].iter().filter_map(|sign| line.find(sign)).min() else { return false };
    let mut words = line[..at].rsplit(' ');
    let is_name = |word: &str| !word.is_empty() && word.chars().all(|c| is_path(c) || "#[]\"'*&:".contains(c));
    words.next().is_some_and(is_name) && words.all(|word| TYPES.split(' ').any(|known| known == word))
}

/// `f.write_str("Cannot allocate memory")`, `console.error('JavaScript heap out of memory')`: a text that a function is given; those
/// of errors are called by names in capitals.
fn hands_over_text(line: &str) -> bool {
    if !line.contains('(') {
        return false;
    }
    let Some(at) = OUTRIGHT.iter().filter_map(|words| line.find(words)).min() else { return false };
    ["(\"", "('"].iter().any(|open| {
        let Some((call, text)) = line[..at].rsplit_once(open) else { return false };
        let name = &call[call.trim_end_matches(is_part).len()..];
        name.starts_with(|c: char| c.is_ascii_lowercase()) && !text.contains(['"', '\''])
    })
}

/// `except torch.OutOfMemoryError as error:`, and not `I get a MemoryError as soon as ...`
fn names_caught_error(line: &str) -> bool {
    line.match_indices("MemoryError as ").any(|(at, words)| {
        let rest = &line[at + words.len()..];
        let name = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        is_identifier(&rest[..name]) && (rest[name..].is_empty() || rest[name..].starts_with([':', ')', ',', ';']))
    })
}

/// Whether an exception is made to be handed to a function: `is_out_of_memory(RuntimeError('CUDA error: out of memory'))`.
fn hands_over_an_error(line: &str) -> bool {
    let Some(at) = line.find("Error('").or_else(|| line.find("Error(\"")) else { return false };
    let call = line[..at].trim_end_matches(|c: char| c.is_alphanumeric() || c == '.').strip_suffix('(');
    let name = call.and_then(|call| call.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next());
    name.is_some_and(|name| name.contains('_') && !name.contains(|c: char| c.is_uppercase()))
}

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
            "class CudaOutOfMemory(RuntimeError):",
            "class OutOfMemoryError extends Error {",
            "case CUDA_ERROR_OUT_OF_MEMORY: return \"out of memory\";",
            "case cudaErrorMemoryAllocation:",
            "static const char* OUT_OF_MEMORY = \"out of memory\";",
            "import java.lang.OutOfMemoryError;",
            "from torch.cuda import OutOfMemoryError",
            "return str(error) == 'out of memory'",
            "return \"out of memory\"",
            "log.error(\"out of memory\")",
            "catch (std::bad_alloc e) {",
            "std::cerr << \"out of memory\" << error.what();",
            "const char* message = 'out of memory'",
            "with suppress(MemoryError as error):",
            "https://github.com/a/b/blob/main/OutOfMemoryError.cpp#L12",
            "#[should_panic = \"Cannot allocate memory to hold it\"]",
            "f.write_str(\"Cannot allocate memory to hold it\")",
            "console.error('JavaScript heap out of memory')",
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
            "OSError: Unable to open file (name = 'data.h5', errno = 12, error message = 'Cannot allocate memory')",
            "std::bad_alloc",
            "class 3 of 10: RuntimeError: CUDA out of memory.",
            "case 12 failed: CUDA out of memory.",
            "match 3 of 4 failed: out of memory",
            "import failed: CUDA out of memory.",
            "Cannot import /nodes/x module for custom nodes: CUDA error: out of memory",
            "return code 137 (SIGKILL)",
            "throw new Error: CUDA out of memory. Tried to allocate 1.00 GiB",
            "raise the batch to 8 and it is out of memory",
            "except for batch 4 everything ends in CUDA out of memory",
            "log.txt says out of memory",
            "task \"train\" state = \"failed\", reason = \"OOMKilled\"",
            "I get a MemoryError as soon as it starts",
            "CUDA out of memory. See https://github.com/a/b/blob/main/train.py#L12",
            &joined,
        ] {
            assert!(!is_source_code(line), "{line}");
        }
    }
}
