//! What really helps in a case stands among the first two pieces of advice, in the words of whoever runs there.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use lowtide_explain::{Cause, Config, Context, Lever, Verdict, Work, explain};

fn verdict(log: &str, configs: &[(&str, &str)]) -> Verdict {
    let configs = configs.iter().map(|(name, text)| Config::parse(name, text).unwrap()).collect();
    let mut verdicts = explain(log.as_bytes(), &Context { configs, ..Context::default() });
    assert!(!verdicts.is_empty(), "{log}");
    verdicts.remove(0)
}

/// A card of 24 GiB that is this process's own and full.
const FULL: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of \
    23.65 GiB of which 120.00 MiB is free. Including non-PyTorch memory, this process has 23.50 GiB memory in use. Of the \
    allocated memory 22.90 GiB is allocated by PyTorch, and 60.00 MiB is reserved by PyTorch but unallocated.\n";

#[track_caller]
fn first_two(log: &str, expected: &[Lever]) -> String {
    let verdict = verdict(log, &[]);
    for lever in expected {
        let is_told = verdict.advice[..2].iter().any(|advice| advice.lever == *lever || advice.also.contains(lever));
        assert!(is_told, "{lever:?} in {:?}\n{log}", verdict.advice);
    }
    verdict.advice.iter().map(|advice| format!("{}\n", advice.text)).collect()
}

fn stack(frames: &[(&str, &str, &str)]) -> String {
    let frames: String = frames
        .iter()
        .map(|(file, function, code)| format!("  File \"{file}\", line 7, in {function}\n    {code}\n"))
        .collect();
    format!("Traceback (most recent call last):\n{frames}")
}

#[test]
fn training_by_where_the_stack_ends() {
    let head = "Epoch 1: loss 2.31\n";
    let attention = stack(&[("train.py", "main", "loss = model(x)"), ("vit.py", "forward", "attn_weights = q @ k.mT")]);
    let told = first_two(&format!("{head}{attention}{FULL}"), &[Lever::MicroBatch, Lever::AttentionKernel]);
    assert!(told.contains("scaled_dot_product_attention"), "{told}");
    let loss = stack(&[("train.py", "main", "loss = f(x)"), ("lm.py", "loss", "return F.cross_entropy(logits, y)")]);
    let told = first_two(&format!("{head}{loss}{FULL}"), &[Lever::MicroBatch, Lever::ChunkedLoss]);
    assert!(told.contains("Liger") && told.contains("cut-cross-entropy"), "{told}");
    let convolution = stack(&[("train.py", "main", "loss.backward()")]);
    first_two(&format!("{head}{convolution}{FULL}"), &[Lever::MicroBatch, Lever::SmallerInput]);
    let sum = stack(&[("train.py", "main", "total_loss += criterion(model(x), y)")]);
    let told = first_two(&format!("{head}{sum}{FULL}"), &[Lever::PlainNumbers]);
    assert!(told.contains("loss.item()"), "{told}");
    let one = "***** Running training *****\n  Instantaneous batch size per device = 1\nloss 2.3\n";
    first_two(&format!("{one}{attention}{FULL}"), &[Lever::SmallerInput, Lever::AttentionKernel]);
    let words = attention.replace("vit.py", "bert.py");
    let told = first_two(&format!("{one}{words}{FULL}"), &[Lever::ShorterSequence, Lever::AttentionKernel]);
    assert!(!told.contains("half the batch"), "{told}");
}

#[test]
fn what_people_tell_of_a_run_comes_first() {
    let bare =
        "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/THCStorage.cu:58\n";
    let told = "\nAfter each validation batch the GPU memory in use increases.\n";
    first_two(&format!("{bare}{told}"), &[Lever::NoGraph]);
    first_two(&format!("{told}{bare}"), &[Lever::NoGraph]);
    for workers in ["workers=12", "num_workers: 8", "--num-workers 16", "\"num_workers\": 8,"] {
        let told = first_two(&format!("$ train {workers} epochs=3\nEpoch 1\nKilled\n"), &[Lever::FewerWorkers]);
        assert!(told.contains("2 instead of "), "{told}");
    }
    let few = verdict("$ train workers=2 preprocessing_num_workers=8\nKilled\n", &[]);
    assert!(few.advice[..2].iter().all(|advice| advice.lever != Lever::FewerWorkers), "{:?}", few.advice);
}

#[test]
fn sentences_tell_what_the_message_does_not() {
    for (told, levers) in [
        ("GPU memory keeps increasing with every iteration of my loop.", &[Lever::PlainNumbers, Lever::NoGraph][..]),
        (
            "Training works fine, but validation fails at once.",
            &[Lever::NoGraph, Lever::EvaluationBatch, Lever::OutputsToHost],
        ),
        ("It works once. On the second run it says:", &[Lever::RestartKernel, Lever::EmptyCache]),
        (
            "I train on my own pictures, even with a batch size of 1:",
            &[Lever::SmallerInput, Lever::SmallerModel, Lever::MoreMemory],
        ),
        ("I only want to run inference on one picture:", &[Lever::NoGraph, Lever::SmallerInput]),
        ("$ python tools/test.py --weights a.pth", &[Lever::NoGraph, Lever::SmallerInput]),
        (
            "model = AutoModelForCausalLM.from_pretrained(name, device_map=0)",
            &[Lever::Quantize, Lever::Offload, Lever::MoreCards],
        ),
    ] {
        first_two(&format!("{told}\n{FULL}"), levers);
    }
    let one = verdict(&format!("I train with a batch size of 1 and it still fails.\n{FULL}"), &[]);
    assert!(one.advice.iter().all(|advice| advice.lever != Lever::MicroBatch), "{:?}", one.advice);
    let bare = "RuntimeError: CUDA out of memory.\n";
    first_two(&format!("Another user is running a job on the card.\n{bare}"), &[Lever::EndOtherProcess]);
    let ranks =
        first_two(&format!("The processes of all ranks take memory of GPU 0.\n{bare}"), &[Lever::EndOtherProcess]);
    assert!(ranks.contains("torch.cuda.set_device(local_rank)"), "{ranks}");
    first_two(&format!("I train on a GPU which has 2 GB only.\n{bare}"), &[Lever::MicroBatch, Lever::MoreMemory]);
    first_two(&format!("I stopped it by Ctrl+C and started it again.\n{bare}"), &[Lever::EndOtherProcess]);
    first_two(&format!("Full fine-tuning of a llama model fails here.\n{bare}"), &[Lever::MicroBatch, Lever::Adapters]);
    let whole =
        first_two(&format!("I train the llama without LoRA on it.\n{bare}"), &[Lever::MicroBatch, Lever::Adapters]);
    assert!(whole.contains("Train LoRA adapters (peft) instead of all weights"), "{whole}");
    first_two(&format!("Windows with 16GB of RAM and 48GB of VRAM here.\n{bare}"), &[Lever::PageFile]);
    let driver = "RuntimeError: CUDA error: out of memory\n";
    first_two(&format!("I run it with images of (4096, 4096) pixels.\n{driver}"), &[Lever::SmallerInput]);
    first_two(&format!("I train it and the batch size is 2 already.\n{bare}"), &[Lever::ShorterSequence]);
    let eight = format!("$ python chat.py --load_in_8bit\n{bare}");
    first_two(&eight, &[Lever::FewerRequests, Lever::MoreMemory]);
    first_two(&format!("El modelo falla durante la validación, no antes.\n{bare}"), &[Lever::NoGraph]);
    let alone = verdict(&format!("There is no other process running on the card.\n{bare}"), &[]);
    assert_ne!(alone.advice[0].lever, Lever::EndOtherProcess);
}

#[test]
fn the_loop_of_a_library_keeps_nothing() {
    let log = |name: &str| format!("{name}\nEpoch 3/100 45/500 loss 1.2\n{FULL}");
    first_two(&log("my own loop"), &[Lever::MicroBatch, Lever::PlainNumbers]);
    first_two(&log("Ultralytics yolo train model=yolov8x.pt"), &[Lever::MicroBatch, Lever::SmallerInput]);
}

#[test]
fn trainers_have_switches_that_go_together() {
    let kohya =
        "accelerate launch sdxl_train_network.py --train_batch_size 1 --network_module networks.lora\nepoch 1/10\n";
    let levers =
        [Lever::Recompute, Lever::Precision, Lever::SmallerOptimizer, Lever::AttentionKernel, Lever::SmallerInput];
    let told = first_two(&format!("{kohya}{FULL}"), &levers);
    assert!(told.contains("--use_8bit_adam") && told.contains("--gradient_checkpointing"), "{told}");
    let zero = "deepspeed --num_gpus 2 train.py --zero_stage 3\nstep 1 loss 2.1\n";
    let told = first_two(&format!("{zero}{FULL}"), &[Lever::MicroBatch, Lever::Recompute, Lever::Spill]);
    assert!(told.contains("offload_optimizer"), "{told}");
    // Weights in 4 bits leave room for a step, so that sharing them out is not what comes first.
    let adapters = "trainable params: 4,194,304 || all params: 6,742,609,920\nload_in_4bit: True\nper_device_train_batch_size: 1\n";
    first_two(&format!("{adapters}step 1 loss 2.1\n{FULL}"), &[Lever::ShorterSequence, Lever::Recompute]);
}

#[test]
fn weights_that_do_not_fit_and_contexts_that_are_too_long() {
    let served = "vllm serve Qwen/Qwen2.5-14B-Instruct --max-model-len 32768\n";
    first_two(&format!("{served}{FULL}"), &[Lever::Quantize, Lever::MoreCards]);
    first_two(&format!("{}{FULL}", served.replace("14B", "3B")), &[Lever::LeaveRoom, Lever::FewerRequests]);
    let host = "Error: model requires more system memory (74.0 GiB) than is available (53.1 GiB)\n";
    first_two(host, &[Lever::Quantize, Lever::ShorterSequence, Lever::MoreMemory]);
    let long = "ollama run a with num_ctx 131072\nCUDA error: out of memory\n";
    first_two(long, &[Lever::ShorterSequence, Lever::FewerLayers]);
}

#[test]
fn speech_in_batches_and_one_by_one() {
    let message = "RuntimeError: CUDA failed with error out of memory\n";
    first_two(
        &format!("whisperx a.wav --batch_size 20\n{message}"),
        &[Lever::Quantize, Lever::SmallerModel, Lever::FewerRequests],
    );
    first_two(message, &[Lever::SmallerModel, Lever::Offload, Lever::MoreMemory]);
}

#[test]
fn a_batch_that_the_machine_refused_is_made_smaller() {
    let message = "ResourceExhaustedError: OOM when allocating tensor with shape[16,19,19,1024] and type float on \
        /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu\n";
    first_two(message, &[Lever::MicroBatch]);
    let weights = message.replace("16,19,19,1024", "3,3,1024,1024");
    assert_ne!(verdict(&weights, &[]).advice[0].lever, Lever::MicroBatch);
    first_two(&format!("batch_size: 8\n{weights}"), &[Lever::MicroBatch]);
}

#[test]
fn a_page_for_pictures_has_switches_of_its_own() {
    let log = "RuntimeError: Not enough memory, use lower resolution (max approx. 448x448). Need: 0.0GB free, Have:0.0GB free\n";
    let told = first_two(log, &[Lever::Offload, Lever::SmallerInput]);
    assert!(told.contains("--medvram") && told.contains("--lowvram"), "{told}");
    let verdict = verdict(log, &[]);
    assert!(verdict.cause != Cause::HostMemory && verdict.certainty <= 0.75 && verdict.work == Work::Inference);
}

#[test]
fn a_page_for_pictures_has_no_pipe() {
    let frame = "  File \"C:\\stable-diffusion-webui\\modules\\processing.py\", line 1012, in process_images_inner\n";
    let large = FULL.replace("allocate 512.00 MiB", "allocate 14.50 GiB");
    let told =
        first_two(&format!("Traceback (most recent call last):\n{frame}{large}"), &[Lever::Tiles, Lever::Offload]);
    assert!(told.contains("--opt-sub-quad-attention") && !told.contains("pipe."), "{told}");
}

#[test]
fn a_matrix_of_scores_larger_than_the_card_asks_for_another_kernel() {
    let frames = stack(&[("attn.py", "forward", "s = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(d)")]);
    let large = FULL.replace("allocate 512.00 MiB", "allocate 128.00 GiB").replace("22.90 GiB", "3.11 GiB");
    let verdict = verdict(&format!("loss 2.1\n{frames}{large}"), &[]);
    assert_eq!([verdict.advice[0].lever, verdict.advice[1].lever], [Lever::AttentionKernel, Lever::MicroBatch]);
    // 20.5 GiB are left for it, the seventh part of what was asked for.
    assert!(verdict.advice[1].text.contains("at most 1/8 of the batch at once"), "{:?}", verdict.advice[1]);
}

#[test]
fn an_array_that_no_card_holds_is_not_a_matter_of_the_share() {
    let refused = |bytes: &str| {
        format!("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating {bytes} bytes.\n")
    };
    let lever = |log: &str| verdict(log, &[]).advice[0].lever;
    assert_eq!(
        [lever(&refused("68719476736")), lever(&refused("2147483648"))],
        [Lever::SmallerInput, Lever::LeaveRoom]
    );
}

#[test]
fn engines_of_metal_have_a_limit_of_their_own() {
    let log = "libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] Command buffer execution failed: \
               Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)\n";
    let told = first_two(log, &[Lever::RaiseLimit]);
    assert!(told.contains("iogpu.wired_limit_mb") && !told.contains("PYTORCH_MPS"), "{told}");
}

#[test]
fn a_reserve_comes_late_and_grows() {
    let stack = stack(&[("train.py", "main", "loss.backward()")]);
    let told = |before: &str, log: &str| -> Option<(usize, String)> {
        let verdict = verdict(&format!("Epoch 1: loss 2.31\n{before}{stack}{log}"), &[]);
        let place = verdict.advice.iter().position(|advice| advice.lever == Lever::Reserve)?;
        Some((place, verdict.advice[place].text.clone()))
    };
    let (place, text) = told("", FULL).unwrap();
    assert!(place >= 2 && text.contains("--reserve 4GiB"), "{place} {text}");
    let (_, text) = told("", &FULL.replace("512.00 MiB", "2.30 GiB")).unwrap();
    assert!(text.contains("--reserve 10GiB"), "{text}");
    let (_, text) = told("lowtide: 4.00 GiB of host memory pinned in 0.3 s\n", FULL).unwrap();
    assert!(text.starts_with("A larger reserve") && !text.contains("GiB"), "{text}");
    assert_eq!(told("", &FULL.replace("CUDA out of memory", "HIP out of memory")), None);
}

#[test]
fn evaluation_by_what_is_kept() {
    let head = "Epoch 1: loss 2.31\nvalidating\n";
    let plain = stack(&[("train.py", "validate", "scores = model(x)")]);
    let told = first_two(&format!("{head}{plain}{FULL}"), &[Lever::NoGraph, Lever::EvaluationBatch]);
    assert!(told.contains("torch.no_grad()"), "{told}");
    let kept = stack(&[("train.py", "validate", "stats = evaluator.evaluate_predictions(results)")]);
    first_two(&format!("{head}{kept}{FULL}"), &[Lever::OutputsToHost]);
    let trainer = stack(&[(
        "site-packages/transformers/trainer.py",
        "evaluation_loop",
        "all_preds = nested_concat(all_preds, logits)",
    )]);
    let told = first_two(&format!("{head}{trainer}{FULL}"), &[Lever::OutputsToHost, Lever::EvaluationBatch]);
    assert!(told.contains("eval_accumulation_steps") && told.contains("preprocess_logits_for_metrics"), "{told}");
    assert!(!told.contains("no_grad"), "{told}");
    let pictures = stack(&[("seg.py", "evaluate", "x"), ("seg.py", "whole_inference", "y = resize(logit, size)")]);
    first_two(&format!("{head}{pictures}{FULL}"), &[Lever::EvaluationCrop]);
}

#[test]
fn saving_and_resuming() {
    let clone = "{'train_runtime': 601.9}\nsite-packages/torch/distributed/fsdp/_state_dict_utils.py:312: UserWarning: Failed to \
        clone() tensor with name lm_head.weight on rank 1. This may mean that this state_dict entry could point to invalid memory \
        regions after returning from state_dict() call if this parameter is managed by FSDP. Error: CUDA out of memory. Tried to \
        allocate 270.00 MiB (GPU 1; 79.35 GiB total capacity; 77.16 GiB already allocated; 72.19 MiB free; 77.16 GiB reserved in \
        total by PyTorch)\n";
    let told = first_two(clone, &[Lever::StateToHost, Lever::ShardedState]);
    assert!(told.contains("rank0_only") && told.contains("SHARDED_STATE_DICT"), "{told}");
    let resume = "Resuming training from out\ncompiling the model... (takes a ~minute)\n";
    let forward =
        stack(&[("train.py", "<module>", "logits, loss = model(X, Y)"), ("model.py", "forward", "x = block(x)")]);
    let told = first_two(&format!("{resume}{forward}{FULL}"), &[Lever::FreeCheckpoint, Lever::MicroBatch]);
    assert!(told.contains("map_location='cpu'"), "{told}");
    // Many steps later the checkpoint is gone.
    let later = verdict(&format!("{resume}iter 3: loss 2.1\niter 300: loss 2.1\n{forward}{FULL}"), &[]);
    assert!(later.advice[0].lever != Lever::FreeCheckpoint);
}

#[test]
fn weights_that_deepspeed_shares_out_are_saved_in_its_own_way() {
    let engine = "/opt/lib/python3.10/site-packages/deepspeed/runtime/engine.py";
    let frames =
        stack(&[(engine, "_zero3_consolidated_16bit_state_dict", "with deepspeed.zero.GatheredParameters(all):")]);
    let told = first_two(&format!("step=500\n{frames}{FULL}"), &[Lever::ShardedState]);
    assert!(told.contains("stage3_gather_16bit_weights_on_model_save") && told.contains("zero_to_fp32.py"), "{told}");
    assert!(!told.contains("FullStateDictConfig"), "{told}");
}

#[test]
fn who_does_not_train_gets_no_gradients() {
    let pictures = stack(&[("app.py", "<module>", "image = pipe(prompt)")]);
    let comfy = "got prompt\n!!! Exception during processing !!!\n";
    let generate = stack(&[("chat.py", "main", "out = model.generate(**inputs)")]);
    let weights = stack(&[
        ("app.py", "main", "model.to(device)"),
        ("torch/nn/modules/module.py", "convert", "return t.to(device)"),
    ]);
    for (log, lever, words) in [
        (format!("{pictures}{FULL}"), Lever::Offload, "enable_sequential_cpu_offload"),
        (format!("{comfy}{FULL}Prompt executed in 3.1 seconds\n"), Lever::Offload, "--lowvram"),
        (format!("{generate}{FULL}"), Lever::FewerRequests, "max_new_tokens"),
        (format!("{weights}{FULL}"), Lever::Quantize, "device_map"),
        (format!("(EngineCore_DP0 pid=7) Graph capturing: 61%\n{FULL}"), Lever::EagerMode, "--enforce-eager"),
        (
            format!("text_generation_launcher: Method Prefill encountered an error.\n{FULL}"),
            Lever::FewerRequests,
            "--max-batch-prefill-tokens",
        ),
        (format!("[TensorRT-LLM][INFO] Loaded engine\n{FULL}"), Lever::FewerRequests, "max_batch_size"),
    ] {
        let told = first_two(&log, &[lever]);
        assert!(told.contains(words), "{words} in {told}");
        for training in ["accumulat", "backward", "optimizer", "gradient_checkpointing", "LoRA"] {
            assert!(!told.contains(training), "{training} in {told}");
        }
    }
}

#[test]
fn memory_of_the_machine_by_who_took_it() {
    let refused = "RuntimeError: [enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you \
        tried to allocate 2147483648 bytes. Error code 12 (Cannot allocate memory)\n";
    let gelu = stack(&[("train.py", "train", "loss = model(x)"), ("model.py", "forward", "x = self.gelu(x)")]);
    let told = first_two(&format!("epoch 1\n{gelu}{refused}"), &[Lever::MicroBatch, Lever::MoreMemory]);
    assert!(!told.contains("Read data"), "{told}");
    let reads = stack(&[("train.py", "main", "data = load()"), ("data.py", "load", "return np.load('all.npy')")]);
    let array = "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 54.5 GiB for an array with shape (1000000, 7320) and \
        data type float64\n";
    let told = first_two(&format!("{reads}{array}"), &[Lever::SmallerDataCache, Lever::MoreMemory]);
    assert!(told.contains("memory-mapped"), "{told}");
    first_two(
        "Epoch 3 loss 2.1\nstep 900 loss 2.0\n./train.sh: line 3:  4127 Killed                  python train.py\n",
        &[Lever::SmallerDataCache, Lever::MoreMemory],
    );
    let page = "OSError: [WinError 1455] The paging file is too small for this operation to complete. Error loading \
        \"D:\\env\\lib\\site-packages\\torch\\lib\\shm.dll\" or one of its dependencies.\n";
    first_two(page, &[Lever::PageFile, Lever::FewerWorkers]);
}

#[test]
fn levers_come_with_their_arithmetic() {
    let model = r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096,
        "tie_word_embeddings": false}"#;
    let script =
        "python run.py --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --max_seq_length 2048 --bf16\n";
    let configs = [("config.json", model), ("run.sh", script)];
    let log = format!("***** Running training *****\nstep 1 loss 2.1\n{FULL}");
    let saves = |verdict: &Verdict, lever: Lever| {
        let advice = verdict.advice.iter().find(|advice| advice.lever == lever);
        advice.unwrap_or_else(|| panic!("{lever:?}")).saves_bytes.map(|bytes| bytes.to_string()).unwrap_or_default()
    };
    let all = |verdict: &Verdict| {
        [Lever::Adapters, Lever::SmallerOptimizer, Lever::Shard, Lever::Spill].map(|lever| saves(verdict, lever))
    };
    // 6.74 billion weights: 14 (those that are not trained are held in bf16), 6, half of 16, and 8 bytes for each.
    let large =
        log.replace("23.65 GiB", "39.65 GiB").replace("23.50 GiB", "39.50 GiB").replace("22.90 GiB", "38.90 GiB");
    assert_eq!(all(&verdict(&large, &configs)), ["87.48 GiB", "37.65 GiB", "50.20 GiB", "50.20 GiB"]);
    // What was held has no room for them in fp32: then 6, 2, half of 8, and 4 bytes.
    let verdict = verdict(&log, &configs);
    assert_eq!(all(&verdict), ["37.46 GiB", "12.55 GiB", "25.10 GiB", "25.10 GiB"]);
    // 4 x 2048 x 32000 logits of 12 bytes, of which an eighth is held at a time.
    assert_eq!(saves(&verdict, Lever::ChunkedLoss), "2.56 GiB");
    // No batch is small enough: what makes the fixed part smaller comes before it.
    let place = |lever: Lever| verdict.advice.iter().position(|advice| advice.lever == lever).unwrap();
    assert!(place(Lever::Adapters) < place(Lever::MicroBatch));
    assert!(verdict.advice[place(Lever::MicroBatch)].text.ends_with("(not enough alone)"));
    // A card on which many steps went well has room for what stays from step to step.
    let later = log.replace("step 1 loss 2.1\n", "step 1 loss 2.1\nstep 2 loss 2.0\nstep 40 loss 1.9\n");
    let refuted = self::verdict(&later, &configs);
    assert!(refuted.model.is_none() && refuted.evidence.iter().any(|text| text.contains("steps 1 to 40 went well")));
    assert!(refuted.advice.iter().all(|advice| !advice.text.contains("not enough alone")), "{:?}", refuted.advice);
    let adapters = "trainable params: 4,194,304 || all params: 6,738,415,616 || trainable%: 0.06\n";
    let again = self::verdict(&format!("{adapters}{log}"), &configs);
    let told: String = again.advice.iter().map(|advice| format!("{}\n", advice.text)).collect();
    assert!(told.contains("QLoRA: hold") && !told.contains("adapters (peft)"), "{told}");
}

#[test]
fn a_loop_without_accumulation_is_shown_with_it() {
    let script = "loader = DataLoader(data, batch_size=32)\nfor x, y in loader:\n    optimizer.zero_grad()\n    loss = \
        criterion(net(x), y)\n    loss.backward()\n    optimizer.step()\n";
    let verdict = verdict(&format!("epoch 1 loss 2.1\n{FULL}"), &[("train.py", script)]);
    assert_eq!(verdict.patch, None);
    let note = verdict.notes.iter().find(|note| note.contains("with gradient accumulation")).unwrap();
    assert!(note.starts_with("train.py, lines 2 to 6") && note.contains("accumulation_steps = 2"), "{note}");
}

#[test]
fn a_server_is_told_the_share_that_is_enough() {
    let startup = |share: &str, needed: &str| {
        format!(
            "vllm serve m --gpu-memory-utilization {share}\nINFO GPU 0 total_gpu_memory=24.00GiB\nValueError: To serve at least one request \
             with the models's max seq len (32768), ({needed} GiB KV cache is needed, which is larger than the available KV cache memory \
             (2.00 GiB). Based on the available memory, the estimated maximum model length is 16384. Try increasing \
             `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.\n"
        )
    };
    let raise = |log: &str| {
        let verdict = verdict(log, &[]);
        assert_eq!(verdict.work, Work::Serving);
        let advice = verdict.advice.into_iter().find(|advice| advice.lever == Lever::RaiseLimit).unwrap();
        advice.text
    };
    // 2.3 GiB more are 9.6 % of 24 GiB.
    let text = raise(&startup("0.80", "4.30"));
    assert!(text.contains("--gpu-memory-utilization 0.90; the cache lacks 2.30 GiB"), "{text}");
    let text = raise(&startup("0.90", "8.00"));
    assert!(text.contains("alone is not enough") && text.contains("would have to be 1.15"), "{text}");
}

#[test]
fn servers_are_known_by_what_they_ask_to_lower() {
    let sampler = "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering \
                   `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.\n";
    let told = first_two(sampler, &[Lever::LeaveRoom, Lever::FewerRequests]);
    assert!(told.contains("--max-num-seqs") && !told.contains("accumulation") && !told.contains("LoRA"), "{told}");
    let prefill = "ERROR warmup: text_generation_client: Server error: Not enough memory to handle 4096 prefill tokens. You need to \
                   decrease `--max-batch-prefill-tokens`\n";
    let told = first_two(prefill, &[Lever::FewerRequests, Lever::Quantize]);
    assert!(told.contains("--max-batch-prefill-tokens") && told.contains("--quantize"), "{told}");
    assert!(!told.contains("generate,") && !told.contains("BitsAndBytesConfig"), "{told}");
}

#[test]
fn a_share_that_leaves_nothing_for_a_cache_has_no_room_for_a_short_one() {
    let startup = |settings: &str| {
        format!(
            "INFO llm_engine.py:161] Initializing an LLM engine with config: {settings}\nValueError: No available memory for the cache \
             blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n"
        )
    };
    let told = first_two(&startup("tensor_parallel_size=2"), &[Lever::RaiseLimit, Lever::Quantize]);
    assert!(told.contains("--tensor-parallel-size 4 instead of 2"), "{told}");
    // A share that is as large as it may be is not made larger.
    let told = first_two(&startup("gpu_memory_utilization=0.98"), &[Lever::Quantize, Lever::MoreCards]);
    assert!(told.contains("--tensor-parallel-size 2") && !told.contains("larger share"), "{told}");
}

#[test]
fn only_a_training_has_a_step() {
    let said = |log: &str| {
        let verdict = verdict(log, &[]);
        (verdict.cause, verdict.work, verdict.cause_words())
    };
    let train = stack(&[("train.py", "main", "loss.backward()")]);
    assert_eq!(
        said(&format!("epoch 1 loss 2.1\n{train}{FULL}")),
        (Cause::Need, Work::Training, "the step needs more memory than there is")
    );
    let served = format!("(EngineCore_DP0 pid=7) Graph capturing: 61%\n{FULL}");
    assert_eq!(said(&served), (Cause::Need, Work::Serving, "the server needs more memory than there is"));
    let pictures = stack(&[("app.py", "<module>", "image = pipe(prompt)")]);
    assert_eq!(
        said(&format!("{pictures}{FULL}")),
        (Cause::Need, Work::Inference, "the model and its inputs need more memory than there is")
    );
}

#[test]
fn what_stood_before_the_training_is_not_the_matter() {
    let killed = "./train.sh: line 3:  4127 Killed                  python train.py\n";
    let installed = "Collecting torch\n  Downloading torch-2.5.0.whl (906.4 MB)\nBuilding wheel for flash-attn (setup.py): finished\n";
    let mapped = "Map (num_proc=8): 100%|##########| 9000/9000 [00:10<00:00, 881.21 examples/s]\n";
    let levers = |log: &str| -> Vec<Lever> { verdict(log, &[]).advice.iter().map(|advice| advice.lever).collect() };
    let trained = levers(&format!("{installed}{mapped}Epoch 1: loss 2.31\nstep 900 loss 2.0\n{killed}"));
    for lever in [Lever::NoInstallCache, Lever::FewerJobs, Lever::SmallerWriter] {
        assert!(!trained.contains(&lever), "{lever:?} in {trained:?}");
    }
    assert_eq!(levers(&format!("{installed}Killed\n"))[0], Lever::FewerJobs);
    assert_eq!(
        levers("Collecting torch\n  Downloading torch-2.5.0.whl (906.4 MB)\nKilled\n")[0],
        Lever::NoInstallCache
    );
    assert_eq!(levers(&format!("{}Killed\n", mapped.replace("100%", "41%")))[0], Lever::SmallerWriter);
}

#[test]
fn a_run_that_failed_late_keeps_something_or_met_a_long_sample() {
    let step = stack(&[("train.py", "main", "loss.backward()")]);
    first_two(&format!("step 900 loss 2.0\n{step}{FULL}"), &[Lever::MicroBatch, Lever::PlainNumbers]);
    let told =
        first_two(&format!("gpt2, step 900 loss 2.0\n{step}{FULL}"), &[Lever::MicroBatch, Lever::ShorterSequence]);
    assert!(told.contains("many steps went well"), "{told}");
    first_two(&format!("step 1 loss 2.0\n{step}{FULL}"), &[Lever::MicroBatch, Lever::SmallerInput]);
    let words = first_two(&format!("allennlp: step 1 loss 2.0\n{step}{FULL}"), &[Lever::MicroBatch]);
    assert!(!words.contains("crops"), "{words}");
}

#[test]
fn a_test_is_no_training() {
    let log = |file: &str, function: &str| format!("{}{FULL}", stack(&[(file, function, "y = net(x)")]));
    for (file, function) in [("test.py", "test_net"), ("demo.py", "main"), ("tools/run_inference.py", "<module>")] {
        let told = first_two(&log(file, function), &[Lever::NoGraph, Lever::SmallerInput]);
        assert!(!told.contains("accumulat"), "{told}");
    }
    let levers = |log: &str| -> Vec<Lever> { verdict(log, &[]).advice.iter().map(|advice| advice.lever).collect() };
    assert_eq!(levers(&log("train.py", "main"))[0], Lever::MicroBatch);
    // A step of training inside a file of tests.
    assert_eq!(levers(&log("test_models.py", "train_step"))[0], Lever::MicroBatch);
}

#[test]
fn the_first_two_are_two_different_ways() {
    let two = |log: &str| -> Vec<(Lever, Vec<Lever>)> {
        verdict(log, &[]).advice.into_iter().take(2).map(|advice| (advice.lever, advice.also)).collect()
    };
    let step = stack(&[("train.py", "main", "loss = net(images).sum()")]);
    let pictures = two(&format!("step 1 loss 2.0\n{step}{FULL}"));
    let last = [Lever::SmallerModel, Lever::MoreMemory];
    let beside = |lever: Lever| [&[lever][..], &last].concat();
    assert_eq!(pictures, [(Lever::MicroBatch, vec![]), (Lever::SmallerInput, last.to_vec())]);
    let step = stack(&[("train.py", "main", "loss.backward()")]);
    let anything = two(&format!("step 1 loss 2.0\n{step}{FULL}"));
    assert_eq!(anything[1], (Lever::SmallerInput, beside(Lever::ShorterSequence)));
    let block = stack(&[("train.py", "main", "loss = model(x)"), ("gpt.py", "forward", "x = block(x)")]);
    let words = two(&format!("step 1 loss 2.0\n{block}{FULL}"));
    let shorter = (Lever::MicroBatch, vec![Lever::ShorterSequence]);
    assert_eq!(words, [shorter, (Lever::Recompute, vec![Lever::Precision, Lever::MoreMemory])]);
    let demo = stack(&[("demo.py", "main", "y = net(x)")]);
    let used = two(&format!("{demo}{FULL}"));
    assert_eq!(
        used,
        [
            (Lever::NoGraph, vec![Lever::Precision]),
            (Lever::SmallerInput, vec![Lever::MicroBatch, Lever::MoreMemory, Lever::Offload])
        ]
    );
    let bare = two(FULL);
    // A small request on a full card is as likely a matter of what lies on it.
    let weights = vec![Lever::ShorterSequence, Lever::Offload, Lever::Adapters, Lever::MoreMemory];
    assert_eq!(bare, [(Lever::MicroBatch, vec![]), (Lever::SmallerInput, weights)]);
}

#[test]
fn an_evaluation_is_known_by_the_function_that_runs_it() {
    let log = |function: &str| {
        let frames = stack(&[("classify.py", "main", "score(model)"), ("classify.py", function, "y = model(x)")]);
        format!("Epoch 1: loss 2.31\n{frames}{FULL}")
    };
    first_two(&log("run_an_eval_epoch"), &[Lever::NoGraph, Lever::EvaluationBatch]);
    first_two(&log("train_and_eval"), &[Lever::MicroBatch]);
}

#[test]
fn caffe_has_no_allocator_to_leave_room_beside() {
    let log = "I0308 14:02:11.494718  3410 solver.cpp:365] Iteration 0, Testing net (#0)\nF0308 14:02:12.180022  3410 \
        syncedmem.cpp:56] Check failed: error == cudaSuccess (2 vs. 0)  out of memory\n";
    let told = first_two(log, &[Lever::MicroBatch, Lever::SmallerInput]);
    assert!(!told.contains("torch"), "{told}");
}

#[test]
fn trees_have_no_batch() {
    let log = "Exception in gpu_hist: device_helpers.cuh:431: Memory allocation error on worker 0: std::bad_alloc: \
               cudaErrorMemoryAllocation: out of memory\n- Free memory: 8126464\n- Requested memory: 33554432\n";
    let told = first_two(log, &[Lever::SmallerInput, Lever::SmallerModel]);
    assert!(told.contains("QuantileDMatrix") && !told.contains("gradient accumulation"), "{told}");
}

#[test]
fn clusters_are_told_their_own_settings() {
    let nanny = "distributed.nanny.memory - WARNING - Worker tcp://10.0.0.1:4000 (pid=7) exceeded 95% memory budget. Restarting...\n";
    assert!(first_two(nanny, &[Lever::RaiseLimit]).contains("memory_limit"));
    let yarn = "WARN YarnAllocator: Container killed by YARN for exceeding memory limits. 8.3 GB of 8 GB physical memory used.\n";
    assert!(first_two(yarn, &[Lever::RaiseLimit]).contains("spark.executor.memoryOverhead"));
    let held = "Job in status 2 put on hold by SYSTEM_PERIODIC_HOLD due to memory usage 3000000.\n";
    assert!(first_two(held, &[Lever::RaiseLimit]).contains("request_memory"));
    let loader = "python: error while loading shared libraries: libm.so.6: failed to map segment from shared object: Cannot \
                  allocate memory\n";
    assert!(first_two(loader, &[Lever::RaiseLimit]).contains("h_vmem"));
}

#[test]
fn a_worker_that_crashed_is_not_out_of_memory() {
    let gone = "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker exit detail: \
                Worker unexpectedly exits with a connection error code 2. End of file. There are some potential root causes. (1) \
                The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called. (3) The \
                worker is crashed unexpectedly due to SIGSEGV or other unexpected errors.\n";
    assert_eq!(explain(gone.as_bytes(), &Context::default()).len(), 1);
    let crashed = format!("{gone}(Actor pid=7) *** SIGSEGV received at time=1711500431 on cpu 3 ***\n");
    assert!(explain(crashed.as_bytes(), &Context::default()).is_empty());
}

#[test]
fn a_name_of_a_file_or_a_folder_is_no_evidence() {
    let frames = [
        ("/home/ann/train_softmax.py", "main", "loss = step(x)"),
        ("/home/ann/train_softmax.py", "step", "return net(x)"),
    ];
    let log = format!("Epoch 1: loss 2.31\n{}{FULL}", stack(&frames));
    assert_eq!(verdict(&log, &[]).culprit.map(|culprit| culprit.name), None);
    let folder = stack(&[("/opt/rvc-webui/infer.py", "convert_voice", "audio = net_g.infer(x)")]);
    let told = first_two(&format!("{folder}{FULL}"), &[]);
    assert!(!told.contains("--medvram"), "{told}");
}

#[test]
fn a_kill_in_a_training_with_batches_names_the_batch() {
    for log in [
        "python train.py --batch-size 64 --epochs 20\nEpoch 0:  12%|█▏        | 88/730 [01:01<07:37,  1.42it/s]\nKilled\n",
        "python train.py --batch_size 64\nloading the data\nKilled\n",
        "python train.py --batch_size 64\nepoch 1 loss 2.3\nslurmstepd: error: Detected 1 oom_kill event in StepId=7.batch.\n",
        "batch_size = 64, epoch 1\nRuntimeError: DataLoader worker (pid 71) is killed by signal: Killed.\n",
    ] {
        first_two(log, &[Lever::MicroBatch]);
    }
    let told = first_two("python predict.py --input x.tif\nKilled\n", &[]);
    assert!(!told.contains("smaller batch"), "{told}");
}

#[test]
fn other_languages_and_chips_get_no_call_of_pytorch() {
    for log in [
        "ERROR: CUDNNError: CUDNN_STATUS_ALLOC_FAILED (code 2)\nStacktrace:\n  [1] throw_api_error(res::CUDA.CUDNN.cudnnStatus_t)\n    @ \
         CUDA.CUDNN ~/.julia/packages/CUDA/Zmd60/lib/cudnn/error.jl:19\n",
        "/opt/torch/install/bin/luajit: nn/Container.lua:67:\nIn 1 module of nn.Sequential:\ncudnn/init.lua:58: Error in CuDNN: \
         CUDNN_STATUS_ALLOC_FAILED (cudnnFindConvolutionForwardAlgorithm)\n",
        "Memory allocation error : Out of memory on tile 0: 876476 bytes used but tiles only have 638976 bytes of memory\n",
    ] {
        let told = first_two(log, &[]);
        for call in ["torch.", "set_per_process_memory_fraction", "PYTORCH_"] {
            assert!(!told.contains(call), "{call}: {told}");
        }
    }
}

#[test]
fn what_a_function_may_be_given_says_nothing_of_the_run() {
    let frame =
        "/opt/transformers/trainer.py in train(self, resume_from_checkpoint, trial, ignore_keys_for_eval, **kwargs)\n";
    let told = first_two(&format!("epoch 1\n{frame}{FULL}"), &[]);
    assert!(!told.contains("del checkpoint"), "{told}");
}

#[test]
fn answers_that_are_generated_to_learn_from_are_made_shorter() {
    let bare = "torch.OutOfMemoryError: CUDA out of memory.\n";
    let one = format!(
        "--num_generations 8 --per_device_train_batch_size 1 --model_name_or_path Qwen/Qwen2.5-3B train.py\n{bare}"
    );
    let first = &verdict(&one, &[]).advice[0];
    assert_eq!((first.lever, &*first.also), (Lever::ShorterSequence, &[Lever::FewerRequests][..]));
    let more = verdict(&format!("GRPO training_step\n{bare}"), &[]);
    assert_eq!(more.advice[0].lever, Lever::MicroBatch);
    assert!(more.advice[0].also.contains(&Lever::ShorterSequence), "{:?}", more.advice[0]);
}

#[test]
fn vectors_of_texts_leave_the_card() {
    let log = "embeddings = model.encode(texts, convert_to_tensor=True)\nRuntimeError: CUDA out of memory.\n";
    let found = verdict(log, &[]);
    let levers: Vec<Lever> = found.advice.iter().take(2).map(|advice| advice.lever).collect();
    assert_eq!(levers, [Lever::FewerRequests, Lever::OutputsToHost]);
    assert!(found.advice[1].text.contains("convert_to_numpy=True"));
    let answers =
        format!("from sentence_transformers import SentenceTransformer\noutput = model.generate(ids)\n{FULL}");
    assert!(verdict(&answers, &[]).advice[..2].iter().all(|advice| advice.lever != Lever::OutputsToHost));
}

#[test]
fn a_library_that_asks_the_driver_itself_has_a_batch_to_make_smaller() {
    let log = "RuntimeError: /srv/tiny-cuda-nn/gpu_memory.h:584 cuMemSetAccess(m_base_address + m_size) failed with error \
               CUDA_ERROR_OUT_OF_MEMORY\n";
    assert_eq!(verdict(log, &[]).advice[0].lever, Lever::MicroBatch);
}

#[test]
fn how_long_samples_are_is_told_by_logits_and_not_by_what_a_model_may_read() {
    let model = "Model config Qwen2Config {\n  \"hidden_size\": 3584,\n  \"intermediate_size\": 18944,\n  \
        \"max_position_embeddings\": 131072,\n  \"model_type\": \"qwen2\",\n  \"num_attention_heads\": 28,\n  \
        \"num_hidden_layers\": 28,\n  \"num_key_value_heads\": 4,\n  \"vocab_size\": 152064\n}\n  Instantaneous batch size \
        per device = 2\n";
    let logits = "Traceback (most recent call last):\n  File \"model.py\", line 7, in forward\n    logits = \
        self.lm_head(hidden)\n";
    let message = |asked: &str| FULL.replace("512.00 MiB", asked);
    let account = |log: String| verdict(&log, &[]).model.expect("a model");
    // 2 x 4096 x 152064 values of 4 bytes.
    let known = account(format!("{model}{logits}{}", message("4.64 GiB")));
    assert!(known.is_whole && known.rows.iter().any(|row| row.how.starts_with("8192 tokens x 28 layers")), "{known:?}");
    // Nothing tells: weights, gradients and moments alone.
    let unknown = account(format!("{model}{}", message("1.00 GiB")));
    assert!(!unknown.is_whole && unknown.rows.len() == 3, "{unknown:?}");
}

#[test]
fn what_graphs_keep_is_named_and_made_less() {
    let log = FULL.replace(
        "is allocated by PyTorch, and",
        "is allocated by PyTorch, with 12.10 GiB allocated in private pools (e.g., \
        CUDA Graphs), and",
    );
    let found = verdict(&format!("Epoch 1: loss 2.31\n{log}"), &[]);
    assert_eq!(found.advice[0].lever, Lever::EagerMode);
    assert!(found.evidence[1].contains("12.10 GiB of what is handed out lie in private pools"), "{:?}", found.evidence);
    let few = verdict(&format!("Epoch 1: loss 2.31\n{}", log.replace("12.10 GiB", "1.10 GiB")), &[]);
    assert_eq!(few.advice[0].lever, Lever::MicroBatch);
}

#[test]
fn a_server_that_fills_the_card_by_plan_needs_more() {
    let plan = "msg=\"offload to cuda\" layers.offload=20 memory.available=\"[7.4 GiB]\" memory.required.full=\"22.9 GiB\" \
                memory.required.partial=\"7.3 GiB\"\n";
    let error = "CUDA error: out of memory\n  cuMemCreate(&handle, reserve_size, &prop, 0)\nError: llama runner process has terminated\n";
    assert_eq!(verdict(&format!("{plan}{error}"), &[]).cause, Cause::Need);
    let whole = plan.replace("22.9", "5.9");
    assert_eq!(verdict(&format!("{whole}{error}"), &[]).cause, Cause::OutsideAllocator);
}

#[test]
fn a_first_try_that_a_run_got_over_is_no_error() {
    let refused = "E cuda_driver.cc:753] failed to allocate 7.51G (8064925696 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n";
    let goes_on = "Epoch 1/3\n100/100 [==============================] - 9s 81ms/step - loss: 0.61\n";
    assert!(explain(format!("{refused}{goes_on}").as_bytes(), &Context::default()).is_empty());
    assert_eq!(verdict(refused, &[]).line, 1);
}

#[test]
fn a_line_that_a_stack_quotes_resumes_nothing() {
    let call = |given: &str| {
        let train = format!("trainer.train(resume_from_checkpoint={given})");
        stack(&[("run_clm.py", "main", &train), ("trainer.py", "training_step", "loss.backward()")])
    };
    assert_ne!(verdict(&format!("{}{FULL}", call("checkpoint")), &[]).advice[0].lever, Lever::FreeCheckpoint);
    assert_eq!(verdict(&format!("{}{FULL}", call("True")), &[]).advice[0].lever, Lever::FreeCheckpoint);
}

#[test]
fn memory_that_grows_in_the_log_is_a_reason() {
    let grown = verdict(&format!("epoch 1 mem 4.1 GB\nepoch 2 mem 7.9 GB\nepoch 3 mem 11.8 GB\n{FULL}"), &[]);
    assert!(grown.evidence[1].contains("from 4.10 GiB to 11.80 GiB"), "{:?}", grown.evidence);
}

#[test]
fn a_step_that_needs_too_much_is_no_matter_of_pieces() {
    let settings = |batch: u32| {
        format!("batch_size = {batch}\nblock_size = 256\nn_layer = 6\nn_head = 6\nn_embd = 384\nvocab_size = 65\n")
    };
    let message = "Traceback (most recent call last):\n  File \"model.py\", line 87, in forward\n    x = self.gelu(x)\n\
        torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 23.69 GiB total capacity; 20.50 GiB \
        already allocated; 861.56 MiB free; 22.31 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try \
        setting max_split_size_mb to avoid fragmentation.\n";
    let told = |batch| verdict(message, &[("train.py", &settings(batch))]);
    let (large, small) = (told(2048), told(64));
    assert_eq!((large.cause, small.cause), (Cause::Need, Cause::Fragmentation));
    assert!(large.contributing.contains(&Cause::Fragmentation) && large.certainty <= 0.75);
    assert!(large.evidence.iter().any(|text| text.starts_with("by its settings a step takes")), "{:?}", large.evidence);
    assert_eq!((large.advice[0].lever, small.advice[0].lever), (Lever::MicroBatch, Lever::ExpandableSegments));
}
