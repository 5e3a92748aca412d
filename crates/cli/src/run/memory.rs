//! What `lowtide run` remembers of a command, and what it says of that.

use std::path::Path;

use lowtide_config::command::quoted;
use lowtide_keep::{BatchSplit, CommandLadder, Note, NoteKey, Notebook, StartRecord};

use crate::output::{printable, shown};
use crate::run::command::say;
use crate::run::narration::{own_environment, setting};

/// What is remembered of this command.
pub(super) struct Memory {
    notebook: Notebook,
}

/// Where the first start begins, lower than it was typed.
#[derive(Debug, Clone)]
pub(super) struct FirstRung {
    pub(super) rung: usize,
    typed: BatchSplit,
    batch: BatchSplit,
    run: String,
}

impl Memory {
    /// Reads what is remembered beside the folders of runs.
    pub(super) fn read(runs: &Path) -> Self {
        let (notebook, problem) = Notebook::read(runs);
        if let Some(problem) = problem {
            say(&format!("what was remembered of earlier runs is left aside: {problem}"));
        }
        Self { notebook }
    }

    pub(super) fn found(&self, ladder: &CommandLadder) -> Option<FirstRung> {
        // A look at the cards takes a while, and is needed only where there is something to be found.
        if self.notebook.is_empty() {
            return None;
        }
        let (note, rung) = self.notebook.find(&NoteKey::here(&ladder.command), ladder)?;
        Some(FirstRung { rung, typed: note.typed, batch: note.batch, run: note.run.clone() })
    }

    pub(super) fn forget(&mut self, ladder: &CommandLadder) {
        if let Err(error) = self.notebook.forget(&NoteKey::here(&ladder.command)) {
            say(&format!("what was remembered of this command is still there: {error}"));
        }
    }

    /// Remembers the batch of a start; says what to type to begin there.
    pub(super) fn keep(&mut self, ladder: &CommandLadder, start: &StartRecord, folder: &Path) -> String {
        let Some((batch, typed)) = start.batch.zip(ladder.rungs.first().copied()) else { return String::new() };
        let words = words(ladder, start.rung);
        let run = folder.to_string_lossy().into_owned();
        match self.notebook.remember(Note { key: NoteKey::here(&ladder.command), typed, batch, run }) {
            Ok(()) => format!("{words}; `lowtide run` of the same command does so by itself, unless --forget is given"),
            Err(error) => format!("{words} (it is not remembered: {error})"),
        }
    }
}

impl FirstRung {
    pub(super) fn greeting(&self) -> String {
        let Self { typed, batch, run, .. } = self;
        format!(
            "it begins with {batch} and not {typed}, as {} ended up there; --forget begins with {typed}",
            printable(run)
        )
    }
}

/// What to type to begin on a rung.
fn words(ladder: &CommandLadder, rung: usize) -> String {
    let Ok(launch) = ladder.launch(rung, Path::new(""), None) else { return String::new() };
    let set: Vec<String> = own_environment(ladder, &launch).map(|(name, value)| setting(name, value)).collect();
    let mut places = Vec::new();
    if !set.is_empty() {
        places.push(format!("start with `{}` before the command", printable(&quoted(&set))));
    }
    for copy in &launch.copies {
        places.push(format!("set {} in {}", printable(&copy.changes.join(" ")), shown(&copy.original)));
    }
    // The copy of a configuration file is one of the words.
    if launch.copies.iter().all(|copy| copy.stand_in.is_some()) {
        let typed = launch.words_beyond(&ladder.command);
        places.extend((!typed.is_empty()).then(|| format!("start with `{}`", printable(&quoted(&typed)))));
    }
    format!("{} next time", places.join(", "))
}
