//! The line of a program's own code that a stack ends in.

use lowtide_log::StackFrame;
use serde::Serialize;

/// A line of code in a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub struct CodeLine {
    /// Path of the file.
    pub file: String,
    /// Number of the line, from 1.
    pub line: Option<u64>,
    /// The function it is in.
    pub function: String,
    /// The line itself, empty where the stack does not quote it.
    pub code: String,
}

/// Whether a frame is none of a library's.
pub(crate) fn is_own(frame: &StackFrame) -> bool {
    let file = frame.file.replace('\\', "/");
    let is_library = ["site-packages/", "dist-packages/", "/lib/python", "torch/", "<frozen", "torchinductor"]
        .iter()
        .any(|part| file.contains(part));
    !is_library
}

/// The innermost frame that is none of a library's, or the innermost at all.
pub(crate) fn code_line(frames: &[StackFrame]) -> Option<CodeLine> {
    let frame = frames.iter().rev().find(|frame| is_own(frame)).or(frames.last())?;
    Some(CodeLine {
        file: frame.file.clone(),
        line: frame.line,
        function: frame.function.clone(),
        code: frame.code.clone(),
    })
}
