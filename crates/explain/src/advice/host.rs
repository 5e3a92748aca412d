//! Levers for the machine's memory. Which ones follows from where the stack ends: what computes is a matter of the batch,
//! what reads data one of the reader.

use lowtide_core::Bytes;
use lowtide_log::StackFrame;
use lowtide_oom::{Certainty, Engine, Source};

use super::case::Case;
use super::framework::Framework;
use super::inference::Inference;
use super::list::{ALL, List};
use super::reading::EXPERIENCE;
use crate::Activity;
use crate::Lever;
use crate::cause::is_of_node;
use crate::code_line::is_internal;
use crate::facts::Key;
use crate::log::Sign;

/// What a stack goes through where data is read as a whole.
const READERS: &[&str] = &[
    "np.load",
    "numpy.load",
    "read_csv",
    "read_parquet",
    "read_json",
    "pd.read",
    "pickle.load",
    "json.load",
    ".read()",
    "readlines",
    "load_dataset",
    "torch/utils/data",
    "DataLoader",
    "__getitem__",
    "dataset",
    "Dataset",
    "imread",
    "h5py",
];
/// What a stack goes through where tensors are computed.
const COMPUTES: &[&str] = &[
    "forward",
    "backward",
    "nn/functional",
    "torch/nn/",
    "gelu",
    "relu",
    "matmul",
    "model(",
    "conv",
    "attention",
    "attn",
    "torch.cat(",
];

/// What the machine's memory was taken by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taker {
    /// A step: its batch.
    Step,
    /// Weights on their way in.
    Weights,
    /// A checkpoint on its way out.
    State,
    /// Data, which grows from step to step or is read as a whole.
    Data,
    /// Outputs of an evaluation.
    Outputs,
    /// The log does not tell.
    Unknown,
}

impl Case<'_> {
    /// Whether rows were being made or mapped; training begins afterwards.
    fn maps_a_dataset(&self) -> bool {
        self.shows(Sign::DatasetMap) && self.step.is_none() && !self.facts.log.has_progress
    }

    /// The last three frames, and what is compiled between them and below.
    fn last_frames(&self) -> impl Iterator<Item = &StackFrame> {
        let written = self.frames.iter().enumerate().rev().filter(|(_, frame)| !is_internal(frame));
        let first = written.take(3).last().map_or(0, |(index, _)| index);
        self.frames[first..].iter()
    }

    fn taker(&self) -> Taker {
        let is_allocator = matches!(self.oom.source, Source::Allocator | Source::Heap);
        let last_reads = self.last_frames().any(|frame| {
            READERS
                .iter()
                .any(|word| frame.code.contains(word) || frame.function.contains(word) || frame.file.contains(word))
        });
        match self.activity {
            Some(Activity::Saving) => Taker::State,
            Some(Activity::Loading) => Taker::Weights,
            _ if last_reads || self.passes(EXPERIENCE) || self.shows(Sign::SampleBuffer) => Taker::Data,
            _ if self.shows(Sign::DataCache) && self.step.is_none() => Taker::Data,
            Some(Activity::Evaluation) => Taker::Outputs,
            _ if is_allocator && self.evaluates_by_name() => Taker::Outputs,
            _ if is_allocator && self.frames.is_empty() && self.is_said_to_evaluate() => Taker::Outputs,
            Some(Activity::Training | Activity::Optimizer) if is_allocator => Taker::Step,
            _ if self.passes(COMPUTES) => Taker::Step,
            // PyTorch's allocator serves tensors: without a stack, those of a step.
            _ if is_allocator && matches!(self.oom.engine, Engine::PyTorch | Engine::Paddle) => Taker::Step,
            _ if is_allocator && self.oom.engine == Engine::Tensorflow && self.names_a_batch() => Taker::Step,
            _ if self.step.is_some() && self.trains() => Taker::Data,
            _ if self.shows(Sign::Weights) => Taker::Weights,
            _ if self.shows(Sign::PretrainedWeights) && !self.trains() => Taker::Weights,
            _ => Taker::Unknown,
        }
    }
}

impl Case<'_> {
    /// Whether a batch is set, or the tensor that was refused is of several samples.
    fn names_a_batch(&self) -> bool {
        self.shows(Sign::Batch) || self.message.split("shape[").skip(1).any(is_of_samples)
    }

    /// Whether much data goes in, as somebody tells or its files show, and a program that trains nothing was refused memory for it.
    fn takes_much_data(&self) -> bool {
        let is_refused = matches!(self.oom.source, Source::Allocator | Source::Heap);
        let is_told = self.narrative().names_large_data || self.shows(Sign::Genomes) && is_refused;
        is_told && !self.trains()
    }

    /// Whether Windows refused for want of a page file, by the number of its error.
    fn lacks_page_file(&self) -> bool {
        let names = ["WinError 1455", "os error 1455", "error code 1455"];
        self.oom.engine == Engine::Windows || names.iter().any(|name| self.message.contains(name))
    }

    /// Whether the processor turns texts into vectors.
    fn encodes_texts(&self) -> bool {
        self.makes_vectors() && self.activity != Some(Activity::Loading) && !self.shows(Sign::HuggingFaceTrainer)
    }
}

/// `16,19,19,1024] and type float`: several samples; `3,3,512,512` are weights of a convolution.
fn is_of_samples(shape: &str) -> bool {
    let shape = shape.split(']').next().unwrap_or_default();
    let sizes: Vec<u64> = shape.split(',').filter_map(|size| size.trim().parse().ok()).collect();
    match *sizes {
        [height, width, _, _] if height == width && height <= 11 => false,
        [samples, _, _, ..] => samples > 1,
        _ => false,
    }
}

impl List<'_> {
    pub(super) fn host(&mut self) {
        let case = self.case;
        if self.installation() {
            return;
        }
        let is_worker = case.activity == Some(Activity::DataWorker) || case.oom.source == Source::DataWorker;
        if case.lacks_page_file() {
            self.page_file();
            self.workers();
            self.micro_batch();
            self.data_cache();
            return;
        }
        // A library takes little memory and many addresses: where it cannot be mapped, a limit of addresses stands in the way.
        if case.facts.log.address_limit.is_some() || case.message.contains("failed to map segment") {
            self.process_limit();
        }
        if case.shows(Sign::NarrowPython) {
            let program = if case.oom.engine == Engine::R { "R" } else { "Python" };
            let text = format!(
                "Install a 64-bit {program}: this one has 32 bits, and a process of 32 bits has 2 to 4 GiB of addresses, however much \
                 memory the machine has"
            );
            self.add(Lever::RaiseLimit, text, ALL);
        }
        // What no machine lacks was refused by R's own limit; more than that may have been the machine's memory.
        let is_crumb = || case.oom.requested.is_none_or(|asked| asked < Bytes::from_mib(64));
        if let Some(heap) = case.judgement.heap.filter(|heap| !heap.is_open() || is_crumb()) {
            return self.own_heap(heap);
        }
        if case.loses_a_web_worker() {
            if case.shows(Sign::Container) {
                self.limit();
            }
            self.fewer_web_workers();
            return self.look_at_the_kernel();
        }
        match case.oom.source {
            // TensorFlow's pool of pinned memory.
            Source::Allocator
                if matches!(case.oom.engine, Engine::Tensorflow | Engine::Xla) && case.oom.limit.is_some() =>
            {
                self.limit();
                self.by_taker();
            }
            // What NCCL shares is not of data workers.
            Source::SharedMemory if case.oom.engine == Engine::Cuda => return self.shared_by_ranks(),
            Source::SharedMemory => {
                self.shared_memory();
                self.workers();
            }
            Source::Runtime => {
                self.no_pinned_memory();
                self.workers();
                self.micro_batch();
            }
            Source::Scheduler if case.oom.engine == Engine::Ray => {
                self.fewer_tasks();
                self.by_taker();
            }
            Source::Scheduler if is_of_node(case.oom) => {
                self.larger_request();
                self.by_taker();
            }
            Source::Cgroup | Source::Scheduler => {
                self.limit();
                self.join(Lever::RaiseLimit, &[Lever::MoreMemory], "; or a machine with more memory");
                if is_worker || case.has_many_workers() {
                    self.workers();
                    self.less_data_beside_workers();
                }
                self.by_taker();
            }
            Source::ExitStatus | Source::Heap
                if case.shows(Sign::Container) && matches!(case.oom.engine, Engine::Unknown | Engine::Linux) =>
            {
                self.limit();
                self.join(Lever::RaiseLimit, &[Lever::MoreMemory], "; or a machine with more memory");
                if case.has_many_workers() {
                    self.workers();
                }
                self.by_taker();
            }
            _ if is_worker && case.loses_a_mapper() => {
                self.fewer_mappers();
                self.more_memory();
            }
            _ if is_worker => {
                // A worker that is gone without a word, in a container, has mostly met the end of its small /dev/shm.
                if case.shows(Sign::Container) && case.oom.certainty == Certainty::Slight {
                    self.shared_memory();
                }
                self.workers();
                self.less_data_beside_workers();
                self.more_memory();
                self.data_cache();
            }
            _ => self.by_taker(),
        }
        self.more_memory();
        if !case.encodes_texts() {
            if case.feeds_a_training() {
                self.workers();
            }
            self.data_cache();
        }
        if matches!(case.oom.source, Source::Allocator | Source::Heap) && !case.shows(Sign::Windows) {
            self.process_limit();
        }
        self.look_at_the_kernel();
    }

    /// Whether it was the kernel, where nobody says so.
    fn look_at_the_kernel(&mut self) {
        if self.case.oom.source == Source::ExitStatus {
            self.add(
                Lever::CheckLog,
                "Check whether the kernel killed it: dmesg -T | grep -i 'killed process', or sacct -j JOB --format=State,MaxRSS",
                ALL,
            );
        }
    }

    fn by_taker(&mut self) {
        if self.case.encodes_texts() {
            return self.fewer_texts();
        }
        let taker = self.case.taker();
        if self.case.maps_a_dataset() && !matches!(taker, Taker::Step | Taker::Weights | Taker::State) {
            self.smaller_writer();
        }
        if taker != Taker::Data {
            self.smaller_type();
        }
        match taker {
            Taker::Step if Inference::of(&self.case).is_some() => {
                self.smaller_input();
                let words = "; and what is read whole (an index, a table) in pieces";
                self.join(Lever::SmallerInput, &[Lever::LoadInPieces], words);
                self.more_memory();
            }
            Taker::Step => {
                self.micro_batch();
                if self.case.culprit.is_none() {
                    self.smaller_samples();
                }
                self.more_memory();
                self.recompute();
            }
            Taker::Weights => {
                self.more_memory();
                self.add(Lever::LoadInPieces, self.case.weights_in_pieces(), ALL);
                let words = "; or a smaller model, or its weights in fewer bits (a 4-bit file)";
                self.join(Lever::LoadInPieces, &[Lever::SmallerModel, Lever::Quantize], words);
            }
            Taker::State => {
                self.more_memory();
                self.save_less();
            }
            Taker::Data => {
                self.data_cache();
                // What grows from step to step may as well be the graphs of losses that are kept.
                if self.case.trains() && self.case.step.is_some() && self.case.framework() == Framework::Torch {
                    let words = "; numbers, not tensors, from step to step (loss.item(), .detach())";
                    self.join(Lever::SmallerDataCache, &[Lever::PlainNumbers], words);
                }
                self.fewer_samples_beside(Lever::SmallerDataCache);
                if self.case.passes(&["get_image", "pil_image", "imread", "load_image"]) {
                    let words = "; smaller or fewer pictures (a lower resolution)";
                    self.join(Lever::SmallerDataCache, &[Lever::SmallerInput], words);
                }
                self.many_workers();
                self.more_memory();
            }
            Taker::Outputs => {
                self.fewer_outputs();
                // Who was killed may as well have read too much.
                if !matches!(self.case.oom.source, Source::Allocator | Source::Heap) {
                    if self.case.facts.find(Key::EvalBatch).is_none() {
                        self.join(Lever::PlainNumbers, &[Lever::EvaluationBatch], "; fewer samples at once");
                    }
                    let words = "; fewer processes side by side that compute it";
                    self.join(Lever::PlainNumbers, &[Lever::FewerWorkers, Lever::FewerJobs], words);
                    self.more_memory();
                }
                self.evaluation_batch();
                self.join(Lever::EvaluationBatch, &[Lever::EvaluationLess], "; or evaluate more rarely");
                self.more_memory();
                self.micro_batch();
            }
            Taker::Unknown if self.case.narrative().names_large_pictures => {
                self.smaller_input();
                self.more_memory();
            }
            Taker::Unknown if self.case.takes_much_data() => {
                self.less_at_once();
                self.more_memory();
                let words = "; or fewer processes and threads side by side (jobs, cores)";
                self.join(Lever::MoreMemory, &[Lever::FewerJobs, Lever::FewerWorkers], words);
            }
            // Texts are as long as they come, unless somebody cuts them.
            Taker::Unknown if self.case.trains() && self.case.shows(Sign::Language) => {
                self.longest_sample();
                self.join(Lever::ShorterSequence, &[Lever::MicroBatch], "; or a smaller batch");
                self.more_memory();
            }
            Taker::Unknown => {
                self.more_memory();
                self.many_workers();
                self.read_in_pieces();
            }
        }
    }

    /// A pod is put where its request fits, and is the first to go where it takes more than that.
    fn larger_request(&mut self) {
        let used = self.case.oom.in_use.map_or(String::new(), |used| format!(" (it used {used})"));
        let text = format!(
            "Ask for what it takes at its peak{used}: resources.requests.memory, with resources.limits.memory equal to it, so that it \
             is put on a node with so much and is evicted last; or larger nodes, or fewer pods beside it"
        );
        self.add(Lever::MoreMemory, text, ALL);
        self.join(Lever::MoreMemory, &[Lever::RaiseLimit], "");
    }

    pub(super) fn more_memory(&mut self) {
        let case = self.case;
        let text = if case.shows(Sign::Wsl) {
            "Give it more memory: memory= and swap= in .wslconfig (WSL takes half of the machine's by default), or swap"
        } else if case.shows(Sign::Windows) {
            "Give it more memory: more RAM, or a larger page file (System, Advanced, Performance, Virtual memory); slower"
        } else if case.shows(Sign::Notebook) {
            "Run where there is more memory: a runtime with more RAM"
        } else {
            "Run where there is more memory, or add swap; then the run gets slow instead of being killed"
        };
        self.add(Lever::MoreMemory, text, ALL);
        // How much WSL may take is a limit of its own.
        if case.shows(Sign::Wsl) {
            self.join(Lever::MoreMemory, &[Lever::RaiseLimit], "");
        }
        // Swap is Linux's page file.
        if !case.shows(Sign::Notebook) {
            self.join(Lever::MoreMemory, &[Lever::PageFile], "");
        }
    }

    pub(super) fn page_file(&mut self) {
        let less = match self.case.shows(Sign::LibraryLoad) {
            true => {
                "; where it is large already, fixNvPe.py makes the libraries of PyTorch commit less, as newer ones do"
            }
            false => "",
        };
        let text = format!(
            "A larger page file (Windows: System, Advanced, Performance, Virtual memory; on a disk with room): every process \
             that loads the CUDA libraries commits gigabytes of it{less}"
        );
        self.add(Lever::PageFile, text, ALL);
    }

    pub(super) fn no_pinned_memory(&mut self) {
        if self.case.framework() != Framework::Torch {
            return;
        }
        let text = match self.case.shows(Sign::PinnedBuffer) {
            true => {
                "Pin no memory: start with --disable-pinned-memory; weights come to the device a little more slowly"
            }
            false => {
                "Pin less memory: pin_memory=False in the DataLoader (in DeepSpeed's offload sections too); copies to the \
                 device are a little slower"
            }
        };
        self.add(Lever::NoPinnedMemory, text, ALL);
    }

    /// A limit that the process was started under refuses memory that the machine still has.
    fn process_limit(&mut self) {
        let text = "Check the limits the process was started under (ulimit -v, which is RLIMIT_AS, and ulimit -d; h_vmem of Grid \
                    Engine), and raise one that is below what the machine has";
        self.add(Lever::RaiseLimit, text, ALL);
    }
}
