//! What a model is shown at a time.

use std::sync::Arc;

use lowtide_core::Bytes;

use crate::Dtype;

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

/// Memory of a sample without fields.
pub(crate) const SAMPLE_BYTES: Bytes = Bytes(size_of::<Sample>() as u64);

/// Memory of a field with so many bytes of values and so many dimensions.
pub(crate) fn field_bytes(values: u64, dimensions: usize) -> Bytes {
    let held = size_of::<Field>() + dimensions * size_of::<u64>();
    Bytes(values.saturating_add(held as u64))
}
