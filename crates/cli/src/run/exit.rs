//! Exit codes of `lowtide run`, and what is said where a command is not run.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::{self, ExitCode};

use lowtide_config::command::quoted;
use lowtide_keep::{Chronicle, Conclusion, End, EndKind, KeepError};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use signal_hook::low_level::emulate_default_handler;

use crate::output::{BAD_INPUT, Failure, INTERRUPTED};
use crate::run::dashes::is_bare_script;
use crate::run::narration::flag;

/// Memory ran out, and no smaller micro-batch helped or none could be set; or it is not free, for processes do not end.
const OUT_OF_MEMORY: u8 = 3;
/// As shells have them.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
const BY_SIGNAL: i32 = 128;

/// How this process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    /// By itself.
    Code(u8),
    /// By the signal that ended the command: a shell that runs a loop ends it then, as it would for the command alone.
    Signal(i32),
}

impl Exit {
    /// For what happened: the command's own end, unless memory ran out or a start could not be made.
    pub(super) fn of(chronicle: &Chronicle) -> Self {
        let last = chronicle.starts.last();
        let ran_out = last.is_some_and(|last| last.outcome == EndKind::OutOfMemory);
        if let Some(error) = &chronicle.failure {
            return Self::Code(if ran_out { OUT_OF_MEMORY } else { code_of(error) });
        }
        match chronicle.ending {
            Conclusion::CheckpointsInDanger if ran_out => Self::Code(OUT_OF_MEMORY),
            Conclusion::NoRungs
            | Conclusion::LastRung
            | Conclusion::SameOnEveryRung
            | Conclusion::InputGone
            | Conclusion::TooManyRestarts
            | Conclusion::BatchChanged => Self::Code(OUT_OF_MEMORY),
            Conclusion::Finished | Conclusion::Interrupted | Conclusion::Failed | Conclusion::CheckpointsInDanger => {
                match (chronicle.signal, last) {
                    // Told to end while no command was running.
                    (Some(signal), _) => Self::Signal(signal),
                    (None, Some(last)) => match last.end {
                        End::Code(code) => Self::Code(u8::try_from(code).unwrap_or(1)),
                        End::Signal(signal) => Self::Signal(signal),
                    },
                    (None, None) => Self::Code(INTERRUPTED),
                }
            }
        }
    }

    /// The exit code that a shell shows.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => u8::try_from(BY_SIGNAL + signal).unwrap_or(1),
        }
    }

    /// Ends this process so, without a core dump of its own. What nobody can end by is a code.
    pub(super) fn leave(self) -> ExitCode {
        // The first process of a container ends by no signal of its own.
        if let Self::Signal(signal) = self
            && process::id() != 1
        {
            let _ = io::stdout().flush();
            let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
            let _ = emulate_default_handler(signal);
        }
        ExitCode::from(self.code())
    }
}

fn code_of(error: &KeepError) -> u8 {
    match error {
        KeepError::NotFound { .. } => NOT_FOUND,
        KeepError::NotExecutable { .. } => NOT_EXECUTABLE,
        KeepError::Stuck { .. } => OUT_OF_MEMORY,
        _ => BAD_INPUT,
    }
}

/// What is said where a command cannot be started. A Python script by itself is given to Python.
pub(super) fn refused(error: KeepError, command: &[OsString]) -> Failure {
    let is_missing = matches!(error, KeepError::NotFound { .. } | KeepError::NotExecutable { .. });
    let is_script = command.first().is_some_and(|word| is_bare_script(word) && Path::new(word).is_file());
    let failure = Failure::from(error);
    if !(is_missing && is_script) {
        return failure;
    }
    Failure { hint: Some(format!("lowtide run -- python {}", quoted(command))), ..failure }
}

impl From<KeepError> for Failure {
    fn from(error: KeepError) -> Self {
        let text = match &error {
            KeepError::Resume { .. } => format!("--resume-with {error}"),
            KeepError::Pattern { .. } => format!("--checkpoint-glob {error}"),
            KeepError::Contradiction { part, given, key, number } => {
                format!("{} says {given}, and {key} is {number}", flag(*part))
            }
            _ => error.to_string(),
        };
        Self { text, hint: hint(&error).map(str::to_owned), code: code_of(&error) }
    }
}

/// What to do about it.
fn hint(error: &KeepError) -> Option<&'static str> {
    let hint = match error {
        KeepError::NotFound { program } if program.contains('=') => {
            "set a variable before lowtide, or with env: `-- env NAME=value python3 train.py`"
        }
        KeepError::NotFound { .. } => "the command stands after `--`, as it would be typed without lowtide",
        KeepError::NotExecutable { .. } => "`chmod +x` it, or name the program that runs it: `-- python3 train.py`",
        KeepError::Template { .. } => {
            "for example: --retry-with '--batch_size={micro} --gradient_accumulation_steps={accum}'"
        }
        KeepError::Batch { .. } => "say it with --batch N, and --accum M where gradients are accumulated",
        KeepError::Contradiction { .. } => "leave our option out: what the command has is found by the template",
        KeepError::DeafScript { .. } => {
            "put lowtide inside: bash -c 'lowtide run -- python train.py'; or let the script take \"$@\"; \
             or use --retry-env"
        }
        KeepError::Resume { .. } => "for example: --resume-with '--resume {checkpoint}' --checkpoint-glob 'out/*.pt'",
        KeepError::Pattern { .. } => "for example: --checkpoint-glob 'out/*.pt'; * and ? stand for letters",
        KeepError::Config { .. } => {
            "--config takes a file that can be read here, .py, .yaml or .json; for others, --retry-with changes flags \
             and --retry-env variables"
        }
        KeepError::NotNamed { .. } => {
            "the command gets a copy in its place: name the file after `--` too, as the command takes it"
        }
        KeepError::NoKey { .. } => "name keys as they stand in the file: --retry-config 'batch_size={micro}'",
        KeepError::Ambiguous { .. } => "set it in one place, or give it by a flag and say that with --retry-with",
        KeepError::ScriptChanged { .. } => "start it again: the next run reads the script as it is now",
        KeepError::Unlisted { .. } => "--out names another folder for the run, such as /tmp/NAME",
        KeepError::Stuck { .. } => "they wait inside the kernel, often for a driver; `ps` shows them in state D",
        KeepError::File { .. } => "--out names another folder for logs",
        KeepError::System { .. } | KeepError::NoRoom { .. } => return None,
    };
    Some(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_as_a_shell_has_them() {
        let codes = [Exit::Code(0), Exit::Code(7), Exit::Signal(15), Exit::Signal(9)].map(Exit::code);
        assert_eq!(codes, [0, 7, 143, 137]);
    }
}
