//! The ways to a culprit, the surest first: the message, the code in the stack, then settings and names.

use lowtide_core::Bytes;
use lowtide_oom::{Engine, Place, Source};

use super::names::{from_names, is_of_language, kind};
use super::settings::{from_frames, from_settings, is_size, product};
use crate::facts::{Dtype, FP32, Facts, dtype_named};
use crate::log::Event;
use crate::verdict::Culprit;
use crate::{Activity, CodeLine};

const MESSAGE: &str = "the message gives its shape";

/// Names what the request was for.
pub(crate) fn culprit(event: &Event, facts: &Facts<'_>, activity: Option<Activity>) -> Option<Culprit> {
    if event.oom.place == Place::Host {
        // The processor's tensors are the same as a device's.
        let tensors = || from_code(event, facts).or_else(|| from_settings(event, facts, activity));
        let tensors = || facts.computes_on_host.then(tensors).flatten();
        return from_message(event).or_else(tensors).or_else(|| host(event, activity));
    }
    if let Some(requests) = event.dummy_requests() {
        return Some(logits_of_sampler(event, facts, requests));
    }
    if event.oom.source != Source::Allocator {
        return from_library(event);
    }
    from_shape(event)
        .or_else(|| from_code(event, facts))
        .or_else(|| from_settings(event, facts, activity))
        .or_else(|| from_frames(event, facts, activity))
        .or_else(|| from_names(event, activity))
}

/// What the line that asked puts it into: `scores` of `scores = query @ key`.
pub(crate) fn culprit_of_line(event: &Event, code: &CodeLine) -> Option<Culprit> {
    let (target, rest) = code.code.split_once('=')?;
    let target = target.trim_end_matches(['+', '-', '*', '/', '@']).trim();
    let is_name = !target.is_empty() && target.chars().all(|letter| letter.is_alphanumeric() || "_.".contains(letter));
    let how = "the process wrote down the line that asked for it";
    (is_name && !rest.starts_with('=')).then(|| kind(event, &format!("`{target}`"), how, 0.9))
}

/// The logits of as many requests as there may be at once, each over the whole vocabulary.
fn logits_of_sampler(event: &Event, facts: &Facts<'_>, requests: u64) -> Culprit {
    let how = "the message says that the sampler was warmed up, with as many requests as there may be at once";
    let shape = facts.vocabulary().map_or(Vec::new(), |vocabulary| vec![requests, vocabulary]);
    let bytes = match &*shape {
        [] => event.oom.requested,
        shape => product(shape).and_then(|count| count.checked_mul(FP32.bytes)).map(Bytes),
    };
    let dtype = (!shape.is_empty()).then(|| FP32.name.to_owned());
    Culprit { shape, dtype, bytes, ..kind(event, "logits of the sampler (requests x vocabulary)", how, 0.9) }
}

/// What libraries ask the driver for by themselves.
fn from_library(event: &Event) -> Option<Culprit> {
    let name = match event.oom.source {
        Source::Blas => "the handle and the workspace of cuBLAS",
        Source::Dnn => "the workspace of cuDNN",
        Source::Collectives => "the buffers of NCCL",
        _ => return None,
    };
    Some(kind(event, name, "the message is the library's", 0.7))
}

/// What the machine's memory was for.
fn host(event: &Event, activity: Option<Activity>) -> Option<Culprit> {
    let is_worker = activity == Some(Activity::DataWorker) || event.oom.source == Source::DataWorker;
    let (name, how) = match event.oom.source {
        Source::SharedMemory if event.oom.engine == Engine::Cuda => {
            ("what NCCL shares between the ranks of a machine", "the message is NCCL's")
        }
        Source::SharedMemory => ("batches passed between data workers", "they pass through shared memory"),
        _ if is_worker && event.message.contains("during map operation") => {
            ("rows that the processes of map hold", "one of them ran out or was killed")
        }
        _ if is_worker => ("samples held by data workers", "a data worker ran out or was killed"),
        _ => return from_names(event, activity),
    };
    Some(kind(event, name, how, 0.7))
}

/// `Unable to allocate 5.5 GiB for an array with shape (10, 20) and data type float64`.
fn from_message(event: &Event) -> Option<Culprit> {
    let (_, rest) = event.message.split_once(" with shape (")?;
    let (inner, rest) = rest.split_once(')')?;
    let shape = leading_numbers(inner);
    let dtype =
        rest.split_once("data type ").map(|(_, name)| name.split_whitespace().next().unwrap_or_default().to_owned());
    (!shape.is_empty()).then(|| Culprit { shape, dtype, ..kind(event, "an array", MESSAGE, 0.97) })
}

/// TensorFlow's `OOM when allocating tensor with shape[64,1024,8192] and type float on ...`.
fn from_shape(event: &Event) -> Option<Culprit> {
    let mut texts = std::iter::once(&*event.message).chain(event.also.iter().map(|(_, text)| &**text));
    texts.find_map(|text| {
        let (_, rest) = text.split_once("tensor with shape[")?;
        let (inner, rest) = rest.split_once(']')?;
        let shape: Option<Vec<u64>> = inner.split(',').map(|part| part.trim().parse().ok()).collect();
        let shape = shape?;
        let name = rest.strip_prefix(" and type ")?.split_whitespace().next()?;
        let dtype = dtype_named(name);
        let bytes = dtype.and_then(|dtype| product(&shape)?.checked_mul(dtype.bytes)).map(Bytes);
        let (dtype, bytes) = (Some(dtype.map_or(name, |dtype| dtype.name).to_owned()), bytes.or(event.oom.requested));
        Some(Culprit { shape, dtype, bytes, ..kind(event, "a tensor of this shape", MESSAGE, 0.97) })
    })
}

/// `empty_strided_cuda((65536, 50304), (50304, 1), torch.bfloat16)` in a frame's code.
fn from_code(event: &Event, facts: &Facts<'_>) -> Option<Culprit> {
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
    let shape = leading_numbers(inner.split([')', ']']).next()?);
    let dtype = rest.match_indices("torch.").find_map(|(at, _)| {
        let name: String = rest[at + 6..].chars().take_while(char::is_ascii_alphanumeric).collect();
        dtype_named(&name)
    });
    (!shape.is_empty()).then(|| (shape, dtype.unwrap_or(FP32)))
}

/// The numbers of a list, up to what is none.
fn leading_numbers(list: &str) -> Vec<u64> {
    let parts = list.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map_while(|part| part.parse().ok()).collect()
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
