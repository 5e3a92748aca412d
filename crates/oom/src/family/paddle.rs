//! PaddlePaddle. It prints six decimals and counts in steps of 1024.

use crate::message::Message;
use crate::phrase::{number_after, size_after, size_before};
use crate::{Engine, Oom, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    if !message.line.contains("Out of memory error on ") {
        return None;
    }
    let body = message.body();
    Some(Oom {
        device: number_after(body, "Out of memory error on GPU ")
            .or_else(|| number_after(body, "Out of memory error on XPU ")),
        requested: size_after(body, "Cannot allocate "),
        used: size_before(body, " memory has been allocated"),
        free: size_after(body, "available memory is only "),
        limit: size_after(body, "memory usage is limited to "),
        ..Oom::device(Engine::Paddle, Source::Allocator)
    })
}
