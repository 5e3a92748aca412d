//! Starts a command, and again as long as memory ran out and there is something to change.
//!
//! A kill that only the kernel tells of is written into the command's log too, in the kernel's words, so that whoever
//! reads the log alone sees the same.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::{Instant, SystemTime};

use lowtide_core::Bytes;
use lowtide_log::{Activity, steps};

use crate::command::checkpoint::CheckpointSearch;
use crate::command::contents::written;
use crate::command::start_folders::StartFolders;
use crate::evidence::kill_counter::KillCounter;
use crate::inside::allocator;
use crate::inside::door::{Door, Part};
use crate::inside::fatal_report::{fatal_report, reports};
use crate::inside::host_reserve;
use crate::journal::Journal;
use crate::keeper::folder::is_free;
use crate::keeper::judgement::judge;
use crate::keeper::safety::{Copies, Ground, Safety};
use crate::keeper::sequel::{Bounds, Sequel, could_not_resume, next};
use crate::keeper::trainer_state::with_batch;
use crate::output::epilogue::{Epilogue, FatalOom};
use crate::process::input::{InputState, StandardInput};
use crate::process::supervisor::{Observation, Supervisor};
use crate::{
    BatchSplit, Checkpoint, Chronicle, CommandLadder, Conclusion, EndKind, Evidence, Grace, Inside, InsideState,
    KeepError, Launch, Notice, ResumeRule, SCHEMA, StartRecord, batch_changed,
};

/// How a command is kept alive.
#[derive(Debug, Clone)]
pub struct KeepOptions {
    /// The folder where logs are written; it has no other run's.
    pub folder: PathBuf,
    /// How long processes have to end when they are told to.
    pub grace: Grace,
    /// Starts besides the first.
    pub max_restarts: u32,
    /// The rung of the first start.
    pub first_rung: usize,
    /// What is put into the command's Pythons.
    pub inside: Inside,
    /// Whether checkpoints that a start may write over are copied first.
    pub copies: Copies,
}

/// Why there is no further start.
struct Ending {
    conclusion: Conclusion,
    /// The signal by which somebody wanted that, while no command was running.
    signal: Option<i32>,
}

impl From<Conclusion> for Ending {
    fn from(conclusion: Conclusion) -> Self {
        Self { conclusion, signal: None }
    }
}

/// Runs a command to its end, starting it again when memory ran out.
///
/// Takes over the signals of this process, its streams and its children, and is therefore for programs that do
/// nothing else.
///
/// # Errors
///
/// Nothing was run: the command cannot be started, or the folder cannot be written. What goes wrong later is in
/// [`Chronicle::failure`].
pub fn keep(
    ladder: &CommandLadder,
    options: &KeepOptions,
    notify: &mut dyn FnMut(&Notice),
) -> Result<Chronicle, KeepError> {
    let begun = Instant::now();
    is_free(&options.folder)?;
    let journal = Journal::open(&options.folder);
    let mut starts: Vec<StartRecord> = Vec::new();
    let (ending, failure) = match start_on(ladder, options, &journal, &mut starts, notify) {
        Ok(ending) => (ending, None),
        Err(error) if starts.is_empty() => {
            journal.drop_in(&options.folder);
            return Err(error);
        }
        Err(error) => (Conclusion::Failed.into(), Some(error)),
    };
    let chronicle = Chronicle {
        schema: SCHEMA,
        command: ladder.command.iter().map(shown).collect(),
        folder: shown(&options.folder),
        ending: ending.conclusion,
        restarts: starts.len().saturating_sub(1),
        effective_batch: ladder.effective_batch().filter(|_| !batch_changed(&starts)),
        seconds: begun.elapsed().as_secs_f64(),
        starts,
        failure,
        signal: ending.signal,
    };
    journal.over(&chronicle);
    Ok(chronicle)
}

/// Starts a command, again and again, until there is a reason not to.
fn start_on(
    ladder: &CommandLadder,
    options: &KeepOptions,
    journal: &Journal,
    starts: &mut Vec<StartRecord>,
    notify: &mut dyn FnMut(&Notice),
) -> Result<Ending, KeepError> {
    let mut supervisor = Supervisor::new(options.grace)?;
    let resumption = &ladder.resumption;
    let begun = SystemTime::now();
    let mut safety =
        Safety { resumption, run: &options.folder, begun, copies: options.copies, relied_on: HashSet::new() };
    let mut own = StartFolders::default();
    let mut rung = options.first_rung;
    let mut input = StandardInput::look();
    let mut search = CheckpointSearch::default();
    let mut begins = Vec::new();
    let mut refused: Vec<Checkpoint> = Vec::new();
    // The batch of evaluation, where it is another than the command's own.
    let mut evaluated = None;
    loop {
        let number = starts.len() + 1;
        let ground = safety.keep(&search, number, &|| supervisor.ended_by().is_some(), notify);
        if let Some(signal) = supervisor.ended_by() {
            return Ok(Ending { conclusion: Conclusion::Interrupted, signal: Some(signal) });
        }
        if ground == Ground::Unsafe {
            return Ok(Conclusion::CheckpointsInDanger.into());
        }
        if !starts.is_empty() {
            safety.clear_the_way(starts.len(), notify);
        }
        let checkpoint = search.found.take();
        let batch = ladder.rungs.get(rung).copied();
        let stand_in = stand_in(checkpoint.as_ref(), batch, &begins, starts, &options.folder)?;
        let path = stand_in.as_ref().or(checkpoint.as_ref().map(|checkpoint| &checkpoint.path));
        let mut launch = ladder.launch(rung, &options.folder, path.map(PathBuf::as_path))?;
        if let Some(samples) = evaluated {
            ladder.set_evaluation(&mut launch, samples)?;
        }
        for copy in &launch.copies {
            copy.write()?;
        }
        if !starts.is_empty() {
            let (checkpoint, damaged, unclear) = (checkpoint.as_ref(), &*search.damaged, &*search.unclear);
            notify(&Notice::Restart {
                number,
                launch: &launch,
                batch,
                checkpoint,
                damaged,
                refused: &refused,
                unclear,
            });
        }
        let door = door(&options.folder, options.inside, starts, &launch);
        match &door {
            Some(door) => door.enter(&mut launch, ladder.python_paths()),
            None => allocator::unset(&mut launch),
        }
        let log = options.folder.join(format!("start-{number}.log"));
        let file = match File::create_new(&log) {
            // Nothing is lost yet. Later, a full disk costs the log alone.
            Err(error) if starts.is_empty() => return Err(KeepError::file(&log)(error)),
            file => file,
        };
        if starts.is_empty() {
            notify(&Notice::Log { log: &log });
        }
        let mut kills = KillCounter::look(Path::new("/"));
        own.before(resumption.start_folders());
        let began = SystemTime::now();
        begins.push(began);
        journal.started(number, &launch, batch, checkpoint.as_ref().map(|checkpoint| checkpoint.path.as_path()));
        let observation = supervisor.run(&launch, file, journal, notify).inspect_err(|_| {
            // Nothing was run: there is nothing in it.
            if starts.is_empty() {
                let _ = fs::remove_file(&log);
                door.as_ref().into_iter().for_each(Door::remove);
            }
        })?;
        own.after(resumption.start_folders());
        let reports = reports(&options.folder, number);
        let evidence = kills.evidence(&observation.footprint).or_else(|| fatal_report(&reports));
        let record = record(&launch, &log, observation, evidence, reports.len());
        let resumed_step = checkpoint.as_ref().and_then(|checkpoint| checkpoint.step);
        let resumed_from = checkpoint.as_ref().map(|checkpoint| shown(&checkpoint.path));
        let inside = door.map(|door| if door.was_seen() { InsideState::Active } else { InsideState::Unread });
        let record = StartRecord { rung, batch, resumed_from, resumed_step, inside, ..record };
        if options.inside.reserve.is_some() {
            let uses = host_reserve::uses(&options.folder, number);
            journal.overflowed(&uses);
            notify(&Notice::Overflows { uses: &uses });
        }
        journal.ended(number, &record);
        notify(&Notice::End { record: &record });
        let ran_out = record.outcome == EndKind::OutOfMemory;
        let is_failure = record.outcome == EndKind::Failed && could_not_resume(starts, &record);
        // What wrote a checkpoint of its own did resume.
        let is_refusal = is_failure && !resumption.wrote_one(began, &own);
        refused.extend(checkpoint.filter(|_| is_refusal));
        // What was written anew since is another one.
        refused.retain(|checkpoint| written(&checkpoint.path) == Some(checkpoint.written));
        starts.push(record);
        if let Some(copy) = launch.copies.iter().find(|copy| !copy.was_used()) {
            notify(&Notice::CopyUnused { copy });
            if ran_out {
                return Ok(Conclusion::NoRungs.into());
            }
        }
        search = match ran_out || is_refusal {
            true => resumption.search(begun, &refused, &own),
            false => CheckpointSearch::default(),
        };
        let bounds = bounds(ladder, options, &search, is_refusal);
        let sequel = match smaller_evaluation(ladder, starts, evaluated, bounds) {
            Some(samples) => {
                evaluated = Some(samples);
                Sequel::Again { rung }
            }
            None => next(starts, bounds),
        };
        match sequel {
            Sequel::Stop(conclusion) => return Ok(conclusion.into()),
            Sequel::Again { rung: lower } => rung = lower,
            Sequel::Anew { rung: same } => {
                rung = same;
                notify(&Notice::Unresumable { instead: search.found.as_ref() });
            }
        }
        match input.renew() {
            InputState::Whole => {}
            InputState::Gone if ran_out => return Ok(Conclusion::InputGone.into()),
            InputState::Gone => return Ok(Conclusion::Failed.into()),
            state => notify(&Notice::Input { state }),
        }
    }
}

/// How far the next starts may go.
fn bounds(ladder: &CommandLadder, options: &KeepOptions, search: &CheckpointSearch, is_refusal: bool) -> Bounds {
    let rule = &ladder.resumption.rule;
    let is_ours = matches!(rule, ResumeRule::Trainer { .. } | ResumeRule::Call(_));
    Bounds {
        rungs: ladder.rungs.len(),
        restarts: options.max_restarts,
        resumes: search.found.is_some() || matches!(rule, ResumeRule::Own(_)),
        anew: is_refusal && (search.found.is_some() || is_ours),
    }
}

/// A folder that stands for a checkpoint which would make the start take another micro-batch than it is told.
fn stand_in(
    checkpoint: Option<&Checkpoint>,
    batch: Option<BatchSplit>,
    begins: &[SystemTime],
    starts: &[StartRecord],
    folder: &Path,
) -> Result<Option<PathBuf>, KeepError> {
    let Some(checkpoint) = checkpoint else { return Ok(None) };
    // The start that wrote it is the last of those that began before.
    let writer = begins.iter().rposition(|begun| *begun <= checkpoint.written);
    let writer = writer.and_then(|index| starts.get(index)?.batch);
    let Some((writer, batch)) = writer.zip(batch) else { return Ok(None) };
    let folder = folder.join(format!("resume-{}", starts.len() + 1));
    with_batch(&checkpoint.path, &folder, [writer.micro, batch.micro])
}

/// Half the batch of evaluation, where memory ran out in one: the batch of training does nothing about it.
fn smaller_evaluation(
    ladder: &CommandLadder,
    starts: &[StartRecord],
    evaluated: Option<u64>,
    bounds: Bounds,
) -> Option<u64> {
    let last = starts.last()?;
    let is_it = last.outcome == EndKind::OutOfMemory && last.phase == Some(Activity::Evaluation);
    let samples = evaluated.or(ladder.evaluation.as_ref().map(|flag| flag.number))?;
    (is_it && samples > 1 && starts.len() <= bounds.restarts as usize).then_some(samples / 2)
}

/// The door of the next start; none where nothing is to come in. A full disk costs that and nothing else.
fn door(folder: &Path, inside: Inside, starts: &[StartRecord], launch: &Launch) -> Option<Door> {
    let parts: Vec<Part> = inside.parts(folder, starts);
    let door = Door { folder: folder.join(format!("inside-{}", starts.len() + 1)) };
    let all: Vec<Part> = parts.iter().cloned().chain(allocator::part(launch)).collect();
    (!parts.is_empty() && door.can_be_listed() && door.write(&all).is_ok()).then_some(door)
}

fn record(
    launch: &Launch,
    log: &Path,
    observation: Observation,
    evidence: Option<Evidence>,
    reports: usize,
) -> StartRecord {
    let mut transcript = observation.transcript.lock().unwrap_or_else(PoisonError::into_inner);
    let epilogue = Epilogue::of(&transcript.tail);
    let outcome = judge(observation.end, observation.interruption, &epilogue, evidence, reports);
    let is_error = matches!(outcome, EndKind::OutOfMemory | EndKind::Failed);
    let activity = epilogue.activity.filter(|_| is_error);
    let oom = epilogue.oom.filter(|_| is_error);
    let evidence = evidence.filter(|_| outcome == EndKind::OutOfMemory);
    // `Killed` alone does not say whose limit it was.
    let said = oom.as_ref().filter(|oom| oom.says_so());
    let by_kernel = || evidence.map_or_else(String::new, |evidence| evidence.sentence());
    let cause = (outcome == EndKind::OutOfMemory).then(|| said.map_or_else(by_kernel, FatalOom::sentence));
    if let Some(line) = evidence.and_then(Evidence::kernel_line) {
        transcript.add(&line);
    }
    let reported = match evidence {
        Some(Evidence::Report { asked_bytes, .. }) => asked_bytes.map(Bytes),
        _ => None,
    };
    let set = |(name, value): &(OsString, OsString)| format!("{}={}", shown(name), shown(value));
    StartRecord {
        rung: 0,
        batch: None,
        command: launch.command.iter().map(shown).collect(),
        environment: launch.environment.iter().map(set).collect(),
        resumed_from: None,
        resumed_step: None,
        log: shown(log),
        log_cut: transcript.refused.as_ref().map(ToString::to_string),
        output_bytes: transcript.bytes,
        seconds: observation.seconds,
        end: observation.end,
        outcome,
        cause,
        requested_bytes: oom.as_ref().and_then(FatalOom::requested).or(reported),
        inside: None,
        phase: oom.as_ref().map_or(activity, |oom| oom.activity),
        line: oom.map(|oom| oom.line),
        evidence,
        batch_report: transcript.batch_report,
        step: steps(&transcript.tail.bytes).next_back(),
        peak: observation.footprint.peak,
    }
}

fn shown(text: impl Into<OsString>) -> String {
    text.into().to_string_lossy().into_owned()
}
