//! Which tensor a request was for: from the message, from the code in the stack, from sizes that settings multiply to, or
//! from names in the stack.

mod names;
mod request;
mod settings;

pub(crate) use names::{FOREACH, ends_at_logits};
pub(crate) use request::{allocation, culprit, culprit_of_line};
pub(crate) use settings::{WHOLE_FRAMES, is_size};
