//! Writing files of `torch.save` and of `pickle.dump`.
//!
//! The archive of `torch.save` is laid out as torch lays it out, down to the padding: storages begin at multiples of 64 bytes, so that
//! `torch.load(mmap=True)` maps them, and sizes stand behind the bytes, so that everything is written in one pass. The
//! folder within the archive is always `archive`, which makes the same values the same bytes, whatever the file's name.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::PtValue;
use super::pickler::{Arrays, Pickler};
use super::zip::ZipWriter;
use crate::error::TensorFileError;

const BYTE_ORDER: &[u8] = if cfg!(target_endian = "big") { b"big" } else { b"little" };

/// Whether a pickle is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// As it is.
    Plain,
    /// By gzip: the usual ending is then `.pkl.gz`.
    Gzip,
}

/// Writes a file that `torch.load` reads.
///
/// The file is there as a whole or not at all: it is written under another name in the same folder, synced and renamed.
/// Besides the value itself this takes memory for its pickle: some 100 bytes for each tensor.
///
/// # Errors
///
/// Where the value cannot be written, which is found before anything is, or the system refuses.
pub fn write_pt(path: &Path, value: &PtValue<'_>) -> Result<(), TensorFileError> {
    let (pickle, tensors) = Pickler::write(value, Arrays::Torch).map_err(|refusal| refusal.of_file(path))?;
    lowtide_disk::write_with(path, |out| {
        let mut archive = ZipWriter::new(out);
        archive.add("archive/data.pkl", &pickle)?;
        archive.add("archive/.format_version", b"1")?;
        archive.add("archive/.storage_alignment", b"64")?;
        archive.add("archive/byteorder", BYTE_ORDER)?;
        for (key, tensor) in tensors.iter().enumerate() {
            archive.add(&format!("archive/data/{key}"), &tensor.bytes)?;
        }
        archive.add("archive/version", b"3\n")?;
        archive.finish()
    })?;
    Ok(())
}

/// Writes a file that `pickle.load` reads: tensors become arrays of numpy, all else stays as it is.
///
/// The file is there as a whole or not at all, as with [`write_pt`]. Takes as much memory again as the
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
