//! What people write about a run in sentences of their own: when it failed, what grows, what they tried.
//!
//! A message says what was refused and a stack where. That memory grew before, that training went well and validation did not,
//! or that the first try worked, only the sentences around them say. Phrases are few and plain, and are looked for in sentences
//! alone: a line of a log with the same words counts there and not here.

/// What the sentences of a post tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Narrative {
    /// Memory grows while it runs, or is not given back.
    pub(crate) grows: bool,
    /// It failed in a validation, an evaluation or a test.
    pub(crate) evaluates: bool,
    /// Somebody trains.
    pub(crate) trains: bool,
    /// A model is used: inference, a demo, a prediction.
    pub(crate) infers: bool,
    /// Some steps, pictures or minutes went well before.
    pub(crate) fails_later: bool,
    /// A run that goes on from a checkpoint failed.
    pub(crate) resumes: bool,
    /// It worked the first time, and not when it was run again.
    pub(crate) runs_again: bool,
    /// A single sample at once is too much.
    pub(crate) takes_one_sample: bool,
    /// Another program or another user is on the same card.
    pub(crate) shares_the_card: bool,
    /// Losses are added up or kept with their graphs, by a line of code.
    pub(crate) keeps_losses: bool,
}

/// Fewer words are no sentence.
const SHORTEST_SENTENCE: usize = 4;

impl Narrative {
    /// Looks at a line.
    pub(crate) fn note(&mut self, line: &str) {
        self.keeps_losses |= keeps_losses(line);
        self.note_chinese(line);
        if line.bytes().filter(|byte| *byte == b' ').count() + 1 < SHORTEST_SENTENCE {
            return;
        }
        let lower = line.to_ascii_lowercase();
        let speaks_of_memory = MEMORY.iter().any(|word| lower.contains(word));
        for sentence in lower.split(". ").flat_map(|part| part.split("; ")) {
            let words: Vec<&str> =
                sentence.split([' ', '\t', '/', '(', ')']).map(bare).filter(|w| !w.is_empty()).collect();
            if !is_sentence(&words) {
                continue;
            }
            self.grows |= speaks_of_memory && tells_of_growth(&words);
            self.evaluates |= fails_in(&words, is_evaluation);
            self.trains |= words.iter().any(|word| TRAINING.contains(word));
            self.infers |= words.iter().any(|word| INFERENCE.contains(word));
            self.fails_later |= fails_later(&words);
            self.resumes |= words.iter().any(|word| RESUMES.contains(word));
            self.runs_again |= runs_again(&words);
            self.takes_one_sample |= takes_one_sample(&words);
            self.shares_the_card |= shares_the_card(&words);
        }
    }

    /// The same in Chinese, which sets no blanks between words.
    fn note_chinese(&mut self, line: &str) {
        if line.is_ascii() {
            return;
        }
        let has = |words: &[&str]| words.iter().any(|word| line.contains(word));
        self.grows |= has(&["显存", "内存"])
            && has(&[
                "不断增",
                "一直增",
                "逐渐增",
                "慢慢增",
                "持续增",
                "越来越",
                "上涨",
                "泄漏",
                "泄露",
                "累积",
                "不释放",
                "没有释放",
            ]);
        self.evaluates |= has(&["验证", "测试", "评估", "验证集"])
            && has(&["时", "阶段", "过程"])
            && has(&["显存", "内存", "报错", "oom", "OOM"]);
        self.trains |= has(&["训练", "微调"]);
        self.fails_later |= has(&["轮后", "轮之后", "轮以后", "epoch后", "一段时间", "前几轮", "几个epoch"]);
        self.runs_again |= has(&["第二次运行", "第二次跑", "再次运行"]);
        self.takes_one_sample |= has(&[
            "batch size设为1",
            "batch_size设为1",
            "batchsize设为1",
            "batchsize改成1",
            "batch_size改成1",
            "batch_size都设为1",
        ]);
    }
}

/// What memory is called.
const MEMORY: &[&str] = &["memory", "vram", "gpu", " ram "];
/// What begins a word for growth.
const GROWS: &[&str] = &["increas", "grow", "grew", "accumulat", "climb", "rising", "rises", "piles", "leak"];
/// Verbs that tell of growth with `up` behind them.
const UP: &[&str] =
    &["add", "adds", "adding", "fill", "fills", "filling", "goes", "going", "go", "builds", "building", "pile"];
/// What somebody may make larger, so that growth is not told of.
const MADE_LARGER: &[&str] =
    &["size", "sizes", "resolution", "length", "swap", "limit", "shm", "memory", "ram", "capacity", "gradient"];
/// Words for a model that is trained.
const TRAINING: &[&str] =
    &["train", "training", "finetune", "finetuning", "fine-tune", "fine-tuning", "retrain", "retraining"];
/// Words for a run that goes on from a checkpoint.
const RESUMES: &[&str] = &["resume", "resuming", "resumed", "resumes"];
/// Words for a model that is used.
const INFERENCE: &[&str] =
    &["inference", "inferencing", "infer", "demo", "demo.py", "predict", "prediction", "predictions"];
/// What the time of a failure is told by.
const WHEN: &[&str] =
    &["during", "while", "when", "whenever", "in", "at", "after", "before", "then", "only", "begins", "starts"];
/// How a failure is called.
const FAILS: &[&str] =
    &["fail", "fails", "failed", "crash", "crashes", "crashed", "oom", "stops", "stopped", "ends", "error", "killed"];
/// What tells that something went well.
const WELL: &[&str] =
    &["fine", "well", "ok", "okay", "works", "worked", "normal", "normally", "smoothly", "successfully", "success"];
/// What stands between the name of the batch and its size.
const BEFORE_ONE: &[&str] =
    &["of", "is", "to", "at", "as", "=", "already", "only", "was", "just", "even", "set", "been"];
/// What is done one after the other.
const UNITS: &[&str] = &[
    "epoch",
    "epochs",
    "iteration",
    "iterations",
    "iter",
    "iters",
    "step",
    "steps",
    "batches",
    "image",
    "images",
    "picture",
    "pictures",
    "photo",
    "photos",
    "minute",
    "minutes",
    "hour",
    "hours",
    "samples",
    "file",
    "files",
    "frames",
    "videos",
    "prompts",
    "requests",
    "generations",
    "tiles",
    "while",
    "time",
    "days",
];

/// A word without what is written around it.
fn bare(word: &str) -> &str {
    word.trim_matches(|c: char| {
        matches!(c, ',' | '.' | ':' | '!' | '?' | '"' | '\'' | '`' | '*' | '…' | '[' | ']' | '-' | '>')
    })
}

/// Whether most words are words.
fn is_sentence(words: &[&str]) -> bool {
    let is_word = |word: &&&str| word.chars().all(|c| c.is_alphabetic() || matches!(c, '\'' | '’' | '-'));
    let plain = words.iter().filter(is_word).count();
    plain >= SHORTEST_SENTENCE && plain * 3 >= words.len() * 2
}

/// Whether memory grows, or is not given back; that somebody makes something larger is another matter.
fn tells_of_growth(words: &[&str]) -> bool {
    let follows = |at: usize, most: usize| &words[(at + 1).min(words.len())..(at + 1 + most).min(words.len())];
    words.iter().enumerate().any(|(at, word)| {
        let grows = GROWS.iter().any(|start| word.starts_with(start))
            && !follows(at, 3).iter().any(|w| MADE_LARGER.contains(w))
            || word.starts_with("leak")
            || UP.contains(word) && follows(at, 1) == ["up"];
        let before = &words[at.saturating_sub(3)..at];
        let is_made = before
            .iter()
            .any(|word| MADE_LARGER[..7].contains(word) || matches!(*word, "i" | "we" | "you" | "gradient"));
        let is_kept = matches!(*word, "released" | "freed" | "cleared" | "release" | "free" | "back")
            && words[at.saturating_sub(6)..at]
                .iter()
                .any(|word| matches!(*word, "not" | "never" | "isn't" | "doesn't" | "didn't" | "won't" | "without"));
        grows && !is_made || is_kept
    })
}

fn is_evaluation(word: &str) -> bool {
    word.starts_with("validat")
        || word.starts_with("evaluat")
        || matches!(word, "eval" | "val" | "testing" | "test" | "tests")
}

/// Whether the sentence tells that it failed in something: while it ran, or beside a training that went well.
fn fails_in(words: &[&str], is_it: fn(&str) -> bool) -> bool {
    let trains_well = words.iter().position(|word| word.starts_with("train")).is_some_and(|at| {
        let well = words[at..].iter().take(8).position(|word| WELL.contains(word));
        well.is_some_and(|well| !words[at.saturating_sub(2)..at + well].contains(&"not"))
    });
    words.iter().enumerate().filter(|(_, word)| is_it(word)).any(|(at, _)| {
        let is_then = words[at.saturating_sub(3)..at].iter().any(|word| WHEN.contains(word))
            || words[at.saturating_sub(7)..at].iter().any(|word| matches!(*word, "when" | "while" | "during"));
        let reach = if at == 0 { words.len() } else { 4 };
        let fails = words[at + 1..].iter().take(reach).any(|word| FAILS.contains(word) || at == 0 && *word == "memory");
        // Sets and data are what goes in, whatever is done with them.
        let is_of_data =
            words.get(at + 1).is_some_and(|word| matches!(*word, "set" | "data" | "dataset" | "split" | "images"));
        trains_well || fails || is_then && !is_of_data
    })
}

/// `after 3 epochs`, `after some of the pictures`, `for a while`, `the first one is fine and the second is not`.
fn fails_later(words: &[&str]) -> bool {
    let after = |at: usize| words[at + 1..].iter().take(5).any(|word| UNITS.contains(word));
    let is_each = |at: usize| words.get(at + 1).is_some_and(|word| matches!(*word, "each" | "every"));
    let by_time = words.iter().enumerate().any(|(at, word)| {
        *word == "after" && after(at) && !is_each(at)
            || *word == "for" && words.get(at + 1..at + 3) == Some(&["a", "while"])
    });
    let first = words.iter().position(|word| *word == "first");
    let in_turn = first.is_some_and(|at| words[at..].iter().any(|word| matches!(*word, "second" | "next" | "then")));
    let goes_well = words.iter().any(|word| WELL.contains(word));
    by_time || in_turn && goes_well
}

/// `the second time`, `on the second run`, `when I run it again`.
fn runs_again(words: &[&str]) -> bool {
    words.windows(2).any(|pair| {
        matches!(pair[0], "second" | "2nd" | "third") && matches!(pair[1], "time" | "try" | "run" | "attempt" | "cell")
            || matches!(pair[0], "next" | "another") && pair[1] == "cell"
    }) || words.iter().any(|word| matches!(*word, "rerun" | "re-run" | "rerunning" | "re-running"))
}

/// `even with a batch size of 1`; that it works with one is another matter.
fn takes_one_sample(words: &[&str]) -> bool {
    let is_size = |at: usize| match words[at] {
        "batch_size" | "batchsize" | "batch-size" | "bs" => Some(at + 1),
        "batch" if words.get(at + 1).is_some_and(|word| matches!(*word, "size" | "sizes")) => Some(at + 2),
        _ => None,
    };
    let names_one = (0..words.len()).filter_map(is_size).any(|from| {
        let rest = &words[from.min(words.len())..];
        // `to 10, 5, even 1`: larger ones were tried before.
        let is_larger = |word: &str| word != "1" && word.bytes().all(|byte| byte.is_ascii_digit());
        let skipped = rest.iter().take_while(|word| BEFORE_ONE.contains(word) || is_larger(word)).count();
        matches!(rest.get(skipped), Some(&"1" | &"one")) && !matches!(rest.get(skipped + 1), Some(&"or"))
    });
    let helps =
        words.iter().any(|word| WELL.contains(word) || matches!(*word, "work" | "run" | "solved" | "may" | "can"));
    let denies =
        words.iter().any(|word| matches!(*word, "still" | "even" | "not" | "doesn't" | "cannot" | "can't" | "already"));
    names_one && (denies || !helps)
}

/// `another process is using the card`; that there is none is another matter.
fn shares_the_card(words: &[&str]) -> bool {
    let runs = [
        "running",
        "runs",
        "using",
        "uses",
        "occupies",
        "occupied",
        "occupying",
        "holds",
        "shared",
        "share",
        "sharing",
    ];
    let others = ["process", "processes", "program", "programs", "user", "users", "job", "jobs", "people", "person"];
    words.iter().enumerate().any(|(at, word)| {
        let is_denied = words[at.saturating_sub(3)..at]
            .iter()
            .any(|word| matches!(*word, "no" | "not" | "nothing" | "any" | "isn't"));
        let names = words[at + 1..].iter().take(2).any(|word| others.contains(word));
        matches!(*word, "another" | "other" | "others" | "someone") && names && !is_denied
    }) && words.iter().any(|word| runs.contains(word))
}

/// `total_loss += loss`: a sum over steps that keeps the graph of each; a step's own loss may have several parts.
fn keeps_losses(line: &str) -> bool {
    let sums =
        ["total_loss += ", "running_loss += ", "train_loss += ", "epoch_loss += ", "sum_loss += ", "losses.append("];
    let plain = [".item()", ".detach()", ".data", "float(", ".cpu()", ".numpy()"];
    sums.iter().any(|sum| line.contains(sum)) && !plain.iter().any(|call| line.contains(call))
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
    fn growth_is_told_in_many_words() {
        for line in [
            "The GPU memory increases with every iteration until it is full.",
            "It seems that there is a memory leak somewhere in the training loop.",
            "After each validation batch the VRAM in use grows.",
            "The memory of the card is never released after a batch.",
            "What each batch takes of the GPU seems to add up from one to the next.",
            "训练过程中显存不断增加",
        ] {
            assert!(of(line).grows, "{line}");
        }
        for line in [
            "I had to increase the memory of the container before it ran.",
            "When I increase the batch size the GPU memory is not enough.",
            "gradient accumulation steps of 8 on one GPU with little memory",
            "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 8.00 GiB total capacity)",
        ] {
            assert!(!of(line).grows, "{line}");
        }
    }

    #[test]
    fn an_evaluation_is_told_by_when_it_failed() {
        for line in [
            "It runs out of memory during validation.",
            "Training works fine but the evaluation does not.",
            "The memory goes from 17G to 23G when it ends the epoch and validates.",
            "Validation fails with an error of CUDA on my card.",
            "Evaluation with a batch_size of 4 gives CUDA Out Of Memory.",
            "训练正常，验证阶段显存不够",
        ] {
            assert!(of(line).evaluates, "{line}");
        }
        for line in [
            "I split the data into training and validation and started.",
            "My val set has 200 pictures of cats and dogs.",
            "The model does not train well on the test data.",
        ] {
            assert!(!of(line).evaluates, "{line}");
        }
        assert!(of("I only want to run inference on one picture").infers);
    }

    #[test]
    fn what_went_well_before_is_told() {
        for line in [
            "It happens after about 400 iterations on every card.",
            "The code runs for a while and then it stops.",
            "The first one is fine and with the second it stops.",
        ] {
            assert!(of(line).fails_later, "{line}");
        }
        assert!(!of("It happens right after each start of the program.").fails_later);
        for line in ["On the second try it says that memory is full.", "When I rerun the script it fails at once."] {
            assert!(of(line).runs_again, "{line}");
        }
        assert!(!of("It happens in the second epoch of the training.").runs_again);
    }

    #[test]
    fn a_single_sample_is_told() {
        for line in [
            "I get the same error even with a batch size of 1.",
            "The batch size is already 1 and it still fails.",
            "I set batch_size to 1 and that does not help.",
            "I reduced the batch size to 10, 5, even 1 on this card.",
        ] {
            assert!(of(line).takes_one_sample, "{line}");
        }
        for line in [
            "With a batch size of 1 it works for me.",
            "May I use a batch size of 1 or 2 for this?",
            "I use a batch size of 16 on one card.",
        ] {
            assert!(!of(line).takes_one_sample, "{line}");
        }
    }

    #[test]
    fn others_on_the_card_are_told() {
        assert!(of("Another user is running a training on the same card.").shares_the_card);
        for line in
            ["There is no other process running on the card.", "nvidia-smi shows that no other program is using it."]
        {
            assert!(!of(line).shares_the_card, "{line}");
        }
    }

    #[test]
    fn sums_of_losses_keep_graphs() {
        assert!(of("    total_loss += loss").keeps_losses);
        assert!(!of("    total_loss += loss.item()").keeps_losses);
        assert!(!of("    loss += self.weight * other").keeps_losses);
    }
}
