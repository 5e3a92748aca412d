//! The directory of a zip archive.
//!
//! A reader of our own, because torch writes a tail of 76 bytes that other readers take for something else: it always
//! holds the 64-bit records, needed or not. Only what `torch.save` and `numpy.savez` write is known: one disk, stored
//! or deflated entries.

use std::collections::HashSet;
use std::sync::Arc;

use lowtide_core::Bytes;

use crate::error::{Place, TensorFileError};
use crate::file::TensorFile;

const END: [u8; 4] = *b"PK\x05\x06";
const END_64: [u8; 4] = *b"PK\x06\x06";
const LOCATOR_64: [u8; 4] = *b"PK\x06\x07";
const ENTRY: [u8; 4] = *b"PK\x01\x02";
const HEADER: [u8; 4] = *b"PK\x03\x04";
const END_SIZE: u64 = 22;
const LOCATOR_SIZE: u64 = 20;
const END_64_SIZE: u64 = 56;
const ENTRY_SIZE: usize = 46;
const HEADER_SIZE: u64 = 30;
/// A comment may stand behind the end record, of as many bytes as 16 bits count.
const LONGEST_COMMENT: u64 = 0xffff;
/// A directory of this size has ten million entries.
const LARGEST_DIRECTORY: u64 = 1 << 30;
/// Memory of an entry, with the storage or array that it becomes and its places in lists, the name left out.
const ENTRY_MEMORY: u64 = 400;
/// Deflate makes no more than 1032 bytes of one.
const LARGEST_RATIO: u64 = 1032;

/// An entry of an archive; its bytes lie within the file.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Where its own header begins in the file.
    header: u64,
    /// Where its bytes begin in the file.
    pub(crate) offset: u64,
    /// How many bytes it takes in the file.
    pub(crate) packed: u64,
    /// How many bytes it has.
    pub(crate) length: u64,
    pub(crate) crc: u32,
    pub(crate) method: Method,
}

/// How the bytes of an entry are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Stored,
    Deflated,
}

impl Entry {
    pub(crate) fn place(&self) -> Place {
        Place::Entry { name: self.name.clone(), offset: self.offset }
    }

    /// All bytes of a stored entry, after its checksum was verified.
    pub(crate) fn read(&self, file: &TensorFile) -> Result<Vec<u8>, TensorFileError> {
        self.verify(file)?;
        file.bytes_at(self.offset, self.length, &self.place())
    }

    /// Whether its checksum was written: torch can be told to leave it out, and writes 0 then.
    pub(crate) fn has_checksum(&self) -> bool {
        self.crc != 0 || self.length == 0
    }

    /// Reads all bytes of a stored entry, some at a time, to see whether its checksum is right.
    pub(crate) fn verify(&self, file: &TensorFile) -> Result<(), TensorFileError> {
        if self.method == Method::Deflated {
            return Err(file.unsupported(self.place(), "a compressed entry", None));
        }
        let found = file.checksum_of(self.offset, self.length, || self.place())?;
        if found == self.crc || !self.has_checksum() {
            return Ok(());
        }
        let (file, place) = (file.path().to_owned(), self.place());
        Err(TensorFileError::Checksum { file, place, expect: self.crc, found })
    }
}

/// Where the directory is and how many entries it has.
struct Directory {
    offset: u64,
    size: u64,
    count: u64,
}

/// Reads the directory of an archive and finds the bytes of every entry.
pub(crate) fn entries(file: &Arc<TensorFile>) -> Result<Vec<Entry>, TensorFileError> {
    let directory = find_directory(file)?;
    let place = Place::Byte(directory.offset);
    file.check_range(directory.offset, directory.size, &place)?;
    if directory.size > LARGEST_DIRECTORY || directory.count > directory.size / ENTRY_SIZE as u64 {
        let problem = format!("a directory of {} bytes with {} entries", directory.size, directory.count);
        return Err(file.malformed(place, problem));
    }
    file.check_tables(Bytes(directory.count.saturating_mul(ENTRY_MEMORY).saturating_add(directory.size)))?;
    let bytes = file.bytes_at(directory.offset, directory.size, &place)?;
    let mut rest = &bytes[..];
    let mut entries = Vec::with_capacity(directory.count as usize);
    for _ in 0..directory.count {
        let at = Place::Byte(directory.offset + (bytes.len() - rest.len()) as u64);
        let (record, after) = Record::read(rest).map_err(|problem| file.malformed(at, problem))?;
        rest = after;
        entries.push(record.locate(file)?);
    }
    let mut names = HashSet::with_capacity(entries.len());
    if let Some(entry) = entries.iter().find(|entry| !names.insert(&*entry.name)) {
        return Err(file.malformed(entry.place(), "a second entry of that name"));
    }
    drop(names);
    check_apart(file, &entries)?;
    let inflated = entries.iter().filter(|entry| entry.method == Method::Deflated);
    file.check_values(Bytes(inflated.fold(0, |sum: u64, entry| sum.saturating_add(entry.length))))?;
    Ok(entries)
}

/// Refuses entries that share bytes, as Python's own reader does: a small archive could have any number of them.
fn check_apart(file: &TensorFile, entries: &[Entry]) -> Result<(), TensorFileError> {
    let mut in_order: Vec<&Entry> = entries.iter().collect();
    in_order.sort_unstable_by_key(|entry| (entry.header, entry.offset));
    let shared = in_order.windows(2).find(|two| two[0].offset.saturating_add(two[0].packed) > two[1].header);
    match shared {
        Some([one, other]) => {
            let problem = format!("it shares bytes with the entry `{}`", one.name.escape_debug());
            Err(file.malformed(other.place(), problem))
        }
        _ => Ok(()),
    }
}

fn find_directory(file: &TensorFile) -> Result<Directory, TensorFileError> {
    let tail_length = file.len().min(END_SIZE + LONGEST_COMMENT);
    let tail_start = file.len() - tail_length;
    let tail = file.bytes_at(tail_start, tail_length, &Place::Whole)?;
    let found = tail.windows(END_SIZE as usize).rposition(|window| window.starts_with(&END));
    let Some(at) = found else {
        let problem =
            "it begins like a zip archive, but the directory that belongs at its end is missing: it was cut short";
        return Err(file.malformed(Place::Byte(file.len()), problem));
    };
    let end = &tail[at..];
    let end_offset = tail_start + at as u64;
    let plain = Directory {
        count: u64::from(u16_at(end, 10)),
        size: u64::from(u32_at(end, 12)),
        offset: u64::from(u32_at(end, 16)),
    };
    let Some(locator_offset) = end_offset.checked_sub(LOCATOR_SIZE) else { return Ok(plain) };
    let locator = file.bytes_at(locator_offset, LOCATOR_SIZE, &Place::Byte(locator_offset))?;
    if !locator.starts_with(&LOCATOR_64) {
        return Ok(plain);
    }
    let offset = u64_at(&locator, 8);
    let place = Place::Byte(offset);
    let record = file.bytes_at(offset, END_64_SIZE, &place)?;
    if !record.starts_with(&END_64) {
        return Err(file.malformed(place, "the end record of the zip archive is not where its locator says"));
    }
    Ok(Directory { count: u64_at(&record, 32), size: u64_at(&record, 40), offset: u64_at(&record, 48) })
}

/// An entry as the directory has it.
struct Record<'d> {
    name_bytes: &'d [u8],
    name: String,
    flags: u16,
    method: u16,
    crc: u32,
    packed: u64,
    length: u64,
    header: u64,
}

impl<'d> Record<'d> {
    /// The next record, and what follows it.
    fn read(bytes: &'d [u8]) -> Result<(Self, &'d [u8]), String> {
        let cut = || "the directory of the zip archive ends within an entry".to_owned();
        let fixed = bytes.get(..ENTRY_SIZE).ok_or_else(cut)?;
        if !fixed.starts_with(&ENTRY) {
            return Err("an entry of the zip archive's directory is missing here".to_owned());
        }
        let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(u16_at(fixed, at)));
        let rest = &bytes[ENTRY_SIZE..];
        let name_bytes = rest.get(..name).ok_or_else(cut)?;
        let extra_bytes = rest.get(name..name + extra).ok_or_else(cut)?;
        let after = rest.get(name + extra + comment..).ok_or_else(cut)?;
        let mut record = Self {
            name_bytes,
            name: String::from_utf8_lossy(name_bytes).into_owned(),
            flags: u16_at(fixed, 8),
            method: u16_at(fixed, 10),
            crc: u32_at(fixed, 16),
            packed: u64::from(u32_at(fixed, 20)),
            length: u64::from(u32_at(fixed, 24)),
            header: u64::from(u32_at(fixed, 42)),
        };
        record.widen(extra_bytes)?;
        Ok((record, after))
    }

    /// Takes the 64-bit numbers out of the extra field, for those that 32 bits could not hold.
    fn widen(&mut self, mut extra: &[u8]) -> Result<(), String> {
        while let Some((head, rest)) = extra.split_at_checked(4) {
            let size = usize::from(u16_at(head, 2));
            let Some((body, after)) = rest.split_at_checked(size) else { break };
            extra = after;
            if u16_at(head, 0) != 1 {
                continue;
            }
            let mut numbers = body.chunks_exact(8);
            for number in [&mut self.length, &mut self.packed, &mut self.header] {
                if *number == u64::from(u32::MAX) {
                    let wide = numbers.next().ok_or("an entry lacks a 64-bit size")?;
                    *number = u64_at(wide, 0);
                }
            }
        }
        Ok(())
    }

    /// Finds the bytes of the entry: only the header that stands before them says how long it is.
    fn locate(self, file: &TensorFile) -> Result<Entry, TensorFileError> {
        let place = || Place::Entry { name: self.name.clone(), offset: self.header };
        if self.flags & 1 != 0 {
            return Err(file.unsupported(place(), "an encrypted entry", None));
        }
        let method = match self.method {
            0 => Method::Stored,
            8 => Method::Deflated,
            other => {
                return Err(file.unsupported(place(), format!("compression method {other} of zip"), None));
            }
        };
        if method == Method::Stored && self.packed != self.length {
            let problem = format!("a stored entry of {} bytes that takes {}", self.length, self.packed);
            return Err(file.malformed(place(), problem));
        }
        if method == Method::Deflated && self.length / LARGEST_RATIO > self.packed {
            let problem = format!("{} bytes cannot be packed into {}", self.length, self.packed);
            return Err(file.malformed(place(), problem));
        }
        let mut header = vec![0; HEADER_SIZE as usize + self.name_bytes.len()];
        file.read_near(&mut header, self.header, place)?;
        if !header.starts_with(&HEADER) {
            return Err(file.malformed(place(), "the header of this entry is not where the directory says"));
        }
        let name_length = u16_at(&header, 26);
        if usize::from(name_length) != self.name_bytes.len() || !header.ends_with(self.name_bytes) {
            return Err(file.malformed(place(), "this entry has another name in the directory than before its bytes"));
        }
        let lengths = u64::from(name_length) + u64::from(u16_at(&header, 28));
        let offset = self.header + HEADER_SIZE + lengths;
        if offset.saturating_add(self.packed) > file.len() {
            file.check_range(offset, self.packed, &place())?;
        }
        let Self { name, header, crc, packed, length, .. } = self;
        Ok(Entry { name, header, offset, packed, length, crc, method })
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
