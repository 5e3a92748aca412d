//! How much a file may decode to.
//!
//! A few bytes can describe terabytes: a view that repeats one value, rows of no size, a compressed run of zeros, lists that
//! share their elements. What a file says about itself is believed only as far as its own size on the disk makes it likely;
//! whoever trusts a file raises the limit.
//!
//! [`DecodeLimit`] is given to every reader with the file: values of all tensors, each view as what reading it gives
//! (256 MiB, or 64 times the file); everything else in memory, which is entries, values of pickles and names, counted
//! while they are read (32 MiB; 48 times the file up to 256 MiB, for a list of pairs of small numbers takes 40 times as
//! much in memory as in a pickle; 4 times beyond); rows, one for each byte of the file or for 512 of the limit. The
//! memory limit of the host is above all of them; what is not values may take a quarter of it up to 32 MiB, and a
//! sixteenth beyond (a quarter where the limit is raised).

use std::path::Path;

use lowtide_core::Bytes;

use crate::error::{Place, TensorFileError};
use crate::file::TensorFile;
use crate::tensors::{Source, Tensor};
use crate::tree::Tree;

/// Values that any file may have.
const VALUES: u64 = 256 << 20;
/// And how many bytes of values for each of its own.
const VALUES_RATIO: u64 = 64;
/// Memory that the description of any file may take: what is not values of tensors.
const TABLES: u64 = 32 << 20;
/// Python's values take up to 40 times as much in memory as in a pickle: a list of pairs of small numbers does. More than
/// that only where nothing else is in the file, and beyond `LARGE_TABLES` only a few times its size.
const TABLES_RATIO: u64 = 48;
const LARGE_TABLES: u64 = 256 << 20;
const LARGE_TABLES_RATIO: u64 = 4;
/// A row costs something even where it has no values: so many bytes of the limit, unless the file has a byte for it.
const ROW: u64 = 512;
/// The part of a memory line that descriptions may take, for they are held beside the samples: of a small line, and of one
/// that leaves them [`TABLES`] anyway.
const SMALL_LINE_PART: u64 = 4;
const LINE_PART: u64 = 16;

/// How much a file may decode to: by default 256 MiB, or 64 times its size on the disk where that is more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DecodeLimit {
    asked: Option<Bytes>,
    line: Option<Bytes>,
}

impl DecodeLimit {
    /// This many bytes for every file, whatever its size on the disk.
    #[must_use]
    pub fn new(limit: Bytes) -> Self {
        Self { asked: Some(limit), line: None }
    }

    /// The same where a limit was asked for, else the default.
    #[must_use]
    pub fn asked(limit: Option<Bytes>) -> Self {
        Self { asked: limit, line: None }
    }

    /// The same, and never more than a memory line.
    #[must_use]
    pub fn under(self, line: Option<Bytes>) -> Self {
        Self { line, ..self }
    }

    /// Bytes that the values of all tensors of a file may take, each view counted as what reading it gives.
    #[must_use]
    pub fn values(self, file: Bytes) -> Bytes {
        let default = Bytes(VALUES.max(file.get().saturating_mul(VALUES_RATIO)));
        self.asked.unwrap_or(default).min(self.line.unwrap_or(Bytes::MAX))
    }

    /// Bytes that everything else may take in memory: entries of archives, values of pickles, names.
    #[must_use]
    pub fn tables(self, file: Bytes) -> Bytes {
        let times = |ratio| file.get().saturating_mul(ratio);
        let default = Bytes(TABLES.max(times(TABLES_RATIO).min(LARGE_TABLES)).max(times(LARGE_TABLES_RATIO)));
        let quarter = |line: Bytes| line.get() / SMALL_LINE_PART;
        let part = match (self.line, self.asked) {
            (None, _) => Bytes::MAX,
            (Some(line), Some(_)) => Bytes(quarter(line)),
            (Some(line), None) => Bytes(quarter(line).min(TABLES).max(line.get() / LINE_PART)),
        };
        self.asked.map_or(default, |asked| asked.max(default)).min(part)
    }

    /// Whether the values of a file of some size fit.
    ///
    /// # Errors
    ///
    /// [`TensorFileError::TooMuch`].
    pub fn check_values(self, file: &Path, size: Bytes, values: Bytes) -> Result<(), TensorFileError> {
        let limit = self.values(size);
        if values <= limit {
            return Ok(());
        }
        let (file, what) = (file.to_owned(), format!("{values} of values"));
        Err(TensorFileError::TooMuch { file, place: Place::Whole, what, limit: limit.to_string(), size })
    }

    /// How many rows a file may have, over all columns: as many as it has bytes, or one for every 512 of the limit.
    #[must_use]
    pub fn rows(self, file: Bytes) -> u64 {
        (self.values(file).get() / ROW).max(file.get())
    }
}

impl TensorFile {
    /// What it may decode to.
    #[must_use]
    pub fn limit(&self) -> DecodeLimit {
        self.limit
    }

    /// An error where the rows of all columns together are more than the file may have.
    ///
    /// # Errors
    ///
    /// [`TensorFileError::TooMuch`].
    pub fn check_rows(&self, rows: u64) -> Result<(), TensorFileError> {
        let limit = self.limit.rows(Bytes(self.len()));
        if rows <= limit { Ok(()) } else { Err(self.too_much(Place::Whole, format!("{rows} rows"), limit.to_string())) }
    }

    /// An error where values of so many bytes are more than the file may decode to.
    ///
    /// # Errors
    ///
    /// [`TensorFileError::TooMuch`].
    pub fn check_values(&self, bytes: Bytes) -> Result<(), TensorFileError> {
        self.limit.check_values(self.path(), Bytes(self.len()), bytes)
    }

    /// An error where a description of so many bytes is more than the file may have.
    ///
    /// # Errors
    ///
    /// [`TensorFileError::TooMuch`].
    pub fn check_tables(&self, bytes: Bytes) -> Result<(), TensorFileError> {
        let limit = self.table_bytes();
        if bytes <= limit {
            return Ok(());
        }
        Err(self.too_much(Place::Whole, format!("more than {limit} of names and lists"), limit.to_string()))
    }

    /// Bytes that all but the values of tensors may take.
    pub(crate) fn table_bytes(&self) -> Bytes {
        self.limit.tables(Bytes(self.len()))
    }

    /// Refuses a tree whose tensors, all read, are more than the file may decode to.
    pub(crate) fn check_tree(&self, tree: &Tree) -> Result<(), TensorFileError> {
        let sum = Sum::of(tree);
        self.check_values(Bytes(sum.bytes))?;
        // A byte for each, where there are none.
        let limit = self.limit.values(Bytes(self.len())).get();
        if sum.empty_rows <= limit {
            return Ok(());
        }
        Err(self.too_much(Place::Whole, format!("{} rows without values", sum.empty_rows), limit.to_string()))
    }

    pub(crate) fn too_much(&self, place: Place, what: String, limit: String) -> TensorFileError {
        let (file, size) = (self.path().to_owned(), Bytes(self.len()));
        TensorFileError::TooMuch { file, place, what, limit, size }
    }
}

/// What all tensors of a tree are together.
#[derive(Default)]
struct Sum {
    /// Bytes of their values once they are read.
    bytes: u64,
    /// Rows of those that have no values.
    empty_rows: u64,
}

impl Sum {
    fn of(tree: &Tree) -> Self {
        let mut sum = Self::default();
        sum.add(tree);
        sum
    }

    fn add(&mut self, tree: &Tree) {
        match tree {
            Tree::Tensor(tensor) => self.add_tensor(tensor),
            Tree::Blob(blob) => self.bytes = self.bytes.saturating_add(blob.bytes()),
            _ => tree.parts().for_each(|part| self.add(part)),
        }
    }

    fn add_tensor(&mut self, tensor: &Tensor) {
        if matches!(tensor.storage().source(), Source::Nowhere) {
            // There are no values to be read.
            return;
        }
        if tensor.elements() > 0 {
            self.bytes = self.bytes.saturating_add(tensor.bytes());
            return;
        }
        let sizes = tensor.shape().iter().filter(|size| **size > 0);
        self.empty_rows = self.empty_rows.saturating_add(sizes.fold(1, |rows: u64, size| rows.saturating_mul(*size)));
    }
}
