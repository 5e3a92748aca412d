//! What a run keeps: checkpoints, and the folder that they are in.

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use lowtide_core::{Bytes, Event, Phase, Relocation};

use super::trainer::Trainer;
use crate::error::{Result, TrainError};
use crate::folder::{Checkpoints, Figures, FolderState, Progress, checkpoint};
use crate::memory::Moment;
use crate::ranks::{Agreed, OwnFailure, Way};

impl Trainer<'_> {
    /// Saves because somebody asked for it, and says so.
    pub(super) fn save_as_asked(&mut self) -> Result<()> {
        let path = self.save()?;
        let name = path.file_name().unwrap_or_default().display();
        let message = format!("saved as checkpoint {name} because SIGUSR1 asked for it; training goes on");
        self.recovery.tell(Event::Note { step: self.step, message })
    }

    /// Saves the state as it is after the last committed step; gives the checkpoint's folder. The first rank writes, and all wait
    /// for it.
    pub(super) fn save(&mut self) -> Result<PathBuf> {
        let (begun, step) = (Instant::now(), self.step);
        let saved = loop {
            let own = self.write_checkpoint();
            let own = self.state.attend(Way::ToFirst, self.recovery.team, own);
            let own = own.map_err(|error| OwnFailure::new(Phase::Save, error, &self.recovery.memory));
            match self.recovery.team.agree("saving", own, &[])?.0 {
                Agreed::Done(saved) => break saved,
                Agreed::Failed(failures) => {
                    if let Some(stop) = self.recovery.failed(step, &failures)? {
                        return Err(self.line_error(stop));
                    }
                }
            }
        };
        self.recovery.recovered();
        if let Some(bytes) = saved {
            let (path, seconds) = (Checkpoints::name_of(step), begun.elapsed().as_secs_f64());
            self.recovery.tell(Event::Saved { step, path, bytes, seconds })?;
        }
        self.recovery.clean_if_due(step, Moment::AfterSave)?;
        let folder = self.folder.as_ref();
        Ok(folder.map(|folder| folder.shown(&folder.checkpoints().of(step))).unwrap_or_default())
    }

    /// Writes the checkpoint, where this rank has the folder; its size.
    fn write_checkpoint(&mut self) -> Result<Option<Bytes>> {
        self.find_folder()?;
        match self.write_where_it_is() {
            // The folder may have been deleted since it was looked for.
            Err(TrainError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                self.find_folder()?;
                self.write_where_it_is()
            }
            written => written,
        }
    }

    fn write_where_it_is(&mut self) -> Result<Option<Bytes>> {
        let step = self.step;
        let Some(folder) = &self.folder else {
            return self.recovery.injector.during(step, Phase::Save, || Ok(None));
        };
        let checkpoints = folder.checkpoints();
        checkpoints.make()?;
        let path = checkpoints.of(step);
        let events_bytes = self.recovery.journal.lines().map_or(0, |lines| lines.bytes());
        let save = || checkpoint::save(&path, &self.state, self.recovery.team, self.progress(), events_bytes);
        let bytes = self.recovery.injector.during(step, Phase::Save, save)?;
        if let Some(figures) = self.evaluator.figures_of(step) {
            checkpoints.note_loss(step, figures.loss)?;
        }
        checkpoints.prune(self.settings.save.keep)?;
        Ok(Some(bytes))
    }

    /// Looks where the folder is; what was deleted is written again: at once, or with other ranks after the next step.
    pub(super) fn look_after_folder(&mut self) -> Result<()> {
        match self.find_folder()? {
            FolderState::Same | FolderState::Moved => Ok(()),
            FolderState::Emptied | FolderState::Gone if self.recovery.team.is_alone() => self.save().map(drop),
            FolderState::Emptied | FolderState::Gone => {
                self.asked.restore = true;
                Ok(())
            }
        }
    }

    /// Finds a folder that was moved, or makes one for what is open where it was deleted; both are told.
    fn find_folder(&mut self) -> Result<FolderState> {
        let (Some(events), Some(folder)) = (self.recovery.journal.lines(), &mut self.folder) else {
            return Ok(FolderState::Same);
        };
        let state = folder.look(events);
        let cause = match state {
            FolderState::Same => return Ok(state),
            FolderState::Moved => Relocation::Moved,
            FolderState::Emptied | FolderState::Gone => {
                let events = folder.restore(state, events)?;
                events.into_iter().for_each(|events| self.recovery.journal.go_on_in(events));
                Relocation::Deleted
            }
        };
        let folder = folder.path().display().to_string();
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
