//! The ways to a culprit, the surest first.

use lowtide_oom::{Place, Source};

use super::code::from_code;
use super::message::{from_message, from_shape};
use super::names::{from_names, kind};
use super::settings::{from_frames, from_settings};
use crate::facts::Facts;
use crate::log::{Activity, Event};
use crate::verdict::Culprit;

/// Names what the request was for.
pub(crate) fn culprit(event: &Event, facts: &Facts<'_>, activity: Option<Activity>) -> Option<Culprit> {
    if event.oom.place == Place::Host {
        return from_message(event).or_else(|| host(event, activity));
    }
    if event.oom.source != Source::Allocator {
        return from_library(event);
    }
    from_shape(event)
        .or_else(|| from_code(event, facts))
        .or_else(|| from_settings(event, facts, activity))
        .or_else(|| from_frames(event, facts, activity))
        .or_else(|| from_names(event, activity))
}

/// What libraries ask the driver for by themselves.
fn from_library(event: &Event) -> Option<Culprit> {
    let name = match event.oom.source {
        Source::Blas => "the handle and the workspace of cuBLAS",
        Source::Dnn => "the workspace of cuDNN",
        Source::Collectives => "the buffers of NCCL",
        _ => return None,
    };
    Some(kind(event, name, "the message is the library's", 0.7))
}

/// What the machine's memory was for.
fn host(event: &Event, activity: Option<Activity>) -> Option<Culprit> {
    let is_worker = activity == Some(Activity::DataWorker) || event.oom.source == Source::DataWorker;
    let (name, how) = match event.oom.source {
        Source::SharedMemory => ("batches passed between data workers", "they pass through shared memory"),
        _ if is_worker => ("samples held by data workers", "a data worker ran out or was killed"),
        _ => return from_names(event, activity),
    };
    Some(kind(event, name, how, 0.7))
}
