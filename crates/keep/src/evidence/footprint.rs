//! Looks at the memory of the command's processes and of the cards while it runs.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lowtide_sensors::{Options, Sample, Sampler};

use crate::{CardPeak, Evidence, Peak};

/// How often memory is looked at.
const TICK: Duration = Duration::from_millis(500);
/// How often at first, so that something is seen of a command that ends soon; then ever more seldom.
const FIRST_TICK: Duration = Duration::from_millis(10);
/// How often new processes are looked for, in ticks.
const LOOK_AROUND: u64 = 4;
/// What a machine or a control group has left when it is full, in percent: two looks are half a second apart.
const NOTHING_LEFT: u64 = 10;
/// What the command holds of a full control group, in percent.
const NEARLY_ALL: u64 = 85;
/// What the command holds of a full machine at least, so that it and not others filled it, in percent.
const LARGE_SHARE: u64 = 25;

/// What was seen of a start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Footprint {
    pub(crate) peak: Peak,
    /// Whether each of the last two looks found memory nearly full, the last first: the very last may come when what
    /// was killed is gone already.
    pub(crate) full: [Option<Evidence>; 2],
    /// Every process that was seen.
    pub(crate) pids: Vec<u32>,
}

impl Footprint {
    /// What shows that memory was nearly full at the end.
    pub(crate) fn full(&self) -> Option<Evidence> {
        self.full[0].or(self.full[1])
    }

    fn add(&mut self, sample: &Sample) {
        let Some(process) = sample.process.known() else { return };
        let held_bytes = process.resident_bytes.saturating_add(sample.children.resident_bytes);
        // The kernel remembers the most that the first process ever held, between two looks too.
        self.peak.tree_bytes = self.peak.tree_bytes.max(held_bytes).max(process.peak_bytes);
        for card in &sample.gpus.cards {
            let Some(memory) = card.memory.known() else { continue };
            match self.peak.cards.iter_mut().find(|peak| peak.index == card.index) {
                Some(peak) => peak.used_bytes = peak.used_bytes.max(memory.used_bytes),
                None => self.peak.cards.push(CardPeak {
                    index: card.index,
                    used_bytes: memory.used_bytes,
                    total_bytes: memory.total_bytes,
                }),
            }
        }
        self.full = [nearly_full(sample, held_bytes), self.full[0]];
    }
}

/// What shows that processes who hold this much have filled the memory there is. The sum alone does not: pages that
/// several share are counted for each. Nor does what is left of a group alone: cached files count as used there.
fn nearly_full(sample: &Sample, held_bytes: u64) -> Option<Evidence> {
    let is_filled = |left: u64, limit: u64| left / NOTHING_LEFT < limit / 100;
    let holds = |percent: u64, limit: u64| held_bytes / percent >= limit / 100;
    let machine = sample.machine.known().map(|machine| (machine.available_bytes, machine.total_bytes));
    let machine = machine.filter(|(left, total)| is_filled(*left, *total) && holds(LARGE_SHARE, *total));
    let group = sample.cgroup.known().and_then(|group| Some((group.left_bytes?, group.limit_bytes?)));
    let group = group.filter(|(left, limit)| is_filled(*left, *limit) && holds(NEARLY_ALL, *limit));
    let limit_bytes = [machine, group].into_iter().flatten().map(|(_, limit)| limit).min()?;
    Some(Evidence::NearTheLimit { held_bytes, limit_bytes })
}

/// Looks at a process and all below it, one time after the other.
struct MemoryProbe {
    sampler: Sampler,
    footprint: Footprint,
}

impl MemoryProbe {
    fn new(process: u32) -> Self {
        // Shares of memory take long to find and are not asked for.
        let options = Options { process: Some(process), share_up_to_bytes: 0, ..Options::default() };
        Self { sampler: Sampler::new(options), footprint: Footprint { pids: vec![process], ..Footprint::default() } }
    }

    fn look(&mut self, tick: u64, now: f64) -> Sample {
        if tick.is_multiple_of(LOOK_AROUND) {
            let pids = self.sampler.slow(now).processes.into_iter().map(|detail| detail.process.pid);
            self.footprint.pids.extend(pids);
            self.footprint.pids.sort_unstable();
            self.footprint.pids.dedup();
        }
        let sample = self.sampler.fast(now);
        self.footprint.add(&sample);
        sample
    }
}

/// A thread that looks at memory until it is told to stop.
#[derive(Debug)]
pub(crate) struct ProbeThread {
    stop: Sender<()>,
    thread: JoinHandle<Footprint>,
}

impl ProbeThread {
    /// Looks at a process and all below it; `also` takes every look.
    pub(crate) fn start(process: u32, also: impl Fn(&Sample) + Send + 'static) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let begun = Instant::now();
            let mut probe = MemoryProbe::new(process);
            let mut tick_time = FIRST_TICK;
            for tick in 0_u64.. {
                also(&probe.look(tick, begun.elapsed().as_secs_f64()));
                if stopped.recv_timeout(tick_time) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
                tick_time = tick_time.mul_f64(1.2).min(TICK);
            }
            probe.footprint
        });
        Self { stop, thread }
    }

    /// What was seen.
    pub(crate) fn finish(self) -> Footprint {
        // It may have ended by itself.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::{fs, io};

    use super::*;

    const MIB: u64 = 1 << 20;

    /// A machine of 1000 MiB with one process, as its files tell.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            machine.file("proc/7/stat", &format!("7 (python3) S 1 7 7 0 -1 0 {} 100 0 0", "0 ".repeat(11)));
            machine.memory(1000, 900);
            machine.holds(10);
            machine
        }

        fn file(&self, place: &str, text: &str) {
            let path = self.0.path().join(place);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn memory(&self, total: u64, available: u64) {
            let kilobytes = |mebibytes: u64| mebibytes << 10;
            let (total, available) = (kilobytes(total), kilobytes(available));
            self.file("proc/meminfo", &format!("MemTotal: {total} kB\nMemAvailable: {available} kB\n"));
        }

        fn holds(&self, mebibytes: u64) {
            let pages = mebibytes * MIB / 4096;
            let kilobytes = mebibytes << 10;
            self.file("proc/7/statm", &format!("{pages} {pages} 0 0 0 0 0\n"));
            self.file(
                "proc/7/status",
                &format!("Name:\tpython3\nVmHWM:\t{kilobytes} kB\nVmRSS:\t{kilobytes} kB\nVmSize:\t{kilobytes} kB\n"),
            );
        }

        /// A control group of version 2 with a limit, one level above the process's own.
        fn group(&self, limit: u64, used: u64) {
            self.file("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
            for process in ["7", "self"] {
                self.file(&format!("proc/{process}/cgroup"), "0::/job/step\n");
            }
            self.file("sys/fs/cgroup/job/memory.max", &format!("{}\n", limit * MIB));
            self.file("sys/fs/cgroup/job/memory.current", &format!("{}\n", used * MIB));
            self.file("sys/fs/cgroup/job/step/memory.max", "max\n");
            self.file("sys/fs/cgroup/job/step/memory.current", &format!("{}\n", used * MIB));
        }

        fn sample(&self) -> Sample {
            let root = self.0.path().to_owned();
            Sampler::new(Options { root, process: Some(7), share_up_to_bytes: 0, ..Options::default() }).fast(0.0)
        }
    }

    fn full(held: u64, limit: u64) -> Option<Evidence> {
        Some(Evidence::NearTheLimit { held_bytes: held * MIB, limit_bytes: limit * MIB })
    }

    #[test]
    fn nearly_all_of_the_machine_or_of_its_group_is_full() {
        let machine = Machine::new();
        let seen = |machine: &Machine| {
            let mut seen = Footprint::default();
            seen.add(&machine.sample());
            seen.full()
        };
        assert_eq!(seen(&machine), None);
        // As much as that is held twice, where a forked process shares it.
        machine.holds(860);
        assert_eq!(seen(&machine), None);
        machine.holds(300);
        machine.memory(1000, 20);
        assert_eq!(seen(&machine), full(300, 1000));
        machine.memory(1000, 600);
        machine.group(320, 310);
        assert_eq!(seen(&machine), full(300, 320));
        // Cached files fill a group too.
        machine.holds(100);
        assert_eq!(seen(&machine), None);
    }

    #[test]
    fn what_was_full_long_ago_shows_nothing() {
        let machine = Machine::new();
        let mut seen = Footprint::default();
        let mut looks = Vec::new();
        for held in [900, 10, 10] {
            machine.holds(held);
            machine.memory(1000, 950 - held);
            seen.add(&machine.sample());
            looks.push(seen.full());
        }
        assert_eq!(looks, [full(900, 1000), full(900, 1000), None]);
        assert_eq!(seen.peak.tree_bytes, 900 * MIB);
        fs::remove_dir_all(machine.0.path().join("proc/7")).unwrap();
        seen.add(&machine.sample());
        assert_eq!((seen.full(), seen.peak.tree_bytes), (None, 900 * MIB));
    }

    #[test]
    fn the_whole_tree_is_counted() {
        // The second process holds memory too, and both are there when the first tells so.
        let hold = "held = bytearray(b'x' * (64 << 20))";
        let script = format!(
            "import subprocess, sys\n{hold}\n\
             below = subprocess.Popen([sys.executable, '-c', \"{hold}; print('held', flush=True); input()\"], \
             stdin=subprocess.PIPE)\nbelow.wait()\n"
        );
        let mut command = Command::new("python3");
        let mut child =
            command.args(["-c", &script]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("python3");
        let mut told = io::BufReader::new(child.stdout.take().unwrap());
        io::BufRead::read_line(&mut told, &mut String::new()).unwrap();
        let mut probe = MemoryProbe::new(child.id());
        probe.look(0, 0.0);
        let below = lowtide_sensors::processes_below(Path::new("/"), child.id());
        for pid in &below {
            Command::new("kill").arg(pid.to_string()).status().unwrap();
        }
        child.wait().unwrap();
        probe.look(1, 1.0);
        let seen = probe.footprint;
        assert!(below.len() == 1 && seen.pids.contains(&below[0]) && seen.pids.contains(&child.id()), "{seen:?}");
        let peak = seen.peak.tree_bytes;
        assert!((128 * MIB..256 * MIB).contains(&peak), "{peak}");
    }
}
