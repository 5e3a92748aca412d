//! The records of a shard one after the other, of which some neighbours are read at once.

use std::ops::Range;

use super::{Error, Reader, Record, Scratch};

/// Neighbouring records are read together up to so many bytes: a small one alone would cost as much as all of them.
const LARGEST_RUN: u64 = 1 << 20;

/// Some neighbouring records of a shard, to be asked for in their order.
pub(crate) struct ShardWalk {
    reader: Reader,
    records: Range<u64>,
    /// Those that are in the buffer.
    run: Range<u64>,
    buffer: Vec<u8>,
    scratch: Scratch,
}

impl ShardWalk {
    pub(crate) fn new(reader: Reader, records: Range<u64>) -> Self {
        Self { reader, records, run: 0..0, buffer: Vec::new(), scratch: Scratch::default() }
    }

    pub(crate) fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The next record with its number, or `None` behind the last.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Record<'_>)>, Error> {
        let Some(record) = self.records.next() else { return Ok(None) };
        if !self.run.contains(&record) {
            self.read_from(record)?;
        }
        let run = self.reader.view(self.run.clone(), &self.buffer)?;
        let tensors = run.record(record, &mut self.scratch)?;
        Ok(Some((record, tensors)))
    }

    fn read_from(&mut self, record: u64) -> Result<(), Error> {
        let mut end = record + 1;
        while end < self.records.end && self.reader.bytes_of(record..end + 1)?.get() <= LARGEST_RUN {
            end += 1;
        }
        // Nothing is held for the moment in which reading fails.
        self.run = 0..0;
        self.buffer.resize(self.reader.bytes_of(record..end)?.get() as usize, 0);
        self.reader.read(record..end, &mut self.buffer)?;
        self.run = record..end;
        Ok(())
    }
}
