//! What a run keeps: checkpoints, and the folder that they are in.

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use lowtide_core::{Event, Phase, Relocation};

use super::trainer::Trainer;
use crate::error::{Result, TrainError};
use crate::folder::{Checkpoints, Figures, FolderState, Progress, checkpoint};
use crate::memory::Moment;

impl Trainer<'_> {
    /// Saves because somebody asked for it, and says so.
    pub(super) fn save_as_asked(&mut self) -> Result<()> {
        let path = self.save()?;
        let name = path.file_name().unwrap_or_default().display();
        let message = format!("saved as checkpoint {name} because SIGUSR1 asked for it; training goes on");
        self.recovery.tell(Event::Note { step: self.step, message })
    }

    /// Saves the state as it is after the last committed step; gives the checkpoint's folder.
    pub(super) fn save(&mut self) -> Result<PathBuf> {
        self.find_folder()?;
        match self.save_where_it_is() {
            // The folder may have been deleted since it was looked for.
            Err(TrainError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                self.find_folder()?;
                self.save_where_it_is()
            }
            saved => saved,
        }
    }

    fn save_where_it_is(&mut self) -> Result<PathBuf> {
        let (begun, step) = (Instant::now(), self.step);
        let checkpoints = self.folder.checkpoints();
        checkpoints.make()?;
        let path = checkpoints.of(step);
        let events_bytes = self.recovery.journal.lines().map_or(0, |lines| lines.bytes());
        let bytes = loop {
            let save = || checkpoint::save(&path, &self.state, self.progress(), events_bytes);
            match self.recovery.injector.during(step, Phase::Save, save) {
                Err(TrainError::Engine(error)) if error.is_oom() => {
                    if let Some(stop) = self.recovery.failed(step, Phase::Save, error)? {
                        return Err(self.line_error(stop));
                    }
                }
                saved => break saved?,
            }
        };
        self.recovery.recovered();
        if let Some(figures) = self.evaluator.figures_of(step) {
            checkpoints.note_loss(step, figures.loss)?;
        }
        checkpoints.prune(self.settings.save.keep)?;
        let name = Checkpoints::name_of(step);
        let seconds = begun.elapsed().as_secs_f64();
        self.recovery.tell(Event::Saved { step, path: name, bytes, seconds })?;
        self.recovery.clean_if_due(step, Moment::AfterSave)?;
        Ok(self.folder.shown(&path))
    }

    /// Looks where the folder is; what was deleted is written again at once.
    pub(super) fn look_after_folder(&mut self) -> Result<()> {
        match self.find_folder()? {
            FolderState::Same | FolderState::Moved => Ok(()),
            FolderState::Emptied | FolderState::Gone => self.save().map(drop),
        }
    }

    /// Finds a folder that was moved, or makes one for what is open where it was deleted; both are told.
    fn find_folder(&mut self) -> Result<FolderState> {
        let Some(events) = self.recovery.journal.lines() else { return Ok(FolderState::Same) };
        let state = self.folder.look(events);
        let cause = match state {
            FolderState::Same => return Ok(state),
            FolderState::Moved => Relocation::Moved,
            FolderState::Emptied | FolderState::Gone => {
                let events = self.folder.restore(state, events)?;
                events.into_iter().for_each(|events| self.recovery.journal.go_on_in(events));
                Relocation::Deleted
            }
        };
        let folder = self.folder.path().display().to_string();
        self.recovery.tell(Event::Relocated { step: self.step, folder, cause })?;
        Ok(state)
    }

    /// What a checkpoint holds beside tensors.
    pub(super) fn progress(&self) -> Progress {
        Progress {
            step: self.step,
            next_sample: self.next_sample,
            guard: self.recovery.guard.clone(),
            line: self.recovery.memory.line,
            host_line: self.recovery.memory.host_line,
            figures: Figures {
                recent_losses: self.losses.clone(),
                samples_seen: self.samples_seen,
                memory: self.recovery.figures.clone(),
                wall_seconds: self.wall_seconds(),
            },
            trend: self.trend.clone(),
            evaluation: self.evaluator.last.clone(),
            is_sized: self.is_sized,
            numerics: Some(self.numerics.clone()),
        }
    }

    /// Seconds of all starts.
    pub(super) fn wall_seconds(&self) -> f64 {
        self.earlier_seconds + self.recovery.journal.seconds()
    }
}
