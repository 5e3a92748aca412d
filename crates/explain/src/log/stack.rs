//! What frames of PyTorch's own files mean.

use lowtide_log::StackFrame;

/// Whether a frame is the constructor of one of PyTorch's layers.
pub(crate) fn makes_a_layer(frame: &StackFrame) -> bool {
    let file = frame.file.replace('\\', "/");
    let is_made = matches!(&*frame.function, "__init__" | "reset_parameters");
    file.contains("torch/nn/modules") && is_made || file.contains("torch/nn/init.py")
}

/// Whether a frame is PyTorch's recomputation of activations.
pub(crate) fn recomputes(frame: &StackFrame) -> bool {
    frame.file.replace('\\', "/").ends_with("torch/utils/checkpoint.py")
}
