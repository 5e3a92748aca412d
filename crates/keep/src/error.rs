//! Why a command is not run, or not run to its end.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

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
    /// How a run would go on from a checkpoint makes no sense.
    #[error("--resume-with `{template}`: {detail}")]
    Resume {
        /// The template as it was given.
        template: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A pattern of files that cannot be read.
    #[error("--checkpoint-glob `{pattern}`: {detail}")]
    Pattern {
        /// The pattern as it was given.
        pattern: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The batch of the command is needed for its rungs, and is not known.
    #[error("the batch of this command is not known: {detail}")]
    Batch {
        /// What was looked for.
        detail: String,
    },
    /// The batch was given, and stands on the command line as another.
    #[error("{option} says {given}, and {key} is {number}")]
    Contradiction {
        /// Our option.
        option: &'static str,
        /// What was given with it.
        given: u64,
        /// The command's own name for it.
        key: String,
        /// What the command has.
        number: u64,
    },
    /// A shell's script in one word, which would not get what is added to the command line.
    #[error("`{shell}` does not give its script what stands after it: {script}")]
    Deaf {
        /// The shell and its option.
        shell: String,
        /// The script.
        script: String,
    },
    /// A configuration file that cannot be changed as a rung wants it.
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
    /// A file or folder of the run's own.
    #[error("{}: {error}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
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
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotFound { program } if program.contains('=') => {
                Some("set a variable before lowtide, or with env: `-- env NAME=value python3 train.py`")
            }
            Self::NotFound { .. } => Some("the command stands after `--`, as it would be typed without lowtide"),
            Self::NotExecutable { .. } => {
                Some("`chmod +x` it, or name the program that runs it: `-- python3 train.py`")
            }
            Self::Template { .. } => {
                Some("for example: --rung '--batch_size={micro} --gradient_accumulation_steps={accum}'")
            }
            Self::Batch { .. } => Some("say it with --batch N, and --accum M where gradients are accumulated"),
            Self::Contradiction { .. } => Some("leave our option out: what the command has is found by the template"),
            Self::Deaf { .. } => Some(
                "put lowtide inside: bash -c 'lowtide run -- python train.py'; or let the script take \"$@\"; \
                 or use --rung-env",
            ),
            Self::Resume { .. } => {
                Some("for example: --resume-with '--resume {checkpoint}' --checkpoint-glob 'out/*.pt'")
            }
            Self::Pattern { .. } => Some("for example: --checkpoint-glob 'out/*.pt'; * and ? stand for letters"),
            Self::Config { .. } => Some(
                "--config takes a file that can be read here, .py, .yaml or .json; for others, --rung changes flags \
                 and --rung-env variables",
            ),
            Self::NotNamed { .. } => {
                Some("the command gets a copy in its place: name the file after `--` too, as the command takes it")
            }
            Self::NoKey { .. } => Some("name keys as they stand in the file: --rung-config 'batch_size={micro}'"),
            Self::Stuck { .. } => Some("they wait inside the kernel, often for a driver; `ps` shows them in state D"),
            Self::File { .. } => Some("--out names another folder for logs"),
            Self::System { .. } => None,
        }
    }

    /// The exit code that a shell would give for it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::Stuck { .. } => 3,
            _ => 2,
        }
    }
}
