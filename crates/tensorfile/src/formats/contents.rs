//! Telling the formats apart.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::zip::{Entry, entries};
use super::{npy, pickle, pt, safetensors};
use crate::error::{Place, TensorFileError};
use crate::file::TensorFile;
use crate::limit::DecodeLimit;
use crate::tree::Tree;

/// How much of a file tells its format.
const HEAD: u64 = 64;
const ZIP: &[u8] = b"PK\x03\x04";
const EMPTY_ZIP: &[u8] = b"PK\x05\x06";
const GZIP: &[u8] = b"\x1f\x8b";
/// The first byte of pickles since protocol 2.
const PROTOCOL: u8 = 0x80;
/// Where a tar archive says that it is one.
const TAR: (u64, &[u8]) = (257, b"ustar");

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Format {
    /// `torch.save`, as a zip archive.
    Torch,
    /// `torch.save` in the older format.
    TorchLegacy,
    /// `numpy.save`.
    Npy,
    /// `numpy.savez`.
    Npz,
    /// safetensors.
    Safetensors,
    /// `pickle.dump`.
    Pickle,
    /// The same, gzipped.
    PickleGzip,
}

impl Format {
    /// Whether files of it hold a checksum of what is in them.
    #[must_use]
    pub fn has_checksum(self) -> bool {
        match self {
            Self::Torch | Self::Npz | Self::PickleGzip => true,
            Self::TorchLegacy | Self::Npy | Self::Safetensors | Self::Pickle => false,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Torch => "torch.save",
            Self::TorchLegacy => "torch.save, older format",
            Self::Npy => "numpy.save",
            Self::Npz => "numpy.savez",
            Self::Safetensors => "safetensors",
            Self::Pickle => "pickle",
            Self::PickleGzip => "pickle, gzipped",
        })
    }
}

/// What a file holds.
#[derive(Debug)]
#[non_exhaustive]
pub struct Contents {
    /// How it was written.
    pub format: Format,
    /// What is in it; the values of tensors are still in the file.
    pub tree: Tree,
}

/// Reads what a file says about itself; its first bytes tell the format, whatever its name.
///
/// # Errors
///
/// Where the file cannot be read, is broken or cut short, holds what this crate does not read, or decodes to more than
/// its size makes likely.
pub fn open(path: &Path) -> Result<Contents, TensorFileError> {
    open_within(path, DecodeLimit::default())
}

/// As [`open`], with another limit on what the file may decode to.
///
/// # Errors
///
/// As for [`open`].
pub fn open_within(path: &Path, limit: DecodeLimit) -> Result<Contents, TensorFileError> {
    TensorFile::open(path, 0, limit)?.contents()
}

impl TensorFile {
    /// What it says about itself, as [`open`] gives it.
    ///
    /// # Errors
    ///
    /// As for [`open`].
    pub fn contents(self: &Arc<Self>) -> Result<Contents, TensorFileError> {
        let head = self.bytes_at(0, self.len().min(HEAD), &Place::Whole)?;
        if head.is_empty() {
            return Err(self.malformed(Place::Whole, "it is empty"));
        }
        let contents = self.contents_of(&head)?;
        self.check_tree(&contents.tree)?;
        Ok(contents)
    }

    fn contents_of(self: &Arc<Self>, head: &[u8]) -> Result<Contents, TensorFileError> {
        if head.starts_with(ZIP) || head.starts_with(EMPTY_ZIP) {
            return open_zip(self);
        }
        let (format, tree) = if head.starts_with(npy::MAGIC) {
            (Format::Npy, npy::read_npy(self)?)
        } else if head.starts_with(GZIP) {
            (Format::PickleGzip, pickle::read_gzip(self)?)
        } else if safetensors::is_safetensors(head, self.len()) {
            (Format::Safetensors, safetensors::read(self)?)
        } else if pt::is_legacy(head) {
            (Format::TorchLegacy, pt::read_legacy(self)?)
        } else {
            check_not_tar(self)?;
            (Format::Pickle, open_pickle(self, head)?)
        };
        Ok(Contents { format, tree })
    }
}

/// Anything may begin like a pickle of the first protocols, so a file that is no pickle is not called a broken one.
fn open_pickle(file: &Arc<TensorFile>, head: &[u8]) -> Result<Tree, TensorFileError> {
    let is_named_so = file.path().extension().is_some_and(|name| name == "pkl" || name == "pickle");
    match pickle::read_plain(file, 0) {
        Err(TensorFileError::Pickle { .. }) if head.first() != Some(&PROTOCOL) && !is_named_so => {
            let hint = Some("known are .pt, .npy, .npz, .safetensors, .pkl and .pkl.gz");
            Err(file.unsupported(Place::Whole, "a file of this kind", hint))
        }
        read => read,
    }
}

fn open_zip(file: &Arc<TensorFile>) -> Result<Contents, TensorFileError> {
    let entries = entries(file)?;
    let (format, tree) = if let Some(root) = pt::root_of(&entries) {
        (Format::Torch, pt::read_zip(file, &entries, root)?)
    } else if !entries.is_empty() && entries.iter().all(is_npy) {
        (Format::Npz, npy::read_npz(file, &entries)?)
    } else {
        let hint = Some("files of torch.save hold an entry `data.pkl`, files of numpy.savez entries `.npy`");
        return Err(file.unsupported(Place::Whole, "a zip archive of neither torch nor numpy", hint));
    };
    Ok(Contents { format, tree })
}

fn is_npy(entry: &Entry) -> bool {
    entry.name.ends_with(".npy")
}

fn check_not_tar(file: &TensorFile) -> Result<(), TensorFileError> {
    let (offset, magic) = TAR;
    if file.len() < offset + magic.len() as u64 {
        return Ok(());
    }
    if file.bytes_at(offset, magic.len() as u64, &Place::Whole)? != magic {
        return Ok(());
    }
    let hint = Some("load it with an old version of torch and save it again");
    Err(file.unsupported(Place::Whole, "a tar archive, as torch wrote before version 0.2", hint))
}
