//! Reading whole storages of one file, one after another.

use std::io::{self, BufReader, Read};

use flate2::read::MultiGzDecoder;

use super::{Source, Storage};
use crate::error::TensorFileError;
use crate::file::FileRange;

type Gzip = MultiGzDecoder<BufReader<FileRange>>;

/// Reads storages of a file; cheapest in the order of [`Storage::position`].
///
/// Those of a gzipped file come out of one stream, which would else be inflated from its start for each of them.
#[derive(Debug, Default)]
pub struct StorageReader {
    gzip: Option<(Gzip, u64)>,
}

impl StorageReader {
    /// All bytes of a storage; its checksum is verified where it has one.
    ///
    /// # Errors
    ///
    /// Where there is no memory for them, or the file cannot be read, was cut short or is damaged.
    pub fn read(&mut self, storage: &Storage) -> Result<Vec<u8>, TensorFileError> {
        if matches!(storage.source, Source::Nowhere) {
            // It claims any length; asking for nothing gives the error.
            storage.read_at(0, &mut [])?;
        }
        let mut bytes = storage.zeros(storage.length)?;
        self.read_into(storage, &mut bytes)?;
        Ok(bytes)
    }

    /// The same into a buffer of the storage's length.
    ///
    /// # Errors
    ///
    /// As for [`StorageReader::read`].
    pub fn read_into(&mut self, storage: &Storage, bytes: &mut [u8]) -> Result<(), TensorFileError> {
        match storage.source {
            Source::Gzip { before } => self.read_gzip(storage, before, bytes).map_err(|source| {
                TensorFileError::Io { file: storage.file.path().to_owned(), place: storage.place.clone(), source }
            })?,
            _ => storage.read_at(0, bytes)?,
        }
        Ok(())
    }

    fn read_gzip(&mut self, storage: &Storage, before: u64, bytes: &mut [u8]) -> io::Result<()> {
        let (mut stream, position) = match self.gzip.take().filter(|(_, position)| *position <= before) {
            Some(open) => open,
            None => (MultiGzDecoder::new(BufReader::new(storage.file.range(0, storage.file.len()))), 0),
        };
        let skipped = io::copy(&mut (&mut stream).take(before - position), &mut io::sink())?;
        if skipped < before - position {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        stream.read_exact(bytes)?;
        self.gzip = Some((stream, before + bytes.len() as u64));
        Ok(())
    }
}
