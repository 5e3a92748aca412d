//! The timeline of a replay as a page that opens from disk and asks for nothing: zoom, and a click on a block.

use lowtide_core::{Bytes, printable};
use lowtide_sim::{DeviceHistory, SIZE_CLASSES, Snapshot, Timeline};
use lowtide_watch::COLOURS;
use serde::Serialize;

use super::findings::{Findings, place};
use super::layout::Layout;
use super::svg::CLASSES;

const HTML: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
/// In the order in which they are read: what runs at once, and does not only declare, comes last.
const CODE: &str = concat!(include_str!("page/data.js"), include_str!("page/draw.js"), include_str!("page/pointer.js"));
/// How many blocks are drawn; beyond, the smallest are left out.
const MOST_BLOCKS: usize = 300_000;
/// How many moments have a time.
const MOST_TIMES: usize = 200_000;

/// What the page is told.
#[derive(Debug, Serialize)]
struct PageData {
    name: String,
    words: String,
    device: u32,
    entries: u32,
    limit: Option<u64>,
    peak: u64,
    peak_live: u64,
    peak_event: u32,
    /// How high the chart of blocks is, in bytes.
    height: u64,
    ooms: Vec<u32>,
    classes: Vec<ClassData>,
    blocks: BlockColumns,
    ranges: RangeColumns,
    /// Microseconds since the first entry, of every so many entries.
    times: Vec<u64>,
    times_step: usize,
    stacks: Vec<Vec<u32>>,
    /// The line of each stack that belongs to the program.
    places: Vec<Option<String>>,
    frames: Vec<(String, u64, String)>,
}

#[derive(Debug, Serialize)]
struct ClassData {
    below: f64,
    words: &'static str,
    colour: String,
}

/// Blocks as one list a figure, which is a third of the bytes; an end of -1 is none.
#[derive(Debug, Default, Serialize)]
struct BlockColumns {
    begin: Vec<u32>,
    end: Vec<i64>,
    offset: Vec<u64>,
    size: Vec<u64>,
    requested: Vec<u64>,
    address: Vec<String>,
    stream: Vec<u64>,
    stack: Vec<i64>,
    is_before: Vec<u8>,
}

#[derive(Debug, Default, Serialize)]
struct RangeColumns {
    begin: Vec<u32>,
    end: Vec<i64>,
    offset: Vec<u64>,
    size: Vec<u64>,
}

/// The page of a replay.
pub(super) fn timeline_page(
    name: &str,
    findings: &Findings,
    timeline: &Timeline,
    history: &DeviceHistory,
    snapshot: &Snapshot,
) -> String {
    let data = data(name, findings, timeline, history, snapshot);
    let data = serde_json::to_string(&data).expect("numbers and texts become JSON");
    // Within a script element only `<` could end it; in JSON it stands nowhere but in texts.
    let data = data.replace('<', "\\u003c");
    let style = format!("{COLOURS}{STYLE}");
    // The data goes in last: what it says is not looked through for places to fill.
    HTML.replace("/*STYLE*/", &style).replace("/*CODE*/", CODE).replace("/*DATA*/", &data)
}

fn data(
    name: &str,
    findings: &Findings,
    timeline: &Timeline,
    history: &DeviceHistory,
    snapshot: &Snapshot,
) -> PageData {
    let layout = Layout::of(&timeline.reservations);
    let least = least_size(timeline);
    let mut stacks = StackTable::new(snapshot);
    let mut blocks = BlockColumns::default();
    for block in timeline.blocks.iter().filter(|block| block.size >= least) {
        let begin = block.begin.unwrap_or(0);
        let stack = block.begin.and_then(|entry| history.stacks.get(entry as usize).copied().flatten());
        blocks.begin.push(begin);
        blocks.end.push(block.end.map_or(-1, i64::from));
        blocks.offset.push(layout.offset(block.address, begin));
        blocks.size.push(block.size);
        blocks.requested.push(block.requested);
        blocks.address.push(format!("{:#x}", block.address));
        blocks.stream.push(block.stream);
        blocks.stack.push(stack.map_or(-1, |stack| stacks.number(stack)));
        blocks.is_before.push(u8::from(block.begin.is_none()));
    }
    let mut ranges = RangeColumns::default();
    for (range, offset) in timeline.reservations.iter().zip(layout.offsets()) {
        ranges.begin.push(range.begin);
        ranges.end.push(range.end.map_or(-1, i64::from));
        ranges.offset.push(*offset);
        ranges.size.push(range.size);
    }
    let step = history.times.len().div_ceil(MOST_TIMES).max(1);
    let first = history.times.first().copied().unwrap_or(0);
    let colours = CLASSES.iter().zip(SIZE_CLASSES);
    PageData {
        name: printable(name),
        words: words(findings, timeline, least),
        device: findings.device,
        entries: timeline.entries.max(1),
        limit: findings.limit,
        peak: timeline.replay.statistics.reserved.peak,
        peak_live: timeline.replay.statistics.allocated.peak,
        peak_event: timeline.replay.allocated_peak.entry,
        height: layout.height().max(1),
        ooms: timeline.ooms.clone(),
        classes: colours
            .map(|((words, colour), below)| ClassData { below: below as f64, words, colour: format!("#{colour:06x}") })
            .collect(),
        blocks,
        ranges,
        times: history.times.iter().step_by(step).map(|time| time.saturating_sub(first)).collect(),
        times_step: step,
        places: stacks.places,
        stacks: stacks.stacks,
        frames: stacks.frames,
    }
}

fn words(findings: &Findings, timeline: &Timeline, least: u64) -> String {
    let settings = if findings.conf.is_empty() { "PyTorch's own settings" } else { &findings.conf };
    let peaks = &findings.simulated.peaks;
    let mut words = format!(
        "{} events under {settings}: peak reserved {}, allocated {}",
        timeline.entries,
        Bytes(peaks.peak_reserved),
        Bytes(peaks.peak_allocated)
    );
    if least > 0 {
        let left_out = timeline.blocks.iter().filter(|block| block.size < least).count();
        words.push_str(&format!("; {left_out} blocks below {} are not drawn", Bytes(least)));
    }
    printable(&words)
}

/// The size below which blocks are left out, so that no more than so many are drawn.
fn least_size(timeline: &Timeline) -> u64 {
    if timeline.blocks.len() <= MOST_BLOCKS {
        return 0;
    }
    let mut sizes: Vec<u64> = timeline.blocks.iter().map(|block| block.size).collect();
    sizes.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
    sizes[MOST_BLOCKS] + 1
}

/// The stacks that blocks have, each once, with frames that are each there once.
struct StackTable<'a> {
    snapshot: &'a Snapshot,
    numbers: std::collections::HashMap<u32, i64>,
    frame_numbers: std::collections::HashMap<&'a lowtide_sim::Frame, u32>,
    stacks: Vec<Vec<u32>>,
    places: Vec<Option<String>>,
    frames: Vec<(String, u64, String)>,
}

impl<'a> StackTable<'a> {
    fn new(snapshot: &'a Snapshot) -> Self {
        Self {
            snapshot,
            numbers: Default::default(),
            frame_numbers: Default::default(),
            stacks: Vec::new(),
            places: Vec::new(),
            frames: Vec::new(),
        }
    }

    fn number(&mut self, stack: u32) -> i64 {
        if let Some(number) = self.numbers.get(&stack) {
            return *number;
        }
        let mut frames = Vec::new();
        for frame in self.snapshot.stacks.get(stack as usize).into_iter().flatten() {
            let next = self.frames.len() as u32;
            let number = *self.frame_numbers.entry(frame).or_insert(next);
            if number == next {
                self.frames.push((printable(&frame.file), frame.line, printable(&frame.function)));
            }
            frames.push(number);
        }
        let number = self.stacks.len() as i64;
        self.stacks.push(frames);
        self.places.push(place(self.snapshot, stack).map(|place| printable(&place)));
        self.numbers.insert(stack, number);
        number
    }
}
