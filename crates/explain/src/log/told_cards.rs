//! What people write about their cards in sentences: how large they are, how many, and who else is on them.

use super::narrative::{Narrative, has_one, is_of};

/// What others on a card do.
const RUNS: &[&str] =
    &["running", "runs", "using", "uses", "occupies", "occupied", "occupying", "holds", "shared", "share", "sharing"];
/// Who others on a card are.
const OTHERS: &[&str] = &[
    "process",
    "processes",
    "program",
    "programs",
    "user",
    "users",
    "job",
    "jobs",
    "people",
    "person",
    "code",
    "script",
    "experiment",
];
/// What a card is called.
const CARDS: &[&str] = &["gpu", "vram", "card", "gtx", "rtx", "gt", "titan", "geforce", "quadro"];

/// What has a size on a disk.
const FILES: &[&str] = &[
    "file",
    "files",
    "dataset",
    "datasets",
    "data",
    "model",
    "models",
    "checkpoint",
    "checkpoints",
    "weights",
    "csv",
    "video",
    "videos",
    "images",
    "disk",
    "swap",
];

/// Takes what a sentence tells.
pub(super) fn note(told: &mut Narrative, words: &[&str]) {
    told.shares_the_card |= shares_the_card(words);
    told.is_alone |= is_alone(words);
    told.has_many_cards |= has_many_cards(words);
    told.asks_for_another_card |= asks_for_another_card(words);
    told.crowds_the_first_card |= crowds_the_first_card(words);
    told.machine_gigabytes = told.machine_gigabytes.max(machine_gigabytes(words));
    told.card_gigabytes = told.card_gigabytes.max(card_gigabytes(words));
}

/// `another process is using the card`; that there is none is another matter.
fn shares_the_card(words: &[&str]) -> bool {
    let names_others = words.iter().enumerate().any(|(at, word)| {
        let behind = &words[at + 1..];
        let is_denied = has_one(&words[at.saturating_sub(3)..at], &["no", "not", "nothing", "any", "isn't"]);
        is_of(&["another", "other", "others", "someone"], word)
            && has_one(&behind[..behind.len().min(2)], OTHERS)
            && !is_denied
    });
    // What was interrupted may live on; `press Ctrl+C to quit` is what servers say.
    let is_interrupted = words.iter().enumerate().any(|(at, word)| {
        is_of(&["ctrl+c", "ctrl-c", "ctrl+z", "ctrl-z", "zombie"], word)
            && words.get(at + 1).is_none_or(|next| *next != "to")
    });
    names_others && has_one(words, RUNS) || is_interrupted
}

/// `nvidia-smi only lists my process`; that nobody means to use the card is another matter.
fn is_alone(words: &[&str]) -> bool {
    let is_own = has_one(words, &["my", "mine", "our", "this"]);
    words.contains(&"nvidia-smi") && words.contains(&"only") && is_own && has_one(words, OTHERS)
}

/// `training on multiple GPUs`, `multi-gpu`, `with 4 cards`
fn has_many_cards(words: &[&str]) -> bool {
    let is_many = |word: &str| {
        is_of(&["multiple", "several", "multi", "two", "four", "eight", "both"], word)
            || word.parse().is_ok_and(|count: u64| (2..=64).contains(&count))
    };
    let is_pair = |pair: &[&str]| is_many(pair[0]) && is_of(&["gpus", "cards", "gpu"], pair[1]);
    words.windows(2).any(is_pair) || has_one(words, &["multi-gpu", "multi-gpus", "multi-card", "multigpu"])
}

/// `how can I use another GPU`, `can the CUDA device number be changed`, `I have 8 GPUs and it only takes the first one`
fn asks_for_another_card(words: &[&str]) -> bool {
    let is_card = |word: &str| is_of(&["gpu", "gpus", "card", "device", "cuda:1"], word);
    let is_other = words.windows(2).any(|pair| {
        is_of(&["another", "other", "different", "second", "specific", "which"], pair[0]) && is_card(pair[1])
    });
    let is_asked = has_one(words, &["how", "can", "could", "is", "way", "possible", "want"]);
    let is_change = has_one(
        words,
        &["use", "using", "change", "changed", "changing", "choose", "select", "switch", "specify", "run"],
    );
    let is_number = words
        .windows(2)
        .any(|pair| is_of(&["gpu", "device", "cuda"], pair[0]) && is_of(&["number", "id", "index"], pair[1]));
    // `Why does it only take GPU 0?`
    let is_one_of_several = names_one(words) && words.contains(&"why") && has_one(words, &["always", "only"]);
    is_one_of_several || (is_other || is_number) && is_asked && is_change && !has_one(words, OTHERS)
}

/// `GPU 0`, `cuda:1`, `gpu0`
fn names_one(words: &[&str]) -> bool {
    let is_number = |word: &str| !word.is_empty() && word.len() < 3 && word.bytes().all(|byte| byte.is_ascii_digit());
    let names = ["gpu", "card", "device", "cuda"];
    let is_joined = |word: &&str| {
        names.iter().any(|name| word.strip_prefix(name).is_some_and(|rest| is_number(rest.trim_start_matches(':'))))
    };
    words.windows(2).any(|pair| is_of(&names, pair[0]) && is_number(pair[1])) || words.iter().any(is_joined)
}

/// `the processes of all ranks take memory of GPU 0`
fn crowds_the_first_card(words: &[&str]) -> bool {
    let is_many = words.iter().any(|word| matches!(*word, "processes" | "ranks"));
    let is_first = words.windows(2).any(|pair| matches!(pair, ["gpu" | "card" | "device", "0"]));
    is_many && (is_first || words.iter().any(|word| matches!(*word, "gpu0" | "cuda:0" | "gpu:0")))
}

/// `my GPU has 8GB`, `a GTX 1080 with 8 GB`
fn card_gigabytes(words: &[&str]) -> Option<u64> {
    // `gt1030` is one too.
    let is_card =
        |word: &&str| is_of(CARDS, word) || word.starts_with("gt") && word.ends_with(|c: char| c.is_ascii_digit());
    if !words.iter().any(is_card) {
        return None;
    }
    // `a 2 GB file`
    let is_of_file = |behind: &[&str]| behind.first().is_some_and(|word| is_of(FILES, word));
    sizes(words).find(|(_, behind)| !is_of_machine(behind) && !is_of_file(behind)).map(|(size, _)| size)
}

/// `16GB of RAM`
fn machine_gigabytes(words: &[&str]) -> Option<u64> {
    sizes(words).find(|(_, behind)| is_of_machine(behind)).map(|(size, _)| size)
}

/// Whether what stands behind a size says that the machine has it.
fn is_of_machine(behind: &[&str]) -> bool {
    matches!(behind, ["ram", ..] | ["of" | "system" | "cpu", "ram", ..] | ["of", "system", "ram", ..])
}

/// Sizes in GB, and the words behind each.
fn sizes<'a, 'b>(words: &'a [&'b str]) -> impl Iterator<Item = (u64, &'a [&'b str])> {
    let unit = |word: &str| matches!(word, "g" | "gb" | "gib");
    words.iter().enumerate().filter_map(move |(at, word)| {
        let digits = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
        let is_apart = digits == word.len() && words.get(at + 1).is_some_and(|next| unit(next));
        let size = word[..digits].parse().ok().filter(|_| is_apart || unit(&word[digits..]))?;
        Some((size, &words[at + 1 + usize::from(is_apart)..]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Narrative {
        let mut narrative = Narrative::default();
        narrative.note(line);
        narrative
    }

    #[test]
    fn others_on_the_card_are_told() {
        for line in [
            "Another user is running a training on the same card.",
            "I stopped it by Ctrl+C and now it does not start again.",
            "非正常关闭了测试程序，然后训练会报错",
        ] {
            assert!(of(line).shares_the_card, "{line}");
        }
        for line in [
            "There is no other process running on the card.",
            "nvidia-smi shows that no other program is using it.",
            "INFO: Uvicorn running on the address (Press CTRL+C to quit)",
        ] {
            assert!(!of(line).shares_the_card, "{line}");
        }
    }

    #[test]
    fn cards_are_told_of() {
        assert!(of("The processes of all ranks take memory of GPU 0 here.").crowds_the_first_card);
        assert!(!of("Four processes run on four cards of one machine.").crowds_the_first_card);
        assert_eq!(of("My card is a GT1030 with 2GB of memory.").card_gigabytes, Some(2));
        assert_eq!(of("The GPU has 8 GB and it is not enough.").card_gigabytes, Some(8));
        let both = of("It has Windows, 16GB of RAM and a card with 48 GB of VRAM.");
        assert_eq!((both.machine_gigabytes, both.card_gigabytes, both.names_windows), (Some(16), Some(48), true));
        assert_eq!(of("The data takes 8 GB on the disk of this machine.").card_gigabytes, None);
        assert_eq!(of("The GPU fails as soon as a 2 GB file is read.").card_gigabytes, None);
    }

    #[test]
    fn a_question_for_another_card() {
        for line in [
            "How can I use another GPU for it?",
            "Can the CUDA device number be changed in this library?",
            "Why does it always end up on GPU 0?",
            "Why is the model only on cuda:1 of both?",
        ] {
            assert!(of(line).asks_for_another_card, "{line}");
        }
        for line in [
            "How can I run this on GPU 0 with 8 GB?",
            "It is on another GPU and works there.",
            "How can another process use the GPU at once?",
        ] {
            assert!(!of(line).asks_for_another_card, "{line}");
        }
    }

    #[test]
    fn several_cards_are_told_of() {
        for line in
            ["I fine-tune it on multiple GPUs of 24 GB each.", "Training on 4 cards fails at once.", "多卡微调报错"]
        {
            assert!(of(line).has_many_cards, "{line}");
        }
        assert!(!of("I train it on one card, a GPU of 24 GB.").has_many_cards);
        assert!(of("The server is empty, nvidia-smi only lists my process.").is_alone);
        assert!(!of("Only the process of another user is in nvidia-smi here.").is_alone);
    }
}
