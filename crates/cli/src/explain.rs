//! `lowtide explain`: why a training ran out of memory, from its log.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use lowtide_config::command::quoted;
use lowtide_core::Bytes;
use lowtide_explain::{
    Account, Advice, Config, ConfigError, Context, Culprit, Explanation, Investigation, NotMemory, Patch, Place,
    Syntax, Verdict,
};

use crate::output::{Failure, Side, aligned, print, printable, report};

/// The log has no out-of-memory error.
const NONE_FOUND: u8 = 1;
/// What a command line is called in diffs.
const COMMAND_LINE: &str = "command line";
/// Columns of the text, and of its margin.
const WIDTH: usize = 100;
const MARGIN: usize = 10;
/// How many of the earlier events are listed.
const LISTED: usize = 10;
/// How much is read at once.
const PIECE: usize = 1 << 20;
/// Far above any configuration people write by hand.
const LARGEST_CONFIG: u64 = 16 << 20;

/// Say from a log why memory ran out, which tensor it was, and what to change.
///
/// Finds every out-of-memory event of a log of any size and any engine, the last one first: the cause with its
/// arithmetic, the culprit, advice in order of gain against cost, and a patch for the configuration.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide explain train.log
  python train.py 2>&1 | tee train.log; lowtide explain train.log --config config/train_gpt2.py
  lowtide explain train.log --config run.yaml --config config.json --write
  lowtide explain train.log --command 'python run.py --per_device_train_batch_size 16'
  kubectl logs mine | lowtide explain - --json

Exit codes:
  0    memory ran out, and here is why
  1    no out-of-memory error in the log
  2    bad input: a file that cannot be read, or a patch that cannot be written")]
pub(crate) struct ExplainArgs {
    /// The log, or `-` for standard input.
    #[arg(value_name = "FILE")]
    log: PathBuf,

    /// A configuration of the run: nanoGPT's Python, YAML, JSON (also Hugging Face's config.json), or a shell script.
    /// May be given several times; a later one counts before an earlier one.
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,

    /// The command line of the run.
    #[arg(long, value_name = "COMMAND")]
    command: Option<String>,

    /// Write the patch into the configuration. Without it, it is only shown.
    #[arg(long)]
    write: bool,

    /// Write the patch even where the patch of this log was written into the configuration before.
    #[arg(long, requires = "write")]
    force: bool,

    /// Show every event in full, not only the last one.
    #[arg(long)]
    all: bool,

    /// Print the verdicts as a JSON list, the last event first.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ExplainArgs) -> ExitCode {
    match explain(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NONE_FOUND),
        Err(failure) => report(Err(failure)),
    }
}

/// Whether there was anything to explain.
fn explain(args: &ExplainArgs) -> Result<bool, Failure> {
    let context = context(args)?;
    let explained = read(&args.log)?.finish(&context);
    // Written first, so that what is printed is what is there.
    let written = explained.verdicts.first().filter(|_| args.write).map(|verdict| write_patch(args, verdict));
    let (written, refused) = match written {
        Some(Ok(name)) => (Some(name), None),
        Some(Err(failure)) => (None, Some(failure)),
        None => (None, None),
    };
    match args.json {
        true => print(&format!("{}\n", as_json(&explained.verdicts)?))?,
        false => print(&told(args, &explained, written.as_deref()))?,
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
    let explained = reader.finish(&Context { configs });
    let Some(verdict) = explained.verdicts.first() else { return Vec::new() };
    let mut lines = vec![format!("cause: {}", cause(verdict))];
    lines.extend(verdict.culprit.as_ref().map(|culprit| format!("culprit: {}", named(culprit))));
    lines.push(format!("more: lowtide explain {}", quoted(&[log])));
    lines.iter().map(|line| printable(line)).collect()
}

fn context(args: &ExplainArgs) -> Result<Context, Failure> {
    let mut configs = Vec::new();
    for path in &args.config {
        configs.push(read_config(path)?);
    }
    if let Some(command) = &args.command {
        let wrong = |error: ConfigError| Failure::bad_input(error.to_string(), None);
        configs.push(Config::parse_as(Syntax::Command, COMMAND_LINE, command).map_err(wrong)?);
    }
    Ok(Context { configs })
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

fn read(path: &Path) -> Result<Investigation, Failure> {
    let failure = |error: &io::Error| Failure::bad_input(format!("{}: {error}", path.display()), None);
    let mut source: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(path).map_err(|error| failure(&error))?),
    };
    let mut reader = Investigation::new();
    let mut piece = vec![0; PIECE];
    let mut is_first = true;
    loop {
        match source.read(&mut piece) {
            Ok(0) => return Ok(reader),
            Ok(length) if is_first && let Some((kind, reads)) = compression(&piece[..length]) => {
                let text = format!("{}: this is compressed ({kind}), not a log", path.display());
                return Err(Failure::bad_input(text, Some(format!("{reads} LOG | lowtide explain -"))));
            }
            Ok(length) => {
                is_first = false;
                reader.feed(&piece[..length]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failure(&error)),
        }
    }
}

/// What a file is packed with, by its first bytes, and what reads it.
fn compression(start: &[u8]) -> Option<(&'static str, &'static str)> {
    const KINDS: [(&[u8], &str, &str); 6] = [
        (b"\x1f\x8b", "gzip", "zcat"),
        (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"),
        (b"\xfd7zXZ\0", "xz", "xzcat"),
        (b"BZh", "bzip2", "bzcat"),
        (b"PK\x03\x04", "zip", "unzip -p"),
        (b"\x04\x22\x4d\x18", "lz4", "lz4cat"),
    ];
    let (magic, kind, reads) = KINDS.iter().find(|(magic, ..)| start.starts_with(magic))?;
    // Three letters may begin a text; the digit and the block behind them do not.
    let is_text = *magic == b"BZh" && start.get(4..10) != Some(b"1AY&SY");
    (!is_text).then_some((*kind, *reads))
}

fn as_json(verdicts: &[Verdict]) -> Result<String, Failure> {
    serde_json::to_string_pretty(verdicts)
        .map_err(|error| Failure::bad_input(format!("cannot write JSON: {error}"), None))
}

/// Writes the patch of the last event, whole or not at all; the name of what was written.
fn write_patch(args: &ExplainArgs, verdict: &Verdict) -> Result<String, Failure> {
    let Some(patch) = &verdict.patch else { return Err(no_patch(args, verdict)) };
    if patch.syntax == Syntax::Command && patch.file == COMMAND_LINE {
        let hint = "type it as the patch shows; leave --write out to see it";
        return Err(Failure::bad_input("a command line cannot be written to".to_owned(), Some(hint.to_owned())));
    }
    let path = Path::new(&patch.file);
    let failure = |problem: String| {
        Failure::bad_input(format!("{}: {problem}", path.display()), Some("nothing was written".to_owned()))
    };
    // A rename would go past it, but whoever made it read-only meant it.
    let is_read_only = fs::metadata(path).is_ok_and(|metadata| metadata.permissions().readonly());
    if is_read_only {
        return Err(failure("the file is read-only".to_owned()));
    }
    let mark = mark(verdict);
    if !args.force && bears(path, &mark) {
        let text = format!("{}: the patch of this log was written into it before", path.display());
        let hint = "nothing was written; run with the file as it is, or add --force";
        return Err(Failure::bad_input(text, Some(hint.to_owned())));
    }
    let now = fs::read_to_string(path).map_err(|error| failure(error.to_string()))?;
    let text = patch.apply(&now).map_err(|error| failure(error.to_string()))?;
    replace_file(path, &text, &mark).map_err(|error| failure(error.to_string()))?;
    Ok(patch.file.clone())
}

/// The attribute of a file that says whose patch was written into it last. Editors that write a file anew leave it out.
const MARK: &str = "user.lowtide.patch";

/// What tells an event of a log from others.
fn mark(verdict: &Verdict) -> String {
    format!("{}:{}", verdict.line, verdict.message.chars().take(200).collect::<String>())
}

/// Whether the patch of an event was written into a file; not where its file system keeps no attributes.
fn bears(path: &Path, mark: &str) -> bool {
    let mut kept = vec![0; mark.len() + 1];
    rustix::fs::getxattr(path, MARK, &mut kept).is_ok_and(|length| &kept[..length] == mark.as_bytes())
}

/// Why there is nothing to write.
fn no_patch(args: &ExplainArgs, verdict: &Verdict) -> Failure {
    let has_config = !args.config.is_empty() || args.command.is_some();
    let why = verdict.evidence.iter().rev().find(|text| text.contains("no patch"));
    let none = "there is no patch to write";
    let (text, hint) = match why {
        Some(why) if why.contains("another run") => (why.clone(), "give the configuration as this run had it"),
        Some(why) => (why.clone(), "change it by hand, as the advice says"),
        None if has_config => (
            format!("{none}: none of the advice is a change of a plain value in the configuration given"),
            "change it by hand, as the advice says",
        ),
        None => (format!("{none}: no configuration was given"), "give the configuration of this run with --config"),
    };
    Failure::bad_input(text, Some(hint.to_owned()))
}

/// Writes beside the file and renames, so that the file is the old one or the new one; a link stays a link.
fn replace_file(path: &Path, text: &str, mark: &str) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let beside = path.with_file_name(format!(".{name}.{}.lowtide", std::process::id()));
    let written = (|| {
        let mut file = File::options().write(true).create_new(true).open(&beside)?;
        let old = fs::metadata(&path)?;
        // Who may not give files away keeps this one.
        let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
        file.set_permissions(old.permissions())?;
        file.write_all(text.as_bytes())?;
        // Where attributes are not kept, a second patch is only warned of.
        let _ = rustix::fs::fsetxattr(&file, MARK, mark.as_bytes(), rustix::fs::XattrFlags::empty());
        file.sync_all()?;
        fs::rename(&beside, &path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

fn told(args: &ExplainArgs, explained: &Explanation, written: Option<&str>) -> String {
    let name = match args.log == Path::new("-") {
        true => "the log".to_owned(),
        false => args.log.display().to_string(),
    };
    let Some((last, earlier)) = explained.verdicts.split_first() else {
        return nothing(&name, explained.not_memory.as_ref());
    };
    let mut text = event(&name, last, written);
    if written.is_none() && last.patch.as_ref().is_some_and(|patch| is_younger(Path::new(&patch.file), &args.log)) {
        text.push_str("the file was changed after the log ended: it may have the patch already\n");
    }
    if earlier.is_empty() {
        return text;
    }
    let count = explained.events - 1;
    let least = if explained.has_more { "at least " } else { "" };
    let events = if count == 1 { "event" } else { "events" };
    text.push_str(&format!("\n{least}{count} earlier {events} in this log:\n"));
    if args.all {
        earlier.iter().for_each(|verdict| text.push_str(&format!("\n{}", event(&name, verdict, None))));
        return text;
    }
    for verdict in earlier.iter().take(LISTED) {
        text.push_str(&format!("  line {}: {}\n", verdict.line, verdict.cause.words()));
    }
    if earlier.len() > LISTED {
        text.push_str("  ...\n");
    }
    text.push_str(match earlier.len() as u64 == count {
        true => "  --all shows them in full\n",
        false => "  --all shows the last of them in full\n",
    });
    text
}

/// How much later a file must have been changed to be of another time than the log.
const LATER: Duration = Duration::from_secs(2);

/// Whether a file was changed after the log was.
fn is_younger(file: &Path, log: &Path) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    changed(file).zip(changed(log)).is_some_and(|(file, log)| file.duration_since(log).is_ok_and(|by| by > LATER))
}

fn nothing(name: &str, instead: Option<&NotMemory>) -> String {
    let mut text = format!("no out-of-memory error in {name}\n");
    if let Some(found) = instead {
        let line: String = found.text.chars().take(160).collect();
        text.push_str(&format!(
            "line {}: {}\n  what looks like one is {}\n",
            found.line,
            printable(&line),
            found.words()
        ));
    }
    text
}

/// One event: the cause first, then what it rests on, then what to do.
fn event(name: &str, verdict: &Verdict, written: Option<&str>) -> String {
    let mut text = format!("memory ran out at line {} of {name}{}\n\n", verdict.line, place(verdict));
    let mut cause = vec![cause(verdict)];
    cause.extend(verdict.contributing.iter().map(|cause| format!("also: {}", cause.part())));
    section(&mut text, "cause", &cause);
    section(&mut text, "evidence", &verdict.evidence);
    if let Some(culprit) = &verdict.culprit {
        section(&mut text, "culprit", &[named(culprit), culprit.how.clone()]);
    }
    if let Some(account) = &verdict.model {
        section(&mut text, "a step", &table(account));
    }
    let advice: Vec<String> =
        verdict.advice.iter().enumerate().map(|(index, advice)| numbered(index + 1, advice)).collect();
    section(&mut text, "advice", &advice);
    let remarks: Vec<String> = verdict.remarks.iter().map(|remark| remark.text.clone()).collect();
    section(&mut text, "besides", &remarks);
    if let Some(patch) = &verdict.patch {
        let number = verdict.advice.iter().position(|advice| advice.patch.as_ref() == Some(patch));
        text.push_str(&shown_patch(patch, number.map(|index| index + 1), written));
    }
    text
}

/// The cause, and how sure it is.
fn cause(verdict: &Verdict) -> String {
    format!("{} ({:.0} % sure)", verdict.cause.words(), (verdict.certainty * 100.0).round())
}

/// The culprit with its shape and size, as far as they are known.
fn named(culprit: &Culprit) -> String {
    let size = culprit.bytes.map_or(String::new(), |bytes| format!(" = {bytes}"));
    let shape: Vec<String> = culprit.shape.iter().map(u64::to_string).collect();
    let shape = match (shape.is_empty(), &culprit.dtype) {
        (true, _) => String::new(),
        (false, Some(dtype)) => format!(", {} in {dtype}", shape.join(" x ")),
        (false, None) => format!(", {}", shape.join(" x ")),
    };
    format!("{}{shape}{size}", culprit.name)
}

fn place(verdict: &Verdict) -> String {
    let mut text = match (verdict.place, verdict.device) {
        (Place::Device, Some(index)) => format!(": device {index}"),
        (Place::Device, None) => ": the device".to_owned(),
        (Place::Host, _) => ": the machine".to_owned(),
    };
    if let Some(phase) = verdict.phase {
        text.push_str(&format!(", in {phase}"));
    }
    match verdict.step {
        Some(step) => text.push_str(&format!(", after step {step}")),
        None if verdict.before_first_step => text.push_str(", before the first step"),
        None => {}
    }
    if let Some(time) = &verdict.time {
        text.push_str(&format!(", at {}", printable(time)));
    }
    text
}

/// A heading in the margin, and paragraphs beside it.
fn section(text: &mut String, heading: &str, paragraphs: &[String]) {
    let mut heading = heading;
    for line in paragraphs.iter().flat_map(|paragraph| paragraph.lines()) {
        for part in wrapped(&printable(line)) {
            text.push_str(format!("{heading:<MARGIN$}{part}").trim_end());
            text.push('\n');
            heading = "";
        }
    }
}

/// A line broken at blanks; what goes on stands under the first word, past a number.
fn wrapped(line: &str) -> Vec<String> {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let blanks = line.bytes().take_while(|byte| *byte == b' ').count();
    let indent = if digits > 0 && line[digits..].starts_with(". ") { digits + 2 } else { blanks };
    let mut lines = vec![line[..indent].to_owned()];
    let mut is_new = true;
    // Blanks between words stay: tables are aligned by them.
    for word in line[indent..].split(' ') {
        let last = lines.last_mut().expect("there is always a line");
        let blank = usize::from(!is_new);
        if !is_new && last.chars().count() + blank + word.chars().count() > WIDTH - MARGIN {
            lines.push(format!("{:indent$}{word}", ""));
        } else {
            last.push_str(&" ".repeat(blank));
            last.push_str(word);
        }
        is_new = false;
    }
    lines
}

fn numbered(number: usize, advice: &Advice) -> String {
    let kept = [
        (advice.same_effective_batch, "effective batch"),
        (advice.same_model, "model"),
        (advice.same_numbers, "numbers"),
    ];
    let names = |wanted: bool| -> Vec<&str> {
        kept.iter().filter(|(same, _)| *same == wanted).map(|(_, name)| *name).collect()
    };
    let change = match names(false).as_slice() {
        [] => "same effective batch, model and numbers".to_owned(),
        changed => format!("changes {}", changed.join(", ")),
    };
    let peak = advice.expected_peak_bytes.map_or(String::new(), |peak| format!("expected peak {peak}; "));
    format!("{number}. {}\n   [{peak}{change}]", advice.text)
}

fn table(account: &Account) -> Vec<String> {
    let mut rows: Vec<[String; 3]> =
        account.rows.iter().map(|row| [row.name.to_owned(), row.bytes.to_string(), row.how.clone()]).collect();
    rows.push(["together".to_owned(), account.total_bytes.to_string(), "estimated".to_owned()]);
    aligned([Side::Left, Side::Right, Side::Left], &rows).lines().map(str::to_owned).collect()
}

fn shown_patch(patch: &Patch, advice: Option<usize>, written: Option<&str>) -> String {
    let state = match (written, patch.file.as_str()) {
        (Some(_), _) => "written",
        (None, COMMAND_LINE) => "type it so",
        (None, _) => "--write writes it",
    };
    let advice = advice.map_or(String::new(), |number| format!(", for advice {number}"));
    // Only a terminal can be steered; `patch` needs every byte.
    let diff = match io::stdout().is_terminal() {
        true => patch.diff.lines().map(|line| format!("{}\n", printable_with_tabs(line))).collect(),
        false => patch.diff.clone(),
    };
    format!("\npatch of {}{advice} ({state})\n{diff}", printable(&patch.file))
}

fn printable_with_tabs(line: &str) -> String {
    let parts: Vec<String> = line.split('\t').map(printable).collect();
    parts.join("\t")
}
