//! The events of a snapshot, taken in one by one while its file is read: a long history is never there as a whole but as this.

use std::collections::HashMap;
use std::sync::Arc;

use lowtide_pickle::{Fold, NodeId, Pairs, Value, Values};

use super::{DeviceHistory, Frame};
use crate::{Action, Entry};

/// How many frames of a stack are kept, the innermost first.
const MOST_FRAMES: usize = 64;

/// What a mark of a program is folded to: it allocates nothing, and nothing of it is kept.
pub(super) const MARK: u32 = u32::MAX;

/// All events so far, in the order of the file.
#[derive(Default)]
pub(super) struct Events {
    /// Without a device.
    history: DeviceHistory,
    entries: Vec<Entry>,
    /// Whether each has a time.
    untimed: usize,
    /// Those of pools of their own, by number.
    private: Vec<u32>,
    stacks: Stacks,
}

/// What an entry of a trace says.
enum Event {
    Entry {
        entry: Entry,
        time: Option<u64>,
        frames: Option<NodeId>,
        is_private: bool,
    },
    Mark,
    /// It has no action, or no address or size.
    Other,
}

impl Fold for &mut Events {
    fn fold(&mut self, dict: Pairs<'_>, values: Values<'_>) -> Option<u32> {
        match event(dict, values) {
            Event::Entry { entry, time, frames, is_private } => {
                let number = u32::try_from(self.entries.len()).ok().filter(|number| *number != MARK)?;
                let stack = frames.and_then(|frames| self.stacks.number(frames, values));
                self.add(entry, time, stack);
                if is_private {
                    self.private.push(number);
                }
                Some(number)
            }
            Event::Mark => Some(MARK),
            Event::Other => None,
        }
    }
}

impl Events {
    fn add(&mut self, entry: Entry, time: Option<u64>, stack: Option<u32>) {
        let before = self.entries.len();
        self.entries.push(entry);
        // Most often all have one or none has.
        if stack.is_some() || !self.history.stacks.is_empty() {
            self.history.stacks.resize(before, None);
            self.history.stacks.push(stack);
        }
        if self.untimed == 0 {
            self.history.times.extend(time);
            self.untimed += usize::from(time.is_none());
        }
    }

    /// Those with these numbers as the histories of the devices; the numbers are below how many there are.
    pub(super) fn of_devices(&mut self, devices: &[Vec<u32>]) -> Vec<DeviceHistory> {
        let is_only_one = devices.iter().filter(|numbers| !numbers.is_empty()).count() == 1;
        let history = |(device, numbers): (usize, &Vec<u32>)| {
            let history = match is_only_one && is_all(numbers, self.entries.len()) {
                true => self.all(),
                false => self.some(numbers),
            };
            DeviceHistory { device: device as u32, ..history }
        };
        devices.iter().enumerate().map(history).collect()
    }

    fn some(&self, numbers: &[u32]) -> DeviceHistory {
        let mut part = Self::default();
        for number in numbers.iter().map(|number| *number as usize) {
            let times = &self.history.times;
            let stack = self.history.stacks.get(number).copied().flatten();
            part.add(self.entries[number], times.get(number).copied(), stack);
        }
        let mut history = part.all();
        let is_private = |number: &&u32| self.private.binary_search(number).is_ok();
        history.private_entries = numbers.iter().filter(is_private).count();
        history
    }

    fn all(&mut self) -> DeviceHistory {
        let mut history = std::mem::take(&mut self.history);
        history.entries = Arc::new(std::mem::take(&mut self.entries));
        history.private_entries = self.private.len();
        if self.untimed > 0 {
            history.times = Vec::new();
        }
        history
    }

    /// The stacks that they have.
    pub(super) fn into_stacks(self) -> Vec<Vec<Frame>> {
        self.stacks.all
    }
}

fn is_all(numbers: &[u32], count: usize) -> bool {
    numbers.len() == count && numbers.iter().enumerate().all(|(index, number)| *number as usize == index)
}

fn event(dict: Pairs<'_>, values: Values<'_>) -> Event {
    let (mut name, mut address, mut size, mut stream, mut time, mut frames) = (None, None, None, None, None, None);
    let mut is_private = false;
    for (key, value) in dict.iter() {
        match values.str(key) {
            Some("action") => name = values.str(value),
            Some("addr" | "device_free") => address = integer(values, value),
            Some("size") => size = integer(values, value),
            Some("stream") => stream = integer(values, value),
            Some("time_us") => time = integer(values, value),
            Some("frames") => frames = Some(value),
            Some("pool_id") => is_private = has_own_pool(values, value),
            _ => {}
        }
    }
    match (name.map(Action::named), address, size) {
        (Some(Some(action)), Some(address), Some(size)) => Event::Entry {
            entry: Entry { action, address, size, stream: stream.unwrap_or(0) },
            time,
            frames,
            is_private,
        },
        (Some(None), ..) => Event::Mark,
        _ => Event::Other,
    }
}

/// What is wrong with a dict that was not taken.
pub(super) fn problem_of(dict: Pairs<'_>, values: Values<'_>) -> &'static str {
    let has_action = dict.iter().any(|(key, value)| values.str(key) == Some("action") && values.str(value).is_some());
    if has_action { "it has no address or size" } else { "it has no action" }
}

/// Integers above 2^63 are addresses too.
pub(super) fn integer(values: Values<'_>, node: NodeId) -> Option<u64> {
    match values.get(node) {
        Value::Int(number) => u64::try_from(number).ok(),
        Value::BigInt(number) => number.to_i128().and_then(|number| u64::try_from(number).ok()),
        _ => None,
    }
}

pub(super) fn has_own_pool(values: Values<'_>, id: NodeId) -> bool {
    let (Value::Tuple(parts) | Value::List(parts)) = values.get(id) else { return false };
    parts.iter().any(|part| integer(values, *part) != Some(0))
}

/// Each stack once.
#[derive(Default)]
struct Stacks {
    all: Vec<Vec<Frame>>,
    /// Lists of frames that were looked at and stay as they are.
    known: HashMap<NodeId, Option<u32>>,
    /// Stacks by the numbers of their frames.
    by_frames: HashMap<Vec<u32>, u32>,
    frames: HashMap<Frame, u32>,
    texts: HashMap<Arc<str>, ()>,
}

impl Stacks {
    fn number(&mut self, list: NodeId, values: Values<'_>) -> Option<u32> {
        if let Some(known) = self.known.get(&list) {
            return *known;
        }
        let Value::List(items) = values.get(list) else { return None };
        let frames: Vec<Frame> =
            items.iter().take(MOST_FRAMES).filter_map(|frame| self.frame(*frame, values)).collect();
        let number = self.of_frames(frames);
        if values.is_kept(list) {
            self.known.insert(list, number);
        }
        number
    }

    fn of_frames(&mut self, frames: Vec<Frame>) -> Option<u32> {
        if frames.is_empty() {
            return None;
        }
        let numbers: Vec<u32> = frames
            .iter()
            .map(|frame| {
                let next = self.frames.len() as u32;
                *self.frames.entry(frame.clone()).or_insert(next)
            })
            .collect();
        let next = self.all.len() as u32;
        let number = *self.by_frames.entry(numbers).or_insert(next);
        if number == next {
            self.all.push(frames);
        }
        Some(number)
    }

    fn frame(&mut self, frame: NodeId, values: Values<'_>) -> Option<Frame> {
        let text = |key: &str| values.entry(frame, key).and_then(|node| values.str(node));
        let (file, function) = (text("filename")?, text("name").unwrap_or_default());
        let line = values.entry(frame, "line").and_then(|node| integer(values, node)).unwrap_or(0);
        Some(Frame { file: self.text(file), line, function: self.text(function) })
    }

    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some((known, ())) = self.texts.get_key_value(text) {
            return Arc::clone(known);
        }
        let kept: Arc<str> = Arc::from(text);
        self.texts.insert(Arc::clone(&kept), ());
        kept
    }
}
