//! Keeps a command alive.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use lowtide_sensors::HostSampler;

use crate::evidence::kernel_log::KernelLog;
use crate::evidence::memory::Seen;
use crate::keeper::decision::{Bounds, Next, next};
use crate::keeper::ending::judge;
use crate::output::cause::{LastWords, RanOut, last_step};
use crate::process::supervise::{Ran, Supervisor};
use crate::record::story::batch_changed;
use crate::{Ending, Evidence, KeepError, Launch, Outcome, Plan, SCHEMA, Start, Story, Told};

/// How a command is kept alive.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder where logs and the story are written; it has no other run's.
    pub folder: PathBuf,
    /// How long processes have to end when they are told to.
    pub grace: Duration,
    /// Starts besides the first.
    pub max_restarts: u32,
}

/// The exit code for memory that ran out and no rung that helped.
pub const OUT_OF_MEMORY: u8 = 3;
/// As a shell has it for Ctrl-C.
const INTERRUPTED: u8 = 130;
const KERNEL_LOG: &str = "dev/kmsg";
const STORY: &str = "summary.json";

/// Runs a command to its end, starting it again when memory ran out.
///
/// Takes over the signals of this process, its streams and its children, and is therefore for programs that do
/// nothing else.
///
/// # Errors
///
/// The command cannot be started, the folder cannot be written, or processes do not end.
pub fn keep(plan: &Plan, options: &Options, told: &mut dyn FnMut(&Told)) -> Result<Story, KeepError> {
    let begun = Instant::now();
    is_free(&options.folder)?;
    let mut starts: Vec<Start> = Vec::new();
    let (ending, error) = match start_on(plan, options, &mut starts, told) {
        Ok(ending) => (ending, None),
        // Nothing happened that could be told.
        Err(error) if starts.is_empty() => return Err(error),
        Err(error) => (Ending::Failed, Some(error)),
    };
    let mut story = story(plan, options, ending, starts, begun.elapsed());
    if let Some(error) = &error {
        story.exit_code = error.exit_code();
    }
    if let Err(error) = write_story(&options.folder, &story) {
        told(&Told::NotWritten { error: &error });
    }
    told(&Told::Over { story: &story });
    error.map_or(Ok(story), Err)
}

/// Whether a folder has nothing that a run would write over.
///
/// # Errors
///
/// It has: another run's.
pub fn is_free(folder: &Path) -> Result<(), KeepError> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let ours = |name: &str| name == STORY || name.starts_with("start-") || name.starts_with("rung-");
    let is_ours = |path: &PathBuf| path.file_name().and_then(OsStr::to_str).is_some_and(ours);
    match entries.map(|entry| entry.path()).filter(is_ours).min() {
        Some(path) => {
            let error = io::Error::new(io::ErrorKind::AlreadyExists, "another run wrote it");
            Err(KeepError::File { path, error })
        }
        None => Ok(()),
    }
}

/// Starts a command, again and again, until there is a reason not to.
fn start_on(
    plan: &Plan,
    options: &Options,
    starts: &mut Vec<Start>,
    told: &mut dyn FnMut(&Told),
) -> Result<Ending, KeepError> {
    let begun = SystemTime::now();
    let mut supervisor = Supervisor::new(options.grace)?;
    let bounds = Bounds { rungs: plan.rungs().len(), restarts: options.max_restarts, resumes: plan.resumes() };
    let mut rung = 0;
    loop {
        if supervisor.is_told_to_end() {
            return Ok(Ending::Interrupted);
        }
        let checkpoint = if starts.is_empty() { None } else { plan.checkpoint(begun) };
        let launch = plan.launch(rung, &options.folder, checkpoint.as_deref())?;
        let batch = plan.rungs().get(rung).copied();
        if !starts.is_empty() {
            let (number, checkpoint) = (starts.len() + 1, checkpoint.as_deref());
            told(&Told::Starting { number, launch: &launch, batch, checkpoint });
        }
        if let Some(copy) = &launch.copy {
            fs::write(&copy.path, &copy.text).map_err(|error| KeepError::File { path: copy.path.clone(), error })?;
        }
        let log = options.folder.join(format!("start-{}.log", starts.len() + 1));
        let file = match File::create_new(&log) {
            // Nothing is lost yet. Later, a full disk costs the log alone.
            Err(error) if starts.is_empty() => return Err(KeepError::File { path: log, error }),
            file => file,
        };
        let mut surroundings = Outside::look(Path::new("/"));
        let ran = supervisor.run(&launch, file, told).inspect_err(|_| {
            // Nothing was run: there is nothing in it.
            if starts.is_empty() {
                let _ = fs::remove_file(&log);
            }
        })?;
        let evidence = surroundings.evidence(&ran.seen);
        let start = Start { rung, batch, resumed_from: checkpoint.map(shown), ..start(&launch, &log, ran, evidence) };
        told(&Told::Ended { start: &start });
        starts.push(start);
        match next(starts, bounds) {
            Next::Stop(ending) => return Ok(ending),
            Next::Again { rung: lower } => rung = lower,
        }
    }
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
    /// `root` is where `proc`, `sys` and `dev` are, usually `/`.
    fn look(root: &Path) -> Self {
        let mut host = HostSampler::new(root.to_owned());
        let kills = host.oom_kills().ok();
        Self { host, kills, log: KernelLog::at_end(&root.join(KERNEL_LOG)) }
    }

    fn evidence(&mut self, seen: &Seen) -> Option<Evidence> {
        let kills = self.kills.zip(self.host.oom_kills().ok()).map_or(0, |(before, now)| now.saturating_sub(before));
        if kills > 0 {
            return Some(Evidence::ControlGroup { kills });
        }
        match self.log.killed(&seen.pids) {
            Some(pid) => Some(Evidence::KernelLog { pid }),
            None => seen.full(),
        }
    }
}

fn start(launch: &Launch, log: &Path, ran: Ran, evidence: Option<Evidence>) -> Start {
    let words = LastWords::of(&ran.tail);
    let outcome = judge(ran.end, ran.asked, &words, evidence);
    let words = words.ran_out.filter(|_| matches!(outcome, Outcome::OutOfMemory | Outcome::Failed));
    let evidence = evidence.filter(|_| outcome == Outcome::OutOfMemory);
    let by_kernel = || "memory of the machine ran out: the kernel ended a process of the command".to_owned();
    let cause = (outcome == Outcome::OutOfMemory).then(|| words.as_ref().map_or_else(by_kernel, RanOut::sentence));
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
        told_batch: ran.told_batch,
        step: last_step(ran.tail.bytes()),
        peak: ran.seen.peak,
    }
}

fn story(plan: &Plan, options: &Options, ending: Ending, starts: Vec<Start>, time: Duration) -> Story {
    let exit_code = match ending {
        Ending::NoRungs | Ending::LastRung | Ending::TooManyRestarts | Ending::BatchChanged => OUT_OF_MEMORY,
        Ending::Finished | Ending::Interrupted | Ending::Failed => match starts.last() {
            // Told to end between two starts.
            Some(last) if ending == Ending::Interrupted && last.outcome == Outcome::OutOfMemory => INTERRUPTED,
            Some(last) => last.end.exit_code(),
            None => INTERRUPTED,
        },
    };
    Story {
        schema: SCHEMA,
        command: plan.command().iter().map(shown).collect(),
        folder: shown(&options.folder),
        ending,
        exit_code,
        restarts: starts.len().saturating_sub(1),
        effective_batch: plan.effective_batch().filter(|_| !batch_changed(&starts)),
        seconds: time.as_secs_f64(),
        starts,
    }
}

fn write_story(folder: &Path, story: &Story) -> Result<(), KeepError> {
    let path = folder.join(STORY);
    let text = serde_json::to_string_pretty(story).expect("a story has plain fields");
    fs::write(&path, format!("{text}\n")).map_err(|error| KeepError::File { path, error })
}

fn shown(text: impl Into<OsString>) -> String {
    text.into().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of control groups of version 2, as its files tell.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new(group: &str) -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            machine
                .file("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");
            machine.file("proc/self/cgroup", &format!("0::{group}\n"));
            machine.file("dev/kmsg", "");
            machine
        }

        fn file(&self, place: &str, text: &str) {
            let path = self.0.path().join(place);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// `memory.events` counts what is below a group too, `memory.events.local` does not.
        fn kills(&self, group: &str, with_below: u64, own: u64) {
            let text = |kills| format!("low 0\nhigh 0\nmax 41\noom 5\noom_kill {kills}\noom_group_kill 0\n");
            self.file(&format!("sys/fs/cgroup{group}/memory.events"), &text(with_below));
            self.file(&format!("sys/fs/cgroup{group}/memory.events.local"), &text(own));
        }
    }

    #[test]
    fn kills_since_a_start_are_evidence() {
        let machine = Machine::new("/system.slice/job.scope");
        machine.kills("/system.slice", 9, 0);
        machine.kills("/system.slice/job.scope", 2, 2);
        let mut outside = Outside::look(machine.0.path());
        assert_eq!(outside.evidence(&Seen::default()), None);
        // In a group that the command made for itself, as a container's does.
        machine.kills("/system.slice/job.scope", 3, 2);
        assert_eq!(outside.evidence(&Seen::default()), Some(Evidence::ControlGroup { kills: 1 }));
        // Those of others, above and beside, are none.
        let mut outside = Outside::look(machine.0.path());
        machine.kills("/system.slice", 12, 0);
        assert_eq!(outside.evidence(&Seen::default()), None);
    }

    #[test]
    fn without_a_count_the_kernels_log_is_read() {
        let machine = Machine::new("/");
        let mut outside = Outside::look(machine.0.path());
        machine.file("dev/kmsg", "3,1,2,-;Out of memory: Killed process 8 (python3) total-vm:9kB, anon-rss:8kB\n");
        let seen = Seen { pids: vec![7, 8], ..Seen::default() };
        assert_eq!(outside.evidence(&seen), Some(Evidence::KernelLog { pid: 8 }));
        assert_eq!(Outside::look(Path::new("/none")).evidence(&seen), None);
    }
}
