//! Text that reports an error, told from text that talks about one: advice, hypotheses, quotations.

use std::borrow::Cow;

use crate::phrase::{end_of, has_any_word};

/// How messages say it, in small letters: the anchors around which a sentence is looked at.
pub(crate) const ANCHORS: [&str; 4] = ["out of memory", "outofmemory", "out-of-memory", "cannot allocate memory"];

/// Whether the words around an anchor make it a piece of advice or a hypothesis instead of a report.
///
/// `at..end` is where the anchor stands in `line`. Only the clause it stands in is looked at.
pub(crate) fn is_only_mentioned(line: &str, at: usize, end: usize) -> bool {
    is_mentioned_behind(clause_before(&line[..at]), line, at, end)
}

/// The same of the name of an error, which a report puts behind its own words: `could not create a handle NAME`, `in the test scene it
/// failed with NAME`.
pub(crate) fn is_name_only_mentioned(line: &str, at: usize, end: usize) -> bool {
    is_mentioned_behind(without_report(clause_before(&line[..at])), line, at, end)
}

fn is_mentioned_behind(clause: &str, line: &str, at: usize, end: usize) -> bool {
    let after = &line[end..];
    is_hypothetical(clause)
        || is_asked(clause)
        || is_topic(after)
        || is_general(clause, after)
        || is_rule(after)
        || is_quoted(line, at)
}

/// `is thrown when operator new fails`: when it comes, for everybody.
fn is_rule(after: &str) -> bool {
    let after = after.trim_start();
    let after = after.strip_prefix("error ").unwrap_or(after);
    let is_raised = ["is thrown ", "is raised ", "is returned "].iter().find_map(|words| after.strip_prefix(words));
    is_raised.is_some_and(|rest| ["when ", "if "].iter().any(|word| rest.starts_with(word))) && !tells_of_oneself(after)
}

/// Whether words open a line in the middle of a sentence that talks: `..., or it runs` above, and `out of memory while` in the line.
pub(crate) fn is_within_talk(above: &str, line: &str, at: usize) -> bool {
    let above = above.trim_end();
    let opens = line[..at].trim().is_empty() && line[at..].starts_with(|c: char| c.is_lowercase());
    opens && above.ends_with(|c: char| c.is_alphabetic() || c == ',') && is_hypothetical(clause_before(above))
}

/// `an out of memory error halves the batch`: what every such error does.
fn is_general(clause: &str, after: &str) -> bool {
    let subject = clause.rsplit(',').next().unwrap_or(clause).trim_start();
    let is_any = ["a ", "an ", "any ", "every "]
        .iter()
        .any(|article| subject.get(..article.len()).is_some_and(|head| head.eq_ignore_ascii_case(article)));
    let verb =
        || after.trim_start().strip_prefix("error ").and_then(|rest| rest.split(|c: char| !c.is_alphabetic()).next());
    is_any && verb().is_some_and(|verb| verb.ends_with('s') && !matches!(verb, "was" | "has" | "is"))
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

/// Whether what stands there is the name of an error in quotes, and nobody's own error.
pub(crate) fn is_named_in_quotes(line: &str, at: usize) -> bool {
    is_quoted(line, at) && !tells_of_oneself(&line[..at])
}

/// `I keep getting the error message`: what happened to who writes, and not what may happen to a reader.
pub(crate) fn tells_of_oneself(head: &str) -> bool {
    let head = head.to_ascii_lowercase();
    has_any_word(&head, "i we my our") && !has_any_word(&head, "you your")
}

/// Words that open a quotation to name what is in it.
const NAMING: &str = "like see as is are called named string phrase e.g. e.g";

/// No more of a clause is looked at.
const LONGEST_CLAUSE: usize = 256;

fn clause_before(text: &str) -> &str {
    let text = end_of(text, LONGEST_CLAUSE);
    let start = text.rfind([':', ';', '!', '?', '(']).map_or(0, |at| at + 1);
    let is_short = |at: usize| ["e.g", "i.e", "vs"].iter().any(|word| text[..at].ends_with(word));
    let sentence = text.rmatch_indices(". ").map(|(at, _)| at).find(|at| !is_short(*at)).map_or(0, |at| at + 2);
    &text[start.max(sentence)..]
}

pub(crate) fn is_hypothetical(clause: &str) -> bool {
    let clause = &*without_failures(clause);
    // `trial (e.g. lr=0.1) failed with` is over with its example.
    clause.rsplit_once("e.g.").is_some_and(|(_, example)| !example.contains(')'))
        || words(clause).any(|(at, word)| {
            let is = |known: &str| known.split(' ').any(|hint| hint.eq_ignore_ascii_case(word));
            (is(HYPOTHETICAL) || is(OCCASIONS) && !tells_of_oneself(clause))
                && !is_part_of_name(clause, at, word)
                && !is_noun(word, &clause[at + word.len()..])
        })
}

/// The words of a clause, and where they stand.
fn words(clause: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_between = |c: char| !c.is_alphanumeric() && c != '\'' && c != '_';
    let mut end = 0;
    let parts = clause.split_inclusive(is_between).map(move |part| {
        end += part.len();
        (end - part.len(), part.trim_end_matches(is_between))
    });
    parts.filter(|(_, word)| !word.is_empty())
}

/// `pytorch-test-0`, `4242|test|`, `no,if,`: signs without blanks join a word to a name or a row.
fn is_part_of_name(clause: &str, at: usize, word: &str) -> bool {
    const JOINS: [char; 4] = ['-', '_', '|', ','];
    clause[..at].ends_with(JOINS)
        || clause[at + word.len()..]
            .strip_prefix(JOINS)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_alphanumeric))
}

/// `about 1,000 samples` is a number, `in the test scene` a name, and neither talks about something.
fn is_noun(word: &str, rest: &str) -> bool {
    const OBJECTS: &str = "that for of the a an";
    let next = words(rest).next().map(|(_, next)| next);
    match word {
        "about" => next.is_some_and(|next| next.starts_with(|c: char| c.is_ascii_digit())),
        // `such errors as`, and not `such a small batch`
        "such" => next.is_some_and(|next| matches!(next, "a" | "an")),
        "test" => next.is_some_and(|next| !OBJECTS.split(' ').any(|object| object == next)),
        _ => false,
    }
}

/// What of a clause is no report: what could not be done supposes nothing, nor does what was expected or tested before the words by
/// which it reports something. Conditions reach over them to the next comma.
fn without_report(clause: &str) -> &str {
    const CONDITIONS: &str = "if when whenever unless whether may might could can would should will never no";
    const REPORTS: &str = "failed got returned raised threw exited died";
    const REFUSED: [&str; 5] = ["could not ", "couldn't ", "can not ", "can't ", "cannot "];
    const SEEN: &str = "be get see find reproduce";
    let is = |known: &str, word: &str| known.split(' ').any(|known| known.eq_ignore_ascii_case(word));
    let lower = if denies(clause) { clause.to_ascii_lowercase() } else { String::new() };
    let refused = REFUSED.iter().find_map(|words| {
        let at = lower.find(words)?;
        let verb = lower[at + words.len()..].split(' ').next().unwrap_or_default();
        (!verb.is_empty() && !is(SEEN, verb)).then_some(at)
    });
    let clause = &clause[..refused.unwrap_or(clause.len())];
    let Some((at, word)) = words(clause).filter(|(_, word)| is(REPORTS, word)).last() else { return clause };
    // `when forking a worker, spawn failed with NAME`
    let part = clause[..at].rfind(',').map_or(0, |comma| comma + 1);
    let is_condition =
        |(at, word): (usize, &str)| at >= part && is(CONDITIONS, word) && !is_part_of_name(clause, at, word);
    if words(clause).any(is_condition) { clause } else { &clause[at + word.len()..] }
}

/// `GPU worker could not start, `: a part that tells what failed supposes nothing of what stands behind it.
pub(crate) fn without_failures(clause: &str) -> Cow<'_, str> {
    const FAILED: [&str; 8] =
        ["could not ", "couldn't ", "can not ", "can't ", "did not ", "didn't ", "was not ", "wasn't "];
    let Some((told, rest)) = clause.rsplit_once(',').filter(|(told, _)| denies(told)) else {
        return Cow::Borrowed(clause);
    };
    let told = FAILED.iter().fold(told.to_ascii_lowercase(), |told, words| told.replace(words, ""));
    Cow::Owned(format!("{told},{rest}"))
}

/// Whether a text may have one of the words for what was not done: few have, and to look for all of them takes a copy of the text.
fn denies(text: &str) -> bool {
    let is_not = |bytes: &[u8]| bytes.eq_ignore_ascii_case(b"not ") || bytes.eq_ignore_ascii_case(b"n't ");
    text.as_bytes().windows(4).any(is_not)
}

/// Words for an occasion: `when I train with 8 I get it` is a report, `when memory runs out` none.
const OCCASIONS: &str = "when whenever";

/// Words that make a clause a wish, a doubt or a piece of advice.
const HYPOTHETICAL: &str = "avoid avoids avoided avoiding prevent prevents prevented preventing if may might could can would should no not \
    never without against unless whether handle handles handling case potential potentially possible risk \
    until before expected simulate simulated simulating isn't wasn't doesn't don't didn't won't can't couldn't \
    catch catches detect detects zero about recover recovers retry_on reduce reduces fix fixes fixed solve \
    solved help helps since likely cause causes lead leads usually often sometimes probably how test \
    testing what maybe perhaps such rather thought think suspect suspected guess guessed assume assumed believe believed supposed took mistook";

/// Whether a line opens as a sentence about something does, with nothing set apart before the anchor: `The out of memory error ...`.
pub(crate) fn is_prose(head: &str) -> bool {
    const OPENINGS: &str =
        "the this these those that our we users some any every each such since after while although because";
    let first =
        head.trim_start_matches([' ', '*', '_']).split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    !head.contains([':', ']']) && OPENINGS.split(' ').any(|word| word.eq_ignore_ascii_case(first))
}

/// Whether what follows the anchor makes it the name of a subject: `errors`, `handling`, `killer`.
pub(crate) fn is_topic(after: &str) -> bool {
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
    "test ",
    "tests",
    "enabled",
    "Score",
    "score",
    "etc",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_no_report() {
        let check = |line: &str| {
            let at = line.find("out of memory").expect("the anchor");
            is_only_mentioned(line, at, at + "out of memory".len())
        };
        assert!(check("To avoid CUDA out of memory errors, reduce the batch"));
        assert!(check("If you run out of memory, lower it"));
        assert!(check("if/when you run out of memory") && !check("no-if-test: 3 failed, test-no out of memory"));
        assert!(check("no out of memory so far"));
        assert!(check("It fails. Am I out of memory here, or is it something else?"));
        assert!(
            check("a CUDA out of memory error halves the batch") && !check("a CUDA out of memory error was raised")
        );
        assert!(
            check("it could not start, maybe out of memory") && check("If it could not start, out of memory is why")
        );
        assert!(!check("worker could not start, CUDA out of memory") && !check("It can't be loaded, out of memory"));
        assert!(check("internal errors (e.g. lost nodes, out of memory)") && check("errors such as out of memory"));
        assert!(check("12 passed; out of memory tests ignored"));
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
