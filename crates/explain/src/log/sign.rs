//! Which programs and libraries a log shows by their own words: advice names their switches and not others'.

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use lowtide_oom::LateTable;
use memchr::memmem;

use super::sign_context::{Reading, depends, reading};
use super::sign_words::WORDS;

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
    /// Layers that look at their whole batch.
    BatchNorm,
    /// Spark, whose drivers and executors are programs of Java.
    Spark,
}

/// Few texts up to this size are looked through word by word: that takes less time than to build the search.
const SHORT: usize = 8 << 10;
const FEW: usize = 24;

/// The signs that a log shows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signs {
    shown: Vec<Sign>,
    /// Those that only settings or sentences show, which say nothing where the switch itself is off.
    perhaps: Vec<Sign>,
    /// Those whose switch is off.
    off: Vec<Sign>,
    /// How many words of each were looked at that showed nothing.
    vain: Vec<(Sign, u32)>,
}

/// After so many words of a sign that show nothing, its words of everyday are left alone: no log is looked at for long.
const MOST_IN_VAIN: u32 = 1024;

impl Signs {
    /// Looks through some text.
    pub(crate) fn note(&mut self, text: &str) {
        if self.shown.len() == WORDS.len() {
            return;
        }
        static SEARCH: LateTable<Search> = LateTable::after(FEW);
        let search = if text.len() > SHORT { Some(SEARCH.now(search)) } else { SEARCH.get(search) };
        match search {
            Some(search) => self.note_by(search, text),
            None => self.note_word_by_word(text),
        }
    }

    fn note_word_by_word(&mut self, text: &str) {
        for (sign, words) in WORDS {
            for word in *words {
                let mut places = memmem::find_iter(text.as_bytes(), word.as_bytes());
                while !self.shown.contains(sign)
                    && let Some(at) = places.next()
                {
                    self.note_at(*sign, word, text, at);
                }
            }
        }
    }

    fn note_by(&mut self, (search, pairs): &Search, text: &str) {
        for found in search.find_overlapping_iter(text) {
            let (sign, word) = pairs[found.pattern().as_usize()];
            if !self.shown.contains(&sign) {
                self.note_at(sign, word, text, found.start());
            }
        }
    }

    fn note_at(&mut self, sign: Sign, word: &str, text: &str, at: usize) {
        if depends(sign) && self.vain.iter().any(|(known, count)| *known == sign && *count > MOST_IN_VAIN) {
            return;
        }
        let reading = reading(sign, word, text, at);
        let list = match reading {
            Reading::Nothing => return self.count_in_vain(sign),
            Reading::Off => &mut self.off,
            Reading::Perhaps => &mut self.perhaps,
            Reading::Shown => &mut self.shown,
        };
        match list.contains(&sign) {
            true => self.count_in_vain(sign),
            false => list.push(sign),
        }
    }

    fn count_in_vain(&mut self, sign: Sign) {
        match self.vain.iter_mut().find(|(known, _)| *known == sign) {
            Some((_, count)) => *count += 1,
            None => self.vain.push((sign, 1)),
        }
    }

    /// Looks at a setting for what changes where memory goes; its other words say nothing of a program.
    pub(crate) fn note_of_memory(&mut self, setting: &str) {
        let of_memory = [Sign::Adapters, Sign::Quantized, Sign::Fsdp, Sign::DeepSpeed, Sign::ZeroTwo];
        for (sign, words) in WORDS.iter().filter(|(sign, _)| of_memory.contains(sign)) {
            for word in words.iter() {
                setting.match_indices(word).for_each(|(at, _)| self.note_at(*sign, word, setting, at));
            }
        }
    }

    /// Whether more than a setting or a sentence shows it.
    pub(crate) fn has_surely(&self, sign: Sign) -> bool {
        self.shown.contains(&sign)
    }

    pub(crate) fn has(&self, sign: Sign) -> bool {
        self.shown.contains(&sign) || self.perhaps.contains(&sign) && !self.off.contains(&sign)
    }
}

/// A search for all words at once, and the sign of each.
type Search = (AhoCorasick, Vec<(Sign, &'static str)>);

fn search() -> Search {
    let pairs = || WORDS.iter().flat_map(|(sign, words)| words.iter().map(move |word| (*sign, *word)));
    // What is searched is short: building would take longer than searching with the faster kinds.
    let search = AhoCorasick::builder()
        .kind(Some(AhoCorasickKind::NoncontiguousNFA))
        .build(pairs().map(|(_, word)| word))
        .expect("a short list of literals always builds");
    (search, pairs().collect())
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
        assert!(signs.shown.is_empty(), "{signs:?}");
    }

    #[test]
    fn what_is_off_is_not_shown() {
        let of = |text: &str| {
            let mut signs = Signs::default();
            signs.note(text);
            signs
        };
        let arguments = "TrainingArguments(\ndeepspeed=None,\nfsdp=[],\nfsdp_config={'min_num_params': 0, 'xla': False},\n\
            fsdp_min_num_params=0,\nfsdp_transformer_layer_cls_to_wrap=None,\n";
        let signs = of(arguments);
        assert!(!signs.has(Sign::Fsdp) && !signs.has(Sign::DeepSpeed), "{signs:?}");
        let signs = of("Namespace(load_in_4bit=False, load_in_8bit=False, lora_r=8, use_lora=False)");
        assert!(!signs.has(Sign::Adapters) && !signs.has(Sign::Quantized), "{signs:?}");
        for (text, sign) in [
            ("Namespace(lora_r=8, lora_alpha=16)", Sign::Adapters),
            ("Namespace(load_in_4bit=True, load_in_8bit=False)", Sign::Quantized),
            ("fsdp_config:\n  fsdp_state_dict_type: FULL_STATE_DICT", Sign::Fsdp),
        ] {
            assert!(of(text).has(sign), "{text}");
        }
    }

    #[test]
    fn a_search_shows_what_the_words_do() {
        let search = search();
        for (sign, words) in WORDS {
            for word in *words {
                let (mut short, mut long) = (Signs::default(), Signs::default());
                short.note_word_by_word(word);
                long.note_by(&search, word);
                let all = |signs: &Signs| WORDS.iter().filter(|(sign, _)| signs.has(*sign)).count();
                // Everyday words show nothing by themselves.
                let is_shown = short.has(*sign) || reading(*sign, word, word, 0) == Reading::Nothing;
                assert!(is_shown && all(&short) == all(&long), "{word}: {short:?} {long:?}");
            }
        }
    }
}
