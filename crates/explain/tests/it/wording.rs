//! Sentences of advice say what to type, in the words of the field, and what it costs.

use lowtide_explain::{Context, explain};

/// A card of 24 GiB that is this process's own and full.
const FULL: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 3 has a total capacity of \
    23.65 GiB of which 120.00 MiB is free. Including non-PyTorch memory, this process has 23.50 GiB memory in use. Of the \
    allocated memory 22.90 GiB is allocated by PyTorch, and 60.00 MiB is reserved by PyTorch but unallocated.\n";

/// The advice of a log, all of it in one text.
fn told(log: &str) -> String {
    let verdict = explain(log.as_bytes(), &Context::default()).into_iter().next();
    let verdict = verdict.unwrap_or_else(|| panic!("nothing in {log}"));
    verdict.advice.into_iter().map(|advice| advice.text + "\n").collect()
}

#[track_caller]
fn check(log: &str, sentences: &[&str]) {
    let told = told(log);
    for sentence in sentences {
        assert!(told.contains(sentence), "{sentence} in {told}");
    }
}

#[test]
fn levers_of_a_training() {
    let counted = "  Instantaneous batch size per device = 1\n  Number of trainable parameters = 6,738,415,616\nloss.backward()\n";
    check(
        &format!("optim=OptimizerNames.ADAMW_TORCH,\n{counted}{FULL}"),
        &[
            "Train LoRA adapters (peft) instead of all weights: saves 14 bytes per parameter, 87.86 GiB here; QLoRA (base weights in 4 \
             bits) saves another 1.5 bytes per parameter. Only the adapters are trained",
            "Shard weights, gradients and optimizer states over the cards",
        ],
    );
    let step = "Traceback (most recent call last):\n  File \"train.py\", line 7, in main\n    loss.backward()\n";
    check(
        &format!("step 900 loss 2.0\n{step}{FULL}"),
        &[
            "Halve the micro-batch and double gradient accumulation; the effective batch stays the same",
            "Do not keep losses or outputs with their graphs: total += loss.item(), outputs.detach().cpu(); compute metrics under \
             torch.no_grad()",
            "Offload optimizer states to CPU memory (DeepSpeed offload_optimizer, FSDP CPUOffloadPolicy)",
        ],
    );
    let pieces = FULL.replace("22.90 GiB", "19.90 GiB").replace("60.00 MiB is reserved", "3.06 GiB is reserved");
    check(
        &format!("step 1 loss 2.0\n{pieces}"),
        &["Reduce fragmentation: export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"],
    );
}

#[test]
fn what_keras_has_no_call_for_is_left_out() {
    let tensor = "ResourceExhaustedError: OOM when allocating tensor with shape[64,512,512,64] and type float on \
                  /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n";
    let told = told(&format!("Epoch 1 loss 2.3\n{tensor}"));
    assert!(!told.contains("ptimizer states") && !told.contains("moments"), "{told}");
}

#[test]
fn what_makes_room_says_what_it_costs() {
    let nccl = "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275, unhandled system error\nLast error:\n\
                Error while creating shared memory segment /dev/shm/nccl-Ab12Cd (size 9637888)\n";
    check(nccl, &["rm /dev/shm/nccl-*, only when no job runs on the machine"]);
    let saving = "step=500\nTraceback (most recent call last):\n  File \"train.py\", line 7, in save\n    torch.save(model.state_dict(), path)\n";
    check(&format!("{saving}{FULL}"), &["save_only_model=True", "training cannot be resumed from them"]);
    check(
        "Collecting torch\n  Downloading torch-2.5.0.whl (906.4 MB)\nKilled\n",
        &["Install without pip's cache: pip install --no-cache-dir", "then the run gets slow instead of being killed"],
    );
}
