//! Shapes that the message itself gives.

use lowtide_core::Bytes;

use super::names::kind;
use super::size::product;
use crate::facts::dtype_named;
use crate::log::Event;
use crate::verdict::Culprit;

const HOW: &str = "the message gives its shape";

/// `Unable to allocate 5.5 GiB for an array with shape (10, 20) and data type float64`.
pub(super) fn from_message(event: &Event) -> Option<Culprit> {
    let (_, rest) = event.message.split_once(" with shape (")?;
    let (inner, rest) = rest.split_once(')')?;
    let shape: Vec<u64> =
        inner.split(',').map(str::trim).filter(|part| !part.is_empty()).map_while(|part| part.parse().ok()).collect();
    let dtype =
        rest.split_once("data type ").map(|(_, name)| name.split_whitespace().next().unwrap_or_default().to_owned());
    (!shape.is_empty()).then(|| Culprit { shape, dtype, ..kind(event, "an array", HOW, 0.97) })
}

/// TensorFlow's `OOM when allocating tensor with shape[64,1024,8192] and type float on ...`.
pub(super) fn from_shape(event: &Event) -> Option<Culprit> {
    let texts = std::iter::once(&*event.message).chain(event.also.iter().map(|(_, text)| &**text));
    texts.into_iter().find_map(|text| {
        let (_, rest) = text.split_once("tensor with shape[")?;
        let (inner, rest) = rest.split_once(']')?;
        let shape: Option<Vec<u64>> = inner.split(',').map(|part| part.trim().parse().ok()).collect();
        let shape = shape?;
        let name = rest.strip_prefix(" and type ")?.split_whitespace().next()?;
        let dtype = dtype_named(name);
        let bytes = dtype.and_then(|dtype| product(&shape)?.checked_mul(dtype.bytes)).map(Bytes);
        let (dtype, bytes) = (Some(dtype.map_or(name, |dtype| dtype.name).to_owned()), bytes.or(event.oom.requested));
        Some(Culprit { shape, dtype, bytes, ..kind(event, "a tensor of this shape", HOW, 0.97) })
    })
}
