//! Which programs and libraries a log shows by their own words: advice names their switches and not others'.

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use memchr::memmem;

/// Something that a log shows of the program it is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    /// Vectors are brought to fewer dimensions by UMAP, as topic models do.
    Umap,
    /// Somebody trains: epochs, losses, a trainer.
    Training,
    Comfy,
    Webui,
    /// The page for chats that is named like the one for pictures.
    ChatPage,
    Diffusers,
    /// Pictures are made by diffusion, by whatever program.
    Diffusion,
    /// Speech is turned into text.
    Speech,
    Generation,
    Vllm,
    Sglang,
    TextGenerationInference,
    TensorRtLlm,
    LmDeploy,
    Ollama,
    /// A server records CUDA graphs.
    GraphCapture,
    /// The model is being warmed up with as many requests as it may get at once.
    WarmUp,
    /// The cache of keys and values.
    KeyValueCache,
    /// The buffer that a server computes in.
    ComputeBuffer,
    /// Weights on their way to memory.
    Weights,
    /// Code that gets a model by its name.
    PretrainedWeights,
    Adapters,
    /// Answers are generated and then learnt from: GRPO, PPO.
    Rollouts,
    /// A share of the card is set for a server of a language model.
    ServerShare,
    /// Texts are turned into vectors.
    Embedding,
    /// Weights in 8 or 4 bits.
    Quantized,
    Fsdp,
    DeepSpeed,
    /// A notebook, whose kernel lives on after an error.
    Notebook,
    Fairseq,
    HuggingFaceTrainer,
    /// A trainer that comes with a library, whose loop is known to keep nothing.
    LibraryTrainer,
    Transformer,
    Torch,
    Tensorflow,
    Jax,
    Windows,
    /// A library of PyTorch's could not be loaded.
    LibraryLoad,
    /// A Python or an R of 32 bits, which has few addresses.
    NarrowPython,
    Wsl,
    /// A container, a pod or a job of a scheduler, with limits of its own.
    Container,
    /// Words and sentences are what goes in.
    Language,
    /// Recordings of speech or music are what goes in.
    Sound,
    /// Pictures or films are made larger.
    Upscaling,
    /// The first scripts for latent diffusion, and what is built on them.
    LatentDiffusion,
    /// A language model is asked about pictures.
    PictureQuestion,
    /// llama.cpp and what is built on ggml.
    Ggml,
    /// A package is being installed.
    Install,
    /// A compiler or a build of several jobs.
    Build,
    /// Hugging Face's datasets are being made or mapped.
    DatasetMap,
    /// Pictures of the whole data set were being put into memory.
    DataCache,
    /// Samples wait in a buffer: experience for a learner, rows to be shuffled.
    SampleBuffer,
    /// TensorFlow was making a weight or a moment.
    NewWeights,
    /// Weights are read through buffers of pinned memory.
    PinnedBuffer,
    /// DeepSpeed shares out moments and gradients, and not the weights.
    ZeroTwo,
    /// Julia or Lua, to whom no call of Python is advice.
    OtherLanguage,
    /// Files of genomes and reads are what goes in.
    Genomes,
    /// A kernel found an index or a value that cannot be, and the device does nothing more for this process.
    DeviceAssertion,
    /// MONAI's way over a volume, window by window, whose outputs are kept.
    SlidingWindow,
    /// A size of batches is set.
    Batch,
    /// Somebody asked for fp32 where half precision is usual.
    FullPrecision,
    /// The text of an evaluation by Lightning, Hugging Face or nanoGPT, which keep no graph.
    WithoutGraph,
    /// PyTorch warns that `volatile=True`, by which old scripts kept no graph, does nothing any more.
    VolatileGone,
    /// Host memory was pinned for the allocator to fall back on.
    Reserve,
}

/// Words of each, as programs write them.
const WORDS: &[(Sign, &[&str])] = &[
    (Sign::Umap, &["umap", "UMAP", "top2vec", "BERTopic"]),
    (
        Sign::Training,
        &[
            "unning training",
            "epoch",
            "Epoch",
            "train.py",
            "train_",
            "_train",
            "finetune",
            "training_step",
            "loss",
            ".backward(",
            "optimizer.step(",
            "iter ",
            "Iter ",
            "minibatch",
            "micro_batch_size",
            "gradient_accumulation",
        ],
    ),
    (
        Sign::Comfy,
        &["ComfyUI", "comfyui", "/comfy/", "\\comfy\\", "Prompt executed in", "!!! Exception during processing"],
    ),
    (Sign::ChatPage, &["text-generation-webui", "oobabooga"]),
    (
        Sign::Webui,
        &[
            "stable-diffusion-webui",
            "sd-webui",
            "sd.webui",
            "webui_forge",
            "webui-user",
            "utomatic1111",
            "UTOMATIC1111",
            "A1111",
            "call_queue.py",
            "txt2img",
            "img2img",
            "process_images(",
            "Fooocus",
            "use lower resolution (max approx",
        ],
    ),
    (
        Sign::Diffusers,
        &[
            "/diffusers/",
            "diffusers/pipelines",
            "Loading pipeline components",
            "= pipe(",
            "pipe.to(",
            "pipe.enable_",
            "from diffusers",
            "DiffusionPipeline.from_pretrained",
        ],
    ),
    (
        Sign::Diffusion,
        &[
            "diffusers",
            "AutoencoderKL",
            "LatentDiffusion",
            "table-diffusion",
            "table Diffusion",
            "dreambooth",
            "controlnet",
            "ControlNet",
            "num batches per epoch",
            "latents",
            "diffusion_model.",
            "VAE",
            "KSampler",
            "kohya",
            "ldm/m",
            "sd-scripts",
            "sdxl",
            "SDXL",
            "sd_xl",
            "networks.lora",
            "Wan2.",
            "wan2",
            "i2v-",
            "t2v-",
            "HunyuanVideo",
            "hunyuan_video",
            "CogVideo",
            "cogvideo",
            "LTX-Video",
            "FLUX.1",
        ],
    ),
    (Sign::Speech, &["hisper", "ctranslate2", "CUDA failed with error out of memory"]),
    (
        Sign::Generation,
        &[
            ".generate(",
            "in generate",
            "transformers/generation",
            "text_generation",
            "text2text_generation",
            "max_new_tokens",
            // Programs that try what a language model knows.
            "lm_eval",
            "lm-eval",
            "lm-evaluation-harness",
            "opencompass",
            "lighteval",
        ],
    ),
    (
        Sign::Vllm,
        &[
            "/vllm/",
            "VllmWorker",
            "vllm serve",
            "vllm.entrypoints",
            "vLLM instance",
            "vLLM API server",
            "vLLM engine",
            "from vllm import",
            "gpu_memory_utilization=",
            "EngineCore",
            "gpu_model_runner.py",
            "vllm_config",
        ],
    ),
    (
        Sign::Sglang,
        &[
            "sglang",
            "sgl-workspace",
            "mem-fraction-static",
            "mem_fraction_static",
            "Received sigquit from a child process",
        ],
    ),
    (
        Sign::TextGenerationInference,
        &["text_generation_server", "text-generation-server", "text_generation_launcher", "text_generation_router"],
    ),
    (Sign::TensorRtLlm, &["TensorRT-LLM", "tensorrt_llm"]),
    (Sign::LmDeploy, &["lmdeploy", "turbomind"]),
    (Sign::Ollama, &["ollama", "Ollama", "llama runner", "source=server.go", "source=memory.go", "source=sched.go"]),
    (
        Sign::GraphCapture,
        &[
            "raph capturing",
            "apturing CUDA graph",
            "apture cuda graph",
            "apturing cuda graph",
            "apturing cudagraph",
            "capture_model",
            "cuda_graph_runner",
        ],
    ),
    (Sign::WarmUp, &["warming up sampler", "warmup", "profile_run", "dummy_sampler_run", "dummy requests"]),
    (Sign::KeyValueCache, &["kv cache", "kv_cache", "KV cache", "KV self size", "KV buffer"]),
    (Sign::ComputeBuffer, &["compute buffer", "gallocr_reserve", "graph_reserve"]),
    (
        Sign::Weights,
        &[
            "load_tensors",
            "error loading model",
            "oading checkpoint shards",
            "oading model",
            "oad weight",
            "loading weights",
        ],
    ),
    (Sign::PretrainedWeights, &[".from_pretrained("]),
    (
        Sign::Adapters,
        &[
            "trainable params:",
            "/peft/",
            "LoraConfig",
            "lora_r",
            "use_lora",
            "LoRA",
            "LORA",
            "qlora",
            "QLoRA",
            "lora_target",
            "lora_weights",
            "lora_rank",
            "finetuning_type lora",
            "finetuning_type: lora",
            "finetuning_type\": \"lora",
        ],
    ),
    (
        Sign::Rollouts,
        &["GRPO", "grpo", "num_generations", "PPOTrainer", "ppo_trainer", "/verl/", "verl.trainer", "main_ppo"],
    ),
    (Sign::ServerShare, &["gpu_memory_utilization", "gpu-memory-utilization"]),
    (Sign::Embedding, &["SentenceTransformer", "sentence_transformers", "convert_to_tensor=True"]),
    (Sign::Quantized, &["bitsandbytes", "load_in_4bit", "load_in_8bit", "GPTQ", "gptq", "AWQ", "awq", "4bit", "nf4"]),
    (Sign::Fsdp, &["fsdp", "FSDP", "fully_sharded"]),
    (Sign::DeepSpeed, &["deepspeed", "DeepSpeed", "zero_stage", "zero_optimization"]),
    (Sign::Notebook, &["ipython-input", "Cell In[", "Input In [", "/content/", "upyter", "%%bash", "olab"]),
    (Sign::Fairseq, &["fairseq", "max tokens per GPU", "max-tokens"]),
    (
        Sign::HuggingFaceTrainer,
        &[
            "transformers/trainer.py",
            "***** Running training *****",
            "***** Running Evaluation *****",
            "***** Running Prediction *****",
            "TrainingArguments",
            "train_runtime",
            "{'loss': ",
            "'grad_norm': ",
        ],
    ),
    (
        Sign::LibraryTrainer,
        &[
            "ultralytics",
            "yolo train",
            "GPU_mem",
            "gpu_mem ",
            "mmdet",
            "mmseg",
            "mmengine",
            "detectron2",
            "nnunet",
            "nnUNet",
            "transformers/trainer.py",
            "fairseq",
            "espnet",
        ],
    ),
    (
        Sign::Transformer,
        &[
            "transformers",
            "attention",
            "attn",
            "Attention",
            "gpt",
            "GPT",
            "llama",
            "Llama",
            "bert",
            "token",
            "diffusers",
            "transformer",
            "mistral",
            "Mistral",
            "wen2",
            "wen3",
            "hatglm",
            "hatGLM",
            "-t5",
            "t5-",
            "aichuan",
            "bloomz",
            "vicuna",
            "internlm",
            "InternLM",
            "seq_len",
            "/peft/",
            "/trl/",
            "trainable params:",
            // What Hugging Face's Trainer prints.
            "{'loss': ",
        ],
    ),
    (
        Sign::Windows,
        &["WinError", ":\\Users\\", "\\site-packages\\", "\\lib\\", "..\\aten\\", "..\\c10\\", "..\\caffe2\\"],
    ),
    (Sign::LibraryLoad, &["Error loading \""]),
    (Sign::NarrowPython, &["-32\\lib\\", "-32\\Lib\\", "-32\\Scripts\\", "machine has a 4Gb address"]),
    (Sign::Torch, &["torch"]),
    (Sign::Reserve, &["of host memory pinned in", "of host memory, used", "of host memory, not used"]),
    (Sign::Tensorflow, &["tensorflow", "keras"]),
    (Sign::Jax, &["jaxlib", "/jax/", "jax."]),
    (Sign::Wsl, &["WSL", "wsl"]),
    (
        Sign::Container,
        &[
            "limits:",
            "CrashLoopBackOff",
            "OOMKilled",
            "exitCode:",
            "kubectl",
            "docker run",
            "docker compose",
            "docker-compose",
            "in docker",
            "the docker",
            "docker环境",
            "docker容器",
            "exited with code 137",
            "Command exit status:",
            "mem_limit",
            "limits.memory",
            "slurm",
            "sbatch",
            "#SBATCH",
            "nextflow",
            "Nextflow",
            "snakemake",
        ],
    ),
    (
        Sign::Language,
        &[
            "allennlp",
            "parlai",
            "ParlAI",
            "OpenNMT",
            "onmt",
            "seq2seq",
            "fairseq",
            "sentence",
            "spacy",
            "flair",
            "Flair",
            "torchtext",
            "perplexity",
            "max_input_length",
            "max_source_length",
            "max_target_length",
            "max_output_length",
        ],
    ),
    (
        Sign::Sound,
        &[
            "espnet",
            "wav2vec",
            "asr_train",
            "tacotron",
            "acotron2",
            "fastspeech",
            "astSpeech",
            "hifigan",
            "LJSpeech",
            "librispeech",
            "LibriSpeech",
            "demucs",
            "so-vits",
            "sovits",
            "SoVITS",
            "svc infer",
            "_tts",
            "tts_",
            "TTS",
            "kaldi",
        ],
    ),
    (
        Sign::Upscaling,
        &["esrgan", "ESRGAN", "SwinIR", "waifu2x", "pscaler", "--tile", "super_resolution", "uperResolution"],
    ),
    (Sign::LatentDiffusion, &["ldm/m"]),
    (Sign::PictureQuestion, &["_vl/", "_vl.py", "-VL-", "mlx_vlm", "llava", "LLaVA", "pixel_values", "max_pixels"]),
    (Sign::Ggml, &["llama.cpp", "ggml", "GGML"]),
    (Sign::Install, &["\nCollecting ", ".whl (", "pip/_internal", "pip/_vendor", "pip\\_internal", "pip\\_vendor"]),
    (Sign::Build, &["ninja: build stopped", "uilding wheel", "cc1plus", "'cicc' died", "make: ***", "CMakeFiles/"]),
    (Sign::DataCache, &["Caching images", "CacheDataset", "_fill_cache", "cache_rate"]),
    (Sign::SampleBuffer, &["shuffle buffer", "eplay buffer", "ReplayBuffer", "replay_capacity", "SubprocVecEnv"]),
    (Sign::NewWeights, &["/Initializer/", "/Assign (defined", "/Assign}}", "/Assign = Assign["]),
    (Sign::PinnedBuffer, &["HostBuffer."]),
    (
        Sign::ZeroTwo,
        &[
            "zero2",
            "zero-2",
            "ZeRO-2",
            "zero_stage: 2",
            "\"stage\": 2",
            "ds_z2",
            "zero stage2",
            "zero stage 2",
            "ZeRO stage 2",
            "ZeRO Stage 2",
        ],
    ),
    (Sign::OtherLanguage, &[".julia/", "luajit"]),
    (Sign::VolatileGone, &["volatile was removed"]),
    (Sign::SlidingWindow, &["sliding_window_inference"]),
    (Sign::DeviceAssertion, &["device-side assert", "] Assertion `", "index out of range in self"]),
    (Sign::Genomes, &[".fasta", ".fastq", ".fa ", ".fq ", ".fna", ".bam"]),
    (
        Sign::Batch,
        &["batch_size", "batch-size", "batchsize", "batch size", "BATCH_SIZE", "atchSize", "--batch ", " -b "],
    ),
    (Sign::DatasetMap, &["examples/s", "examples [", "dataset.map", "map operation", "datasets/arrow_"]),
    (Sign::FullPrecision, &["--no-half", "--precision full", "dtype=torch.float32"]),
    (
        Sign::WithoutGraph,
        &["evaluation_loop", "estimate_loss", "validation_step", "no_grad", "inference_mode", "decorate_context"],
    ),
];

/// Texts up to this size are looked through word by word: that takes less time than to build the search.
const SHORT: usize = 8 << 10;

/// The signs that a log shows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signs(Vec<Sign>);

impl Signs {
    /// Looks through some text.
    pub(crate) fn note(&mut self, text: &str) {
        if self.0.len() == WORDS.len() {
            return;
        }
        if text.len() <= SHORT {
            let shown =
                |words: &[&str]| words.iter().any(|word| memmem::find(text.as_bytes(), word.as_bytes()).is_some());
            for (sign, words) in WORDS {
                if !self.has(*sign) && shown(words) {
                    self.0.push(*sign);
                }
            }
            return;
        }
        let (search, signs) = search();
        for found in search.find_overlapping_iter(text) {
            let sign = signs[found.pattern().as_usize()];
            if !self.has(sign) {
                self.0.push(sign);
            }
        }
    }

    /// Looks at a setting for what changes where memory goes; its other words say nothing of a program.
    pub(crate) fn note_of_memory(&mut self, setting: &str) {
        let of_memory = [Sign::Adapters, Sign::Quantized, Sign::Fsdp, Sign::DeepSpeed, Sign::ZeroTwo];
        for (sign, words) in WORDS.iter().filter(|(sign, _)| of_memory.contains(sign)) {
            if !self.has(*sign) && words.iter().any(|word| setting.contains(word)) {
                self.0.push(*sign);
            }
        }
    }

    pub(crate) fn has(&self, sign: Sign) -> bool {
        self.0.contains(&sign)
    }
}

/// The search for all words at once, and the sign of each.
fn search() -> &'static (AhoCorasick, Vec<Sign>) {
    static SEARCH: OnceLock<(AhoCorasick, Vec<Sign>)> = OnceLock::new();
    SEARCH.get_or_init(|| {
        let pairs = || WORDS.iter().flat_map(|(sign, words)| words.iter().map(move |word| (*sign, *word)));
        // What is searched is short: building would take longer than searching with the faster kinds.
        let search = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::NoncontiguousNFA))
            .build(pairs().map(|(_, word)| word))
            .expect("a short list of literals always builds");
        (search, pairs().map(|(sign, _)| sign).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_their_words() {
        for (text, sign) in [
            ("Prompt executed in 188.48 seconds", Sign::Comfy),
            (
                "  File \"/env/lib/python3.12/site-packages/diffusers/pipelines/pipeline_utils.py\", line 5, in to",
                Sign::Diffusers,
            ),
            ("(EngineCore_DP0 pid=8842) ERROR", Sign::Vllm),
            ("INFO 03-27 14:22:08 [gpu_model_runner.py:1425] Graph capturing: 61%", Sign::GraphCapture),
            ("trainable params: 4,194,304 || all params: 6,742,609,920", Sign::Adapters),
        ] {
            let mut signs = Signs::default();
            signs.note(text);
            assert!(signs.has(sign), "{text}: {signs:?}");
        }
        let mut signs = Signs::default();
        signs.note("2026-01-02 all is well\n");
        assert!(signs.0.is_empty(), "{signs:?}");
    }

    #[test]
    fn a_short_text_shows_what_a_long_one_does() {
        for (sign, words) in WORDS {
            for word in *words {
                let (mut short, mut long) = (Signs::default(), Signs::default());
                short.note(word);
                long.note(&format!("{word}{:SHORT$}", ""));
                let all = |signs: &Signs| WORDS.iter().filter(|(sign, _)| signs.has(*sign)).count();
                assert!(short.has(*sign) && all(&short) == all(&long), "{word}: {short:?} {long:?}");
            }
        }
    }
}
