//! What a rung changes: words of the command line, the environment, a copy of a configuration file.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use lowtide_config::command::{at_script, value};
use lowtide_config::whole_number;
use lowtide_trainers::{Access, file};

use crate::command::template::Values;
use crate::{CommandRequest, ConfigCopy, KeepError, Launch, Template};

/// What a rung changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recipe {
    pub(crate) words: Option<Template>,
    pub(crate) environment: Option<Template>,
    pub(crate) config: Option<Config>,
    /// Whether the user said it, and not a trainer's preset.
    pub(crate) is_own: bool,
}

/// A configuration file that a rung changes: a copy is changed, and the command gets the copy.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    path: PathBuf,
    config: lowtide_config::Config,
    template: Template,
}

impl Recipe {
    pub(crate) fn read(request: &CommandRequest, access: &Access<'_>) -> Result<Self, KeepError> {
        let words = request.rung.as_deref().map(Template::read).transpose()?;
        let environment = request.rung_environment.as_deref().map(Template::read_named).transpose()?;
        let config = match &request.rung_config {
            Some((path, template)) => {
                let wrong = |detail: &str| KeepError::Config { path: path.clone(), detail: detail.to_owned() };
                let config = file(path, access).map_err(|detail| wrong(&detail))?;
                if !request.command.iter().any(|word| mentions(word, path)) {
                    return Err(KeepError::NotNamed { path: path.clone() });
                }
                Some(Config { path: path.clone(), config, template: Template::read_named(template)? })
            }
            None => None,
        };
        let is_own = words.is_some() || environment.is_some() || config.is_some();
        Ok(Self { words, environment, config, is_own })
    }

    pub(crate) fn templates(&self) -> impl Iterator<Item = &Template> {
        [&self.words, &self.environment]
            .into_iter()
            .flatten()
            .chain(self.config.as_ref().map(|config| &config.template))
    }

    /// A smaller micro-batch without more accumulation would be another training.
    pub(crate) fn keeps_the_batch(&self, request: &CommandRequest) -> Result<(), KeepError> {
        let has = |place: &str| self.templates().any(|template| template.has(place));
        let missing = ["{micro}", "{accum}"].into_iter().find(|place| !has(place));
        match missing {
            Some(place) if self.templates().next().is_some() => {
                let given = [&request.rung, &request.rung_environment].into_iter().flatten().cloned();
                let given = given.chain(request.rung_config.as_ref().map(|(_, template)| template.clone()));
                let detail = format!("{place} is missing, without which the effective batch would change");
                Err(KeepError::Template { template: given.collect::<Vec<_>>().join(" "), detail })
            }
            _ => Ok(()),
        }
    }

    /// The number that stands where a rung will put another, and its name.
    pub(crate) fn number(
        &self,
        place: &str,
        command: &[OsString],
        access: &Access<'_>,
    ) -> Result<Option<(String, u64)>, KeepError> {
        let shown = |text: &OsStr| text.to_string_lossy().into_owned();
        let typed = || {
            let key = self.words.as_ref()?.key_of(place)?;
            Some((key, shown(value(at_script(command).1, key)?)))
        };
        let set = || {
            let key = self.environment.as_ref()?.key_of(place)?;
            Some((key, shown(&(access.variable)(key)?)))
        };
        let filed = || {
            let config = self.config.as_ref()?;
            let key = config.template.key_of(place)?;
            Some((key, config.config.at(key)?.value.clone()))
        };
        let Some((key, text)) = typed().or_else(set).or_else(filed) else { return Ok(None) };
        let wrong = || KeepError::Batch { detail: format!("{key} is `{text}`, which is no number") };
        whole_number(&text).map(|number| Some((key.to_owned(), number))).ok_or_else(wrong)
    }

    pub(crate) fn change(&self, launch: &mut Launch, values: Values<'_>, copy: &Path) -> Result<(), KeepError> {
        if let Some(template) = &self.words {
            launch.command = template.applied(&launch.command, values);
        }
        if let Some(template) = &self.environment {
            launch.environment.extend(template.named(values).into_iter().map(|(name, value)| (name.into(), value)));
        }
        if let Some(config) = &self.config {
            let mut edits = Vec::new();
            for (key, value) in config.template.named(values) {
                let missing = || KeepError::NoKey { path: config.path.clone(), key: key.clone() };
                edits.push((config.config.at(&key).ok_or_else(missing)?, key, value.to_string_lossy().into_owned()));
            }
            let text = config.config.with(edits.iter().map(|(setting, _, value)| (*setting, &**value)));
            let changes = edits.iter().map(|(_, key, value)| format!("{key}={value}")).collect();
            let copy = copy.with_extension(config.path.extension().unwrap_or_default());
            for word in &mut launch.command {
                if let Some(changed) = instead(word, &config.path, &copy) {
                    *word = changed;
                }
            }
            launch.copy = Some(ConfigCopy { path: copy, original: config.path.clone(), text, changes });
        }
        Ok(())
    }
}

/// Whether a word names a file, alone or as the value of a setting.
fn mentions(word: &OsStr, path: &Path) -> bool {
    instead(word, path, path).is_some()
}

/// A word with another file in the place of one that it names.
fn instead(word: &OsStr, path: &Path, other: &Path) -> Option<OsString> {
    let same = |name: &OsStr| plain(Path::new(name)).eq(plain(path));
    if same(word) {
        return Some(other.into());
    }
    let bytes = word.as_bytes();
    let at = memchr::memchr(b'=', bytes)? + 1;
    same(OsStr::from_bytes(&bytes[at..])).then(|| {
        let mut changed = OsStr::from_bytes(&bytes[..at]).to_owned();
        changed.push(other);
        changed
    })
}

/// The parts of a path; `./a` is `a`.
fn plain(path: &Path) -> impl Iterator<Item = Component<'_>> {
    path.components().filter(|part| *part != Component::CurDir)
}
