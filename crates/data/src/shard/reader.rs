//! Reading a shard.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use lowtide_core::Bytes;
use lowtide_tensorfile::pages::{PageCache, expect_random_reads};
use lowtide_tensorfile::{DecodeLimit, TensorFileError};

use super::direct_file::DirectFile;
use super::format::{self, ALIGNMENT, Encoding, Entry, FOOTER, Footer, HEADER, Index, PAGE};
use super::{Error, Part, Record};
use crate::file_stamp::FileStamp;

/// What the index says about records this far apart is read together.
const NEAR: u64 = 100;

/// A shard that is open for reading, by any number of threads at once.
///
/// Holds the file, the names, heads that are in the index, and 56 bytes a record; the samples stay in the file.
#[derive(Debug)]
pub struct Reader {
    file: File,
    /// The same file past the page cache, opened when it is first used; `None` where the system has no such thing.
    direct: OnceLock<Option<DirectFile>>,
    path: PathBuf,
    names: Arc<[String]>,
    heads: Vec<u8>,
    entries: Vec<Entry>,
    /// The numbers of the records that are known, rising; `None` where all are.
    known: Option<Vec<u64>>,
    records: u64,
    fingerprint: u32,
    opened: FileStamp,
    pages: PageCache,
}

/// The bytes of some neighbouring records, read and checked.
#[derive(Debug, Clone)]
pub struct RecordRun<'a> {
    reader: &'a Reader,
    records: Range<u64>,
    bytes: &'a [u8],
}

/// What a thread needs to unpack compressed records, made at the first that needs it and kept between them.
#[derive(Default)]
pub struct Scratch {
    bytes: Vec<u8>,
    decompressor: Option<zstd::bulk::Decompressor<'static>>,
}

impl Reader {
    /// Opens a shard: reads its header, footer and index, and nothing else.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read, or is not a whole and undamaged shard.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::open_with(path, PageCache::default())
    }

    /// The same, with a choice of what becomes of the pages that are read.
    ///
    /// # Errors
    ///
    /// As for [`Reader::open`].
    pub fn open_with(path: impl Into<PathBuf>, pages: PageCache) -> Result<Self, Error> {
        let path = path.into();
        let Ends { file, opened, footer, version } = open_ends(&path)?;
        let mut index = vec![0; footer.index_len as usize];
        file.read_exact_at(&mut index, footer.index_offset).map_err(Error::io(&path, "read"))?;
        pages.after_reading(&file, footer.index_offset, opened.bytes.get() - footer.index_offset);
        let found = crc32c::crc32c(&index);
        if found != footer.index_checksum {
            let (offset, expected) = (footer.index_offset, footer.index_checksum);
            return Err(Error::Damaged { file: path, part: Part::Index, offset, expected, found });
        }
        let malformed = |reason| Error::Malformed { file: path.clone(), offset: footer.index_offset, reason };
        let Index { names, heads, entries } = Index::decode(&index, footer.index_offset, version).map_err(malformed)?;
        if entries.len() as u64 != footer.records {
            return Err(malformed("index and footer disagree about the number of records"));
        }
        let (fingerprint, records) = (footer.index_checksum, footer.records);
        let (direct, names) = (OnceLock::new(), names.into());
        Ok(Self { file, direct, path, names, heads, entries, known: None, records, fingerprint, opened, pages })
    }

    /// Whether its records may take what they say once they are unpacked.
    ///
    /// # Errors
    ///
    /// [`TensorFileError::TooMuch`].
    pub fn check_decoded(&self, limit: DecodeLimit) -> Result<(), TensorFileError> {
        let unpacked = self.entries.iter().fold(0, |sum: u64, entry| sum.saturating_add(entry.raw));
        limit.check_values(&self.path, self.opened.bytes, Bytes(unpacked))
    }

    /// Opens a shard for these records alone, in rising order: of its index, only what is about them is read.
    ///
    /// That part of the index is not under the checksum that was verified, but what it leads to is: a record that does
    /// not fit its checksum is an error.
    pub(crate) fn open_some(path: impl Into<PathBuf>, records: &[u64], pages: PageCache) -> Result<Self, Error> {
        let path = path.into();
        let Ends { file, opened, footer, version } = open_ends(&path)?;
        let entry_bytes = format::entry_bytes(version);
        let malformed = |reason| Error::Malformed { file: path.clone(), offset: footer.index_offset, reason };
        let entries_len = footer.records.checked_mul(entry_bytes as u64);
        let front_len = entries_len.and_then(|entries| footer.index_len.checked_sub(entries));
        let front_len = front_len.ok_or_else(|| malformed("the index does not have the size of its records"))?;
        let read = |len: u64, offset: u64| {
            let mut bytes = vec![0; len as usize];
            file.read_exact_at(&mut bytes, offset).map_err(Error::io(&path, "read"))?;
            Ok(bytes)
        };
        let front = read(front_len, footer.index_offset)?;
        let found = crc32c::crc32c(&front);
        if found != footer.names_checksum {
            let (offset, expected) = (footer.index_offset, footer.names_checksum);
            return Err(Error::Damaged { file: path.clone(), part: Part::Index, offset, expected, found });
        }
        let format::Front { names, heads, .. } = format::decode_front(&mut &front[..], version).map_err(malformed)?;
        let mut entries: Vec<Entry> = Vec::with_capacity(records.len());
        for run in records.chunk_by(|one, next| next - one <= NEAR) {
            let (first, last) = (run[0], run[run.len() - 1]);
            if last >= footer.records {
                return Err(Error::NoSuchRecord { file: path.clone(), record: last, records: footer.records });
            }
            let start = footer.index_offset + front_len + first * entry_bytes as u64;
            let bytes = read((last + 1 - first) * entry_bytes as u64, start)?;
            for record in run {
                let bytes = &bytes[(record - first) as usize * entry_bytes..][..entry_bytes];
                let entry = format::decode_entry_within(bytes, footer.index_offset, heads, version);
                let entry = entry.map_err(malformed)?;
                let is_behind = entries.last().is_none_or(|before| before.end() <= entry.offset);
                entries.push(entry);
                if !is_behind {
                    return Err(malformed("a record does not begin where the one before it ends"));
                }
            }
        }
        // Its pages stay with the system, 48 bytes a record: under a full shuffle they are needed again for every few
        // samples, and reading them from the disk each time is a fifth more than the samples themselves.
        let (fingerprint, known) = (footer.index_checksum, Some(records.to_vec()));
        let (records, heads) = (footer.records, heads.to_vec());
        let (direct, names) = (OnceLock::new(), names.into());
        Ok(Self { file, direct, path, names, heads, entries, known, records, fingerprint, opened, pages })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many records there are.
    pub fn len(&self) -> u64 {
        self.records
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The names of all tensors in the shard.
    pub(crate) fn names(&self) -> &Arc<[String]> {
        &self.names
    }

    /// Memory that it takes, about.
    pub(crate) fn bytes(&self) -> u64 {
        let names: usize = self.names.iter().map(|name| size_of::<String>() + name.len()).sum();
        (size_of::<Self>() + names + self.heads.len() + self.entries.len() * size_of::<Entry>()) as u64
    }

    /// The size of the file.
    pub fn file_bytes(&self) -> Bytes {
        self.opened.bytes
    }

    /// A checksum of all sizes and checksums in the file: another file of the same name has another.
    pub fn fingerprint(&self) -> u32 {
        self.fingerprint
    }

    /// Where a record begins in the file, and how many bytes it takes there.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchRecord`].
    pub fn place_of(&self, record: u64) -> Result<(u64, Bytes), Error> {
        self.entry(record).map(|entry| (entry.offset, Bytes(entry.stored)))
    }

    /// How many bytes a record takes once it is unpacked; the same as in the file where it is not compressed.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchRecord`].
    pub fn unpacked_bytes_of(&self, record: u64) -> Result<Bytes, Error> {
        self.entry(record).map(|entry| Bytes(entry.raw))
    }

    /// The head of a record, where that is not in the record itself; such a record begins at a page.
    pub(crate) fn head_of(&self, record: u64) -> Result<Option<&[u8]>, Error> {
        let head = self.entry(record)?.head;
        Ok(head.of(&self.heads).filter(|head| !head.is_empty()))
    }

    /// Whether a record is read as it is.
    pub(crate) fn is_plain(&self, record: u64) -> Result<bool, Error> {
        self.entry(record).map(|entry| entry.encoding == Encoding::Plain)
    }

    /// The [hash](super::hash_of_id) of the id that a record was written with; `None` where it was written without.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchRecord`].
    pub fn id_hash_of(&self, record: u64) -> Result<Option<u64>, Error> {
        self.entry(record).map(|entry| Some(entry.id).filter(|hash| *hash != 0))
    }

    /// How large a buffer has to be to read these neighbouring records.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchRecord`].
    pub fn bytes_of(&self, records: Range<u64>) -> Result<Bytes, Error> {
        self.span(&records).map(|span| Bytes(span.end - span.start))
    }

    /// Reads neighbouring records into `buffer`, in one call of the system, and checks each against its checksum.
    ///
    /// Where `buffer` begins at a multiple of 64, so does every tensor in it of a record that is not compressed.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`] where `buffer` is not as large as [`Reader::bytes_of`] says; [`Error::DamagedRecord`],
    /// [`Error::WrongSize`] or [`Error::Changed`] where the file is not what it was.
    pub fn read<'a>(&'a self, records: Range<u64>, buffer: &'a mut [u8]) -> Result<RecordRun<'a>, Error> {
        let span = self.span(&records)?;
        self.check_buffer(&span, buffer)?;
        self.file.read_exact_at(buffer, span.start).map_err(|source| self.why_not_read(source, span.end))?;
        self.pages.after_reading(&self.file, span.start, span.end - span.start);
        self.check(&records, buffer)?;
        Ok(RecordRun { reader: self, records, bytes: buffer })
    }

    /// The pages of the file that hold these neighbouring records.
    pub(crate) fn pages_of(&self, records: &Range<u64>) -> Result<Range<u64>, Error> {
        self.span(records).map(|span| pages_around(&span))
    }

    /// As [`Reader::read`], into memory for all of [their pages](Reader::pages_of), which has to begin at a page itself:
    /// past the page cache, where the system can do that and pages are not to stay there.
    pub(crate) fn read_pages<'a>(&'a self, records: Range<u64>, memory: &'a mut [u8]) -> Result<RecordRun<'a>, Error> {
        let span = self.span(&records)?;
        let pages = pages_around(&span);
        self.check_buffer(&pages, memory)?;
        let place = (span.start - pages.start) as usize..(span.end - pages.start) as usize;
        let direct = if self.pages == PageCache::LetGo { self.direct() } else { None };
        let read = match direct {
            Some(direct) => direct.read(memory, pages.start),
            None => Ok(None),
        };
        match read {
            Ok(Some(length)) if length >= place.end => {}
            Ok(Some(_)) => return Err(self.why_not_read(io::ErrorKind::UnexpectedEof.into(), span.end)),
            Ok(None) => return self.read(records, &mut memory[place]),
            Err(source) => return Err(self.why_not_read(source, span.end)),
        }
        let bytes = &memory[place];
        self.check(&records, bytes)?;
        Ok(RecordRun { reader: self, records, bytes })
    }

    fn direct(&self) -> Option<&DirectFile> {
        let open = || DirectFile::open(&self.path, &self.file);
        self.direct.get_or_init(open).as_ref()
    }

    /// Checks the bytes of neighbouring records against their checksums.
    fn check(&self, records: &Range<u64>, bytes: &[u8]) -> Result<(), Error> {
        let first = self.span(records)?.start;
        for record in records.clone() {
            let entry = self.entry(record)?;
            let start = (entry.offset - first) as usize;
            let head = entry.head.of(&self.heads).unwrap_or_default();
            let found = format::record_checksum(head, &bytes[start..start + entry.stored as usize]);
            if found != entry.checksum {
                let (offset, expected) = (entry.offset, entry.checksum);
                let damaged = Error::DamagedRecord { file: self.path.clone(), record, offset, expected, found };
                return Err(self.unless_changed(damaged));
            }
        }
        Ok(())
    }

    /// Bytes that [`Reader::read`] checked before, such as those of a cache; they are not checked again.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchRecord`] and [`Error::Buffer`] where they cannot be the bytes of these records.
    pub fn view<'a>(&'a self, records: Range<u64>, bytes: &'a [u8]) -> Result<RecordRun<'a>, Error> {
        self.check_buffer(&self.span(&records)?, bytes)?;
        Ok(RecordRun { reader: self, records, bytes })
    }

    fn entry(&self, record: u64) -> Result<&Entry, Error> {
        let place = match &self.known {
            None => usize::try_from(record).ok(),
            Some(known) => known.binary_search(&record).ok(),
        };
        let entry = place.and_then(|place| self.entries.get(place));
        entry.ok_or_else(|| Error::NoSuchRecord { file: self.path.clone(), record, records: self.len() })
    }

    fn span(&self, records: &Range<u64>) -> Result<Range<u64>, Error> {
        if records.is_empty() {
            return Ok(0..0);
        }
        Ok(self.entry(records.start)?.offset..self.entry(records.end - 1)?.end())
    }

    fn check_buffer(&self, span: &Range<u64>, buffer: &[u8]) -> Result<(), Error> {
        let (needed, given) = (span.end - span.start, buffer.len() as u64);
        if needed == given { Ok(()) } else { Err(Error::Buffer { file: self.path.clone(), needed, given }) }
    }

    fn why_not_read(&self, source: io::Error, end: u64) -> Error {
        if source.kind() == io::ErrorKind::UnexpectedEof {
            let found = self.file.metadata().map_or(0, |metadata| metadata.len());
            return self.unless_changed(Error::WrongSize { file: self.path.clone(), expected: end, found });
        }
        Error::Io { file: self.path.clone(), action: "read", source }
    }

    /// A file that somebody wrote to is no damaged disk.
    fn unless_changed(&self, error: Error) -> Error {
        let Ok(metadata) = self.file.metadata() else {
            return error;
        };
        if FileStamp::new(&metadata, 0) == self.opened {
            return error;
        }
        Error::Changed { file: self.path.clone(), expected: self.opened.bytes.get(), found: metadata.len() }
    }
}

impl<'a> RecordRun<'a> {
    /// Which records were read.
    pub fn records(&self) -> Range<u64> {
        self.records.clone()
    }

    /// The bytes of one of the records, as [`Record::parse`] takes them, into a buffer of their size.
    pub(crate) fn unpack(&self, record: u64, scratch: &mut Scratch, into: &mut [u8]) -> Result<(), Error> {
        let (entry, stored) = self.stored(record)?;
        let malformed = |reason| Error::Malformed { file: self.reader.path.clone(), offset: entry.offset, reason };
        match entry.encoding {
            Encoding::Plain => into.copy_from_slice(stored),
            Encoding::Zstd => scratch.unpack_into(stored, into).map_err(malformed)?,
        }
        Ok(())
    }

    fn stored(&self, record: u64) -> Result<(&'a Entry, &'a [u8]), Error> {
        if !self.records.contains(&record) {
            let (file, records) = (self.reader.path.clone(), self.reader.len());
            return Err(Error::NoSuchRecord { file, record, records });
        }
        let first = self.reader.entry(self.records.start)?.offset;
        let entry = self.reader.entry(record)?;
        let start = (entry.offset - first) as usize;
        Ok((entry, &self.bytes[start..start + entry.stored as usize]))
    }

    /// One of the records. Borrows what was read, or `scratch` where the record is compressed.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchRecord`] where it is not among those read; [`Error::Malformed`] where it was not written by
    /// Lowtide.
    pub fn record<'s>(&self, record: u64, scratch: &'s mut Scratch) -> Result<Record<'s>, Error>
    where
        'a: 's,
    {
        let (entry, stored) = self.stored(record)?;
        let malformed = |reason| Error::Malformed { file: self.reader.path.clone(), offset: entry.offset, reason };
        let raw = match entry.encoding {
            Encoding::Plain => stored,
            Encoding::Zstd => scratch.unpack(stored, entry.raw).map_err(malformed)?,
        };
        let head = entry.head.of(&self.reader.heads).filter(|head| !head.is_empty()).unwrap_or(raw);
        Record::parse_apart(head, raw, &self.reader.names).map_err(malformed)
    }
}

impl Scratch {
    fn unpack(&mut self, stored: &[u8], raw: u64) -> Result<&[u8], &'static str> {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.resize(raw as usize, 0);
        let unpacked = self.unpack_into(stored, &mut bytes);
        self.bytes = bytes;
        unpacked.map(|()| &self.bytes[..])
    }

    fn unpack_into(&mut self, stored: &[u8], raw: &mut [u8]) -> Result<(), &'static str> {
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(zstd::bulk::Decompressor::new().map_err(|_| "zstd cannot be started")?),
        };
        let len = decompressor.decompress_to_buffer(stored, raw).map_err(|_| "a record cannot be unpacked")?;
        if len == raw.len() { Ok(()) } else { Err("a record unpacks to another size") }
    }
}

/// Opens a file, and checks its header and footer.
fn open_ends(path: &Path) -> Result<Ends, Error> {
    let file = File::open(path).map_err(Error::io(path, "open"))?;
    let opened = FileStamp::new(&file.metadata().map_err(Error::io(path, "look at"))?, 0);
    expect_random_reads(&file);
    let (footer, version) = check_ends(&file, path, opened.bytes.get())?;
    Ok(Ends { file, opened, footer, version })
}

/// A file whose header and footer are good.
struct Ends {
    file: File,
    opened: FileStamp,
    footer: Footer,
    version: u32,
}

/// The pages that hold a part of a file.
fn pages_around(span: &Range<u64>) -> Range<u64> {
    if span.is_empty() {
        return span.start..span.start;
    }
    span.start / PAGE * PAGE..span.end.next_multiple_of(PAGE)
}

/// Checks header and footer, and that the file has the size that the footer gives.
fn check_ends(file: &File, path: &Path, file_len: u64) -> Result<(Footer, u32), Error> {
    let read = |buffer: &mut [u8], offset| file.read_exact_at(buffer, offset).map_err(Error::io(path, "read"));
    let path = || path.to_path_buf();
    let mut header = [0; HEADER];
    let there = &mut header[..file_len.min(HEADER as u64) as usize];
    read(there, 0)?;
    let magic = there.len().min(format::MAGIC.len());
    if there.is_empty() || there[..magic] != format::MAGIC[..magic] {
        return Err(Error::NotAShard { file: path(), found: there[..magic].to_vec() });
    }
    let least = (HEADER + FOOTER) as u64;
    if file_len < least {
        return Err(Error::WrongSize { file: path(), expected: least, found: file_len });
    }
    let (expected, found) = format::header_checksums(&header);
    if expected != found {
        return Err(Error::Damaged { file: path(), part: Part::Header, offset: 0, expected, found });
    }
    let version = format::version(&header);
    let (oldest, newest) = (format::OLDER, format::VERSION);
    if !(oldest..=newest).contains(&version) {
        return Err(Error::Version { file: path(), found: version, oldest, newest });
    }
    let mut footer = [0; FOOTER];
    let footer_offset = file_len - FOOTER as u64;
    read(&mut footer, footer_offset)?;
    if footer[FOOTER - 4..] != format::END {
        return Err(Error::NoEnd { file: path(), found: file_len });
    }
    let (expected, found) = Footer::checksums(&footer);
    if expected != found {
        return Err(Error::Damaged { file: path(), part: Part::Footer, offset: footer_offset, expected, found });
    }
    let footer = Footer::decode(&footer);
    if footer.file_len != file_len {
        return Err(Error::WrongSize { file: path(), expected: footer.file_len, found: file_len });
    }
    let index_end = footer.index_offset.checked_add(footer.index_len);
    if index_end != Some(footer_offset) || !footer.index_offset.is_multiple_of(ALIGNMENT) {
        return Err(Error::Malformed {
            file: path(),
            offset: footer_offset,
            reason: "the index is not before the footer",
        });
    }
    Ok((footer, version))
}
