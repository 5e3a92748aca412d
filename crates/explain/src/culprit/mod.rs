//! Which tensor a request was for: from the message, from the code in the stack, from sizes that settings multiply to, or
//! from names in the stack.

mod code;
mod message;
mod names;
mod request;
mod settings;
mod size;

pub(crate) use code::allocation;
pub(crate) use names::FOREACH;
pub(crate) use request::culprit;
pub(crate) use settings::WHOLE_FRAMES;
