//! Values to be written.

use std::borrow::Cow;

use crate::tensors::Dtype;

/// A value that `torch.load` can give back, with `weights_only=True` too.
#[derive(Debug, Clone, PartialEq)]
pub enum PtValue<'a> {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A string.
    Str(Cow<'a, str>),
    /// A list.
    List(Vec<PtValue<'a>>),
    /// A tuple.
    Tuple(Vec<PtValue<'a>>),
    /// A dict; keys are none of lists, dicts and tensors.
    Dict(Vec<(PtValue<'a>, PtValue<'a>)>),
    /// A tensor on the CPU, with a storage of its own.
    Tensor(PtTensor<'a>),
}

/// A tensor to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PtTensor<'a> {
    /// The type of its values: one of the plain ones, `float8` and `uint16` and the like are not among them.
    pub dtype: Dtype,
    /// How many values there are along each dimension.
    pub shape: Vec<u64>,
    /// The values in rows, one after another, in the byte order of this machine.
    pub bytes: Cow<'a, [u8]>,
}
