//! Programs beside PyTorch's are told their own switches: arrays, tables, Apple's MLX, vectors on the processor, web servers, parts
//! of a card.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use lowtide_explain::{Cause, Context, Lever, Verdict, explain};

/// Calls and switches of PyTorch and of what is built on it.
const OF_TORCH: &[&str] = &[
    "torch",
    "device_map",
    "Transformers",
    "diffusers",
    "accumulation",
    "BitsAndBytes",
    "cache_implementation",
    "num_workers",
];

fn verdict(log: &str) -> Verdict {
    explain(log.as_bytes(), &Context::default()).into_iter().next().unwrap()
}

/// The advice of a log, all of it in one text.
fn told(log: &str) -> String {
    verdict(log).advice.into_iter().map(|advice| advice.text + "\n").collect()
}

fn check(log: &str, words: &[&str]) {
    let all = told(log);
    for word in words {
        assert!(all.contains(word), "{word} in {all}");
    }
    for word in OF_TORCH {
        assert!(!all.contains(word), "{word} in {all}");
    }
}

#[test]
fn arrays_of_cupy() {
    let stack = "Traceback (most recent call last):\n  File \"/w/sim.py\", line 22, in <module>\n    b = a @ a.T\n  File \
                 \"/env/site-packages/cupy/_creation/basic.py\", line 211, in zeros\n";
    let message = "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 12,800,000,000 bytes (allocated so far: 6,400,000,000 \
                   bytes";
    let ways = ["free_all_blocks", "malloc_managed", "in pieces"];
    check(&format!("{stack}{message}).\n"), &ways);
    check(
        &format!("{stack}{message}, limit set to: 8,000,000,000 bytes).\n"),
        &["set_limit", "7.45 GiB", "free_all_blocks"],
    );
    assert!(!told(&format!("{stack}{message}).\n")).contains("set_limit"));
}

#[test]
fn tables_of_cudf() {
    let stack = "Traceback (most recent call last):\n  File \"/w/etl.py\", line 22, in <module>\n    df = \
                 cudf.read_parquet(\"big.parquet\")\n  File \"/env/site-packages/cudf/io/parquet.py\", line 538, in read_parquet\n";
    let message = "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /env/include/rmm/mr/device/cuda_memory_resource.hpp:70: \
                   cudaErrorMemoryAllocation out of memory\n";
    check(&format!("{stack}{message}"), &["\"spill\", True", "managed_memory=True", "dask-cudf"]);
}

#[test]
fn answers_and_training_by_mlx() {
    let message = "libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] Command buffer execution \
                   failed: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)\n";
    let ways = ["--max-kv-size", "mx.clear_cache()", "mx.set_cache_limit"];
    check(&format!("$ mlx_lm.generate --model mlx-community/some-32B --prompt hi\n{message}"), &ways);
    let small = told(&format!("$ mlx_lm.generate --model mlx-community/some-32B-4bit --prompt hi\n{message}"));
    assert!(small.contains("in 4 bits already") && !small.contains("quantized model"), "{small}");
    let training = "$ mlx_lm.lora --model some --train --batch-size 4\nIter 10: Train loss 2.1\nRuntimeError: [malloc_or_wait] Unable \
                    to allocate 123456789 bytes.\n";
    let all = told(training);
    assert!(all.contains("--grad-checkpoint") && all.contains("mx.clear_cache()") && !all.contains("torch"), "{all}");
}

#[test]
fn vectors_on_the_processor() {
    let code = "from sentence_transformers import SentenceTransformer\n$ python embed.py\n";
    let encode = |batch: &str| {
        let frame =
            format!("  File \"/w/embed.py\", line 22, in <module>\n    vectors = model.encode(texts, {batch})\n");
        let refused = "RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: not enough memory: you tried to \
                       allocate 3221225472 bytes.\n";
        format!("{code}Traceback (most recent call last):\n{frame}{refused}")
    };
    check(&encode("batch_size=256"), &["batch_size 32 instead of 256", "in chunks"]);
    check(&encode("batch_size=16"), &["batch_size 8 instead of 16"]);
    check(&encode("show_progress_bar=True"), &["batch_size 8 in encode"]);
    let killed = format!(
        "{code}model.encode(texts, batch_size=512)\nBatches:  12%|#  | 120/1000 [01:00<07:00,  2.1it/s]\nKilled\n"
    );
    let verdict = verdict(&killed);
    assert_eq!([verdict.advice[0].lever, verdict.advice[1].lever], [Lever::FewerRequests, Lever::LoadInPieces]);
    check(&killed, &["batch_size 32 instead of 512"]);
}

#[test]
fn processes_of_a_web_server() {
    let killed = "[2024-05-01 10:01:00 +0000] [1] [ERROR] Worker (pid:7) was sent SIGKILL! Perhaps out of memory?\n";
    let ways = |log: String, words: &[&str]| {
        assert_eq!(verdict(&log).advice[0].lever, Lever::FewerWorkers);
        check(&log, words);
    };
    ways(format!("$ gunicorn -w 4 app:app\nLoading model...\n{killed}"), &["--workers 2 instead of 4", "--preload"]);
    ways(format!("Loading model...\n{killed}"), &["--workers 1", "--preload"]);
    let kernel =
        "[ 12.5] Out of memory: Killed process 10 (uvicorn) total-vm:22345678kB, anon-rss:12345678kB, file-rss:0kB\n";
    ways(format!("$ uvicorn app:app --workers 8\nLoading weights\n{kernel}"), &["--workers 4 instead of 8"]);
    let one = told(&format!("$ gunicorn --workers 1 app:app\n{killed}"));
    assert!(!one.contains("Fewer worker") && one.contains("--max-requests"), "{one}");
}

#[test]
fn a_part_of_a_card() {
    let line = "[HAMI-core ERROR (pid:61 thread=14021 allocator.c:60)]: Device 0 OOM 9663676416 / 8589934592\n";
    let found = verdict(line);
    assert_eq!((found.cause, found.advice[0].lever), (Cause::Limit, Lever::RaiseLimit));
    assert!(found.advice[0].text.contains("(it is 8.00 GiB): `nvidia.com/gpumem`"), "{}", found.advice[0].text);
}
