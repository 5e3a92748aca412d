//! Why a command is not run, or not run to its end.

use std::io;
use std::path::{Path, PathBuf};

use lowtide_core::Bytes;
use lowtide_disk::DiskError;
use thiserror::Error;

use crate::BatchPart;

/// Why a command is not run, or not run to its end.
#[derive(Debug, Error)]
pub enum KeepError {
    /// The command's program is not there.
    #[error("{program}: no such command")]
    NotFound {
        /// Its name as it was given.
        program: String,
    },
    /// The command's program is there and cannot be run.
    #[error("{program} cannot be run: {error}")]
    NotExecutable {
        /// Its name as it was given.
        program: String,
        /// What the system says.
        error: io::Error,
    },
    /// A template that cannot be filled.
    #[error("template `{template}`: {detail}")]
    Template {
        /// The template as it was given.
        template: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A template for going on from a checkpoint that has a place for something else.
    #[error("`{template}`: {place} has no place where a run goes on from a checkpoint")]
    Resume {
        /// The template as it was given.
        template: String,
        /// The place, in braces.
        place: &'static str,
    },
    /// A pattern of files that cannot be read.
    #[error("`{pattern}`: {detail}")]
    Pattern {
        /// The pattern as it was given.
        pattern: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The batch of the command is needed for a smaller one, and is not known.
    #[error("the batch of this command is not known: {detail}")]
    Batch {
        /// What was looked for.
        detail: String,
    },
    /// The batch was given, and stands on the command line as another.
    #[error("{given} is given, and {key} is {number}")]
    Contradiction {
        /// Which number of it.
        part: BatchPart,
        /// What was given.
        given: u64,
        /// The command's own name for it.
        key: String,
        /// What the command has.
        number: u64,
    },
    /// A shell's script in one word, which would not get what is added to the command line.
    #[error("`{shell}` does not give its script what stands after it: {script}")]
    DeafScript {
        /// The shell and its option.
        shell: String,
        /// The script.
        script: String,
    },
    /// A configuration file that cannot be changed.
    #[error("{}: {detail}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// A configuration file that the command line does not name.
    #[error("{}: the command line does not name this file", path.display())]
    NotNamed {
        /// The file.
        path: PathBuf,
    },
    /// A configuration file that has no such key.
    #[error("{}: has no {key}", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
        /// The key, with dots in its path.
        key: String,
    },
    /// A name in a configuration file that several places have.
    #[error("{}: {key} is set in lines {lines}", path.display())]
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The lines, in words.
        lines: String,
    },
    /// The script is no longer what its changed copy was made of.
    #[error("{}: the script was changed while the run was under way", path.display())]
    ScriptChanged {
        /// The script.
        path: PathBuf,
    },
    /// A folder of the run's own that Python cannot be told to look into, so that it takes no changed copy of a script.
    #[error("{}: PYTHONPATH cannot name a folder with a colon in its path, so that no changed copy of the script can be run", folder.display())]
    Unlisted {
        /// The folder.
        folder: PathBuf,
    },
    /// A file or folder of the run's own.
    #[error("{}: {error}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A checkpoint that a copy is to be made of, on a disk that has no room for it.
    #[error("its disk has no room for a copy ({bytes})")]
    NoRoom {
        /// Its size.
        bytes: Bytes,
    },
    /// The system refused something that every run needs.
    #[error("{what}: {error}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What the system says.
        error: io::Error,
    },
    /// Processes of a start that memory ran out in do not end, so that their memory is not free.
    #[error("processes of the last start do not end, not even by SIGKILL: {pids:?}")]
    Stuck {
        /// Their numbers.
        pids: Vec<u32>,
    },
}

impl KeepError {
    /// What the system said of a file or folder of the run's own.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        |error| Self::File { path, error }
    }
}

impl From<DiskError> for KeepError {
    fn from(error: DiskError) -> Self {
        Self::File { path: error.path, error: error.source }
    }
}
