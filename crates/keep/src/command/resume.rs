//! How starts of a command resume from checkpoints: in the user's own words, or as a known trainer does it.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lowtide_config::command::is_python;
use lowtide_trainers::{
    Access, Beginning, CheckpointPlace, NamedCheckpoints, Preset, ResumeCall, ResumeGap, checkpoints,
    named_checkpoints, script,
};

use crate::command::checkpoint::{BEFORE, CheckpointKind, CheckpointSearch};
use crate::command::named_config::named_files;
use crate::command::start_folders::StartFolders;
use crate::command::strays::strays;
use crate::command::template::Values;
use crate::command::wholeness::{Form, is_whole};
use crate::{Checkpoint, CommandRequest, KeepError, Launch, ResumeRequest, Template};

/// How starts of a command resume from checkpoints.
#[derive(Debug, Clone)]
pub struct Resumption {
    /// How a restart does.
    pub rule: ResumeRule,
    /// What a start as it was typed does with the checkpoints that are there.
    pub beginning: Beginning,
    /// Where checkpoints are, and what is known of them.
    kind: CheckpointKind,
    /// What makes a copy of the script resume, where there is one.
    call: Option<ResumeCall>,
    /// Files that a start writes, and refuses to write over.
    kept: Vec<PathBuf>,
    /// Checkpoints that the command itself names.
    named: NamedCheckpoints,
    /// The command's words, its script and the files of settings that it names.
    texts: Vec<String>,
}

/// How a restart resumes.
#[derive(Debug, Clone)]
pub enum ResumeRule {
    /// It does not, as it was asked for.
    Off,
    /// In the user's own words.
    Own(Template),
    /// As a known trainer does.
    Trainer {
        /// What is put on the command line; nothing where the script finds its checkpoint by itself.
        template: Option<Template>,
        /// What is other than it would have been without the stop.
        caveat: &'static str,
    },
    /// By a call in the copy of the script that is run in its place.
    Call(ResumeCall),
    /// It does not, for a reason.
    Gap(ResumeGap),
}

impl Resumption {
    pub(crate) fn read(
        request: &CommandRequest,
        preset: Option<Preset>,
        access: &Access<'_>,
    ) -> Result<Self, KeepError> {
        let files = named_files(&request.command, access);
        let named = named_checkpoints(&request.command, &files, access);
        let words = request.command.iter().map(|word| word.to_string_lossy().into_owned());
        let files = files.into_iter().chain(script(&request.command, access)).map(|file| file.text);
        let texts = words.chain(files).collect();
        if let ResumeRequest::Own { template, pattern } = &request.resume {
            let template = own_template(template)?;
            if let Err(error) = glob::Pattern::new(pattern) {
                return Err(KeepError::Pattern { pattern: pattern.clone(), detail: error.to_string() });
            }
            let beginning = if template.is_on(&request.command) { Beginning::Resumes } else { Beginning::MayOverwrite };
            let (rule, patterns) = (ResumeRule::Own(template), vec![pattern.clone()]);
            let kind = CheckpointKind { patterns, last_file: None, form: Form::Own, start_folders: Vec::new() };
            return Ok(Self { rule, beginning, kind, call: None, kept: Vec::new(), named, texts });
        }
        let known = checkpoints(preset, &request.command, access);
        let rule = match known.resume {
            _ if matches!(request.resume, ResumeRequest::Off) => ResumeRule::Off,
            Ok(words) => {
                let template = words.words.map(Template::read).transpose()?;
                ResumeRule::Trainer { template, caveat: words.caveat }
            }
            Err(gap) => ResumeRule::Gap(gap),
        };
        let patterns = known.places.iter().map(|place| pattern(place, place.names)).collect();
        let start_folders = known.places.iter().filter_map(|place| Some(pattern(place, place.start_folder?))).collect();
        // What is there before the first start is the user's own: a start that refuses to write over it writes elsewhere.
        let kept = known.kept.iter().map(PathBuf::from).filter(|file| fs::symlink_metadata(file).is_err()).collect();
        let kind = CheckpointKind { patterns, last_file: known.last_file, form: Form::Torch, start_folders };
        Ok(Self { rule, beginning: known.beginning, kind, call: known.call, kept, named, texts })
    }

    /// Where checkpoints are, as patterns of file names.
    #[must_use]
    pub fn patterns(&self) -> &[String] {
        &self.kind.patterns
    }

    /// What is put on the command line to resume.
    #[must_use]
    pub fn template(&self) -> Option<&Template> {
        match &self.rule {
            ResumeRule::Own(template) => Some(template),
            ResumeRule::Trainer { template, .. } => template.as_ref(),
            ResumeRule::Off | ResumeRule::Call(_) | ResumeRule::Gap(_) => None,
        }
    }

    /// Retries run a copy of the script, in which the call that trains can be changed too.
    pub(crate) fn use_copy(&mut self) {
        if matches!(self.rule, ResumeRule::Gap(_))
            && let Some(call) = self.call.take()
        {
            self.rule = ResumeRule::Call(call);
        }
    }

    /// Whether a restart resumes where there is a checkpoint.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !matches!(self.rule, ResumeRule::Off | ResumeRule::Gap(_))
    }

    /// Whether the script itself looks for the checkpoint that it resumes from.
    pub(crate) fn is_the_scripts(&self) -> bool {
        matches!(self.rule, ResumeRule::Trainer { template: None, .. })
    }

    /// The checkpoint that a restart resumes from: the newest whole one that was written since a moment, but for those
    /// that a start could not resume from.
    pub(crate) fn search(&self, since: SystemTime, refused: &[Checkpoint], own: &StartFolders) -> CheckpointSearch {
        if self.is_known() { self.kind.newest(since, refused, own) } else { CheckpointSearch::default() }
    }

    /// Whether a start since a moment wrote a whole checkpoint.
    pub(crate) fn wrote_one(&self, since: SystemTime, own: &StartFolders) -> bool {
        self.kind.has_one(since, own)
    }

    /// Folders that each start makes anew, as patterns.
    pub(crate) fn start_folders(&self) -> &[String] {
        &self.kind.start_folders
    }

    /// The checkpoints that a start from step 0 may write over, whoever wrote them, the newest first. Where nothing says
    /// where checkpoints are, what looks like some and was written since the run began; before its first start that is
    /// nothing, and a look through all folders would be in vain.
    #[must_use]
    pub fn endangered(&self, since: Option<SystemTime>) -> Vec<PathBuf> {
        match self.beginning {
            Beginning::Beside | Beginning::Resumes => Vec::new(),
            Beginning::Overwrites | Beginning::MayOverwrite if !self.kind.patterns.is_empty() => {
                self.kind.by_age(SystemTime::UNIX_EPOCH)
            }
            Beginning::Overwrites | Beginning::MayOverwrite => {
                let strays = since.into_iter().flat_map(|since| strays(Path::new("."), since));
                strays.map(|stray| stray.strip_prefix(".").map(Path::to_owned).unwrap_or(stray)).collect()
            }
        }
    }

    /// Checkpoints that the command names itself and that a start from step 0 may write over: files of any age, and what was
    /// written into named folders since a moment. What else is in danger is not among them.
    #[must_use]
    pub fn named(&self, since: Option<SystemTime>, others: &[PathBuf]) -> Vec<PathBuf> {
        if self.beginning == Beginning::Resumes {
            return Vec::new();
        }
        let files = self.named.files.iter().map(PathBuf::from).filter(|file| file.is_file());
        let folders = since
            .into_iter()
            .flat_map(|since| self.named.folders.iter().flat_map(move |folder| strays(Path::new(folder), since)));
        let mut known: HashSet<Option<PathBuf>> = others.iter().map(|path| path.canonicalize().ok()).collect();
        files.chain(folders).filter(|path| known.insert(path.canonicalize().ok())).collect()
    }

    /// Whether the command names a folder in which checkpoints are kept, or what is in it.
    pub(crate) fn mentions(&self, folder: &Path) -> bool {
        let Some(name) = folder.file_name().and_then(OsStr::to_str) else { return false };
        // All runs have a `before-start-1`.
        let run = folder.parent().and_then(Path::file_name).and_then(OsStr::to_str).unwrap_or_default();
        let name = if name.starts_with(&format!("{BEFORE}start-")) { format!("{run}/{name}") } else { name.to_owned() };
        self.texts.iter().any(|text| text.contains(&name))
    }

    /// The newest whole checkpoint of any age, and when it was written.
    #[must_use]
    pub fn newest(&self) -> Option<(PathBuf, SystemTime)> {
        let newest = self.kind.newest(SystemTime::UNIX_EPOCH, &[], &StartFolders::default()).found?;
        Some((newest.path, newest.written))
    }

    /// Whether a checkpoint is whole, wherever it is.
    pub(crate) fn holds_whole(&self, checkpoint: &Path) -> bool {
        match self.kind.patterns.is_empty() {
            true => is_whole(checkpoint, Form::Own),
            false => self.kind.is_whole(checkpoint),
        }
    }

    /// Files that a start since a moment wrote, and that the next one would refuse to write over.
    pub(crate) fn in_the_way(&self, since: SystemTime) -> impl Iterator<Item = &Path> {
        let written = |path: &&Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
        self.kept.iter().map(PathBuf::as_path).filter(move |path| written(path).is_some_and(|time| time >= since))
    }

    /// Makes a start resume from a checkpoint.
    pub(crate) fn apply(&self, launch: &mut Launch, checkpoint: &Path) {
        launch.command = self.applied(&launch.command, checkpoint);
        if let (ResumeRule::Call(call), Some(copy)) = (&self.rule, launch.copies.first_mut()) {
            let path = std::path::absolute(checkpoint).unwrap_or_else(|_| checkpoint.to_owned());
            if let Some(text) = path.to_str().and_then(|path| call.applied(&copy.text, path)) {
                copy.text = text;
                copy.changes.push(format!("{}={}", call.keyword, checkpoint.display()));
            }
        }
    }

    /// A command line that resumes from a checkpoint.
    fn applied(&self, command: &[OsString], checkpoint: &Path) -> Vec<OsString> {
        let Some(template) = self.template() else { return command.to_vec() };
        let values = Values { batch: None, checkpoint: Some(checkpoint.as_os_str()) };
        let mut words = template.applied(command, values);
        // nanoGPT takes words in their order, and a file of settings that stands behind ours may set it again.
        for word in template.applied(&[], values) {
            let at = words.iter().rposition(|other| *other == word);
            if at.is_some_and(|at| words[at..].iter().any(|later| is_python(later))) {
                words.push(word);
            }
        }
        words
    }
}

fn own_template(text: &str) -> Result<Template, KeepError> {
    let template = Template::read(text)?;
    match ["{micro}", "{accum}"].into_iter().find(|place| template.has(place)) {
        Some(place) => Err(KeepError::Resume { template: text.to_owned(), place }),
        None => Ok(template),
    }
}

fn pattern(place: &CheckpointPlace, names: &str) -> String {
    let folder = glob::Pattern::escape(place.folder.trim_end_matches('/'));
    match &*folder {
        "." => names.to_owned(),
        folder => format!("{folder}/{names}"),
    }
}
