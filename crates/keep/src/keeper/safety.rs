//! What is done for checkpoints before a start: those that it may write over are copied, and what is in its way is moved.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lowtide_core::Bytes;
use lowtide_disk::move_to;
use lowtide_trainers::Beginning;

use crate::command::checkpoint::CheckpointSearch;
use crate::keeper::origins::MOST_COPIES;
use crate::keeper::refuge::{KeptCheckpoint, Occasion, Refuge, Way, keep_safe, take_back, thin_out};
use crate::{Notice, Resumption};

/// Whether checkpoints that a start may write over are copied first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Copies {
    /// They are.
    #[default]
    Made,
    /// They are not, as it was asked for.
    Off,
}

/// Whether a start may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Ground {
    /// What it may write over is safe.
    Safe,
    /// It is a restart that begins at step 0, and may write over a checkpoint of which there is no copy. What the first start
    /// writes over is the user's own choice; what a restart does is ours.
    Unsafe,
}

/// More than is copied while nobody wonders what takes so long.
const LONG: Bytes = Bytes::from_mib(256);

/// Checkpoints of a run, before its starts.
pub(crate) struct Safety<'a> {
    pub(crate) resumption: &'a Resumption,
    /// The folder of the run.
    pub(crate) run: &'a Path,
    /// When the run began.
    pub(crate) begun: SystemTime,
    pub(crate) copies: Copies,
    /// Copies of earlier runs that this one relies on: what they are copies of may be written over since.
    pub(crate) relied_on: HashSet<PathBuf>,
}

impl Safety<'_> {
    /// Brings checkpoints to safety that the next start may write over: all of them where it begins at step 0, else those
    /// that are newer than the one it resumes from. Where the script itself looks for the newest, these are moved out of its
    /// way.
    pub(crate) fn keep(
        &mut self,
        search: &CheckpointSearch,
        start: usize,
        is_told_to_end: &dyn Fn() -> bool,
        notify: &mut dyn FnMut(&Notice),
    ) -> Ground {
        let (resumption, run) = (self.resumption, self.run);
        let (checkpoints, way) = self.endangered(search, start);
        let named = match &search.found {
            None if !resumption.is_the_scripts() && self.copies == Copies::Made => {
                resumption.named(self.since(start), &checkpoints)
            }
            _ => Vec::new(),
        };
        let is_whole = |checkpoint: &Path| resumption.holds_whole(checkpoint);
        let occasion = Occasion { run, start, is_whole: &is_whole };
        let mut is_said = false;
        let mut before_piece = |bytes: Bytes| {
            if bytes >= LONG && !std::mem::replace(&mut is_said, true) {
                notify(&Notice::Copying { bytes });
            }
            if is_told_to_end() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut kept = keep_safe(&checkpoints, way, &occasion, &mut before_piece);
        kept.extend(keep_safe(&named, Way::Copy, &occasion, &mut before_piece));
        let is_lost = search.found.is_none() && kept.iter().any(|it| it.refuge.is_err());
        let ground = if is_lost && start > 1 { Ground::Unsafe } else { Ground::Safe };
        if ground == Ground::Unsafe || is_told_to_end() {
            take_back(&mut kept);
        }
        if kept.is_empty() {
            return ground;
        }
        notify(&Notice::Endangered { kept: &kept, resumed_from: search.found.as_ref() });
        self.relied_on.extend(kept.iter().filter_map(earlier_copy));
        let is_named = |copy: &Path| copy.parent().is_some_and(|folder| resumption.mentions(folder));
        let removed = thin_out(&kept, run, &|copy| is_named(copy) || self.relied_on.contains(&on_disk(copy)));
        if !removed.is_empty() {
            notify(&Notice::ThinnedOut { removed: &removed, left: MOST_COPIES });
        }
        ground
    }

    fn endangered(&self, search: &CheckpointSearch, start: usize) -> (Vec<PathBuf>, Way) {
        let resumption = self.resumption;
        let newer = || search.refused.iter().chain(&search.damaged).cloned().collect();
        match &search.found {
            _ if resumption.is_the_scripts() => (newer(), Way::Aside),
            _ if self.copies == Copies::Off => (Vec::new(), Way::Copy),
            None if resumption.beginning == Beginning::Overwrites => {
                (resumption.endangered(self.since(start)), Way::CopyOrMove)
            }
            None => (resumption.endangered(self.since(start)), Way::Copy),
            Some(_) if resumption.beginning == Beginning::Beside => (Vec::new(), Way::Copy),
            Some(_) => (newer(), Way::Copy),
        }
    }

    /// Since when the run has written something; before its first start it has not.
    fn since(&self, start: usize) -> Option<SystemTime> {
        (start > 1).then_some(self.begun)
    }

    /// Moves what the start before wrote out of the way, where the next one would refuse to write over it.
    pub(crate) fn clear_the_way(&self, start: usize, notify: &mut dyn FnMut(&Notice)) {
        let run = self.run.file_name().map_or_else(|| "run".into(), |name| name.to_string_lossy());
        for file in self.resumption.in_the_way(self.begun) {
            let Some(name) = file.file_name() else { continue };
            let target = file.with_file_name(format!("{run}-start-{start}-{}", name.to_string_lossy()));
            // One that cannot be moved ends the next start, which says why.
            if move_to(file, &target).is_ok() {
                notify(&Notice::SetAside { file, target: &target });
            }
        }
    }
}

/// The copy of an earlier run that stands for a checkpoint.
fn earlier_copy(kept: &KeptCheckpoint) -> Option<PathBuf> {
    match &kept.refuge {
        Ok(Refuge::Earlier(copy)) => Some(on_disk(copy)),
        _ => None,
    }
}

/// The same path for a file, however it is named.
fn on_disk(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
