//! Writing files of `torch.save`.
//!
//! The archive is laid out as torch lays it out, down to the padding: storages begin at multiples of 64 bytes, so that
//! `torch.load(mmap=True)` maps them, and sizes stand behind the bytes, so that everything is written in one pass. The
//! folder within the archive is always `archive`, which makes the same values the same bytes, whatever the file's name.

use std::borrow::Cow;
use std::path::Path;

use crate::pickle_writer::{Arrays, PickleWriter};
use crate::whole_file::write_whole;
use crate::zip_writer::ZipWriter;
use crate::{DataError, Dtype};

const BYTE_ORDER: &[u8] = if cfg!(target_endian = "big") { b"big" } else { b"little" };

/// A value that `torch.load` can give back, with `weights_only=True` too.
#[derive(Debug, Clone, PartialEq)]
pub enum PtValue<'a> {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A string.
    Str(Cow<'a, str>),
    /// A list.
    List(Vec<PtValue<'a>>),
    /// A tuple.
    Tuple(Vec<PtValue<'a>>),
    /// A dict; keys are none of lists, dicts and tensors.
    Dict(Vec<(PtValue<'a>, PtValue<'a>)>),
    /// A tensor on the CPU, with a storage of its own.
    Tensor(PtTensor<'a>),
}

/// A tensor to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PtTensor<'a> {
    /// The type of its values: one of the plain ones, `float8` and `uint16` and the like are not among them.
    pub dtype: Dtype,
    /// How many values there are along each dimension.
    pub shape: Vec<u64>,
    /// The values in rows, one after another, in the byte order of this machine.
    pub bytes: Cow<'a, [u8]>,
}

/// Writes a file that `torch.load` reads.
///
/// The file is there as a whole or not at all: it is written under another name in the same folder, synced and renamed.
/// Besides the value itself this takes memory for its pickle: some 100 bytes for each tensor.
///
/// # Errors
///
/// Where the value cannot be written, which is found before anything is, or the system refuses.
pub fn write_pt(path: &Path, value: &PtValue<'_>) -> Result<(), DataError> {
    let (pickle, tensors) = PickleWriter::write(value, Arrays::Torch).map_err(|unwritable| {
        let (place, problem) = unwritable;
        DataError::Unwritable { file: path.to_owned(), place, problem }
    })?;
    write_whole(path, |out| {
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
    })
}
