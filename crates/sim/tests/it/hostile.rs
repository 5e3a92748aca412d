//! Files that nobody wrote in good faith: refused or replayed, without a panic and within bounds.

use std::io::{BufReader, Read};
use std::path::Path;

use flate2::read::GzDecoder;
use lowtide_sim::{
    Action, AddressOrder, AllocatorSettings, Conditions, DeviceHistory, Entry, Placement, Recording, Segment,
    SegmentBlock, SimError, Snapshot, TorchVersion,
};

const CONFS: [&str; 5] = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:20",
    "garbage_collection_threshold:0.6",
    "roundup_power2_divisions:4",
];

/// The same numbers on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 24) % bound
    }
}

fn stacks() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces/gpt_stacks.pickle.gz");
    let mut bytes = Vec::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Goes through all that is done with a history; what comes of it is not looked at.
fn replay_all(history: &DeviceHistory) -> Result<(), SimError> {
    for conf in CONFS {
        let settings = AllocatorSettings::parse(conf, TorchVersion::VERIFIED).unwrap();
        let recording = Recording::of(history, &settings)?;
        for (placement, limit) in [
            (Placement::Recorded, None),
            (Placement::Ordered(AddressOrder::Descending), Some(64 << 20)),
            (Placement::Ordered(AddressOrder::Ascending), recording.ceiling()),
        ] {
            let settings = settings.clone();
            let timeline = recording.timeline(&Conditions { settings, limit, capacity: None, placement });
            let _ = (timeline.levels(100), recording.live_after(timeline.replay.allocated_peak.entry));
        }
    }
    Ok(())
}

fn read_and_replay(bytes: &[u8]) -> Result<(), SimError> {
    let snapshot = Snapshot::read(BufReader::new(bytes))?;
    snapshot.settings(TorchVersion::VERIFIED)?;
    snapshot.devices.iter().try_for_each(replay_all)
}

#[test]
fn random_bytes_and_cut_files_are_refused() {
    let mut random = Random(1);
    for length in 0..2000 {
        let bytes: Vec<u8> = (0..length % 97).map(|_| random.below(256) as u8).collect();
        read_and_replay(&bytes).unwrap_err();
    }
    let whole = stacks();
    for part in 0..50 {
        let error = read_and_replay(&whole[..whole.len() * part / 50]).unwrap_err();
        assert!(matches!(error, SimError::NotASnapshot { .. }), "{error}");
    }
}

#[test]
fn flipped_bytes_do_no_harm() {
    let whole = stacks();
    let mut random = Random(2);
    for _ in 0..60 {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.below(256) as u8;
        }
        let _ = read_and_replay(&bytes);
    }
}

/// Numbers that are small, that meet each other, or that no device has.
fn number(random: &mut Random) -> u64 {
    match random.below(12) {
        0 => 0,
        1 => u64::MAX - random.below(3),
        2 => 1 << random.below(64),
        3 => random.below(1 << 40),
        _ => (1 + random.below(12)) << 20,
    }
}

#[test]
fn histories_that_contradict_themselves() {
    let mut random = Random(3);
    let actions = [
        Action::Alloc,
        Action::Alloc,
        Action::Alloc,
        Action::FreeRequested,
        Action::FreeCompleted,
        Action::SegmentAlloc,
        Action::SegmentFree,
        Action::SegmentMap,
        Action::SegmentUnmap,
        Action::Oom,
        Action::Snapshot,
    ];
    let mut replayed = 0;
    for _ in 0..1500 {
        let mut history = DeviceHistory::default();
        for _ in 0..random.below(40) {
            let action = actions[random.below(actions.len() as u64) as usize];
            let (address, size) = match random.below(8) {
                0 => (number(&mut random), number(&mut random)),
                _ => ((1 + random.below(6)) << 21, (1 + random.below(30)) << random.below(22)),
            };
            std::sync::Arc::make_mut(&mut history.entries).push(Entry {
                action,
                address,
                size,
                stream: random.below(2),
            });
        }
        for _ in 0..random.below(4) {
            let mut segment = Segment::default();
            segment.address = (1 + random.below(6)) << 21;
            segment.size = (1 + random.below(6)) << 21;
            segment.is_expandable = random.below(2) == 0;
            segment.is_small = random.below(2) == 0;
            let mut at = segment.address;
            for _ in 0..random.below(4) {
                let mut block = SegmentBlock::default();
                (block.address, block.size) = (at, (1 + random.below(20)) << 18);
                block.requested = number(&mut random);
                block.is_active = random.below(3) > 0;
                block.is_allocated = block.is_active && random.below(2) > 0;
                at += block.size;
                segment.blocks.push(block);
            }
            history.segments.push(segment);
        }
        replayed += usize::from(replay_all(&history).is_ok());
    }
    assert!(replayed > 30, "only {replayed} were replayed: this tests refusals alone");
}

/// `a = [a0, a0, …]` of lists that hold each other: small in the file, and without end for whoever walks it.
#[test]
fn what_is_shared_is_not_read_without_end() {
    // {"segments": [], "device_traces": [t, t, …]} of one trace of many marks.
    let mut bytes = b"\x80\x02}(U\x08segments]U\x0ddevice_traces](]q\x00(".to_vec();
    for _ in 0..1000 {
        bytes.extend_from_slice(b"}(U\x06actionU\x08snapshotU\x04addrK\x00U\x04sizeK\x00u");
    }
    bytes.push(b'e');
    for _ in 0..2000 {
        bytes.extend_from_slice(b"h\x00");
    }
    bytes.extend_from_slice(b"eu.");
    let error = read_and_replay(&bytes).unwrap_err().to_string();
    assert_eq!(error, "not a memory snapshot of PyTorch: it holds the same lists so often that it would be too large");
}

#[test]
fn what_would_be_called_is_refused_by_name() {
    let error = read_and_replay(b"cos\nsystem\n(S'echo'\ntR.").unwrap_err().to_string();
    assert!(error.contains("GLOBAL names `os.system`"), "{error}");
}
