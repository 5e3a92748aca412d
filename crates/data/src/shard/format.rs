//! Header, index and footer as bytes.

/// What a file begins with. As in PNG: a byte that is no text, and line ends that a transfer as text would change.
pub(super) const MAGIC: [u8; 8] = *b"\x89LTS\r\n\x1a\n";
/// What a file ends with.
pub(super) const END: [u8; 4] = *b"LTSE";
pub(super) const VERSION: u32 = 2;
/// The size of header and footer, and what records and tensors are aligned to: a cache line, and the widest vector.
pub(super) const ALIGNMENT: u64 = 64;
pub(super) const HEADER: usize = 64;
pub(super) const FOOTER: usize = 64;
pub(super) const ENTRY: usize = 40;
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
    /// Of the bytes in the file.
    pub(super) checksum: u32,
    pub(super) encoding: Encoding,
    /// The hash of the sample's id, 0 where it has none.
    pub(super) id: u64,
}

impl Entry {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.stored
    }
}

/// The table of records, and the names of their tensors.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) names: Vec<String>,
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

impl Index {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + self.names.len() * 16 + self.entries.len() * ENTRY);
        bytes.extend((self.names.len() as u64).to_le_bytes());
        bytes.extend((self.entries.len() as u64).to_le_bytes());
        for name in &self.names {
            bytes.extend((name.len() as u16).to_le_bytes());
            bytes.extend(name.as_bytes());
        }
        for entry in &self.entries {
            bytes.extend(entry.offset.to_le_bytes());
            bytes.extend(entry.stored.to_le_bytes());
            bytes.extend(entry.raw.to_le_bytes());
            bytes.extend(entry.checksum.to_le_bytes());
            bytes.extend((entry.encoding as u32).to_le_bytes());
            bytes.extend(entry.id.to_le_bytes());
        }
        bytes
    }

    /// Reads an index that begins at `index_offset`; the error says what is wrong.
    ///
    /// Records that are accepted follow each other without holes, so that a run of them can be read in one go.
    pub(super) fn decode(bytes: &[u8], index_offset: u64) -> Result<Self, &'static str> {
        let mut rest = bytes;
        let (names, records) = decode_names(&mut rest)?;
        let mut index = Self { names, entries: Vec::new() };
        if records.checked_mul(ENTRY as u64) != Some(rest.len() as u64) {
            return Err("the index does not have the size of its records");
        }
        index.entries.reserve_exact(records as usize);
        let mut expected = HEADER as u64;
        for bytes in rest.chunks_exact(ENTRY) {
            let entry = decode_entry(bytes)?;
            let end = entry.offset.checked_add(entry.stored).filter(|end| *end <= index_offset);
            if entry.offset != expected {
                return Err("a record does not begin where the one before it ends");
            }
            expected = end.and_then(aligned).ok_or("a record reaches into the index")?;
            index.entries.push(entry);
        }
        if expected != index_offset {
            return Err("the index does not begin where the last record ends");
        }
        Ok(index)
    }
}

/// The names at the beginning of an index, and how many records it has; leaves what is behind them.
pub(super) fn decode_names(rest: &mut &[u8]) -> Result<(Vec<String>, u64), &'static str> {
    let count = u64::from_le_bytes(take(rest).ok_or("the index is too short")?);
    let records = u64::from_le_bytes(take(rest).ok_or("the index is too short")?);
    let mut names = Vec::new();
    for _ in 0..count {
        let len = u16::from_le_bytes(take(rest).ok_or("the table of names is too short")?);
        let name = rest.split_off(..usize::from(len)).ok_or("the table of names is too short")?;
        names.push(String::from_utf8(name.to_vec()).map_err(|_| "a name is not UTF-8")?);
    }
    Ok((names, records))
}

/// One record of an index that begins at `index_offset`.
pub(super) fn decode_entry_within(bytes: &[u8], index_offset: u64) -> Result<Entry, &'static str> {
    let entry = decode_entry(bytes)?;
    let end = entry.offset.checked_add(entry.stored).and_then(aligned);
    if entry.offset < HEADER as u64
        || !entry.offset.is_multiple_of(ALIGNMENT)
        || end.is_none_or(|end| end > index_offset)
    {
        return Err("a record is not where records are");
    }
    Ok(entry)
}

fn decode_entry(bytes: &[u8]) -> Result<Entry, &'static str> {
    let (stored, raw) = (u64_at(bytes, 8), u64_at(bytes, 16));
    let encoding = match u32_at(bytes, 28) {
        0 if stored == raw => Encoding::Plain,
        0 => return Err("a plain record has two sizes"),
        1 if raw / MOST_EXPANSION <= stored => Encoding::Zstd,
        1 => return Err("a compressed record cannot be so large"),
        _ => return Err("a record has an unknown encoding"),
    };
    Ok(Entry { offset: u64_at(bytes, 0), stored, raw, checksum: u32_at(bytes, 24), encoding, id: u64_at(bytes, 32) })
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
