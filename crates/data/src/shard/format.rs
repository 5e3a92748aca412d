//! Header, index and footer as bytes.

/// What a file begins with. As in PNG: a byte that is no text, and line ends that a transfer as text would change.
pub(super) const MAGIC: [u8; 8] = *b"\x89LTS\r\n\x1a\n";
/// What a file ends with.
pub(super) const END: [u8; 4] = *b"LTSE";
pub(super) const VERSION: u32 = 3;
/// The version before: every record has its head in it, and begins at a multiple of 64.
pub(super) const OLDER: u32 = 2;
/// The size of header and footer, and what records and tensors are aligned to: a cache line, and the widest vector.
pub(super) const ALIGNMENT: u64 = 64;
/// What records begin at whose heads are in the index: what disks and page caches deal in.
pub(super) const PAGE: u64 = 4096;
pub(super) const HEADER: usize = 64;
pub(super) const FOOTER: usize = 64;
/// The most that a record may lose to begin at a page and end at one: this part of it.
const PAGE_LOSS: u64 = 32;
/// The most that zstd can expand a byte to is below this: a block of 128 KiB that repeats one byte takes 4 bytes.
const MOST_EXPANSION: u64 = 1 << 16;

/// How the bytes of a record are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Plain,
    Zstd,
}

/// Where a record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) offset: u64,
    /// The bytes in the file.
    pub(super) stored: u64,
    /// The bytes of the record itself.
    pub(super) raw: u64,
    /// Of the bytes in the file, and of the head before them where that is in the index.
    pub(super) checksum: u32,
    pub(super) encoding: Encoding,
    /// The hash of the sample's id, 0 where it has none.
    pub(super) id: u64,
    /// Where its head is among those of the index.
    pub(super) head: HeadPlace,
}

/// Where the head of a record is among those of the index; without a length, it is in the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct HeadPlace {
    pub(super) start: u32,
    pub(super) length: u32,
}

impl HeadPlace {
    pub(super) fn is_apart(self) -> bool {
        self.length > 0
    }

    /// The bytes of the head; `None` where there are none.
    pub(super) fn of(self, heads: &[u8]) -> Option<&[u8]> {
        heads.get(self.start as usize..).and_then(|rest| rest.get(..self.length as usize))
    }
}

impl Entry {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.stored
    }

    /// What its offset is a multiple of.
    fn alignment(&self) -> u64 {
        if self.head.is_apart() { PAGE } else { ALIGNMENT }
    }
}

/// The checksum of a record, given its head where that is in the index.
///
/// The head counts too: what says where it is may have been read without a checksum of its own.
pub(super) fn record_checksum(head: &[u8], stored: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(head), stored)
}

/// Whether the tensors of a record take about as many pages as they fill, so that it is worth while to begin at one.
pub(super) fn fills_pages(bytes: u64) -> bool {
    bytes.checked_next_multiple_of(PAGE).is_some_and(|pages| bytes > 0 && pages - bytes <= bytes / PAGE_LOSS)
}

/// The table of records, and the names of their tensors.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) names: Vec<String>,
    /// Heads of records that fill pages, each once.
    pub(super) heads: Vec<u8>,
    pub(super) entries: Vec<Entry>,
}

/// What the end of the file says about the rest of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) index_offset: u64,
    pub(super) index_len: u64,
    pub(super) records: u64,
    pub(super) file_len: u64,
    pub(super) index_checksum: u32,
    /// Of the part of the index before the records.
    pub(super) names_checksum: u32,
}

pub(super) fn aligned(offset: u64) -> Option<u64> {
    offset.checked_next_multiple_of(ALIGNMENT)
}

pub(super) fn header() -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..HEADER - 4]);
    bytes[HEADER - 4..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The checksum that the header gives for itself, and the one it has.
pub(super) fn header_checksums(header: &[u8; HEADER]) -> (u32, u32) {
    let (body, checksum) = header.split_at(HEADER - 4);
    (u32_at(checksum, 0), crc32c::crc32c(body))
}

pub(super) fn version(header: &[u8; HEADER]) -> u32 {
    u32_at(header, 8)
}

impl Footer {
    pub(super) fn encode(&self) -> [u8; FOOTER] {
        let mut bytes = [0; FOOTER];
        let numbers = [self.index_offset, self.index_len, self.records, self.file_len];
        for (place, number) in numbers.into_iter().enumerate() {
            bytes[place * 8..place * 8 + 8].copy_from_slice(&number.to_le_bytes());
        }
        bytes[32..36].copy_from_slice(&self.index_checksum.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.names_checksum.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..56]);
        bytes[56..60].copy_from_slice(&checksum.to_le_bytes());
        bytes[60..].copy_from_slice(&END);
        bytes
    }

    /// The checksum that the footer gives for itself, and the one it has.
    pub(super) fn checksums(bytes: &[u8; FOOTER]) -> (u32, u32) {
        (u32_at(bytes, 56), crc32c::crc32c(&bytes[..56]))
    }

    pub(super) fn decode(bytes: &[u8; FOOTER]) -> Self {
        Self {
            index_offset: u64_at(bytes, 0),
            index_len: u64_at(bytes, 8),
            records: u64_at(bytes, 16),
            file_len: u64_at(bytes, 24),
            index_checksum: u32_at(bytes, 32),
            names_checksum: u32_at(bytes, 36),
        }
    }
}

/// Bytes of an entry.
pub(super) fn entry_bytes(version: u32) -> usize {
    if version == OLDER { 40 } else { 48 }
}

impl Index {
    pub(super) fn encode(&self) -> Vec<u8> {
        let entries = self.entries.len() * entry_bytes(VERSION);
        let mut bytes = Vec::with_capacity(24 + self.names.len() * 16 + self.heads.len() + entries);
        bytes.extend((self.names.len() as u64).to_le_bytes());
        bytes.extend((self.entries.len() as u64).to_le_bytes());
        bytes.extend((self.heads.len() as u64).to_le_bytes());
        for name in &self.names {
            bytes.extend((name.len() as u16).to_le_bytes());
            bytes.extend(name.as_bytes());
        }
        bytes.extend(&self.heads);
        for entry in &self.entries {
            bytes.extend(entry.offset.to_le_bytes());
            bytes.extend(entry.stored.to_le_bytes());
            bytes.extend(entry.raw.to_le_bytes());
            bytes.extend(entry.checksum.to_le_bytes());
            bytes.extend((entry.encoding as u32).to_le_bytes());
            bytes.extend(entry.id.to_le_bytes());
            bytes.extend(entry.head.start.to_le_bytes());
            bytes.extend(entry.head.length.to_le_bytes());
        }
        bytes
    }

    /// Reads an index that begins at `index_offset`; the error says what is wrong.
    ///
    /// Records that are accepted follow each other without holes, so that a run of them can be read in one go.
    pub(super) fn decode(bytes: &[u8], index_offset: u64, version: u32) -> Result<Self, &'static str> {
        let mut rest = bytes;
        let Front { names, heads, records } = decode_front(&mut rest, version)?;
        let entry_bytes = entry_bytes(version);
        if records.checked_mul(entry_bytes as u64) != Some(rest.len() as u64) {
            return Err("the index does not have the size of its records");
        }
        let mut entries: Vec<Entry> = Vec::with_capacity(records as usize);
        let mut end = HEADER as u64;
        for bytes in rest.chunks_exact(entry_bytes) {
            let entry = decode_entry(bytes, heads, version)?;
            if end.checked_next_multiple_of(entry.alignment()) != Some(entry.offset) {
                return Err("a record does not begin where the one before it ends");
            }
            let within = entry.offset.checked_add(entry.stored).filter(|end| *end <= index_offset);
            end = within.ok_or("a record reaches into the index")?;
            entries.push(entry);
        }
        if aligned(end) != Some(index_offset) {
            return Err("the index does not begin where the last record ends");
        }
        Ok(Self { names, heads: heads.to_vec(), entries })
    }
}

/// What stands in an index before the records.
pub(super) struct Front<'a> {
    pub(super) names: Vec<String>,
    pub(super) heads: &'a [u8],
    pub(super) records: u64,
}

/// Reads what stands in an index before the records, and leaves what is behind it.
pub(super) fn decode_front<'a>(rest: &mut &'a [u8], version: u32) -> Result<Front<'a>, &'static str> {
    let count = u64::from_le_bytes(take(rest).ok_or("the index is too short")?);
    let records = u64::from_le_bytes(take(rest).ok_or("the index is too short")?);
    let heads = match version {
        OLDER => 0,
        _ => u64::from_le_bytes(take(rest).ok_or("the index is too short")?),
    };
    let mut names = Vec::new();
    for _ in 0..count {
        let len = u16::from_le_bytes(take(rest).ok_or("the table of names is too short")?);
        let name = rest.split_off(..usize::from(len)).ok_or("the table of names is too short")?;
        names.push(String::from_utf8(name.to_vec()).map_err(|_| "a name is not UTF-8")?);
    }
    let heads = usize::try_from(heads).ok().and_then(|heads| rest.split_off(..heads));
    let heads = heads.ok_or("the table of heads is too short")?;
    Ok(Front { names, heads, records })
}

/// One record of an index that begins at `index_offset`.
pub(super) fn decode_entry_within(
    bytes: &[u8],
    index_offset: u64,
    heads: &[u8],
    version: u32,
) -> Result<Entry, &'static str> {
    let entry = decode_entry(bytes, heads, version)?;
    let end = entry.offset.checked_add(entry.stored).and_then(aligned);
    if entry.offset < HEADER as u64
        || !entry.offset.is_multiple_of(entry.alignment())
        || end.is_none_or(|end| end > index_offset)
    {
        return Err("a record is not where records are");
    }
    Ok(entry)
}

fn decode_entry(bytes: &[u8], heads: &[u8], version: u32) -> Result<Entry, &'static str> {
    let (stored, raw) = (u64_at(bytes, 8), u64_at(bytes, 16));
    let encoding = match u32_at(bytes, 28) {
        0 if stored == raw => Encoding::Plain,
        0 => return Err("a plain record has two sizes"),
        1 if raw / MOST_EXPANSION <= stored => Encoding::Zstd,
        1 => return Err("a compressed record cannot be so large"),
        _ => return Err("a record has an unknown encoding"),
    };
    let head = match version {
        OLDER => HeadPlace::default(),
        _ => HeadPlace { start: u32_at(bytes, 40), length: u32_at(bytes, 44) },
    };
    if head.of(heads).is_none() {
        return Err("a record has no head");
    }
    if head.is_apart() && encoding != Encoding::Plain {
        return Err("a compressed record has its head apart");
    }
    let (offset, checksum, id) = (u64_at(bytes, 0), u32_at(bytes, 24), u64_at(bytes, 32));
    Ok(Entry { offset, stored, raw, checksum, encoding, id, head })
}

/// The next bytes of a fixed number, or `None` where there are fewer.
pub(super) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*bytes)
}

fn u64_at(bytes: &[u8], place: usize) -> u64 {
    u64::from_le_bytes(bytes[place..place + 8].try_into().expect("8 bytes"))
}

fn u32_at(bytes: &[u8], place: usize) -> u32 {
    u32::from_le_bytes(bytes[place..place + 4].try_into().expect("4 bytes"))
}
