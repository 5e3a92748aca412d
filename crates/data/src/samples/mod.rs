//! Samples: what a model is shown at a time, as named values and as parts of one buffer.

mod buffered_sample;
mod field_names;
mod field_summary;
mod id;
mod room;
mod sample;
mod scores;

pub use buffered_sample::BufferedSample;
pub(crate) use buffered_sample::{RecordPlace, no_memory};
pub(crate) use field_names::FieldNames;
pub use field_summary::{FieldSummaries, FieldSummary, Shapes};
pub(crate) use id::{ID_NAMES, id_of};
pub(crate) use room::Room;
pub use sample::{Field, FieldValue, Sample, UnsupportedField, tensors_of};
pub(crate) use sample::{SAMPLE_BYTES, field_bytes};
pub use scores::{Scores, write_scores};
