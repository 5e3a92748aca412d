//! No file makes the readers panic or take memory without end: noise, and real files with changes anywhere.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use lowtide_core::Bytes;
use lowtide_tensorfile::{Loader, Sums, Tree, open, rows};
use lowtide_testkit::damages;
use proptest::prelude::*;

use crate::kit::{TempFile, archive, entry, fixture, small_archive, text_of};

/// How files of each format begin.
const HEADS: [&[u8]; 6] =
    [b"PK\x03\x04", b"\x93NUMPY\x01\0", b"\x1f\x8b\x08\0", b"\x80\x02", b"", b"\x20\0\0\0\0\0\0\0{"];

/// Reads everything that can be read, and says what came of it.
fn exercise(path: &Path) -> String {
    let contents = match open(path) {
        Ok(contents) => contents,
        Err(error) => return text_of(&error, path),
    };
    let listed = rows(&contents.tree, Sums::Skip).expect("nothing is read, so nothing fails");
    let mut loader = Loader::new(Bytes::from_kib(4));
    for row in &listed {
        let Some(Tree::Tensor(tensor)) = contents.tree.at(&row.path) else { continue };
        // A view may repeat its values without end; whoever reads it looks at its size first.
        if tensor.bytes() <= 1 << 20 {
            let _ = loader.read(tensor);
        }
    }
    match rows(&contents.tree, Sums::Compute) {
        Ok(rows) => format!("{} tensors", rows.len()),
        Err(error) => text_of(&error, path),
    }
}

fn files() -> &'static Vec<(PathBuf, Vec<u8>)> {
    static FILES: OnceLock<Vec<(PathBuf, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(|| {
        let folders = [fixture("made"), fixture("given")];
        let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("the fixtures"));
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a fixture").path()).collect();
        paths.sort();
        let fixtures = paths.into_iter().map(|path| (path.clone(), std::fs::read(path).expect("a fixture")));
        fixtures.chain([(PathBuf::from("small.pt"), small_archive("r"))]).collect()
    })
}

#[test]
fn files_cut_at_many_positions() {
    for (path, bytes) in files() {
        let name = path.file_name().expect("a name").to_string_lossy();
        for end in (0..bytes.len()).step_by((bytes.len() / 12).max(1)) {
            let file = TempFile::new(&name, &bytes[..end]);
            exercise(&file.path());
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
        let (path, bytes) = which.get(files());
        let mut bytes = bytes.clone();
        damages.iter().for_each(|damage| damage.apply(&mut bytes, &[]));
        let file = TempFile::new(&path.file_name().expect("a name").to_string_lossy(), &bytes);
        exercise(&file.path());
    }

    /// Changes within the pickle of an archive, with its checksum made right again, so that the builder sees them.
    #[test]
    fn changed_pickles(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let archives: Vec<_> = files().iter().filter(|(_, bytes)| bytes.starts_with(b"PK\x03\x04")).collect();
        let (_, bytes) = *which.get(&archives);
        let name_length = usize::from(u16::from_le_bytes([bytes[26], bytes[27]]));
        let extra_length = usize::from(u16::from_le_bytes([bytes[28], bytes[29]]));
        let start = 30 + name_length + extra_length;
        let length = bytes[start..].windows(4).position(|window| window == b"PK\x07\x08");
        let mut pickle = bytes[start..][..length.unwrap_or(100)].to_vec();
        for (place, byte) in changes {
            let at = place.index(pickle.len());
            pickle[at] = byte;
        }
        let storages = [entry("r/data/0", &[1; 600]), entry("r/data/1", &[1; 99])];
        let entries = [vec![entry("r/data.pkl", &pickle)], storages.to_vec()].concat();
        let file = TempFile::new("x.pt", &archive(&entries));
        exercise(&file.path());
    }

    #[test]
    fn noise(bytes in prop::collection::vec(any::<u8>(), 0..400), magic in 0_usize..6) {
        let file = TempFile::new("x.pkl", &[HEADS[magic], &bytes].concat());
        exercise(&file.path());
    }
}
