//! The first lines of a run: what is trained, on what, and where it is written.

use std::path::{Path, PathBuf};

use lowtide_core::{Bytes, Event, Line, grouped};
use lowtide_torch::DeviceFacts;
use lowtide_torch::tch::Device;
use lowtide_train::Profile;
use lowtide_workloads::Bundle;

/// What the header says that no event carries.
pub(crate) struct RunHeader {
    device: String,
    total: Bytes,
    free: Bytes,
    notes: Vec<String>,
    folder: PathBuf,
}

impl RunHeader {
    pub(crate) fn new(facts: &DeviceFacts, bundle: &Bundle, folder: &Path) -> RunHeader {
        let settings = &bundle.settings;
        let device = match facts.device {
            Device::Cuda(index) => format!("cuda:{index} {}", facts.name),
            _ => "the CPU".to_owned(),
        };
        let no_gpu = facts.note.as_ref().map(|note| format!("the GPU is not used: {note}"));
        let above = settings.memory.line.exceeds(facts.total);
        let above = above.then(|| format!("the line is above what there is, so it is drawn at {}", facts.total));
        let line = settings.memory.line.resolve(facts.total).unwrap_or(Line::NONE);
        let profile = Profile::of(facts, line).map(|profile| format!("the memory to use is {profile}"));
        let notes = no_gpu.into_iter().chain(above).chain(profile).chain(bundle.notes.iter().cloned()).collect();
        RunHeader { device, total: facts.total, free: facts.free, notes, folder: folder.to_owned() }
    }

    /// The lines for a run that has started.
    pub(crate) fn lines(&self, started: &Event) -> Vec<String> {
        let Event::RunStarted { workload, line, parameters, resumed_at, batch, .. } = started else {
            return Vec::new();
        };
        let mut lines =
            vec![format!("training {workload} on {} ({} in all, {} free)", self.device, self.total, self.free)];
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines.push(format!("{} parameters, {batch} samples a step, {}", grouped(*parameters), drawn(*line)));
        lines.push(format!("writing to {}", self.folder.display()));
        lines.extend(resumed_at.map(|step| format!("resumed after step {step}")));
        lines
    }
}

fn drawn(line: Line) -> String {
    line.limit().map_or("no line".to_owned(), |limit| format!("a line of {limit}"))
}
