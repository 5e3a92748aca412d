//! Tensors whose size the settings multiply to.

use lowtide_core::Bytes;

use super::names::{ATTENDED, from_names, is_of_language, kind};
use crate::Activity;
use crate::facts::{BF16, Dtype, FP16, FP32, Facts, Key};
use crate::log::Event;
use crate::verdict::Culprit;

pub(crate) const WHOLE_FRAMES: &str = "whole frames";
/// What attention without a fused kernel draws for its dropout, a byte for each score.
const DROPPED: &str = "the mask of attention's dropout";
const BOOL: Dtype = Dtype { name: "bool", bytes: 1 };

/// Shapes that the settings give, each tried with the types it may have.
pub(super) fn from_settings(event: &Event, facts: &Facts<'_>, activity: Option<Activity>) -> Option<Culprit> {
    let tried = event.oom.requested?;
    // The smallest segments of the allocator stand for any small tensor.
    if tried <= Bytes::from_mib(20) {
        return None;
    }
    let mut batches: Vec<u64> = match activity {
        Some(Activity::Evaluation) => facts.number(Key::EvalBatch).into_iter().chain(facts.batch()).collect(),
        _ => facts.batch().into_iter().collect(),
    };
    let own = facts.dtype().unwrap_or(FP32);
    let mut dtypes = vec![own];
    dtypes.extend([FP32, BF16, FP16].into_iter().filter(|dtype| dtype.bytes != own.bytes).take(1));
    let is_guessed = batches.is_empty();
    if is_guessed {
        batches.extend(batch_of_logits(facts, own, tried));
    }
    let activations = batches.into_iter().flat_map(|batch| activations(batch, facts));
    let candidates: Vec<Named> = match activity {
        Some(Activity::Optimizer) if !is_guessed => weights(facts).into_iter().chain(activations).collect(),
        _ => activations.chain(weights(facts)).collect(),
    };
    let mut fitting: Vec<(&str, Vec<u64>, Dtype, u64)> = Vec::new();
    for (name, shape) in candidates {
        let types = if name == DROPPED { &[BOOL][..] } else { &dtypes };
        let fits = types.iter().find_map(|dtype| {
            let bytes = product(&shape)?.checked_mul(dtype.bytes)?;
            is_size(bytes, tried).then_some((*dtype, bytes))
        });
        if let Some((dtype, bytes)) = fits
            && !fitting.iter().any(|(known, ..)| *known == name)
        {
            fitting.push((name, shape, dtype, bytes));
        }
    }
    let by_stack = from_names(event, activity).map(|culprit| culprit.name);
    let agrees = |name: &str| by_stack.as_ref().is_some_and(|stack| is_same_kind(name, stack));
    // Another type than the one that is computed in is seldom asked for.
    let rank = |(name, _, dtype, _): &(&str, Vec<u64>, Dtype, u64)| (agrees(name), dtype.bytes == own.bytes);
    let best = fitting.iter().map(rank).max();
    let chosen = fitting.iter().position(|it| Some(rank(it)) == best).unwrap_or(0);
    let (name, shape, dtype, bytes) = fitting.get(chosen)?.clone();
    let is_in_stack = agrees(name);
    // A type that nothing computes in, where the stack goes elsewhere, is a coincidence.
    if dtype.bytes != own.bytes && by_stack.is_some() && !is_in_stack {
        return None;
    }
    let (certainty, how) = match (is_guessed, is_in_stack, fitting.len()) {
        (true, false, _) => (0.5, "a batch of this size would multiply to the size asked for".to_owned()),
        (_, true, _) => {
            (0.9, "the settings multiply to exactly the size asked for, and the stack goes there".to_owned())
        }
        (false, false, 1) => (0.85, "the settings multiply to exactly the size asked for".to_owned()),
        (false, false, many) => (0.6, format!("the settings multiply to the size asked for, as {many} tensors do")),
    };
    let (dtype, bytes) = (Some(dtype.name.to_owned()), Some(Bytes(bytes)));
    Some(Culprit { shape, dtype, bytes, ..kind(event, name, &how, certainty) })
}

/// Whether two names are of the same kind of tensor.
fn is_same_kind(one: &str, other: &str) -> bool {
    ["logits", "attention", "feed-forward", "moment", "weights", "queries", "hidden states"]
        .iter()
        .any(|kind| one.contains(kind) && other.contains(kind))
}

/// The batch whose logits are that large, where no setting gives one.
fn batch_of_logits(facts: &Facts<'_>, dtype: Dtype, tried: Bytes) -> Option<u64> {
    let sample = facts.sequence()?.checked_mul(facts.vocabulary()?)?.checked_mul(dtype.bytes)?;
    // A figure in GiB is printed to a hundredth: where samples are hardly larger, any size is a whole number of them.
    if sample < 64 << 20 {
        return None;
    }
    let batch = tried.get().checked_add(sample / 2)?.checked_div(sample)?;
    (batch > 0 && is_size(batch.checked_mul(sample)?, tried)).then_some(batch)
}

type Named = (&'static str, Vec<u64>);

fn activations(batch: u64, facts: &Facts<'_>) -> Vec<Named> {
    let mut found = Vec::new();
    let nanogpt = facts.is_nanogpt();
    let or = |key, usual: u64| facts.number(key).or_else(|| nanogpt.then_some(usual));
    if let Some(sequence) = facts.sequence() {
        if let Some(vocabulary) = facts.vocabulary() {
            found.push(("logits", vec![batch, sequence, vocabulary]));
            found.push((
                "logits, all but the last of each sequence",
                vec![batch, sequence - sequence.min(1), vocabulary],
            ));
        }
        if let Some(heads) = or(Key::Heads, 12) {
            found.push(("attention scores", vec![batch, heads, sequence, sequence]));
            found.push((DROPPED, vec![batch, heads, sequence, sequence]));
        }
        if let Some(width) = or(Key::Width, 768) {
            let inner = facts.number(Key::Inner).unwrap_or(width.saturating_mul(4));
            found.push(("activations inside the feed-forward part", vec![batch, sequence, inner]));
            found.push(("queries, keys and values", vec![batch, sequence, width.saturating_mul(3)]));
            found.push(("hidden states", vec![batch, sequence, width]));
            found.push((ATTENDED, vec![batch, sequence, width]));
        }
    }
    if let (Some(frames), Some((height, width))) = (facts.number(Key::Frames), facts.frame()) {
        for channels in [3, 1, 32, 48, 60, 64, 96, 120, 128, 180, 256] {
            found.push((WHOLE_FRAMES, vec![batch, frames, channels, height, width]));
        }
    }
    found
}

fn weights(facts: &Facts<'_>) -> Vec<Named> {
    let nanogpt = facts.is_nanogpt();
    let Some(width) = facts.number(Key::Width).or_else(|| nanogpt.then_some(768)) else {
        return Vec::new();
    };
    let inner = facts.number(Key::Inner).unwrap_or(width.saturating_mul(4));
    let mut found = Vec::new();
    if let Some(vocabulary) = facts.vocabulary() {
        found.push(("the embedding, or its gradient or moment", vec![vocabulary, width]));
    }
    found.push(("a feed-forward weight, or its gradient or moment", vec![inner, width]));
    found
}

/// Common sizes of video frames, height and width.
const COMMON_FRAMES: [(u64, u64); 6] = [(1080, 1920), (720, 1280), (2160, 3840), (1440, 2560), (480, 854), (540, 960)];

/// Frames evaluated whole: a round number of values for each pixel of a frame.
pub(super) fn from_frames(event: &Event, facts: &Facts<'_>, activity: Option<Activity>) -> Option<Culprit> {
    if activity != Some(Activity::Evaluation) || facts.vocabulary().is_some() || is_of_language(event) {
        return None;
    }
    let tried = event.oom.requested.filter(|tried| *tried > Bytes::from_mib(64))?;
    let crops = facts.number(Key::Crop).is_some() && facts.number(Key::EvalCrop).is_none();
    let known = facts.frame();
    let sizes: Vec<(u64, u64)> = known.map_or(COMMON_FRAMES.to_vec(), |frame| vec![frame]);
    let solved = sizes.into_iter().find_map(|(height, width)| {
        let pixels = height * width;
        let values = (tried.get() + pixels * 2) / (pixels * 4);
        let is_round = values >= 16 && values >> values.trailing_zeros() <= 5;
        (is_round && is_size(values * pixels * 4, tried)).then_some((height, width, values))
    });
    let certainty = match (solved.is_some(), crops, known.is_some()) {
        (true, true, _) | (true, _, true) => 0.85,
        (true, false, false) => 0.6,
        (false, true, _) => 0.6,
        (false, false, _) => return None,
    };
    let how = match solved {
        Some((height, width, values)) => format!(
            "the size asked for is {values} fp32 values (frames x channels) for each of {width} x {height} pixels{}",
            if crops { ", and the configuration crops frames for training only" } else { "" }
        ),
        None => "the configuration crops frames for training only, so evaluation sees whole ones".to_owned(),
    };
    let shape = solved.map_or(Vec::new(), |(height, width, values)| vec![values, height, width]);
    let (dtype, bytes) = match &*shape {
        [] => (None, None),
        shape => (Some("fp32".to_owned()), product(shape).map(|count| Bytes(count * 4))),
    };
    Some(Culprit { name: WHOLE_FRAMES.to_owned(), shape, dtype, bytes, how, certainty })
}

/// Whether a tensor of so many bytes is a request that is printed as `tried`: rounded to 2 MiB, printed with two
/// decimals.
pub(crate) fn is_size(bytes: u64, tried: Bytes) -> bool {
    let rounded = if bytes >= 10 << 20 { bytes.checked_next_multiple_of(2 << 20).unwrap_or(bytes) } else { bytes };
    [bytes, rounded].iter().any(|bytes| Bytes(*bytes) == tried || Bytes(*bytes).to_string() == tried.to_string())
}

/// The number of elements.
pub(super) fn product(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size))
}
