//! Arrays of samples that are still in the file.

use std::sync::Arc;

use lowtide_tensorfile::{StorageReader, Tensor};

use crate::DataError;
use crate::samples::{FieldValue, Sample};

/// An array of a sample that is still in the file.
pub(super) struct PendingField {
    pub(super) sample: usize,
    pub(super) field: usize,
    pub(super) view: Tensor,
}

/// Reads the storages, one at a time, and gives each sample its part.
pub(super) fn fill(samples: &mut [Sample], mut pending: Vec<PendingField>) -> Result<(), DataError> {
    pending.sort_by_key(|field| (field.view.storage().position(), Arc::as_ptr(field.view.storage())));
    let mut reader = StorageReader::default();
    for group in pending.chunk_by(|one, other| Arc::ptr_eq(one.view.storage(), other.view.storage())) {
        let mut storage = reader.read(group[0].view.storage())?;
        for one in group {
            let covers = group.len() == 1 && one.view.is_contiguous() && one.view.bytes() == storage.len() as u64;
            let read = if covers {
                one.view.to_this_machine(&mut storage);
                std::mem::take(&mut storage)
            } else {
                one.view.copy_out(&storage)?
            };
            if let FieldValue::Array { bytes, .. } = &mut samples[one.sample].fields[one.field].value {
                *bytes = read;
            }
        }
    }
    Ok(())
}
