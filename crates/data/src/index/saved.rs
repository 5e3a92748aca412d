//! An index as a file.
//!
//! Little-endian: magic, version, the numbers of files, samples and bytes of names; then column by column the samples
//! of each file, sizes, times, fingerprints, ends of names, the names, offsets and bytes of each sample; a CRC-32C of
//! all before it at the end.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;

use lowtide_core::Bytes;

use super::{Error, FileStamp, Index};
use crate::durable;
use crate::order::Layout;

const MAGIC: [u8; 8] = *b"\x89LTI\r\n\x1a\n";
const VERSION: u64 = 1;
/// Magic, version, and three numbers.
const HEAD: u64 = 5 * 8;
const FILE: u64 = 5 * 8;
const SAMPLE: u64 = 2 * 8;
const CHECKSUM: u64 = 4;
const BUFFER: usize = 1 << 18;

impl Index {
    /// Saves the index at `path`, whole or not at all.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] where the disk refuses.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let partial = durable::partial_of(path);
        let saved = self.write(&partial).and_then(|()| durable::name(&partial, path));
        saved.map_err(Error::io(path, "save"))
    }

    /// Reads a saved index; whether it still fits its files is not looked at.
    ///
    /// # Errors
    ///
    /// [`Error::Unusable`] where it is damaged or of another version.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(Error::io(path, "open"))?;
        let len = file.metadata().map_err(Error::io(path, "look at"))?.len();
        let mut source = Source { reader: BufReader::with_capacity(BUFFER, file), checksum: 0 };
        match source.index(len) {
            Ok(Ok(index)) => Ok(index),
            Ok(Err(reason)) => Err(Error::Unusable { file: path.to_path_buf(), reason }),
            Err(source) => Err(Error::io(path, "read")(source)),
        }
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let mut sink = Sink { writer: BufWriter::with_capacity(BUFFER, File::create(path)?), checksum: 0 };
        let files = 0..self.files();
        sink.bytes(&MAGIC)?;
        sink.numbers([VERSION, u64::from(self.files()), self.samples(), self.names.len() as u64])?;
        sink.numbers(files.map(|file| self.layout.samples_of(file)))?;
        sink.numbers(self.stamps.iter().map(|stamp| stamp.bytes.get()))?;
        sink.numbers(self.stamps.iter().map(|stamp| stamp.modified as u64))?;
        sink.numbers(self.stamps.iter().map(|stamp| u64::from(stamp.fingerprint)))?;
        sink.numbers(self.name_ends.iter().copied())?;
        sink.bytes(self.names.as_bytes())?;
        sink.numbers(self.extents.iter().flat_map(|(offset, bytes)| [*offset, *bytes]))?;
        let checksum = sink.checksum;
        sink.bytes(&checksum.to_le_bytes())?;
        sink.writer.into_inner()?.sync_all()
    }
}

struct Sink {
    writer: BufWriter<File>,
    checksum: u32,
}

impl Sink {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.checksum = crc32c::crc32c_append(self.checksum, bytes);
        self.writer.write_all(bytes)
    }

    fn numbers(&mut self, numbers: impl IntoIterator<Item = u64>) -> io::Result<()> {
        numbers.into_iter().try_for_each(|number| self.bytes(&number.to_le_bytes()))
    }
}

struct Source {
    reader: BufReader<File>,
    checksum: u32,
}

impl Source {
    /// The index, or what is wrong with it.
    fn index(&mut self, len: u64) -> io::Result<Result<Index, &'static str>> {
        if len < HEAD + CHECKSUM {
            return Ok(Err("it is too short"));
        }
        if self.bytes(8)? != MAGIC {
            return Ok(Err("it begins with something else"));
        }
        let [version, files, samples, name_bytes] = [self.number()?, self.number()?, self.number()?, self.number()?];
        if version != VERSION {
            return Ok(Err("it has another version"));
        }
        // Before anything is allocated: a damaged number must not ask for all the memory there is.
        let sizes = [files.checked_mul(FILE), samples.checked_mul(SAMPLE), Some(name_bytes), Some(HEAD + CHECKSUM)];
        let expected = sizes.into_iter().try_fold(0_u64, |sum, size| sum.checked_add(size?));
        if expected != Some(len) || u32::try_from(files).is_err() {
            return Ok(Err("it does not have the size it should have"));
        }
        let counts = self.numbers(files)?;
        let stamps = self.stamps(files)?;
        let name_ends = self.numbers(files)?;
        let names = String::from_utf8(self.bytes(name_bytes)?);
        let mut extents = Vec::with_capacity(samples as usize);
        for _ in 0..samples {
            extents.push((self.number()?, self.number()?));
        }
        let checksum = self.checksum;
        if self.bytes(CHECKSUM)? != checksum.to_le_bytes() {
            return Ok(Err("its checksum is wrong"));
        }
        let counted = counts.iter().try_fold(0_u64, |sum, count| sum.checked_add(*count));
        let Some(names) = names.ok().filter(|names| ends_fit(names, &name_ends) && counted == Some(samples)) else {
            return Ok(Err("its parts do not fit together"));
        };
        Ok(Ok(Index { layout: Arc::new(Layout::new(counts)), stamps, names, name_ends, extents }))
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
