//! Files for tests: fixtures, and archives as torch writes them.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// The fixtures that came from outside, and those that `torch_files.py` made.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Bytes as a file in a folder of its own.
pub(crate) struct TempFile {
    folder: TempDir,
    name: String,
}

impl TempFile {
    pub(crate) fn new(name: &str, bytes: &[u8]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join(name), bytes).expect("a temporary file");
        Self { folder, name: name.to_owned() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }
}

/// An error's text, with the file by its name alone.
pub(crate) fn text_of(error: &lowtide_tensorfile::TensorFileError, path: &Path) -> String {
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    error.to_string().replace(&path.display().to_string(), &name)
}

/// An entry of an archive to be.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) method: u16,
    pub(crate) flags: u16,
    /// The length to claim, where that is not the true one.
    pub(crate) length: Option<u64>,
}

pub(crate) fn entry(name: &str, bytes: &[u8]) -> Entry {
    Entry { name: name.to_owned(), bytes: bytes.to_vec(), method: 0, flags: 0, length: None }
}

/// A zip archive as torch writes it: stored entries aligned to 64 bytes, and the 64-bit records whether needed or not.
pub(crate) fn archive(entries: &[Entry]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut directory = Vec::new();
    for entry in entries {
        let offset = file.len() as u32;
        let crc = crc32fast::hash(&entry.bytes);
        let length = entry.length.unwrap_or(entry.bytes.len() as u64) as u32;
        let padding = (64 - (file.len() + 30 + entry.name.len() + 4) % 64) % 64;
        let common = |out: &mut Vec<u8>| {
            for half in [20, entry.flags, entry.method, 0, 0] {
                out.extend_from_slice(&half.to_le_bytes());
            }
            out.extend_from_slice(&crc.to_le_bytes());
            out.extend_from_slice(&(entry.bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(&(entry.name.len() as u16).to_le_bytes());
        };
        file.extend_from_slice(b"PK\x03\x04");
        common(&mut file);
        file.extend_from_slice(&(4 + padding as u16).to_le_bytes());
        file.extend_from_slice(entry.name.as_bytes());
        file.extend_from_slice(b"FB");
        file.extend_from_slice(&(padding as u16).to_le_bytes());
        file.extend(std::iter::repeat_n(b'Z', padding));
        file.extend_from_slice(&entry.bytes);
        directory.extend_from_slice(b"PK\x01\x02\0\0");
        common(&mut directory);
        directory.extend_from_slice(&[0; 12]);
        directory.extend_from_slice(&offset.to_le_bytes());
        directory.extend_from_slice(entry.name.as_bytes());
    }
    finish(file, &directory, entries.len() as u64)
}

fn finish(mut file: Vec<u8>, directory: &[u8], count: u64) -> Vec<u8> {
    let offset = file.len() as u64;
    let size = directory.len() as u64;
    file.extend_from_slice(directory);
    let record = file.len() as u64;
    file.extend_from_slice(b"PK\x06\x06");
    file.extend_from_slice(&44_u64.to_le_bytes());
    file.extend_from_slice(&[0; 12]);
    for number in [count, count, size, offset] {
        file.extend_from_slice(&number.to_le_bytes());
    }
    file.extend_from_slice(b"PK\x06\x07\0\0\0\0");
    file.extend_from_slice(&record.to_le_bytes());
    file.extend_from_slice(&1_u32.to_le_bytes());
    file.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    for half in [count as u16, count as u16] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    for word in [size as u32, offset as u32] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(&[0; 2]);
    file
}

/// The pickle of one tensor of float32 in rows, on the storage `0`.
pub(crate) fn tensor_pickle(shape: &[u8], stride: &[u8], offset: u8, count: u8) -> Vec<u8> {
    let mut pickle =
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK".to_vec();
    pickle.extend_from_slice(&[count, b't', b'Q', b'K', offset]);
    for numbers in [shape, stride] {
        pickle.push(b'(');
        numbers.iter().for_each(|number| pickle.extend_from_slice(&[b'K', *number]));
        pickle.push(b't');
    }
    pickle.extend_from_slice(b"\x89ccollections\nOrderedDict\n)RtR.");
    pickle
}

/// An archive of one tensor of two values, under a root of that name.
pub(crate) fn small_archive(root: &str) -> Vec<u8> {
    let values: Vec<u8> = [1.5_f32, 2.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    archive(&[
        entry(&format!("{root}/data.pkl"), &tensor_pickle(&[2], &[1], 0, 2)),
        entry(&format!("{root}/byteorder"), b"little"),
        entry(&format!("{root}/data/0"), &values),
        entry(&format!("{root}/version"), b"3\n"),
    ])
}
