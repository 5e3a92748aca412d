//! What a piece of advice changes is said of it: the effective batch, the model, the numbers.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use lowtide_explain::{Advice, Config, Context, Lever, explain};

/// A card of 24 GiB that is this process's own and full.
const FULL: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of \
    23.65 GiB of which 120.00 MiB is free. Including non-PyTorch memory, this process has 23.50 GiB memory in use. Of the \
    allocated memory 22.90 GiB is allocated by PyTorch, and 60.00 MiB is reserved by PyTorch but unallocated.\n";

fn advice(log: &str) -> Vec<Advice> {
    explain(log.as_bytes(), &Context::default()).into_iter().next().unwrap().advice
}

/// The first piece that begins with a lever.
#[track_caller]
fn piece(log: &str, lever: Lever) -> Advice {
    let advice = advice(log);
    let found = advice.iter().find(|advice| advice.lever == lever).cloned();
    found.unwrap_or_else(|| panic!("{lever:?} in {advice:#?}"))
}

#[test]
fn smaller_trees_are_another_model() {
    let log = "Exception in gpu_hist: device_helpers.cuh:431: Memory allocation error on worker 0: std::bad_alloc: \
               cudaErrorMemoryAllocation: out of memory\n- Free memory: 8126464\n- Requested memory: 33554432\n";
    assert!(!piece(log, Lever::SmallerModel).same_model);
}

#[test]
fn inputs_that_are_cut_change_the_numbers() {
    let vectors = "embeddings = model.encode(texts, convert_to_tensor=True)\nRuntimeError: CUDA out of memory.\n";
    let prompts = format!("output = model.generate(ids, max_new_tokens=512)\n{FULL}");
    let sound = "whisperx a.wav --batch_size 20\nRuntimeError: CUDA failed with error out of memory\n";
    for log in [vectors, &prompts] {
        assert!(!piece(log, Lever::FewerRequests).same_numbers, "{log}");
    }
    let two = advice(sound);
    let fewer = two.iter().find(|advice| advice.text.contains("beam_size 1")).unwrap();
    assert!(!fewer.same_numbers, "{fewer:?}");
}

#[test]
fn a_library_that_failed_in_a_step_is_given_room_in_two_ways() {
    let stack = "Traceback (most recent call last):\n  File \"/w/train.py\", line 7, in main\n    loss.backward()\n";
    for status in ["CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "CUDNN_STATUS_ALLOC_FAILED"] {
        let advice = advice(&format!("Epoch 1: loss 2.31\n{stack}RuntimeError: CUDA error: {status}\n"));
        assert_eq!([advice[0].lever, advice[1].lever], [Lever::LeaveRoom, Lever::MicroBatch], "{status}");
        assert!(!advice[0].text.contains("batch"), "{}", advice[0].text);
    }
    // What nobody is known to train has samples, too, and no other model.
    let unknown = advice("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n");
    assert!(unknown.iter().all(|advice| advice.lever != Lever::LeaveRoom || !advice.text.contains("model")));
}

/// A step of a model that is trained.
const STEP: &str =
    "Traceback (most recent call last):\n  File \"train.py\", line 300, in <module>\n    loss.backward()\n";

fn with(log: &str, name: &str, text: &str) -> lowtide_explain::Verdict {
    let configs = vec![Config::parse(name, text).unwrap()];
    explain(log.as_bytes(), &Context { configs, ..Context::default() }).remove(0)
}

#[test]
fn shorter_sequences_that_are_set_come_with_their_number_and_patch() {
    let settings = "batch_size = 1\nblock_size = 1024\ngradient_accumulation_steps = 40\nn_layer = 12\n";
    let verdict = with(&format!("iter 0: loss 10.9\n{STEP}{FULL}"), "train.py", settings);
    let shorter: Vec<&Advice> = verdict.advice.iter().filter(|advice| advice.lever == Lever::ShorterSequence).collect();
    let [shorter] = &*shorter else { panic!("{:?}", verdict.advice) };
    assert!(shorter.text.starts_with("Shorter sequences: 512 instead of 1024"), "{}", shorter.text);
    assert!(shorter.patch.as_ref().unwrap().diff.contains("+block_size = 512"), "{:?}", shorter.patch);
    // An update of fewer tokens is for whoever trains to choose.
    assert!(shorter.text.contains("fewer tokens in each update") && verdict.patch.is_none(), "{verdict:?}");
}

#[test]
fn one_lever_keeps_the_same_wherever_it_comes_from() {
    let longest =
        piece(&format!("Instantaneous batch size per device = 1\nbert loss 2.3\n{FULL}"), Lever::ShorterSequence);
    assert!(longest.text.starts_with("Limit the longest"), "{}", longest.text);
    let set = with(&format!("step 1 loss 2.0\n{STEP}{FULL}"), "train.py", "batch_size = 4\nblock_size = 1024\n");
    let set = set.advice.iter().find(|advice| advice.lever == Lever::ShorterSequence).unwrap();
    for advice in [&longest, set] {
        let keeps = (advice.same_effective_batch, advice.same_model, advice.same_numbers);
        assert_eq!(keeps, (true, true, false), "{}", advice.text);
    }
}

#[test]
fn a_smaller_batch_changes_what_batch_norm_sees() {
    let norm =
        "  File \"/env/site-packages/torch/nn/functional.py\", line 9, in batch_norm\n    return torch.batch_norm(\n";
    let plain = piece(&format!("Epoch 1 loss 2.0\n{STEP}{FULL}"), Lever::MicroBatch);
    assert!(plain.same_numbers && !plain.text.contains("BatchNorm"), "{plain:?}");
    let stack = piece(&format!("Epoch 1 loss 2.0\n{STEP}{norm}{FULL}"), Lever::MicroBatch);
    let log = piece(&format!("(bn1): BatchNorm2d(64, eps=1e-05)\nEpoch 1 loss 2.0\n{STEP}{FULL}"), Lever::MicroBatch);
    for advice in [stack, log] {
        assert!(!advice.same_numbers && advice.text.contains("GroupNorm"), "{advice:?}");
    }
}
