//! `lowtide explain`: why a training ran out of memory, from its log.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use lowtide_args::ExplainArgs;
use lowtide_config::command::quoted;
use lowtide_core::Bytes;
use lowtide_explain::{Config, ConfigError, Context, Lever, Syntax};

use super::html::html;
use super::log_file::read;
use super::memory_reports::reports_of;
use super::named_files::configs_of;
use super::patch_file::{COMMAND_LINE, write_patch};
use super::run_log::RunLog;
use super::text::told;
use super::words::{cause, held, named, place};
use crate::output::{Failure, json_text, print_json, print_page, printable, report, to_stderr};
use crate::replay::{IsJson, explain_snapshot};
use crate::section::MARGIN;

/// The log has no out-of-memory error.
const NONE_FOUND: u8 = 1;
/// How many of those who hold most are named in a few lines.
const SHORT: usize = 3;
/// Far above any configuration people write by hand.
const LARGEST_CONFIG: u64 = 16 << 20;

pub(crate) fn run(args: &ExplainArgs) -> ExitCode {
    match explain(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NONE_FOUND),
        Err(failure) => report(Err(failure)),
    }
}

/// Whether there was anything to explain.
fn explain(args: &ExplainArgs) -> Result<bool, Failure> {
    if let Some(path) = &args.snapshot {
        let is_json = if args.json { IsJson::Yes } else { IsJson::No };
        return explain_snapshot(path, is_json);
    }
    let log = RunLog::find(args.log.as_deref())?;
    let context = context(args, &log)?;
    let explained = read(&log.path)?.finish(&context);
    // Written first, so that what is printed is what is there.
    let written = explained.verdicts.first().filter(|_| args.write).map(|verdict| write_patch(args, verdict));
    let (written, refused) = match written {
        Some(Ok(name)) => (Some(name), None),
        Some(Err(failure)) => (None, Some(failure)),
        None => (None, None),
    };
    if let (Some(path), Some(verdict)) = (&args.html, explained.verdicts.first()) {
        let failure = |error: std::io::Error| Failure::bad_input(format!("{}: {error}", path.display()), None);
        std::fs::write(path, html(&log.path, verdict, explained.events)).map_err(failure)?;
    }
    match args.json {
        true => print_json(&json_text(&explained.verdicts))?,
        false => print_page(&told(args, &log, &explained, written.as_deref()), MARGIN)?,
    }
    refused.map_or(Ok(!explained.verdicts.is_empty()), Err)
}

/// Why a command ran out of memory, in a few lines, from its log; nothing where the log does not tell.
pub(crate) fn in_short(log: &Path, command: &[String]) -> Vec<String> {
    // It adorns what is told of a run; a fault of ours in it must not end the run.
    std::panic::catch_unwind(|| short(log, &quoted(command))).unwrap_or_default()
}

fn short(log: &Path, command: &str) -> Vec<String> {
    let configs = Config::parse_as(Syntax::Command, COMMAND_LINE, command).into_iter().collect();
    let Ok(reader) = read(log) else { return Vec::new() };
    let explained = reader.finish(&Context { configs, reports: reports_of(log) });
    let Some(verdict) = explained.verdicts.first() else { return Vec::new() };
    let mut lines = vec![format!("cause: {}", cause(verdict))];
    lines.extend(verdict.culprit.as_ref().map(|culprit| format!("culprit: {}", named(culprit))));
    // What the process wrote down itself is worth a line; a stack is in the log anyway.
    if !verdict.tensors.is_empty() {
        lines.extend(verdict.code.as_ref().map(|code| format!("asked for in {}", place(code))));
        let most = verdict.tensors.iter().take(SHORT).map(held).collect::<Vec<_>>();
        lines.push(format!("held most: {}", most.join("; ")));
    }
    lines.push(format!("more: lowtide explain {}", quoted(&[log])));
    lines.iter().map(|line| printable(line)).collect()
}

/// What makes room where a smaller micro-batch does not, from the log of a command; nothing where the log does not tell.
pub(crate) fn beyond_the_batch(log: &Path, command: &[String]) -> Option<String> {
    std::panic::catch_unwind(|| other_advice(log, &quoted(command))).ok().flatten()
}

fn other_advice(log: &Path, command: &str) -> Option<String> {
    let configs = Config::parse_as(Syntax::Command, COMMAND_LINE, command).into_iter().collect();
    let explained = read(log).ok()?.finish(&Context { configs, reports: reports_of(log) });
    let is_of_batch = |lever: Lever| matches!(lever, Lever::MicroBatch | Lever::EvaluationBatch | Lever::FewerRequests);
    let verdict = explained.verdicts.first()?;
    verdict.advice.iter().find(|advice| !is_of_batch(advice.lever)).map(|advice| printable(&advice.text))
}

fn context(args: &ExplainArgs, log: &RunLog) -> Result<Context, Failure> {
    let mut configs = Vec::new();
    for path in &args.config {
        configs.push(read_config(path)?);
    }
    if let Some(command) = args.command.as_ref().or(log.command.as_ref()) {
        let wrong = |error: ConfigError| Failure::bad_input(error.to_string(), None);
        let (named, missing) = configs_of(command);
        for file in missing {
            to_stderr(&format!("note: {file}, which the command names, cannot be read from here"));
        }
        // What is given by hand stands for a file of the same name that the command leads to.
        let given: Vec<String> = configs.iter().map(|config| config.name.clone()).collect();
        configs.splice(0..0, named.into_iter().filter(|config| !given.contains(&config.name)));
        configs.push(Config::parse_as(Syntax::Command, COMMAND_LINE, command).map_err(wrong)?);
    }
    Ok(Context { configs, reports: reports_of(&log.path) })
}

fn read_config(path: &Path) -> Result<Config, Failure> {
    let failure = |problem: String, hint: Option<&str>| {
        Failure::bad_input(format!("{}: {problem}", path.display()), hint.map(str::to_owned))
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| failure(error.to_string(), None))?;
    file.take(LARGEST_CONFIG + 1).read_to_end(&mut bytes).map_err(|error| failure(error.to_string(), None))?;
    if bytes.len() as u64 > LARGEST_CONFIG {
        return Err(failure(format!("more than {} are too many for a configuration", Bytes(LARGEST_CONFIG)), None));
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        failure("this is not text".to_owned(), Some("give the configuration of the run, not a checkpoint"))
    })?;
    Config::parse(&path.display().to_string(), &text).map_err(|error| {
        let hint = "it is read by its ending: .py, .yaml, .json or .sh";
        Failure::bad_input(error.to_string(), Some(hint.to_owned()))
    })
}
