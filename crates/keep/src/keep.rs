//! Keeps a command alive.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use lowtide_sensors::HostSampler;

use crate::cause::{last_step, last_words};
use crate::decision::{Bounds, Next, next};
use crate::ending::judge;
use crate::kernel_log::KernelLog;
use crate::supervise::{Ran, Supervisor};
use crate::{Ending, Evidence, KeepError, Launch, Outcome, Plan, SCHEMA, Start, Story, Told};

/// How a command is kept alive.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where logs and the story are written; made where it is not there.
    pub folder: PathBuf,
    /// How long processes have to end when they are told to.
    pub grace: Duration,
    /// Starts besides the first.
    pub max_restarts: u32,
}

/// The exit code for memory that ran out and no rung that helped.
pub const OUT_OF_MEMORY: u8 = 3;
const KERNEL_LOG: &str = "/dev/kmsg";

/// Runs a command to its end, starting it again when memory ran out.
///
/// Takes over the signals of this process, its streams and its children, and is therefore for programs that do
/// nothing else.
///
/// # Errors
///
/// The command cannot be started, the folder cannot be written, or processes do not end.
pub fn keep(plan: &Plan, options: &Options, told: &mut dyn FnMut(&Told)) -> Result<Story, KeepError> {
    let begun = (Instant::now(), SystemTime::now());
    let mut supervisor = Supervisor::new(options.grace)?;
    let bounds = Bounds { rungs: plan.rungs().len(), restarts: options.max_restarts, resumes: plan.resumes() };
    let mut starts: Vec<Start> = Vec::new();
    let mut rung = 0;
    let ending = loop {
        let checkpoint = if starts.is_empty() { None } else { plan.checkpoint(begun.1) };
        let launch = plan.launch(rung, &options.folder, checkpoint.as_deref())?;
        let batch = plan.rungs().get(rung).copied();
        if !starts.is_empty() {
            told(&Told::Starting { number: starts.len() + 1, launch: &launch, batch });
        }
        if let Some((path, text)) = &launch.file {
            fs::write(path, text).map_err(|error| KeepError::File { path: path.clone(), error })?;
        }
        let log = options.folder.join(format!("start-{}.log", starts.len() + 1));
        let mut surroundings = Outside::look();
        let ran = supervisor.run(&launch, &log, told)?;
        let evidence = surroundings.evidence(&ran);
        let start = Start { rung, batch, resumed_from: checkpoint.map(shown), ..start(&launch, &log, ran, evidence) };
        told(&Told::Ended { start: &start });
        starts.push(start);
        match next(&starts, bounds) {
            Next::Stop(ending) => break ending,
            Next::Again { rung: lower } => rung = lower,
        }
    };
    let story = story(plan, options, ending, starts, begun.0.elapsed());
    write_story(&options.folder, &story)?;
    told(&Told::Over { story: &story });
    Ok(story)
}

/// Makes a new folder below `parent`: the name with the first number that is free.
///
/// # Errors
///
/// It cannot be made.
pub fn new_folder(parent: &Path, name: &str) -> Result<PathBuf, KeepError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| KeepError::File { path, error }
    };
    fs::create_dir_all(parent).map_err(failed(parent))?;
    for number in 1_u32.. {
        let folder = parent.join(format!("{name}-{number}"));
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(&folder)(error)),
        }
    }
    Err(failed(parent)(io::ErrorKind::AlreadyExists.into()))
}

/// What the system counts of kills, from before a start.
struct Outside {
    host: HostSampler,
    kills: Option<u64>,
    log: KernelLog,
}

impl Outside {
    fn look() -> Self {
        let mut host = HostSampler::new(PathBuf::from("/"));
        let kills = host.oom_kills().ok();
        Self { host, kills, log: KernelLog::at_end(Path::new(KERNEL_LOG)) }
    }

    fn evidence(&mut self, ran: &Ran) -> Option<Evidence> {
        let kills = self.kills.zip(self.host.oom_kills().ok()).map_or(0, |(before, now)| now.saturating_sub(before));
        if kills > 0 {
            return Some(Evidence::ControlGroup { kills });
        }
        match self.log.killed(&ran.seen.pids) {
            Some(pid) => Some(Evidence::KernelLog { pid }),
            None => ran.seen.full,
        }
    }
}

fn start(launch: &Launch, log: &Path, ran: Ran, evidence: Option<Evidence>) -> Start {
    let words = last_words(&ran.tail);
    let outcome = judge(ran.end, ran.asked, words.as_ref(), evidence);
    let words = words.filter(|_| outcome == Outcome::OutOfMemory);
    let evidence = evidence.filter(|_| outcome == Outcome::OutOfMemory);
    let by_kernel = || "memory of the machine ran out: the kernel ended a process of the command".to_owned();
    let cause = match &words {
        Some(words) => Some(words.sentence()),
        None => (outcome == Outcome::OutOfMemory).then(by_kernel),
    };
    Start {
        rung: 0,
        batch: None,
        command: launch.command.iter().map(shown).collect(),
        environment: launch
            .environment
            .iter()
            .map(|(name, value)| format!("{}={}", shown(name), shown(value)))
            .collect(),
        resumed_from: None,
        log: shown(log),
        log_cut: ran.log_cut,
        output_bytes: ran.output_bytes,
        seconds: ran.seconds,
        end: ran.end,
        outcome,
        cause,
        line: words.map(|words| words.line().to_owned()),
        evidence,
        step: last_step(&ran.tail),
        peak: ran.seen.peak,
    }
}

fn story(plan: &Plan, options: &Options, ending: Ending, starts: Vec<Start>, time: Duration) -> Story {
    let exit_code = match ending {
        Ending::NoRungs | Ending::LastRung | Ending::TooManyRestarts => OUT_OF_MEMORY,
        Ending::Finished | Ending::Interrupted | Ending::Failed => {
            starts.last().map_or(1, |start| start.end.exit_code())
        }
    };
    Story {
        schema: SCHEMA,
        command: plan.command().iter().map(shown).collect(),
        folder: shown(&options.folder),
        ending,
        exit_code,
        restarts: starts.len().saturating_sub(1),
        effective_batch: plan.rungs().first().map(|batch| batch.effective()),
        seconds: time.as_secs_f64(),
        starts,
    }
}

fn write_story(folder: &Path, story: &Story) -> Result<(), KeepError> {
    let path = folder.join("summary.json");
    let text = serde_json::to_string_pretty(story).expect("a story has plain fields");
    fs::write(&path, format!("{text}\n")).map_err(|error| KeepError::File { path, error })
}

fn shown(text: impl Into<OsString>) -> String {
    text.into().to_string_lossy().into_owned()
}
