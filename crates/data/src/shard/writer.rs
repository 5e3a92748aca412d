//! Writing a shard.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use lowtide_core::Bytes;
use lowtide_disk::{DiskError, PartialFile};
use lowtide_tensorfile::pages::let_go;

use super::format::{self, Encoding, Entry, Footer, HEADER, HeadPlace, Index, PAGE, VERSION, aligned, entry_bytes};
use super::{Error, FieldKind, FieldNames, Tensor, hash_of_id, record};

const BUFFER: usize = 1 << 20;
const MOST_DIMENSIONS: usize = u8::MAX as usize;

/// Whether records are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Not at all: a record is read as it is.
    #[default]
    None,
    /// With zstd at this level, each record by itself; a record that would not become smaller stays as it is.
    Zstd {
        /// 1 (fast) to 22 (small); zstd's own default is 3.
        level: i32,
    },
}

/// A shard that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardSummary {
    /// How many samples it holds.
    pub records: u64,
    /// The size of the file.
    pub bytes: Bytes,
}

/// Writes a shard, one sample after the other.
///
/// The file grows under a temporary name, is synced, and then renamed: under its own name it is whole or not there.
/// Dropping the writer without [`Writer::finish`] deletes what was written; after a crash the next writer starts over.
pub struct Writer {
    path: PathBuf,
    file: BufWriter<PartialFile>,
    offset: u64,
    index: Index,
    names: FieldNames,
    /// Where the heads are that were written to the index.
    head_places: HashMap<Vec<u8>, HeadPlace>,
    compressor: Option<zstd::bulk::Compressor<'static>>,
    record: Vec<u8>,
    head: Vec<u8>,
}

impl Writer {
    /// Begins a shard.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] where there is such a file, which is left alone; [`Error::Busy`] where another process
    /// writes it.
    pub fn create(path: impl Into<PathBuf>, compression: Compression) -> Result<Self, Error> {
        let path = path.into();
        if path.try_exists().map_err(Error::io(&path, "look at"))? {
            return Err(Error::Exists { file: path });
        }
        let file = PartialFile::create_locked(&path).map_err(|error| refused(error, "create"))?;
        let compressor = match compression {
            Compression::None => None,
            Compression::Zstd { level } => {
                Some(zstd::bulk::Compressor::new(level).map_err(Error::io(&path, "compress"))?)
            }
        };
        let mut file = BufWriter::with_capacity(BUFFER, file);
        file.write_all(&format::header()).map_err(Error::io(&path, "write"))?;
        Ok(Self {
            path,
            file,
            offset: HEADER as u64,
            index: Index::default(),
            names: FieldNames::default(),
            head_places: HashMap::new(),
            compressor,
            record: Vec::new(),
            head: Vec::new(),
        })
    }

    /// Writes one sample behind the others, and gives its number. Of the id, its [hash](super::hash_of_id) is kept.
    ///
    /// # Errors
    ///
    /// [`Error::Sample`] where a tensor's bytes are not those of its shape, or two have the same name; nothing is
    /// written then.
    pub fn append(&mut self, tensors: &[Tensor<'_>], id: Option<&str>) -> Result<u64, Error> {
        self.check(tensors)?;
        let packed = self.packed(tensors)?;
        let head = if packed.is_none() { self.lay_out(tensors)? } else { HeadPlace::default() };
        let stored = packed.as_ref().unwrap_or(&self.record);
        let file = &mut self.file;
        if head.is_apart() {
            let page = self.offset.next_multiple_of(PAGE);
            let zeros = [0; PAGE as usize];
            file.write_all(&zeros[..(page - self.offset) as usize]).map_err(Error::io(&self.path, "write"))?;
            self.offset = page;
        }
        let entry = Entry {
            offset: self.offset,
            stored: stored.len() as u64,
            raw: self.record.len() as u64,
            checksum: format::record_checksum(head.of(&self.index.heads).unwrap_or_default(), stored),
            encoding: if packed.is_some() { Encoding::Zstd } else { Encoding::Plain },
            id: id.map_or(0, hash_of_id),
            head,
        };
        let end = write_padded(file, stored, self.offset);
        self.offset = end.map_err(Error::io(&self.path, "write"))?;
        self.index.entries.push(entry);
        Ok(self.index.entries.len() as u64 - 1)
    }

    /// The record as it is with its head, compressed, where that makes it smaller.
    fn packed(&mut self, tensors: &[Tensor<'_>]) -> Result<Option<Vec<u8>>, Error> {
        let Some(compressor) = &mut self.compressor else { return Ok(None) };
        record::encode(tensors, |name| self.names.number_of(name, 0), &mut self.record);
        let packed = compressor.compress(&self.record).map_err(Error::io(&self.path, "compress"))?;
        Ok(Some(packed).filter(|packed| packed.len() < self.record.len()))
    }

    /// Makes the record as it is written without compression, and says where its head is.
    fn lay_out(&mut self, tensors: &[Tensor<'_>]) -> Result<HeadPlace, Error> {
        let name_of = |name: &str| self.names.number_of(name, 0);
        if !format::fills_pages(record::bytes_apart(tensors)) {
            record::encode(tensors, name_of, &mut self.record);
            return Ok(HeadPlace::default());
        }
        record::encode_apart(tensors, name_of, &mut self.head, &mut self.record);
        if let Some(place) = self.head_places.get(&self.head) {
            return Ok(*place);
        }
        let heads = &mut self.index.heads;
        let (start, end) = (u32::try_from(heads.len()), u32::try_from(heads.len() + self.head.len()));
        let (Ok(start), Ok(_)) = (start, end) else {
            return Err(Error::io(&self.path, "write")(io::ErrorKind::FileTooLarge.into()));
        };
        let place = HeadPlace { start, length: self.head.len() as u32 };
        heads.extend_from_slice(&self.head);
        self.head_places.insert(self.head.clone(), place);
        Ok(place)
    }

    /// How large the file would be without its index: when to begin the next.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.offset)
    }

    /// How many samples were written.
    pub fn len(&self) -> u64 {
        self.index.entries.len() as u64
    }

    /// Whether no sample was written.
    pub fn is_empty(&self) -> bool {
        self.index.entries.is_empty()
    }

    /// Writes the index, makes sure that all is on the disk, and gives the file its name.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] where a file of that name has appeared; [`Error::Io`] where the disk refuses. No file of
    /// that name is left by us.
    pub fn finish(mut self) -> Result<ShardSummary, Error> {
        let records = self.len();
        let bytes = self.write_end().map_err(Error::io(&self.path, "write"))?;
        if self.path.exists() {
            return Err(Error::Exists { file: self.path });
        }
        let file = self.file.into_inner().map_err(|error| Error::io(&self.path, "write")(error.into_error()))?;
        let file = file.finish().map_err(|error| refused(error, "write"))?;
        let_go(&file, 0, bytes);
        Ok(ShardSummary { records, bytes: Bytes(bytes) })
    }

    fn write_end(&mut self) -> io::Result<u64> {
        self.index.names = std::mem::take(&mut self.names.list);
        let index = self.index.encode();
        let footer = Footer {
            index_offset: self.offset,
            index_len: index.len() as u64,
            records: self.len(),
            file_len: self.offset + index.len() as u64 + format::FOOTER as u64,
            index_checksum: crc32c::crc32c(&index),
            names_checksum: crc32c::crc32c(&index[..index.len() - self.index.entries.len() * entry_bytes(VERSION)]),
        };
        self.file.write_all(&index)?;
        self.file.write_all(&footer.encode())?;
        Ok(footer.file_len)
    }

    fn check(&self, tensors: &[Tensor<'_>]) -> Result<(), Error> {
        let mut names = HashSet::with_capacity(tensors.len());
        for tensor in tensors {
            let expected = tensor.kind.bytes_of(&tensor.shape);
            let reason = if tensor.kind.number().is_none() {
                format!("has values of {}, which a shard does not hold", tensor.kind)
            } else if expected != Some(tensor.bytes.len() as u64) {
                format!(
                    "has {} bytes, and its shape {:?} of {} another number",
                    tensor.bytes.len(),
                    tensor.shape,
                    tensor.kind
                )
            } else if tensor.kind == FieldKind::Text
                && (tensor.shape.len() != 1 || str::from_utf8(tensor.bytes).is_err())
            {
                "is no text in UTF-8 with one dimension".to_owned()
            } else if tensor.shape.len() > MOST_DIMENSIONS {
                format!("has {} dimensions, and {MOST_DIMENSIONS} is the most", tensor.shape.len())
            } else if tensor.name.len() > usize::from(u16::MAX) {
                "has a name of more than 65535 bytes".to_owned()
            } else if !names.insert(tensor.name) {
                "comes twice".to_owned()
            } else {
                continue;
            };
            return Err(Error::Sample { file: self.path.clone(), tensor: tensor.name.to_owned(), reason });
        }
        Ok(())
    }
}

fn refused(error: DiskError, action: &'static str) -> Error {
    match error.source.kind() {
        io::ErrorKind::WouldBlock => Error::Busy { file: error.path },
        _ => Error::Io { file: error.path, action, source: error.source },
    }
}

/// Writes bytes that begin at `offset`, and zeros up to the next aligned place, which it returns.
fn write_padded(file: &mut impl Write, bytes: &[u8], offset: u64) -> io::Result<u64> {
    let end = offset + bytes.len() as u64;
    let next = aligned(end).ok_or(io::ErrorKind::FileTooLarge)?;
    file.write_all(bytes)?;
    file.write_all(&[0; format::ALIGNMENT as usize][..(next - end) as usize])?;
    Ok(next)
}
