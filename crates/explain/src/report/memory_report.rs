//! What a process of `lowtide run` wrote down when its memory ran out, or when that ended it.

use lowtide_core::Bytes;
use lowtide_log::StackFrame;
use lowtide_oom::{Oom, Place};
use serde::Deserialize;

use crate::code_line::{code_line, is_own};
use crate::culprit::is_size;
use crate::{CodeLine, MemorySnapshot, TensorGroup};

/// The version of the form that is read.
const SCHEMA: u64 = 1;
/// What no tensor of Python holds is named where it is this part of all.
const WORTH_NAMING: u64 = 20;

/// What a process wrote down when its memory ran out.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct MemoryReport {
    /// Which card, or the machine's own memory.
    pub device: Option<u32>,
    /// What was asked for.
    pub asked: Option<Bytes>,
    /// Whether the process ended by it.
    pub is_fatal: bool,
    /// The name of the snapshot beside it.
    pub snapshot_name: Option<String>,
    /// The stack of whoever asked, outermost first.
    pub(crate) frames: Vec<StackFrame>,
    holders: Vec<TensorGroup>,
    variables: Vec<TensorGroup>,
    allocated: Option<Bytes>,
    snapshot: Option<MemorySnapshot>,
}

#[derive(Deserialize)]
struct Form {
    schema: u64,
    device: String,
    asked_bytes: Option<u64>,
    error: Option<String>,
    snapshot: Option<String>,
    allocated_bytes: Option<u64>,
    #[serde(default)]
    threads: Vec<ThreadForm>,
    #[serde(default)]
    holders: Vec<HolderForm>,
    #[serde(default)]
    variables: Vec<VariableForm>,
}

#[derive(Deserialize)]
struct ThreadForm {
    asks: bool,
    main: bool,
    frames: Vec<FrameForm>,
}

#[derive(Deserialize)]
struct FrameForm {
    file: String,
    line: u64,
    function: String,
    code: String,
}

#[derive(Deserialize)]
struct HolderForm {
    kind: String,
    bytes: u64,
    count: u64,
}

#[derive(Deserialize)]
struct VariableForm {
    name: String,
    shape: Vec<u64>,
    dtype: String,
    bytes: u64,
    #[serde(flatten)]
    frame: FrameForm,
}

impl From<&FrameForm> for StackFrame {
    fn from(form: &FrameForm) -> Self {
        let mut frame = Self::default();
        frame.file.clone_from(&form.file);
        frame.line = Some(form.line);
        frame.function.clone_from(&form.function);
        frame.code.clone_from(&form.code);
        frame
    }
}

impl MemoryReport {
    /// Reads a report; `None` where the text is none.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let form: Form = serde_json::from_str(text).ok().filter(|form: &Form| form.schema == SCHEMA)?;
        let stack = |thread: &ThreadForm| thread.frames.iter().map(StackFrame::from).collect::<Vec<_>>();
        let asking = form.threads.iter().find(|thread| thread.asks).map(stack).unwrap_or_default();
        let main = form.threads.iter().find(|thread| thread.main).map(stack).unwrap_or_default();
        // Backward runs in a thread of PyTorch's own, which has no code of the program's; who started it has.
        let frames = if asking.iter().any(is_own) || main.is_empty() { asking } else { main };
        let holder = |form: HolderForm| TensorGroup {
            name: Some(form.kind),
            place: None,
            shape: Vec::new(),
            dtype: None,
            bytes: Bytes(form.bytes),
            count: form.count,
        };
        let variable = |form: VariableForm| TensorGroup {
            name: Some(format!("`{}`", form.name)),
            place: code_line(&[StackFrame::from(&form.frame)]),
            shape: form.shape,
            dtype: Some(form.dtype),
            bytes: Bytes(form.bytes),
            count: 1,
        };
        Some(Self {
            device: form.device.strip_prefix("cuda:").and_then(|index| index.parse().ok()),
            asked: form.asked_bytes.map(Bytes),
            is_fatal: form.error.is_some(),
            snapshot_name: form.snapshot,
            frames,
            holders: form.holders.into_iter().map(holder).collect(),
            variables: form.variables.into_iter().map(variable).collect(),
            allocated: form.allocated_bytes.map(Bytes),
            snapshot: None,
        })
    }

    /// The report with the snapshot beside it.
    #[must_use]
    pub fn with_snapshot(self, snapshot: MemorySnapshot) -> Self {
        Self { snapshot: Some(snapshot), ..self }
    }

    /// Whether it is of this error.
    pub(crate) fn is_of(&self, oom: &Oom) -> bool {
        let same_place = self.device.is_some() == (oom.place == Place::Device);
        let same_device = self.device.zip(oom.device).is_none_or(|(ours, theirs)| ours == theirs);
        let same_size = match (self.asked, oom.requested) {
            (Some(asked), Some(requested)) => is_size(asked.get(), requested),
            // An error in words of its own: the one that ended the process.
            (None, _) => self.is_fatal,
            (Some(_), None) => false,
        };
        same_place && same_device && same_size
    }

    /// The line of the program's own code that asked.
    pub(crate) fn code(&self) -> Option<CodeLine> {
        code_line(&self.frames)
    }

    /// Who held most, the largest first: by the line that made it where PyTorch kept a history, else by what it is.
    pub(crate) fn tensors(&self) -> Vec<TensorGroup> {
        let device = self.device.unwrap_or_default();
        let by_place = self.snapshot.as_ref().map(|snapshot| snapshot.groups(device)).unwrap_or_default();
        if !by_place.is_empty() {
            return by_place;
        }
        let mut groups = self.holders.clone();
        let allocated = self.snapshot.as_ref().and_then(|snapshot| snapshot.allocated(device)).or(self.allocated);
        let known = self.holders.iter().fold(Bytes::ZERO, |sum, holder| sum.saturating_add(holder.bytes));
        // Of the machine's memory a report is written when the error ends the process: what its frames held alone is gone by then,
        // and crumbs that are left are not what filled it.
        if self.device.is_none() && self.asked.is_some_and(|asked| known < asked) {
            groups.clear();
        }
        if let Some(rest) = allocated.map(|allocated| allocated.saturating_sub(known))
            && !groups.is_empty()
            && rest.get() > allocated.unwrap_or_default().get() / WORTH_NAMING
        {
            groups.push(TensorGroup {
                name: Some("kept for backward, or by a library".to_owned()),
                place: None,
                shape: Vec::new(),
                dtype: None,
                bytes: rest,
                count: 0,
            });
        }
        groups.sort_by_key(|group| std::cmp::Reverse(group.bytes));
        groups.extend(self.variables.iter().cloned());
        groups
    }
}
