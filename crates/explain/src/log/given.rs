//! Whether a name in a line is something that somebody gave a program, and whether it was turned on or off by that.
//!
//! A name counts where a command, a list of settings, an environment, a line of code or a call has it. Messages and people recommend
//! switches too, deny them and ask for them, and code that is commented out does nothing.

use super::narrative::is_of;

/// Words before a name that somebody recommends, or that somebody did not give.
const NOT_GIVEN: &[&str] = &[
    "try",
    "trying",
    "consider",
    "recommend",
    "recommends",
    "recommended",
    "suggest",
    "suggests",
    "should",
    "could",
    "can",
    "without",
    "not",
    "no",
    "never",
    "don't",
    "didn't",
    "doesn't",
    "isn't",
    "aren't",
    "wasn't",
    "remove",
    "removing",
    "removed",
    "lowering",
    "decreasing",
    "increasing",
    "lower",
    "decrease",
    "increase",
    "instead",
    "maybe",
    "perhaps",
    "either",
    "def",
    "please",
];
/// Words before `use` or `set` with which somebody says what they do.
const OF_ONESELF: &[&str] = &[
    "i", "i'm", "i've", "we", "we're", "we've", "have", "had", "already", "now", "then", "also", "and", "am", "are",
    "is", "was", "were", "been", "when", "while", "after", "by", "even", "still", "tried",
];
/// Words for off.
const OFF: &[&str] = &["false", "no", "none", "null", "off", "disable", "disabled"];
/// Parts of a name that turn what is named off.
const NEGATIONS: &[&str] = &["no", "not", "disable", "disabled", "without", "skip"];
/// Values that are empty.
const EMPTY: [&str; 5] = ["[]", "{}", "()", "''", "\"\""];

/// Whether a value begins with a word for off, a zero, or nothing in brackets or quotes.
pub(super) fn is_off(value: &str) -> bool {
    let value = value.trim_start();
    if EMPTY.iter().any(|empty| value.starts_with(empty)) {
        return true;
    }
    let value = value.trim_start_matches(['"', '\'', '`']);
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let word = value[..value.find(|c| !is_part(c)).unwrap_or(value.len())].trim_end_matches('.');
    OFF.iter().any(|off| word.eq_ignore_ascii_case(off)) || word.parse::<f64>() == Ok(0.0)
}

/// Whether the part of a name that stands before a word turns it off: `--no-gradient-checkpointing`, `disable_xformers`.
pub(super) fn is_negated(lead: &str) -> bool {
    lead.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| NEGATIONS.iter().any(|it| word.eq_ignore_ascii_case(it)))
}

/// Whether code that stands behind this is commented out. An option of a command is not: a superuser's prompt ends with the same
/// sign.
pub(super) fn is_comment(before: &str, is_option: bool) -> bool {
    // `job #3` is a number.
    let begins = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_digit());
    let is_within = || before.match_indices(" #").any(|(at, mark)| begins(&before[at + mark.len()..]));
    !is_option && (is_within() || before.trim_start().strip_prefix('#').is_some_and(begins))
}

/// So many words before a name a word may stand that denies or recommends it.
const NEAR: usize = 8;
/// What settings are printed behind.
const LABELS: &[&str] = &[
    "args:",
    "arguments:",
    "config:",
    "configuration:",
    "settings:",
    "params:",
    "parameters:",
    "options:",
    "command:",
    "cmd:",
];
/// Words of `NOT_GIVEN` that deny what is done `with` a switch, and not the switch.
const OF_DEEDS: &[&str] =
    &["can", "could", "not", "no", "never", "don't", "didn't", "doesn't", "isn't", "aren't", "wasn't"];

/// Whether a sentence recommends what stands between these parts of it, or says that it was not given.
pub(super) fn is_spoken_of(before: &str, after: &str) -> bool {
    let sentence =
        [". ", "? ", "! ", "; "].iter().fold(before, |rest, end| rest.rsplit(end).next().unwrap_or_default());
    let words = || sentence.split([' ', '`', ',', '(']).filter(|word| !word.is_empty());
    let is_list = words().filter(|word| word.contains('=')).count() > 2;
    !is_list && is_spoken_in(words(), sentence.len() < before.len())
        || [" to disable", " to avoid"].iter().any(|words| after.contains(words))
}

fn is_spoken_in<'a>(words: impl Iterator<Item = &'a str> + Clone, is_behind_another: bool) -> bool {
    let mut previous = if is_behind_another { "." } else { "" }.to_owned();
    let (mut is_value, mut is_deed_denied, mut is_spoken) = (false, false, false);
    for word in words.clone().skip(words.count().saturating_sub(NEAR)) {
        // `--mixed_precision no --bf16`, `evaluation_strategy: no`
        let is_key = word.starts_with("--") && !word.contains('=') || word.ends_with(':') && word.contains('_');
        if std::mem::replace(&mut is_value, is_key) {
            continue;
        }
        let word = word.to_ascii_lowercase();
        // A shell has a command of this name, which stands at the beginning or behind a prompt.
        let is_setting = word == "set" && !previous.is_empty() && !previous.ends_with(['>', '$', '#', '&', ';', ']']);
        let is_use = is_setting || matches!(&*word, "use" | "using" | "add" | "adding" | "pass");
        if is_of(LABELS, &word) {
            (is_deed_denied, is_spoken) = (false, false);
        } else if word == "with" {
            // `I can not run it with --low`: what was not to be had is the run.
            is_deed_denied = false;
        } else if is_of(OF_DEEDS, &word) && !matches!(&*previous, "you" | "do" | "please" | "." | "") {
            is_deed_denied = true;
        } else if is_use && !is_of(OF_ONESELF, &previous) || is_of(NOT_GIVEN, &word) {
            is_spoken = true;
        }
        previous = word;
    }
    is_spoken || is_deed_denied
}

/// `--gradient_checkpointing`, `gradient_checkpointing=True`, `optim=OptimizerNames.ADAMW_8BIT`, `AdamW8bit(`: a name as a flag, with
/// a value that is on, as the value of an option, or as a call; a name in a sentence is none of them.
pub(super) fn turns_on(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| turns_on_at(line, at, name.len()))
}

fn turns_on_at(line: &str, at: usize, length: usize) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let (before, after) = (&line[..at], &line[at + length..]);
    let bare = before.trim_end_matches(|c| is_part(c) || c == '-');
    let start = before.trim_end_matches(is_part).len();
    let lead = before[..start].trim_end_matches(['"', '\'']);
    let rest = after.trim_start_matches(['"', '\'', ' ']);
    let is_whole = !after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    // A list of what may be given has brackets around each.
    let is_flag = lead.ends_with("--") && !lead.ends_with("[--");
    let is_set = is_flag || rest.starts_with(['=', ':']);
    let is_value = lead.trim_end().ends_with(['=', ':'])
        || lead.split(' ').rfind(|word| !word.is_empty()).is_some_and(|word| word.starts_with("--") && word.len() > 2);
    let is_call = after.starts_with('(') && !lead.ends_with("def ");
    let is_on = is_call || is_value || is_set && !is_off(rest.trim_start_matches(['=', ':', ' ']));
    let is_given =
        || !is_negated(&before[bare.len()..]) && !is_comment(before, is_flag) && !is_spoken_of(before, after);
    is_whole && is_on && is_given()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_off() {
        for value in
            ["False", "false,", "none", "'None'", "null}", "\"off\"", "0", "0.0,", "no --lr 1", "[], a=1", "''", "{}"]
        {
            assert!(is_off(value), "{value}");
        }
        for value in ["True", "", "0.5", "nose", "no_offload", "1", "[1]", "'a'", "none_of_these"] {
            assert!(!is_off(value), "{value}");
        }
    }

    #[test]
    fn what_is_turned_on() {
        for line in [
            "train.py --gradient_checkpointing",
            "gradient_checkpointing=True, gradient_checkpointing_kwargs=None",
            "$ python train.py --eval no --gradient_checkpointing",
            "root@pod:/work# python train.py --gradient_checkpointing",
            "set ARGS=--gradient_checkpointing",
            "I am using `gradient_checkpointing=True` and it fails",
            "model.gradient_checkpointing(use_reentrant=False)",
            "note: no config file, args: gradient_checkpointing=True, lora_r=16",
            "evaluation_strategy: no, gradient_checkpointing: true",
            "Namespace(a=1, b=2, c=3, no, gradient_checkpointing=True)",
            "I can not fit the model even with gradient_checkpointing=True and a batch of 1",
            "It does not help to run it with --gradient_checkpointing --bf16",
            "job #3 | args: gradient_checkpointing=True",
        ] {
            assert!(turns_on(line, "gradient_checkpointing"), "{line}");
        }
        for line in [
            "train.py --disable_gradient_checkpointing",
            "train.py --no-gradient_checkpointing",
            "no_gradient_checkpointing: true",
            "# model.gradient_checkpointing(use_reentrant=False)",
            "x = 1  # gradient_checkpointing=True",
            "gradient_checkpointing=[]",
            "Do not use `gradient_checkpointing=True` with it",
            "You can run it with gradient_checkpointing=True",
            "Do not run it with gradient_checkpointing=True",
            "x = 1  #gradient_checkpointing=True",
            "You should pass gradient_checkpointing=True to it",
            "2. set gradient_checkpointing=True for a smaller peak",
            "It may not be static. To run it in less memory, set 'gradient_checkpointing=True' or leave it",
        ] {
            assert!(!turns_on(line, "gradient_checkpointing"), "{line}");
        }
    }
}
