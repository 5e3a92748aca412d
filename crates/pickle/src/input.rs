//! The bytes of a pickle and how far reading has come.

use std::io::{BufRead, ErrorKind, Read, Seek, SeekFrom};

use memchr::memchr;

use crate::{LimitKind, PickleError};

/// How the bytes of a long byte string are passed over.
pub(crate) type Skip<R> = fn(&mut R, u64) -> std::io::Result<u64>;

/// Counts what is read, and turns the end of the bytes into an error that names the opcode at work.
pub(crate) struct Input<R> {
    reader: R,
    skip: Skip<R>,
    offset: u64,
    /// Where the opcode at work stands, and the opcode, if it was there.
    at_work: (u64, Option<u8>),
}

impl<R: BufRead> Input<R> {
    pub(crate) fn new(reader: R, skip: Skip<R>) -> Self {
        Self { reader, skip, offset: 0, at_work: (0, None) }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Where the opcode at work stands, and its name.
    pub(crate) fn opcode(&self) -> (u64, &'static str) {
        let name = self.at_work.1.and_then(crate::opcode::name);
        (self.at_work.0, name.unwrap_or("the program"))
    }

    /// The next opcode, which errors are about until the one after.
    #[inline]
    pub(crate) fn next_opcode(&mut self) -> Result<u8, PickleError> {
        self.at_work = (self.offset, None);
        let [byte] = self.array()?;
        self.at_work.1 = Some(byte);
        Ok(byte)
    }

    /// The next `N` bytes.
    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        if let Ok(ready) = self.reader.fill_buf()
            && let Some(bytes) = ready.first_chunk::<N>()
        {
            let bytes = *bytes;
            self.consume(N);
            return Ok(bytes);
        }
        self.array_across_buffers()
    }

    #[cold]
    fn array_across_buffers<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let mut bytes = [0; N];
        for byte in &mut bytes {
            *byte = self.ready()?[0];
            self.consume(1);
        }
        Ok(bytes)
    }

    /// Hands the next `length` bytes to `take`, in one piece.
    ///
    /// Where they are not all there yet, memory is taken as they arrive, so that a length in a short pickle costs
    /// nothing.
    #[inline]
    pub(crate) fn bytes<T>(
        &mut self,
        length: u64,
        take: impl FnOnce(&[u8]) -> Result<T, PickleError>,
    ) -> Result<T, PickleError> {
        let wanted = usize::try_from(length).unwrap_or(usize::MAX);
        if wanted == 0 {
            return take(&[]);
        }
        if let Ok(ready) = self.reader.fill_buf()
            && let Some(bytes) = ready.get(..wanted)
        {
            let taken = take(bytes);
            self.consume(wanted);
            return taken;
        }
        take(&self.bytes_across_buffers(length)?)
    }

    #[cold]
    fn bytes_across_buffers(&mut self, length: u64) -> Result<Vec<u8>, PickleError> {
        let mut bytes = Vec::new();
        let read = (&mut self.reader).take(length).read_to_end(&mut bytes);
        self.offset += bytes.len() as u64;
        read.map_err(|source| PickleError::Io { offset: self.offset, source })?;
        if (bytes.len() as u64) < length { Err(self.ends()) } else { Ok(bytes) }
    }

    /// Passes over the next `length` bytes.
    pub(crate) fn pass_over(&mut self, length: u64) -> Result<(), PickleError> {
        let passed =
            (self.skip)(&mut self.reader, length).map_err(|source| PickleError::Io { offset: self.offset, source })?;
        self.offset = self.offset.saturating_add(passed);
        if passed < length { Err(self.ends()) } else { Ok(()) }
    }

    /// The text up to the next line end, which is passed over too; at most `limit` bytes.
    pub(crate) fn line(&mut self, limit: u64) -> Result<Vec<u8>, PickleError> {
        let mut line = Vec::new();
        loop {
            let ready = self.ready()?;
            let end = memchr(b'\n', ready);
            let part = &ready[..end.unwrap_or(ready.len())];
            let used = part.len() + usize::from(end.is_some());
            if (line.len() + part.len()) as u64 > limit {
                let (offset, opcode) = self.opcode();
                return Err(PickleError::TooMuch { offset, opcode, what: LimitKind::TextBytes, limit });
            }
            line.extend_from_slice(part);
            self.consume(used);
            if end.is_some() {
                return Ok(line);
            }
        }
    }

    /// Bytes that are ready, at least one.
    fn ready(&mut self) -> Result<&[u8], PickleError> {
        // Asked twice, because a slice that is returned from within a loop cannot be given up again.
        loop {
            match self.reader.fill_buf() {
                Ok([]) => return Err(self.ends()),
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(PickleError::Io { offset: self.offset, source }),
            }
        }
        self.reader.fill_buf().map_err(|source| PickleError::Io { offset: self.offset, source })
    }

    /// Bytes that need not be waited for; none where nobody knows.
    #[inline]
    pub(crate) fn at_hand(&mut self) -> &[u8] {
        self.reader.fill_buf().unwrap_or_default()
    }

    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        self.reader.consume(count);
        self.offset += count as u64;
    }

    #[cold]
    fn ends(&self) -> PickleError {
        PickleError::Ends { offset: self.offset, within: self.opcode().1 }
    }
}

/// Passes over bytes by reading them; gives how many there were.
pub(crate) fn skip_by_reading<R: BufRead>(reader: &mut R, length: u64) -> std::io::Result<u64> {
    std::io::copy(&mut reader.take(length), &mut std::io::sink())
}

/// Passes over bytes without reading them; whether they are there shows when something behind them is read.
pub(crate) fn skip_by_seeking<R: BufRead + Seek>(reader: &mut R, length: u64) -> std::io::Result<u64> {
    let distance = i64::try_from(length).map_err(|_| std::io::Error::from(ErrorKind::UnexpectedEof))?;
    reader.seek(SeekFrom::Current(distance))?;
    Ok(length)
}
