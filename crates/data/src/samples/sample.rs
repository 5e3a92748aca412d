//! What a model is shown at a time.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use lowtide_core::Bytes;
use lowtide_tensorfile::{Dtype, Place, TensorFileError};
use thiserror::Error;

use crate::DataError;
use crate::shard::{FieldKind, Tensor};

/// Names under which people keep what tells samples apart.
pub(crate) const ID_NAMES: [&str; 6] = ["id", "ids", "question_id", "question_ids", "sample_id", "sample_ids"];

/// One sample: its fields in the order of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Its fields.
    pub fields: Vec<Field>,
}

/// A named value of a sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// The column it came from, and the keys within that, such as `graphs.edge_index`.
    pub name: Arc<str>,
    /// The value.
    pub value: FieldValue,
}

/// A value of a sample.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldValue {
    /// A string.
    Text(String),
    /// Numbers; a single one is an array without dimensions.
    Array {
        /// The type of the values. Python's integers are `int64`, its floats `float64`.
        dtype: Dtype,
        /// How many values there are along each dimension.
        shape: Vec<u64>,
        /// The values in rows, one after another, in the byte order of this machine.
        bytes: Vec<u8>,
    },
}

impl Sample {
    /// The value of a field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&FieldValue> {
        self.fields.iter().find(|field| &*field.name == name).map(|field| &field.value)
    }

    /// Its id, as a table writes it.
    pub(crate) fn id(&self) -> Option<String> {
        match ID_NAMES.iter().find_map(|name| self.get(name))? {
            FieldValue::Text(text) => Some(text.trim().to_owned()),
            FieldValue::Array { dtype: Dtype::Int64, shape, bytes } if shape.is_empty() => {
                Some(i64::from_ne_bytes(bytes[..].try_into().ok()?).to_string())
            }
            FieldValue::Array { .. } => None,
        }
    }

    /// Memory that it takes, its names left out: all samples of a file share those.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.fields.iter().fold(SAMPLE_BYTES, |sum, field| {
            let (values, dimensions) = match &field.value {
                FieldValue::Text(text) => (text.len(), 0),
                FieldValue::Array { shape, bytes, .. } => (bytes.len(), shape.len()),
            };
            sum.saturating_add(field_bytes(values as u64, dimensions))
        })
    }
}

/// A field of a type that a shard does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("field `{}` has values of {kind}, which a shard does not hold", field.escape_debug())]
pub struct UnsupportedField {
    /// The field.
    pub field: Arc<str>,
    /// What it holds.
    pub kind: FieldKind,
}

impl UnsupportedField {
    /// The same, as an error of the file that the sample came from.
    #[must_use]
    pub fn in_file(self, file: &Path) -> DataError {
        let error = TensorFileError::Unsupported {
            file: file.to_owned(),
            place: Place::Value(self.field.to_string()),
            what: format!("a sample with values of {}", self.kind),
            hint: Some("save it as plain numbers, such as float32 or int64"),
        };
        error.into()
    }
}

/// The sample as the tensors of a [record](crate::shard::Record): what [`Writer::append`](crate::shard::Writer::append) takes.
///
/// # Errors
///
/// Where a field has a type that a shard does not hold.
pub fn tensors_of(sample: &Sample) -> Result<Vec<Tensor<'_>>, UnsupportedField> {
    // Samples are in the byte order of the machine, and shards little-endian.
    const { assert!(cfg!(target_endian = "little")) };
    let tensors = sample.fields.iter().map(|field| {
        let (kind, shape, bytes) = match &field.value {
            FieldValue::Text(text) => (FieldKind::Text, Cow::Owned(vec![text.len() as u64]), text.as_bytes()),
            FieldValue::Array { dtype, shape, bytes } => {
                (FieldKind::Array(*dtype), Cow::Borrowed(&shape[..]), &bytes[..])
            }
        };
        match kind.number() {
            Some(_) => Ok(Tensor { name: &field.name, kind, shape, bytes }),
            None => Err(UnsupportedField { field: Arc::clone(&field.name), kind }),
        }
    });
    tensors.collect()
}

/// Memory of a sample without fields.
pub(crate) const SAMPLE_BYTES: Bytes = Bytes(size_of::<Sample>() as u64);

/// Memory of a field with so many bytes of values and so many dimensions.
pub(crate) fn field_bytes(values: u64, dimensions: usize) -> Bytes {
    let held = size_of::<Field>() + dimensions * size_of::<u64>();
    Bytes(values.saturating_add(held as u64))
}
