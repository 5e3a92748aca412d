//! Libraries that divide the loss by themselves, where scripts are written for them.

use super::piece::{Code, Piece};

/// Pieces of a context that are looked at.
const LONGEST: usize = 100;

/// Whether scripts train in `with accelerator.accumulate(model):`.
pub(crate) fn accumulates_in_context(code: &Code<'_>) -> bool {
    let is_it = |context: Piece<'_>| context.all().take(LONGEST).any(|piece| piece.callee() == "accumulate");
    let is_context = |piece: &Piece<'_>| piece.kind() == "with_item" || piece.callee() == "enter_context";
    code.pieces().filter(is_context).any(is_it)
}

/// Whether scripts give their model to DeepSpeed, by whatever name that is imported.
pub(crate) fn is_deepspeeds(code: &Code<'_>) -> bool {
    let aliases = code.pieces().filter(|piece| piece.kind() == "aliased_import" && piece.part("name") == "deepspeed");
    let names: Vec<&str> = aliases.map(|piece| piece.part("alias")).chain(["deepspeed"]).collect();
    let is_its = |call: &Piece<'_>| call.receiver().is_some_and(|of| names.contains(&of.text()));
    code.pieces().any(|piece| piece.callee() == "initialize" && is_its(&piece))
}
