//! A file as a table: one row a tensor.

use lowtide_core::Bytes;
use serde::Serialize;

use super::Tree;
use crate::error::{Place, TensorFileError};
use crate::tensors::{Dtype, Loader, Source, Tensor, row_strides, sum, sum_of};

/// Storages up to this size are held while the tensors that share them are summed.
const KEEP: Bytes = Bytes::from_mib(64);

/// The bytes of all paths of a table, at the most: keys can be shared and paths cannot, so a small file could have paths
/// without end.
pub const MOST_PATHS: Bytes = Bytes::from_mib(256);

/// A tensor of a file.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
/// # Errors
///
/// Where values are to be read and cannot be.
pub fn rows(tree: &Tree, sums: Sums) -> Result<Vec<Row>, TensorFileError> {
    let mut rows = Vec::new();
    let mut loader = Loader::new(KEEP);
    add_rows(tree, &mut String::new(), sums, &mut loader, &mut rows, &mut MOST_PATHS.get())?;
    Ok(rows)
}

/// The sum; values that have none are read all the same, for the sake of their checksum.
fn checked_sum(loader: &mut Loader, tensor: &Tensor) -> Result<Option<f64>, TensorFileError> {
    let sum = sum(loader, tensor)?;
    let storage = tensor.storage();
    if sum.is_some() || matches!(storage.source, Source::Nowhere) {
        return Ok(sum);
    }
    if loader.keeps(storage) {
        loader.whole(storage)?;
    } else if tensor.bytes() == storage.bytes() {
        storage.stream(0, storage.bytes(), |_| Ok(()))?;
    }
    Ok(None)
}

fn add_rows(
    tree: &Tree,
    path: &mut String,
    sums: Sums,
    loader: &mut Loader,
    rows: &mut Vec<Row>,
    room: &mut u64,
) -> Result<(), TensorFileError> {
    if let Tree::Tensor(tensor) = tree {
        *room = room.checked_sub(path.len() as u64 + 1).ok_or_else(|| {
            let place = Place::Value(path.chars().take(200).collect());
            tensor.storage().file.malformed(place, format!("the paths of all tensors take more than {MOST_PATHS}"))
        })?;
        rows.push(Row {
            path: path.clone(),
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
            stride: tensor.stride().to_vec(),
            bytes: Bytes(tensor.bytes()),
            sum: if sums == Sums::Compute { checked_sum(loader, tensor)? } else { None },
        });
        return Ok(());
    }
    for (name, child) in tree.children() {
        let length = path.len();
        if length > 0 {
            path.push('.');
        }
        path.push_str(&name);
        add_rows(child, path, sums, loader, rows, room)?;
        path.truncate(length);
    }
    Ok(())
}
