//! What a run has turned on already is not advised again, and what is advised instead fits what the log shows.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use lowtide_explain::{Advice, Cause, Config, Context, Lever, Verdict, explain};

/// A card of 39 GiB that is full, with twice the request idle.
const IN_PIECES: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.12 GiB. GPU 0 has a total capacity of \
    39.39 GiB of which 512.44 MiB is free. Including non-PyTorch memory, this process has 38.88 GiB memory in use. Of the \
    allocated memory 36.01 GiB is allocated by PyTorch, and 2.30 GiB is reserved by PyTorch but unallocated. If reserved but \
    unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n";

/// A card of 24 GiB that is this process's own and full.
const FULL: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of \
    23.65 GiB of which 120.00 MiB is free. Including non-PyTorch memory, this process has 23.50 GiB memory in use. Of the \
    allocated memory 22.90 GiB is allocated by PyTorch, and 60.00 MiB is reserved by PyTorch but unallocated.\n";

fn verdict(log: &str) -> Verdict {
    explain(log.as_bytes(), &Context::default()).into_iter().next().unwrap()
}

fn names(advice: &Advice, lever: Lever) -> bool {
    advice.lever == lever || advice.also.contains(&lever)
}

#[test]
fn segments_that_grow_already_are_not_made_to() {
    let set = verdict(&format!("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py\n{IN_PIECES}"));
    assert!(set.advice.iter().all(|advice| !names(advice, Lever::ExpandableSegments)), "{:?}", set.advice);
    assert_eq!([set.advice[0].lever, set.advice[1].lever], [Lever::MicroBatch, Lever::EmptyCache]);
    assert!(set.certainty < 0.6 && set.contributing.contains(&Cause::Need), "{set:?}");
    // The message's own advice is none that somebody followed.
    let unset = verdict(&format!("python train.py\n{IN_PIECES}"));
    assert_eq!(unset.advice[0].lever, Lever::ExpandableSegments);
}

#[test]
fn blocks_that_are_kept_whole_already_are_not_kept_so_again() {
    let old = "RuntimeError: CUDA out of memory. Tried to allocate 1.12 GiB (GPU 0; 23.65 GiB total capacity; 18.01 GiB already \
        allocated; 512.44 MiB free; 22.30 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting \
        max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF\n";
    let unset = verdict(old);
    assert_eq!(unset.advice[0].lever, Lever::ExpandableSegments);
    assert!(unset.advice[0].text.contains("max_split_size_mb:512"), "{}", unset.advice[0].text);
    let set = verdict(&format!("export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128\n{old}"));
    let text = &set.advice[0].text;
    assert!(text.contains("Update PyTorch") && text.contains("128 MiB") && !text.contains(":512"), "{text}");
}

#[test]
fn small_moments_are_counted_as_they_are() {
    let log = |optimizer: &str| {
        let head = format!("optim={optimizer},\n  Instantaneous batch size per device = 1\n");
        verdict(&format!("{head}  Number of trainable parameters = 6,738,415,616\nloss.backward()\n{FULL}"))
    };
    let small = log("OptimizerNames.ADAMW_8BIT");
    assert!(small.advice.iter().all(|advice| !names(advice, Lever::SmallerOptimizer)), "{:?}", small.advice);
    assert!(small.advice[0].text.contains("saves 8 bytes per parameter"), "{}", small.advice[0].text);
    assert!(names(&small.advice[1], Lever::Spill), "{:?}", small.advice[1]);
    let large = log("OptimizerNames.ADAMW_TORCH");
    assert!(large.advice[0].text.contains("saves 14 bytes per parameter"), "{}", large.advice[0].text);
    let moments = large.advice.iter().find(|advice| names(advice, Lever::SmallerOptimizer)).unwrap();
    assert!(moments.text.ends_with("(not enough alone)"), "{}", moments.text);
}

#[test]
fn weights_in_half_precision_are_told_what_fewer_bits_take() {
    let code = "from_pretrained(\"meta-llama/Llama-2-70b-chat-hf\", torch_dtype=torch.float16, device_map={\"\": 0})";
    let log = |code: &str| {
        let frame = format!("  File \"/w/gen.py\", line 7, in <module>\n    model = AutoModelForCausalLM.{code}\n");
        verdict(&format!("Loading checkpoint shards:  13%\nTraceback (most recent call last):\n{frame}{FULL}"))
    };
    let half = log(code);
    assert!(half.advice[..2].iter().all(|advice| !names(advice, Lever::Precision)), "{:?}", half.advice);
    let figures = "130.39 GiB in 16 bits, 65.19 GiB in 8 and 32.60 GiB in 4, and the card has 23.65 GiB";
    assert!(half.advice[0].text.contains(figures), "{}", half.advice[0].text);
    let whole = log(&code.replace("torch_dtype=torch.float16, ", ""));
    assert!(names(&whole.advice[0], Lever::Precision), "{:?}", whole.advice[0]);
}

#[test]
fn activations_that_are_recomputed_are_not_recomputed_again() {
    for told in [
        "I already use batch size 1 and gradient checkpointing, still:",
        "accelerate launch train.py --gradient_checkpointing --bf16",
        "Training fails even with gradient checkpointing enabled.",
    ] {
        let verdict = verdict(&format!("python train.py\n{told}\nloss 2.1\n{FULL}"));
        assert!(verdict.advice.iter().all(|advice| !names(advice, Lever::Recompute)), "{told}: {:?}", verdict.advice);
    }
    for told in ["Should I try gradient checkpointing with it?", "gradient_checkpointing=False"] {
        let verdict = verdict(&format!("python train.py\n{told}\nloss 2.1\n{FULL}"));
        assert!(verdict.advice.iter().any(|advice| names(advice, Lever::Recompute)), "{told}: {:?}", verdict.advice);
    }
}

/// The advice of a log, all of it in one text.
fn told(log: &str) -> String {
    verdict(log).advice.into_iter().map(|advice| advice.text + "\n").collect()
}

#[test]
fn flags_of_a_server_are_not_advised_again() {
    let flags = "--enforce-eager --kv-cache-dtype fp8 --quantization awq --tensor-parallel-size 2 --max-num-seqs 16 --max-model-len 2048";
    let all = told(&format!("$ vllm serve some/model-7B {flags}\n(EngineCore_0 pid=2) {FULL}"));
    for gone in
        ["--enforce-eager", "--kv-cache-dtype", "--quantization", "--tensor-parallel-size 2\n", "--max-num-seqs 64"]
    {
        assert!(!all.contains(gone), "{gone} in {all}");
    }
    for there in ["--max-num-seqs 8 instead of 16", "--max-model-len 1024 or less instead of 2048"] {
        assert!(all.contains(there), "{there} in {all}");
    }
    let none = told(&format!("$ vllm serve some/model-7B\n(EngineCore_0 pid=2) {FULL}"));
    for there in ["--enforce-eager", "--kv-cache-dtype fp8", "--quantization awq", "--max-num-seqs 64"] {
        assert!(none.contains(there), "{there} in {none}");
    }
    let refused = "allocating 5120.00 MiB on device 0: cudaMalloc failed: out of memory\nllama_kv_cache_init: failed to allocate buffer \
                   for kv cache\n";
    let all = told(&format!(
        "$ llama-server -m a.gguf -ngl 40 -c 8192 -fa --cache-type-k q8_0 -ub 64 -np 1\nggml: {refused}"
    ));
    for gone in ["-fa with", "q8_0", "-ub 128", "-np 1"] {
        assert!(!all.contains(gone), "{gone} in {all}");
    }
    for there in ["20 instead of 40", "4096 or less instead of 8192", "q4_0", "-ub 32 instead of 64"] {
        assert!(all.contains(there), "{there} in {all}");
    }
    let prefill =
        "Not enough memory to handle 2048 prefill tokens. You need to decrease `--max-batch-prefill-tokens`\n";
    let all = told(&format!(
        "--quantize bitsandbytes-nf4 --max-batch-prefill-tokens 2048\ntext_generation_launcher\n{prefill}"
    ));
    assert!(all.contains("--max-batch-prefill-tokens 1024 instead of 2048") && !all.contains("--quantize"), "{all}");
    let ollama =
        "env=\"map[OLLAMA_FLASH_ATTENTION:true OLLAMA_KV_CACHE_TYPE:q8_0 OLLAMA_NUM_PARALLEL:1]\" source=server.go\n";
    let all = told(&format!("{ollama}ggml: {refused}"));
    assert!(all.contains("OLLAMA_KV_CACHE_TYPE=q4_0") && !all.contains("OLLAMA_NUM_PARALLEL=1"), "{all}");
}

#[test]
fn a_share_of_a_card_is_one_that_fits() {
    let startup = |free: &str| {
        told(&format!(
            "ValueError: Free memory on device ({free}/23.65 GiB) on startup is less than desired GPU memory utilization (0.9, 21.29 GiB). \
             Decrease GPU memory utilization or reduce GPU memory used by other processes.\n"
        ))
    };
    for (free, share) in [("20.44", "0.86"), ("9.44", "0.39"), ("11.82", "0.49")] {
        let all = startup(free);
        assert!(all.contains(&format!("--gpu-memory-utilization {share};")), "{all}");
    }
    let full = startup("0.44");
    assert!(!full.contains("--gpu-memory-utilization") && full.contains("no share of the card is enough"), "{full}");
    // A model of 8 billion parameters takes 15 GiB in 16 bits.
    let weights = |free: &str| {
        let message = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n";
        told(&format!(
            "sglang.launch_server --model-path meta-llama/Llama-3-8B\nLoad weight begin. avail mem={free} GB\n{message}"
        ))
    };
    assert!(weights("22.90").contains("--mem-fraction-static up to 0.95"));
    assert!(!weights("9.10").contains("--mem-fraction-static"));
}

#[test]
fn the_sampler_of_a_server_is_warmed_up_with_fewer_requests() {
    let message = "RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests. Please try lowering \
                   `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.\n";
    let verdict = verdict(&format!("args: Namespace(model='m', gpu_memory_utilization=0.95)\n{FULL}{message}"));
    assert_eq!(verdict.phase, Some(lowtide_explain::Activity::Loading));
    assert!(verdict.culprit.as_ref().unwrap().name.contains("sampler"), "{:?}", verdict.culprit);
    assert!(verdict.advice[0].text.contains("--max-num-seqs 64 instead of 256"), "{}", verdict.advice[0].text);
    assert!(verdict.advice[1].text.contains("0.85 to 0.90 instead of 0.95"), "{}", verdict.advice[1].text);
}

#[test]
fn the_pool_of_jax_is_raised_where_it_is_alone_and_lowered_beside_others() {
    let pool = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2684354560 bytes.\n";
    let set = "$ XLA_PYTHON_CLIENT_MEM_FRACTION=.80 python fit.py\nepoch 1\n";
    let alone = told(&format!("{set}{pool}"));
    assert!(alone.contains("XLA_PYTHON_CLIENT_MEM_FRACTION=0.95 instead of 0.80"), "{alone}");
    assert!(!alone.contains("PREALLOCATE=false") && !alone.contains("less"), "{alone}");
    let small = verdict(&format!("{}{pool}", set.replace(".80", ".30")));
    assert!(small.advice[0].text.contains("=0.95 instead of 0.30"), "{}", small.advice[0].text);
    let beside = told(&format!("import torch\nimport jax\n{set}{pool}"));
    assert!(beside.contains("PREALLOCATE=false") && beside.contains("=0.60 or less instead of 0.80"), "{beside}");
    let of_torch = told(&format!("{set}{FULL}"));
    assert!(of_torch.contains("Let JAX, which shares the card, take less"), "{of_torch}");
    let whole = told(&format!("{}{pool}", set.replace(".80", ".97")));
    assert!(!whole.contains("instead of 0.97") && whole.contains("nothing left to raise"), "{whole}");
}

/// A webui's error in its decoder, and one in the scores of attention.
const DECODER: &str = "  File \"/w/stable-diffusion-webui/modules/processing.py\", line 5, in decode_first_stage\n    x = model.decode(z)\n";
const SCORES: &str = "  File \"/w/stable-diffusion-webui/attention.py\", line 5, in forward\n    sim = einsum('b i d, b j d -> b i j', q, k)\n";

#[test]
fn switches_of_picture_programs_are_not_advised_again() {
    let webui = |switches: &str| {
        let head = format!("Launching Web UI with arguments: {switches}\nTraceback (most recent call last):\n");
        told(&format!("{head}{DECODER}{FULL}")) + &told(&format!("{head}{SCORES}{FULL}"))
    };
    let off = webui("--listen");
    assert!(["--medvram", "--xformers", "--opt-sub-quad"].iter().all(|switch| off.contains(switch)), "{off}");
    let medium = webui("--medvram --xformers");
    assert!(medium.contains("--lowvram in place of --medvram") && !medium.contains("--xformers"), "{medium}");
    let low = webui("--lowvram --opt-sdp-attention");
    assert!(!low.contains("vram") && !low.contains("--opt-sdp") && low.contains("nf4"), "{low}");
    let comfy = |line: &str| told(&format!("{line}\n!!! Exception during processing !!! x\n{FULL}"));
    assert!(comfy("$ python ComfyUI/main.py").contains("--lowvram (or --novram)"));
    assert!(comfy("$ python ComfyUI/main.py --lowvram").contains("--novram in place of --lowvram"));
    let none = comfy("Set vram state to: NO_VRAM");
    assert!(!none.contains("vram") && none.contains("in CPU memory already"), "{none}");
}

#[test]
fn switches_of_pipelines_are_not_advised_again() {
    let pipeline = |code: &str| {
        let frame = "  File \"/w/diffusers/models/autoencoder_kl.py\", line 5, in decode\n    dec = self.decoder(z)\n";
        told(&format!(
            "{code}\nTraceback (most recent call last):\n  File \"/w/a.py\", line 2, in <module>\n    image = pipe(prompt)\n{frame}{FULL}"
        ))
    };
    let off = pipeline("");
    let calls = ["enable_model_cpu_offload()", "enable_tiling()", "enable_slicing()", "enable_attention_slicing()"];
    assert!(calls.iter().all(|call| off.contains(call)), "{off}");
    let on = pipeline("pipe.enable_model_cpu_offload()\npipe.vae.enable_tiling()\npipe.enable_attention_slicing()");
    assert!(on.contains("enable_sequential_cpu_offload() in place of") && on.contains("enable_slicing()"), "{on}");
    assert!(!on.contains("enable_tiling()") && !on.contains("enable_attention_slicing()"), "{on}");
    let all = pipeline("pipe.enable_sequential_cpu_offload()\npipe.enable_vae_tiling()\npipe.enable_vae_slicing()");
    assert!(!all.contains("cpu_offload") && all.contains("tile_sample_min_height"), "{all}");
}

#[test]
fn a_limit_of_metal_that_is_gone_is_not_taken_away() {
    let mps = "RuntimeError: MPS backend out of memory (MPS allocated: 9.05 GB, other allocations: 8.83 GB, max allowed: 18.13 GB). Tried \
               to allocate 512.00 MB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory \
               allocations (may cause system failure).\n";
    assert!(told(&format!("epoch 1\n{mps}")).contains("WATERMARK"));
    let set = told(&format!("$ PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 python train.py\nepoch 1\n{mps}"));
    assert!(!set.contains("WATERMARK"), "{set}");
}

#[test]
fn fewer_data_workers_are_fewer_than_there_are() {
    let message = "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed.\n";
    for (workers, fewer) in [(8, "2 instead of 8"), (2, "1 instead of 2"), (1, "0 instead of 1")] {
        let all = told(&format!("python train.py --num_workers {workers}\nepoch 1\n{message}"));
        assert!(all.contains(fewer), "{fewer} in {all}");
    }
}

/// A 7B model whose log shows its settings, on a card with 17 GiB idle in pieces.
fn of_the_logs_own_command(command: &str, stack: &str) -> Verdict {
    let config = r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 128256, "tie_word_embeddings": false}"#;
    let settings = "per_device_train_batch_size: 16\ngradient_accumulation_steps: 1\nmax_seq_length: 2048\n";
    let configs = [("config.json", config), ("args.yaml", settings)];
    let configs = configs.iter().map(|(name, text)| Config::parse(name, text).unwrap()).collect();
    let message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 79.11 GiB of \
        which 2.31 GiB is free. Including non-PyTorch memory, this process has 76.80 GiB memory in use. Of the allocated memory \
        58.90 GiB is allocated by PyTorch, and 17.40 GiB is reserved by PyTorch but unallocated.\n";
    let adapters = "trainable params: 4,194,304 || all params: 7,504,924,672 || trainable%: 0.0559\n";
    let log = format!(
        "{command}\n{adapters}***** Running training *****\nTraceback (most recent call last):\n{stack}{message}"
    );
    explain(log.as_bytes(), &Context { configs, ..Context::default() }).into_iter().next().unwrap()
}

fn account(verdict: &Verdict, name: &str) -> String {
    let rows = &verdict.model.as_ref().unwrap().rows;
    rows.iter().find(|row| row.name == name).map(|row| format!("{}: {}", row.bytes, row.how)).unwrap()
}

#[test]
fn what_the_log_shows_turned_on_is_counted() {
    let train = "  File \"/w/train.py\", line 80, in <module>\n    trainer.train()\n";
    let recomputes = "  File \"/env/lib/python3.11/site-packages/torch/utils/checkpoint.py\", line 488, in checkpoint\n    ret = f(x)\n";
    let on = "Namespace(bf16=True, gradient_checkpointing=True, use_liger_kernel=True, output_dir='out')";
    for (command, stack) in [
        (on, format!("{train}{recomputes}")),
        ("Namespace(bf16=True, use_liger_kernel=True)", format!("{train}{recomputes}")),
        ("python train.py --bf16 True --gradient_checkpointing True --use_liger_kernel", train.to_owned()),
    ] {
        let verdict = of_the_logs_own_command(command, &stack);
        assert_eq!(verdict.cause, Cause::Fragmentation, "{command}: {:?}", verdict.evidence);
        let (activations, logits) = (account(&verdict, "activations"), account(&verdict, "logits"));
        assert!(activations.ends_with("32 layers recomputed"), "{activations}");
        assert!(logits.ends_with("one of 8 pieces at a time"), "{logits}");
    }
    let half = of_the_logs_own_command("python train.py --bf16 True", train);
    assert!(account(&half, "activations").ends_with("in bf16"), "{half:?}");
    // Kept whole and in fp32 it is more than the card has.
    let none = of_the_logs_own_command("python train.py", train);
    assert_eq!(none.cause, Cause::Need, "{:?}", none.evidence);
    assert!(none.evidence.iter().any(|text| text.contains("(an estimate)")), "{:?}", none.evidence);
}

#[test]
fn a_share_that_the_command_gives_counts_as_one_of_the_log() {
    let refused = "ValueError: The model's max seq len (29000) is larger than the maximum number of tokens that can be stored in KV cache \
        (23648). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.\n";
    let log =
        format!("INFO Memory profiling: total_gpu_memory=23.58GiB\nINFO Available KV cache memory: 2.89GiB\n{refused}");
    let configs = vec![Config::parse("serve.sh", "vllm serve some/model-7B --gpu-memory-utilization 0.5\n").unwrap()];
    let verdict = explain(log.as_bytes(), &Context { configs, ..Context::default() }).remove(0);
    assert_eq!(verdict.cause, Cause::Limit, "{:?}", verdict.evidence);
    assert!(verdict.evidence.iter().any(|text| text.contains("was given 0.5 of the card")), "{:?}", verdict.evidence);
    assert!(verdict.advice.iter().any(|advice| advice.text.contains("the cache lacks")), "{:?}", verdict.advice);
}

#[test]
fn more_cards_than_any_job_has_are_no_number_of_cards() {
    let all = told(&format!("$ vllm serve m --tensor-parallel-size 9999999999999999999\n(EngineCore_0 pid=2) {FULL}"));
    assert!(!all.contains("99999") && all.contains("--tensor-parallel-size 2"), "{all}");
}
