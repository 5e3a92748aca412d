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

/// What paths of libraries have in them, and what they begin with where they are relative.
const LIBRARIES: [&str; 6] = ["site-packages/", "dist-packages/", "/lib/python", "/torch/", "<frozen", "torchinductor"];
const RELATIVE: [&str; 2] = ["torch/", "lib/python"];

/// Whether a frame is none of a library's.
pub(crate) fn is_own(frame: &StackFrame) -> bool {
    let file = frame.file.replace('\\', "/");
    let is_library = LIBRARIES.iter().any(|part| file.contains(part)) || RELATIVE.iter().any(|it| file.starts_with(it));
    !is_library && !is_internal(frame)
}

/// Whether a frame is of compiled code, or of none that there is a file of: `parsers.pyx`, `<__array_function__ internals>`.
pub(crate) fn is_internal(frame: &StackFrame) -> bool {
    frame.file.ends_with(".pyx") || frame.file.ends_with(" internals>")
}

/// The innermost frame that is none of a library's, or the innermost of which there is a line to look at.
pub(crate) fn code_line(frames: &[StackFrame]) -> Option<CodeLine> {
    let innermost = |wanted: fn(&StackFrame) -> bool| frames.iter().rev().find(|frame| wanted(frame));
    let frame = innermost(is_own).or_else(|| innermost(|frame| !is_internal(frame)))?;
    Some(CodeLine {
        file: frame.file.clone(),
        line: frame.line,
        function: frame.function.clone(),
        code: frame.code.clone(),
    })
}

#[cfg(test)]
mod tests {
    use lowtide_log::frames;

    use super::*;

    #[test]
    fn the_line_that_somebody_wrote() {
        let own = "Traceback (most recent call last):\n  File \"prep.py\", line 17, in <module>\n    x = np.concatenate(all)\n";
        let file = |text: &str| code_line(&frames(text)).map(|code| code.file);
        for below in [
            "",
            "  File \"<__array_function__ internals>\", line 200, in concatenate\n",
            "  File \"pandas/_libs/parsers.pyx\", line 808, in pandas._libs.parsers.TextReader.read\n",
        ] {
            assert_eq!(file(&format!("{own}{below}")).as_deref(), Some("prep.py"), "{below}");
        }
        for (path, expected) in [
            ("/home/a/faster-rcnn.pytorch/lib/model/resnet.py", "/home/a/faster-rcnn.pytorch/lib/model/resnet.py"),
            ("/usr/lib/python3/dist-packages/torch/nn/modules/conv.py", "prep.py"),
            ("/opt/src/torch/nn/modules/conv.py", "prep.py"),
            ("torch/nn/modules/conv.py", "prep.py"),
        ] {
            let frame = format!("  File \"{path}\", line 3, in forward\n    return self.conv(x)\n");
            assert_eq!(file(&format!("{own}{frame}")).as_deref(), Some(expected), "{path}");
        }
        assert_eq!(file("  File \"cupy/cuda/memory.pyx\", line 1402, in cupy.cuda.memory.malloc\n"), None);
    }
}
