//! Advice names the calls and switches of the engine that ran out of memory, and of no other.

use lowtide_explain::{Advice, Context, explain};

/// Calls, settings and packages of PyTorch and of what is built on it.
const OF_TORCH: &[&str] = &[
    "torch",
    "PyTorch",
    "no_grad",
    "inference_mode",
    ".detach()",
    ".cpu()",
    ".item()",
    "save_on_cpu",
    "map_location",
    "low_cpu_mem_usage",
    "device_map",
    "load_state_dict",
    "num_workers",
    "DataLoader",
    "pin_memory",
    "prefetch_factor",
    "gradient_checkpointing",
    "bitsandbytes",
    "BitsAndBytes",
    "AdamW8bit",
    "xformers",
    "DeepSpeed",
    "FSDP",
    "Liger",
    "LoRA",
    "peft",
    "diffusers",
    "Transformers",
    "cache_implementation",
    "PYTORCH_",
    "lowtide run --reserve",
    "save_only_model",
    "fully_shard",
    "SyncBatchNorm",
    "CPUOffloadPolicy",
    "GradScaler",
    "autocast",
    "fused=True",
    "convert_to_numpy",
    "pipe.",
];

/// An engine's error, or a language's, in the words of a run of its own.
const ERRORS: &[(&str, &str)] = &[
    (
        "TensorFlow",
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[64,512,512,64] and \
         type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n",
    ),
    ("cuDNN under Keras", "from tensorflow import keras\nCould not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED\n"),
    (
        "the machine under Keras",
        "import tensorflow as tf\nnumpy.core._exceptions._ArrayMemoryError: Unable to allocate 54.5 GiB for an array with shape \
         (1000000, 7320) and data type float64\n",
    ),
    ("Keras, killed", "import keras\n./train.sh: line 3:  4127 Killed                  python fit.py\n"),
    (
        "JAX",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2684354560 bytes.\n",
    ),
    (
        "MXNet",
        "mxnet.base.MXNetError: [14:20:37] src/storage/./pooled_storage_manager.h:79: cudaMalloc failed: out of memory\n",
    ),
    (
        "Paddle",
        "ResourceExhaustedError: \n\nOut of memory error on GPU 0. Cannot allocate 1.500000GB memory on GPU 0, 10.500000GB memory \
         has been allocated and available memory is only 200.000000MB.\n",
    ),
    (
        "the driver under Paddle",
        "Traceback (most recent call last):\n  File \"/env/site-packages/paddle/framework/io.py\", line 964, in call\n    \
         x = f(x)\nRuntimeError: CUDA error: out of memory\n",
    ),
    (
        "MindSpore",
        "[ERROR] PRE_ACT(54175,fffdbcff91e0,python):2024-10-22-11:24:55.301.443 \
         [mindspore/ccsrc/backend/common/mem_reuse/mem_dynamic_allocator.cc:392] AddMemBlockAndMemBufByEagerFree] \
         TotalUsedMemStatistics : 29356337664 plus TotalUsedByEventMemStatistics : 0 and plus alloc size : 301990400 is more than \
         total mem size : 29464985600.\n",
    ),
    (
        "llama.cpp",
        "  Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes, VRAM: 24151 MiB\n\
         ggml_backend_cuda_buffer_type_alloc_buffer: allocating 39979.48 MiB on device 0: cudaMalloc failed: out of memory\n",
    ),
    (
        "ONNX Runtime",
        "2023-03-07 19:26:21.706256103 [E:onnxruntime:, sequential_executor.cc:494 ExecuteKernel] Non-zero status code returned while \
         running Attention node. Name:'Attention_0' Status Message: bfc_arena.cc:368 void* \
         onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory for requested buffer of size 15728896\n",
    ),
    (
        "Candle",
        "Error: DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")\n   0: candle_core::error::Error::bt\n",
    ),
    (
        "CuPy",
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 12,800,000,000 bytes (allocated so far: 6,400,000,000 bytes).\n",
    ),
    (
        "Chainer",
        "cupy.cuda.memory.OutOfMemoryError: out of memory to allocate 163840000 bytes (total 1673061376 bytes)\n",
    ),
    (
        "cuDF",
        "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /env/include/rmm/mr/device/cuda_memory_resource.hpp:70: \
         cudaErrorMemoryAllocation out of memory\n",
    ),
    (
        "MLX",
        "libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] Command buffer execution failed: \
         Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)\n",
    ),
    (
        "Julia",
        "ERROR: LoadError: CUDA error: out of memory (code #2, ERROR_OUT_OF_MEMORY)\nStacktrace:\n [1] macro expansion at \
         /home/user/.julia/packages/CUDAdrv/LC5XS/src/base.jl:147 [inlined]\n",
    ),
    (
        "Caffe",
        "F0308 14:02:12.180022  3410 syncedmem.cpp:56] Check failed: error == cudaSuccess (2 vs. 0)  out of memory\n",
    ),
    (
        "XGBoost",
        "Exception in gpu_hist: device_helpers.cuh:431: Memory allocation error on worker 0: std::bad_alloc: \
         cudaErrorMemoryAllocation: out of memory\n- Free memory: 8126464\n- Requested memory: 33554432\n",
    ),
    ("Rust", "memory allocation of 68719476736 bytes failed\nAborted (core dumped)\n"),
    ("Java", "Exception in thread \"main\" java.lang.OutOfMemoryError: Java heap space\n"),
    ("Node", "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory\n"),
    ("R", "Error: cannot allocate vector of size 61.9 Gb\nExecution halted\n"),
    ("R at its limit", "Error: vector memory exhausted (limit reached?)\n"),
    (
        "MATLAB",
        "Error using zeros\nRequested 100000x100000 (74.5GB) array exceeds maximum array size preference (31.9GB). This might cause \
         MATLAB to become unresponsive.\n",
    ),
    ("OneFlow", "RuntimeError: oneflow cuda out of memory, failed to allocate 1073741824 bytes\n"),
    ("wgpu", "wgpu error: Validation Error\n\nCaused by:\n  In Device::create_buffer\n    Not enough memory left.\n"),
    ("Burn", "thread 'main' panicked: out of device memory allocating 2048 bytes\n"),
    (
        "the pool that TensorFlow pins",
        "ResourceExhaustedError: OOM when allocating tensor with shape[64,512,512,64] and type float on \
         /job:localhost/replica:0/task:0/device:CPU:0 by allocator gpu_host_bfc\n",
    ),
    ("JAX, killed", "import jax.numpy as jnp\n./train.sh: line 3:  4127 Killed                  python fit.py\n"),
    ("Go", "fatal error: runtime: out of memory\n"),
];

/// What stands around an error: a training, an evaluation, a use, by the log, a stack or somebody's words.
const AROUND: &[&str] = &[
    "",
    "Epoch 1 loss 2.3\nstep 40 loss 2.1\n",
    "step 3 loss 2\n",
    "batch_size: 8\nEpoch 2 loss 2.3\n",
    "I only run inference with model.predict on one picture.\n",
    "Training works fine, but validation fails at once.\n",
    "It always stops at 5000 iterations of the training, whatever the size.\n",
    "The memory grows with every epoch of the training.\n",
    "I train it with a batch size of 1 and it still fails.\n",
    "I train a llama of 7B parameters, all weights, by full fine-tuning.\n",
    "Resuming the training from its last checkpoint fails at once.\n",
    "The processes of all ranks take memory of GPU 0.\n",
    "[rank0]: step 3 loss 2.1\n[rank1]: step 3 loss 2.1\nworld_size=8\n",
    "Another user is running a job on the card.\n",
    "It works once. On the second run it says:\n",
    "It works again after I restart the whole machine.\n",
    "Cell In[3], line 2\nepoch 1 loss 2.3\n",
    "loading weights\n",
    "Saving checkpoint to out\n",
    "step 5 loss 2.3\nSaving checkpoint to out\n",
    "Caching images: 20%\n",
    "shuffle buffer: 1359 of 2048\n",
    "I work on pictures of 4096x4096 pixels with this network.\n",
    "I register clouds with about 40K points each.\n",
    "Traceback (most recent call last):\n  File \"/w/train.py\", line 7, in train\n    loss = step(x, y)\n",
    "Traceback (most recent call last):\n  File \"/w/train.py\", line 7, in validate\n    scores.append(net(x))\n",
    "Traceback (most recent call last):\n  File \"/w/predict.py\", line 7, in predict\n    y = net(x)\n",
    "Traceback (most recent call last):\n  File \"/w/train.py\", line 7, in main\n    attn_weights = softmax(scores)\n",
    "Traceback (most recent call last):\n  File \"/w/train.py\", line 7, in save_checkpoint\n    pickle.dump(x, f)\n",
    "Traceback (most recent call last):\n  File \"/w/train.py\", line 7, in main\n    output = model.generate(ids)\n",
    "Traceback (most recent call last):\n  File \"/w/chat.py\", line 7, in main\n    output = model.generate(ids)\n",
    "Traceback (most recent call last):\n  File \"/w/app.py\", line 7, in main\n    model.to(device)\n",
    "Traceback (most recent call last):\n  File \"/w/app.py\", line 7, in main\n    vectors = model.encode(texts)\n",
    "whisper a.wav --model large\n",
    "I ask the llava model about a picture, by inference only.\n",
    "I make pictures with stable-diffusion on this card.\n",
    "Traceback (most recent call last):\n  File \"/w/upscale_esrgan.py\", line 7, in main\n    y = net(x)\n",
    "Traceback (most recent call last):\n  File \"/w/train.py\", line 7, in load_checkpoint\n    state = load(name)\n",
];

fn advice(log: &str) -> Vec<Advice> {
    let verdict = explain(log.as_bytes(), &Context::default()).into_iter().next();
    verdict.unwrap_or_else(|| panic!("nothing in {log}")).advice
}

#[test]
fn nobody_is_told_the_calls_of_another_engine() {
    let mut wrong = Vec::new();
    for (engine, error) in ERRORS {
        for around in AROUND {
            for log in [format!("{around}{error}"), format!("{error}{around}")] {
                let Some(verdict) = explain(log.as_bytes(), &Context::default()).into_iter().next() else { continue };
                for advice in verdict.advice {
                    let word = OF_TORCH.iter().find(|word| advice.text.contains(**word));
                    wrong.extend(word.map(|word| format!("{engine}: {word} in {:?}\n{around}", advice.text)));
                }
            }
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{} {wrong:#?}", wrong.len());
}

#[test]
fn every_error_is_read() {
    for (_, error) in ERRORS {
        assert!(!advice(error).is_empty());
    }
}
