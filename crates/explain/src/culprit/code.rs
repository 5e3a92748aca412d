//! Tensors that the code in a stack allocates.

use lowtide_core::Bytes;

use super::names::{is_of_language, kind};
use super::size::{is_size, product};
use crate::facts::{Dtype, FP32, Facts, dtype_named};
use crate::log::Event;
use crate::verdict::Culprit;

/// `empty_strided_cuda((65536, 50304), (50304, 1), torch.bfloat16)` in a frame's code.
pub(super) fn from_code(event: &Event, facts: &Facts<'_>) -> Option<Culprit> {
    let tried = event.oom.requested?;
    event.circumstances.frames.iter().rev().find_map(|frame| {
        let (shape, dtype) = allocation(&frame.code)?;
        let bytes = product(&shape)?.checked_mul(dtype.bytes)?;
        is_size(bytes, tried).then(|| {
            let (name, shape) = named(&shape, facts, is_of_language(event));
            let how = "the stack's last line of code allocates this shape, and its size is the size asked for";
            let (dtype, bytes) = (Some(dtype.name.to_owned()), Some(Bytes(bytes)));
            Culprit { shape, dtype, bytes, ..kind(event, name, how, 0.97) }
        })
    })
}

/// The first tuple of numbers in a call that allocates, with its type.
pub(crate) fn allocation(code: &str) -> Option<(Vec<u64>, Dtype)> {
    let start = ["empty_strided", "torch.empty", "torch.zeros", "torch.ones", "torch.full", "new_empty", "new_zeros"]
        .iter()
        .find_map(|call| code.find(call))?;
    let rest = &code[start..];
    let (_, inner) = rest.split_once('(')?;
    let inner = inner.trim_start_matches(['(', '[']);
    let shape: Vec<u64> = inner
        .split([')', ']'])
        .next()?
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map_while(|part| part.parse().ok())
        .collect();
    let dtype = rest.match_indices("torch.").find_map(|(at, _)| {
        let name: String = rest[at + 6..].chars().take_while(char::is_ascii_alphanumeric).collect();
        dtype_named(&name)
    });
    (!shape.is_empty()).then(|| (shape, dtype.unwrap_or(FP32)))
}

/// A shape's name; tokens that are a batch of sequences are shown as one.
fn named(shape: &[u64], facts: &Facts<'_>, is_of_language: bool) -> (&'static str, Vec<u64>) {
    let last = shape.last().copied().unwrap_or_default();
    let is_vocabulary = facts.vocabulary() == Some(last) || (is_of_language && last >= 30_000 && shape.len() >= 2);
    let name = if is_vocabulary { "logits" } else { "a tensor of this shape" };
    if let ([tokens, _], Some(sequence)) = (shape, facts.sequence())
        && sequence > 0
        && tokens.is_multiple_of(sequence)
    {
        return (name, vec![tokens / sequence, sequence, last]);
    }
    (name, shape.to_vec())
}
