//! What all samples of a file add up to, and what it takes to know them.

use std::sync::Arc;

use lowtide_core::Bytes;
use lowtide_tensorfile::{Source, Tensor, TensorFile, Tree};

use super::leaf::{Leaf, each_leaf};
use super::pending_field::PendingField;
use crate::DataError;
use crate::samples::{FieldSummaries, field_bytes};
use crate::shard::FieldKind;

/// What all samples of a file add up to.
pub(super) struct Survey {
    pub(super) file: Arc<TensorFile>,
    pub(super) fields: FieldSummaries,
    pub(super) bytes: Bytes,
    pub(super) largest_storage: u64,
    /// Memory of the list of what is to be read.
    pub(super) views: Bytes,
}

impl Survey {
    pub(super) fn value(&mut self, name: &str, tree: &Tree) -> Result<(), DataError> {
        each_leaf(tree, &mut name.to_owned(), &mut |name, leaf| {
            self.fields.see(name, leaf.kind(), leaf.shape(), 1);
            self.file.check_tables(Bytes(self.fields.name_bytes()))?;
            self.bytes = self.bytes.saturating_add(field_bytes(leaf.bytes(), leaf.shape().len()));
            if let Leaf::View(view) = leaf {
                self.views(&view, view.shape().len(), 1);
            }
            Ok::<_, DataError>(())
        })
    }

    pub(super) fn rows(&mut self, name: &str, tensor: &Tensor) {
        let Some((rows, shape)) = tensor.shape().split_first() else { return };
        self.fields.see(name, FieldKind::Array(tensor.dtype()), shape, *rows);
        let held = field_bytes(0, shape.len()).saturating_mul(*rows);
        self.bytes = self.bytes.saturating_add(held).saturating_add(Bytes(tensor.bytes()));
        self.views(tensor, shape.len(), *rows);
    }

    fn views(&mut self, tensor: &Tensor, dimensions: usize, count: u64) {
        if !matches!(tensor.storage().source(), Source::Nowhere) {
            self.largest_storage = self.largest_storage.max(tensor.storage().bytes());
        }
        let held = size_of::<PendingField>() + 2 * dimensions * size_of::<u64>();
        self.views = self.views.saturating_add(Bytes(held as u64).saturating_mul(count));
    }
}

/// Bytes of values that a tree tells of and that are in no file: those of meta tensors.
pub(super) fn values_nowhere(tree: &Tree) -> u64 {
    match tree.tensor() {
        Some(tensor) if matches!(tensor.storage().source(), Source::Nowhere) => tensor.bytes(),
        Some(_) => 0,
        None => tree.parts().fold(0, |sum: u64, part| sum.saturating_add(values_nowhere(part))),
    }
}

/// For a value of a tree: itself, its node of the pickle, both in lists that grew, and the way to it.
const VALUE_BYTES: u64 = 160;
/// For a tensor and its storage, with its entry of the archive and its place in each table.
const TENSOR_BYTES: u64 = 1400;

/// Memory that a tree takes, and took to be made: at most about this.
pub(super) fn tree_bytes(tree: &Tree) -> u64 {
    let own = match tree {
        Tree::Str(text) | Tree::BigInt(text) | Tree::Class(text) | Tree::Device(text) => 3 * text.len() as u64,
        Tree::Bytes(bytes) => 3 * bytes.len() as u64,
        Tree::Tensor(tensor) => match tensor.storage().source() {
            Source::Memory(bytes) => TENSOR_BYTES + 2 * bytes.len() as u64,
            _ => TENSOR_BYTES,
        },
        Tree::Blob(_) => TENSOR_BYTES,
        Tree::Object { class, .. } => class.len() as u64,
        _ => 0,
    };
    let keys = match tree {
        Tree::Dict(fields) | Tree::OrderedDict(fields) | Tree::Object { fields, .. } => {
            fields.iter().fold(0, |sum: u64, (key, _)| sum.saturating_add(tree_bytes(key)))
        }
        _ => 0,
    };
    let children = tree.children().map(|(_, child)| tree_bytes(child));
    children.fold(VALUE_BYTES + own + keys, u64::saturating_add)
}
