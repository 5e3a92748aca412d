//! What a retry changes: words of the command line, the environment, a copy of a configuration file or of the script.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use lowtide_config::command::{at_script, sets, value};
use lowtide_config::{Setting, Syntax, whole_number};
use lowtide_trainers::{Access, Flag, Slot, file};

use crate::command::environment::value_of;
use crate::command::template::Values;
use crate::inside::door::PATHS;
use crate::{BatchPart, BatchSplit, CommandRequest, ConfigCopy, EffectiveBatch, KeepError, Launch, StandIn, Template};

/// What a retry changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recipe {
    pub(crate) words: Option<Template>,
    pub(crate) environment: Option<Template>,
    pub(crate) config: Option<Config>,
    pub(crate) scripts: Vec<Script>,
    /// The flag for the batch of a whole step, for which the script accumulates what is missing by itself.
    pub(crate) whole: Option<Flag>,
    /// The numbers that micro-batch and accumulation may have; any where that is empty.
    pub(crate) choices: [Vec<u64>; 2],
    /// Where the command's Python looks for modules besides.
    pub(crate) paths: Option<OsString>,
    /// Whether the user said it, and not a trainer's preset.
    pub(crate) is_own: bool,
}

/// A configuration file that a retry changes: a copy is changed, and the command gets the copy.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    path: PathBuf,
    config: lowtide_config::Config,
    template: Template,
    /// Whether it is the script itself, which the command runs by its name.
    is_script: bool,
}

/// The script or a module that it imports, in which numbers stand that a retry changes: a copy is changed, and run as if it were
/// that file.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) path: PathBuf,
    pub(crate) config: lowtide_config::Config,
    pub(crate) slots: Vec<(BatchPart, Slot)>,
}

impl Script {
    pub(crate) fn new((config, path): &(lowtide_config::Config, PathBuf), slots: Vec<(BatchPart, Slot)>) -> Self {
        Self { path: path.clone(), config: config.clone(), slots }
    }
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
                let is_script = at_script(&request.command).0.last().is_some_and(|script| mentions(script, path));
                Some(Config { path: path.clone(), config, template: Template::read_named(template)?, is_script })
            }
            None => None,
        };
        let is_own = words.is_some() || environment.is_some() || config.is_some();
        Ok(Self {
            words,
            environment,
            config,
            scripts: Vec::new(),
            whole: None,
            choices: [Vec::new(), Vec::new()],
            paths: (access.variable)(PATHS),
            is_own,
        })
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
        let needed: &[&str] = match request.effective {
            EffectiveBatch::Kept => &["{micro}", "{accum}"],
            EffectiveBatch::MayShrink => &["{micro}"],
        };
        let missing = needed.iter().find(|place| !has(place));
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

    /// The same without one of the numbers.
    pub(crate) fn without(mut self, part: BatchPart) -> Self {
        self.words = self.words.and_then(|words| words.without(part.place()));
        self.environment = self.environment.and_then(|environment| environment.without(part.place()));
        self.scripts.iter_mut().for_each(|script| script.slots.retain(|(other, _)| *other != part));
        self.scripts.retain(|script| !script.slots.is_empty());
        self.choices[part as usize].clear();
        self
    }

    /// Whether a command takes a batch, by the numbers that its options may have.
    pub(crate) fn takes(&self, batch: BatchSplit) -> bool {
        let numbers = [batch.micro, batch.accum];
        self.choices.iter().zip(numbers).all(|(choices, number)| choices.is_empty() || choices.contains(&number))
    }

    /// What is changed, by the names that the command has for it.
    pub(crate) fn names(&self) -> Vec<String> {
        let places = [BatchPart::Micro, BatchPart::Accum];
        let typed =
            places.iter().flat_map(|part| self.templates().filter_map(|template| template.key_of(part.place())));
        let in_script = self.scripts.iter().flat_map(|script| {
            let name =
                |slot: &Slot| format!("{} in line {}", slot.name(), script.config.line_of(slot.setting.span.start));
            let mut names: Vec<String> = script.slots.iter().map(|(_, slot)| name(slot)).collect();
            names.last_mut().into_iter().for_each(|last| last.push_str(&format!(" of {}", script.path.display())));
            names
        });
        typed.map(str::to_owned).chain(in_script).collect()
    }

    /// Whether more accumulation goes with a smaller micro-batch.
    pub(crate) fn accumulates(&self) -> bool {
        let in_script = self.scripts.iter().flat_map(|script| &script.slots).any(|(part, _)| *part == BatchPart::Accum);
        self.whole.is_some() || in_script || self.templates().any(|template| template.has(BatchPart::Accum.place()))
    }

    /// The number that stands where a retry will put another, and its name.
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
            Some((key, shown(&value_of(command, key, access)?)))
        };
        let filed = || {
            let config = self.config.as_ref()?;
            let key = config.template.key_of(place)?;
            Some(config.setting(key).map(|setting| (key, setting.value.clone())))
        };
        let found = typed().or_else(set).map(Some).map(Ok).or_else(|| Some(filed()?.map(Some)));
        let Some((key, text)) = found.unwrap_or(Ok(None))? else { return Ok(None) };
        let wrong = || KeepError::Batch { detail: format!("{key} is `{text}`, which is no number") };
        whole_number(&text).map(|number| Some((key.to_owned(), number))).ok_or_else(wrong)
    }

    pub(crate) fn change(&self, launch: &mut Launch, values: Values<'_>, copy: &Path) -> Result<(), KeepError> {
        if let Some(template) = &self.words {
            launch.command = template.applied(&launch.command, values);
        }
        if let Some(template) = &self.environment {
            for (name, value) in template.named(values) {
                // `env BATCH=8 python train.py` sets it again.
                match sets(&launch.command, &name) {
                    Some(at) => launch.command[at] = [OsStr::new(&name), &value].join(OsStr::new("=")),
                    None => launch.environment.push((name.into(), value)),
                }
            }
        }
        if let Some(config) = &self.config {
            let mut edits = Vec::new();
            for (key, value) in config.template.named(values) {
                edits.push((config.setting(&key)?, value.to_string_lossy().into_owned()));
            }
            let edits = edits.iter().map(|(setting, value)| (*setting, value.clone()));
            let made = copy_of(&config.config, &config.path, copy, edits);
            if config.is_script {
                self.stand_in(launch, made, &config.config.text, copy);
            } else {
                for word in &mut launch.command {
                    if let Some(changed) = instead(word, &made.original, &made.path) {
                        *word = changed;
                    }
                }
                launch.copies.push(made);
            }
        }
        let Some(batch) = values.batch else { return Ok(()) };
        for (index, script) in self.scripts.iter().enumerate() {
            let copy = if index == 0 { copy.to_owned() } else { numbered(copy, index + 1) };
            let edits = script.slots.iter().map(|(part, slot)| (&slot.setting, slot.text(batch.part(*part))));
            let made = copy_of(&script.config, &script.path, &copy, edits);
            let changes = script.slots.iter().map(|(part, slot)| format!("{}={}", slot.name(), batch.part(*part)));
            let made = ConfigCopy { changes: changes.collect(), ..made };
            self.stand_in(launch, made, &script.config.text, &copy);
        }
        Ok(())
    }

    /// Makes a start run a copy as if it were the file.
    fn stand_in(&self, launch: &mut Launch, made: ConfigCopy, original: &str, copy: &Path) {
        let stand_in = StandIn { folder: copy.with_extension("start"), script: original.to_owned() };
        stand_in.enter(launch, self.paths.clone());
        launch.copies.push(ConfigCopy { stand_in: Some(stand_in), ..made });
    }
}

/// The path of a further copy of the same start: `retry-1-2`.
fn numbered(copy: &Path, number: usize) -> PathBuf {
    let mut name = copy.file_name().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    copy.with_file_name(name)
}

impl Config {
    /// The setting of a key: the file's own, or the one argument, field or entry of that name that a script has.
    fn setting(&self, key: &str) -> Result<&Setting, KeepError> {
        if let Some(setting) = self.config.at(key) {
            return Ok(setting);
        }
        let is_python = self.config.syntax == Syntax::Python;
        let is_it = |setting: &&Setting| is_python && setting.path.join(".") == key;
        let found: Vec<&Setting> = self.config.settings.iter().filter(is_it).collect();
        let path = || self.path.clone();
        match found.as_slice() {
            [] => Err(KeepError::NoKey { path: path(), key: key.to_owned() }),
            [only] => Ok(only),
            several => {
                let lines = several.iter().map(|it| self.config.line_of(it.span.start).to_string());
                let lines = lines.collect::<Vec<_>>().join(" and ");
                Err(KeepError::Ambiguous { path: path(), key: key.to_owned(), lines })
            }
        }
    }
}

/// A copy of a file with other values.
fn copy_of<'a>(
    config: &lowtide_config::Config,
    original: &Path,
    copy: &Path,
    edits: impl Iterator<Item = (&'a Setting, String)>,
) -> ConfigCopy {
    let edits: Vec<(&Setting, String)> = edits.collect();
    let text = config.with(edits.iter().map(|(setting, value)| (*setting, &**value)));
    let changes = edits.iter().map(|(setting, value)| format!("{}={value}", setting.path.join("."))).collect();
    let path = copy.with_extension(original.extension().unwrap_or_default());
    ConfigCopy { path, original: original.to_owned(), text, changes, stand_in: None }
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
