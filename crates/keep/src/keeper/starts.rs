//! Starts a command, and again as long as memory ran out and there is something to change.
//!
//! A kill that only the kernel tells of is written into the command's log too, in the kernel's words, so that whoever
//! reads the log alone sees the same.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::{Duration, Instant, SystemTime};

use lowtide_core::Bytes;
use lowtide_disk::move_to;
use lowtide_log::{Activity, steps};
use lowtide_trainers::Beginning;

use crate::command::checkpoint::CheckpointSearch;
use crate::evidence::kill_counter::KillCounter;
use crate::inside::door::Door;
use crate::inside::fatal_report::{fatal_report, reports};
use crate::inside::host_reserve;
use crate::journal::Journal;
use crate::keeper::folder::is_free;
use crate::keeper::judgement::judge;
use crate::keeper::refuge::{Way, keep_safe};
use crate::keeper::sequel::{Bounds, Sequel, could_not_resume, next};
use crate::keeper::trainer_state::with_batch;
use crate::output::epilogue::{Epilogue, FatalOom};
use crate::process::input::{InputState, StandardInput};
use crate::process::supervisor::{Observation, Supervisor};
use crate::{
    Chronicle, CommandLadder, Conclusion, EndKind, Evidence, Inside, InsideState, KeepError, Launch, Notice,
    ResumeRule, Resumption, SCHEMA, StartRecord, batch_changed,
};

/// How a command is kept alive.
#[derive(Debug, Clone)]
pub struct KeepOptions {
    /// The folder where logs are written; it has no other run's.
    pub folder: PathBuf,
    /// How long processes have to end when they are told to.
    pub grace: Duration,
    /// Starts besides the first.
    pub max_restarts: u32,
    /// The rung of the first start.
    pub first_rung: usize,
    /// What is put into the command's Pythons.
    pub inside: Inside,
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
        Err(error) => (Conclusion::Failed, Some(error)),
    };
    let chronicle = Chronicle {
        schema: SCHEMA,
        command: ladder.command.iter().map(shown).collect(),
        folder: shown(&options.folder),
        ending,
        restarts: starts.len().saturating_sub(1),
        effective_batch: ladder.effective_batch().filter(|_| !batch_changed(&starts)),
        seconds: begun.elapsed().as_secs_f64(),
        starts,
        failure,
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
) -> Result<Conclusion, KeepError> {
    let begun = SystemTime::now();
    let mut supervisor = Supervisor::new(options.grace)?;
    let mut rung = options.first_rung;
    let mut input = StandardInput::look();
    let mut search = CheckpointSearch::default();
    let mut begins = Vec::new();
    let mut refused: Vec<PathBuf> = Vec::new();
    // Whether a start could not resume, so that none is to try it again.
    let mut is_anew = false;
    // The batch of evaluation, where it is another than the command's own.
    let mut evaluated = None;
    loop {
        if supervisor.is_told_to_end() {
            return Ok(Conclusion::Interrupted);
        }
        let number = starts.len() + 1;
        save(&ladder.resumption, &search, begun, &options.folder, number, notify);
        if !starts.is_empty() {
            set_aside(&ladder.resumption, begun, &options.folder, starts.len(), notify);
        }
        let checkpoint = search.found.take();
        let batch = ladder.rungs.get(rung).copied();
        let stand_in = match &checkpoint {
            Some(checkpoint) => {
                let writer = writer(&checkpoint.path, &begins).and_then(|index| starts.get(index)?.batch);
                let micro = writer.zip(batch).map(|(writer, batch)| [writer.micro, batch.micro]);
                let folder = options.folder.join(format!("resume-{number}"));
                micro.map_or(Ok(None), |micro| with_batch(&checkpoint.path, &folder, micro))?
            }
            None => None,
        };
        let path = stand_in.as_ref().or(checkpoint.as_ref().map(|checkpoint| &checkpoint.path));
        let mut launch = ladder.launch(rung, &options.folder, path.map(PathBuf::as_path))?;
        if let Some(samples) = evaluated {
            ladder.set_evaluation(&mut launch, samples)?;
        }
        if !starts.is_empty() {
            let (checkpoint, damaged) = (checkpoint.as_ref(), search.damaged.as_slice());
            notify(&Notice::Restart { number, launch: &launch, batch, checkpoint, damaged, refused: &refused });
        }
        for copy in &launch.copies {
            copy.write()?;
        }
        let door = door(&options.folder, options.inside, starts);
        if let Some(door) = &door {
            door.enter(&mut launch, ladder.python_paths());
        }
        let log = options.folder.join(format!("start-{number}.log"));
        let file = match File::create_new(&log) {
            // Nothing is lost yet. Later, a full disk costs the log alone.
            Err(error) if starts.is_empty() => return Err(KeepError::file(&log)(error)),
            file => file,
        };
        let mut kills = KillCounter::look(Path::new("/"));
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
        let is_failure = record.outcome == EndKind::Failed && could_not_resume(&record);
        // What wrote a checkpoint of its own did resume.
        let is_refusal = is_failure && !ladder.resumption.wrote_one(began);
        refused.extend(checkpoint.filter(|_| is_refusal).map(|checkpoint| checkpoint.path));
        starts.push(record);
        if let Some(copy) = launch.copies.iter().find(|copy| !copy.was_used()) {
            notify(&Notice::CopyUnused { copy });
            if ran_out {
                return Ok(Conclusion::NoRungs);
            }
        }
        search = match (ran_out || is_refusal) && !is_anew {
            true => ladder.resumption.search(begun, &refused),
            false => CheckpointSearch::default(),
        };
        let rule = &ladder.resumption.rule;
        let bounds = Bounds {
            rungs: ladder.rungs.len(),
            restarts: options.max_restarts,
            resumes: search.found.is_some() || matches!(rule, ResumeRule::Own(_)),
            anew: is_refusal
                && (search.found.is_some() || matches!(rule, ResumeRule::Trainer { .. } | ResumeRule::Call(_))),
        };
        let sequel = match smaller_evaluation(ladder, starts, evaluated, bounds) {
            Some(samples) => {
                evaluated = Some(samples);
                Sequel::Again { rung }
            }
            None => next(starts, bounds),
        };
        match sequel {
            Sequel::Stop(ending) => return Ok(ending),
            Sequel::Again { rung: lower } => rung = lower,
            Sequel::Anew { rung: same } => {
                (rung, is_anew) = (same, search.found.is_none());
                notify(&Notice::Unresumable { instead: search.found.as_ref() });
            }
        }
        match input.renew() {
            InputState::Whole => {}
            InputState::Gone => return Ok(if ran_out { Conclusion::InputGone } else { Conclusion::Failed }),
            state => notify(&Notice::Input { state }),
        }
    }
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
fn door(folder: &Path, inside: Inside, starts: &[StartRecord]) -> Option<Door> {
    let parts = inside.parts(folder, starts);
    let door = Door { folder: folder.join(format!("inside-{}", starts.len() + 1)) };
    (!parts.is_empty() && door.can_be_listed() && door.write(&parts).is_ok()).then_some(door)
}

/// The start that wrote a checkpoint, by when each of them began.
fn writer(checkpoint: &Path, begins: &[SystemTime]) -> Option<usize> {
    let written = fs::metadata(checkpoint).and_then(|metadata| metadata.modified()).ok()?;
    begins.iter().rposition(|begun| *begun <= written)
}

/// Brings checkpoints to safety that the next start may write over: all of them where it begins at step 0, else those
/// that are newer than the one it resumes from. Where the script itself looks for the newest, these are moved out of its way.
fn save(
    resumption: &Resumption,
    search: &CheckpointSearch,
    begun: SystemTime,
    folder: &Path,
    start: usize,
    notify: &mut dyn FnMut(&Notice),
) {
    let newer = || search.refused.iter().chain(&search.damaged).cloned().collect();
    let (checkpoints, way) = match &search.found {
        _ if resumption.is_the_scripts() => (newer(), Way::Aside),
        // Before the first start this run has written nothing, and a look through all folders is in vain.
        None if start == 1 && resumption.patterns().is_empty() => (Vec::new(), Way::Copy),
        None => (resumption.endangered(begun), Way::Copy),
        Some(_) if resumption.beginning == Beginning::Beside => return,
        Some(_) => (newer(), Way::Copy),
    };
    let named = match &search.found {
        None if !resumption.is_the_scripts() => resumption.named(begun, &checkpoints),
        _ => Vec::new(),
    };
    let whole = |checkpoint: &Path| resumption.holds_whole(checkpoint);
    let mut kept = keep_safe(&checkpoints, way, folder, start, whole);
    let way = if resumption.may_read_named() { Way::CopyOnly } else { Way::Copy };
    kept.extend(keep_safe(&named, way, folder, start, whole));
    if !kept.is_empty() {
        notify(&Notice::Endangered { kept: &kept, resumed_from: search.found.as_ref() });
    }
}

/// Moves what the start before wrote out of the way, where the next one would refuse to write over it.
fn set_aside(resumption: &Resumption, begun: SystemTime, folder: &Path, start: usize, notify: &mut dyn FnMut(&Notice)) {
    let run = folder.file_name().map_or_else(|| "run".to_owned(), shown);
    for file in resumption.in_the_way(begun) {
        let Some(name) = file.file_name() else { continue };
        let target = file.with_file_name(format!("{run}-start-{start}-{}", shown(name)));
        // One that cannot be moved ends the next start, which says why.
        if move_to(file, &target).is_ok() {
            notify(&Notice::SetAside { file, target: &target });
        }
    }
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
    let oom = epilogue.oom.filter(|_| matches!(outcome, EndKind::OutOfMemory | EndKind::Failed));
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
        phase: oom.as_ref().and_then(|oom| oom.activity),
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
