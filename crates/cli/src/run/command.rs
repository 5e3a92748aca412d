//! How `lowtide run` is carried out.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anstream::{AutoStream, ColorChoice};
use lowtide_args::{RunArgs, WatchMemory};
use lowtide_keep::{
    Chronicle, CommandLadder, CommandRequest, Copies, EffectiveBatch, EndKind, Grace, Inside, KeepError, KeepOptions,
    Notice, ResumeRequest, SUMMARY, TrainerGuard, is_free, keep, lesson, new_folder,
};
use lowtide_sensors::{Options as SensorOptions, Sampler};
use lowtide_trainers::Access;
use serde::Serialize;

use crate::output::{Failure, RUNS, json_text, print, print_json, printable, report};
use crate::run::dry_run::DryRun;
use crate::run::exit::{self, Exit};
use crate::run::memory::Memory;
use crate::run::{inside, narration};

const STANDARD_OUTPUT: &str = "-";
/// Files of settings are not larger; a script that is, is not looked into.
const LARGEST_FILE: u64 = 4 << 20;

pub(crate) fn run(args: RunArgs) -> ExitCode {
    match kept(args) {
        Ok(exit) => exit.leave(),
        Err(failure) => report(Err(failure)),
    }
}

fn kept(args: RunArgs) -> Result<Exit, Failure> {
    let request = CommandRequest {
        command: args.command,
        preset: args.preset,
        rung: args.retry_with,
        rung_environment: args.retry_env,
        rung_config: args.config.zip(args.retry_config),
        micro: args.batch,
        accum: args.accum,
        effective: if args.shrink_batch { EffectiveBatch::MayShrink } else { EffectiveBatch::Kept },
        resume: match args.resume_with.zip(args.checkpoint_glob) {
            Some((template, pattern)) => ResumeRequest::Own { template, pattern },
            None if args.no_resume => ResumeRequest::Off,
            None => ResumeRequest::Found,
        },
    };
    let watch_memory = if args.no_watch_memory { Some(WatchMemory::Off) } else { args.watch_memory };
    let access = Access { variable: &|name| env::var_os(name), read: &small_file, cards: &cards };
    let mut ladder = CommandLadder::make(request, &access)?;
    let inside = Inside {
        memory: inside::memory_watch(watch_memory, &ladder.command, &access)?,
        guard: if args.inside { inside::trainer_guard(&ladder.command, &access)? } else { TrainerGuard::Off },
        reserve: args.reserve.map(|bytes| inside::host_reserve(bytes, &ladder.command, &access)).transpose()?,
    };
    if inside.is_nothing() {
        ladder.leave_environment();
    }
    let runs = args.out.as_deref().map_or(Path::new(RUNS), parent);
    let mut memory = Memory::read(runs);
    // Without restarts nothing is changed, so the batch is the one that was typed.
    let is_only_watched = args.max_restarts == 0;
    if args.dry_run {
        let first = if args.forget || is_only_watched { None } else { memory.found(&ladder) };
        let folder = args.out.unwrap_or_else(|| Path::new(RUNS).join(format!("{}-N", ladder.name())));
        let copies = if args.no_copies { Copies::Off } else { Copies::Made };
        let rehearsal = DryRun::of(&ladder, folder, args.max_restarts, copies, first)?;
        if let Some(path) = &args.json {
            write_json(path, &rehearsal.json(&ladder))?;
        }
        if args.json.as_deref() != Some(Path::new(STANDARD_OUTPUT)) {
            print(&rehearsal.text(&ladder))?;
        }
        return Ok(Exit::Code(0));
    }
    if let Some(path) = &args.json {
        can_be_written(path)?;
    }
    if args.forget {
        memory.forget(&ladder);
    }
    let first = if is_only_watched { None } else { memory.found(&ladder) };
    let is_new = args.out.is_none();
    let folder = match args.out {
        Some(folder) => {
            fs::create_dir_all(&folder).map_err(KeepError::file(&folder))?;
            is_free(&folder)?;
            folder
        }
        None => new_folder(Path::new(RUNS), &ladder.name())?,
    };
    if !args.quiet {
        say(&narration::retries_line(&ladder, args.max_restarts));
    }
    if let Err(problem) = ladder.can_change(&folder)
        && !is_only_watched
    {
        say(&format!("warning: there will be no retry: {problem}"));
    }
    if let Some(first) = first.as_ref().filter(|_| !args.quiet) {
        say(&first.greeting());
    }
    let first_rung = first.map_or(0, |first| first.rung);
    let options = KeepOptions {
        folder,
        grace: args.grace.map_or(Grace::Usual, Grace::Given),
        max_restarts: args.max_restarts,
        first_rung,
        inside,
        copies: if args.no_copies { Copies::Off } else { Copies::Made },
    };
    let kept = keep(&ladder, &options, &mut |notice| {
        let is_unwanted = args.quiet && matches!(notice, Notice::Log { .. });
        if let Some(text) = narration::words(notice, &ladder).filter(|_| !is_unwanted) {
            say(&text);
        }
    });
    // Where nothing was run, nothing is in the folder that was made for it.
    if let Err(KeepError::NotFound { .. } | KeepError::NotExecutable { .. }) = kept
        && is_new
    {
        let _ = fs::remove_dir(&options.folder);
    }
    let chronicle = kept.map_err(|error| exit::refused(error, &ladder.command))?;
    let exit = Exit::of(&chronicle);
    let exit_code = exit.code();
    let summary = Summary { chronicle: &chronicle, exit_code };
    // The command's exit code is worth more than its story.
    if let Err(error) = lowtide_disk::write(&options.folder.join(SUMMARY), json_text(&summary).as_bytes()) {
        say(&format!("the story of this run is not kept: {error}"));
    }
    if chronicle.starts.iter().any(|start| start.outcome == EndKind::OutOfMemory) {
        say(&narration::whole(&chronicle, &ladder));
        if let Some(start) = lesson(&chronicle.starts) {
            say(&memory.keep(&ladder, start, &options.folder));
        }
    } else if !args.quiet {
        say(&narration::over(&chronicle, exit_code));
    }
    if let (None, Some(path)) = (&chronicle.failure, &args.json)
        && let Err(failure) = write_json(path, &summary)
    {
        say(&format!("the story is not written: {}", failure.text));
    }
    chronicle.failure.map_or(Ok(exit), |error| Err(Failure { code: exit_code, ..error.into() }))
}

/// What happened, and the exit code for it.
#[derive(Serialize)]
struct Summary<'a> {
    #[serde(flatten)]
    chronicle: &'a Chronicle,
    exit_code: u8,
}

/// The folder in which a folder is.
fn parent(folder: &Path) -> &Path {
    folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    match path == Path::new(STANDARD_OUTPUT) {
        true => print_json(&json_text(value)),
        false => fs::write(path, json_text(value)).map_err(|error| not_written(path, &error)),
    }
}

/// Finds out whether a file can be written, which leaves it there, empty where it was not.
fn can_be_written(path: &Path) -> Result<(), Failure> {
    if path == Path::new(STANDARD_OUTPUT) {
        return Ok(());
    }
    let opened = fs::OpenOptions::new().create(true).append(true).open(path);
    opened.map(|_| ()).map_err(|error| not_written(path, &error))
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    let hint = "--json names a file that can be written, or `-` for standard output";
    Failure::bad_input(format!("{}: {error}", path.display()), Some(hint.to_owned()))
}

/// Prints lines of our own among the command's: with our name and the time in front, and in colour where a person reads.
pub(super) fn say(text: &str) {
    // Nobody may be there to read it.
    let _ = io::stderr().lock().write_all(speech(text, Reader::of_errors(), &clock()).as_bytes());
}

/// Who reads what is printed to standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// A person in front of a terminal that shows colours.
    Colours,
    /// A person who wants none.
    Plain,
    /// A file, or another program.
    File,
}

impl Reader {
    fn of_errors() -> Self {
        let errors = io::stderr();
        match (io::IsTerminal::is_terminal(&errors), AutoStream::choice(&errors)) {
            (false, _) => Self::File,
            (true, ColorChoice::Never) => Self::Plain,
            (true, _) => Self::Colours,
        }
    }
}

/// Lines of our own as they are printed.
fn speech(text: &str, reader: Reader, clock: &str) -> String {
    let line = |line: &str| match reader {
        Reader::File => format!("lowtide: {}\n", printable(line)),
        // A carriage return, for the terminal may be raw.
        Reader::Plain => format!("lowtide {clock}: {}\r\n", printable(line)),
        Reader::Colours => format!("\x1b[1;36mlowtide {clock}:\x1b[0m {}\r\n", printable(line)),
    };
    text.lines().map(line).collect()
}

/// The time of day where this machine stands.
fn clock() -> String {
    jiff::Zoned::now().strftime("%H:%M:%S").to_string()
}

fn small_file(path: &Path) -> Option<String> {
    let small = path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() <= LARGEST_FILE);
    if small { fs::read_to_string(path).ok() } else { None }
}

fn cards() -> u64 {
    Sampler::new(SensorOptions::default()).fast(0.0).gpus.cards.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_lines_stand_out_where_a_person_reads() {
        assert_eq!(speech("a\nb\u{9b}", Reader::File, "10:20:30"), "lowtide: a\nlowtide: b\\u{9b}\n");
        assert_eq!(speech("a", Reader::Plain, "10:20:30"), "lowtide 10:20:30: a\r\n");
        assert_eq!(speech("a", Reader::Colours, "10:20:30"), "\x1b[1;36mlowtide 10:20:30:\x1b[0m a\r\n");
    }
}
