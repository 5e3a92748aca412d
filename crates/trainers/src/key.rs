//! What settings are about, whoever named them.

/// What a setting is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the table below says it by their names")]
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
         gradient_accumulation accumulation_steps accum_steps grad_accum accum_iter",
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
];

/// What a name is about, and how far down the list of its names it stands.
#[must_use]
pub fn key_of(name: &str) -> Option<(Key, usize)> {
    let name = name.to_ascii_lowercase().replace('-', "_");
    NAMES.iter().find_map(|(key, names)| Some((*key, names.split(' ').position(|known| known == name)?)))
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
