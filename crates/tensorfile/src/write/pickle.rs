//! Writing files of `pickle.dump`.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::PtValue;
use super::pickler::{Arrays, Pickler};
use crate::error::TensorFileError;

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
pub fn write_pickle(path: &Path, value: &PtValue<'_>, packing: Packing) -> Result<(), TensorFileError> {
    let (pickle, _) = Pickler::write(value, Arrays::Numpy).map_err(|refusal| refusal.of_file(path))?;
    lowtide_disk::write_with(path, |out| match packing {
        Packing::Plain => out.write_all(&pickle),
        Packing::Gzip => {
            let mut packed = GzEncoder::new(out, Compression::fast());
            packed.write_all(&pickle)?;
            packed.finish().map(|_| ())
        }
    })?;
    Ok(())
}
