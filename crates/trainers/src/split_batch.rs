//! A batch whose two numbers stand in two files: the script and a module that it imports, or two modules.

use lowtide_config::{Config, Setting, whole_number};

use crate::code::has_word;
use crate::hard_coded::{Found, is_in_use, slot, steps_for};
use crate::{Key, Question, Slot, candidates};

/// A number with its place in one of several files.
#[derive(Debug, Clone, PartialEq)]
pub struct NumberInFile<'a> {
    /// The file.
    pub file: &'a Config,
    /// The number.
    pub number: u64,
    /// Where it stands there.
    pub slot: Slot,
}

/// Micro-batch and accumulation of a script, wherever in it or in its modules each of them stands.
#[must_use]
pub fn split_batch<'a>(script: &'a Config, modules: &'a [Config]) -> Option<[NumberInFile<'a>; 2]> {
    let files = files(script, modules);
    let micro = only_number(&files, Key::Batch, |file| slot(file, Question::Key(Key::Batch), None))?;
    Some([micro, steps_in(&files)?])
}

/// What a script or a module of it says of accumulation, where its batch is given by a flag.
#[must_use]
pub fn imported_steps<'a>(script: &'a Config, modules: &'a [Config]) -> Option<NumberInFile<'a>> {
    steps_in(&files(script, modules))
}

/// Whether a script takes its batch from a name of another file, and from nothing else.
#[must_use]
pub fn takes_batch_from(script: &Config, name: &str) -> bool {
    let mut own = candidates(script, Question::Key(Key::Batch));
    // `from settings import BATCH_SIZE`
    let is_imported = || script.gaps.iter().any(|gap| gap.path.last().is_some_and(|last| last == name));
    let is_named = own.any(|(_, setting)| setting.value.rsplit('.').next() == Some(name)) || is_imported();
    is_named && refers_to(script, Key::Batch, name)
}

fn files<'a>(script: &'a Config, modules: &'a [Config]) -> Vec<&'a Config> {
    std::iter::once(script).chain(modules).collect()
}

fn steps_in<'a>(files: &[&'a Config]) -> Option<NumberInFile<'a>> {
    only_number(files, Key::Accumulation, |file| steps_for(file, files))
}

/// The number of a key that one of the files has as a plain one, and that the others only refer to.
fn only_number<'a>(files: &[&'a Config], key: Key, look: impl Fn(&Config) -> Found) -> Option<NumberInFile<'a>> {
    let mut known = None;
    let mut unknown = Vec::new();
    for file in files {
        match look(file) {
            Ok(Some((number, slot))) if known.is_none() => known = Some(NumberInFile { file, number, slot }),
            Ok(Some(_)) => return None,
            Ok(None) => {}
            Err(_) => unknown.push(*file),
        }
    }
    let known = known?;
    let is_clear = unknown.iter().all(|file| refers_to(file, key, known.slot.name()));
    (is_clear && is_in_use_by(files, &known)).then_some(known)
}

/// Whether a file takes what it has for a key from another file's name: `batch_size=settings.BATCH_SIZE`.
fn refers_to(file: &Config, key: Key, name: &str) -> bool {
    let question = Question::Key(key);
    let is_reference = |setting: &Setting| setting.value.rsplit('.').next() == Some(name);
    // The name itself, where it is imported, has no value there.
    let is_other = |path: &[String]| path.last().is_none_or(|last| last != name);
    let is_gap = file.gaps.iter().any(|gap| is_other(&gap.path) && question.rank(file.syntax, &gap.path).is_some());
    let mut others = candidates(file, question).filter(|(_, setting)| whole_number(&setting.value).is_none());
    !is_gap && others.all(|(_, setting)| is_reference(setting))
}

fn is_in_use_by(files: &[&Config], known: &NumberInFile<'_>) -> bool {
    let is_named = |file: &&Config| file.name != known.file.name && has_word(&file.text, known.slot.name());
    is_in_use(known.file, &known.slot.setting) || files.iter().any(is_named)
}

#[cfg(test)]
mod tests {
    use lowtide_config::Syntax;

    use super::*;

    /// What is found in a script and the modules that it imports, as `file: number`.
    fn said(script: &str, modules: &[&str]) -> Option<String> {
        let parse = |name: &str, text: &str| Config::parse_as(Syntax::Python, name, text).unwrap();
        let names = ["settings.py", "data.py"];
        let modules: Vec<Config> = names.iter().zip(modules).map(|(name, text)| parse(name, text)).collect();
        let script = parse("train.py", script);
        let found = split_batch(&script, &modules)?;
        Some(found.map(|it| format!("{}: {}={}", it.file.name, it.slot.name(), it.number)).join(", "))
    }

    #[test]
    fn one_number_in_each_file() {
        let divides = "loss = loss / ACCUM_STEPS\n";
        let script =
            "from settings import BATCH_SIZE\nACCUM_STEPS = 4\nloader = DataLoader(x, batch_size=BATCH_SIZE)\n";
        let both = Some("settings.py: BATCH_SIZE=32, train.py: ACCUM_STEPS=4".to_owned());
        assert_eq!(said(&format!("{script}{divides}"), &["BATCH_SIZE = 32\n"]), both);
        assert_eq!(said(script, &["BATCH_SIZE = 32\n"]), None, "the loss is not divided");
        let script = "from settings import ACCUM_STEPS\nloader = DataLoader(x, batch_size=32)\n";
        let other = Some("train.py: batch_size=32, settings.py: ACCUM_STEPS=4".to_owned());
        assert_eq!(said(&format!("{script}{divides}"), &["ACCUM_STEPS = 4\n"]), other);
        let modules = ["ACCUM_STEPS = 4\n", "loader = DataLoader(x, batch_size=32)\n"];
        let two = Some("data.py: batch_size=32, settings.py: ACCUM_STEPS=4".to_owned());
        assert_eq!(said(&format!("from settings import ACCUM_STEPS\nimport data\n{divides}"), &modules), two);
    }

    #[test]
    fn arguments_of_libraries_beside_a_constant_elsewhere() {
        let script = "import settings\na = TrainingArguments('o', per_device_train_batch_size=settings.BATCH_SIZE)\n";
        let added = Some("settings.py: BATCH_SIZE=32, train.py: gradient_accumulation_steps=1".to_owned());
        assert_eq!(said(script, &["BATCH_SIZE = 32\n"]), added);
        let script = "import lightning as L\nimport settings\nL.Trainer(max_epochs=1)\n";
        let module = "class Data:\n    def loader(self):\n        return DataLoader(x, batch_size=32)\n";
        let lightning = Some("settings.py: batch_size=32, train.py: accumulate_grad_batches=1".to_owned());
        assert_eq!(said(script, &[module]), lightning);
    }

    #[test]
    fn a_batch_that_the_script_takes_from_a_module() {
        let takes = |script: &str| {
            takes_batch_from(&Config::parse_as(Syntax::Python, "train.py", script).unwrap(), "BATCH_SIZE")
        };
        assert!(takes("d = DataLoader(x, batch_size=settings.BATCH_SIZE)\n"));
        assert!(takes("from settings import BATCH_SIZE\nloader = [BATCH_SIZE]\n"));
        assert!(!takes("a = TrainingArguments('o', per_device_train_batch_size=int(sys.argv[1]))\n"));
        assert!(!takes("batch_size = 4\n") && !takes("x = 1\n"));
    }

    #[test]
    fn nothing_where_two_files_differ() {
        let script = "from settings import BATCH_SIZE\nACCUM_STEPS = 4\nloss = loss / ACCUM_STEPS\n";
        assert_eq!(said(script, &["BATCH_SIZE = 32\n", "BATCH_SIZE = 64\n"]), None);
        assert_eq!(said(script, &["BATCH_SIZE = 32\n", "d = DataLoader(x, batch_size=n // 2)\n"]), None);
        assert_eq!(said(script, &["BATCH_SIZE = 32\nACCUM_STEPS = 2\n"]), None);
    }
}
