//! Samples out of shards, as a data set needs them.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use lowtide_core::Bytes;
use lowtide_tensorfile::pages::{MAPPED_FROM, Memory, PageCache};

use super::options::{OpenOptions, Selection};
use crate::DataError;
use crate::file_stamp::FileStamp;
use crate::index::{FileCost, FileFacts, SampleFacts};
use crate::samples::{BufferedSample, RecordPlace, Room, take_memory};
use crate::shard::{Error, Reader, RecordRun, Scratch};

/// Neighbouring records are read together up to so many bytes.
const LARGEST_RUN: u64 = 1 << 20;
/// Where fewer than one record in so many is wanted, the index is not read as a whole.
const FEW: u64 = 16;
/// Memory of an open shard for each record: in the file's index, and as it is kept.
const OPEN_RECORD: u64 = 2 * 56;
/// Memory of unpacking: zstd's own, and one record.
const UNPACKING: u64 = 256 << 10;

/// Reads what a shard says about its records.
pub(crate) fn look_at(path: &Path, options: OpenOptions) -> Result<FileFacts, DataError> {
    let reader = Reader::open_with(path, options.page_cache)?;
    let stamp = FileStamp::of(path, reader.fingerprint())?;
    reader.check_decoded(options.decode_limit)?;
    let names = Room::names_cost(reader.names());
    let (mut room, mut samples, mut heads) = (Room::default(), Vec::new(), Heads::default());
    // What one of them takes while it is read, besides where it stays.
    let (mut largest_copied, mut is_packed) = (0, false);
    for record in 0..reader.len() {
        let length = reader.unpacked_bytes_of(record)?.get();
        room.add(length);
        heads.add(&reader, record)?;
        if !stays_where_read(&reader, record)? {
            largest_copied = largest_copied.max(reader.place_of(record)?.1.get());
        }
        is_packed |= !reader.is_plain(record)?;
        let head = reader.head_of(record)?.map_or(0, <[u8]>::len) as u64;
        let memory = Room::alone(length.saturating_add(gap_behind(&reader, record)?));
        let memory = memory.saturating_add(head).saturating_add(names);
        samples.push(SampleFacts { memory: Bytes(memory), id_hash: reader.id_hash_of(record)?.unwrap_or(0) });
    }
    let all = 0..reader.len();
    let run = match largest_copied {
        0 => 0,
        largest => Memory::cost_at_page(reader.bytes_of(all.clone())?.get().min(LARGEST_RUN).max(largest) + 2 * PAGE),
    };
    let heads = heads.bytes.len() as u64;
    let open = reader.len().saturating_mul(OPEN_RECORD).saturating_add(2 * (names + heads));
    let reading = run.saturating_add(open).saturating_add(if is_packed { UNPACKING } else { 0 });
    // Where all are plain they are read where they stay, with what lies between them.
    let in_place = reader.pages_of(&all)?;
    let between = Memory::cost(in_place.end - in_place.start).saturating_sub(Memory::cost(room.bytes()));
    let memory = [room.cost(), between, names, heads].into_iter().fold(0, u64::saturating_add);
    Ok(FileFacts { stamp, cost: FileCost { memory: Bytes(memory), reading: Bytes(reading) }, samples })
}

const PAGE: u64 = 4096;

/// What lies between a record and the next one.
fn gap_behind(reader: &Reader, record: u64) -> Result<u64, Error> {
    if record + 1 == reader.len() || !reader.is_plain(record)? {
        return Ok(0);
    }
    let (start, bytes) = reader.place_of(record)?;
    Ok(reader.place_of(record + 1)?.0 - start - bytes.get())
}

/// Whether a record that is read by itself is read to where it stays.
fn stays_where_read(reader: &Reader, record: u64) -> Result<bool, Error> {
    let is_large = reader.unpacked_bytes_of(record)?.get() >= MAPPED_FROM as u64;
    Ok(is_large && reader.head_of(record)?.is_some())
}

/// Opens a shard, if it is still the one with this fingerprint.
pub(crate) fn open(path: &Path, fingerprint: u32, pages: PageCache) -> Result<Reader, DataError> {
    the_same(Reader::open_with(path, pages)?, fingerprint)
}

/// The same for some of its records; it is known to have so many.
pub(crate) fn open_for(
    path: &Path,
    (fingerprint, known): (u32, u64),
    selection: Selection<'_>,
    pages: PageCache,
) -> Result<Reader, DataError> {
    match selection {
        Selection::Together(places) | Selection::Apart(places) if places.len() as u64 * FEW <= known => {
            the_same(Reader::open_some(path, places, pages)?, fingerprint)
        }
        _ => open(path, fingerprint, pages),
    }
}

fn the_same(reader: Reader, fingerprint: u32) -> Result<Reader, DataError> {
    if reader.fingerprint() == fingerprint { Ok(reader) } else { Err(DataError::changed(reader.path())) }
}

/// The first of the chosen records whose id is not the one that is known of it.
pub(crate) fn other_id(reader: &Reader, known: &[SampleFacts], selection: Selection<'_>) -> Option<u64> {
    let differs = |record: u64| -> Result<bool, Error> {
        Ok(reader.id_hash_of(record)?.unwrap_or(0) != known.get(record as usize).map_or(0, |facts| facts.id_hash))
    };
    let mut chosen: Box<dyn Iterator<Item = u64>> = match selection {
        Selection::All => Box::new(0..reader.len().min(known.len() as u64)),
        Selection::Together(places) | Selection::Apart(places) => Box::new(places.iter().copied()),
    };
    // An error is one of the record, and reading it tells.
    chosen.find(|record| differs(*record).unwrap_or(false))
}

/// Reads records of a shard.
pub(crate) fn read(reader: &Reader, selection: Selection<'_>) -> Result<Vec<BufferedSample>, DataError> {
    let neighbours = match selection {
        Selection::All => Some(0..reader.len()),
        Selection::Together(places) => neighbours(places),
        Selection::Apart(_) => None,
    };
    let read = match (neighbours, selection) {
        (Some(records), _) if is_all_plain(reader, records.clone())? => read_in_place(reader, records)?,
        (_, Selection::All) => read_together(reader, &(0..reader.len()).collect::<Vec<_>>())?,
        (_, Selection::Together(places)) => read_together(reader, places)?,
        (_, Selection::Apart(places)) => read_apart(reader, places)?,
    };
    for (place, packed) in read.iter().enumerate() {
        if let Err(reason) = packed.check() {
            let record = match selection {
                Selection::All => place as u64,
                Selection::Together(places) | Selection::Apart(places) => places[place],
            };
            let (offset, _) = reader.place_of(record)?;
            return Err(Error::Malformed { file: reader.path().to_owned(), offset, reason }.into());
        }
    }
    Ok(read)
}

/// The records as a range, where they follow each other.
fn neighbours(records: &[u64]) -> Option<Range<u64>> {
    let (first, last) = (*records.first()?, *records.last()?);
    records.windows(2).all(|two| two[0] + 1 == two[1]).then_some(first..last + 1)
}

fn is_all_plain(reader: &Reader, records: Range<u64>) -> Result<bool, Error> {
    for record in records {
        if !reader.is_plain(record)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads neighbouring records with one call to where they stay.
fn read_in_place(reader: &Reader, records: Range<u64>) -> Result<Vec<BufferedSample>, DataError> {
    let pages = reader.pages_of(&records)?;
    let mut memory = take_memory(reader.path(), pages.end - pages.start, Memory::at_page)?;
    reader.read_pages(records.clone(), &mut memory)?;
    let mut heads = Heads::default();
    let mut places = Vec::with_capacity((records.end - records.start) as usize);
    for record in records {
        let (offset, bytes) = reader.place_of(record)?;
        let head = heads.add(reader, record)?;
        places.push(RecordPlace { start: (offset - pages.start) as usize, length: bytes.get() as usize, head });
    }
    Ok(BufferedSample::parts(memory, heads.bytes.into(), Arc::clone(reader.names()), places))
}

/// Heads that are not in their records.
#[derive(Default)]
struct Heads {
    bytes: Vec<u8>,
    last: (u32, u32),
}

impl Heads {
    /// Adds the head of a record, unless it is that of the one before, and says where it is.
    fn add(&mut self, reader: &Reader, record: u64) -> Result<(u32, u32), Error> {
        let Some(head) = reader.head_of(record)? else { return Ok((0, 0)) };
        let (start, length) = self.last;
        if self.bytes[start as usize..(start + length) as usize] != *head {
            self.last = (self.bytes.len() as u32, head.len() as u32);
            self.bytes.extend_from_slice(head);
        }
        Ok(self.last)
    }
}

/// Reads some records into one buffer.
fn read_together(reader: &Reader, records: &[u64]) -> Result<Vec<BufferedSample>, DataError> {
    let (mut room, mut heads) = (Room::default(), Heads::default());
    let mut places = Vec::with_capacity(records.len());
    for record in records {
        let length = reader.unpacked_bytes_of(*record)?.get();
        let (start, head) = (room.add(length) as usize, heads.add(reader, *record)?);
        places.push(RecordPlace { start, length: length as usize, head });
    }
    let mut memory = take_memory(reader.path(), room.bytes(), Memory::zeroed)?;
    let mut next = 0;
    each_run(reader, records, |run, record, scratch| {
        let RecordPlace { start, length, .. } = places[next];
        next += 1;
        Ok(run.unpack(record, scratch, &mut memory[start..start + length])?)
    })?;
    Ok(BufferedSample::parts(memory, heads.bytes.into(), Arc::clone(reader.names()), places))
}

/// Reads some records, each into a buffer of its own.
fn read_apart(reader: &Reader, records: &[u64]) -> Result<Vec<BufferedSample>, DataError> {
    let mut read = Vec::with_capacity(records.len());
    let mut rest = records;
    while let Some(first) = rest.first() {
        if stays_where_read(reader, *first)? {
            read.append(&mut read_in_place(reader, *first..first + 1)?);
            rest = &rest[1..];
            continue;
        }
        let mut count = 1;
        while count < rest.len() && !stays_where_read(reader, rest[count])? {
            count += 1;
        }
        let (copied, behind) = rest.split_at(count);
        each_run(reader, copied, |run, record, scratch| {
            let length = reader.unpacked_bytes_of(record)?.get();
            let mut memory = take_memory(reader.path(), length, Memory::zeroed)?;
            run.unpack(record, scratch, &mut memory)?;
            let mut heads = Heads::default();
            let place = RecordPlace { start: 0, length: length as usize, head: heads.add(reader, record)? };
            read.append(&mut BufferedSample::parts(memory, heads.bytes.into(), Arc::clone(reader.names()), [place]));
            Ok(())
        })?;
        rest = behind;
    }
    Ok(read)
}

/// Reads records, in rising order, neighbours with one call, and hands each to `take`.
fn each_run(
    reader: &Reader,
    records: &[u64],
    mut take: impl FnMut(&RecordRun<'_>, u64, &mut Scratch) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let mut scratch = Scratch::default();
    let mut rest = records;
    while let Some(first) = rest.first() {
        let fits = |count: usize| {
            let end = first + count as u64;
            let bytes = reader.bytes_of(*first..end).map_or(u64::MAX, Bytes::get);
            rest[count - 1] + 1 == end && bytes <= LARGEST_RUN
        };
        let count = (2..=rest.len()).take_while(|count| fits(*count)).last().unwrap_or(1);
        let records = *first..first + count as u64;
        let pages = reader.pages_of(&records)?;
        let mut stored = take_memory(reader.path(), pages.end - pages.start, Memory::at_page)?;
        let run = reader.read_pages(records.clone(), &mut stored)?;
        for record in records {
            take(&run, record, &mut scratch)?;
        }
        rest = &rest[count..];
    }
    Ok(())
}
