//! Writing a shard.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lowtide_core::Bytes;

use super::format::{self, Encoding, Entry, Footer, HEADER, HeadPlace, Index, PAGE, VERSION, aligned, entry_bytes};
use super::{Dtype, Error, Tensor, hash_of_id, record};
use crate::{durable, page_cache};

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
pub struct Finished {
    /// How many samples it holds.
    pub records: u64,
    /// The size of the file.
    pub bytes: Bytes,
}

/// Writes a shard, one sample after the other.
///
/// The file grows under its name with `.partial` behind it, is synced, and then renamed: under its own name it is
/// whole or not there. Dropping the writer without [`Writer::finish`] deletes what was written; after a crash the
/// next writer starts over.
pub struct Writer {
    path: PathBuf,
    partial: PathBuf,
    /// `None` once the file has its own name.
    file: Option<BufWriter<File>>,
    offset: u64,
    index: Index,
    numbers: HashMap<String, u32>,
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
        let partial = durable::partial_of(&path);
        let file = open_alone(&partial, &path)?;
        let compressor = match compression {
            Compression::None => None,
            Compression::Zstd { level } => {
                Some(zstd::bulk::Compressor::new(level).map_err(Error::io(&partial, "compress"))?)
            }
        };
        let mut file = BufWriter::with_capacity(BUFFER, file);
        file.write_all(&format::header()).map_err(Error::io(&partial, "write"))?;
        Ok(Self {
            path,
            partial,
            file: Some(file),
            offset: HEADER as u64,
            index: Index::default(),
            numbers: HashMap::new(),
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
        let file = self.file.as_mut().expect("the file is there until it is finished");
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
        record::encode(tensors, |name| number_of(name, &mut self.numbers, &mut self.index.names), &mut self.record);
        let packed = compressor.compress(&self.record).map_err(Error::io(&self.path, "compress"))?;
        Ok(Some(packed).filter(|packed| packed.len() < self.record.len()))
    }

    /// Makes the record as it is written without compression, and says where its head is.
    fn lay_out(&mut self, tensors: &[Tensor<'_>]) -> Result<HeadPlace, Error> {
        let name_of = |name: &str| number_of(name, &mut self.numbers, &mut self.index.names);
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
    pub fn finish(mut self) -> Result<Finished, Error> {
        let records = self.len();
        let bytes = self.write_end().map_err(Error::io(&self.path, "write"))?;
        if self.path.exists() {
            return Err(Error::Exists { file: self.path.clone() });
        }
        durable::name(&self.partial, &self.path).map_err(Error::io(&self.path, "name"))?;
        self.file = None;
        Ok(Finished { records, bytes: Bytes(bytes) })
    }

    fn write_end(&mut self) -> io::Result<u64> {
        let index = self.index.encode();
        let footer = Footer {
            index_offset: self.offset,
            index_len: index.len() as u64,
            records: self.len(),
            file_len: self.offset + index.len() as u64 + format::FOOTER as u64,
            index_checksum: crc32c::crc32c(&index),
            names_checksum: crc32c::crc32c(&index[..index.len() - self.index.entries.len() * entry_bytes(VERSION)]),
        };
        let file = self.file.as_mut().expect("the file is there until it is finished");
        file.write_all(&index)?;
        file.write_all(&footer.encode())?;
        file.flush()?;
        file.get_ref().sync_all()?;
        page_cache::let_go(file.get_ref(), 0, footer.file_len);
        Ok(footer.file_len)
    }

    fn check(&self, tensors: &[Tensor<'_>]) -> Result<(), Error> {
        for (place, tensor) in tensors.iter().enumerate() {
            let expected = tensor.dtype.bytes_of(&tensor.shape);
            let reason = if expected != Some(tensor.bytes.len() as u64) {
                format!(
                    "has {} bytes, and its shape {:?} of {} another number",
                    tensor.bytes.len(),
                    tensor.shape,
                    tensor.dtype
                )
            } else if tensor.dtype == Dtype::Text && (tensor.shape.len() != 1 || str::from_utf8(tensor.bytes).is_err())
            {
                "is no text in UTF-8 with one dimension".to_owned()
            } else if tensor.shape.len() > MOST_DIMENSIONS {
                format!("has {} dimensions, and {MOST_DIMENSIONS} is the most", tensor.shape.len())
            } else if tensor.name.len() > usize::from(u16::MAX) {
                "has a name of more than 65535 bytes".to_owned()
            } else if tensors[..place].iter().any(|other| other.name == tensor.name) {
                "comes twice".to_owned()
            } else {
                continue;
            };
            return Err(Error::Sample { file: self.path.clone(), tensor: tensor.name.to_owned(), reason });
        }
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.file.is_some() {
            // Where this fails too, the next writer of the same shard starts over in it.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// Opens the file for a shard that is to become `path`, empty, so that nobody else does.
fn open_alone(partial: &Path, path: &Path) -> Result<File, Error> {
    let io = |action| Error::io(partial, action);
    // Not truncated before the lock is held: it may be somebody else's.
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(partial).map_err(io("create"))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(Error::Busy { file: path.to_path_buf() }),
        Err(TryLockError::Error(source)) => return Err(io("lock")(source)),
    }
    // Between opening and locking, whoever had the lock may have given the file its own name.
    let ours = file.metadata().map_err(io("look at"))?.ino();
    if fs::metadata(partial).is_ok_and(|named| named.ino() == ours) {
        file.set_len(0).map_err(io("create"))?;
        return Ok(file);
    }
    Err(Error::Busy { file: path.to_path_buf() })
}

fn number_of(name: &str, numbers: &mut HashMap<String, u32>, names: &mut Vec<String>) -> u32 {
    if let Some(number) = numbers.get(name) {
        return *number;
    }
    let number = names.len() as u32;
    names.push(name.to_owned());
    numbers.insert(name.to_owned(), number);
    number
}

/// Writes bytes that begin at `offset`, and zeros up to the next aligned place, which it returns.
fn write_padded(file: &mut impl Write, bytes: &[u8], offset: u64) -> io::Result<u64> {
    let end = offset + bytes.len() as u64;
    let next = aligned(end).ok_or(io::ErrorKind::FileTooLarge)?;
    file.write_all(bytes)?;
    file.write_all(&[0; format::ALIGNMENT as usize][..(next - end) as usize])?;
    Ok(next)
}
