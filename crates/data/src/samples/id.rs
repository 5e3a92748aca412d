//! What tells samples apart.

use lowtide_tensorfile::Dtype;

use super::{FieldValue, Sample};

/// Names under which people keep it.
pub(crate) const ID_NAMES: [&str; 6] = ["id", "ids", "question_id", "question_ids", "sample_id", "sample_ids"];

/// The id of a sample, as a table writes it.
pub(crate) fn id_of(sample: &Sample) -> Option<String> {
    match ID_NAMES.iter().find_map(|name| sample.get(name))? {
        FieldValue::Text(text) => Some(text.trim().to_owned()),
        FieldValue::Array { dtype: Dtype::Int64, shape, bytes } if shape.is_empty() => {
            Some(i64::from_ne_bytes(bytes[..].try_into().ok()?).to_string())
        }
        FieldValue::Array { .. } => None,
    }
}
