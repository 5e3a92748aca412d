//! Samples out of shards, as a data set needs them.

use std::path::Path;
use std::sync::Arc;

use lowtide_core::Bytes;

use crate::DataError;
use crate::changed::changed;
use crate::data_set::Which;
use crate::index::{FileCost, FileStamp, Looked, SampleFacts};
use crate::memory::Memory;
use crate::packed::{Packed, Room, no_memory};
use crate::page_cache::PageCache;
use crate::shard::{Error, Reader, Scratch};

/// Neighbouring records are read together up to so many bytes.
const LARGEST_RUN: u64 = 1 << 20;
/// Where fewer than one record in so many is wanted, the index is not read as a whole.
const FEW: u64 = 16;
/// Memory of an open shard for each record: in the file's index, and as it is kept.
const OPEN_RECORD: u64 = 2 * 48;
/// Memory of unpacking: zstd's own, and one record.
const UNPACKING: u64 = 256 << 10;

/// Reads what a shard says about its records.
pub(crate) fn look_at(path: &Path, pages: PageCache) -> Result<Looked, DataError> {
    let reader = Reader::open_with(path, pages)?;
    let stamp = FileStamp::of(path, reader.fingerprint())?;
    let mut room = Room::default();
    let names = Room::names_cost(reader.names());
    let (mut samples, mut largest) = (Vec::new(), 0);
    for record in 0..reader.len() {
        let length = reader.unpacked_bytes_of(record)?.get();
        room.add(length);
        largest = largest.max(reader.place_of(record)?.1.get());
        let memory = Bytes(Room::alone(length).saturating_add(names));
        samples.push(SampleFacts { memory, id_hash: reader.id_hash_of(record)?.unwrap_or(0) });
    }
    // Where all are plain they are read where they stay, with what lies between them.
    let run = Memory::cost(reader.bytes_of(0..reader.len())?.get().min(LARGEST_RUN).max(largest));
    let open = reader.len().saturating_mul(OPEN_RECORD).saturating_add(2 * names);
    let reading = run.saturating_add(open).saturating_add(UNPACKING);
    let memory = room.cost().saturating_add(names);
    Ok(Looked { stamp, cost: FileCost { memory: Bytes(memory), reading: Bytes(reading) }, samples })
}

/// Reads records of a shard, if it is still the one with this fingerprint; it is known to have so many.
pub(crate) fn read(
    path: &Path,
    (fingerprint, known): (u32, u64),
    which: Which<'_>,
    pages: PageCache,
) -> Result<Vec<Packed>, DataError> {
    let reader = match which {
        Which::Together(places) | Which::Apart(places) if places.len() as u64 * FEW <= known => {
            Reader::open_some(path, places, pages)?
        }
        _ => Reader::open_with(path, pages)?,
    };
    if reader.fingerprint() != fingerprint {
        return Err(changed(path));
    }
    let read = match which {
        Which::All if is_all_plain(&reader)? => read_in_place(&reader)?,
        Which::All => read_together(&reader, &(0..reader.len()).collect::<Vec<_>>())?,
        Which::Together(places) => read_together(&reader, places)?,
        Which::Apart(places) => read_apart(&reader, places)?,
    };
    for (place, packed) in read.iter().enumerate() {
        if let Err(reason) = packed.check() {
            let record = match which {
                Which::All => place as u64,
                Which::Together(places) | Which::Apart(places) => places[place],
            };
            let (offset, _) = reader.place_of(record)?;
            return Err(Error::Malformed { file: path.to_owned(), offset, reason }.into());
        }
    }
    Ok(read)
}

fn is_all_plain(reader: &Reader) -> Result<bool, Error> {
    for record in 0..reader.len() {
        if !reader.is_plain(record)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads all records with one call to where they stay.
fn read_in_place(reader: &Reader) -> Result<Vec<Packed>, DataError> {
    let mut memory = memory_for(reader, reader.bytes_of(0..reader.len())?.get())?;
    reader.read(0..reader.len(), &mut memory)?;
    let first = if reader.is_empty() { 0 } else { reader.place_of(0)?.0 };
    let mut places = Vec::with_capacity(reader.len() as usize);
    for record in 0..reader.len() {
        let (offset, bytes) = reader.place_of(record)?;
        places.push(((offset - first) as usize, bytes.get() as usize));
    }
    Ok(Packed::parts(memory, names_of(reader), places))
}

/// Reads some records into one buffer.
fn read_together(reader: &Reader, records: &[u64]) -> Result<Vec<Packed>, DataError> {
    let mut room = Room::default();
    let mut places = Vec::with_capacity(records.len());
    for record in records {
        let length = reader.unpacked_bytes_of(*record)?.get();
        places.push((room.add(length) as usize, length as usize));
    }
    let mut memory = memory_for(reader, room.bytes())?;
    let mut next = 0;
    each_run(reader, records, |loaded, record, scratch| {
        let (start, length) = places[next];
        next += 1;
        Ok(loaded.unpack(record, scratch, &mut memory[start..start + length])?)
    })?;
    Ok(Packed::parts(memory, names_of(reader), places))
}

/// Reads some records, each into a buffer of its own.
fn read_apart(reader: &Reader, records: &[u64]) -> Result<Vec<Packed>, DataError> {
    let names = names_of(reader);
    let mut read = Vec::with_capacity(records.len());
    each_run(reader, records, |loaded, record, scratch| {
        let length = reader.unpacked_bytes_of(record)?.get();
        let mut memory = memory_for(reader, length)?;
        loaded.unpack(record, scratch, &mut memory)?;
        read.extend(Packed::parts(memory, Arc::clone(&names), [(0, length as usize)]));
        Ok(())
    })?;
    Ok(read)
}

/// Reads records, in rising order, neighbours with one call, and hands each to `take`.
fn each_run(
    reader: &Reader,
    records: &[u64],
    mut take: impl FnMut(&crate::shard::Loaded<'_>, u64, &mut Scratch) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let mut scratch = Scratch::new();
    let mut rest = records;
    while let Some(first) = rest.first() {
        let fits = |count: usize| {
            let end = first + count as u64;
            let bytes = reader.bytes_of(*first..end).map_or(u64::MAX, Bytes::get);
            rest[count - 1] + 1 == end && bytes <= LARGEST_RUN
        };
        let count = (2..=rest.len()).take_while(|count| fits(*count)).last().unwrap_or(1);
        let run = *first..first + count as u64;
        let mut stored = memory_for(reader, reader.bytes_of(run.clone())?.get())?;
        let loaded = reader.read(run.clone(), &mut stored)?;
        for record in run {
            take(&loaded, record, &mut scratch)?;
        }
        rest = &rest[count..];
    }
    Ok(())
}

fn memory_for(reader: &Reader, bytes: u64) -> Result<Memory, DataError> {
    let length = usize::try_from(bytes).ok();
    length.and_then(Memory::zeroed).ok_or_else(|| no_memory(reader.path(), bytes))
}

fn names_of(reader: &Reader) -> Arc<[String]> {
    reader.names().into()
}
