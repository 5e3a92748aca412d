//! What a person reads of a run: its first lines, the line about memory, and its end.

use std::path::{Path, PathBuf};

use lowtide_core::{Bytes, Event, Line, Step, StopCause, counted, grouped};
use lowtide_torch::DeviceFacts;
use lowtide_torch::tch::Device;
use lowtide_train::{Bundle, CacheSummary, Outcome, Profile, RunEnding, Summary, TRACE, TimeProfile};

/// What the header says that no event carries.
pub(crate) struct RunHeader {
    device: String,
    total: Bytes,
    free: Bytes,
    notes: Vec<String>,
    folder: PathBuf,
    ranks: u32,
}

impl RunHeader {
    pub(crate) fn new(facts: &DeviceFacts, bundle: &Bundle, folder: &Path) -> RunHeader {
        let settings = &bundle.settings;
        let device = match facts.device {
            Device::Cuda(index) => format!("cuda:{index} {}", facts.name),
            _ => "the CPU".to_owned(),
        };
        let no_gpu = facts.note.as_ref().map(|note| format!("the GPU is not used: {note}"));
        let above = settings.memory.line.exceeds(facts.total);
        let above = above.then(|| format!("the memory limit is above what there is: {} is taken", facts.total));
        let line = settings.memory.line.resolve(facts.total).unwrap_or(Line::NONE);
        let profile = Profile::of(facts, line).map(|profile| format!("the memory to use is {profile}"));
        let notes = no_gpu.into_iter().chain(above).chain(profile).chain(bundle.notes.iter().cloned()).collect();
        RunHeader { device, total: facts.total, free: facts.free, notes, folder: folder.to_owned(), ranks: 1 }
    }

    /// The same, where several ranks train together.
    pub(crate) fn with_ranks(self, ranks: u32) -> RunHeader {
        RunHeader { ranks, ..self }
    }

    /// The lines for a run that has started.
    pub(crate) fn lines(&self, started: &Event) -> Vec<String> {
        let Event::RunStarted { workload, line, parameters, resumed_at, batch, .. } = started else {
            return Vec::new();
        };
        let mut lines =
            vec![format!("training {workload} on {} ({} in all, {} free)", self.device, self.total, self.free)];
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        let drawn = line.limit().map_or("no memory limit".to_owned(), |limit| format!("a memory limit of {limit}"));
        lines.push(format!("{} parameters, {batch} samples a step, {drawn}", grouped(*parameters)));
        if self.ranks > 1 {
            lines.push(format!("{} ranks, each with its part of a step", self.ranks));
        }
        lines.push(format!("writing to {}", self.folder.display()));
        lines.extend(resumed_at.map(|step| format!("resumed after step {step}")));
        lines
    }
}

/// What the line about memory in a log tells.
pub(crate) struct MemoryLine {
    pub(crate) step: Step,
    /// Held by tensors on the device.
    pub(crate) allocated: Bytes,
    /// Held from the device.
    pub(crate) reserved: Bytes,
    /// The line, or what the device has where none is drawn and that is known.
    pub(crate) room: Option<Bytes>,
    /// Taken and there on the host.
    pub(crate) host: Option<(Bytes, Bytes)>,
}

impl MemoryLine {
    /// The room is the line's, or else all that the device has.
    pub(crate) fn room(line: Line, device: Option<Bytes>) -> Option<Bytes> {
        line.limit().or(device)
    }

    /// `[step 1000] memory: device 1.21/3.50 GiB, reserved 1.90, host 12.3/250.9 GiB`; small devices in MiB.
    pub(crate) fn text(&self) -> String {
        let largest = self.room.unwrap_or_default().max(self.reserved).max(self.allocated);
        let (unit, scale) = if largest < Bytes::from_gib(1) { ("MiB", 1024.0) } else { ("GiB", 1.0) };
        let on_device = |bytes: Bytes| bytes.as_gib() * scale;
        let room = self.room.map_or(String::new(), |room| format!("/{:.2}", on_device(room)));
        let host = self
            .host
            .map_or(String::new(), |(used, total)| format!(", host {:.1}/{:.1} GiB", used.as_gib(), total.as_gib()));
        let (allocated, reserved) = (on_device(self.allocated), on_device(self.reserved));
        format!("[step {}] memory: device {allocated:.2}{room} {unit}, reserved {reserved:.2}{host}", self.step)
    }
}

/// What a person reads when a run has ended, line by line. `resume` are the words that go on from there.
pub(crate) fn outcome_lines(outcome: &Outcome, resume: &str) -> Vec<String> {
    let title = match outcome.summary.stopped {
        RunEnding::Finished if outcome.summary.stopped_early_at.is_some() => "finished early",
        RunEnding::Finished => "finished",
        RunEnding::Interrupted => "interrupted",
        RunEnding::Line => "stopped at the memory limit",
    };
    let mut lines = vec![title.to_owned()];
    lines.extend(figures(&outcome.summary));
    let folder = outcome.folder.display();
    if let Some(stop) = &outcome.stop {
        lines.push(format!("error: {stop}"));
        lines.extend(
            stop.tried
                .iter()
                .map(|tried| format!("  tried: {} ({})", tried.rung, tried.measures.in_phase(tried.phase))),
        );
        if let (Some(least), Some(line)) = (outcome.least_line, outcome.summary.line_bytes) {
            let past = least.saturating_sub(Bytes(line));
            lines.push(format!("  the last try came {past} past the limit, and may have needed more after that"));
        }
        lines.push(match outcome.summary.line_bytes {
            _ if stop.cause == StopCause::RecoveryOff => {
                format!("hint: resume with retries on: {resume} --set memory.recover=true")
            }
            Some(_) => format!("hint: resume with a larger limit: {resume} --limit SIZE"),
            None => format!("hint: free memory of the device, then resume: {resume}"),
        });
    } else if outcome.summary.stopped == RunEnding::Interrupted {
        lines.push(format!("hint: resume with {resume}"));
    }
    lines.push(format!("everything about this run is in {folder}"));
    lines
}

fn figures(summary: &Summary) -> Vec<String> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push(format!("  {name:<13} {value}"));
    let lost = match summary.samples_lost {
        0 => "none lost".to_owned(),
        lost => format!("{} lost", grouped(lost)),
    };
    row("steps", format!("{} ({} samples, {lost})", grouped(summary.steps), grouped(summary.samples_seen)));
    if let Some(loss) = summary.final_loss {
        row("loss", loss_text(loss, summary.loss_floor));
    }
    if !summary.metrics.is_empty() {
        row("evaluation", summary.metrics.to_string());
    }
    if summary.samples_per_second > 0.0 {
        row("speed", speed(summary.samples_per_second, summary.tokens_per_second));
    }
    let line = summary.line_bytes.map_or("no limit".to_owned(), |line| format!("limit {}", Bytes(line)));
    row("memory", format!("peak {} ({line})", Bytes(summary.peak_allocated_bytes)));
    if let Some(line) = summary.host_line_bytes {
        row("host", format!("peak {} (limit {})", Bytes(summary.peak_rss_bytes), Bytes(line)));
    }
    if let Some(cache) = &summary.cache {
        row("data", data_text(cache));
        cache.advice.iter().for_each(|advice| row("", advice.clone()));
    }
    if summary.oom_errors > 0 {
        row("out of memory", format!("{}, {} recovered", counted(summary.oom_errors, "time"), summary.oom_recovered));
    }
    row("time", format!("{:.1} s", summary.wall_seconds));
    rows.extend(summary.profile.iter().flat_map(profile_lines));
    rows
}

/// Where the time of a step went: its parts, then what took longest in them.
fn profile_lines(profile: &TimeProfile) -> Vec<String> {
    let share = |ms: f64| 100.0 * ms / profile.step_ms.max(f64::MIN_POSITIVE);
    let steps = counted(profile.steps.into(), "step");
    let mut lines = vec![format!("  a step of {:.1} ms, on average over {steps} ({TRACE}):", profile.step_ms)];
    lines.extend(
        profile
            .parts
            .iter()
            .map(|part| format!("    {:<13} {:>9.2} ms {:>5.1} %", part.name.label(), part.ms, share(part.ms))),
    );
    lines.extend(profile.kernels.iter().take(LONGEST).map(|kernel| {
        let name: String = kernel.name.chars().take(NAME_WIDTH).collect();
        format!("    {:>9.2} ms  {:>6.0} x  {name}", kernel.ms, kernel.calls)
    }));
    lines
}

/// Kernels that are shown, and how much of their names, which are long.
const LONGEST: usize = 5;
const NAME_WIDTH: usize = 70;

fn data_text(cache: &CacheSummary) -> String {
    let skipped = match (cache.skipped_files, cache.skipped_samples) {
        (0, 0) => String::new(),
        (files, samples) => format!(", {} and {} left out", counted(files, "file"), counted(samples, "sample")),
    };
    format!(
        "{:.1} % found in memory, {} read (the least is {}), {:.1} % of the time waiting{skipped}",
        100.0 * cache.train.hit_rate,
        Bytes(cache.train.bytes_read),
        Bytes(cache.optimum_bytes_read),
        100.0 * cache.waiting_share,
    )
}

fn loss_text(loss: f64, floor: Option<f64>) -> String {
    match floor {
        _ if !loss.is_finite() => "not a finite number".to_owned(),
        None => format!("{loss:.4}"),
        Some(floor) => {
            let above = 100.0 * (loss / floor - 1.0);
            format!("{loss:.4} (the least possible is {floor:.4}, so {above:.1} % above it)")
        }
    }
}

/// Tokens a second, or samples a second where there are no tokens; slow ones with decimals.
pub(crate) fn speed(samples_per_second: f64, tokens_per_second: Option<f64>) -> String {
    if let Some(tokens) = tokens_per_second {
        return format!("{} tokens/s", grouped(tokens as u64));
    }
    match samples_per_second {
        slow if slow < 10.0 => format!("{slow:.2} samples/s"),
        fast => format!("{} samples/s", grouped(fast as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_reads_as_documented() {
        let mib = Bytes::from_mib;
        let mut line = MemoryLine {
            step: Step(1000),
            allocated: mib(1239),
            reserved: mib(1946),
            room: MemoryLine::room(Line::at(mib(3584)).unwrap(), Some(mib(8192))),
            host: Some((mib(12_595), mib(256_922))),
        };
        let expect = "[step 1000] memory: device 1.21/3.50 GiB, reserved 1.90, host 12.3/250.9 GiB";
        assert_eq!(line.text(), expect);
        line.room = MemoryLine::room(Line::NONE, None);
        line.host = None;
        assert_eq!(line.text(), "[step 1000] memory: device 1.21 GiB, reserved 1.90");
        line.allocated = mib(26);
        line.reserved = mib(30);
        assert_eq!(line.text(), "[step 1000] memory: device 26.00 MiB, reserved 30.00");
        line.room = Some(mib(64));
        assert_eq!(line.text(), "[step 1000] memory: device 26.00/64.00 MiB, reserved 30.00");
    }

    #[test]
    fn speeds() {
        assert_eq!(speed(10.0, Some(640.0)), "640 tokens/s");
        assert_eq!(speed(0.298, None), "0.30 samples/s");
        assert_eq!(speed(1234.5, None), "1,234 samples/s");
    }
}
