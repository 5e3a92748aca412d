//! Reading: no number in the file is believed, and memory is taken as its bytes arrive.

use std::io::BufRead;
use std::sync::Arc;

use crc32fast::Hasher;

use super::{RECORDING_MAGIC, STREAM_BEHIND, action_of};
use crate::snapshot::{SettingsOfSnapshot, Source};
use crate::{DeviceHistory, Entry, Frame, Segment, SegmentBlock, SimError, Snapshot};

impl Snapshot {
    /// Reads a recording of Lowtide.
    ///
    /// # Errors
    ///
    /// It is none, or it is damaged.
    pub fn read_recording(input: impl BufRead) -> Result<Self, SimError> {
        let mut reader = Reader { input, sum: Hasher::new(), at: 0, room: MOST_MEMORY };
        reader.magic()?;
        let settings = reader.settings()?;
        let stacks = reader.stacks()?;
        let devices = reader.many(|reader| reader.device(stacks.len()))?;
        reader.end()?;
        Ok(Self { devices, stacks, settings })
    }
}

/// What a file may take: an event of three bytes becomes one of 48.
const MOST_MEMORY: u64 = 4 << 30;

struct Reader<R> {
    input: R,
    sum: Hasher,
    at: u64,
    /// Memory that may still be taken.
    room: u64,
}

impl<R: BufRead> Reader<R> {
    fn wrong(&self, reason: &str) -> SimError {
        SimError::NotARecording { at: self.at, reason: reason.to_owned() }
    }

    fn magic(&mut self) -> Result<(), SimError> {
        let magic: [u8; 8] = self.bytes()?;
        let (name, version) = (&magic[..7], magic[7]);
        if name != &RECORDING_MAGIC[..7] {
            return Err(SimError::NotARecording { at: 0, reason: "it does not begin like one".to_owned() });
        }
        if version != RECORDING_MAGIC[7] {
            return Err(SimError::RecordingVersion { version });
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), SimError> {
        let sum = self.sum.clone().finalize();
        let written = u32::from_le_bytes(self.bytes()?);
        if sum != written {
            return Err(self.wrong("its checksum is another: the file is damaged"));
        }
        match self.input.fill_buf() {
            Ok([]) => Ok(()),
            _ => Err(self.wrong("something follows its end")),
        }
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], SimError> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes).map_err(|error| self.wrong(&error.to_string()))?;
        self.sum.update(&bytes);
        self.at += N as u64;
        Ok(bytes)
    }

    #[inline]
    fn number(&mut self) -> Result<u64, SimError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.bytes()?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                break;
            }
            number |= part << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.wrong("a number is too large"))
    }

    fn index(&mut self, count: usize) -> Result<usize, SimError> {
        let index = usize::try_from(self.number()?).ok().filter(|index| *index < count);
        index.ok_or_else(|| self.wrong("it names something that is not there"))
    }

    fn small(&mut self) -> Result<u32, SimError> {
        let number = self.number()?;
        u32::try_from(number).map_err(|_| self.wrong("a number is too large"))
    }

    fn flags<const N: usize>(&mut self) -> Result<[bool; N], SimError> {
        let bits = self.number()?;
        if bits >> N != 0 {
            return Err(self.wrong("it has a flag that is not known"));
        }
        Ok(std::array::from_fn(|index| bits >> index & 1 == 1))
    }

    #[inline]
    fn behind(&mut self, from: u64) -> Result<u64, SimError> {
        let number = self.number()?;
        let difference = (number >> 1).cast_signed() ^ -((number & 1).cast_signed());
        Ok(from.wrapping_add(difference.cast_unsigned()))
    }

    fn option(&mut self) -> Result<Option<u64>, SimError> {
        let [is_there] = self.flags()?;
        is_there.then(|| self.number()).transpose()
    }

    fn text(&mut self) -> Result<String, SimError> {
        let bytes = self.many(|reader| reader.bytes().map(|[byte]| byte))?;
        String::from_utf8(bytes).map_err(|_| self.wrong("a text is not UTF-8"))
    }

    /// As many as the file says, none of which takes less than a byte of it.
    fn many<T>(&mut self, mut one: impl FnMut(&mut Self) -> Result<T, SimError>) -> Result<Vec<T>, SimError> {
        let count = self.number()?;
        let mut all = Vec::new();
        for _ in 0..count {
            let room = self.room.checked_sub(size_of::<T>() as u64);
            self.room = room.ok_or_else(|| self.wrong("it is too large"))?;
            all.push(one(self)?);
        }
        Ok(all)
    }

    fn settings(&mut self) -> Result<Option<SettingsOfSnapshot>, SimError> {
        let [is_there] = self.flags()?;
        if !is_there {
            return Ok(None);
        }
        let conf = self.text()?;
        let max_split_size = self.option()?;
        let garbage_collection_threshold = f64::from_le_bytes(self.bytes()?);
        let [expandable_segments] = self.flags()?;
        let divisions = self.many(|reader| Ok((reader.number()?, reader.number()?)))?.into_iter().collect();
        Ok(Some(SettingsOfSnapshot {
            conf,
            max_split_size,
            garbage_collection_threshold,
            expandable_segments,
            divisions,
        }))
    }

    fn stacks(&mut self) -> Result<Vec<Vec<Frame>>, SimError> {
        let texts: Vec<Arc<str>> = self.many(|reader| reader.text().map(Arc::from))?;
        let frames = self.many(|reader| {
            let file = Arc::clone(&texts[reader.index(texts.len())?]);
            let line = reader.number()?;
            let function = Arc::clone(&texts[reader.index(texts.len())?]);
            Ok(Frame { file, line, function })
        })?;
        self.many(|reader| reader.many(|reader| Ok(frames[reader.index(frames.len())?].clone())))
    }

    fn device(&mut self, stacks: usize) -> Result<DeviceHistory, SimError> {
        let source = match self.number()? {
            0 => Source::CachingAllocator,
            1 => Source::Host,
            _ => return Err(self.wrong("it is of an allocator that is not known")),
        };
        let device = self.small()?;
        let limit = self.option()?;
        let private_entries = self.small()? as usize;
        let [has_times, has_stacks] = self.flags()?;
        let streams = self.many(Self::number)?;
        let mut history = DeviceHistory { source, device, limit, private_entries, ..DeviceHistory::default() };
        let (mut address, mut time) = (0, 0);
        let entries = self.many(|reader| {
            let [first] = reader.bytes()?;
            let action = action_of(first & 15).ok_or_else(|| reader.wrong("it has an event that is not known"))?;
            let stream = match first >> 4 {
                STREAM_BEHIND => reader.index(streams.len())?,
                beside => usize::from(beside),
            };
            let stream = streams.get(stream).copied();
            let stream = stream.ok_or_else(|| reader.wrong("it names a stream that is not there"))?;
            address = reader.behind(address)?;
            let size = reader.number()?;
            if has_times {
                time = reader.behind(time)?;
                history.times.push(time);
            }
            if has_stacks {
                let stack = reader.index(stacks.saturating_add(1))?;
                history.stacks.push(stack.checked_sub(1).map(|stack| stack as u32));
            }
            Ok(Entry { action, address, size, stream })
        })?;
        history.entries = Arc::new(entries);
        history.segments = self.many(Self::segment)?;
        Ok(history)
    }

    fn segment(&mut self) -> Result<Segment, SimError> {
        let (address, size, stream) = (self.number()?, self.number()?, self.number()?);
        let [is_small, is_expandable, is_private] = self.flags()?;
        let blocks = self.many(|reader| {
            let (address, size, requested) = (reader.behind(address)?, reader.number()?, reader.number()?);
            let [is_allocated, is_active] = reader.flags()?;
            Ok(SegmentBlock { address, size, requested, is_allocated, is_active })
        })?;
        Ok(Segment { address, size, stream, is_small, is_expandable, is_private, blocks })
    }
}
