//! What a word shows where it stands: a switch may be off, and an everyday word may be about something else.

use super::given::{is_comment, is_negated, is_off, is_spoken_of};
use super::model_words::is_of_model;
use super::narrative::{is_of, is_prose};
use super::sign::Sign;

/// What a word shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    Nothing,
    /// The switch itself is off.
    Off,
    /// A setting of something that has a switch of its own, which may be off.
    Perhaps,
    Shown,
}

/// So much of a line is looked at on either side of a word.
const AROUND: usize = 400;
/// Switches by which programs turn on what a sign shows.
const SWITCHES: &[(Sign, &[&str])] = &[
    (Sign::Adapters, &["use_lora", "lora", "lora_enable", "enable_lora", "use_peft", "use_qlora", "qlora"]),
    (Sign::Quantized, &["load_in_4bit", "load_in_8bit", "load_4bit", "load_8bit", "use_4bit", "use_8bit"]),
    (Sign::Fsdp, &["fsdp", "use_fsdp", "enable_fsdp"]),
    (Sign::DeepSpeed, &["deepspeed", "use_deepspeed", "enable_deepspeed"]),
    (Sign::ZeroTwo, &[]),
];
/// Endings of files that hold what was trained, made or shown before.
const MADE: &[&str] = &["ckpt", "pt", "pth", "safetensors", "bin", "h5", "onnx", "gguf", "png", "jpg", "jpeg", "mp4"];

/// Whether what stands around its words decides on a sign.
pub(super) fn depends(sign: Sign) -> bool {
    matches!(sign, Sign::Training | Sign::Transformer) || SWITCHES.iter().any(|(known, _)| *known == sign)
}

/// Whether a word stands for what it is on the list for, and is no part of another or an everyday one.
fn is_meant(word: &str, line: &str, at: usize) -> bool {
    let (before, after) = (&line[..at], &line[at + word.len()..]);
    let begins = !before.ends_with(|c: char| c.is_ascii_alphabetic());
    let ends = !after.starts_with(|c: char| c.is_ascii_alphabetic());
    match word {
        // `newsletter`, `awslogs`
        "wsl" | "WSL" => begins && ends,
        // `ajax.`
        "jax." => begins,
        // `colaboración`
        "olab" => before.ends_with(['c', 'C']) && (ends || after.starts_with("oratory")),
        // A model of somebody's own may be one.
        "VAE" => {
            begins
                && (is_of_pipeline(after)
                    || ["in ", "sd-", "Tiled ", "tiled "].iter().any(|lead| before.ends_with(lead)))
        }
        // `in generate_images`
        "in generate" => after.trim_end().is_empty() || after.starts_with("_text"),
        // A way to take pictures of a head has the same name.
        "flair" => !before.ends_with(['_', '-']) && !after.starts_with(['_', '-']) && !after.starts_with(".nii"),
        _ => true,
    }
}

/// `VAEDecode`, `VAE load device`, `VAE decode`
fn is_of_pipeline(after: &str) -> bool {
    let words = ["Decode", "Encode", "Loader", " load", " decod", " encod", " dtype", " weight", " tiling", "_", "-"];
    words.iter().any(|word| after.starts_with(word))
}

/// What a word of a sign shows at a place of a text.
pub(super) fn reading(sign: Sign, word: &str, text: &str, at: usize) -> Reading {
    let when = |is_it: bool| if is_it { Reading::Shown } else { Reading::Nothing };
    if let Some((_, switches)) = SWITCHES.iter().find(|(known, _)| *known == sign) {
        let (line, at) = line_around(text, at, word.len());
        return of_switch(switches, word, line, at);
    }
    match sign {
        Sign::Training => {
            let (line, at) = line_around(text, at, word.len());
            if word == "poch" { epoch(line, at) } else { when(is_of_training(word, line, at)) }
        }
        Sign::Transformer => {
            let (line, at) = line_around(text, at, word.len());
            when(is_of_model(line, at, word))
        }
        _ => {
            let (line, at) = line_around(text, at, word.len());
            when(is_meant(word, line, at))
        }
    }
}

/// The line around a place, cut to a bounded length, and the place in it.
fn line_around(text: &str, at: usize, length: usize) -> (&str, usize) {
    let (mut start, mut end) = (at.saturating_sub(AROUND), (at + length + AROUND).min(text.len()));
    while !text.is_char_boundary(start) {
        start += 1;
    }
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let start = text[start..at].rfind(['\n', '\r']).map_or(start, |newline| start + newline + 1);
    let end = text[at + length..end].find(['\n', '\r']).map_or(end, |newline| at + length + newline);
    (&text[start..end], at - start)
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// What a word of something with a switch shows, which may stand in the switch's own name or in another setting's.
fn of_switch(switches: &[&str], word: &str, line: &str, at: usize) -> Reading {
    let (before, after) = (&line[..at], &line[at + word.len()..]);
    let start = before.trim_end_matches(is_name).len();
    let tail = after.find(|c| !is_name(c)).unwrap_or(after.len());
    let name = line[start..at + word.len() + tail].trim_start_matches(|c| !is_name(c));
    let lead = &before[before.trim_end_matches(|c| is_name(c) || c == '-').len()..];
    let is_option = lead.starts_with("--");
    if is_comment(before, is_option) {
        return Reading::Nothing;
    }
    match setting(&after[tail..], is_option) {
        Some(value) => match (is_of(switches, name), is_off(value), is_negated(lead)) {
            _ if is_spoken_of(before, after) => Reading::Nothing,
            (true, true, false) => Reading::Off,
            (_, false, true) => Reading::Off,
            (_, true, _) => Reading::Nothing,
            (true, false, false) => Reading::Shown,
            (false, false, false) => Reading::Perhaps,
        },
        None if is_version(&after[tail..]) || is_spoken_of(before, after) => Reading::Nothing,
        // `quant_type="nf4"`
        None if is_whole_value(&line[..start], &after[tail..]) => Reading::Perhaps,
        None => Reading::Shown,
    }
}

/// What a name is set to, where it is a setting.
fn setting(rest: &str, is_option: bool) -> Option<&str> {
    let bare = rest.trim_start_matches(['"', '\'', '`', ']']);
    match bare.trim_start().strip_prefix(['=', ':']) {
        Some(value) if !value.starts_with(['=', ':', '/']) => Some(value.trim_start()),
        _ if is_option => Some(bare.trim_start_matches([' ', ',', '"', '\''])),
        _ => None,
    }
}

/// `deepspeed==0.14.4`, `bitsandbytes    0.41.1`, `DeepSpeed version: 0.14`: a library that is there, and need not be used.
fn is_version(rest: &str) -> bool {
    let value = rest.trim_start_matches(['"', '\'', '`']);
    let bare = value.trim_start();
    let number =
        bare.strip_prefix("version").unwrap_or(bare).trim_start_matches([' ', '=', '>', '<', '~', ':', '-', 'v']);
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
    value.starts_with("==") || number.len() < value.len() && number[..end].trim_end_matches('.').contains('.')
}

/// Whether what stands between these parts of a line is all that a setting is given.
fn is_whole_value(before: &str, after: &str) -> bool {
    let lead = before.trim_end_matches(['"', '\'', ' ']);
    lead.ends_with(['=', ':']) && !after.starts_with(|c: char| is_name(c) || matches!(c, '-' | '/'))
}

/// Whether an everyday word is about a training.
fn is_of_training(word: &str, line: &str, at: usize) -> bool {
    let (before, after) = (&line[..at], &line[at + word.len()..]);
    match word {
        "loss" | "Loss" => is_loss(line, before, after),
        "iter" | "Iter" => {
            !before.ends_with(is_name)
                && (after.starts_with([' ', ':', '=']) && counts(after) || after.starts_with("(train"))
        }
        "train" => is_train(before, after),
        "_train" => {
            let value = after.trim_start_matches(['"', '\'', ' ']).strip_prefix(['=', ':']);
            !after.starts_with("ed") && !value.is_some_and(is_off)
        }
        "finetune" => !after.starts_with('d'),
        "minibatch" => !after.starts_with(['_', ' ']) || !after[1..].starts_with("std"),
        _ => true,
    }
}

/// `train_loader`, `pretrain_gpt.py`, `train3d.py`, and no `constrain_`.
fn is_train(before: &str, after: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let rest = after.trim_start_matches(is_name);
    let is_whole = !before.ends_with(|c: char| c.is_ascii_alphabetic()) || before.ends_with("pre");
    is_whole && (after.starts_with('_') || rest.starts_with(".py"))
}

/// The function of a line of a stack.
fn is_function(before: &str, after: &str) -> bool {
    before.ends_with(", in ") && after.trim_end().is_empty()
}

/// `Epoch 3`, `epoch: 0.5`, `[Epoch 2/150]`, `3 epochs`, a bar of progress, and names of functions and settings; a sentence that has
/// the word may be about a training of long ago.
fn epoch(line: &str, at: usize) -> Reading {
    let (before, after) = (&line[..at], &line[at + "poch".len()..]);
    let Some(lead) = before.strip_suffix(['e', 'E']).filter(|lead| !is_made(line, lead.len())) else {
        return Reading::Nothing;
    };
    let rest = after.strip_prefix('s').unwrap_or(after);
    let is_part_of_name = |c: char| c.is_ascii_uppercase() || c == '_';
    let number =
        lead.trim_end_matches([' ', '个']).trim_end_matches("th").trim_end_matches("st").trim_end_matches("nd");
    let is_counted = lead.ends_with([' ', '个']) && number.ends_with(|c: char| c.is_ascii_digit());
    let is_name = lead.ends_with('_') || rest.starts_with(is_part_of_name) || rest.starts_with(['=', '(']);
    let is_loop = lead.ends_with("for ") && rest.starts_with(" in ");
    let is_prose = is_prose(line);
    let is_whole = !lead.ends_with(|c: char| c.is_ascii_alphanumeric());
    match is_counted
        || is_name
        || is_loop
        || is_function(lead, rest)
        || line.contains("%|")
        || counts(rest) && !is_prose
    {
        true => Reading::Shown,
        false if is_prose && is_whole => Reading::Perhaps,
        false => Reading::Nothing,
    }
}

/// `loss: 2.31`, `'loss': 2.31`, `loss 2.31`, `loss = criterion(x)`, `loss.backward()`, `compute_loss(`.
fn is_loss(line: &str, before: &str, after: &str) -> bool {
    if before.ends_with(|c: char| c.is_ascii_alphabetic()) || is_made(line, before.len()) {
        return false;
    }
    let rest = after.strip_prefix("es").unwrap_or(after);
    let bare = rest.trim_start_matches(['"', '\'', '`', ' ']);
    let is_member =
        |rest: &str| rest.strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()));
    let is_part =
        before.ends_with(['_', '.']) || rest.starts_with(['_', '(']) || is_member(rest) || is_function(before, rest);
    bare.starts_with([':', '=']) || counts(rest) || is_part || before.ends_with('(') && rest.starts_with([')', ','])
}

/// ` 12`, `: 3/40`, `=0.5`, ` [2/150]`, `', '2'`, and no `-12`: a number that a logger writes behind a name.
fn counts(rest: &str) -> bool {
    let rest = ["', '", "\", \""].iter().find_map(|between| rest.strip_prefix(between)).unwrap_or(rest);
    let number = rest.trim_start_matches([' ', ':', '=', '[', '#', '(', '"', '\'', ')', '\t']);
    number.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether a place of a line is in the name of a file that was made before: `portrait-epoch-12.safetensors`.
fn is_made(line: &str, at: usize) -> bool {
    let is_apart = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '(' | ')' | ',' | '`' | ']' | '|');
    let end = line[at..].find(is_apart).map_or(line.len(), |found| at + found);
    let ending = line[at..end].trim_end_matches(['.', ':']).rsplit_once('.').map_or("", |(_, ending)| ending);
    is_of(MADE, ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sign: Sign, word: &str, line: &str) -> Reading {
        let all = line.match_indices(word).map(|(at, _)| reading(sign, word, line, at));
        all.max_by_key(|reading| *reading as u8).unwrap_or(Reading::Nothing)
    }

    #[test]
    fn switches_that_are_off() {
        for (sign, word, line, expected) in [
            (Sign::Fsdp, "fsdp", "fsdp=[],", Reading::Off),
            (Sign::Fsdp, "fsdp", "fsdp_config={'xla': False},", Reading::Perhaps),
            (Sign::Fsdp, "fsdp", "fsdp_min_num_params=0,", Reading::Nothing),
            (Sign::Fsdp, "fsdp", "--fsdp \"full_shard auto_wrap\"", Reading::Shown),
            (Sign::Fsdp, "fsdp", "/env/torch/distributed/fsdp/api.py", Reading::Shown),
            (Sign::DeepSpeed, "deepspeed", "deepspeed=None,", Reading::Off),
            (Sign::DeepSpeed, "deepspeed", "deepspeed train.py --deepspeed ds.json", Reading::Shown),
            (Sign::DeepSpeed, "deepspeed", "deepspeed==0.14.4", Reading::Nothing),
            (Sign::DeepSpeed, "deepspeed", "deepspeed                 0.14.4", Reading::Nothing),
            (Sign::DeepSpeed, "DeepSpeed", "- DeepSpeed version: 0.14.4", Reading::Nothing),
            (Sign::DeepSpeed, "deepspeed", "No module named 'deepspeed'", Reading::Nothing),
            (Sign::Adapters, "lora_r", "lora_r=8, lora_alpha=16", Reading::Perhaps),
            (Sign::Adapters, "use_lora", "Namespace(use_lora=False, lora_r=8)", Reading::Off),
            (Sign::Adapters, "LoRA", "I am not using LoRA", Reading::Nothing),
            (Sign::Adapters, "LoRA", "I am using LoRA on one card", Reading::Shown),
            (Sign::Adapters, "LoRA", "Should I use LoRA for it?", Reading::Nothing),
            (Sign::Quantized, "load_in_4bit", "Do not use `load_in_4bit=True` with it", Reading::Nothing),
            (Sign::Quantized, "load_in_8bit", "load_in_8bit=True", Reading::Shown),
            (Sign::Quantized, "nf4", "bnb_4bit_quant_type='nf4'", Reading::Perhaps),
            (Sign::Quantized, "AWQ", "Qwen/Qwen2.5-7B-Instruct-AWQ", Reading::Shown),
            (Sign::Quantized, "bitsandbytes", "bitsandbytes==0.41.1", Reading::Nothing),
        ] {
            assert_eq!(read(sign, word, line), expected, "{line}");
        }
    }

    #[test]
    fn everyday_words_of_trainings() {
        for (word, line) in [
            ("poch", "Epoch 3"),
            ("poch", "[Epoch 2/150][Batch 8]"),
            ("poch", "{'loss': 2.1, 'epoch': 0.5}"),
            ("poch", "for epoch in range(10):"),
            ("poch", "in train_one_epoch"),
            ("poch", "It fails after 3 epochs"),
            ("poch", "['--epochs', '2', '--bf16', 'true']"),
            ("poch", "in the method epochVal"),
            ("poch", "Epoch:   0%|          | 0/3"),
            ("loss", "step 7 loss 2.1"),
            ("loss", "'loss': 0.3"),
            ("loss", "loss = criterion(x)"),
            ("loss", "self.compute_loss(model, x)"),
            ("loss", "scaler.scale(loss).backward()"),
            ("iter", "iter 100: loss 2.1"),
            ("train", "train_dataloader"),
            ("train", "$ python3 train3d.py --bs 1"),
            ("loss", "  File \"anchor_head.py\", line 180, in loss"),
            ("_train", "is_train=True"),
        ] {
            assert_eq!(read(Sign::Training, word, line), Reading::Shown, "{line}");
        }
        for (word, line) in [
            ("poch", "Requested to load portrait-epoch-12.safetensors"),
            ("poch", "model: last_epoch_40.pth, epoch=3-step=400.ckpt"),
            ("poch", "best_epoch.pth"),
            ("loss", "a lossless codec, no loss of quality"),
            ("loss", "glossy paper"),
            ("iter", "chunk_iter in file"),
            ("train", "constrain_mode=1"),
            ("_train", "do_train=False"),
            ("_train", "pre_trained weights"),
            ("finetune", "my-finetuned-model"),
        ] {
            assert_eq!(read(Sign::Training, word, line), Reading::Nothing, "{line}");
        }
    }

    #[test]
    fn parts_of_other_words() {
        for (sign, word, line) in [
            (Sign::Wsl, "wsl", "the newsletter said so, awslogs: true"),
            (Sign::Jax, "jax.", "https://ajax.example.com"),
            (Sign::Notebook, "olab", "gracias por su colaboración"),
            (Sign::Diffusion, "VAE", "I train a VAE of my own, a CVAE"),
            (Sign::Generation, "in generate", "  File \"gen.py\", line 3, in generate_images"),
            (Sign::Language, "flair", "BraTS_001_flair.nii.gz, flair.nii"),
            (Sign::Transformer, "t5-", "run test5-a of part5-b"),
            (Sign::Transformer, "-t5", "sample-t500.png"),
            (Sign::Transformer, "transformer", "sklearn/compose/_column_transformer.py"),
        ] {
            assert_eq!(read(sign, word, line), Reading::Nothing, "{line}");
        }
        for (sign, word, line) in [
            (Sign::Wsl, "WSL", "Ubuntu in WSL2"),
            (Sign::Jax, "jax.", "grads = jax.grad(f)(x)"),
            (Sign::Notebook, "olab", "on Google Colab with a T4"),
            (Sign::Diffusion, "VAE", "VAE load device: cuda:0"),
            (Sign::Generation, "in generate", "  File \"utils.py\", line 3, in generate"),
            (Sign::Language, "flair", "  File \"/env/flair/trainers/trainer.py\", line 3, in train"),
            (Sign::Transformer, "t5-", "google/flan-t5-base, mt5-small"),
            (Sign::Transformer, "-t5", "google/flan-t5"),
        ] {
            assert_eq!(read(sign, word, line), Reading::Shown, "{line}");
        }
    }

    #[test]
    fn a_sentence_about_epochs_may_be_of_long_ago() {
        for line in ["The model was trained at epoch 40 I think.", "In use it grows epoch by epoch, up to the end."] {
            assert_eq!(read(Sign::Training, "poch", line), Reading::Perhaps, "{line}");
        }
    }

    #[test]
    fn a_line_is_cut_where_characters_end() {
        let text = format!("a\n{}deepspeed{}\nb", "é".repeat(300), "é".repeat(300));
        let at = text.find("deepspeed").unwrap();
        let (line, at) = line_around(&text, at, 9);
        assert!(line.len() < 820 && line[at..].starts_with("deepspeed"), "{line}");
    }
}
