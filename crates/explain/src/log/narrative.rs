//! What people write about a run in sentences of their own: when it failed, what grows, what they tried.
//!
//! A message says what was refused and a stack where. That memory grew before, that training went well and validation did not,
//! or that the first try worked, only the sentences around them say. Phrases are few and plain, and are looked for in sentences
//! alone: a line of a log with the same words counts there and not here.

use super::told_moment::{
    ends_an_epoch, fails_at_one_step, fails_in_evaluation, fails_in_saving, fails_later, restart_helps, runs_again,
};
use super::{spanish, told_cards};

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
    /// It failed while a model was loaded.
    pub(crate) loads: bool,
    /// Some steps, pictures or minutes went well before.
    pub(crate) fails_later: bool,
    /// A run that goes on from a checkpoint failed.
    pub(crate) resumes: bool,
    /// It worked the first time, and not when it was run again.
    pub(crate) runs_again: bool,
    /// It worked again after a restart of the machine or the notebook.
    pub(crate) restart_helps: bool,
    /// A single sample at once is too much.
    pub(crate) takes_one_sample: bool,
    /// Another program or another user is on the same card.
    pub(crate) shares_the_card: bool,
    /// Processes of all ranks take memory of the first card.
    pub(crate) crowds_the_first_card: bool,
    /// The driver's table lists nobody else on the card.
    pub(crate) is_alone: bool,
    /// Several cards work on one model, or should.
    pub(crate) has_many_cards: bool,
    /// Which card is used is what somebody asks, or how to use another.
    pub(crate) asks_for_another_card: bool,
    /// It fails at the same step again and again, or at the end of an epoch, as what is done every so many steps does.
    pub(crate) fails_at_one_step: bool,
    /// It failed while a model was saved.
    pub(crate) saves: bool,
    /// Recordings go in.
    pub(crate) names_recordings: bool,
    /// All weights of a model are trained, and no adapters.
    pub(crate) tunes_all_weights: bool,
    /// Pictures of more than a thousand pixels each way go in.
    pub(crate) names_large_pictures: bool,
    /// Much data of one kind goes in: a million points, a large genome.
    pub(crate) names_large_data: bool,
    /// A package was being installed by pip.
    pub(crate) installs: bool,
    /// Windows is what it runs on.
    pub(crate) names_windows: bool,
    /// The memory of the machine, in GB, where a sentence names it.
    pub(crate) machine_gigabytes: Option<u64>,
    /// The size of the card, in GB, where a sentence names it.
    pub(crate) card_gigabytes: Option<u64>,
    /// Losses are added up or kept with their graphs, by a line of code.
    pub(crate) keeps_losses: bool,
    /// Activations are recomputed already.
    pub(crate) recomputes: bool,
}

/// What pictures are called.
const PICTURES: &[&str] =
    &["image", "images", "picture", "pictures", "photo", "photos", "resolution", "frame", "frames", "video"];
/// Millions of pixels from which a picture is large.
const LARGE_MEGAPIXELS: f64 = 2.0;
/// Pixels each way from which a picture is large.
const LARGE_PICTURE: u64 = 1000;

/// What data is counted in.
const DATA: &[&str] =
    &["points", "cells", "nodes", "residues", "rows", "reads", "genes", "vertices", "genome", "genomes"];
/// From so many on, data is much.
const MUCH_DATA: u64 = 10_000;

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
                sentence.split([' ', '\t', '/', '(', ')', '=']).map(bare).filter(|w| !w.is_empty()).collect();
            if !is_sentence(&words) {
                continue;
            }
            self.grows |= speaks_of_memory && tells_of_growth(&words);
            self.evaluates |= fails_in_evaluation(&words);
            self.trains |= has_one(&words, TRAINING) || words.windows(2).any(is_fine_tuning);
            self.infers |= has_one(&words, INFERENCE) || is_to_use(&words);
            self.fails_later |= fails_later(&words);
            self.resumes |= has_one(&words, RESUMES);
            self.runs_again |= runs_again(&words);
            self.restart_helps |= restart_helps(&words);
            self.takes_one_sample |= takes_one_sample(&words);
            self.tunes_all_weights |= tunes_all_weights(&words);
            self.fails_at_one_step |= fails_at_one_step(&words) || ends_an_epoch(&words);
            self.saves |= fails_in_saving(&words);
            self.names_recordings |= has_one(&words, RECORDINGS);
            self.names_large_pictures |= names_large_pictures(&words);
            self.names_large_data |= names_large_data(&words);
            self.installs |= has_one(&words, &["installing", "installation"]) && words.contains(&"pip");
            self.names_windows |= names_windows(&words);
            self.recomputes |= recomputes_already(&words);
            told_cards::note(self, &words);
            spanish::note(self, &words, speaks_of_memory);
        }
    }

    /// The same in Chinese, which sets no blanks between words.
    fn note_chinese(&mut self, line: &str) {
        if line.is_ascii() {
            return;
        }
        let has = |words: &str| words.split(' ').any(|word| line.contains(word));
        self.grows |=
            has("显存 内存") && has("不断增 一直增 逐渐增 慢慢增 持续增 越来越 上涨 泄漏 泄露 累积 不释放 没有释放");
        self.evaluates |= has("验证 测试 评估 eval") && has("时 阶段 过程 一到 每到") && has("显存 内存 报错 oom OOM");
        self.trains |= has("训练 微调");
        self.infers |= has("推理 预测");
        self.loads |= has("加载模型 模型加载 载入模型") && has("显存 内存 oom OOM");
        self.fails_later |= has("轮后 轮之后 轮以后 epoch后 一段时间 前几轮 几个epoch");
        self.tunes_all_weights |= has("全参数微调 全参微调 全量微调 全参数训练");
        self.resumes |= has("断点续训 恢复训练 继续训练");
        self.shares_the_card |= has("非正常关闭 异常退出 没有正常退出 强制终止 强制关闭 僵尸进程");
        self.has_many_cards |= has("多卡 多张卡 双卡 两张卡 两张显卡 四卡 八卡 4卡 8卡 张显卡都 张卡都");
        self.runs_again |= has("第二次运行 第二次跑 再次运行");
        self.takes_one_sample |= takes_one_sample_in_chinese(line);
        let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '*' && c != '×');
        self.names_large_pictures |= has("图片 图像 照片 分辨率") && words.into_iter().any(is_large_size);
    }
}

/// What memory is called.
pub(super) const MEMORY: [&str; 5] = ["memory", "memoria", "vram", "gpu", " ram "];
/// What begins a word for growth.
const GROWS: [&str; 9] = ["increas", "grow", "grew", "accumulat", "climb", "rising", "rises", "piles", "leak"];
/// Verbs that tell of growth with `up` behind them.
const UP: &[&str] =
    &["add", "adds", "adding", "fill", "fills", "filling", "go", "goes", "going", "builds", "building", "pile"];
/// Settings that somebody makes larger, so that no growth is told of.
const SETTINGS: &[&str] = &["size", "sizes", "resolution", "length", "swap", "limit", "shm", "gradient"];
/// What somebody gives a program more of.
const AMOUNTS: &[&str] = &["memory", "ram", "capacity"];
/// What was given back, or was not.
const GIVEN_BACK: &[&str] = &["released", "freed", "cleared", "release", "free", "back"];
/// What denies the word behind it.
pub(super) const DENIALS: &[&str] = &["not", "never", "isn't", "doesn't", "didn't", "won't", "without"];
/// What is heard.
const RECORDINGS: &[&str] = &[
    "audio",
    "audios",
    "recording",
    "recordings",
    "speech",
    "voice",
    "voices",
    "song",
    "songs",
    "music",
    "wav",
    "mp3",
    "utterances",
];
/// Words for a model that is trained.
const TRAINING: &[&str] =
    &["train", "training", "finetune", "finetuning", "fine-tune", "fine-tuning", "retrain", "retraining"];
/// Words for a run that goes on from a checkpoint.
const RESUMES: &[&str] = &["resume", "resuming", "resumed", "resumes"];
/// Words for a model that is used.
const INFERENCE: &[&str] =
    &["inference", "inferencing", "infer", "demo", "demo.py", "demo.ipynb", "predict", "prediction", "predictions"];
/// What tells that something went well.
pub(super) const WELL: &[&str] =
    &["fine", "well", "ok", "okay", "works", "worked", "normal", "normally", "smoothly", "successfully", "success"];
/// What stands between the name of the batch and its size.
const BEFORE_ONE: &[&str] =
    &["of", "is", "to", "at", "as", "=", "already", "only", "was", "just", "even", "set", "been"];
/// Whether a word is one of a list.
pub(super) fn is_of(list: &[&str], word: &str) -> bool {
    list.contains(&word)
}

/// Whether one of some words is in a list.
pub(super) fn has_one(words: &[&str], list: &[&str]) -> bool {
    words.iter().any(|word| is_of(list, word))
}

/// A word without what is written around it.
fn bare(word: &str) -> &str {
    word.trim_matches(|c: char| {
        matches!(c, ',' | '.' | ':' | '!' | '?' | '"' | '\'' | '`' | '*' | '…' | '[' | ']' | '-' | '>')
    })
}

/// Whether a line is what somebody writes, and not what a program does.
pub(super) fn is_prose(line: &str) -> bool {
    let words: Vec<&str> =
        line.split([' ', '\t', '/', '(', ')', '=']).map(bare).filter(|word| !word.is_empty()).collect();
    !is_frame(line) && is_sentence(&words)
}

/// `  File "a.py", line 3, in predict`: a line of a stack.
fn is_frame(line: &str) -> bool {
    line.trim_start().starts_with("File \"") && line.contains("\", line ")
}

/// `on Windows`, `Windows 11`, `It has Windows`, and no windows of a signal.
fn names_windows(words: &[&str]) -> bool {
    let is_system = |at: usize| {
        let behind = words.get(at + 1).copied().unwrap_or_default();
        let before = at.checked_sub(1).map_or("", |before| words[before]);
        at == 0 && behind != "of"
            || is_of(&["on", "under", "using", "use", "is", "has", "have", "run", "running", "my", "native"], before)
            || is_of(&["7", "8", "10", "11", "os", "pc", "server", "machine", "laptop", "system"], behind)
    };
    has_one(words, &["win10", "win11"]) || (0..words.len()).any(|at| words[at] == "windows" && is_system(at))
}

/// Whether most words are words.
fn is_sentence(words: &[&str]) -> bool {
    let is_word = |word: &&&str| word.chars().all(|c| c.is_alphabetic() || matches!(c, '\'' | '’' | '-'));
    let plain = words.iter().filter(is_word).count();
    plain >= SHORTEST_SENTENCE && plain * 3 >= words.len() * 2
}

/// Whether memory grows, or is not given back; that somebody makes something larger is another matter.
fn tells_of_growth(words: &[&str]) -> bool {
    words.iter().enumerate().any(|(at, word)| {
        let before = |most: usize| &words[at.saturating_sub(most)..at];
        let behind = |most: usize| &words[at + 1..(at + 1 + most).min(words.len())];
        let is_made = has_one(before(3), SETTINGS) || has_one(before(3), &["i", "we", "you"]);
        // `without limit` is no setting.
        let is_boundless = behind(1) == ["without"];
        let is_of_settings = !is_boundless && (has_one(behind(3), SETTINGS) || has_one(behind(3), AMOUNTS));
        let grows = GROWS.iter().any(|start| word.starts_with(start)) && !is_of_settings
            || word.starts_with("leak")
            || is_of(UP, word) && behind(1) == ["up"];
        // What is not enough is not kept.
        let is_lacking = has_one(before(4), &["enough", "sufficient", "much", "any", "more"]);
        let is_kept = is_of(GIVEN_BACK, word) && has_one(before(6), DENIALS) && !is_lacking;
        grows && !is_made || is_kept
    })
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
        let skipped = rest.iter().take_while(|word| is_of(BEFORE_ONE, word) || is_larger(word)).count();
        matches!(rest.get(skipped), Some(&"1" | &"one")) && !matches!(rest.get(skipped + 1), Some(&"or"))
    });
    let helps = has_one(words, WELL) || has_one(words, &["work", "run", "solved", "may", "can"]);
    let denies = has_one(words, DENIALS) || has_one(words, &["still", "even", "cannot", "can't", "already"]);
    names_one && (denies || !helps)
}

/// `batch 设为1`, and no `batch 设为16`
fn takes_one_sample_in_chinese(line: &str) -> bool {
    let dense: String = line.chars().filter(|c| *c != ' ').collect();
    let sets = ["设为1", "设置为1", "改成1", "改为1", "都设为1", "为1", "已经是1"];
    ["batch_size", "batchsize", "batch"].iter().any(|name| {
        dense.to_ascii_lowercase().split(name).skip(1).any(|rest| {
            sets.iter()
                .filter_map(|words| rest.strip_prefix(words))
                .any(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        })
    })
}

/// `I already use gradient checkpointing`, `even with gradient checkpointing enabled`; a question for it is another matter.
fn recomputes_already(words: &[&str]) -> bool {
    let is_name = |pair: &[&str]| {
        is_of(&["gradient", "activation"], pair[0]) && is_of(&["checkpointing", "checkpoints"], pair[1])
    };
    let Some(at) = words.windows(2).position(is_name) else { return false };
    let (before, behind) = (&words[at.saturating_sub(8)..at], &words[at + 2..(at + 6).min(words.len())]);
    let is_on = before
        .iter()
        .chain(behind)
        .any(|word| is_of(&["already", "even", "with", "using", "use", "enabled", "on", "activated"], word));
    is_on
        && !has_one(words, DENIALS)
        && !has_one(words, &["no", "try", "could", "should", "how", "can", "would", "support"])
}

/// `full fine-tuning`, `fully fine-tune`, `full parameters`, `without LoRA`
fn tunes_all_weights(words: &[&str]) -> bool {
    let is_whole = |pair: &[&str]| {
        let is_tuned = has_one(&pair[1..], TRAINING) || is_of(&["parameter", "parameters"], pair[1]);
        is_of(&["full", "fully"], pair[0]) && is_tuned || pair == ["without", "lora"]
    };
    words.windows(2).any(is_whole) || words.contains(&"full-parameter")
}

/// `to evaluate just one pair of images`, `to test it on my own video`: a model that is used, by what it is meant for.
fn is_to_use(words: &[&str]) -> bool {
    let is_meant = |at: usize| {
        let near = &words[at + 2..(at + 10).min(words.len())];
        words[at] == "to"
            && is_of(&["evaluate", "test", "process", "segment", "try"], words[at + 1])
            && has_one(near, PICTURES)
    };
    !has_one(words, TRAINING) && (0..words.len().saturating_sub(1)).any(is_meant)
}

/// `fine tuning` in two words.
fn is_fine_tuning(pair: &[&str]) -> bool {
    pair[0] == "fine" && is_of(&["tune", "tuning", "tuned"], pair[1])
}

/// `4096x4096`, `(4096, 4096)`, `a large image`
fn names_large_pictures(words: &[&str]) -> bool {
    let speaks_of_pictures = words.iter().any(|word| is_of(PICTURES, word));
    let is_called_large = |pair: &[&str]| {
        is_of(&["large", "huge"], pair[0]) && is_of(&["image", "picture", "photo", "scan", "slide"], pair[1])
    };
    let is_pair = |pair: &[&str]| is_called_large(pair) || pair.iter().all(|it| is_large(it));
    speaks_of_pictures && (words.iter().any(|word| is_large_size(word)) || words.windows(2).any(is_pair))
}

/// `about 40K points each`, `2 million cells`, `a large genome`
fn names_large_data(words: &[&str]) -> bool {
    let is_many = |word: &str| {
        let number = word.replace(',', "");
        let thousands = number.strip_suffix('k').and_then(|number| number.parse::<u64>().ok());
        number.parse::<u64>().ok().or(thousands.map(|count| count * 1000)).is_some_and(|count| count >= MUCH_DATA)
            || is_of(&["million", "millions", "thousands"], word)
    };
    words.windows(2).any(|pair| is_many(pair[0]) && is_of(DATA, pair[1]))
        || words.windows(2).any(|pair| is_of(&["large", "big", "huge"], pair[0]) && is_of(DATA, pair[1]))
}

/// Whether so many pixels each way are a large picture.
fn is_large(pixels: &str) -> bool {
    pixels.parse().is_ok_and(|pixels: u64| (LARGE_PICTURE..100_000).contains(&pixels))
}

/// `4096x4096`, `4mpx`
fn is_large_size(word: &str) -> bool {
    let is_megapixels = ["mp", "mpx", "megapixel", "megapixels"].iter().any(|unit| {
        word.strip_suffix(unit).is_some_and(|count| count.parse().is_ok_and(|count: f64| count >= LARGE_MEGAPIXELS))
    });
    is_megapixels || word.split_once(['x', '*', '×']).is_some_and(|(width, height)| is_large(width) && is_large(height))
}

/// `total_loss += loss`: a sum over steps that keeps the graph of each; a step's own loss may have several parts.
fn keeps_losses(line: &str) -> bool {
    let plain = [".item()", ".detach()", ".data", "float(", ".cpu()", ".numpy()"];
    let is_sum = line.split_once(" += ").is_some_and(|(name, _)| {
        let name = name.trim_start();
        let starts = ["total_", "running_", "train_", "epoch_", "sum_"];
        let is_loss = name.ends_with("loss") || name.ends_with("likelihood");
        is_loss && starts.iter().any(|start| name.starts_with(start))
    });
    (is_sum || line.contains("losses.append(")) && !plain.iter().any(|call| line.contains(call))
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
            "The memory grows without limit until the card is full.",
            "训练过程中显存不断增加",
        ] {
            assert!(of(line).grows, "{line}");
        }
        for line in [
            "I had to increase the memory of the container before it ran.",
            "There is not enough free memory on the GPU for it.",
            "The GPU does not have any free memory left here.",
            "When I increase the batch size the GPU memory is not enough.",
            "gradient accumulation steps of 8 on one GPU with little memory",
            "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 8.00 GiB total capacity)",
        ] {
            assert!(!of(line).grows, "{line}");
        }
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
    fn large_pictures_are_told() {
        for line in [
            "I run this with a few images of (4096, 4096) pixels.",
            "It crashes with pictures of 2500x3500 pixels on this card.",
        ] {
            assert!(of(line).names_large_pictures, "{line}");
        }
        for line in ["My images have 512x512 pixels and are small.", "The batch has 4096 4096 rays on this card."] {
            assert!(!of(line).names_large_pictures, "{line}");
        }
    }

    #[test]
    fn much_data_is_told() {
        for line in ["I register clouds with about 40K points each.", "There are 2 million cells in this data."] {
            assert!(of(line).names_large_data, "{line}");
        }
        assert!(!of("I register clouds with 400 points each here.").names_large_data);
    }

    #[test]
    fn a_whole_model_that_is_trained_is_told() {
        for line in [
            "Full fine-tuning of a 7B model on four cards fails.",
            "Is it possible to fully fine-tune the model on one card?",
            "I want to train the model without LoRA on one card.",
            "全参数微调时显存不够",
        ] {
            assert!(of(line).tunes_all_weights, "{line}");
        }
        assert!(!of("The card is full when I train with LoRA on it.").tunes_all_weights);
    }

    #[test]
    fn sums_of_losses_keep_graphs() {
        assert!(of("    total_loss += loss").keeps_losses);
        assert!(!of("    total_loss += loss.item()").keeps_losses);
        assert!(of("    sum_log_likelihood += neg_log_likelihood").keeps_losses);
        assert!(!of("    loss += self.weight * other").keeps_losses);
    }
}
