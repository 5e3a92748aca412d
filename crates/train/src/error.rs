//! What can stop a run before or while it trains.

use std::io;
use std::path::{Path, PathBuf};

use lowtide_core::{Bytes, Step, Stop};
use lowtide_disk::{DiskError, HeldFolder};
use lowtide_journal::LineFileError;
use lowtide_settings::SettingsError;
use lowtide_torch::{RanksError, TorchError};

use crate::ranks::Fault;

/// The result of a part of a run.
pub type Result<T, E = TrainError> = std::result::Result<T, E>;

/// An error of a run; a variant for each thing a person does about it.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A setting is wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A line leaves no room for what is held before the first sample.
    #[error("{holder} {needed} before the first sample, and {} is {line}", holder.line())]
    LineTooSmall {
        /// Who holds it.
        holder: Holder,
        /// How much it holds.
        needed: Bytes,
        /// What it may hold.
        line: Bytes,
    },
    /// The run folder cannot be used.
    #[error("{}: {problem}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        problem: FolderProblem,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file could not be written while the run was under way.
    #[error("{}: {source}", path.display())]
    Unwritten {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
        /// The run folder.
        folder: PathBuf,
        /// The newest checkpoint, which is whole.
        checkpoint: Option<PathBuf>,
    },
    /// A file of a checkpoint is damaged.
    #[error("{}: {problem}", path.display())]
    Damaged {
        /// The file, in the checkpoint's folder.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What can be done instead, where there is a whole checkpoint before it.
        fallback: Option<Fallback>,
    },
    /// A checkpoint is of another model.
    #[error("{}: it is of another model: {difference}", path.display())]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// The first difference.
        difference: String,
    },
    /// A checkpoint cannot be used.
    #[error("{}: {problem}", path.display())]
    Checkpoint {
        /// The checkpoint.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A schedule cannot be followed.
    #[error("{}: {problem}", path.display())]
    Schedule {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: ScheduleProblem,
    },
    /// The engine failed for a reason other than memory.
    #[error(transparent)]
    Engine(#[from] TorchError),
    /// Ranks cannot train together, or not any more.
    #[error(transparent)]
    Ranks(#[from] RanksError),
    /// This rank was started with other settings than the first.
    #[error("the settings are not those of rank 0: {differences}")]
    OtherSettings {
        /// Keys with both values.
        differences: String,
    },
    /// An error of another rank, which ends the run of all.
    #[error("rank {rank}: {message}")]
    OtherRank {
        /// The rank.
        rank: u32,
        /// Its own words.
        message: String,
        /// Who can do something about it.
        fault: Fault,
    },
    /// Nothing that is allowed fits under the line; the last state is saved.
    #[error("{stop}")]
    Line {
        /// What was tried.
        stop: Box<Stop>,
        /// The checkpoint that holds the last committed state.
        checkpoint: PathBuf,
    },
}

/// An older checkpoint that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    /// What it is wanted for.
    pub purpose: Purpose,
    /// The folder of the run.
    pub folder: PathBuf,
    /// Its step.
    pub step: Step,
}

/// What a checkpoint is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To train on.
    Training,
    /// To be evaluated.
    Evaluation,
}

/// Who holds memory before the first sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Holder {
    /// Parameters, gradients and moments.
    #[error("the model and its optimizer need")]
    Model,
    /// Parameters and buffers.
    #[error("the weights take")]
    Weights,
    /// The CUDA context, the libraries in it, and what other processes hold: the driver does not tell them apart.
    #[error("CUDA, its libraries and other programs on the card take")]
    Context,
    /// The process, its tensors and the least of its data.
    #[error("the program, the model and the least of the data need")]
    Data,
    /// The process, tensors left out.
    #[error("the program itself takes")]
    Program,
}

impl Holder {
    /// The line that is too small.
    fn line(self) -> &'static str {
        match self {
            Holder::Model | Holder::Weights | Holder::Context => "the memory limit",
            Holder::Program | Holder::Data => "the memory limit of the host",
        }
    }

    /// What is typed to move it.
    fn flag(self) -> &'static str {
        match self {
            Holder::Model | Holder::Weights | Holder::Context => "--limit",
            Holder::Program | Holder::Data => "--host-limit",
        }
    }
}

/// What can be wrong with a run folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FolderProblem {
    /// Something else is there.
    #[error("this is a file, and the run needs a folder")]
    IsFile,
    /// It holds a run.
    #[error("a run is already there")]
    HasRun,
    /// It holds one run, and several are to be there.
    #[error("there is one run in this folder, and this configuration is several")]
    HasOneRun,
    /// It holds something else.
    #[error("this folder is not empty and holds no run")]
    NotEmpty,
    /// It cannot be made, or not be written to.
    #[error("the folder cannot be written to: {}", why(*.0))]
    NotWritable(io::ErrorKind),
    /// It is not there any more.
    #[error("the folder was deleted while it was in use")]
    Deleted,
    /// Another process trains in it.
    #[error("another run is training in this folder")]
    InUse,
    /// It holds no run.
    #[error("there is no run in this folder")]
    NoRun,
    /// There is nothing to go on from.
    #[error("there is no run to resume")]
    NothingToResume,
}

/// What can be wrong with a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleProblem {
    /// There is none.
    #[error("there is no schedule to follow")]
    Missing,
    /// It has more bytes than any.
    #[error("it has {bytes}, and at most {most} are read")]
    TooLarge {
        /// Its size.
        bytes: Bytes,
        /// What is read.
        most: Bytes,
    },
    /// A line cannot be read.
    #[error("line {line}: {problem}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// It is for steps of another size.
    #[error("its steps have {there} samples, and this run's have {here}")]
    Batch {
        /// Samples in its steps.
        there: u32,
        /// Samples in the steps of this run.
        here: u32,
    },
    /// A step of it was computed in another kind of numbers.
    #[error("its step {step} was computed in {there}, and this run computes in {here}")]
    Precision {
        /// The first such step.
        step: Step,
        /// The kind there.
        there: String,
        /// The kind here.
        here: &'static str,
        /// Whether it became narrow on the way.
        narrowed: bool,
    },
    /// It ends too early.
    #[error("it has {there} steps, and this run has {here}")]
    TooShort {
        /// Its steps.
        there: u64,
        /// The steps of this run.
        here: u64,
    },
}

impl From<DiskError> for TrainError {
    fn from(error: DiskError) -> TrainError {
        TrainError::File { path: error.path, source: error.source }
    }
}

impl From<LineFileError> for TrainError {
    fn from(error: LineFileError) -> TrainError {
        TrainError::File { path: error.path, source: error.source }
    }
}

impl TrainError {
    /// What the system said of the file at `path`.
    pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> TrainError {
        move |source| TrainError::File { path: path.to_owned(), source }
    }

    pub(crate) fn damaged(path: &Path, problem: String) -> TrainError {
        TrainError::Damaged { path: path.to_owned(), problem, fallback: None }
    }

    /// The same, with files in a folder as people call them.
    pub(crate) fn shown_in(mut self, folder: &HeldFolder) -> TrainError {
        match &mut self {
            TrainError::File { path, .. }
            | TrainError::Damaged { path, .. }
            | TrainError::OtherModel { path, .. }
            | TrainError::Checkpoint { path, .. }
            | TrainError::Schedule { path, .. } => *path = folder.shown(path),
            TrainError::Line { checkpoint, .. } => *checkpoint = folder.shown(checkpoint),
            TrainError::Settings(_)
            | TrainError::LineTooSmall { .. }
            | TrainError::Folder { .. }
            | TrainError::Unwritten { .. }
            | TrainError::Ranks(_)
            | TrainError::OtherSettings { .. }
            | TrainError::OtherRank { .. }
            | TrainError::Engine(_) => {}
        }
        self
    }

    /// What a person can do about it; `program` is what they type to train.
    #[must_use]
    pub fn hint(&self, program: &str) -> Option<String> {
        match self {
            TrainError::Settings(error) => error.hint(),
            TrainError::LineTooSmall { holder: Holder::Model, needed, .. } => {
                Some(format!("set --limit well above {needed}, or choose a smaller model"))
            }
            TrainError::LineTooSmall { holder, needed, .. } => {
                Some(format!("set {} well above {needed}", holder.flag()))
            }
            TrainError::Folder { problem, path } => folder_hint(program, *problem, path),
            TrainError::Unwritten { folder, checkpoint, source, .. } => checkpoint.as_ref().map(|checkpoint| {
                let first = match source.kind() {
                    io::ErrorKind::FileTooLarge => "raise the limit on the size of files (ulimit -f)",
                    _ => "make room",
                };
                let (checkpoint, folder) = (checkpoint.display(), folder.display());
                format!("the checkpoint {checkpoint} is whole: {first}, then resume with --resume --out {folder}")
            }),
            TrainError::Line { checkpoint, .. } => Some(format!(
                "the last state is saved in {}: raise --limit or make the model smaller, then use --resume",
                checkpoint.display()
            )),
            TrainError::Damaged { fallback, .. } => Some(fallback.as_ref().map_or_else(
                || "there is no whole checkpoint before it: start a new run in another folder".to_owned(),
                |fallback| fallback.hint(program),
            )),
            TrainError::OtherModel { .. } => Some(
                "resume with the model that the run was started with, or start a new run in another folder".to_owned(),
            ),
            TrainError::Schedule { problem, .. } => schedule_hint(problem),
            TrainError::Engine(TorchError::Device(_)) => {
                Some("use --device cpu, or auto to take what is there".to_owned())
            }
            TrainError::Engine(error) if error.is_oom() => {
                Some("the model itself does not fit: free the device, take a larger one or a smaller model".to_owned())
            }
            TrainError::Ranks(RanksError::PortTaken { .. }) => {
                Some("name a free port with MASTER_PORT (torchrun: --master-port)".to_owned())
            }
            TrainError::Ranks(RanksError::NobodyThere { .. }) => Some(
                "start all ranks at the same time, with a MASTER_ADDR and MASTER_PORT that all of them can reach"
                    .to_owned(),
            ),
            TrainError::Ranks(RanksError::Missing { .. }) => {
                Some("see what that rank printed; --set ranks.timeout=SECONDS waits longer".to_owned())
            }
            TrainError::Ranks(RanksError::Silent { .. }) => Some(format!(
                "see what that rank printed; the run goes on from its last checkpoint: {program} train --resume"
            )),
            TrainError::Ranks(RanksError::NoNccl(_)) => {
                Some("--set ranks.backend=auto sends them through the host instead".to_owned())
            }
            TrainError::File { .. }
            | TrainError::Checkpoint { .. }
            | TrainError::Ranks(RanksError::Own(_) | RanksError::Unplaced(_))
            | TrainError::OtherSettings { .. }
            | TrainError::OtherRank { .. }
            | TrainError::Engine(_) => None,
        }
    }

    /// Whether the person who started the run can mend it: bad input, not a fault of ours.
    #[must_use]
    pub fn is_users(&self) -> bool {
        match self {
            TrainError::Settings(_)
            | TrainError::LineTooSmall { .. }
            | TrainError::Folder { .. }
            | TrainError::Checkpoint { .. }
            | TrainError::Damaged { .. }
            | TrainError::OtherModel { .. }
            | TrainError::Schedule { .. }
            | TrainError::OtherSettings { .. }
            | TrainError::File { .. }
            | TrainError::Unwritten { .. } => true,
            TrainError::Engine(error) => matches!(error, TorchError::Device(_) | TorchError::Input(_)),
            TrainError::Ranks(error) => !matches!(error, RanksError::Silent { .. } | RanksError::Own(_)),
            TrainError::OtherRank { fault, .. } => *fault == Fault::Input,
            TrainError::Line { .. } => false,
        }
    }

    /// Who can do something about it.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            TrainError::OtherRank { fault, .. } => *fault,
            TrainError::Line { .. } => Fault::Memory,
            TrainError::Engine(error) if error.is_oom() => Fault::Memory,
            error if error.is_users() => Fault::Input,
            _ => Fault::Other,
        }
    }
}

impl Fallback {
    fn hint(&self, program: &str) -> String {
        let Fallback { purpose, folder, step } = self;
        let folder = folder.display();
        let command = match purpose {
            Purpose::Training => format!("{program} train --resume --out {folder} --checkpoint {step}"),
            Purpose::Evaluation => format!("{program} eval {folder} --checkpoint {step}"),
        };
        format!("the checkpoint of step {step}, before it, is whole: {command}")
    }
}

fn why(kind: io::ErrorKind) -> String {
    let text = match kind {
        io::ErrorKind::NotFound => "no folder can be made there",
        io::ErrorKind::NotADirectory => "a file is in the way",
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only",
        io::ErrorKind::StorageFull => "the disk is full",
        other => return other.to_string(),
    };
    text.to_owned()
}

fn folder_hint(program: &str, problem: FolderProblem, path: &Path) -> Option<String> {
    match problem {
        FolderProblem::HasRun => Some(format!("use --resume --out {} to resume it, or another --out", path.display())),
        FolderProblem::IsFile
        | FolderProblem::HasOneRun
        | FolderProblem::NotEmpty
        | FolderProblem::NotWritable(_)
        | FolderProblem::InUse => Some("name another folder with --out".to_owned()),
        FolderProblem::Deleted => {
            Some("runs that were finished in it are gone: start again with another --out".to_owned())
        }
        FolderProblem::NoRun => Some(format!("name the folder of a run, as `{program} train` said it at its end")),
        FolderProblem::NothingToResume => {
            Some("name the folder of a run with --out, or leave --resume out to start a new one".to_owned())
        }
    }
}

fn schedule_hint(problem: &ScheduleProblem) -> Option<String> {
    match problem {
        ScheduleProblem::Missing => Some("name the folder of a run with --schedule-from".to_owned()),
        ScheduleProblem::Line { .. } | ScheduleProblem::TooLarge { .. } => None,
        ScheduleProblem::Batch { there, .. } => Some(format!("use --set train.batch={there}")),
        ScheduleProblem::Precision { narrowed: true, .. } => {
            Some("use --set memory.narrow=true, as the other run did".to_owned())
        }
        ScheduleProblem::Precision { there, .. } => Some(format!("use --set train.precision={there}")),
        ScheduleProblem::TooShort { there: 0, .. } => None,
        ScheduleProblem::TooShort { there, .. } => Some(format!("use --set train.steps={there}")),
    }
}
