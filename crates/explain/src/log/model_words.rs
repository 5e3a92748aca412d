//! Words that show a language model or another transformer, where they stand as such and in no name of a person, a key or a sentence.

use super::narrative::is_of;

/// Words that name a language model or what goes into it.
const OF_LANGUAGE: [&str; 4] = ["token", "gpt", "bert", "llama"];
/// What stands before `bert` in the names of models.
const BEFORE_BERT: &[&str] = &[
    "",
    "distil",
    "mobile",
    "camem",
    "flau",
    "sci",
    "bio",
    "fin",
    "code",
    "tiny",
    "mini",
    "s",
    "hu",
    "mac",
    "ru",
    "big",
    "legal",
    "clinical",
    "visual",
    "span",
    "graphcode",
];
/// What stands behind it.
const BEHIND_BERT: &[&str] = &["", "opic", "score", "sum", "viz", "s"];
/// Words before a token that lets somebody in.
const SECRETS: &[&str] =
    &["auth", "access", "hf", "api", "github", "login", "secret", "bearer", "session", "csrf", "your", "user"];
/// Words behind `token` where it is a piece of a text.
const OF_TEXTS: &[&str] = &[
    "indices",
    "index",
    "ids",
    "id",
    "type",
    "length",
    "sequence",
    "embedding",
    "embeddings",
    "limit",
    "count",
    "classification",
    "generation",
    "per",
];
/// Words around `attention` that make a part of a model of it.
const KINDS: &[&str] =
    &["self", "cross", "flash", "head", "headed", "fused", "sparse", "linear", "causal", "sdp", "efficient", "sage"];
const PARTS: &[&str] = &[
    "mask",
    "masks",
    "head",
    "heads",
    "layer",
    "layers",
    "block",
    "blocks",
    "weights",
    "scores",
    "score",
    "kernel",
    "slicing",
    "map",
    "maps",
    "matrix",
    "module",
    "mechanism",
    "implementation",
    "optimization",
    "processor",
];

/// Whether a text has a word of language models.
pub(crate) fn names_language(text: &str) -> bool {
    OF_LANGUAGE.iter().any(|word| text.match_indices(word).any(|(at, _)| is_of_model(text, at, word)))
}

/// Whether a word that shows a model does so where it stands in a line.
pub(super) fn is_of_model(line: &str, at: usize, word: &str) -> bool {
    let (before, after) = (&line[..at], &line[at + word.len()..]);
    let is_it = match word {
        "bert" => is_bert(before, after),
        // People ask it about their errors.
        "gpt" | "GPT" => !before.ends_with("chat") && !before.ends_with("Chat"),
        "token" => is_of_text(before, after),
        "attention" | "Attention" => is_attention(before, after),
        // `test5-`, `-t500`
        "t5-" => is_of(&["", "m", "by", "um", "long", "code"], letters_before(before)),
        "-t5" => !after.starts_with(|c: char| c.is_ascii_alphanumeric()),
        // What scales the columns of a table.
        "transformer" => !before.ends_with("column_"),
        _ => true,
    };
    is_it && !is_of_person(line, at)
}

/// Letters at the end of a text, and at its beginning.
fn letters_before(text: &str) -> &str {
    &text[text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len()..]
}

fn letters_behind(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len())]
}

/// `bert-base`, `roberta`, `distilbert`, and neither `robert` nor a person called `albert`.
fn is_bert(before: &str, after: &str) -> bool {
    let (lead, tail) = (letters_before(before), letters_behind(after));
    match lead {
        "ro" | "de" | "xlmro" => tail.starts_with('a'),
        "al" => ["-base", "-large", "-x", "_"].iter().any(|rest| after.starts_with(rest)) || before.ends_with("_al"),
        _ => {
            is_of(BEFORE_BERT, lead) && (is_of(BEHIND_BERT, tail) || tail.starts_with(|c: char| c.is_ascii_uppercase()))
        }
    }
}

/// Whether a token is a piece of a text, and nothing that lets somebody in.
fn is_of_text(before: &str, after: &str) -> bool {
    let rest = before.trim_end_matches(['_', '-', ' ', '?', '&']);
    if is_of(SECRETS, &letters_before(rest).to_ascii_lowercase()) || before.ends_with(['?', '&']) {
        return false;
    }
    let tail = letters_behind(after);
    let is_name = |c: char| matches!(c, '_' | '-' | '.');
    match tail {
        "s" | "ize" | "izer" | "izers" | "ized" | "izing" | "ization" => true,
        "" => {
            let next = letters_behind(after.trim_start_matches(' '));
            is_of(OF_TEXTS, next) || before.ends_with(is_name) || after.starts_with(is_name)
        }
        _ => false,
    }
}

/// `self.attention(`, `attention_mask`, `flash attention`, and nobody who pays attention.
fn is_attention(before: &str, after: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '\\' | '-');
    let is_part_of_name =
        before.ends_with(is_name) || after.starts_with(|c| is_name(c) && c != '.') || after.starts_with('(');
    let is_file = after.starts_with('.') && after[1..].starts_with(|c: char| c.is_ascii_alphabetic());
    let kind = letters_before(before.trim_end_matches(' ')).to_ascii_lowercase();
    let part = letters_behind(after.trim_start_matches(' '));
    let is_function = before.ends_with(", in ");
    is_part_of_name || is_file || is_function || is_of(KINDS, &kind) || is_of(PARTS, part)
}

/// Whether a place of a line is in somebody's name: that of a home folder, or one before a machine's.
fn is_of_person(line: &str, at: usize) -> bool {
    let is_apart = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '(' | ',' | '=' | '[');
    let start = line[..at].rfind(is_apart).map_or(0, |found| found + 1);
    let is_apart = |c: char| is_apart(c) || matches!(c, '/' | '\\' | ':' | ')' | ']');
    let end = line[at..].find(is_apart).map_or(line.len(), |found| at + found);
    let path = line[start..at].replace('\\', "/");
    let folder = path.rsplit_once('/').map_or("", |(folders, _)| folders);
    let is_home = ["/home", "/Users", "/users"].iter().any(|homes| folder.ends_with(homes));
    is_home || !path.contains('/') && line[at..end].contains('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_named() {
        for line in [
            "bert-base-uncased",
            "File \"/w/modeling_roberta.py\", line 3",
            "distilbert/distilbert-base",
            "albert-base-v2",
            "/home/robert/models/bert/train.py",
            "gpt2",
            "/w/nanogpt/model.py",
            "EleutherAI/gpt-neo-1.3B",
            "Token indices: input_tokens = 3",
            "token indices sequence length is longer",
            "pad_token_id",
            "x = self.tokenizer(text)",
            "llama-2-7b",
        ] {
            assert!(names_language(line), "{line}");
        }
        for line in [
            "File \"/home/robert/unet/train.py\", line 3",
            "File \"/home/albert/unet/train.py\", line 3",
            "C:\\Users\\bert\\unet\\train.py",
            "bert@box:~$ python train.py",
            "Robertson, alberta, liberty, bertha",
            "chatgpt told me to restart",
            "use_auth_token=True, hf_token=None",
            "http://localhost:8888/?token=abc",
            "your token has been saved",
            "a broken tokenring",
        ] {
            assert!(!names_language(line), "{line}");
        }
    }

    #[test]
    fn attention_is_a_part_of_a_model() {
        let is_part =
            |line: &str| line.match_indices("ttention").any(|(at, _)| is_of_model(line, at - 1, &line[at - 1..at + 8]));
        for line in [
            "x = self.attention(x)",
            "CrossAttention",
            "attention_mask",
            "flash attention is used",
            "attention.py",
            "8 attention heads",
        ] {
            assert!(is_part(line), "{line}");
        }
        for line in [
            "thanks for your attention",
            "pay attention to the memory",
            "Attention: the card is full",
            "needs attention.",
        ] {
            assert!(!is_part(line), "{line}");
        }
    }
}
