//! No file makes the reader of samples panic or take more memory than it said: real files with changes anywhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use lowtide_core::Bytes;
use lowtide_data::BatchFile;
use lowtide_testkit::damages;
use proptest::prelude::*;

use crate::kit::fixture;

/// Reads all samples: what was foretold of their size holds wherever they can be read.
fn exercise(path: &Path) {
    let Ok(file) = BatchFile::open(path) else { return };
    let _ = (file.ids(), file.left_out(), file.sample_bytes(0), file.read(file.samples()));
    if file.bytes().saturating_add(file.reading_bytes()) > Bytes::from_mib(4) {
        return;
    }
    if let Ok(samples) = file.read_all() {
        let found = samples.iter().fold(Bytes::ZERO, |sum, sample| sum.saturating_add(sample.bytes()));
        assert_eq!(found, file.bytes());
        assert_eq!(samples.len() as u64, file.samples());
    }
}

/// The name of each file, and its bytes.
fn files() -> &'static Vec<(PathBuf, Vec<u8>)> {
    static FILES: OnceLock<Vec<(PathBuf, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(|| {
        let entries = [fixture("made"), fixture("given")].into_iter().flat_map(|folder| fs::read_dir(folder).unwrap());
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.into_iter().map(|path| (path.file_name().unwrap().into(), fs::read(&path).unwrap())).collect()
    })
}

fn exercise_bytes(name: &Path, bytes: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    exercise(&path);
}

#[test]
fn files_cut_at_many_positions() {
    for (name, bytes) in files() {
        for end in (0..=bytes.len()).step_by((bytes.len() / 12).max(1)) {
            exercise_bytes(name, &bytes[..end]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_files(
        which in any::<prop::sample::Index>(),
        damages in damages(5),
    ) {
        let (name, bytes) = which.get(files());
        let mut bytes = bytes.clone();
        damages.iter().for_each(|damage| damage.apply(&mut bytes, &[]));
        exercise_bytes(name, &bytes);
    }
}
