//! Saving, loading and resuming: what is done with a whole state when memory runs out.

use std::fmt;

use lowtide_log::{Activity, StackFrame};
use lowtide_oom::Place;
use serde::Serialize;

use crate::log::{Event, Printout};

/// What was done with a whole state of the model or the optimizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CheckpointWork {
    /// The state of a sharded model (FSDP, ZeRO-3) is put together on one device, to be saved.
    Gather,
    /// A copy of the weights is made on the device, to be saved.
    Copy,
    /// A checkpoint is read straight onto the device, beside the model.
    LoadOntoDevice,
    /// The optimizer's state of a checkpoint is put on the device.
    OptimizerState,
    /// The first steps after a checkpoint was loaded, which may still be held.
    Resumed,
}

impl CheckpointWork {
    /// The phase that it belongs to, where the work itself failed.
    pub(crate) const fn phase(self) -> Option<Activity> {
        match self {
            Self::Gather | Self::Copy => Some(Activity::Saving),
            Self::LoadOntoDevice | Self::OptimizerState => Some(Activity::Loading),
            Self::Resumed => None,
        }
    }
}

impl fmt::Display for CheckpointWork {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Gather => "the whole state of a sharded model was put together on one device to be saved",
            Self::Copy => "a copy of the weights was made on the device to be saved",
            Self::LoadOntoDevice => "a checkpoint was read straight onto the device",
            Self::OptimizerState => "the optimizer's state of a checkpoint was put on the device",
            Self::Resumed => "the run was resumed, and what was loaded may still be held beside the model",
        })
    }
}

/// Steps after which what was loaded at the start is no longer the question.
const FIRST_STEPS: u64 = 10;

/// What was done with a whole state, by the message, the stack and the log.
pub(crate) fn checkpoint_work(event: &Event, log: &Printout) -> Option<CheckpointWork> {
    let frames = &event.circumstances.frames;
    let says = |words: &str| event.message.contains(words) || event.also.iter().any(|(_, text)| text.contains(words));
    let activity = event.circumstances.activity.as_ref().map(|(activity, _)| *activity);
    if says("Failed to clone() tensor") || says("state_dict entry could point") || frames.iter().any(gathers) {
        return Some(CheckpointWork::Gather);
    }
    if event.oom.place == Place::Host {
        return None;
    }
    if frames.iter().any(puts_optimizer_state) {
        return Some(CheckpointWork::OptimizerState);
    }
    if frames.iter().any(reads_onto_device) {
        return Some(CheckpointWork::LoadOntoDevice);
    }
    if activity == Some(Activity::Saving) {
        return Some(CheckpointWork::Copy);
    }
    let trained = event.circumstances.step.zip(log.first_step).map_or(0, |(step, first)| step.saturating_sub(first));
    let is_training = matches!(activity, None | Some(Activity::Training | Activity::Optimizer | Activity::Loading));
    (log.resumes && is_training && trained < FIRST_STEPS).then_some(CheckpointWork::Resumed)
}

/// FSDP's and DeepSpeed's ways to a whole state on one device.
fn gathers(frame: &StackFrame) -> bool {
    let file = frame.file.replace('\\', "/");
    let is_state = (frame.function.contains("state_dict") || file.ends_with("_state_dict_utils.py"))
        && !frame.function.contains("load");
    let calls = ["FULL_STATE_DICT", "summon_full_params(", "full_optim_state_dict(", "save_16bit_model("];
    (file.contains("/fsdp/") && is_state)
        || frame.function.contains("zero3_consolidated")
        || frame.function.contains("summon_full_params")
        || calls.iter().any(|call| frame.code.contains(call))
}

/// Whether a frame puts the optimizer's state of a checkpoint where its weights are.
pub(crate) fn puts_optimizer_state(frame: &StackFrame) -> bool {
    let file = frame.file.replace('\\', "/");
    let loads = matches!(&*frame.function, "load_state_dict" | "_process_value_according_to_param_policy" | "cast");
    (file.contains("/optim/") && loads)
        || ["optimizer.load_state_dict(", "optim.load_state_dict("].iter().any(|call| frame.code.contains(call))
}

/// `torch.load` puts every tensor where it was saved, unless it is told another place.
fn reads_onto_device(frame: &StackFrame) -> bool {
    let is_of_load = frame.file.replace('\\', "/").ends_with("torch/serialization.py");
    let restores = ["_cuda_deserialize", "_deserialize", "default_restore_location", "restore_location"];
    is_of_load && restores.contains(&&*frame.function)
}
