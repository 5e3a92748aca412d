//! Kubernetes, Docker, Ray, Dask: whoever watches a node or a container.

use lowtide_core::Bytes;

use crate::message::{Message, without_prefix};
use crate::names::is_only_named;
use crate::phrase::{between, has_any, has_any_caseless, number_after, size_after, size_before, without_signs};
use crate::{Certainty, Engine, Oom, ProcessUse, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    kubernetes(message).or_else(|| ray(message)).or_else(|| dask(line))
}

/// Docker's state also says `"OOMKilled": false`.
fn kubernetes(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    if line.contains("OOMKilled}}") {
        // A question; the answer is the next line.
        let answer = message.body().get(line.len()..).unwrap_or_default();
        return answer.trim_start().starts_with("true").then(|| Oom::host(Engine::Kubernetes, Source::Cgroup));
    }
    if let Some(at) = line.find("OOMKilled") {
        return is_oom_killed(line, at).then(|| Oom::host(Engine::Kubernetes, Source::Cgroup));
    }
    if line.contains("Memory quota vastly exceeded") {
        return Some(Oom::host(Engine::Unknown, Source::Cgroup));
    }
    if line.contains("node was low on resource: memory") {
        // Of several containers of the pod, what the largest used.
        let used = line.match_indices("was using ").filter_map(|(at, _)| size_after(&line[at..], "was using "));
        let (in_use, free) = (used.max(), size_after(line, "available: "));
        return Some(Oom { in_use, free, ..Oom::host(Engine::Kubernetes, Source::Scheduler) });
    }
    // Cloud Run: `Memory limit of 512 MiB exceeded with 515 MiB used.`
    if let Some((limit, used)) =
        line.split_once("emory limit of ").and_then(|(_, rest)| rest.split_once(" exceeded with "))
    {
        let (limit, in_use) = (size_after(limit, ""), size_after(used, ""));
        return Some(Oom { limit, in_use, ..Oom::host(Engine::Kubernetes, Source::Cgroup) });
    }
    // Docker and ECS; Vertex AI, whose replicas are containers.
    let words = [
        "was oom killed",
        "was oom-killed",
        "container killed due to memory usage",
        "died due to oom",
        "ran out-of-memory and exited with a non-zero status",
    ];
    // `docker events`
    let is_event = without_prefix(line).starts_with("container oom ");
    (is_event || has_any_caseless(line, &words)).then(|| Oom::host(Engine::Kubernetes, Source::Cgroup))
}

/// `Reason: OOMKilled`, `"OOMKilled": true`, a row of a table of pods: the state of a container, and not what a rule asks for, a count of
/// none, or a part of another name (`PodOOMKilled` is an alert's).
fn is_oom_killed(line: &str, at: usize) -> bool {
    let end = at + "OOMKilled".len();
    let behind = line[end..].trim_start_matches(['"', '\'', ' ']);
    let value =
        without_signs(behind).split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_ascii_lowercase();
    let is_denied = match behind.starts_with([':', '=']) {
        true => matches!(&*value, "false" | "0" | "null" | "no" | "none" | "nil"),
        // Behind a state in a table stands how often it began anew.
        false => value == "false",
    };
    let is_part = line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    !is_denied && !is_part && !is_only_named(line, at, end)
}

fn ray(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    let killed =
        has_any(line, &["node running low on memory", "killed due to memory pressure (OOM)", "Memory on the node (IP"]);
    let class = line.contains("ray.exceptions.OutOfMemoryError") || line.contains("NODE_OUT_OF_MEMORY");
    // The first of three reasons that Ray gives for a worker that is gone.
    if line.contains("killed by SIGKILL by OOM killer due to high memory usage") {
        return Some(Oom { certainty: Certainty::Slight, ..Oom::host(Engine::Ray, Source::ExitStatus) });
    }
    if !killed && !class {
        return None;
    }
    if line.contains(" 0 Workers (tasks / actors) killed") {
        return None;
    }
    let body = message.body();
    let (used, capacity) = node(body).unzip();
    Some(Oom {
        used,
        capacity,
        processes: task(body).into_iter().collect(),
        ..Oom::host(Engine::Ray, Source::Scheduler)
    })
}

/// `was running was 27.71GB / 28.80GB (0.962273)`; the figures are divided by 1024 three times.
fn node(body: &str) -> Option<(Bytes, Bytes)> {
    let (_, rest) = body.split_once("was running was ").or_else(|| body.split_once(" was running: "))?;
    let (used, capacity) = rest.split_once(" / ")?;
    Some((size_after(used, "")?, size_after(capacity, "")?))
}

fn task(body: &str) -> Option<ProcessUse> {
    let pid = number_after(body, ", pid=")?;
    Some(ProcessUse {
        pid,
        name: between(body, "name=", ",").map(str::to_owned),
        used: size_after(body, "memory used="),
    })
}

fn dask(line: &str) -> Option<Oom> {
    let restarted = line.contains("memory budget") && has_any(line, &["Worker", "worker"]) && line.contains("estart");
    restarted.then(|| Oom { in_use: size_before(line, " /"), ..Oom::host(Engine::Dask, Source::Scheduler) })
}
