//! Reading packed storages forwards.
//!
//! Compressed files are inflated forwards: sums and views are taken in the order of the storage, whatever that of the
//! dimensions, and a stream that stands before what is wanted is read on. Only what goes back begins anew, as single
//! samples out of one compressed array do under a full shuffle: pack such files.

use std::fmt;
use std::io::{self, BufReader, Read};
use std::sync::Arc;

use flate2::read::{DeflateDecoder, MultiGzDecoder};

use super::{Source, Storage};
use crate::error::TensorFileError;
use crate::file::TensorFile;

/// Keeps the stream that was read last, so that what lies behind needs no second inflating of all that is before it.
#[derive(Debug, Default)]
pub(crate) struct Inflater {
    open: Option<OpenStream>,
}

struct OpenStream {
    file: Arc<TensorFile>,
    start: Start,
    stream: Box<dyn Read + Send + Sync>,
    /// How many bytes came out of it.
    position: u64,
}

/// Where packed bytes begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// At an entry of an archive.
    Entry { offset: u64, packed: u64 },
    /// With the file.
    File,
}

impl Inflater {
    /// Fills `buffer` with the bytes from `offset` on of a packed storage; cheapest in rising order.
    pub(super) fn read_at(&mut self, storage: &Storage, offset: u64, buffer: &mut [u8]) -> Result<(), TensorFileError> {
        let (start, before) = match storage.source {
            Source::Deflated { offset, packed, before } => (Start::Entry { offset, packed }, before),
            Source::Gzip { before } => (Start::File, before),
            _ => return storage.read_at(offset, buffer),
        };
        let wanted = before.saturating_add(offset);
        let is_ahead = |open: &OpenStream| {
            Arc::ptr_eq(&open.file, &storage.file) && open.start == start && open.position <= wanted
        };
        let mut open = match self.open.take().filter(is_ahead) {
            Some(open) => open,
            None => OpenStream::new(&storage.file, start),
        };
        open.read_at(wanted, buffer).map_err(|source| storage.failed(source))?;
        self.open = Some(open);
        Ok(())
    }
}

impl OpenStream {
    fn new(file: &Arc<TensorFile>, start: Start) -> Self {
        let stream: Box<dyn Read + Send + Sync> = match start {
            Start::Entry { offset, packed } => {
                Box::new(DeflateDecoder::new(BufReader::new(file.range(offset, packed))))
            }
            Start::File => Box::new(MultiGzDecoder::new(BufReader::new(file.range(0, file.len())))),
        };
        Self { file: Arc::clone(file), start, stream, position: 0 }
    }

    fn read_at(&mut self, wanted: u64, buffer: &mut [u8]) -> io::Result<()> {
        let skip = wanted - self.position;
        let skipped = io::copy(&mut (&mut self.stream).take(skip), &mut io::sink())?;
        self.position += skipped;
        if skipped < skip {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.stream.read_exact(buffer)?;
        self.position += buffer.len() as u64;
        Ok(())
    }
}

impl fmt::Debug for OpenStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OpenStream").field("start", &self.start).field("position", &self.position).finish()
    }
}
