//! Where the time of some steps went, read from the trace that the engine's profiler wrote of them.
//!
//! The trace is the one source: what it says is added up here for people, and the file itself opens in a browser's trace
//! viewer. On a GPU its kernels are what counts, each in the part that asked for it, which for those that are replayed from graphs is
//! what stands between two marks; on the CPU its operations, each without those that it called.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, BufReader};
use std::num::NonZeroU32;
use std::path::Path;

use lowtide_torch::tch::Device;
use lowtide_torch::{LOSS_HEAD, Profiler, mark_names, mark_spans};
use serde::{Deserialize, Serialize};

use crate::step::UPDATE;

/// The trace's name in the folder of a run.
pub const TRACE: &str = "trace.json";

/// Steps of a start that are left out: kernels are loaded in them, and memory comes to rest.
const WARM_UP: u32 = 3;
/// Kernels that are named.
const NAMED: usize = 12;

/// Where the time of a step went, on average.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimeProfile {
    /// Steps that were looked at.
    pub steps: u32,
    /// Milliseconds of one.
    pub step_ms: f64,
    /// Its parts, the longest first.
    pub parts: Vec<TimePart>,
    /// The kernels, or on the CPU the operations, that took the longest.
    pub kernels: Vec<TimeKernel>,
}

/// A part of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimePart {
    /// What it is.
    pub name: Part,
    /// Milliseconds of a step.
    pub ms: f64,
}

/// A kernel, all its calls together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimeKernel {
    /// Its name, as the compiler gave it.
    pub name: String,
    /// The part it belongs to.
    pub part: Part,
    /// Calls in a step.
    pub calls: f64,
    /// Milliseconds of a step.
    pub ms: f64,
}

/// What time can go into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Matrix products and convolutions.
    Products,
    /// Attention.
    Attention,
    /// Output layer and cross-entropy of a language model, with its products.
    LossHead,
    /// Clipping and update.
    Update,
    /// Between host and device, or within its memory.
    Copies,
    /// All other kernels.
    Other,
    /// Nothing was computed.
    Waiting,
}

impl Part {
    /// What people call it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Part::Products => "products",
            Part::Attention => "attention",
            Part::LossHead => "loss head",
            Part::Update => "update",
            Part::Copies => "copies",
            Part::Other => "other kernels",
            Part::Waiting => "waiting",
        }
    }

    /// By the name of a kernel or of an operation.
    fn of(name: &str) -> Part {
        const ATTENTION: [&str; 4] = ["flash", "fmha", "attention", "softmax"];
        const PRODUCTS: [&str; 13] = [
            "gemm",
            "cutlass",
            "nvjet",
            "xmma",
            "cublas",
            "conv",
            "wgrad",
            "dgrad",
            "aten::mm",
            "aten::addmm",
            "aten::bmm",
            "aten::linear",
            "splitk",
        ];
        let name = name.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        match () {
            () if has(&ATTENTION) => Part::Attention,
            () if has(&PRODUCTS) => Part::Products,
            () if has(&["memcpy", "memset", "aten::copy_"]) => Part::Copies,
            () => Part::Other,
        }
    }
}

/// Takes note of some steps of a run.
#[derive(Debug, Default)]
pub(crate) struct Profiling {
    wanted: Option<NonZeroU32>,
    /// Steps of this start so far.
    made: u32,
    running: Option<(Profiler, u32)>,
    pub(crate) found: Option<TimeProfile>,
}

impl Profiling {
    pub(crate) fn new(wanted: Option<NonZeroU32>) -> Profiling {
        Profiling { wanted, ..Profiling::default() }
    }

    /// A step is about to be made. Says what went wrong.
    pub(crate) fn before_step(&mut self, device: Device) -> Option<String> {
        self.wanted?;
        if let (0, Device::Cuda(index)) = (self.made, device)
            && let Err(error) = mark_spans(index, LOSS_HEAD)
        {
            return Some(format!("the profile does not tell the loss head apart in CUDA graphs: {error}"));
        }
        if self.running.is_some() || self.made < WARM_UP {
            return None;
        }
        match Profiler::begin(device) {
            Ok(profiler) => {
                self.running = Some((profiler, 0));
                None
            }
            Err(error) => {
                self.wanted = None;
                Some(format!("no profile: {error}"))
            }
        }
    }

    /// A step was made; once there are enough, the trace is written into `folder`. Says what went wrong with it.
    pub(crate) fn after_step(&mut self, folder: &Path) -> Option<String> {
        self.made = self.made.saturating_add(1);
        let (_, steps) = self.running.as_mut()?;
        *steps += 1;
        if self.wanted.is_none_or(|wanted| *steps < wanted.get()) { None } else { self.end(folder) }
    }

    /// Ends with what there is.
    pub(crate) fn end(&mut self, folder: &Path) -> Option<String> {
        self.wanted = None;
        let (profiler, steps) = self.running.take().filter(|(_, steps)| *steps > 0)?;
        let path = folder.join(TRACE);
        let read = profiler
            .end(&path)
            .map_err(|error| error.to_string())
            .and_then(|()| TimeProfile::read(&path, steps).map_err(|error| format!("{}: {error}", path.display())));
        match read {
            Ok(found) => {
                self.found = Some(found);
                None
            }
            Err(error) => Some(format!("no profile: {error}")),
        }
    }
}

#[derive(Deserialize)]
struct Trace {
    #[serde(rename = "traceEvents")]
    events: Vec<TraceEvent>,
}

/// An event of a trace; those without a duration say nothing here.
#[derive(Deserialize)]
struct TraceEvent {
    #[serde(default)]
    cat: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    tid: serde_json::Value,
    #[serde(default)]
    ts: f64,
    dur: Option<f64>,
    #[serde(default)]
    args: Arguments,
}

#[derive(Default, Deserialize)]
struct Arguments {
    correlation: Option<serde_json::Value>,
}

impl TraceEvent {
    fn end(&self) -> f64 {
        self.ts + self.dur.unwrap_or(0.0)
    }

    fn number(&self) -> Option<u64> {
        self.args.correlation.as_ref()?.as_u64()
    }
}

/// Something that took time: when it began and ended, what it was.
struct Work<'a> {
    name: &'a str,
    part: Part,
    start: f64,
    end: f64,
    /// Its own time, without what it called.
    own: f64,
}

impl TimeProfile {
    fn read(path: &Path, steps: u32) -> io::Result<TimeProfile> {
        let trace: Trace = serde_json::from_reader(BufReader::new(File::open(path)?))?;
        Ok(TimeProfile::of(&trace, steps))
    }

    fn of(trace: &Trace, steps: u32) -> TimeProfile {
        let spans = Spans::of(trace);
        let mut work = on_device(trace, &spans);
        if work.is_empty() {
            work = on_host(trace, &spans);
        }
        let steps = steps.max(1);
        let each = |microseconds: f64| microseconds / 1000.0 / f64::from(steps);
        let begun = work.iter().map(|work| work.start).fold(f64::INFINITY, f64::min);
        let ended = work.iter().map(|work| work.end).fold(f64::NEG_INFINITY, f64::max);
        let whole = (ended - begun).max(0.0);
        let mut parts = BTreeMap::<Part, f64>::new();
        let mut kernels = HashMap::<(&str, Part), (u32, f64)>::new();
        for Work { name, part, own, .. } in &work {
            *parts.entry(*part).or_default() += own;
            let (calls, time) = kernels.entry((name, *part)).or_default();
            *calls += 1;
            *time += own;
        }
        parts.insert(Part::Waiting, (whole - covered(&work)).max(0.0));
        let mut parts: Vec<TimePart> = parts
            .into_iter()
            .map(|(name, time)| TimePart { name, ms: each(time) })
            .filter(|part| part.ms > 0.0)
            .collect();
        parts.sort_by(|a, b| b.ms.total_cmp(&a.ms));
        let mut kernels: Vec<TimeKernel> = kernels
            .into_iter()
            .map(|((name, part), (calls, time))| TimeKernel {
                name: name.to_owned(),
                part,
                calls: f64::from(calls) / f64::from(steps),
                ms: each(time),
            })
            .collect();
        kernels.sort_by(|a, b| b.ms.total_cmp(&a.ms).then_with(|| a.name.cmp(&b.name)));
        kernels.truncate(NAMED);
        TimeProfile { steps, step_ms: each(whole), parts, kernels }
    }
}

/// The spans with names that were laid around work, by thread.
struct Spans<'a> {
    by_thread: HashMap<String, Vec<(f64, f64, &'a str)>>,
}

impl<'a> Spans<'a> {
    fn of(trace: &'a Trace) -> Spans<'a> {
        let mut by_thread = HashMap::<String, Vec<_>>::new();
        for event in trace.events.iter().filter(|event| event.cat == "user_annotation") {
            by_thread.entry(event.tid.to_string()).or_default().push((event.ts, event.end(), event.name.as_str()));
        }
        by_thread.values_mut().for_each(|spans| spans.sort_by(|a, b| a.0.total_cmp(&b.0)));
        Spans { by_thread }
    }

    /// The part to which work belongs that a thread asked for at a time.
    fn part_at(&self, thread: &str, time: f64) -> Option<Part> {
        let spans = self.by_thread.get(thread)?;
        let before = spans.partition_point(|(start, ..)| *start <= time);
        let (_, _, name) = spans[..before].iter().rev().find(|(_, end, _)| time <= *end)?;
        let is = |other: &CStr| other.to_bytes() == name.as_bytes();
        match () {
            () if is(LOSS_HEAD) => Some(Part::LossHead),
            () if is(UPDATE) => Some(Part::Update),
            () => None,
        }
    }
}

/// Kernels and copies of a GPU, each in the part that asked for it.
fn on_device<'a>(trace: &'a Trace, spans: &Spans<'_>) -> Vec<Work<'a>> {
    let asked = |event: &&TraceEvent| matches!(event.cat.as_str(), "cuda_runtime" | "cuda_driver");
    let asked: HashMap<u64, &TraceEvent> =
        trace.events.iter().filter(asked).filter_map(|event| Some((event.number()?, event))).collect();
    let done = |event: &&TraceEvent| matches!(event.cat.as_str(), "kernel" | "gpu_memcpy" | "gpu_memset");
    let work = |event: &'a TraceEvent| {
        let by_span = event.number().and_then(|number| asked.get(&number));
        let by_span = by_span.and_then(|asked| spans.part_at(&asked.tid.to_string(), asked.ts));
        let part = by_span.unwrap_or_else(|| if event.cat == "kernel" { Part::of(&event.name) } else { Part::Copies });
        Work { name: &event.name, part, start: event.ts, end: event.end(), own: event.end() - event.ts }
    };
    let mut all: Vec<Work<'_>> = trace.events.iter().filter(done).map(work).collect();
    put_between_marks(&mut all);
    all
}

/// Puts what was replayed between the marks of the loss head there, and takes the marks out.
fn put_between_marks(work: &mut Vec<Work<'_>>) {
    let [begins, ends] = mark_names(LOSS_HEAD);
    let mut marks: Vec<(f64, bool)> = work
        .iter()
        .filter(|work| work.name == begins || work.name == ends)
        .map(|mark| (mark.start, mark.name == begins))
        .collect();
    marks.sort_by(|a, b| a.0.total_cmp(&b.0));
    work.retain(|work| work.name != begins && work.name != ends);
    for work in work {
        let before = marks.partition_point(|(time, _)| *time <= work.start);
        if marks[..before].last().is_some_and(|(_, is_begin)| *is_begin) {
            work.part = Part::LossHead;
        }
    }
}

/// Operations of the CPU, each with its own time: without those that it called.
fn on_host<'a>(trace: &'a Trace, spans: &Spans<'_>) -> Vec<Work<'a>> {
    let mut by_thread = BTreeMap::<String, Vec<&TraceEvent>>::new();
    for event in trace.events.iter().filter(|event| event.cat == "cpu_op" && event.dur.is_some()) {
        by_thread.entry(event.tid.to_string()).or_default().push(event);
    }
    let mut all = Vec::new();
    for (thread, mut events) in by_thread {
        events.sort_by(|a, b| a.ts.total_cmp(&b.ts).then(b.end().total_cmp(&a.end())));
        // Those that are still open, by their place in `all`.
        let mut open: Vec<usize> = Vec::new();
        for event in events {
            while open.pop_if(|at| all.get(*at).is_some_and(|work: &Work<'_>| work.end <= event.ts)).is_some() {}
            let length = event.end() - event.ts;
            let caller = open.last().copied();
            // What an operation calls is a part of it: a softmax inside of attention, a copy inside of a product.
            let by_caller = caller.map(|at| all[at].part).filter(|part| *part != Part::Other);
            let part = spans.part_at(&thread, event.ts).or(by_caller).unwrap_or_else(|| Part::of(&event.name));
            if let Some(caller) = caller.and_then(|at| all.get_mut(at)) {
                caller.own = (caller.own - length).max(0.0);
            }
            open.push(all.len());
            all.push(Work { name: &event.name, part, start: event.ts, end: event.end(), own: length });
        }
    }
    all
}

/// The time in which something was under way.
fn covered(work: &[Work<'_>]) -> f64 {
    let mut stretches: Vec<(f64, f64)> = work.iter().map(|work| (work.start, work.end)).collect();
    stretches.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut time, mut until) = (0.0, f64::NEG_INFINITY);
    for (start, end) in stretches {
        if end > until {
            time += end - start.max(until);
            until = end;
        }
    }
    time
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(events: &str, steps: u32) -> TimeProfile {
        let trace: Trace =
            serde_json::from_str(&format!(r#"{{"schemaVersion": 1, "traceEvents": [{events}]}}"#)).unwrap();
        TimeProfile::of(&trace, steps)
    }

    fn times(profile: &TimeProfile) -> Vec<(&str, f64)> {
        profile.parts.iter().map(|part| (part.name.label(), part.ms)).collect()
    }

    #[test]
    fn kernels_belong_to_what_asked_for_them() {
        let found = profile(
            r#"
            {"ph": "M", "name": "process_name", "args": {"name": "x"}},
            {"cat": "user_annotation", "name": "lowtide: loss head", "tid": 7, "ts": 0, "dur": 50},
            {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 7, "ts": 10, "dur": 2, "args": {"correlation": 1}},
            {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 7, "ts": 60, "dur": 2, "args": {"correlation": 2}},
            {"cat": "cuda_driver", "name": "cuLaunchKernel", "tid": 8, "ts": 20, "dur": 2, "args": {"correlation": 3}},
            {"cat": "kernel", "name": "nvjet_a", "tid": "stream 7", "ts": 100, "dur": 4000, "args": {"correlation": 1}},
            {"cat": "kernel", "name": "nvjet_a", "tid": "stream 7", "ts": 4100, "dur": 2000, "args": {"correlation": 2}},
            {"cat": "kernel", "name": "flash_fwd", "tid": "stream 7", "ts": 7100, "dur": 500, "args": {"correlation": 3}},
            {"cat": "gpu_memcpy", "name": "Memcpy HtoD", "tid": "stream 7", "ts": 7600, "dur": 500, "args": {"correlation": 4}}"#,
            2,
        );
        let expect = [("loss head", 2.0), ("products", 1.0), ("waiting", 0.5), ("attention", 0.25), ("copies", 0.25)];
        assert_eq!(times(&found), expect);
        assert_eq!((found.steps, found.step_ms), (2, 4.0));
        assert_eq!((found.kernels[0].calls, found.kernels[0].ms, found.kernels[0].part), (0.5, 2.0, Part::LossHead));
    }

    #[test]
    fn what_is_replayed_between_marks_is_the_loss_head() {
        let found = profile(
            r#"
            {"cat": "kernel", "name": "nvjet_a", "tid": 7, "ts": 0, "dur": 1000, "args": {"correlation": 1}},
            {"cat": "kernel", "name": "lowtide__loss_head_begins", "tid": 7, "ts": 1000, "dur": 1, "args": {"correlation": 1}},
            {"cat": "kernel", "name": "nvjet_a", "tid": 7, "ts": 1001, "dur": 2000, "args": {"correlation": 1}},
            {"cat": "gpu_memset", "name": "Memset", "tid": 7, "ts": 3001, "dur": 998, "args": {"correlation": 1}},
            {"cat": "kernel", "name": "lowtide__loss_head_ends", "tid": 7, "ts": 3999, "dur": 1, "args": {"correlation": 1}},
            {"cat": "kernel", "name": "flash_bwd", "tid": 7, "ts": 4000, "dur": 500, "args": {"correlation": 1}}"#,
            1,
        );
        let expect = [("loss head", 2.998), ("products", 1.0), ("attention", 0.5), ("waiting", 0.002)];
        let close = |(a, b): (&(&str, f64), &(&str, f64))| a.0 == b.0 && (a.1 - b.1).abs() < 1e-9;
        assert_eq!(found.parts.len(), expect.len());
        assert!(times(&found).iter().zip(&expect).all(close), "{:?}", times(&found));
    }

    #[test]
    fn operations_count_without_those_they_call() {
        let found = profile(
            r#"
            {"cat": "cpu_op", "name": "aten::linear", "tid": 1, "ts": 0, "dur": 1000},
            {"cat": "cpu_op", "name": "aten::copy_", "tid": 1, "ts": 100, "dur": 300},
            {"cat": "cpu_op", "name": "aten::gelu", "tid": 1, "ts": 2000, "dur": 500},
            {"cat": "user_annotation", "name": "lowtide: update", "tid": 1, "ts": 2900, "dur": 2000},
            {"cat": "cpu_op", "name": "aten::add_", "tid": 1, "ts": 3000, "dur": 1000}"#,
            1,
        );
        let expect = [("waiting", 1.5), ("products", 1.0), ("update", 1.0), ("other kernels", 0.5)];
        assert_eq!(times(&found), expect);
        assert_eq!(found.step_ms, 4.0);
    }

    #[test]
    fn a_trace_without_work_has_no_parts() {
        assert_eq!(profile("", 3), TimeProfile { steps: 3, step_ms: 0.0, parts: Vec::new(), kernels: Vec::new() });
    }
}
