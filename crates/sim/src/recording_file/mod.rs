//! Lowtide's own file of a recording: what a snapshot's pickle says, in a sixth of the bytes or less.
//!
//! `docs/reference/recording.md` describes it. Numbers are LEB128, so that most take a byte or two; addresses and times are differences from
//! the ones before. The last four bytes are the CRC-32 of all others.

mod read;
mod write;

use crate::Action;

/// How such a file begins; the last byte is the version.
pub const RECORDING_MAGIC: [u8; 8] = *b"\x89LTMEM\n\x01";

/// Both ways between an action and its number in the file.
macro_rules! numbered {
    ($($number:literal => $action:ident),*) => {
        const fn number_of(action: Action) -> u8 {
            match action { $(Action::$action => $number),* }
        }

        const fn action_of(number: u8) -> Option<Action> {
            match number { $($number => Some(Action::$action),)* _ => None }
        }
    };
}

numbered!(0 => Alloc, 1 => FreeRequested, 2 => FreeCompleted, 3 => SegmentAlloc, 4 => SegmentFree, 5 => SegmentMap, 6 => SegmentUnmap, 7 => Oom, 8 => Snapshot);

/// Where the number of a stream does not fit beside that of an action.
const STREAM_BEHIND: u8 = 15;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::snapshot::{SettingsOfSnapshot, Source};
    use crate::{DeviceHistory, Entry, Frame, HostHistory, Segment, SegmentBlock, SimError, Snapshot};

    fn snapshot() -> Snapshot {
        let entry = |action, address, size, stream| Entry { action, address, size, stream };
        let streams = (0..20).map(|stream| entry(Action::Alloc, 0x7f00 + stream, 512 << stream, stream << 40));
        let others = [
            entry(Action::FreeRequested, 0x7f00, 512, 0),
            entry(Action::SegmentAlloc, u64::MAX, u64::MAX, u64::MAX),
            entry(Action::Oom, 0, 1 << 30, 7),
            entry(Action::Snapshot, 0, 0, 0),
        ];
        let entries: Vec<Entry> = streams.chain(others).collect();
        let frame = |file: &str, line| Frame { file: Arc::from(file), line, function: Arc::from("forward") };
        let block = SegmentBlock { address: 4096, size: 512, requested: 500, is_allocated: true, is_active: true };
        let segment =
            Segment { address: 4096, size: 2 << 20, is_small: true, blocks: vec![block], ..Segment::default() };
        let first = DeviceHistory {
            device: 3,
            stacks: (0..entries.len()).map(|index| (index % 3 > 0).then_some(index as u32 % 2)).collect(),
            times: (0..entries.len() as u64).map(|index| 1_794_705_573_048_496 + index * index).collect(),
            entries: Arc::new(entries.clone()),
            segments: vec![segment],
            private_entries: 2,
            limit: Some(11 << 30),
            ..DeviceHistory::default()
        };
        let second = DeviceHistory { device: 4, entries: Arc::new(entries), ..DeviceHistory::default() };
        Snapshot {
            devices: vec![first, second],
            stacks: vec![vec![frame("a.py", 7), frame("b.py", 0)], vec![frame("a.py", 8)]],
            settings: Some(SettingsOfSnapshot {
                conf: "max_split_size_mb:64".to_owned(),
                max_split_size: Some(64 << 20),
                garbage_collection_threshold: 0.8,
                expandable_segments: true,
                divisions: [(1, 4), (64, 8)].into_iter().collect(),
            }),
        }
    }

    fn written(snapshot: &Snapshot) -> Vec<u8> {
        let mut bytes = Vec::new();
        snapshot.write_recording(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        for snapshot in [snapshot(), Snapshot { devices: Vec::new(), stacks: Vec::new(), settings: None }] {
            assert_eq!(Snapshot::read_recording(&written(&snapshot)[..]).unwrap(), snapshot);
        }
    }

    #[test]
    fn the_host_s_history() {
        let mut history = HostHistory::default();
        history.freed(1, 5);
        history.allocated(2, 1000, 6);
        history.refused(4096, 7);
        history.freed(2, 8);
        let snapshot = history.into_snapshot(Some(2000));
        let read = Snapshot::read_recording(&written(&snapshot)[..]).unwrap();
        assert_eq!(read, snapshot);
        assert_eq!(read.devices[0].source, Source::Host);
        assert_eq!(read.devices[0].entries.len(), 3);
    }

    /// A bit that changed, a byte that is missing or one too many: refused, by its place or by its sum.
    #[test]
    fn damage_is_seen() {
        let whole = written(&snapshot());
        for end in 0..whole.len() {
            assert!(Snapshot::read_recording(&whole[..end]).is_err(), "cut at {end}");
        }
        for index in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[index] ^= 1 << bit;
                assert!(Snapshot::read_recording(&damaged[..]).is_err(), "bit {bit} of byte {index}");
            }
        }
        let longer = [&whole[..], &[0]].concat();
        assert!(Snapshot::read_recording(&longer[..]).is_err());
    }

    #[test]
    fn another_version_is_named() {
        let mut newer = written(&snapshot());
        newer[7] = 9;
        let error = Snapshot::read_recording(&newer[..]).unwrap_err();
        assert_eq!(error, SimError::RecordingVersion { version: 9 });
    }

    /// Numbers of things are not believed: as much memory is taken as bytes arrive.
    #[test]
    fn a_short_file_cannot_ask_for_much() {
        let mut bytes = RECORDING_MAGIC.to_vec();
        bytes.push(0);
        bytes.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
        assert!(Snapshot::read_recording(&bytes[..]).is_err());
    }
}
