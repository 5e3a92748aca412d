//! The files that show a replay.

use std::path::Path;

use lowtide_args::ReplayArgs;
use lowtide_disk::write_with;
use lowtide_sim::{DeviceHistory, Snapshot};

use super::command::Replayed;
use super::findings::Findings;
use super::html::timeline_page;
use super::svg::timeline_drawing;
use crate::output::{Failure, shown};

/// Writes those that were asked for; ones that are there are replaced.
pub(super) fn write_pictures(
    args: &ReplayArgs,
    file: &Path,
    findings: &Findings,
    replayed: &Replayed,
    history: &DeviceHistory,
    snapshot: &Snapshot,
) -> Result<(), Failure> {
    if let Some(path) = &args.save {
        let written = write_with(path, |file| snapshot.write_recording(file));
        written.map_err(|error| Failure::bad_input(error.to_string(), None))?;
    }
    if args.svg.is_none() && args.html.is_none() {
        return Ok(());
    }
    let timeline = replayed.recording.timeline(&replayed.conditions);
    let name = file.file_name().map_or_else(|| shown(file), |name| shown(name.as_ref()));
    if let Some(path) = &args.svg {
        let drawing = timeline_drawing(&name, findings, &timeline, &history.times);
        std::fs::write(path, drawing.svg()).map_err(Failure::at(path))?;
    }
    if let Some(path) = &args.html {
        let page = timeline_page(&name, findings, &timeline, history, snapshot);
        std::fs::write(path, page).map_err(Failure::at(path))?;
    }
    Ok(())
}
