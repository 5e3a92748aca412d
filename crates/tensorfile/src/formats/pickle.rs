//! Files of `pickle.dump`, plain or gzipped.

use std::collections::HashMap;
use std::io::{self, BufReader, Read};
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use lowtide_core::Bytes;
use lowtide_pickle::{LimitKind, Pickle, PickleError, read, read_seek};

use super::objects::{Builder, PickleOrigin, allow, limits};
use crate::error::{Place, TensorFileError};
use crate::file::TensorFile;
use crate::tree::Tree;

/// What may stand behind the pickle in a gzipped file; it is read, so that the checksum at the end is verified.
const MOST_BEHIND: u64 = 1 << 20;

/// Reads the pickle that begins at `start`.
pub(crate) fn read_plain(file: &Arc<TensorFile>, start: u64) -> Result<Tree, TensorFileError> {
    Builder::new(&pickle_at(file, start)?, file, &HashMap::new(), PickleOrigin::File { start }).build_root()
}

pub(super) fn pickle_at(file: &Arc<TensorFile>, start: u64) -> Result<Pickle, TensorFileError> {
    let range = file.range(start, file.len().saturating_sub(start));
    let pickle = read_seek(BufReader::with_capacity(64 << 10, range), &allow(), &limits(file.table_bytes()));
    pickle.map_err(|source| pickle_error(file, Place::Pickle(start), source))
}

/// Reads a gzipped pickle.
pub(crate) fn read_gzip(file: &Arc<TensorFile>) -> Result<Tree, TensorFileError> {
    let packed = BufReader::with_capacity(64 << 10, file.range(0, file.len()));
    let most = file.limit().values(Bytes(file.len()));
    let inflated = MultiGzDecoder::new(packed).take(most.get().saturating_add(1));
    let mut stream = BufReader::with_capacity(64 << 10, inflated);
    let pickle = read(&mut stream, &allow(), &limits(file.table_bytes()));
    if stream.get_ref().limit() == 0 {
        return Err(file.too_much(Place::Whole, format!("more than {most}"), most.to_string()));
    }
    let pickle = pickle.map_err(|source| pickle_error(file, Place::Pickle(0), source))?;
    let behind = io::copy(&mut stream.take(MOST_BEHIND), &mut io::sink());
    behind.map_err(|source| TensorFileError::Io {
        file: file.path().to_owned(),
        place: Place::Byte(file.len()),
        source,
    })?;
    Builder::new(&pickle, file, &HashMap::new(), PickleOrigin::Gzip).build_root()
}

/// An error of the pickle at a place.
pub(super) fn pickle_error(file: &TensorFile, place: Place, source: PickleError) -> TensorFileError {
    if let PickleError::TooMuch { what: LimitKind::Memory, limit, .. } = source {
        let limit = Bytes(limit);
        return file.too_much(place, format!("more than {limit} of lists, dicts and numbers"), limit.to_string());
    }
    TensorFileError::Pickle { file: file.path().to_owned(), place, source: Box::new(source) }
}
