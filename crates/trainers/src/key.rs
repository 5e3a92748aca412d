//! What settings are about, whoever named them.

use lowtide_config::Setting;

/// What a setting is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the table below says it by their names")]
#[non_exhaustive]
pub enum Key {
    Batch,
    EvalBatch,
    UpdateBatch,
    Accumulation,
    Sequence,
    Positions,
    Vocabulary,
    Layers,
    Heads,
    PairHeads,
    Width,
    Inner,
    Dtype,
    Bf16,
    Fp16,
    Compile,
    EvalIters,
    EvalInterval,
    Crop,
    EvalCrop,
    Frames,
    FrameHeight,
    FrameWidth,
    Recompute,
    Workers,
    Cache,
    ModelType,
    Tied,
    HiddenChannels,
    InitFrom,
    EvalOnly,
    Device,
    Dropout,
    /// Dimensions of one head.
    HeadSize,
    /// Experts of a layer, of which a token takes a few.
    Experts,
    ExpertInner,
    ActiveExperts,
    /// Experts that every token takes besides.
    SharedExperts,
    /// Width of those, where it is set as a whole.
    SharedInner,
    /// Layers at the beginning without experts.
    DenseLayers,
}

/// The names each has, in lower case, between blanks; the first that a configuration has counts.
const NAMES: &[(Key, &str)] = &[
    (
        Key::Batch,
        "per_device_train_batch_size train_micro_batch_size_per_gpu micro_batch_size \
         device_batch_size samples_per_gpu batch_size train_batch_size batchsize bs",
    ),
    (
        Key::EvalBatch,
        "per_device_eval_batch_size eval_batch_size val_batch_size validation_batch_size \
         test_batch_size",
    ),
    (Key::UpdateBatch, "global_batch_size"),
    (
        Key::Accumulation,
        "gradient_accumulation_steps accumulate_grad_batches grad_accum_steps \
         gradient_accumulation accumulation_steps accum_steps grad_accum accum_iter update_freq iter_size",
    ),
    (
        Key::Sequence,
        "block_size max_seq_length max_seq_len seq_length seq_len sequence_length sequence_len \
         context_length model_max_length max_length cutoff_len",
    ),
    (Key::Positions, "n_positions max_position_embeddings n_ctx"),
    (Key::Vocabulary, "vocab_size padded_vocab_size"),
    (Key::Layers, "n_layer n_layers num_hidden_layers num_layers"),
    (Key::Heads, "n_head n_heads num_attention_heads num_heads"),
    (Key::PairHeads, "num_key_value_heads n_kv_heads n_query_groups"),
    (Key::Width, "n_embd hidden_size d_model n_embed embed_dim model_dim"),
    (Key::Inner, "intermediate_size n_inner ffn_dim d_ff"),
    (Key::Dtype, "dtype mixed_precision precision torch_dtype amp_dtype"),
    (Key::Bf16, "bf16"),
    (Key::Fp16, "fp16 use_mixed_precision use_amp amp"),
    (Key::Compile, "compile torch_compile use_compile"),
    (Key::EvalIters, "eval_iters limit_val_batches val_batches num_val_batches max_eval_samples eval_batches"),
    (
        Key::EvalInterval,
        "eval_interval eval_steps val_every_steps val_check_interval eval_every val_every \
         val_interval",
    ),
    (Key::Crop, "crop_size patch_size gt_size train_crop_size"),
    (Key::EvalCrop, "val_crop_size eval_crop_size validation_crop_size test_crop_size"),
    (Key::Frames, "num_frames n_frames clip_length clip_len num_frame frames sequence_frames"),
    (Key::FrameHeight, "frame_height height img_height image_height img_h"),
    (Key::FrameWidth, "frame_width width img_width image_width img_w"),
    (
        Key::Recompute,
        "gradient_checkpointing use_checkpointing use_checkpoint activation_checkpointing \
         use_gradient_checkpointing",
    ),
    (Key::Workers, "dataloader_num_workers num_workers workers n_workers num_data_workers"),
    (Key::Cache, "max_cache_batches cache_size cache_batches max_cache cache_images cache"),
    (Key::ModelType, "model_type"),
    (Key::Tied, "tie_word_embeddings"),
    (Key::HiddenChannels, "hidden_channels base_channels n_filters num_feat embed_channels"),
    (Key::InitFrom, "init_from"),
    (Key::EvalOnly, "eval_only"),
    (Key::Device, "device"),
    (Key::Dropout, "dropout"),
    (Key::HeadSize, "head_dim"),
    (Key::Experts, "num_local_experts num_experts n_routed_experts moe_num_experts"),
    (Key::ExpertInner, "moe_intermediate_size"),
    (Key::ActiveExperts, "num_experts_per_tok experts_per_token moe_k"),
    (Key::SharedExperts, "n_shared_experts num_shared_experts"),
    (Key::SharedInner, "shared_expert_intermediate_size"),
    (Key::DenseLayers, "first_k_dense_replace"),
];

/// How far down a name stands that only its words tell: below all that are listed.
pub(crate) const BY_WORDS: usize = 20;

/// Words of a batch that is computed at once, and those that may stand beside them.
const BATCH: &[&str] = &["batch", "minibatch", "microbatch"];
const BATCH_SIZE: &[&str] = &["size", "sz", "bs", "bsz", "batchsize"];
const BESIDE_BATCH: &[&str] =
    &["train", "training", "per", "gpu", "device", "card", "rank", "process", "micro", "mini", "local", "num", "n"];
/// Words of a batch that is another than that of training.
const EVALUATION: &[&str] =
    &["val", "valid", "validation", "eval", "evaluation", "test", "testing", "dev", "predict", "inference", "infer"];
/// Words of a batch that one update takes.
const WHOLE: &[&str] = &["global", "total", "effective", "whole", "update", "target"];
/// Words of accumulation, and those that may stand beside them.
const ACCUMULATION: &[&str] = &["accum", "accumulate", "accumulation", "accumulations"];
const GRADIENT: &[&str] = &["grad", "grads", "gradient", "gradients"];
const STEPS: &[&str] = &["steps", "iters", "batches", "iterations"];
const BESIDE_ACCUMULATION: &[&str] =
    &["step", "iter", "every", "factor", "freq", "count", "num", "n", "batch", "to", "optim", "size"];

/// Whether an argument is of a call that is about evaluation, by the names around it: `val_loader = DataLoader(...)`.
pub(crate) fn is_for_evaluation(setting: &Setting) -> bool {
    let names = setting.around.iter().map(|name| name.to_ascii_lowercase());
    let has = |some: &[&str]| names.clone().any(|name| name.split('_').any(|word| some.contains(&word)));
    (has(EVALUATION) || has(&["evaluate"])) && !has(&["train", "training"])
}

/// What a name is about, and how far down the list of its names it stands.
#[must_use]
pub fn key_of(name: &str) -> Option<(Key, usize)> {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let listed = NAMES.iter().find_map(|(key, names)| Some((*key, names.split(' ').position(|known| known == name)?)));
    listed.or_else(|| {
        let words: Vec<&str> = name.split('_').collect();
        let has = |some: &[&str]| words.iter().any(|word| some.contains(word));
        // A variable of a script may well be called `batch` or `accum`, and is something else.
        let is_told = match key_of_words(&words)? {
            Key::Accumulation => has(GRADIENT) || has(STEPS),
            Key::UpdateBatch => false,
            _ => has(BATCH_SIZE),
        };
        is_told.then(|| key_of_words(&words)).flatten().map(|key| (key, BY_WORDS))
    })
}

/// What an option of a command line is about, whose name may be shorter than that of a setting: `--batch`, `--accum`.
#[must_use]
pub fn key_of_option(name: &str) -> Option<Key> {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let name = name.trim_start_matches('_');
    key_of(name).map(|(key, _)| key).or_else(|| match name {
        "b" => Some(Key::Batch),
        "gas" => Some(Key::Accumulation),
        _ => key_of_words(&name.split('_').collect::<Vec<_>>()),
    })
}

/// What a name is about by its words, which are in lower case: `per_gpu_train_batch_size`, `grad_acc_steps`.
fn key_of_words(words: &[&str]) -> Option<Key> {
    let has = |some: &[&str]| words.iter().any(|word| some.contains(word));
    let only = |lists: &[&[&str]]| words.iter().all(|word| lists.iter().any(|list| list.contains(word)));
    // `acc` alone is accuracy.
    let is_short = has(&["acc", "ga"]) && (has(GRADIENT) || has(STEPS));
    if (has(ACCUMULATION) || is_short) && only(&[ACCUMULATION, &["acc", "ga"], GRADIENT, STEPS, BESIDE_ACCUMULATION]) {
        return Some(Key::Accumulation);
    }
    let is_batch = has(BATCH) || has(&["bs", "bsz", "batchsize"]);
    if !is_batch || !only(&[BATCH, BATCH_SIZE, BESIDE_BATCH, EVALUATION, WHOLE]) {
        return None;
    }
    Some(match (has(EVALUATION), has(WHOLE)) {
        (true, _) => Key::EvalBatch,
        (false, true) => Key::UpdateBatch,
        (false, false) => Key::Batch,
    })
}

/// What a setting is about by the keys that lead to it, and how far down the list of names it stands.
///
/// `bf16.enabled` is about bf16, `batch_size.value` about the batch, and `val.batch_size` about evaluation; of the same
/// name in several groups that of training counts.
#[must_use]
pub fn key_of_path(path: &[String]) -> Option<(Key, usize)> {
    let (last, groups) = path.split_last()?;
    let (name, groups) = match (&**last, groups.split_last()) {
        ("enabled" | "value", Some((parent, groups))) => (parent, groups),
        _ => (last, groups),
    };
    let (key, rank) = key_of(name)?;
    let in_group = |words: &[&str]| {
        groups.iter().any(|group| {
            let group = group.to_ascii_lowercase();
            group.split(['_', '-']).any(|part| words.contains(&part))
        })
    };
    let is_evaluation = in_group(&["val", "valid", "validation", "eval", "evaluation", "test", "predict", "inference"])
        && !in_group(&["train", "training"]);
    match (key, is_evaluation) {
        (Key::Batch, true) => Some((Key::EvalBatch, 3 * rank + 1)),
        (key, true) => Some((key, 3 * (rank + NAMES.len()))),
        (key, false) if groups.is_empty() || in_group(&["train", "training", "trainer"]) => Some((key, 3 * rank)),
        (key, false) => Some((key, 3 * rank + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_by_their_words() {
        let told = |name: &str| (key_of(name).map(|(key, _)| key), key_of_option(name));
        for name in ["per_device_batch_size", "train-batch-size", "BATCH_SIZE", "per_gpu_train_batch_size", "train_bs"]
        {
            assert_eq!(told(name), (Some(Key::Batch), Some(Key::Batch)), "{name}");
        }
        for name in [
            "grad_acc_steps",
            "accumulate_grad_batches",
            "gradient_accumulation",
            "accum_steps",
            "update_freq",
            "iter-size",
            "iters_to_accumulate",
        ] {
            assert_eq!(told(name), (Some(Key::Accumulation), Some(Key::Accumulation)), "{name}");
        }
        for name in ["eval_bs", "val_batch_size", "test-batch-size", "per_device_eval_batch_size", "batch_size_val"] {
            assert_eq!(told(name), (Some(Key::EvalBatch), Some(Key::EvalBatch)), "{name}");
        }
        // As a variable these are something else more often than not.
        for (name, key) in [
            ("batch", Key::Batch),
            ("-b", Key::Batch),
            ("accum", Key::Accumulation),
            ("accumulate", Key::Accumulation),
            ("accum_step", Key::Accumulation),
            ("--gas", Key::Accumulation),
            ("total_batch_size", Key::UpdateBatch),
        ] {
            assert_eq!(told(name), (None, Some(key)), "{name}");
        }
        for name in ["batch_norm", "batches", "num_batches", "acc", "val_acc", "eval_accumulation_steps", "step", "n"] {
            assert_eq!(told(name), (None, None), "{name}");
        }
    }
}
