//! Samples: what a model is shown at a time, as named values and as parts of one buffer.

mod buffered_sample;
mod field_summary;
mod sample;
mod scores;

pub use buffered_sample::BufferedSample;
pub(crate) use buffered_sample::{RecordPlace, Room, no_memory, take_memory};
pub use field_summary::{FieldSummaries, FieldSummary, Shapes};
pub use sample::{Field, FieldValue, Sample, UnsupportedField, tensors_of};
pub(crate) use sample::{ID_NAMES, SAMPLE_BYTES, field_bytes};
pub use scores::{Scores, write_scores};
