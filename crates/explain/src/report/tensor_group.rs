//! Tensors that have something in common: what they are, or the line of code that made them.

use lowtide_core::Bytes;
use serde::Serialize;

use crate::CodeLine;

/// Tensors that were in memory when it ran out.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TensorGroup {
    /// What they are, such as `parameters`, or the name of a variable; none where only their place is known.
    pub name: Option<String>,
    /// The line of the program's own code that made them, or in which the variable is.
    pub place: Option<CodeLine>,
    /// The shape of a variable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shape: Vec<u64>,
    /// The type of a variable, such as `float32`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// What they hold together.
    pub bytes: Bytes,
    /// How many they are.
    pub count: u64,
}
