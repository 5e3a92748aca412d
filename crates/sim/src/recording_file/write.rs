//! Writing.

use std::collections::HashMap;
use std::io::{self, Write};

use crc32fast::Hasher;

use super::{RECORDING_MAGIC, STREAM_BEHIND, number_of};
use crate::snapshot::{SettingsOfSnapshot, Source};
use crate::{DeviceHistory, Frame, Segment, Snapshot};

impl Snapshot {
    /// Writes it as a recording of Lowtide.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn write_recording(&self, output: impl Write) -> io::Result<()> {
        let mut writer = Writer { output, sum: Hasher::new() };
        writer.bytes(&RECORDING_MAGIC)?;
        writer.settings(self.settings.as_ref())?;
        writer.stacks(&self.stacks)?;
        writer.number(self.devices.len() as u64)?;
        self.devices.iter().try_for_each(|device| writer.device(device))?;
        let sum = writer.sum.clone().finalize();
        writer.bytes(&sum.to_le_bytes())?;
        writer.output.flush()
    }
}

struct Writer<W> {
    output: W,
    sum: Hasher,
}

impl<W: Write> Writer<W> {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.output.write_all(bytes)
    }

    fn number(&mut self, number: u64) -> io::Result<()> {
        let mut bytes = [0; 10];
        let mut length = 0;
        let mut rest = number;
        loop {
            let is_last = rest < 0x80;
            bytes[length] = (rest & 0x7f) as u8 | if is_last { 0 } else { 0x80 };
            length += 1;
            rest >>= 7;
            if is_last {
                return self.bytes(&bytes[..length]);
            }
        }
    }

    /// The way from one number to another, small where it is short in either direction.
    fn difference(&mut self, from: u64, to: u64) -> io::Result<()> {
        let difference = to.wrapping_sub(from).cast_signed();
        self.number((difference << 1 ^ difference >> 63).cast_unsigned())
    }

    /// 0 for none.
    fn option(&mut self, number: Option<u64>) -> io::Result<()> {
        match number {
            None => self.number(0),
            Some(number) => {
                self.number(1)?;
                self.number(number)
            }
        }
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.number(text.len() as u64)?;
        self.bytes(text.as_bytes())
    }

    fn settings(&mut self, settings: Option<&SettingsOfSnapshot>) -> io::Result<()> {
        self.number(u64::from(settings.is_some()))?;
        let Some(settings) = settings else { return Ok(()) };
        self.text(&settings.conf)?;
        self.option(settings.max_split_size)?;
        self.bytes(&settings.garbage_collection_threshold.to_le_bytes())?;
        self.number(u64::from(settings.expandable_segments))?;
        let mut divisions: Vec<_> = settings.divisions.iter().collect();
        divisions.sort_unstable();
        self.number(divisions.len() as u64)?;
        divisions.into_iter().try_for_each(|(from, divisions)| {
            self.number(*from)?;
            self.number(*divisions)
        })
    }

    fn stacks(&mut self, stacks: &[Vec<Frame>]) -> io::Result<()> {
        let mut texts = Numbers::default();
        let mut frames = Numbers::default();
        for frame in stacks.iter().flatten() {
            texts.of(&*frame.file);
            texts.of(&*frame.function);
            frames.of(frame);
        }
        self.number(texts.all.len() as u64)?;
        texts.all.iter().try_for_each(|text| self.text(text))?;
        self.number(frames.all.len() as u64)?;
        for frame in &frames.all {
            self.number(texts.of(&*frame.file))?;
            self.number(frame.line)?;
            self.number(texts.of(&*frame.function))?;
        }
        self.number(stacks.len() as u64)?;
        for stack in stacks {
            self.number(stack.len() as u64)?;
            stack.iter().try_for_each(|frame| self.number(frames.of(frame)))?;
        }
        Ok(())
    }

    fn device(&mut self, history: &DeviceHistory) -> io::Result<()> {
        self.number(match history.source {
            Source::CachingAllocator => 0,
            Source::Host => 1,
        })?;
        self.number(u64::from(history.device))?;
        self.option(history.limit)?;
        self.number(history.private_entries as u64)?;
        let (has_times, has_stacks) = (!history.times.is_empty(), !history.stacks.is_empty());
        self.number(u64::from(has_times) | u64::from(has_stacks) << 1)?;
        let mut streams = Numbers::default();
        history.entries.iter().for_each(|entry| _ = streams.of(entry.stream));
        self.number(streams.all.len() as u64)?;
        streams.all.iter().try_for_each(|stream| self.number(*stream))?;
        self.number(history.entries.len() as u64)?;
        let (mut address, mut time) = (0, 0);
        for (index, entry) in history.entries.iter().enumerate() {
            let stream = streams.of(entry.stream);
            let beside = u8::try_from(stream).unwrap_or(STREAM_BEHIND).min(STREAM_BEHIND);
            self.bytes(&[number_of(entry.action) | beside << 4])?;
            if beside == STREAM_BEHIND {
                self.number(stream)?;
            }
            self.difference(address, entry.address)?;
            self.number(entry.size)?;
            address = entry.address;
            if has_times {
                self.difference(time, history.times[index])?;
                time = history.times[index];
            }
            if has_stacks {
                self.number(history.stacks[index].map_or(0, |stack| u64::from(stack) + 1))?;
            }
        }
        self.number(history.segments.len() as u64)?;
        history.segments.iter().try_for_each(|segment| self.segment(segment))
    }

    fn segment(&mut self, segment: &Segment) -> io::Result<()> {
        self.number(segment.address)?;
        self.number(segment.size)?;
        self.number(segment.stream)?;
        let flags = [segment.is_small, segment.is_expandable, segment.is_private];
        self.number(flags_of(&flags))?;
        self.number(segment.blocks.len() as u64)?;
        for block in &segment.blocks {
            self.difference(segment.address, block.address)?;
            self.number(block.size)?;
            self.number(block.requested)?;
            self.number(flags_of(&[block.is_allocated, block.is_active]))?;
        }
        Ok(())
    }
}

fn flags_of(flags: &[bool]) -> u64 {
    flags.iter().rev().fold(0, |bits, flag| bits << 1 | u64::from(*flag))
}

/// Gives each value a number, in the order in which they are met.
struct Numbers<T> {
    all: Vec<T>,
    known: HashMap<T, u64>,
}

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self { all: Vec::new(), known: HashMap::new() }
    }
}

impl<T: Copy + Eq + std::hash::Hash> Numbers<T> {
    fn of(&mut self, value: T) -> u64 {
        let next = self.all.len() as u64;
        let number = *self.known.entry(value).or_insert(next);
        if number == next {
            self.all.push(value);
        }
        number
    }
}
