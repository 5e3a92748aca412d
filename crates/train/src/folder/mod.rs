//! The folder of a run: its files, its checkpoints, and what others read of them.

pub(crate) mod checkpoint;
mod checkpoint_choice;
mod checkpoints;
mod file_sum;
mod folder_choice;
mod progress;
mod run_checkpoint;
mod run_files;
mod run_folder;
mod schedule;
mod series_folder;
mod summary;
mod tensor_file;

pub(crate) use checkpoints::Checkpoints;
pub(crate) use folder_choice::OpenRun;
pub use folder_choice::{FolderChoice, Start};
pub(crate) use progress::{Figures, Progress, RecentLosses};
pub use run_checkpoint::RunCheckpoint;
pub(crate) use run_folder::{FolderState, RunFolder};
pub use schedule::Schedule;
pub(crate) use schedule::ScheduleLine;
pub use series_folder::{RunResult, SeriesFolder};
pub use summary::{RunEnding, Summary};
pub(crate) use tensor_file::weights_sha256;
