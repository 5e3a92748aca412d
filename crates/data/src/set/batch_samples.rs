//! Samples out of batch files, as a data set needs them.
//!
//! The samples are laid out as records of shards before a value is read, and each value is then read to its place: one
//! that is all of its storage straight from the file, others out of the storage, which is held for the moment.
//!
//! Batch files up to 4 MiB are read as a whole, for the headers of a few hundred tensors are as many calls of the
//! system; of larger ones, storages that lie near each other are read together, large ones straight to where they stay.

use std::path::Path;
use std::sync::Arc;

use lowtide_core::Bytes;
use lowtide_tensorfile::pages::{Memory, PageCache};
use lowtide_tensorfile::{Loader, Source, StorageReader, Tensor, TensorFile};

use super::open_batch::{OpenBatch, batch_fingerprint};
use super::options::{OpenOptions, SaveIndex, Selection};
use crate::DataError;
use crate::batch::{BatchFile, Leaf};
use crate::file_stamp::FileStamp;
use crate::index::{FileCost, FileFacts, SampleFacts};
use crate::samples::{BufferedSample, RecordPlace, Room, UnsupportedField, no_memory, take_memory};
use crate::shard::record::{Head, Places, write_heads};
use crate::shard::{FieldNames, hash_of_id};

/// Files up to this size are read as a whole.
pub(crate) const HELD_FILE: u64 = 4 << 20;
/// The same where only what they say about themselves is asked for.
const HELD_TO_LOOK_AT: u64 = 1 << 20;
/// Neighbouring storages of larger files are read together up to so many bytes.
const LARGEST_SPAN: u64 = 1 << 20;
/// Storages of this size and more are read by themselves.
const LARGE_STORAGE: u64 = 256 << 10;
/// What lies between storages is read with them up to so many bytes: about what another call of the system costs.
const LARGEST_GAP: u64 = 16 << 10;
/// A storage is read whole, and its checksum verified, where the views wanted of it are at least this part of it.
const GOOD_PART: u64 = 8;

/// Finds the samples of a file and what they take.
pub(crate) fn look_at(path: &Path, options: OpenOptions) -> Result<FileFacts, DataError> {
    let before = FileStamp::of(path, 0)?;
    let data = TensorFile::open(path, HELD_TO_LOOK_AT, options.decode_limit)?;
    let file = BatchFile::find(&data)?;
    let ids = file.ids();
    let (mut room, mut reading) = (Room::default(), Reading::default());
    let (mut names, mut pieces, mut samples) = (FieldNames::default(), Vec::new(), Vec::new());
    for index in 0..file.samples() {
        pieces.clear();
        let length = pieces_of(&file, index, &mut names, &mut pieces)?;
        pieces.iter().for_each(|piece| reading.see(&piece.leaf));
        room.add(length);
        let id = ids.as_ref().and_then(|ids| ids.get(index as usize));
        samples.push(SampleFacts { memory: Bytes(Room::alone(length)), id_hash: id.map_or(0, |id| hash_of_id(id)) });
    }
    let names = Room::names_cost(&names.list);
    for sample in &mut samples {
        sample.memory = sample.memory.saturating_add(Bytes(names));
    }
    let cost = FileCost {
        memory: Bytes(room.cost().saturating_add(names)),
        reading: Bytes(reading.cost(&file, data.len()).saturating_add(3 * names)),
    };
    let fingerprint = match options.save_index {
        SaveIndex::Never => 0,
        _ => batch_fingerprint(&data, &file)?,
    };
    data.after_reading(options.page_cache);
    let stamp = FileStamp::of(path, fingerprint)?;
    if stamp != before.with(fingerprint) {
        return Err(DataError::changed(path));
    }
    Ok(FileFacts { stamp, cost, samples })
}

/// Reads samples of a file that has as many as are known.
pub(crate) fn read(
    batch: &OpenBatch,
    known: &[SampleFacts],
    selection: Selection<'_>,
    pages: PageCache,
) -> Result<Vec<BufferedSample>, DataError> {
    let OpenBatch { data, file, .. } = batch;
    let path = data.path();
    if file.samples() != known.len() as u64 {
        return Err(DataError::changed(path));
    }
    let mut layout = BufferLayout::default();
    match selection {
        Selection::All => (0..file.samples()).try_for_each(|index| layout.add(file, index))?,
        Selection::Together(places) | Selection::Apart(places) => {
            places.iter().try_for_each(|index| layout.add(file, *index))?;
        }
    }
    let buffers = match selection {
        Selection::All | Selection::Together(_) => layout.in_one_buffer(),
        Selection::Apart(_) => layout.in_own_buffers(),
    };
    let mut buffers = buffers.ok_or_else(|| no_memory(path, layout.room.bytes()))?;
    fill(batch, layout.write(&mut buffers), &mut buffers)?;
    data.after_reading(pages);
    Ok(layout.packed(buffers))
}

/// A value of a sample, and where it goes.
struct Piece<'t> {
    name: u32,
    /// The number of its kind.
    kind: u8,
    leaf: Leaf<'t>,
    /// The one dimension of a text.
    text_length: [u64; 1],
    /// Where it begins in its record.
    start: u64,
}

impl Piece<'_> {
    fn shape(&self) -> &[u64] {
        match self.leaf {
            Leaf::Text(_) => &self.text_length,
            _ => self.leaf.shape(),
        }
    }
}

/// The values of a sample, each with its place in the record, and the length of that.
fn pieces_of<'t>(
    file: &'t BatchFile,
    index: u64,
    names: &mut FieldNames,
    pieces: &mut Vec<Piece<'t>>,
) -> Result<u64, DataError> {
    let before = pieces.len();
    file.each_field(index, &mut |name, leaf| {
        let kind = leaf.kind();
        let number = kind.number();
        let number = number.ok_or_else(|| UnsupportedField { field: name.into(), kind }.in_file(file.path()))?;
        let name = names.number_of(name, pieces.len() - before);
        file.check_names(names.bytes())?;
        pieces.push(Piece { name, kind: number, text_length: [leaf.bytes()], leaf, start: 0 });
        Ok::<_, DataError>(())
    })?;
    let pieces = &mut pieces[before..];
    let mut places = Places::new(pieces.iter().map(|piece| piece.shape().len()));
    for piece in pieces {
        piece.start = places.add(piece.leaf.bytes());
    }
    Ok(places.end())
}

/// Where samples that are to be read will lie, in one buffer or each in its own.
#[derive(Default)]
struct BufferLayout<'t> {
    names: FieldNames,
    pieces: Vec<Piece<'t>>,
    samples: Vec<SamplePlace>,
    room: Room,
}

/// A sample that is to be read.
struct SamplePlace {
    /// Where its pieces end; they begin where those of the sample before end.
    end: usize,
    length: usize,
    buffer: usize,
    /// Where it begins in its buffer.
    start: usize,
}

impl<'t> BufferLayout<'t> {
    fn add(&mut self, file: &'t BatchFile, index: u64) -> Result<(), DataError> {
        let length = pieces_of(file, index, &mut self.names, &mut self.pieces)?;
        let start = self.room.add(length) as usize;
        self.samples.push(SamplePlace { end: self.pieces.len(), length: length as usize, buffer: 0, start });
        Ok(())
    }

    fn in_one_buffer(&self) -> Option<Vec<Memory>> {
        Some(vec![Memory::zeroed(usize::try_from(self.room.bytes()).ok()?)?])
    }

    fn in_own_buffers(&mut self) -> Option<Vec<Memory>> {
        let buffers = self.samples.iter_mut().enumerate().map(|(number, sample)| {
            (sample.buffer, sample.start) = (number, 0);
            Memory::zeroed(sample.length)
        });
        buffers.collect()
    }

    /// Writes the heads of all records and the values that came with the pickle, and gives those that are still in the
    /// file.
    fn write<'p>(&'p self, buffers: &mut [Memory]) -> Vec<Transfer<'p>> {
        let mut transfers = Vec::with_capacity(self.pieces.len());
        let mut first = 0;
        for sample in &self.samples {
            let pieces = &self.pieces[first..sample.end];
            first = sample.end;
            let record = &mut buffers[sample.buffer][sample.start..sample.start + sample.length];
            let head = |piece: &'p Piece<'t>| Head {
                name: piece.name,
                kind: piece.kind,
                shape: piece.shape(),
                start: piece.start,
            };
            write_heads(record, pieces.iter().map(head));
            for piece in pieces {
                let start = piece.start as usize;
                let into = &mut record[start..start + piece.leaf.bytes() as usize];
                match &piece.leaf {
                    Leaf::Text(text) => into.copy_from_slice(text.as_bytes()),
                    Leaf::Array { bytes, .. } => into.copy_from_slice(bytes),
                    Leaf::View(view) => {
                        transfers.push(Transfer { view, buffer: sample.buffer, start: sample.start + start });
                    }
                }
            }
        }
        transfers
    }

    fn packed(self, buffers: Vec<Memory>) -> Vec<BufferedSample> {
        let names: Arc<[String]> = self.names.list.into();
        let mut samples = self.samples.into_iter().peekable();
        let mut packed = Vec::with_capacity(samples.len());
        for (number, memory) in buffers.into_iter().enumerate() {
            let places = std::iter::from_fn(|| samples.next_if(|sample| sample.buffer == number))
                .map(|sample| RecordPlace::whole(sample.start, sample.length));
            packed.append(&mut BufferedSample::parts(memory, Box::default(), Arc::clone(&names), places));
        }
        packed
    }
}

/// Values that are still in the file, and where they go.
struct Transfer<'p> {
    view: &'p Tensor,
    buffer: usize,
    start: usize,
}

impl Transfer<'_> {
    fn slot<'b>(&self, buffers: &'b mut [Memory]) -> &'b mut [u8] {
        &mut buffers[self.buffer][self.start..self.start + self.view.bytes() as usize]
    }
}

/// Reads what is still in the file, storage by storage in the order of the file.
fn fill(batch: &OpenBatch, mut transfers: Vec<Transfer<'_>>, buffers: &mut [Memory]) -> Result<(), DataError> {
    let data = &*batch.data;
    let storage_of =
        |transfer: &Transfer<'_>| (transfer.view.storage().position(), Arc::as_ptr(transfer.view.storage()));
    transfers.sort_by_key(storage_of);
    let groups: Vec<&[Transfer<'_>]> = transfers.chunk_by(|one, other| storage_of(one) == storage_of(other)).collect();
    let (mut window, mut reader) = (Window::default(), StorageReader::default());
    for (number, group) in groups.iter().enumerate() {
        let storage = &**group[0].view.storage();
        let asked = group.iter().fold(0_u64, |sum, one| sum.saturating_add(one.view.bytes()));
        let is_good_part = asked.saturating_mul(GOOD_PART) >= storage.bytes();
        let mut copy = |bytes: &[u8]| {
            storage.verify(bytes)?;
            group.iter().try_for_each(|one| one.view.copy_into(bytes, one.slot(buffers)))
        };
        match storage.source() {
            Source::Memory(bytes) => copy(bytes)?,
            Source::File { offset } if let Some(held) = data.held(*offset, storage.bytes()) => copy(held)?,
            Source::File { .. } if is_good_part && storage.bytes() < LARGE_STORAGE => {
                copy(window.read(data, &groups[number..])?)?;
            }
            Source::File { .. }
                if let [one] = group
                    && one.view.is_contiguous()
                    && asked == storage.bytes() =>
            {
                let slot = one.slot(buffers);
                storage.read_at(0, slot)?;
                one.view.to_this_machine(slot);
            }
            Source::File { .. } if !is_good_part => {
                batch.verify(storage)?;
                let mut loader = Loader::new(Bytes::ZERO);
                group.iter().try_for_each(|one| loader.read_into(one.view, one.slot(buffers)))?;
            }
            // Without any length that could be believed; reading gives the error.
            Source::Nowhere => storage.read_at(0, &mut [])?,
            Source::File { .. } | Source::Deflated { .. } | Source::Gzip { .. } => {
                let mut bytes = take_memory(storage.file(), storage.bytes(), Memory::zeroed)?;
                reader.read_into(storage, &mut bytes)?;
                group.iter().try_for_each(|one| one.view.copy_into(&bytes, one.slot(buffers)))?;
            }
        }
    }
    Ok(())
}

/// Bytes of a file that were read together.
#[derive(Default)]
struct Window {
    start: u64,
    length: u64,
    bytes: Option<Memory>,
}

impl Window {
    /// All bytes of the first of these storages, read with those behind it that lie near.
    fn read(&mut self, data: &TensorFile, groups: &[&[Transfer<'_>]]) -> Result<&[u8], DataError> {
        let storage = &**groups[0][0].view.storage();
        let (start, end) = (storage.position(), storage.position().saturating_add(storage.bytes()));
        if start < self.start || end > self.start + self.length {
            let together = groups[1..].iter().map(|group| &**group[0].view.storage()).try_fold(end, |end, next| {
                let offset = next.position();
                let next_end = offset.saturating_add(next.bytes());
                let is_near =
                    offset.saturating_sub(end) <= LARGEST_GAP && next_end.saturating_sub(start) <= LARGEST_SPAN;
                let fits = matches!(next.source(), Source::File { .. }) && next.bytes() < LARGE_STORAGE && is_near;
                if fits { Ok(end.max(next_end)) } else { Err(end) }
            });
            let (Ok(span_end) | Err(span_end)) = together;
            let bytes = match &mut self.bytes {
                Some(bytes) => bytes,
                none => none.insert(take_memory(data.path(), LARGEST_SPAN, Memory::zeroed)?),
            };
            (self.start, self.length) = (start, 0);
            data.read_at(&mut bytes[..(span_end - start) as usize], start, storage.place())?;
            self.length = span_end - start;
        }
        let from = (start - self.start) as usize;
        let bytes = self.bytes.as_deref().unwrap_or_default();
        Ok(&bytes[from..from + storage.bytes() as usize])
    }
}

/// Adds up what reading takes for the moment.
#[derive(Default)]
struct Reading {
    pieces: u64,
    largest_storage: u64,
}

impl Reading {
    fn see(&mut self, leaf: &Leaf<'_>) {
        self.pieces += 1;
        let Leaf::View(view) = leaf else { return };
        let storage = view.storage();
        let is_read_in_place = match storage.source() {
            Source::File { .. } => view.is_contiguous() && view.bytes() == storage.bytes(),
            Source::Memory(_) | Source::Nowhere => true,
            Source::Deflated { .. } | Source::Gzip { .. } => false,
        };
        if !is_read_in_place {
            self.largest_storage = self.largest_storage.max(storage.bytes());
        }
    }

    fn cost(&self, file: &BatchFile, file_length: u64) -> u64 {
        let held = if file_length <= HELD_FILE { file_length } else { LARGEST_SPAN };
        let lists = self.pieces.saturating_mul((2 * size_of::<Piece<'_>>() + 3 * size_of::<Transfer<'_>>()) as u64);
        [Memory::cost(held), Memory::cost(self.largest_storage), lists, file.tree_bytes()]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}
