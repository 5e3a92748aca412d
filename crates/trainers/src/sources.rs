//! The configurations that a command line names, in the order in which they count, and the ways to what stands outside
//! of it.

use std::ffi::OsString;
use std::path::Path;

use lowtide_config::command::{at_script, is_python, quoted, value, values};
use lowtide_config::{Config, Syntax};

use crate::{Preset, script, siblings};

/// Ways to variables, files and cards.
pub struct Access<'a> {
    /// A variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// The text of a file.
    pub read: &'a dyn Fn(&Path) -> Option<String>,
    /// How many cards there are.
    pub cards: &'a dyn Fn() -> u64,
}

/// What a command line is called where its place is named.
const COMMAND_LINE: &str = "command line";

/// A command line as a configuration.
#[must_use]
pub fn command_line(command: &[OsString]) -> Config {
    let text = quoted(command);
    let unread = |_| Config::unread(COMMAND_LINE, None, "is larger than any");
    Config::parse_as(Syntax::Command, COMMAND_LINE, &text).unwrap_or_else(unread)
}

/// A configuration file, by its ending; `Err` says why it cannot be read.
///
/// # Errors
///
/// It is none of the syntaxes that are known, cannot be had, or is not written as its ending says.
pub fn file(path: &Path, access: &Access<'_>) -> Result<Config, String> {
    let syntax = syntax_of(path).ok_or("neither .py nor .yaml nor .json")?;
    let text = (access.read)(path).ok_or("cannot be read")?;
    let name = path.to_string_lossy();
    Config::parse_as(syntax, &name, &text).map_err(|error| {
        let error = error.to_string();
        // Who reports it names the file.
        error.strip_prefix(&*name).unwrap_or(&error).trim_start_matches([',', ':', ' ']).to_owned()
    })
}

/// A file as a configuration; one that cannot be read may set anything.
pub(crate) fn read(path: &Path, access: &Access<'_>) -> Config {
    file(path, access).unwrap_or_else(|problem| Config::unread(&path.to_string_lossy(), None, &problem))
}

fn syntax_of(path: &Path) -> Option<Syntax> {
    Syntax::of_name(path.to_str()?).filter(|syntax| *syntax != Syntax::Command)
}

impl Preset {
    /// The trainer of a command line, where it shows.
    #[must_use]
    pub fn of_command(command: &[OsString], access: &Access<'_>) -> Option<Self> {
        let own: Vec<Config> = script(command, access).into_iter().chain([command_line(command)]).collect();
        // A module's options count, and its marks are its own.
        let is_foreign = |preset: Self| {
            let modules = own.first().into_iter().flat_map(|script| siblings(script, access));
            preset.is_foreign_to(&modules.chain(own.clone()).collect::<Vec<_>>())
        };
        Self::typed(&own).filter(|preset| !is_foreign(*preset)).or_else(|| Self::marked(&own))
    }

    /// All that a command line says of its settings, what counts most last: the script, the files, the line itself.
    #[must_use]
    pub fn sources(self, command: &[OsString], access: &Access<'_>) -> Vec<Config> {
        let mut configs: Vec<Config> = script(command, access).into_iter().collect();
        let files = match self {
            Self::NanoGpt => at_script(command).1.iter().map(|word| &**word).filter(|word| is_python(word)).collect(),
            _ => [values(command, "--config"), values(command, "-c")].concat(),
        };
        configs.extend(files.into_iter().map(|file| read(Path::new(file), access)));
        match self {
            Self::NanoGpt => {}
            Self::HuggingFace => {
                let file = arguments_from(command, access);
                configs.extend(file.map(|file| Config::unread(&file, None, "the script reads its arguments from")));
            }
            Self::Lightning => {
                for group in ["data", "trainer"] {
                    let option = format!("--{group}");
                    let file = value(command, &option).filter(|file| syntax_of(Path::new(file)).is_some());
                    let reason = format!("is the file of {option}");
                    configs.extend(file.map(|file| Config::unread(&file.to_string_lossy(), Some(group), &reason)));
                }
            }
        }
        configs.push(command_line(command));
        configs
    }
}

/// A file that Hugging Face's parser takes arguments from, besides the command line.
fn arguments_from(command: &[OsString], access: &Access<'_>) -> Option<String> {
    let (launcher, own) = at_script(command);
    let script = launcher.last()?;
    let beside = Path::new(script).with_extension("args");
    if (access.read)(&beside).is_some() {
        return Some(beside.to_string_lossy().into_owned());
    }
    let before = std::iter::once(script).chain(own);
    let file = before.zip(own).find_map(|(before, word)| {
        let (before, word) = (before.to_string_lossy(), word.to_string_lossy());
        let is_value = before.starts_with('-') && !before.contains('=');
        let is_file = matches!(syntax_of(Path::new(&*word)), Some(Syntax::Yaml | Syntax::Json));
        let positional = is_file && !is_value && !word.starts_with('-');
        (word.starts_with('@') || positional).then(|| word.into_owned())
    });
    file.or_else(|| Some(value(command, "--args_file")?.to_string_lossy().into_owned()))
}
