//! A file that is read by offset.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Place, TensorFileError};
use crate::limit::DecodeLimit;
use crate::pages::{Memory, PageCache};

/// An open file and how long it was when it was opened.
#[derive(Debug)]
pub struct TensorFile {
    file: File,
    path: PathBuf,
    length: u64,
    pub(crate) limit: DecodeLimit,
    /// All of it, where it is small enough to be read at once.
    held: Option<Memory>,
}

impl TensorFile {
    /// Opens a file, and reads it as a whole where it has no more than `hold` bytes: hundreds of small reads of a small
    /// file take longer than one of all. It decodes to no more than `limit`.
    ///
    /// # Errors
    ///
    /// Where it is no regular file, cannot be read, or there is no memory for what is to be held.
    pub fn open(path: &Path, hold: u64, limit: DecodeLimit) -> Result<Arc<Self>, TensorFileError> {
        let failed = |source| TensorFileError::Io { file: path.to_owned(), place: Place::Whole, source };
        // Asked first by its name: opening a pipe waits for somebody who writes.
        if !path.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::other("not a regular file")));
        }
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let mut opened = Self { file, path: path.to_owned(), length: metadata.len(), limit, held: None };
        if opened.length <= hold && opened.length > 0 {
            let mut held =
                Memory::zeroed(opened.length as usize).ok_or_else(|| failed(ErrorKind::OutOfMemory.into()))?;
            opened.read_at(&mut held, 0, &Place::Whole)?;
            opened.held = Some(held);
        }
        Ok(Arc::new(opened))
    }

    /// Its path, as it was given.
    #[must_use]
    #[inline]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How long it was when it was opened, in bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Fills `buffer` from `offset` on; `place` is what an error is about.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read or was cut short.
    #[inline]
    pub fn read_at(&self, buffer: &mut [u8], offset: u64, place: &Place) -> Result<(), TensorFileError> {
        self.check_range(offset, buffer.len() as u64, place)?;
        if let Some(held) = self.held(offset, buffer.len() as u64) {
            buffer.copy_from_slice(held);
            return Ok(());
        }
        self.file.read_exact_at(buffer, offset).map_err(|source| self.failed(source, offset, buffer.len(), place))
    }

    /// The same for some of very many: the place is made up only where there is an error.
    pub(crate) fn read_near(
        &self,
        buffer: &mut [u8],
        offset: u64,
        place: impl Fn() -> Place,
    ) -> Result<(), TensorFileError> {
        match self.held(offset, buffer.len() as u64) {
            Some(held) => buffer.copy_from_slice(held),
            None => self.read_at(buffer, offset, &place())?,
        }
        Ok(())
    }

    /// The bytes of a range that was checked to lie within the file.
    pub(crate) fn bytes_at(&self, offset: u64, length: u64, place: &Place) -> Result<Vec<u8>, TensorFileError> {
        self.check_range(offset, length, place)?;
        let mut bytes = vec![0; length as usize];
        self.read_at(&mut bytes, offset, place)?;
        Ok(bytes)
    }

    pub(crate) fn check_range(&self, offset: u64, length: u64, place: &Place) -> Result<(), TensorFileError> {
        let end = offset.saturating_add(length);
        if end > self.length {
            let (file, place) = (self.path.clone(), place.clone());
            return Err(TensorFileError::CutShort { file, place, end, length: self.length });
        }
        Ok(())
    }

    /// The CRC-32 of all its bytes, for formats that have no checksum of their own.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read or was cut short.
    pub fn checksum(&self) -> Result<u32, TensorFileError> {
        self.checksum_of(0, self.length, || Place::Whole)
    }

    /// That of some of its bytes, read a piece at a time.
    pub(crate) fn checksum_of(
        &self,
        offset: u64,
        length: u64,
        place: impl Fn() -> Place,
    ) -> Result<u32, TensorFileError> {
        const PIECE: u64 = 256 << 10;
        if let Some(held) = self.held(offset, length) {
            return Ok(crc32fast::hash(held));
        }
        let mut hasher = crc32fast::Hasher::new();
        let mut buffer = vec![0; length.min(PIECE) as usize];
        let mut done = 0;
        while done < length {
            let piece = &mut buffer[..(length - done).min(PIECE) as usize];
            self.read_near(piece, offset + done, &place)?;
            hasher.update(piece);
            done += piece.len() as u64;
        }
        Ok(hasher.finalize())
    }

    /// A range of a file that was read as a whole.
    #[must_use]
    #[inline]
    pub fn held(&self, offset: u64, length: u64) -> Option<&[u8]> {
        self.held.as_ref()?.get(offset as usize..offset.checked_add(length)? as usize)
    }

    /// Lets the page cache have its pages back, unless they are to stay.
    pub fn after_reading(&self, pages: PageCache) {
        pages.after_reading(&self.file, 0, self.length);
    }

    /// A range of the file as a stream.
    pub(crate) fn range(self: &Arc<Self>, offset: u64, length: u64) -> FileRange {
        FileRange { file: Arc::clone(self), start: offset, length, position: 0 }
    }

    pub(crate) fn malformed(&self, place: Place, problem: impl Into<String>) -> TensorFileError {
        TensorFileError::Malformed { file: self.path.clone(), place, problem: problem.into() }
    }

    pub(crate) fn unsupported(
        &self,
        place: Place,
        what: impl Into<String>,
        hint: Option<&'static str>,
    ) -> TensorFileError {
        TensorFileError::Unsupported { file: self.path.clone(), place, what: what.into(), hint }
    }

    fn failed(&self, source: io::Error, offset: u64, wanted: usize, place: &Place) -> TensorFileError {
        let (file, place) = (self.path.clone(), place.clone());
        if source.kind() != ErrorKind::UnexpectedEof {
            return TensorFileError::Io { file, place, source };
        }
        let length = self.file.metadata().map_or(self.length, |metadata| metadata.len());
        TensorFileError::CutShort { file, place, end: offset.saturating_add(wanted as u64), length }
    }
}

/// A range of a file as a stream; many may be read at once.
#[derive(Debug)]
pub(crate) struct FileRange {
    file: Arc<TensorFile>,
    start: u64,
    length: u64,
    position: u64,
}

impl Read for FileRange {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.length.saturating_sub(self.position);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let offset = self.start.checked_add(self.position).ok_or(ErrorKind::UnexpectedEof)?;
        let read = self.file.file.read_at(&mut buffer[..wanted], offset)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl Seek for FileRange {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(distance) => self.position.checked_add_signed(distance),
            SeekFrom::End(distance) => self.length.checked_add_signed(distance),
        };
        self.position = position.ok_or(ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
