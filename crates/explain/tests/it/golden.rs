//! Three stories that people told in full: a language model evaluated before its first step, whole frames, a small
//! card.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use lowtide_core::Bytes;
use lowtide_explain::{Activity, Cause, Config, Context, Lever, Verdict, explain};

fn one(log: &str, configs: &[(&str, &str)]) -> Verdict {
    let configs = configs.iter().map(|(name, text)| Config::parse(name, text).unwrap()).collect();
    let mut verdicts = explain(log.as_bytes(), &Context { configs, ..Context::default() });
    assert_eq!(verdicts.len(), 1);
    verdicts.remove(0)
}

fn place(verdict: &Verdict, lever: Lever) -> usize {
    verdict.advice.iter().position(|advice| advice.lever == lever || advice.also.contains(&lever)).unwrap()
}

const NANOGPT: &str = include_str!("../golden/nanogpt.log");
const OPENWEBTEXT: &str = include_str!("../golden/train_openwebtext.py");

#[test]
fn logits_of_a_batch_of_64() {
    let verdict = one(NANOGPT, &[("config/train_openwebtext.py", OPENWEBTEXT)]);
    assert_eq!((verdict.cause, &*verdict.contributing), (Cause::Need, &[Cause::OtherProcess][..]));
    assert!(verdict.certainty >= 0.9);
    assert_eq!((verdict.phase, verdict.before_first_step), (Some(Activity::Evaluation), true));
    let others = verdict.held_by_others_bytes.unwrap();
    assert_eq!(others.to_string(), "1.97 GiB");
    let culprit = verdict.culprit.as_ref().unwrap();
    assert_eq!(
        (&*culprit.name, &*culprit.shape, culprit.dtype.as_deref()),
        ("logits", &[64, 1024, 50304][..], Some("bf16"))
    );
    assert_eq!(culprit.bytes, Some(Bytes(64 * 1024 * 50304 * 2)));
    let first = &verdict.advice[0];
    assert_eq!(first.lever, Lever::MicroBatch);
    assert!(first.same_effective_batch && first.same_model && first.same_numbers);
    assert!(first.expected_peak_bytes.unwrap() < Bytes::from_gib(9));
    let patched = verdict.patch.as_ref().unwrap().apply(OPENWEBTEXT).unwrap();
    let expected = OPENWEBTEXT
        .replace("batch_size = 64", "batch_size = 4")
        .replace("gradient_accumulation_steps = 1", "gradient_accumulation_steps = 16");
    assert_eq!(patched, expected);
    let remarks: Vec<&str> = verdict.remarks.iter().map(|remark| remark.kind).collect();
    assert_eq!(remarks, ["deprecated_grad_scaler", "too_few_multiprocessors"]);
    assert!(place(&verdict, Lever::EvaluationLess) < place(&verdict, Lever::SmallerModel));
}

#[test]
fn logits_are_found_from_the_settings_alone() {
    // Without the compiled code in the stack, shape and type follow from the size.
    let log: String =
        NANOGPT.lines().filter(|line| !line.contains("empty_strided")).map(|line| format!("{line}\n")).collect();
    let culprit = one(&log, &[("train.py", OPENWEBTEXT)]).culprit.unwrap();
    assert_eq!((&*culprit.name, &*culprit.shape), ("logits", &[64, 1024, 50304][..]));
}

#[test]
fn logits_are_found_without_any_settings() {
    // The stack is nanoGPT's, whose vocabulary and length are known; the batch follows from the size.
    let start = NANOGPT.find("Traceback").unwrap();
    let log: String = NANOGPT[start..]
        .lines()
        .filter(|line| !line.contains("empty_strided"))
        .map(|line| format!("{line}\n"))
        .collect();
    let culprit = one(&log, &[]).culprit.unwrap();
    assert_eq!((&*culprit.name, &*culprit.shape), ("logits", &[64, 1024, 50304][..]));
}

#[test]
fn where_nobody_else_is_a_larger_micro_batch_is_enough() {
    let log = NANOGPT.replace("7.04 GiB memory in use", "9.01 GiB memory in use");
    let verdict = one(&log.replace("6.78 GiB is", "8.75 GiB is"), &[("train.py", OPENWEBTEXT)]);
    assert_eq!(verdict.patch.unwrap().edits.iter().map(|edit| &*edit.value).collect::<Vec<_>>(), ["8", "8"]);
}

#[test]
fn accumulation_that_the_file_leaves_out_is_read_from_the_log() {
    let config = OPENWEBTEXT.replace("gradient_accumulation_steps = 1\n", "");
    let log = NANOGPT.replace("gradient_accumulation_steps = 1\n", "").replace("will be: 65,536", "will be: 2,621,440");
    let verdict = one(&log, &[("train.py", &config)]);
    let patched = verdict.patch.unwrap().apply(&config).unwrap();
    assert!(patched.contains("batch_size = 4\ngradient_accumulation_steps = 640\n"), "{patched}");
}

#[test]
fn tokens_that_the_log_tells_must_agree() {
    let log = NANOGPT.replace("gradient_accumulation_steps = 1\n", "").replace("will be: 65,536", "will be: 131,072");
    let verdict = one(&log, &[("train.py", OPENWEBTEXT)]);
    assert_eq!(verdict.advice[place(&verdict, Lever::MicroBatch)].patch, None);
    let says = |words: &str| verdict.notes.iter().any(|text| text.contains(words));
    assert!(says("no patch for the batch: the log tells of 131072 tokens"), "{:?}", verdict.notes);
    let advice = &verdict.advice[place(&verdict, Lever::MicroBatch)];
    assert!(advice.text.starts_with("Halve the micro-batch and double gradient accumulation"), "{}", advice.text);
}

#[test]
fn a_fixed_update_in_numbers() {
    let log = include_str!("../golden/unet.log");
    let verdict = one(log, &[("run.yaml", "train:\n  global_batch_size: 64\n  micro_batch_size: 16\n")]);
    let advice = &verdict.advice[place(&verdict, Lever::MicroBatch)];
    let micro: u64 = verdict.patch.unwrap().edits[0].value.parse().unwrap();
    let pieces = format!("global_batch_size stays 64: {} such micro-batches", 64 / micro);
    assert!(advice.text.contains(&pieces), "{}", advice.text);
}

#[test]
fn every_framework_in_its_own_words() {
    let tensorflow = "W tensorflow/core/common_runtime/bfc_allocator.cc:497] Allocator (GPU_0_bfc) ran out of memory \
        trying to allocate 2.00GiB (rounded to 2147483648)requested by op gradients\n\
        tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with \
        shape[64,1024,8192] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n";
    let jax = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate \
        17179869184 bytes.\n";
    for (log, words) in [(tensorflow, "tf.recompute_grad"), (jax, "jax.checkpoint")] {
        let told: String = one(log, &[]).advice.iter().map(|advice| format!("{}\n", advice.text)).collect();
        assert!(told.contains(words), "{told}");
        assert!(!["torch", "GradScaler", "save_on_cpu", "autocast"].iter().any(|word| told.contains(word)), "{told}");
    }
    let culprit = one(tensorflow, &[]).culprit.unwrap();
    assert_eq!((&*culprit.shape, culprit.dtype.as_deref()), (&[64, 1024, 8192][..], Some("fp32")));
    assert_eq!(culprit.bytes, Some(Bytes::from_gib(2)));
}

#[test]
fn a_limit_of_the_process_is_one_of_the_reasons() {
    let verdict = one("step 1\nMemoryError\n", &[]);
    assert!(verdict.evidence[0].contains("ulimit -v"), "{:?}", verdict.evidence);
    assert!(place(&verdict, Lever::RaiseLimit) > 0 && verdict.contributing.is_empty());
    let verdict = one("+ ulimit -v 4000000\nstep 1\nMemoryError\n", &[]);
    assert_eq!((&*verdict.contributing, verdict.limit_bytes), (&[Cause::Limit][..], Some(Bytes(4_096_000_000))));
    assert_eq!(verdict.advice[0].lever, Lever::RaiseLimit);
}

#[test]
fn pieces_are_mended_in_the_script_first() {
    let log = "step 7 loss 2.1\nCUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 23.70 GiB of \
        which 1.10 GiB is free. Of the allocated memory 14.90 GiB is allocated by PyTorch, and 6.90 GiB is reserved by \
        PyTorch but unallocated.\n";
    let script = "python run.py --batch_size 32 \\\n  --gradient_accumulation_steps 2\n";
    let patch = one(log, &[("run.sh", script)]).patch.unwrap();
    let line = "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n";
    assert_eq!(patch.apply(script).unwrap(), format!("{line}{script}"));
}

#[test]
fn no_patch_for_the_configuration_of_another_run() {
    let config = OPENWEBTEXT.replace("batch_size = 64", "batch_size = 4");
    let verdict = one(NANOGPT, &[("train.py", &config)]);
    assert_eq!(verdict.patch, None);
    assert!(verdict.notes.iter().any(|text| text.contains("another run")), "{:?}", verdict.notes);
}

#[test]
fn evaluation_on_whole_frames() {
    let frames = include_str!("../golden/frames.log");
    let config = include_str!("../golden/frames.yaml");
    for configs in [&[("vrt.yaml", config)][..], &[]] {
        let verdict = one(frames, configs);
        assert_eq!((verdict.cause, &*verdict.contributing), (Cause::Need, &[Cause::Fragmentation][..]));
        assert_eq!((verdict.phase, verdict.step), (Some(Activity::Evaluation), Some(1000)));
        assert_eq!(verdict.time.as_deref(), Some("2025-10-24 19:41:00"));
        assert_eq!(verdict.culprit.as_ref().unwrap().name, "whole frames");
        assert_eq!(verdict.advice[0].lever, Lever::EvaluationCrop);
    }
    let verdict = one(frames, &[("vrt.yaml", config)]);
    let crop = &verdict.advice[0];
    assert_eq!(crop.expected_peak_bytes.unwrap().to_string(), "37.29 GiB");
    let patched = verdict.patch.unwrap().apply(config).unwrap();
    assert_eq!(patched, config.replace("VAL_CROP_SIZE: null  # whole frames", "VAL_CROP_SIZE: 256  # whole frames"));
}

#[test]
fn a_small_card_in_training() {
    let log = include_str!("../golden/unet.log");
    let config = include_str!("../golden/unet.yaml");
    for configs in [&[("low.yaml", config)][..], &[]] {
        let verdict = one(log, configs);
        assert_eq!((verdict.cause, &*verdict.contributing), (Cause::Need, &[][..]));
        assert_eq!(verdict.phase, Some(Activity::Training));
        let shrink = place(&verdict, Lever::SmallerModel);
        assert!(place(&verdict, Lever::MicroBatch) < shrink && place(&verdict, Lever::Recompute) < shrink);
        assert!(place(&verdict, Lever::Precision) < shrink);
    }
    let verdict = one(log, &[("low.yaml", config)]);
    let patched = verdict.patch.unwrap().apply(config).unwrap();
    assert!(patched.contains("batch_size: 2\n  gradient_accumulation_steps: 2"), "{patched}");
    // The message alone, as people paste it.
    let bare = "torch.OutOfMemoryError: CUDA out of memory. \nTried to allocate 20.00 MiB. GPU 0 has a total capacity \
        of 3.68 GiB \n\
                of which 11.75 MiB is free.\n";
    assert_eq!(one(bare, &[]).cause, Cause::Need);
}

#[test]
fn the_patch_shown_keeps_the_numbers_where_one_does() {
    let diff = |config: &str| {
        let verdict = one(include_str!("../golden/unet.log"), &[("run.yaml", config)]);
        let patch = |lever| verdict.advice.iter().find(|advice| advice.lever == lever)?.patch.clone();
        let edits = |patch: Option<lowtide_explain::Patch>| -> Vec<String> {
            patch.into_iter().flat_map(|patch| patch.edits).map(|edit| format!("{}={}", edit.key, edit.value)).collect()
        };
        (edits(verdict.patch.clone()), edits(patch(Lever::Precision)))
    };
    let bf16 = vec!["bf16=true".to_owned()];
    let (shown, precision) = diff("batch_size: 1\nbf16: false\nuse_checkpointing: false\n");
    assert_eq!((shown, precision), (vec!["use_checkpointing=true".to_owned()], bf16.clone()));
    assert_eq!(diff("batch_size: 1\nbf16: false\n"), (bf16.clone(), bf16));
}

#[test]
fn a_model_of_hugging_face_in_a_table() {
    let model = r#"{"model_type": "gpt2", "n_embd": 1024, "n_layer": 24, "n_head": 16,
        "vocab_size": 50257, "n_positions": 1024}"#;
    let script = "accelerate launch run_clm.py --model_name_or_path gpt2-medium --per_device_train_batch_size 16 \\\n  \
                  --block_size 1024 --bf16 --gradient_accumulation_steps 2\n";
    let log = "step 12 loss 3.3\nTraceback (most recent call last):\n  File \"run_clm.py\", line 1, in main\n    \
        trainer.train()\n  \
               File \"trainer.py\", line 2, in training_step\n    loss = self.compute_loss(model, inputs)\n\
               torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.07 GiB. GPU 0 has a total capacity of \
               23.65 GiB of which 1.20 GiB is free. Including non-PyTorch memory, this process has 22.44 GiB memory in use. Of the \
               allocated memory 21.60 GiB is allocated by PyTorch, and 411.00 MiB is reserved by PyTorch but unallocated.\n";
    let verdict = one(log, &[("config.json", model), ("train.sh", script)]);
    assert_eq!(verdict.cause, Cause::Need);
    let names: Vec<&str> = verdict.model.as_ref().unwrap().rows.iter().map(|row| row.name).collect();
    assert_eq!(names, ["parameters", "gradients", "optimizer", "activations", "logits"]);
    // 354.8M parameters, 4 bytes each.
    assert_eq!(verdict.model.as_ref().unwrap().rows[0].bytes.to_string(), "1.32 GiB");
    let culprit = verdict.culprit.as_ref().unwrap();
    assert_eq!((&*culprit.name, culprit.dtype.as_deref()), ("logits", Some("fp32")));
    let patched = verdict.patch.unwrap().apply(script).unwrap();
    let expected = script.replace("batch_size 16", "batch_size 8").replace("steps 2", "steps 4");
    assert_eq!(patched, expected);
}

const CHAR: &str = include_str!("../golden/char_cpu.log");
const TRAIN_CHAR: &str = include_str!("../golden/train_char.py");

#[test]
fn a_character_model_on_a_processor_is_believed_in_the_log() {
    for configs in [&[("config/train_char.py", TRAIN_CHAR)][..], &[]] {
        let verdict = one(CHAR, configs);
        assert_eq!((verdict.cause, verdict.phase), (Cause::HostMemory, Some(Activity::Training)));
        let rows = &verdict.model.as_ref().unwrap().rows;
        assert_eq!((rows[0].name, &*rows[0].how), ("parameters", "0.80M in fp32"));
        assert!(rows[4].how.contains("x 96 x"), "{}", rows[4].how);
        // A step of the whole batch, as the arithmetic of 0.8 million parameters has it; not the 154 GiB of a vocabulary of
        // 50,304.
        let total = verdict.model.as_ref().unwrap().total_bytes.as_gib();
        assert!((45.0..65.0).contains(&total), "{total}");
        let culprit = verdict.culprit.as_ref().unwrap();
        assert_eq!(
            (&*culprit.name, culprit.dtype.as_deref()),
            ("activations inside the feed-forward part", Some("fp32"))
        );
        assert_eq!(culprit.shape, [16384, 64, 512]);
        // `gelu` computes: reading data in pieces is no matter of it.
        let levers: Vec<Lever> = verdict.advice.iter().map(|advice| advice.lever).collect();
        assert_eq!(levers[0], Lever::MicroBatch);
        assert!(!levers.contains(&Lever::LoadInPieces), "{levers:?}");
    }
    let verdict = one(CHAR, &[("config/train_char.py", TRAIN_CHAR)]);
    // It fits into what was given before the error: the fixed part, and another tensor like the one refused.
    let patched = verdict.patch.as_ref().unwrap().apply(TRAIN_CHAR).unwrap();
    assert!(
        patched.contains("batch_size = 512\n") && patched.contains("gradient_accumulation_steps = 32\n"),
        "{patched}"
    );
    assert!(verdict.advice[0].expected_peak_bytes.unwrap() < Bytes::from_gib(2));
    assert!(verdict.notes.iter().any(|note| note.contains("does not say how much memory")), "{:?}", verdict.notes);
}

#[test]
fn defaults_that_the_log_refutes_are_none() {
    // Without the settings: 0.8 million parameters are no model of 12 layers and a width of 768.
    let log: String = CHAR
        .lines()
        .filter(|line| !line.contains(" = ") || line.contains("vocab") || line.starts_with(' '))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(one(&log, &[]).model, None);
}

#[test]
fn the_json_has_what_it_says() {
    let verdict = one(NANOGPT, &[]);
    let json = serde_json::to_value(&verdict).unwrap();
    assert_eq!(json["place"], "device");
    assert_eq!(json["engine"], "pytorch");
    assert_eq!(json["cause"], "need");
    assert_eq!(json["contributing"], serde_json::json!(["other_process"]));
    assert_eq!(json["tried_bytes"], 6_592_774_799_u64);
    assert_eq!(json["patch"], serde_json::Value::Null);
    for key in [
        "certainty",
        "capacity_bytes",
        "free_bytes",
        "allocated_bytes",
        "reserved_unallocated_bytes",
        "culprit",
        "advice",
    ] {
        assert!(!json[key].is_null(), "{key}");
    }
}
