//! What a device has no use for is not advised: another memory where there is one, weights where one tensor is too large.

use lowtide_explain::{Context, Lever, Verdict, explain};

fn verdict(log: &str) -> Verdict {
    explain(log.as_bytes(), &Context::default()).into_iter().next().unwrap_or_else(|| panic!("nothing in {log}"))
}

fn told(verdict: &Verdict) -> String {
    verdict.advice.iter().map(|advice| format!("{}\n", advice.text)).collect()
}

#[test]
fn a_mac_has_one_memory() {
    let mps = "RuntimeError: MPS backend out of memory (MPS allocated: 9.05 GB, other allocations: 8.83 GB, max allowed: 18.13 GB). Tried \
               to allocate 512.00 MB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory \
               allocations (may cause system failure).\n";
    let generate = "Traceback (most recent call last):\n  File \"/w/chat.py\", line 7, in main\n    out = model.generate(**inputs)\n";
    let pictures =
        "Traceback (most recent call last):\n  File \"/w/app.py\", line 7, in main\n    image = pipe(prompt)\n";
    let gpt = "gpt2 train.py --full\nepoch 1 loss 2.3\n  Number of trainable parameters = 6,738,415,616\n";
    for around in ["", "epoch 1 loss 2.3\n", gpt, "loading weights\nmodel.to('mps')\n", generate, pictures] {
        let verdict = verdict(&format!("{around}{mps}"));
        let told = told(&verdict);
        for words in
            ["on the host", "device_map", "cpu_offload", "machine's memory", "CPU memory", "the CPU", "torch.cuda"]
        {
            assert!(!told.contains(words), "{words} in {told}");
        }
        let places = verdict.advice.iter().map(|advice| advice.lever).collect::<Vec<_>>();
        assert_eq!(places.iter().position(|lever| *lever == Lever::RaiseLimit), Some(1), "{around}{told}");
        assert!(verdict.advice[1].text.contains("the whole Mac may freeze"), "{told}");
    }
}

#[test]
fn a_tensor_that_a_line_makes_is_no_model() {
    let log = "Traceback (most recent call last):\n  File \"/w/t.py\", line 3, in <module>\n    x = torch.zeros(100000, 100000).cuda()\n\
               torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 37.25 GiB. GPU 0 has a total capacity of 23.65 GiB of which \
               23.20 GiB is free. Including non-PyTorch memory, this process has 460.00 MiB memory in use. Of the allocated memory 0 \
               bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.\n";
    let verdict = verdict(log);
    let told = told(&verdict);
    assert!(verdict.advice[0].text.starts_with("A smaller tensor"), "{told}");
    for words in ["bitsandbytes", "device_map", "Weights", "model"] {
        assert!(!told.contains(words), "{words} in {told}");
    }
}

#[test]
fn attention_is_not_sliced_beside_a_fused_kernel() {
    let full = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 23.65 GiB of \
                which 120.00 MiB is free. Including non-PyTorch memory, this process has 23.50 GiB memory in use. Of the allocated \
                memory 22.90 GiB is allocated by PyTorch, and 60.00 MiB is reserved by PyTorch but unallocated.\n";
    let decoder = "Traceback (most recent call last):\n  File \"/w/a.py\", line 2, in <module>\n    image = pipe(prompt)\n  File \
                   \"/w/diffusers/models/autoencoder_kl.py\", line 5, in decode\n    dec = self.decoder(z)\n";
    let told = |code: &str| told(&verdict(&format!("{code}{decoder}{full}")));
    assert!(told("").contains("enable_attention_slicing()"));
    let fused = told("pipe.enable_xformers_memory_efficient_attention()\n");
    assert!(fused.contains("enable_tiling()") && !fused.contains("enable_attention_slicing()"), "{fused}");
}
