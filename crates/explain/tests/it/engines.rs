//! Engines and languages beside PyTorch: what helps there comes first, in their own words.

use lowtide_explain::{Context, Lever, Verdict, explain};

fn verdict(log: &str) -> Verdict {
    explain(log.as_bytes(), &Context::default()).into_iter().next().unwrap_or_else(|| panic!("nothing in {log}"))
}

/// The advice of a log, all of it in one text.
fn told(log: &str) -> String {
    verdict(log).advice.into_iter().map(|advice| advice.text + "\n").collect()
}

#[test]
fn weights_of_llama_cpp_that_are_larger_than_the_card_are_no_matrix_of_scores() {
    let log = "  Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes, VRAM: 24151 MiB\n\
               ggml_backend_cuda_buffer_type_alloc_buffer: allocating 39979.48 MiB on device 0: cudaMalloc failed: out of memory\n";
    let verdict = verdict(log);
    assert_eq!(verdict.advice[0].lever, Lever::FewerLayers, "{:?}", verdict.advice);
    assert!(verdict.advice.iter().all(|advice| advice.lever != Lever::AttentionKernel));
}

#[test]
fn engines_without_pytorch_recompute_and_read_by_their_own_means() {
    let r = "step 3 loss 2\nError: cannot allocate vector of size 61.9 Gb\n";
    let rust = "loading weights\nmemory allocation of 68719476736 bytes failed\n";
    let onnx = "Non-zero status code returned while running Attention node. Name:'Attention_0' Status Message: bfc_arena.cc:368 void* \
                onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory for requested buffer of size 15728896\n";
    for log in [r, rust, &format!("It works once. On the second run it says:\n{onnx}")] {
        let told = told(log);
        assert!(!told.contains("torch"), "{told}");
    }
    // A part of a program whose other parts are PyTorch's.
    assert!(told(&format!("import torch\n{rust}")).contains("torch.load"));
}

#[test]
fn a_pool_of_jax_that_ran_full_in_a_step_is_made_larger() {
    let pool = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2684354560 bytes.\n";
    let late = told(&format!("step 39 loss 2.11\nstep 40 loss 2.10\n{pool}"));
    assert!(late.contains("XLA_PYTHON_CLIENT_MEM_FRACTION=0.95"), "{late}");
    assert!(!late.contains("Take less") && !late.contains("PREALLOCATE=false"), "{late}");
    // A library beside the pool needs room, and so may what was not there yet at the first step.
    let library =
        "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED\n";
    for log in [format!("step 40 loss 2.10\nimport jax.numpy as jnp\n{library}"), pool.to_owned()] {
        let told = told(&log);
        assert!(told.contains("less from the start") && !told.contains("=0.95"), "{told}");
    }
}

#[test]
fn who_predicts_with_keras_has_no_effective_batch() {
    let log = "I only run inference with model.predict on one picture.\nResourceExhaustedError: OOM when allocating tensor with \
               shape[64,512,512,64] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n";
    let told = told(log);
    for training in ["effective batch", "backward", "optimizer", "moments"] {
        assert!(!told.contains(training), "{training} in {told}");
    }
    assert!(told.contains("set_memory_growth"), "{told}");
}

#[test]
fn a_heap_of_a_language_is_no_matter_of_loaders() {
    for log in [
        "vite v5.0.0 building for production...\nFATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory\n",
        "Epoch 1 loss 2.3\nException in thread \"main\" java.lang.OutOfMemoryError: Java heap space\n",
        "Error: vector memory exhausted (limit reached?)\n",
    ] {
        let verdict = verdict(log);
        assert_eq!(verdict.advice[0].lever, Lever::RaiseLimit);
        assert!(verdict.advice[0].also.contains(&Lever::MoreMemory));
        let told = told(log);
        for word in ["np.memmap", "shuffle", "workers (", "prefetch", "pinned", "batch"] {
            assert!(!told.contains(word), "{word} in {told}");
        }
    }
}

#[test]
fn a_program_without_a_loader_has_no_data_workers() {
    let log = "Traceback (most recent call last):\n  File \"/w/sim.py\", line 7, in <module>\n    a = np.zeros(shape)\n\
               numpy.core._exceptions._ArrayMemoryError: Unable to allocate 54.5 GiB for an array with shape (1000000, 7320) and data \
               type float64\n";
    let plain = told(log);
    assert!(!plain.contains("workers") && !plain.contains("pinned") && !plain.contains("prefetch"), "{plain}");
    let loader = told(&format!("DataLoader(data, num_workers=8)\nEpoch 1 loss 2.3\n{log}"));
    assert!(loader.contains("2 instead of 8"), "{loader}");
}

#[test]
fn java_is_told_the_flag_of_its_version_and_what_no_heap_helps() {
    let classes = |part: &str| told(&format!("Exception in thread \"main\" java.lang.OutOfMemoryError: {part}\n"));
    let (old, new) = (classes("PermGen space"), classes("Metaspace"));
    assert!(old.contains("-XX:MaxPermSize") && !old.contains("Metaspace"), "{old}");
    assert!(new.contains("-XX:MaxMetaspaceSize") && !new.contains("MaxPermSize"), "{new}");
    let array =
        verdict("java.lang.OutOfMemoryError: Requested array size exceeds VM limit\n\tat java.util.Arrays.copyOf\n");
    assert_eq!(array.advice.len(), 1, "{:?}", array.advice);
    assert_eq!(array.advice[0].lever, Lever::LoadInPieces);
    assert!(!array.advice[0].text.contains("16g"), "{}", array.advice[0].text);
    assert!(array.contributing.is_empty(), "{:?}", array.contributing);
}
