//! From a pickle to a snapshot.

use std::collections::HashMap;
use std::io::BufRead;

use lowtide_pickle::{AllowList, Fold as _, Limits, NodeId, Value, Values, read_folding};

use super::events::{Events, MARK, has_own_pool, integer, problem_of};
use super::{DeviceHistory, Segment, SegmentBlock, SettingsOfSnapshot, Snapshot};
use crate::SimError;

pub(super) fn read(input: impl BufRead) -> Result<Snapshot, SimError> {
    let wrong = |reason: String| SimError::NotASnapshot { reason };
    // Stacks share frames, so that a walk along all paths is long; ours goes along each list once, as far as the file has bytes for it.
    let limits = Limits { nodes: 192 << 20, memo: 192 << 20, walk: u64::MAX, ..Limits::default() };
    let mut events = Events::default();
    let pickle = read_folding(input, &AllowList::plain(), &limits, &mut events);
    let pickle = pickle.map_err(|error| wrong(error.to_string()))?;
    let mut reader = Reader { values: pickle.values(), unread: pickle.length() };
    let root = pickle.root();
    let segments = reader.list(root, "segments").ok_or_else(|| wrong("it has no `segments`".to_owned()))?;
    let traces = reader.list(root, "device_traces").unwrap_or_default();
    let numbers: Vec<Vec<u32>> =
        traces.iter().map(|trace| reader.events(*trace, &mut events)).collect::<Result<_, SimError>>()?;
    let mut devices = events.of_devices(&numbers);
    for segment in segments {
        let (device, segment) = reader.segment(*segment)?;
        while devices.len() <= device as usize {
            devices.push(DeviceHistory { device: devices.len() as u32, ..DeviceHistory::default() });
        }
        devices[device as usize].segments.push(segment);
    }
    devices.retain(|history| !history.entries.is_empty() || !history.segments.is_empty());
    let settings = pickle.entry(root, "allocator_settings").map(|node| reader.settings(node));
    Ok(Snapshot { devices, stacks: events.into_stacks(), settings })
}

struct Reader<'a> {
    values: Values<'a>,
    /// How much may still be looked at: what is written down once and shared by many could be looked at without end.
    unread: u64,
}

impl<'a> Reader<'a> {
    fn list(&self, dict: NodeId, key: &str) -> Option<&'a [NodeId]> {
        match self.values.get(self.values.entry(dict, key)?) {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// Counts values before they are looked at.
    fn spend(&mut self, values: usize) -> Result<(), SimError> {
        let left = self.unread.checked_sub(values as u64);
        self.unread = left.ok_or_else(|| SimError::NotASnapshot {
            reason: "it holds the same lists so often that it would be too large".to_owned(),
        })?;
        Ok(())
    }

    /// How many pairs a dict has.
    fn pairs(&self, dict: NodeId) -> usize {
        match self.values.get(dict) {
            Value::Dict(pairs) => pairs.len(),
            _ => 0,
        }
    }

    /// The numbers of the events of a trace.
    fn events(&mut self, trace: NodeId, mut events: &mut Events) -> Result<Vec<u32>, SimError> {
        let Value::List(items) = self.values.get(trace) else {
            return Err(SimError::NotASnapshot { reason: "a trace is no list".to_owned() });
        };
        self.spend(items.len())?;
        let mut numbers = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let number = match self.values.get(*item) {
                Value::Folded(number) => Ok(number),
                // Its pairs were not set at once, as in the oldest protocol.
                Value::Dict(pairs) => {
                    self.spend(pairs.len())?;
                    events.fold(pairs, self.values).ok_or_else(|| problem_of(pairs, self.values))
                }
                _ => Err("it is no dict"),
            };
            let number = number.map_err(|reason| SimError::History { entry: index, reason: reason.to_owned() })?;
            if number != MARK {
                numbers.push(number);
            }
        }
        Ok(numbers)
    }

    fn segment(&mut self, node: NodeId) -> Result<(u32, Segment), SimError> {
        self.spend(self.pairs(node))?;
        let wrong = || SimError::NotASnapshot { reason: "a segment has no address or size".to_owned() };
        let entry = |key: &str| self.values.entry(node, key);
        let number = |key: &str| entry(key).and_then(|node| integer(self.values, node));
        let device = number("device").and_then(|device| u32::try_from(device).ok()).filter(|device| *device < 1024);
        let address = number("address").ok_or_else(wrong)?;
        let mut segment = Segment {
            address,
            size: number("total_size").ok_or_else(wrong)?,
            stream: number("stream").unwrap_or(0),
            is_small: entry("segment_type").and_then(|node| self.values.str(node)) == Some("small"),
            is_expandable: entry("is_expandable")
                .is_some_and(|node| matches!(self.values.get(node), Value::Bool(true))),
            is_private: entry("segment_pool_id").is_some_and(|node| has_own_pool(self.values, node)),
            blocks: Vec::new(),
        };
        let mut next = address;
        for block in self.list(node, "blocks").unwrap_or_default() {
            self.spend(self.pairs(*block))?;
            let entry = |key: &str| self.values.entry(*block, key);
            let number = |key: &str| entry(key).and_then(|node| integer(self.values, node));
            let size = number("size").ok_or_else(wrong)?;
            let state = entry("state").and_then(|node| self.values.str(node)).unwrap_or("inactive");
            // 2.0 names no addresses: blocks stand in a row.
            let address = number("address").unwrap_or(next);
            next = address.checked_add(size).ok_or_else(wrong)?;
            segment.blocks.push(SegmentBlock {
                address,
                size,
                requested: number("requested_size").unwrap_or(size),
                is_allocated: state == "active_allocated",
                is_active: state.starts_with("active"),
            });
        }
        Ok((device.unwrap_or(0), segment))
    }

    fn settings(&self, node: NodeId) -> SettingsOfSnapshot {
        let entry = |key: &str| self.values.entry(node, key);
        let mut divisions = HashMap::new();
        if let Some(Value::Dict(pairs)) = entry("roundup_power2_divisions").map(|node| self.values.get(node)) {
            let pair = |(key, value): (NodeId, NodeId)| {
                Some((self.values.str(key)?.parse::<u64>().ok()?, integer(self.values, value)?))
            };
            divisions.extend(pairs.iter().filter_map(pair));
        }
        let threshold = entry("garbage_collection_threshold").map(|node| self.values.get(node));
        SettingsOfSnapshot {
            conf: entry("PYTORCH_CUDA_ALLOC_CONF")
                .and_then(|node| self.values.str(node))
                .unwrap_or_default()
                .to_owned(),
            // -1, or 2^64 - 1, is no limit.
            max_split_size: entry("max_split_size")
                .and_then(|node| integer(self.values, node))
                .filter(|size| *size < 1 << 62),
            garbage_collection_threshold: match threshold {
                Some(Value::Float(threshold)) => threshold,
                _ => 0.0,
            },
            expandable_segments: entry("expandable_segments")
                .is_some_and(|node| matches!(self.values.get(node), Value::Bool(true))),
            divisions,
        }
    }
}
