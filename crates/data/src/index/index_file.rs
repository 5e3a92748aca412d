//! An index as a file.
//!
//! Little-endian: magic, version, the kind of files, the numbers of files, samples and bytes of names; then column by
//! column the samples of each file, sizes, times, fingerprints, memory, memory of reading, ends of names, the names,
//! memory and hash of id of each sample; a CRC-32C of all before it at the end.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;

use lowtide_core::Bytes;

use super::{FileCost, Index, SampleFacts, SetKind};
use crate::DataError;
use crate::file_stamp::FileStamp;
use crate::order::Layout;

/// Where the index of a folder is saved, in the folder itself.
pub(crate) const INDEX_NAME: &str = ".lowtide-index";

const MAGIC: [u8; 8] = *b"\x89LTI\r\n\x1a\n";
const VERSION: u64 = 4;
/// Magic, version, kind, and three numbers.
const HEAD: u64 = 6 * 8;
const FILE: u64 = 7 * 8;
const SAMPLE: u64 = 2 * 8;
const CHECKSUM: u64 = 4;
const BUFFER: usize = 1 << 18;

impl Index {
    /// Saves the index at `path`, whole or not at all.
    ///
    /// # Errors
    ///
    /// Where the disk refuses.
    pub fn save(&self, path: &Path, kind: SetKind) -> Result<(), DataError> {
        Ok(lowtide_disk::write_with(path, |file| self.write(file, kind))?)
    }

    /// Reads a saved index; whether it still fits its files is not looked at.
    ///
    /// # Errors
    ///
    /// Where it is missing, damaged, of another version or of other files.
    pub fn load(path: &Path, kind: SetKind) -> Result<Self, IndexError> {
        let file = File::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => IndexError::Missing,
            _ => IndexError::Unusable("it cannot be opened"),
        })?;
        let len = file.metadata().map_err(|_| IndexError::Unusable("it cannot be read"))?.len();
        let mut source = IndexSource { reader: BufReader::with_capacity(BUFFER, file), checksum: 0 };
        let read = source.index(len, kind).unwrap_or(Err("it cannot be read"));
        read.map_err(IndexError::Unusable)
    }

    fn write(&self, file: &mut impl Write, kind: SetKind) -> io::Result<()> {
        let mut sink = Sink { writer: file, checksum: 0 };
        let files = 0..self.files();
        sink.bytes(&MAGIC)?;
        let kind = kind as u64;
        sink.numbers([VERSION, kind, u64::from(self.files()), self.samples(), self.names.len() as u64])?;
        sink.numbers(files.map(|file| self.layout.samples_of(file)))?;
        sink.numbers(self.stamps.iter().map(|stamp| stamp.bytes.get()))?;
        sink.numbers(self.stamps.iter().map(|stamp| stamp.modified as u64))?;
        sink.numbers(self.stamps.iter().map(|stamp| u64::from(stamp.fingerprint)))?;
        sink.numbers(self.costs.iter().map(|cost| cost.memory.get()))?;
        sink.numbers(self.costs.iter().map(|cost| cost.reading.get()))?;
        sink.numbers(self.name_ends.iter().copied())?;
        sink.bytes(self.names.as_bytes())?;
        sink.numbers(self.samples.iter().flat_map(|sample| [sample.memory.get(), sample.id_hash]))?;
        let checksum = sink.checksum;
        sink.bytes(&checksum.to_le_bytes())
    }
}

/// Why a saved index is of no use; making a new one mends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexError {
    /// There is none.
    Missing,
    /// What is wrong with it.
    Unusable(&'static str),
}

struct Sink<'a, W: Write> {
    writer: &'a mut W,
    checksum: u32,
}

impl<W: Write> Sink<'_, W> {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.checksum = crc32c::crc32c_append(self.checksum, bytes);
        self.writer.write_all(bytes)
    }

    fn numbers(&mut self, numbers: impl IntoIterator<Item = u64>) -> io::Result<()> {
        numbers.into_iter().try_for_each(|number| self.bytes(&number.to_le_bytes()))
    }
}

struct IndexSource {
    reader: BufReader<File>,
    checksum: u32,
}

impl IndexSource {
    /// The index, or what is wrong with it.
    fn index(&mut self, len: u64, kind: SetKind) -> io::Result<Result<Index, &'static str>> {
        if len < HEAD + CHECKSUM {
            return Ok(Err("it is too short"));
        }
        if self.bytes(8)? != MAGIC {
            return Ok(Err("it begins with something else"));
        }
        let head = self.numbers(5)?;
        let [version, found, files, samples, name_bytes] = head[..] else { return Ok(Err("it is too short")) };
        if version != VERSION {
            return Ok(Err("it has another version"));
        }
        if found != kind as u64 {
            return Ok(Err("it is of files of another kind"));
        }
        // Before anything is allocated: a damaged number must not ask for all the memory there is.
        let sizes = [files.checked_mul(FILE), samples.checked_mul(SAMPLE), Some(name_bytes), Some(HEAD + CHECKSUM)];
        let expected = sizes.into_iter().try_fold(0_u64, |sum, size| sum.checked_add(size?));
        if expected != Some(len) || u32::try_from(files).is_err() {
            return Ok(Err("it does not have the size it should have"));
        }
        let counts = self.numbers(files)?;
        let stamps = self.stamps(files)?;
        let (memory, reading) = (self.numbers(files)?, self.numbers(files)?);
        let name_ends = self.numbers(files)?;
        let names = String::from_utf8(self.bytes(name_bytes)?);
        let mut facts = Vec::with_capacity(samples as usize);
        for _ in 0..samples {
            facts.push(SampleFacts { memory: Bytes(self.number()?), id_hash: self.number()? });
        }
        let checksum = self.checksum;
        if self.bytes(CHECKSUM)? != checksum.to_le_bytes() {
            return Ok(Err("its checksum is wrong"));
        }
        let counted = counts.iter().try_fold(0_u64, |sum, count| sum.checked_add(*count));
        let Some(names) = names.ok().filter(|names| ends_fit(names, &name_ends) && counted == Some(samples)) else {
            return Ok(Err("its parts do not fit together"));
        };
        let cost = |(memory, reading)| FileCost { memory: Bytes(memory), reading: Bytes(reading) };
        let costs = memory.into_iter().zip(reading).map(cost).collect();
        Ok(Ok(Index { layout: Arc::new(Layout::new(counts)), stamps, costs, names, name_ends, samples: facts }))
    }

    fn stamps(&mut self, files: u64) -> io::Result<Vec<FileStamp>> {
        let (bytes, modified, fingerprints) = (self.numbers(files)?, self.numbers(files)?, self.numbers(files)?);
        let columns = bytes.into_iter().zip(modified).zip(fingerprints);
        let stamp = |((bytes, modified), fingerprint): ((u64, u64), u64)| FileStamp {
            bytes: Bytes(bytes),
            modified: modified as i64,
            fingerprint: fingerprint as u32,
        };
        Ok(columns.map(stamp).collect())
    }

    fn bytes(&mut self, count: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count as usize];
        self.reader.read_exact(&mut bytes)?;
        self.checksum = crc32c::crc32c_append(self.checksum, &bytes);
        Ok(bytes)
    }

    fn numbers(&mut self, count: u64) -> io::Result<Vec<u64>> {
        (0..count).map(|_| self.number()).collect()
    }

    fn number(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.reader.read_exact(&mut bytes)?;
        self.checksum = crc32c::crc32c_append(self.checksum, &bytes);
        Ok(u64::from_le_bytes(bytes))
    }
}

/// Whether the ends are in order, each between two letters, the last at the end of all names.
fn ends_fit(names: &str, ends: &[u64]) -> bool {
    let at_letters = ends.iter().all(|end| usize::try_from(*end).is_ok_and(|end| names.is_char_boundary(end)));
    at_letters && ends.is_sorted() && ends.last().copied().unwrap_or(0) == names.len() as u64
}
