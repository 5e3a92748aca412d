//! What is said about one out-of-memory event.

use lowtide_core::Bytes;
use lowtide_oom::{DeviceKind, Engine, Place, ProcessUse, Source};
use serde::Serialize;

use crate::{
    Account, Activity, CheckpointWork, CodeLine, Holding, OwnHeap, Patch, Possibility, RankErrors, Remark, TensorGroup,
};

/// One out-of-memory event, explained. What the log does not tell is `None` or empty.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Verdict {
    /// Which memory ran out.
    pub place: Place,
    /// Who wrote the message.
    pub engine: Engine,
    /// The part that refused, or that saw the end.
    pub source: Source,
    /// What was running.
    pub work: Work,
    /// Why memory ran out.
    pub cause: Cause,
    /// What made it worse besides.
    pub contributing: Vec<Cause>,
    /// How sure the cause is, from 0 to 1.
    pub certainty: f64,
    /// The arithmetic and the words of the log behind the cause, as sentences.
    pub evidence: Vec<String>,
    /// What is to be said of the configuration and of the patch: why there is none, why it may not be enough.
    pub notes: Vec<String>,
    /// Line of the log, from 1, on which the message stands.
    pub line: u64,
    /// That line, cut to a bounded length.
    pub message: String,
    /// What the program was doing.
    pub phase: Option<Activity>,
    /// Whether no training step had ended yet.
    pub before_first_step: bool,
    /// The last step the log names before.
    pub step: Option<u64>,
    /// The last time of day the log names before, as it is written there.
    pub time: Option<String>,
    /// Which rank of a job failed first, and who followed, where the log tells.
    pub ranks: Option<RankErrors>,
    /// The heap with a limit of its own that refused, where it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heap: Option<OwnHeap>,
    /// The other error that ended the run, which had got over this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<String>,
    /// The kind of device.
    pub device_kind: Option<DeviceKind>,
    /// Index of the device.
    pub device: Option<u32>,
    /// What was asked for.
    pub tried_bytes: Option<Bytes>,
    /// What the device or machine has.
    pub capacity_bytes: Option<Bytes>,
    /// What was free.
    pub free_bytes: Option<Bytes>,
    /// What this process held, all together.
    pub in_use_bytes: Option<Bytes>,
    /// What the engine's allocator had handed out.
    pub allocated_bytes: Option<Bytes>,
    /// What the engine's allocator held without having handed it out.
    pub reserved_unallocated_bytes: Option<Bytes>,
    /// A limit below the capacity.
    pub limit_bytes: Option<Bytes>,
    /// What others held: other processes, or whoever the figures leave over.
    pub held_by_others_bytes: Option<Bytes>,
    /// What this process held outside the engine's allocator.
    pub outside_allocator_bytes: Option<Bytes>,
    /// Other processes the log names.
    pub holders: Vec<Holder>,
    /// Cards that a table in the log shows unused, by the driver's numbers: for `CUDA_VISIBLE_DEVICES`.
    pub free_cards: Vec<u32>,
    /// What it may be, likeliest first, each with what tells it from the others, where the text does not decide.
    pub possibilities: Vec<Possibility>,
    /// What was done with a whole state of the model or the optimizer: saving, loading, resuming.
    pub checkpoint: Option<CheckpointWork>,
    /// Who held which part of the device, as far as the figures tell.
    pub holdings: Vec<Holding>,
    /// Who held most of the tensors, where the process wrote it down itself: by the line that made them, or by what they are.
    pub tensors: Vec<TensorGroup>,
    /// The line of the program's own code that the stack ends in.
    pub code: Option<CodeLine>,
    /// Which tensor, or which kind of memory, the request was for.
    pub culprit: Option<Culprit>,
    /// What to do, best first.
    pub advice: Vec<Advice>,
    /// The patch of the first piece of advice that has one and is expected to be enough; what keeps the numbers comes
    /// before what changes them.
    pub patch: Option<Patch>,
    /// What the log shows besides.
    pub remarks: Vec<Remark>,
    /// Where memory goes in a training step, where the model is known.
    pub model: Option<Account>,
}

impl Verdict {
    /// Whether the figures show room for the request, so that the cause is one of several possibilities.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.possibilities.len() > 1 && self.certainty < OPEN
    }

    /// Whether the text leaves open at whose limit a process was ended: the machine's or a unit's.
    const fn is_of_whole_or_part(&self) -> bool {
        matches!(self.source, Source::Kernel) && self.possibilities.len() > 1
    }

    /// The cause in plain words: a server has no step.
    #[must_use]
    pub const fn cause_words(&self) -> &'static str {
        if let (Cause::HostMemory, Some(heap)) = (self.cause, self.heap) {
            return heap.words();
        }
        match (self.cause, self.work) {
            (Cause::HostMemory, _) if self.is_of_whole_or_part() => {
                "host memory ran out: the whole machine's, or the limit of one unit"
            }
            (Cause::Need, Work::Serving) => "the server needs more memory than there is",
            (Cause::Need, Work::Inference) => "the model and its inputs need more memory than there is",
            (cause, _) => cause.words(),
        }
    }
}

/// Below this certainty the first of several possibilities is hardly likelier than the others.
const OPEN: f64 = 0.45;

/// What was running, as far as the log tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Work {
    /// A training, or whatever shows no sign of the others.
    #[default]
    Training,
    /// A server of language models.
    Serving,
    /// A model is used and not trained.
    Inference,
}

/// Why memory ran out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// The step needs more than the device has.
    #[default]
    Need,
    /// The request would have fitted into what was free plus what was reserved and not handed out.
    Fragmentation,
    /// Another process holds the memory.
    OtherProcess,
    /// A limit is set below what the device has.
    Limit,
    /// Memory outside the engine's allocator: libraries, contexts, communication.
    OutsideAllocator,
    /// Memory of the machine, of a container or of a job on it.
    HostMemory,
}

impl Cause {
    /// What it adds to another cause, in plain words.
    #[must_use]
    pub const fn part(self) -> &'static str {
        match self {
            Self::Need => "the device is nearly full all the same",
            Self::Fragmentation => "much is reserved and idle, in pieces",
            Self::OtherProcess => "others hold memory of the device",
            Self::Limit => "a limit is set",
            Self::OutsideAllocator => "much memory lies outside the allocator",
            Self::HostMemory => "the machine's own memory is short",
        }
    }

    /// The cause in plain words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Need => "the step needs more memory than there is",
            Self::Fragmentation => "fragmentation: enough memory, but in pieces",
            Self::OtherProcess => "someone else holds the memory",
            Self::Limit => "a limit below what the device has",
            Self::OutsideAllocator => "memory outside the allocator ran out",
            Self::HostMemory => "the machine's own memory ran out, not the GPU's",
        }
    }
}

/// A process that held memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Holder {
    /// Process id, as whoever wrote the message sees it.
    pub pid: u32,
    /// Name of the program.
    pub name: Option<String>,
    /// What it held.
    pub used_bytes: Option<Bytes>,
    /// Whose it is.
    pub relation: Relation,
}

/// Whose a process is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Relation {
    /// Somebody else's, or another program of the same user.
    #[default]
    Other,
    /// A rank of the same job, as it looks: not to be ended, but to be given a card of its own.
    SameJob,
    /// A desktop or another program that only draws.
    Desktop,
}

impl From<&ProcessUse> for Holder {
    fn from(process: &ProcessUse) -> Self {
        Self { pid: process.pid, name: process.name.clone(), used_bytes: process.used, relation: Relation::default() }
    }
}

/// What a request was for.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Culprit {
    /// What it is called: `logits`, `attention scores`.
    pub name: String,
    /// Its dimensions, empty where only the kind is known.
    pub shape: Vec<u64>,
    /// Its type, such as `bf16`.
    pub dtype: Option<String>,
    /// Its size.
    pub bytes: Option<Bytes>,
    /// How that is known.
    pub how: String,
    /// How sure that is, from 0 to 1.
    pub certainty: f64,
}

/// What can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
#[non_exhaustive]
pub enum Lever {
    MicroBatch,
    ChunkedLoss,
    Recompute,
    ExpandableSegments,
    EvaluationCrop,
    EvaluationBatch,
    EvaluationLess,
    EmptyCache,
    CompileOff,
    ShorterSequence,
    SmallerModel,
    Precision,
    Spill,
    EndOtherProcess,
    RaiseLimit,
    LeaveRoom,
    FewerWorkers,
    SharedMemory,
    SmallerDataCache,
    MoreMemory,
    LoadInPieces,
    /// A smaller type for the cache of keys and values.
    CacheType,
    /// Fewer layers on the device, the others on the host.
    FewerLayers,
    /// Weights in fewer bits.
    Quantize,
    /// One model on several cards.
    MoreCards,
    CheckLog,
    /// Adapters are trained in place of all weights (LoRA, QLoRA).
    Adapters,
    /// Moments of the optimizer in 8 bits, or in pages that move to the host.
    SmallerOptimizer,
    /// Weights, gradients and moments shared out among cards (FSDP, ZeRO).
    Shard,
    /// Attention by a fused kernel, without matrices of scores.
    AttentionKernel,
    /// Parts of the model on the host while they are not in use.
    Offload,
    /// Tiles and slices in place of whole pictures.
    Tiles,
    /// Smaller or fewer inputs: pictures, patches, prompts.
    SmallerInput,
    OtherCard,
    /// No graph is kept where no gradient is needed.
    NoGraph,
    /// Outputs leave the device as soon as they are there.
    OutputsToHost,
    /// Plain numbers are kept instead of tensors with their graphs.
    PlainNumbers,
    /// The whole state is gathered in the machine's memory, by one rank.
    StateToHost,
    /// Every rank writes its own part of the state.
    ShardedState,
    /// A checkpoint that was read is let go.
    FreeCheckpoint,
    RestartKernel,
    NoPinnedMemory,
    /// Fewer requests at once.
    FewerRequests,
    /// No CUDA graphs.
    EagerMode,
    PageFile,
    SaveLess,
    /// Boxes are matched with anchors on the host.
    AssignOnHost,
    /// Fewer jobs of a build at once.
    FewerJobs,
    /// Host memory that the allocator falls back on where the card is full.
    Reserve,
    /// A package is installed past the installer's cache.
    NoInstallCache,
    /// Numbers of a narrower type in an array.
    SmallerType,
    /// Fewer rows are held before they are written.
    SmallerWriter,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Advice {
    /// What is changed.
    pub lever: Lever,
    /// Kindred levers that the same sentence names, in place of it or beside it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Lever>,
    /// What to do, as a sentence.
    pub text: String,
    /// Peak memory of the device expected after it, where arithmetic allows one.
    pub expected_peak_bytes: Option<Bytes>,
    /// What it saves, where the model is known.
    pub saves_bytes: Option<Bytes>,
    /// Whether as many samples go into one update as before. This and the next two are about what the sentence begins with, not about
    /// the kindred levers that are joined to it.
    pub same_effective_batch: bool,
    /// Whether the model stays as it is.
    pub same_model: bool,
    /// Whether training computes the same numbers, rounding aside.
    pub same_numbers: bool,
    /// The change of the configuration that does it, where one can be written.
    pub patch: Option<Patch>,
}
