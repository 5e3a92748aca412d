//! The driver or a library refused, past every allocator.

use lowtide_core::Bytes;
use lowtide_log::StackFrame;
use lowtide_oom::{Engine, Oom, Source};

use super::judgement::Judgement;
use crate::log::Event;
use crate::verdict::Cause;

/// Judges what the driver itself refused.
pub(super) fn driver(event: &Event) -> Judgement {
    if has_no_allocator(event) {
        let text = "the driver refused, and this engine asks it for every tensor: the step needs more than was free";
        return Judgement::bare(&event.oom, Cause::Need, 0.65, text);
    }
    if event.oom.source == Source::Runtime && is_first_use(event) {
        return no_room_to_begin(&event.oom);
    }
    outside(&event.oom)
}

/// Whether every tensor of the engine is the driver's: PyTorch before 1.0 says where in its sources that is.
fn has_no_allocator(event: &Event) -> bool {
    let is_counted = matches!(
        event.oom.engine,
        Engine::PyTorch | Engine::Cuda | Engine::Rocm | Engine::Tensorflow | Engine::Unknown
    );
    let is_driver = matches!(event.oom.source, Source::Runtime | Source::Heap | Source::Allocator);
    is_driver && (!is_counted || event.message.contains("THCStorage") || event.message.contains("THCTensor"))
}

/// Whether the stack ends where a tensor is put on the device, before any step.
fn is_first_use(event: &Event) -> bool {
    let words = ["device=", ".to(", ".cuda(", "_cuda_init", "_lazy_init", "torch.cuda."];
    let asks = |frame: &StackFrame| words.iter().any(|word| frame.code.contains(word));
    let around = &event.circumstances;
    event.oom.requested.is_none() && around.step.is_none() && around.frames.last().is_some_and(asks)
}

/// The allocator gives figures when it is refused: where there are none, the process could not even begin to use the
/// device.
fn no_room_to_begin(oom: &Oom) -> Judgement {
    let text = "the driver refused where the device is used first, before the allocator asked for anything: others have \
                filled it, as far as the log tells";
    Judgement::bare(oom, Cause::OtherProcess, 0.6, text).with(Cause::OutsideAllocator)
}

/// The driver or a library refused, which no allocator counts.
fn outside(oom: &Oom) -> Judgement {
    let (certainty, text) = match oom.source {
        Source::Blas => (0.85, "cuBLAS asks the driver for its own memory, past the allocator, and was refused"),
        Source::Dnn => (0.85, "cuDNN asks the driver for its own memory, past the allocator, and was refused"),
        Source::Collectives => (0.85, "NCCL asks the driver for its own buffers, past the allocator, and was refused"),
        _ => (
            0.55,
            "the driver itself refused, not the allocator: a context, a library, or a device that is full already",
        ),
    };
    let mut judgement = Judgement::bare(oom, Cause::OutsideAllocator, certainty, text);
    if oom.source == Source::Runtime {
        judgement.contributing.push(Cause::OtherProcess);
    }
    if let (Some(tried), Some(free)) = (oom.requested, oom.free) {
        let were = if free == Bytes(1) { "was" } else { "were" };
        judgement.evidence.push(format!("asked for {tried}; {free} {were} free"));
    }
    judgement
}
