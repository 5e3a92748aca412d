//! What worked the last time: a file beside the folders of runs that says with which batch a command got through.
//!
//! It is remembered beside the run folders (`runs/remembered.json`) by the command's
//! words, its folder, the cards and the memory of the host; it counts only as long as the command's own batch is what
//! it was.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use lowtide_core::Bytes;
use lowtide_disk::read_text;
use lowtide_sensors::{HostSampler, Options, Sampler};
use serde::{Deserialize, Serialize};

use crate::keeper::sequel::is_leap;
use crate::{BatchSplit, CommandLadder, EndKind, KeepError, StartRecord, batch_changed};

/// Its name.
const NOTEBOOK: &str = "remembered.json";
/// The version of its form.
const SCHEMA: u32 = 1;
/// Commands that are remembered; those that were run longest ago are dropped first.
const MOST: usize = 200;
/// More than so many commands have words.
const LARGEST: u64 = 4 << 20;
/// What decides which cards a command sees.
const VISIBLE: [&str; 2] = ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"];

/// What a command is known by: the same words elsewhere, or with other memory, may need another batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteKey {
    /// Its words.
    pub command: Vec<String>,
    /// The folder that it is run in.
    pub directory: String,
    /// The cards, what of them is seen, and the memory of the host.
    pub memory: Vec<String>,
}

/// The batch that a command got through with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The command.
    #[serde(flatten)]
    pub key: NoteKey,
    /// The batch as the command has it.
    pub typed: BatchSplit,
    /// The batch that it got through with.
    pub batch: BatchSplit,
    /// The folder of the run that showed it.
    pub run: String,
}

/// All that is remembered in one place.
#[derive(Debug)]
pub struct Notebook {
    path: PathBuf,
    notes: Vec<Note>,
}

#[derive(Serialize, Deserialize)]
struct Form {
    schema: u32,
    notes: Vec<Note>,
}

impl NoteKey {
    /// A command that is run here and now.
    #[must_use]
    pub fn here(command: &[OsString]) -> Self {
        let shown = |word: &OsString| word.to_string_lossy().into_owned();
        let directory = env::current_dir().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
        let cards = Sampler::new(Options::default()).fast(0.0).gpus.cards;
        let card = |memory: Option<u64>, name| format!("{name}, {}", Bytes(memory.unwrap_or(0)));
        let mut memory: Vec<String> =
            cards.into_iter().map(|gpu| card(gpu.memory.known().map(|memory| memory.total_bytes), gpu.name)).collect();
        let seen = |name: &&str| Some(format!("{name}={}", shown(&env::var_os(name)?)));
        memory.extend(VISIBLE.iter().filter_map(seen));
        // In whole gigabytes: the kernel's own share changes a little with each start of the machine.
        let host = HostSampler::new(PathBuf::from("/")).read().map(|host| host.total_bytes.div_ceil(1 << 30));
        memory.extend(host.ok().map(|total| format!("RAM, {total} GiB")));
        Self { command: command.iter().map(shown).collect(), directory, memory }
    }
}

impl Notebook {
    /// Reads what is remembered beside the folders of runs. One that cannot be read has nothing in it, and the reason.
    #[must_use]
    pub fn read(runs: &Path) -> (Self, Option<KeepError>) {
        let path = runs.join(NOTEBOOK);
        let wrong = |detail: String| io::Error::new(io::ErrorKind::InvalidData, detail);
        let form = match read_text(&path, LARGEST) {
            Ok(text) => serde_json::from_str::<Form>(&text).map_err(|error| wrong(error.to_string())),
            // What else has the name of the folder is told by whoever makes it.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(Form { schema: SCHEMA, notes: Vec::new() })
            }
            Err(error) => Err(error),
        };
        let form = form.and_then(|form| match form.schema {
            SCHEMA => Ok(form.notes),
            other => Err(wrong(format!("its form is {other}, and {SCHEMA} is known here"))),
        });
        match form {
            Ok(notes) => (Self { path, notes }, None),
            Err(error) => {
                let error = KeepError::file(&path)(error);
                (Self { path, notes: Vec::new() }, Some(error))
            }
        }
    }

    /// Whether nothing is remembered at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// What is remembered of a command, and the rung that it is; nothing where the command has another batch now.
    #[must_use]
    pub fn find(&self, key: &NoteKey, ladder: &CommandLadder) -> Option<(&Note, usize)> {
        let note = self.notes.iter().rev().find(|note| note.key == *key)?;
        if ladder.rungs.first() != Some(&note.typed) {
            return None;
        }
        let rung = ladder.rungs.iter().position(|batch| *batch == note.batch)?;
        (rung > 0).then_some((note, rung))
    }

    /// Remembers a batch, in the place of what was remembered of the same command.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn remember(&mut self, note: Note) -> Result<(), KeepError> {
        // Others may have written it while the command ran.
        self.notes = self.path.parent().map_or_else(Vec::new, |runs| Self::read(runs).0.notes);
        self.notes.retain(|other| other.key != note.key);
        self.notes.push(note);
        let surplus = self.notes.len().saturating_sub(MOST);
        self.notes.drain(..surplus);
        self.write()
    }

    /// Drops what is remembered of a command; whether there was anything.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn forget(&mut self, key: &NoteKey) -> Result<bool, KeepError> {
        let before = self.notes.len();
        self.notes.retain(|note| note.key != *key);
        if self.notes.len() == before {
            return Ok(false);
        }
        self.write().map(|()| true)
    }

    fn write(&self) -> Result<(), KeepError> {
        let form = Form { schema: SCHEMA, notes: self.notes.clone() };
        let text = serde_json::to_string_pretty(&form).map_err(|error| KeepError::file(&self.path)(error.into()))?;
        Ok(lowtide_disk::write(&self.path, text.as_bytes())?)
    }
}

/// The start whose batch is worth remembering: another batch than the command's own, with which it finished or at least got
/// further than with the larger one before. One that changed more than the micro-batch is not, and none where larger ones
/// that may fit were left out.
#[must_use]
pub fn lesson(starts: &[StartRecord]) -> Option<&StartRecord> {
    let [before @ .., last] = starts else { return None };
    let larger = before.iter().rfind(|start| start.rung < last.rung);
    if larger.is_some_and(|larger| is_leap(larger, last)) {
        return None;
    }
    let got_further = || larger.is_some_and(|larger| last.step > larger.step);
    let is_shown = match last.outcome {
        EndKind::Finished => true,
        EndKind::Interrupted | EndKind::Failed => got_further(),
        EndKind::OutOfMemory => false,
    };
    (last.rung > 0 && is_shown && !batch_changed(starts)).then_some(last)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use lowtide_trainers::Access;

    use super::*;
    use crate::CommandRequest;

    fn ladder(batch: u64) -> CommandLadder {
        let command = vec!["train".into()];
        let rung = Some("--bs={micro} --accum={accum}".to_owned());
        let request = CommandRequest { command, rung, micro: Some(batch), ..CommandRequest::default() };
        CommandLadder::make(request, &Access { variable: &|_| None, read: &|_| None, cards: &|| 0 }).unwrap()
    }

    fn note(word: &str, micro: u64) -> Note {
        let key = NoteKey { command: vec![word.to_owned()], directory: "/d".to_owned(), memory: Vec::new() };
        let batch = BatchSplit { micro, accum: 32 / micro };
        Note { key, typed: BatchSplit { micro: 32, accum: 1 }, batch, run: "runs/t-1".to_owned() }
    }

    #[test]
    fn a_command_is_remembered_until_it_changes_or_is_forgotten() {
        let runs = tempfile::tempdir().unwrap();
        let (mut notebook, problem) = Notebook::read(runs.path());
        assert!(problem.is_none() && notebook.find(&note("t", 8).key, &ladder(32)).is_none());
        notebook.remember(note("t", 16)).unwrap();
        notebook.remember(note("t", 8)).unwrap();
        notebook.remember(note("other", 4)).unwrap();
        let (mut notebook, problem) = Notebook::read(runs.path());
        assert!(problem.is_none());
        let key = note("t", 8).key;
        assert_eq!(notebook.find(&key, &ladder(32)).map(|(note, rung)| (note.batch.micro, rung)), Some((8, 2)));
        // Another batch by now, other memory.
        assert_eq!(notebook.find(&key, &ladder(64)), None);
        let other = NoteKey { memory: vec!["a card".to_owned()], ..key.clone() };
        assert_eq!(notebook.find(&other, &ladder(32)), None);
        assert!(notebook.forget(&key).unwrap() && !notebook.forget(&key).unwrap());
        assert_eq!(Notebook::read(runs.path()).0.find(&key, &ladder(32)), None);
    }

    #[test]
    fn it_is_bounded_and_what_is_broken_is_left_aside() {
        let runs = tempfile::tempdir().unwrap();
        let (mut notebook, _) = Notebook::read(runs.path());
        for number in 0..MOST + 5 {
            notebook.remember(note(&number.to_string(), 8)).unwrap();
        }
        let (notebook, _) = Notebook::read(runs.path());
        assert_eq!(notebook.notes.len(), MOST);
        assert_eq!(notebook.find(&note("4", 8).key, &ladder(32)), None);
        for text in ["{", "", "[]", "{\"schema\": 2, \"notes\": []}"] {
            fs::write(runs.path().join(NOTEBOOK), text).unwrap();
            let (notebook, problem) = Notebook::read(runs.path());
            assert!(problem.is_some() && notebook.notes.is_empty(), "{text}");
        }
    }
}
