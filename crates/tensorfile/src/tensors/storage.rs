//! Bytes that tensors are views of.

use std::io;
use std::sync::Arc;

use crc32fast::Hasher;

use super::inflater::Inflater;
use crate::error::{Place, TensorFileError};
use crate::file::TensorFile;

/// Bytes in a file, or in memory where they had to be decoded with the pickle around them.
///
/// Tensors that share a storage hold the same one (`Arc::ptr_eq`).
#[derive(Debug)]
pub struct Storage {
    pub(crate) file: Arc<TensorFile>,
    pub(crate) place: Place,
    pub(crate) source: Source,
    pub(crate) length: u64,
    pub(crate) order: ByteOrder,
    pub(crate) checksum: Option<Checksum>,
}

/// Where the bytes are.
#[derive(Debug)]
pub enum Source {
    /// In the file.
    File {
        /// Where they begin.
        offset: u64,
    },
    /// In a deflated entry of the file.
    Deflated {
        /// Where the entry begins.
        offset: u64,
        /// How many bytes it takes in the file.
        packed: u64,
        /// How many bytes of the inflated entry come first.
        before: u64,
    },
    /// In a gzipped file.
    Gzip {
        /// How many bytes of the inflated file come first.
        before: u64,
    },
    /// In memory, where they came with the pickle.
    Memory(Vec<u8>),
    /// Nowhere: a tensor without values.
    Nowhere,
}

/// The order of the bytes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

/// The CRC-32 of bytes that come just before and of the storage, together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checksum {
    pub(crate) before: u32,
    pub(crate) expect: u32,
}

impl Storage {
    /// Little-endian bytes without a checksum.
    pub(crate) fn new(file: &Arc<TensorFile>, place: Place, source: Source, length: u64) -> Self {
        Self { file: Arc::clone(file), place, source, length, order: ByteOrder::Little, checksum: None }
    }

    /// Length in bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.length
    }

    /// Where its bytes begin in the file, unless they are packed or were decoded.
    #[must_use]
    #[inline]
    pub fn offset(&self) -> Option<u64> {
        match self.source {
            Source::File { offset } => Some(offset),
            _ => None,
        }
    }

    /// Where its bytes are.
    #[must_use]
    #[inline]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Where it stands among the storages of its file.
    #[must_use]
    #[inline]
    pub fn position(&self) -> u64 {
        match self.source {
            Source::File { offset } | Source::Deflated { offset, .. } => offset,
            Source::Gzip { before } => before,
            Source::Memory(_) | Source::Nowhere => 0,
        }
    }

    /// What an error in it is about.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The file that it came from.
    #[must_use]
    pub fn file(&self) -> &std::path::Path {
        self.file.path()
    }

    /// Fills `buffer` with the bytes from `offset` on, in the order of the file.
    ///
    /// The checksum is verified where there is one and the buffer takes the whole storage.
    ///
    /// # Errors
    ///
    /// Where the range is not within the storage, the file cannot be read or was cut short, or the checksum differs.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), TensorFileError> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.length) {
            let wanted = format!("bytes from {offset} on are asked for, and there are {}", self.length);
            return Err(self.file.malformed(self.place.clone(), wanted));
        }
        match &self.source {
            Source::File { offset: start } => self.file.read_at(buffer, start.saturating_add(offset), &self.place)?,
            Source::Memory(bytes) => buffer.copy_from_slice(&bytes[offset as usize..][..buffer.len()]),
            Source::Nowhere => {
                return Err(self.file.unsupported(self.place.clone(), "the values of a meta tensor", None));
            }
            Source::Deflated { .. } | Source::Gzip { .. } => Inflater::default().read_at(self, offset, buffer)?,
        }
        if buffer.len() as u64 == self.length {
            self.verify(buffer)?;
        }
        Ok(())
    }

    /// The same, out of a stream that may be there already where it is packed.
    pub(super) fn read_with(
        &self,
        inflater: &mut Inflater,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), TensorFileError> {
        let end = offset.checked_add(buffer.len() as u64);
        if !self.is_packed() || end.is_none_or(|end| end > self.length) {
            return self.read_at(offset, buffer);
        }
        inflater.read_at(self, offset, buffer)?;
        if buffer.len() as u64 == self.length { self.verify(buffer) } else { Ok(()) }
    }

    /// Whether its bytes have to be inflated.
    pub(crate) fn is_packed(&self) -> bool {
        matches!(self.source, Source::Deflated { .. } | Source::Gzip { .. })
    }

    /// Reads all of it, a piece at a time, to see whether its checksum is right, where there is one.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read or was cut short, or the checksum differs.
    pub fn verify_in_file(&self) -> Result<(), TensorFileError> {
        match (self.checksum, &self.source) {
            (Some(_), Source::File { .. }) => self.stream(&mut Inflater::default(), 0, self.length, |_| Ok(())),
            _ => Ok(()),
        }
    }

    /// Whether these are all its bytes, by the checksum, where there is one.
    ///
    /// # Errors
    ///
    /// Where the checksum differs.
    #[inline]
    pub fn verify(&self, bytes: &[u8]) -> Result<(), TensorFileError> {
        let Some(checksum) = self.checksum else { return Ok(()) };
        let mut hasher = Hasher::new_with_initial(checksum.before);
        hasher.update(bytes);
        self.check(checksum, hasher.finalize())
    }

    /// Hands the bytes of a range to `take`, in order and in pieces of up to 256 KiB, each a multiple of 16 bytes but
    /// the last.
    pub(crate) fn stream(
        &self,
        inflater: &mut Inflater,
        offset: u64,
        length: u64,
        mut take: impl FnMut(&[u8]) -> Result<(), TensorFileError>,
    ) -> Result<(), TensorFileError> {
        const PIECE: u64 = 1 << 18;
        let checksum = self.checksum.filter(|_| offset == 0 && length == self.length);
        let mut hasher = Hasher::new_with_initial(checksum.map_or(0, |checksum| checksum.before));
        let mut buffer = vec![0; length.min(PIECE) as usize];
        let mut done = 0;
        while done < length {
            let piece = &mut buffer[..(length - done).min(PIECE) as usize];
            match &self.source {
                Source::Deflated { .. } | Source::Gzip { .. } => inflater.read_at(self, offset + done, piece)?,
                Source::File { offset: start } => {
                    self.file.read_at(piece, start.saturating_add(offset + done), &self.place)?;
                }
                Source::Memory(_) | Source::Nowhere => self.read_at(offset + done, piece)?,
            }
            if checksum.is_some() {
                hasher.update(piece);
            }
            take(piece)?;
            done += piece.len() as u64;
        }
        checksum.map_or(Ok(()), |checksum| self.check(checksum, hasher.finalize()))
    }

    /// Room for so many bytes that come from it.
    pub(super) fn zeros(&self, length: u64) -> Result<Vec<u8>, TensorFileError> {
        let mut bytes = Vec::new();
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if bytes.try_reserve_exact(length).is_err() {
            return Err(self.file.malformed(self.place.clone(), format!("there is no memory for {length} bytes")));
        }
        bytes.resize(length, 0);
        Ok(bytes)
    }

    fn check(&self, checksum: Checksum, found: u32) -> Result<(), TensorFileError> {
        let expect = checksum.expect;
        if found == expect {
            return Ok(());
        }
        let (file, place) = (self.file.path().to_owned(), self.place.clone());
        Err(TensorFileError::Checksum { file, place, expect, found })
    }

    pub(super) fn failed(&self, source: io::Error) -> TensorFileError {
        TensorFileError::Io { file: self.file.path().to_owned(), place: self.place.clone(), source }
    }
}
