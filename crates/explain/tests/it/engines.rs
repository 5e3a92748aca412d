//! Engines and languages beside PyTorch: what helps there comes first, in their own words.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

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
