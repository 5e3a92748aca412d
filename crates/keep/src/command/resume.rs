//! How starts of a command resume from checkpoints: in the user's own words, or as a known trainer does it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lowtide_config::command::is_python;
use lowtide_trainers::{
    Access, Beginning, CheckpointPlace, NamedCheckpoints, Preset, ResumeCall, ResumeGap, checkpoints, named_checkpoints,
};

use crate::command::checkpoint::{CheckpointKind, CheckpointSearch};
use crate::command::strays::strays;
use crate::command::template::Values;
use crate::command::wholeness::{Form, is_whole};
use crate::{CommandRequest, KeepError, Launch, ResumeRequest, Template};

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
        let named = named_checkpoints(&request.command, access);
        if let ResumeRequest::Own { template, pattern } = &request.resume {
            let template = own_template(template)?;
            if let Err(error) = glob::Pattern::new(pattern) {
                return Err(KeepError::Pattern { pattern: pattern.clone(), detail: error.to_string() });
            }
            let (rule, patterns) = (ResumeRule::Own(template), vec![pattern.clone()]);
            let beginning = Beginning::Overwrites;
            let kind = CheckpointKind { patterns, last_file: None, form: Form::Own };
            return Ok(Self { rule, beginning, kind, call: None, kept: Vec::new(), named });
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
        let patterns = known.places.iter().map(pattern).collect();
        let kept = known.kept.iter().map(PathBuf::from).collect();
        let kind = CheckpointKind { patterns, last_file: known.last_file, form: Form::Torch };
        Ok(Self { rule, beginning: known.beginning, kind, call: known.call, kept, named })
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
    pub(crate) fn search(&self, since: SystemTime, refused: &[PathBuf]) -> CheckpointSearch {
        if self.is_known() { self.kind.newest(since, refused) } else { CheckpointSearch::default() }
    }

    /// Whether a start since a moment wrote a whole checkpoint.
    pub(crate) fn wrote_one(&self, since: SystemTime) -> bool {
        self.kind.by_age(since).iter().any(|path| self.kind.is_whole(path))
    }

    /// The checkpoints that a start from step 0 may write over, whoever wrote them, the newest first. Where nothing says
    /// where checkpoints are, the files since a moment that look like some.
    #[must_use]
    pub fn endangered(&self, since: SystemTime) -> Vec<PathBuf> {
        match self.beginning {
            Beginning::Overwrites if self.kind.patterns.is_empty() => {
                let strays = strays(Path::new("."), since).into_iter();
                strays.map(|stray| stray.strip_prefix(".").map(Path::to_owned).unwrap_or(stray)).collect()
            }
            Beginning::Overwrites => self.kind.by_age(SystemTime::UNIX_EPOCH),
            Beginning::Beside | Beginning::Resumes => Vec::new(),
        }
    }

    /// Checkpoints that the command names itself and that a start from step 0 may write over: files of any age, and what was
    /// written into named folders since a moment. What else is in danger is not among them.
    #[must_use]
    pub fn named(&self, since: SystemTime, others: &[PathBuf]) -> Vec<PathBuf> {
        if self.beginning == Beginning::Resumes {
            return Vec::new();
        }
        let files = self.named.files.iter().map(PathBuf::from).filter(|file| file.is_file());
        let folders = self.named.folders.iter().flat_map(|folder| strays(Path::new(folder), since));
        let places = |paths: &[PathBuf]| -> Vec<_> { paths.iter().map(|path| path.canonicalize().ok()).collect() };
        let others = places(others);
        let mut named: Vec<PathBuf> = Vec::new();
        for path in files.chain(folders) {
            let place = path.canonicalize().ok();
            if !others.contains(&place) && !places(&named).contains(&place) {
                named.push(path);
            }
        }
        named
    }

    /// Whether the command may need the checkpoints that it names where they are.
    pub(crate) fn may_read_named(&self) -> bool {
        self.named.may_be_read
    }

    /// The newest whole checkpoint of any age, and when it was written.
    #[must_use]
    pub fn newest(&self) -> Option<(PathBuf, SystemTime)> {
        let path = self.kind.newest(SystemTime::UNIX_EPOCH, &[]).found?.path;
        let written = fs::metadata(&path).and_then(|metadata| metadata.modified()).ok()?;
        Some((path, written))
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

fn pattern(place: &CheckpointPlace) -> String {
    let folder = glob::Pattern::escape(place.folder.trim_end_matches('/'));
    match &*folder {
        "." => place.names.to_owned(),
        folder => format!("{folder}/{}", place.names),
    }
}
