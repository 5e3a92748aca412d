//! Which tensor a request was for: from the code in the stack, from sizes that settings multiply to, or from names in
//! the stack.

use lowtide_core::Bytes;
use lowtide_oom::{Place, Source};

use crate::event::Event;
use crate::facts::{BF16, Dtype, FP16, FP32, Facts, Key, dtype_named};
use crate::traceback::Frame;
use crate::verdict::{Activity, Culprit};

pub(crate) const WHOLE_FRAMES: &str = "whole frames";
/// What the optimizer makes for all tensors at once where it updates them together.
pub(crate) const FOREACH: &str = "temporaries of the optimizer's foreach update";
const WEIGHTS: &str = "the model's weights";

/// Names what the request was for.
pub(crate) fn culprit(event: &Event, facts: &Facts<'_>, activity: Option<Activity>) -> Option<Culprit> {
    if event.oom.place == Place::Host {
        return from_message(event).or_else(|| host(event, activity));
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

/// What libraries ask the driver for by themselves.
fn from_library(event: &Event) -> Option<Culprit> {
    let name = match event.oom.source {
        Source::Blas => "the handle and the workspace of cuBLAS",
        Source::Dnn => "the workspace of cuDNN",
        Source::Collectives => "the buffers of NCCL",
        _ => return None,
    };
    Some(Culprit {
        name: name.to_owned(),
        shape: Vec::new(),
        dtype: None,
        bytes: event.oom.requested,
        how: "the message is the library's".to_owned(),
        certainty: 0.7,
    })
}

/// Whether a tensor of so many bytes is a request that is printed as `tried`: rounded to 2 MiB, printed with two
/// decimals.
fn is_size(bytes: u64, tried: Bytes) -> bool {
    let rounded = if bytes >= 10 << 20 { bytes.checked_next_multiple_of(2 << 20).unwrap_or(bytes) } else { bytes };
    [bytes, rounded].iter().any(|bytes| Bytes(*bytes) == tried || Bytes(*bytes).to_string() == tried.to_string())
}

fn product(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size))
}

/// `empty_strided_cuda((65536, 50304), (50304, 1), torch.bfloat16)` in a frame's code.
fn from_code(event: &Event, facts: &Facts<'_>) -> Option<Culprit> {
    let tried = event.oom.requested?;
    event.surroundings.frames.iter().rev().find_map(|frame| {
        let (shape, dtype) = allocation(&frame.code)?;
        let bytes = product(&shape)?.checked_mul(dtype.bytes)?;
        is_size(bytes, tried).then(|| {
            let (name, shape) = named(&shape, facts, is_of_language(event));
            Culprit {
                name: name.to_owned(),
                shape,
                dtype: Some(dtype.name.to_owned()),
                bytes: Some(Bytes(bytes)),
                how: "the stack's last line of code allocates this shape, and its size is the size asked for"
                    .to_owned(),
                certainty: 0.97,
            }
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

/// Shapes that the settings give, each tried with the types it may have.
fn from_settings(event: &Event, facts: &Facts<'_>, activity: Option<Activity>) -> Option<Culprit> {
    let tried = event.oom.requested?;
    // The smallest segments of the allocator stand for any small tensor.
    if tried <= Bytes::from_mib(20) {
        return None;
    }
    let batches: Vec<u64> = match activity {
        Some(Activity::Evaluation) => facts.number(Key::EvalBatch).into_iter().chain(facts.batch()).collect(),
        _ => facts.batch().into_iter().collect(),
    };
    let own = facts.dtype().unwrap_or(FP32);
    let mut dtypes = vec![own];
    dtypes.extend([FP32, BF16, FP16].into_iter().filter(|dtype| dtype.bytes != own.bytes).take(1));
    let weights = weights(facts);
    let mut candidates = Vec::new();
    let is_guessed = batches.is_empty();
    if is_guessed && let Some(batch) = batch_of_logits(facts, own, tried) {
        candidates.extend(activations(batch, facts));
    }
    if activity == Some(Activity::Optimizer) {
        candidates.extend(weights.iter().cloned());
    }
    for batch in batches {
        candidates.extend(activations(batch, facts));
    }
    if activity != Some(Activity::Optimizer) {
        candidates.extend(weights);
    }
    let mut fitting: Vec<(&str, Vec<u64>, Dtype, u64)> = Vec::new();
    for (name, shape) in candidates {
        let fits = dtypes.iter().find_map(|dtype| {
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
    let chosen = fitting.iter().position(|(name, ..)| agrees(name)).unwrap_or(0);
    let (name, shape, dtype, bytes) = fitting.get(chosen)?.clone();
    let is_told = agrees(name);
    let (certainty, how) = match (is_guessed, is_told, fitting.len()) {
        (true, false, _) => (0.5, "a batch of this size would multiply to the size asked for".to_owned()),
        (_, true, _) => {
            (0.9, "the settings multiply to exactly the size asked for, and the stack goes there".to_owned())
        }
        (false, false, 1) => (0.85, "the settings multiply to exactly the size asked for".to_owned()),
        (false, false, many) => (0.6, format!("the settings multiply to the size asked for, as {many} tensors do")),
    };
    Some(Culprit {
        name: name.to_owned(),
        shape,
        dtype: Some(dtype.name.to_owned()),
        bytes: Some(Bytes(bytes)),
        how,
        certainty,
    })
}

/// Whether two names are of the same kind of tensor.
fn is_same_kind(one: &str, other: &str) -> bool {
    ["logits", "attention", "feed-forward", "moment", "weights"]
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
        }
        if let Some(width) = or(Key::Width, 768) {
            let inner = facts.number(Key::Inner).unwrap_or(width.saturating_mul(4));
            found.push(("activations inside the feed-forward part", vec![batch, sequence, inner]));
            found.push(("queries, keys and values", vec![batch, sequence, width.saturating_mul(3)]));
            found.push(("hidden states", vec![batch, sequence, width]));
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

/// Whether the stack is that of a language model, in which no frames are.
fn is_of_language(event: &Event) -> bool {
    let words = ["transformers/", "transformers\\", "logits", "lm_head", "input_ids", "token", "gpt", "llama", "bert"];
    event.surroundings.frames.iter().any(|frame| {
        words.iter().any(|word| frame.file.contains(word) || frame.code.contains(word) || frame.function.contains(word))
    })
}

/// Common sizes of video frames, height and width.
const COMMON_FRAMES: [(u64, u64); 6] = [(1080, 1920), (720, 1280), (2160, 3840), (1440, 2560), (480, 854), (540, 960)];

/// Frames evaluated whole: a round number of values for each pixel of a frame.
fn from_frames(event: &Event, facts: &Facts<'_>, activity: Option<Activity>) -> Option<Culprit> {
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

/// Names of functions and what they allocate, innermost frame first.
fn from_names(event: &Event, activity: Option<Activity>) -> Option<Culprit> {
    if event.surroundings.frames.last().is_some_and(Frame::makes_a_layer) {
        let name = WEIGHTS.to_owned();
        let how = "the stack ends where a layer is made".to_owned();
        return Some(Culprit { name, shape: Vec::new(), dtype: None, bytes: event.oom.requested, how, certainty: 0.8 });
    }
    for frame in event.surroundings.frames.iter().rev() {
        for (words, name) in STACK_NAMES {
            // A step that runs inside the optimizer's, as a closure, is none of the optimizer's.
            if name.contains("optimizer") && !matches!(activity, None | Some(Activity::Optimizer)) {
                continue;
            }
            let word = words.iter().find(|word| {
                frame.function.contains(**word) || frame.code.contains(**word) || frame.file.contains(**word)
            });
            if let Some(word) = word {
                let how = format!("the stack goes through `{word}`");
                return Some(Culprit {
                    name: (*name).to_owned(),
                    shape: Vec::new(),
                    dtype: None,
                    bytes: event.oom.requested,
                    how,
                    certainty: 0.7,
                });
            }
        }
    }
    None
}

const STACK_NAMES: &[(&[&str], &str)] = &[
    (&["_foreach_"], FOREACH),
    (&["_init_group", "exp_avg", "zeros_like(p"], "the optimizer's moments"),
    (&["clip_grad_norm_"], "norms of the gradients"),
    (&["torch/optim/", "optimizer.step("], "the optimizer's moments"),
    (&["cross_entropy", "log_softmax", "nll_loss", "CrossEntropyLoss"], "logits in the loss"),
    (&["nested_concat", "torch_pad_and_concatenate"], "outputs of a whole evaluation, gathered"),
    (&["lm_head", "logits = ", "logits.float("], "logits"),
    (&["scaled_dot_product_attention", "softmax", "baddbmm", "attn_weights", "attention_scores"], "attention scores"),
    (&["F.conv", "conv2d", "conv3d", "_conv_forward", "conv_transpose"], "activations of a convolution"),
    (&["all_gather", "_unshard", "all_gather_into_tensor"], "gathered parameters"),
    (&["load_state_dict", "torch.load(", "from_pretrained"], WEIGHTS),
    (&["_apply", ".cuda(", ".to(device"], WEIGHTS),
    (&["gelu", "relu", "silu", "mlp", "feed_forward"], "activations inside the feed-forward part"),
    (&["layer_norm", "batch_norm", "group_norm"], "activations of a normalisation"),
    (&["torch.cat", "torch.stack"], "tensors joined into one"),
    (&[".backward(", "run_backward"], "gradients of activations"),
    (&["F.linear", "linear.py"], "activations of a linear layer"),
];

/// `Unable to allocate 5.5 GiB for an array with shape (10, 20) and data type float64`.
fn from_message(event: &Event) -> Option<Culprit> {
    let (_, rest) = event.message.split_once(" with shape (")?;
    let (inner, rest) = rest.split_once(')')?;
    let shape: Vec<u64> =
        inner.split(',').map(str::trim).filter(|part| !part.is_empty()).map_while(|part| part.parse().ok()).collect();
    let dtype =
        rest.split_once("data type ").map(|(_, name)| name.split_whitespace().next().unwrap_or_default().to_owned());
    (!shape.is_empty()).then(|| Culprit {
        name: "an array".to_owned(),
        shape,
        dtype,
        bytes: event.oom.requested,
        how: "the message gives its shape".to_owned(),
        certainty: 0.97,
    })
}

/// TensorFlow's `OOM when allocating tensor with shape[64,1024,8192] and type float on ...`.
fn from_shape(event: &Event) -> Option<Culprit> {
    let texts = std::iter::once(&*event.message).chain(event.also.iter().map(|(_, text)| &**text));
    texts.into_iter().find_map(|text| {
        let (_, rest) = text.split_once("tensor with shape[")?;
        let (inner, rest) = rest.split_once(']')?;
        let shape: Option<Vec<u64>> = inner.split(',').map(|part| part.trim().parse().ok()).collect();
        let shape = shape?;
        let name = rest.strip_prefix(" and type ")?.split_whitespace().next()?;
        let dtype = dtype_named(name);
        let bytes = dtype.and_then(|dtype| product(&shape)?.checked_mul(dtype.bytes)).map(Bytes);
        Some(Culprit {
            name: "a tensor of this shape".to_owned(),
            shape,
            dtype: Some(dtype.map_or(name, |dtype| dtype.name).to_owned()),
            bytes: bytes.or(event.oom.requested),
            how: "the message gives its shape".to_owned(),
            certainty: 0.97,
        })
    })
}

fn host(event: &Event, activity: Option<Activity>) -> Option<Culprit> {
    let is_worker = activity == Some(Activity::DataWorker) || event.oom.source == Source::DataWorker;
    let (name, how) = match event.oom.source {
        Source::SharedMemory => ("batches passed between data workers", "they pass through shared memory"),
        _ if is_worker => ("samples held by data workers", "a data worker ran out or was killed"),
        _ => return from_names(event, activity),
    };
    Some(Culprit {
        name: name.to_owned(),
        shape: Vec::new(),
        dtype: None,
        bytes: event.oom.requested,
        how: how.to_owned(),
        certainty: 0.7,
    })
}
