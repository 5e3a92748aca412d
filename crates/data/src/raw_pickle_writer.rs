//! Writing files of `pickle.dump`, and the table of scores that lies beside them.

use std::io::{self, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::pickle_writer::{Arrays, PickleWriter};
use crate::whole_file::write_whole;
use crate::{DataError, Place, PtValue};

/// Whether a pickle is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// As it is.
    Plain,
    /// By gzip: the usual ending is then `.pkl.gz`.
    Gzip,
}

/// Writes a file that `pickle.load` reads: tensors become arrays of numpy, all else stays as it is.
///
/// The file is there as a whole or not at all, as with [`write_pt`](crate::write_pt). Takes as much memory again as the
/// value.
///
/// # Errors
///
/// Where the value cannot be written, which is found before anything is, or the system refuses.
pub fn write_pickle(path: &Path, value: &PtValue<'_>, packing: Packing) -> Result<(), DataError> {
    let (pickle, _) = PickleWriter::write(value, Arrays::Numpy).map_err(|(place, problem)| {
        let file = path.to_owned();
        DataError::Unwritable { file, place, problem }
    })?;
    write_whole(path, |out| match packing {
        Packing::Plain => out.write_all(&pickle),
        Packing::Gzip => {
            let mut packed = GzEncoder::new(out, Compression::fast());
            packed.write_all(&pickle)?;
            packed.finish().map(|_| ())
        }
    })
}

/// Writes a table of scores that [`Scores`](crate::Scores) reads; it is there as a whole or not at all.
///
/// A score is written in as few digits as tell it from all others.
///
/// # Errors
///
/// Where the system refuses.
pub fn write_scores(path: &Path, rows: impl IntoIterator<Item = (String, f32)>) -> Result<(), DataError> {
    let mut table = csv::Writer::from_writer(Vec::new());
    let all = || {
        table.write_record(["question_id", "score"])?;
        rows.into_iter().try_for_each(|(id, score)| table.write_record([id, score.to_string()]))
    };
    let failed = |source| DataError::Io { file: path.to_owned(), place: Place::Whole, source };
    all().map_err(|error| failed(io::Error::from(error)))?;
    let text = table.into_inner().map_err(|error| failed(error.into_error()))?;
    write_whole(path, |out| out.write_all(&text))
}
