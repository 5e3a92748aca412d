//! Servers of language models: what their weights take, and what helps where these do not fit.

use lowtide_explain::{Context, Lever, Verdict, explain};

/// A card of 24 GiB that is this process's own and full.
const FULL: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of \
    23.65 GiB of which 120.00 MiB is free. Including non-PyTorch memory, this process has 23.50 GiB memory in use. Of the \
    allocated memory 22.90 GiB is allocated by PyTorch, and 60.00 MiB is reserved by PyTorch but unallocated.\n";

fn verdict(log: &str) -> Verdict {
    explain(log.as_bytes(), &Context::default()).into_iter().next().unwrap_or_else(|| panic!("nothing in {log}"))
}

/// The advice of a log, all of it in one text.
fn told(log: &str) -> String {
    verdict(log).advice.into_iter().map(|advice| advice.text + "\n").collect()
}

#[test]
fn weights_are_in_the_bits_that_their_name_says() {
    let serve = |model: &str| told(&format!("$ vllm serve {model}\n(EngineCore_0 pid=2) {FULL}"));
    for model in [
        "nvidia/Llama-3.1-70B-Instruct-FP8 --quantization modelopt",
        "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8 --quantization gptq",
    ] {
        let told = serve(model);
        assert!(told.contains("in 4 bits instead of 8") && !told.contains("already"), "{told}");
    }
    let unknown = serve("some/Model-70B --quantization modelopt");
    assert!(!unknown.contains("already") && !unknown.contains("--quantization awq"), "{unknown}");
    let four = serve("some/Model-70B-Instruct-AWQ --quantization awq_marlin");
    assert!(four.contains("its weights are in 4 bits already"), "{four}");
}

#[test]
fn files_of_llama_cpp_are_in_the_bits_of_their_type() {
    let refused = "model requires more system memory (19.5 GiB) than is available (15.4 GiB)\n";
    let served = |file: &str| told(&format!("llama-server -m {file}\nollama: Error: {refused}"));
    for (file, bits) in [("a-7B.Q4_K_M.gguf", 4), ("a-7B-Q2_K.gguf", 2), ("a-7B-IQ2_XS.gguf", 2), ("a-7B.q4_0.gguf", 4)]
    {
        let told = served(file);
        assert!(told.contains(&format!("its weights are in {bits} bits already")), "{file}: {told}");
        assert!(!told.contains("4-bit file"), "{file}: {told}");
    }
    for (file, bits) in [("a-7B.Q8_0.gguf", 8), ("a-7B.Q6_K.gguf", 6), ("a-7B.q5_k_m.gguf", 5)] {
        assert!(served(file).contains(&format!("in 4 bits instead of {bits}")), "{file}");
    }
    assert!(served("a-7B.gguf").contains("a 4-bit file of the same model"));
}

#[test]
fn no_share_and_no_cache_make_room_for_weights() {
    let stack = "  File \"/env/vllm/model_executor/model_loader/loader.py\", line 400, in load_model\n    \
                 model = _initialize_model(vllm_config)\n";
    let log =
        format!("$ vllm serve some/model-14B\n(EngineCore_0 pid=2) Traceback (most recent call last):\n{stack}{FULL}");
    let verdict = verdict(&log);
    let levers: Vec<Lever> = verdict.advice.iter().map(|advice| advice.lever).collect();
    assert_eq!(levers, [Lever::Quantize, Lever::MoreCards], "{:?}", verdict.advice);
}
