//! A file as a table: one row a tensor.

use std::sync::Arc;

use lowtide_core::Bytes;
use serde::Serialize;

use super::Tree;
use crate::error::TensorFileError;
use crate::tensors::{Dtype, Loader, Source, Tensor, row_strides, sum, sum_of};

/// Storages up to this size are held while the tensors that share them are summed.
const KEEP: Bytes = Bytes::from_mib(16);

/// A tensor of a file.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// Where it stands, such as `graphs.0.edge_index`.
    pub path: String,
    /// The type of its values.
    pub dtype: Dtype,
    /// How many values there are along each dimension.
    pub shape: Vec<u64>,
    /// How far apart neighbours along each dimension are, in values.
    pub stride: Vec<u64>,
    /// Bytes of its values.
    pub bytes: Bytes,
    /// The sum of its values; none for complex numbers, for types without numbers, and where it was not asked for.
    pub sum: Option<f64>,
}

impl Row {
    /// A tensor that is in memory, its values in rows, one after another, and little-endian.
    #[must_use]
    pub fn of_values(path: String, dtype: Dtype, shape: &[u64], values: &[u8], sums: Sums) -> Self {
        Self {
            path,
            dtype,
            shape: shape.to_vec(),
            stride: row_strides(shape),
            bytes: Bytes(values.len() as u64),
            sum: if sums == Sums::Compute { sum_of(dtype, values) } else { None },
        }
    }
}

/// Whether to read the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sums {
    /// Leave the values in the file.
    Skip,
    /// Read every value and add them up, which also verifies the checksums.
    Compute,
}

/// Every tensor of a tree, in order, with its path.
///
/// Values are read in the order of the file, whatever that of the tree, so that what is compressed is inflated once.
///
/// # Errors
///
/// Where values are to be read and cannot be, or the table takes more than the file may decode to.
pub fn rows(tree: &Tree, sums: Sums) -> Result<Vec<Row>, TensorFileError> {
    let mut table = Table::default();
    table.add(tree, &mut String::new())?;
    if sums == Sums::Compute {
        table.add_sums()?;
    }
    Ok(table.rows)
}

/// The rows, and the tensor of each.
#[derive(Default)]
struct Table<'t> {
    rows: Vec<Row>,
    tensors: Vec<&'t Tensor>,
    /// Keys can be shared and paths cannot, so a small file could have paths without end.
    bytes: u64,
}

impl<'t> Table<'t> {
    fn add(&mut self, tree: &'t Tree, path: &mut String) -> Result<(), TensorFileError> {
        if let Tree::Tensor(tensor) = tree {
            let row = size_of::<Row>() + size_of::<&Tensor>();
            self.bytes += (path.len() + 2 * tensor.shape().len() * size_of::<u64>() + row) as u64;
            tensor.storage().file.check_tables(Bytes(self.bytes))?;
            self.rows.push(Row {
                path: path.clone(),
                dtype: tensor.dtype(),
                shape: tensor.shape().to_vec(),
                stride: tensor.stride().to_vec(),
                bytes: Bytes(tensor.bytes()),
                sum: None,
            });
            self.tensors.push(tensor);
            return Ok(());
        }
        for (name, child) in tree.children() {
            let length = path.len();
            if length > 0 {
                path.push('.');
            }
            path.push_str(&name);
            self.add(child, path)?;
            path.truncate(length);
        }
        Ok(())
    }

    /// Sums every tensor, storage by storage. All of a storage is read, for the sake of its checksum.
    fn add_sums(&mut self) -> Result<(), TensorFileError> {
        let mut order: Vec<usize> = (0..self.tensors.len()).collect();
        let storage_of = |at: usize| self.tensors[at].storage();
        order.sort_by_key(|at| (storage_of(*at).position(), Arc::as_ptr(storage_of(*at)), self.tensors[*at].offset()));
        let mut loader = Loader::new(KEEP);
        for group in order.chunk_by(|one, other| Arc::ptr_eq(storage_of(*one), storage_of(*other))) {
            let storage = storage_of(group[0]);
            if matches!(storage.source, Source::Nowhere) {
                continue;
            }
            let mut is_read = false;
            for at in group {
                let tensor = self.tensors[*at];
                self.rows[*at].sum = sum(&mut loader, tensor)?;
                let is_summed = self.rows[*at].sum.is_some() && tensor.elements() > 0;
                is_read |= is_summed && (loader.keeps(storage) || tensor.bytes() == storage.bytes());
            }
            if !is_read {
                loader.verify(storage)?;
            }
        }
        Ok(())
    }
}
