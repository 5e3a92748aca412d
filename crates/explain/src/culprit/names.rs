//! Kinds of tensors, by the names of what the stack goes through.

use lowtide_log::{Activity, makes_a_layer};

use crate::cause::puts_optimizer_state;
use crate::log::{Event, names_language};
use crate::verdict::Culprit;

/// What the optimizer makes for all tensors at once where it updates them together.
pub(crate) const FOREACH: &str = "temporaries of the optimizer's foreach update";
const WEIGHTS: &str = "the model's weights";
const OPTIMIZER_STATE: &str = "the optimizer's state of a checkpoint";
const LINEAR: &str = "activations of a linear layer";
const FUNCTION_OF_PRODUCT: &str = "F.linear";
const FEED_FORWARD: &str = "activations inside the feed-forward part";
const PROJECTIONS: &str = "queries, keys and values";
const HIDDEN: &str = "hidden states";
/// What the kernels of attention put out.
pub(super) const ATTENDED: &str = "the output of attention";
/// What a line that asks for a product may be about.
const PRODUCTS: [&str; 3] = [FEED_FORWARD, PROJECTIONS, HIDDEN];

/// A culprit of which only the kind is known.
pub(super) fn kind(event: &Event, name: &str, how: &str, certainty: f64) -> Culprit {
    Culprit {
        name: name.to_owned(),
        shape: Vec::new(),
        dtype: None,
        bytes: event.oom.requested,
        how: how.to_owned(),
        certainty,
    }
}

/// Whether the stack goes where logits are made or used.
pub(crate) fn ends_at_logits(event: &Event) -> bool {
    from_names(event, None).is_some_and(|culprit| culprit.name.starts_with("logits"))
}

/// Names of functions and what they allocate, innermost frame first.
pub(super) fn from_names(event: &Event, activity: Option<Activity>) -> Option<Culprit> {
    if event.circumstances.frames.last().is_some_and(makes_a_layer) {
        return Some(kind(event, WEIGHTS, "the stack ends where a layer is made", 0.8));
    }
    // The optimizer reads its state by a function that is named like the model's.
    if event.circumstances.frames.iter().any(puts_optimizer_state) {
        return Some(kind(event, OPTIMIZER_STATE, "the stack goes where the optimizer's state is loaded", 0.8));
    }
    // A product says little by itself: the line that asked for it may say more.
    let mut product = None;
    for frame in event.circumstances.frames.iter().rev() {
        let is_of_torch = frame.file.replace('\\', "/").contains("torch/nn/modules/");
        if product.is_some() && is_of_torch {
            continue;
        }
        for (words, name) in STACK_NAMES {
            if product.is_some() && !PRODUCTS.contains(name) {
                continue;
            }
            // A step that runs inside the optimizer's, as a closure, is none of the optimizer's.
            if name.contains("optimizer") && !matches!(activity, None | Some(Activity::Optimizer)) {
                continue;
            }
            // A script may have any name; a part of a path or a whole file of a library is meant.
            let is_file = |word: &str| word.contains(['/', '.']) && frame.file.contains(word);
            let word = words
                .iter()
                .find(|word| frame.function.contains(**word) || frame.code.contains(**word) || is_file(word));
            let found = word.map(|word| kind(event, name, &format!("the stack goes through `{word}`"), 0.7));
            match found {
                Some(found) if *name == LINEAR => product = product.or(Some(found)),
                Some(found) => return Some(found),
                None => {}
            }
        }
        if product.is_some() && !is_of_torch && !frame.code.contains(FUNCTION_OF_PRODUCT) {
            break;
        }
    }
    product
}

const STACK_NAMES: &[(&[&str], &str)] = &[
    (&["_foreach_"], FOREACH),
    (&["_init_group", "exp_avg", "zeros_like(p"], "the optimizer's moments"),
    (&["clip_grad_norm_"], "norms of the gradients"),
    (&["torch/optim/", "optimizer.step("], "the optimizer's moments"),
    (&["cross_entropy", "log_softmax", "nll_loss", "CrossEntropyLoss"], "logits in the loss"),
    (&["nested_concat", "torch_pad_and_concatenate"], "outputs of a whole evaluation, gathered"),
    (&["lm_head", "logits = ", "logits.float("], "logits"),
    // The fused kernel keeps no scores; where it is not taken, their size tells.
    (&["scaled_dot_product_attention"], ATTENDED),
    (&["softmax", "baddbmm", "attn_weights", "attention_scores"], "attention scores"),
    (&["F.conv", "conv2d", "conv3d", "_conv_forward", "conv_transpose"], "activations of a convolution"),
    (&["all_gather", "_unshard", "all_gather_into_tensor"], "gathered parameters"),
    (&["load_state_dict", "torch.load(", "from_pretrained", "create_weights", "load_weights"], WEIGHTS),
    (&["_apply", ".cuda(", ".to(device"], WEIGHTS),
    (
        &["gelu", "relu", "silu", "mlp", "feed_forward", "c_fc(", ".fc1(", "up_proj(", "gate_proj(", "dense_h_to_4h("],
        FEED_FORWARD,
    ),
    (&["c_attn(", "qkv(", "q_proj(", "k_proj(", "v_proj(", "query_key_value("], PROJECTIONS),
    (&["c_proj(", "o_proj(", "out_proj(", "down_proj(", ".fc2(", "dense_4h_to_h("], HIDDEN),
    (&["layer_norm", "batch_norm", "group_norm"], "activations of a normalisation"),
    (&["torch.cat", "torch.stack"], "tensors joined into one"),
    (&[".backward(", "run_backward"], "gradients of activations"),
    (&[FUNCTION_OF_PRODUCT, "linear.py"], LINEAR),
];

/// Whether the stack is that of a language model, in which no frames are.
pub(super) fn is_of_language(event: &Event) -> bool {
    let words = ["transformers/", "transformers\\", "logits", "lm_head", "input_ids"];
    let is_of = |text: &String| words.iter().any(|word| text.contains(word)) || names_language(text);
    event.circumstances.frames.iter().any(|frame| [&frame.file, &frame.code, &frame.function].into_iter().any(is_of))
}
