//! What the log says around an error: what the program was doing, at which step, at what time.

use lowtide_log::{StackFrame, frames, steps, time};

use super::activity::{Activity, activity, activity_of_stack};

/// What stands around an error.
#[derive(Debug, Clone, Default)]
pub(crate) struct Circumstances {
    pub(crate) frames: Vec<StackFrame>,
    /// What the program was doing, and the words of the log that say so.
    pub(crate) activity: Option<(Activity, String)>,
    pub(crate) step: Option<u64>,
    pub(crate) time: Option<String>,
}

impl Circumstances {
    /// Reads the text that ends where the error's line begins.
    pub(crate) fn read(before: &str) -> Self {
        let frames = frames(before);
        Self {
            activity: activity(&frames, before),
            frames,
            step: steps(before.as_bytes()).next_back(),
            time: before.rsplit(['\n', '\r']).find_map(time).map(str::to_owned),
        }
    }

    /// Takes the stack of a further message, which tells more of the same event.
    pub(crate) fn deepen(&mut self, between: &str) {
        let frames = frames(between);
        if let Some(activity) = activity_of_stack(&frames) {
            self.activity = Some(activity);
        }
        if !frames.is_empty() {
            self.frames = frames;
        }
    }

    /// Whether the stack ends where memory of the machine is pinned.
    pub(crate) fn ends_in_pinning(&self) -> bool {
        let pins = |frame: &StackFrame| frame.code.contains("pin_memory=True") || frame.code.contains(".pin_memory(");
        // The thread of a data loader makes a context on the device first, which may be what failed.
        self.frames.last().is_some_and(|frame| pins(frame) && !frame.file.contains("_utils/pin_memory.py"))
    }
}
