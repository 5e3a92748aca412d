//! A change of a configuration's text, shown as a unified diff.

use std::fmt::{Display, Write};
use std::ops::Range;

use lowtide_config::{Config, Scope, Setting, Syntax};
use lowtide_trainers::Answer;
use serde::Serialize;
use thiserror::Error;

use crate::facts::{Facts, Key};

/// Lines shown around a change.
const AROUND: usize = 3;

/// A change of one configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Patch {
    /// Name of the configuration.
    pub file: String,
    /// How it is written.
    pub syntax: Syntax,
    /// The change as a unified diff.
    pub diff: String,
    /// The single changes, first to last.
    pub edits: Vec<Edit>,
    #[serde(skip)]
    pub(crate) original: String,
}

/// One place where text is replaced; what is only added replaces nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Edit {
    /// The setting, as its keys joined by dots.
    pub key: String,
    /// Where the old text begins and ends, in bytes.
    pub span: Range<usize>,
    /// What stands there.
    pub old: String,
    /// What stands there afterwards.
    pub new: String,
    /// The value afterwards.
    pub value: String,
}

/// Why a patch cannot be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PatchError {
    /// The text is not the one the patch was made for.
    #[error("the configuration has changed since it was read, so the patch does not apply")]
    Changed,
}

impl Patch {
    /// A change of some values of a configuration; `None` where nothing would change.
    pub(crate) fn new(config: &Config, mut edits: Vec<Edit>) -> Option<Self> {
        edits.retain(|edit| edit.old != edit.new);
        edits.sort_by_key(|edit| edit.span.start);
        let overlaps = edits.windows(2).any(|pair| pair[0].span.end > pair[1].span.start);
        if edits.is_empty() || overlaps {
            return None;
        }
        let diff = diff(&config.name, &config.text, &edits);
        let (file, original) = (config.name.clone(), config.text.clone());
        Some(Self { file, syntax: config.syntax, diff, edits, original })
    }

    /// The text after the change.
    ///
    /// # Errors
    ///
    /// Where `text` is not what the patch was made for, to the byte.
    pub fn apply(&self, text: &str) -> Result<String, PatchError> {
        if text != self.original {
            return Err(PatchError::Changed);
        }
        Ok(spliced(text, 0..text.len(), &self.edits))
    }
}

/// Puts another value in the place of a setting's.
pub(crate) fn replace(config: &Config, setting: &Setting, value: impl Display) -> Edit {
    let old = config.text[setting.span.clone()].to_owned();
    let new = match old.as_bytes().first() {
        // A flag of a command line stands alone, and its value behind it.
        None => format!(" {value}"),
        Some(quote @ (b'"' | b'\'')) => format!("{0}{value}{0}", char::from(*quote)),
        _ => value.to_string(),
    };
    Edit { key: setting.path.join("."), span: setting.span.clone(), old, new, value: value.to_string() }
}

/// A change of one setting to another value.
pub(crate) fn single(config: &Config, setting: &Setting, value: impl Display) -> Option<Patch> {
    Patch::new(config, vec![replace(config, setting, value)])
}

/// Turns a switch, in the words of the file it stands in.
pub(crate) fn switch(config: &Config, setting: &Setting, to: bool) -> Option<Patch> {
    let old = &config.text[setting.span.clone()];
    let is_title = old.starts_with(['T', 'F']) || config.syntax == Syntax::Python;
    let value = match (to, old) {
        (true, "0") => "1",
        (false, "1") => "0",
        (true, _) if is_title => "True",
        (false, _) if is_title => "False",
        (true, _) => "true",
        (false, _) => "false",
    };
    single(config, setting, value)
}

/// Adds a setting behind another one of the same group; `None` where nothing can stand behind it.
pub(crate) fn add_after(config: &Config, setting: &Setting, key: &str, value: impl Display) -> Option<Edit> {
    let text = &config.text;
    let line_start = text[..setting.span.start].rfind('\n').map_or(0, |newline| newline + 1);
    let line_end = text[setting.span.end..].find('\n').map_or(text.len(), |newline| setting.span.end + newline);
    let line_end = if text[..line_end].ends_with('\r') { line_end - 1 } else { line_end };
    let newline = if text[line_end..].starts_with("\r\n") { "\r\n" } else { "\n" };
    let before = &text[line_start..setting.span.start];
    let indent: String = before.chars().take_while(|c| c.is_whitespace()).collect();
    let is_flow = config.syntax == Syntax::Yaml && before.contains('{');
    let name = setting.path.last().map_or("", |name| &**name);
    let after = text[setting.span.end..line_end].split('#').next().unwrap_or_default().trim();
    let (at, new) = match config.syntax {
        Syntax::Python => match setting.scope {
            Scope::File => (line_end, format!("{newline}{key} = {value}")),
            // An argument that has a line and a comma of its own.
            Scope::Call if before.trim().trim_end_matches('=') == name && after == "," => {
                (line_end, format!("{newline}{indent}{key}={value},"))
            }
            Scope::Call => (setting.span.end, format!(", {key}={value}")),
            // Another option or field would have to be made.
            _ => return None,
        },
        Syntax::Yaml if is_flow => (setting.span.end, format!(", {key}: {value}")),
        Syntax::Yaml => (line_end, format!("{newline}{indent}{key}: {value}")),
        Syntax::Json => match before.trim_start().starts_with('"') {
            true => (setting.span.end, format!(",{newline}{indent}\"{key}\": {value}")),
            false => (setting.span.end, format!(", \"{key}\": {value}")),
        },
        Syntax::Command => {
            let sign = if text[..setting.span.start].ends_with('=') { '=' } else { ' ' };
            let word = text[..setting.span.start].rsplit(char::is_whitespace).next().unwrap_or_default();
            let dashes = if sign == '=' && !word.starts_with('-') { "" } else { "--" };
            (setting.span.end, format!(" {dashes}{key}{sign}{value}"))
        }
    };
    let mut path = setting.path.clone();
    match config.syntax {
        Syntax::Command => path = vec![key.to_owned()],
        _ => {
            path.pop();
            path.push(key.to_owned());
        }
    }
    Some(Edit { key: path.join("."), span: at..at, old: String::new(), new, value: value.to_string() })
}

/// Sets a variable of the environment before the first command of a script; `None` where it is set already, or where
/// there is no script.
pub(crate) fn export(config: &Config, name: &str, value: &str) -> Option<Patch> {
    let text = &config.text;
    if config.syntax != Syntax::Command || !text.contains('\n') || text.contains(name) {
        return None;
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with('#');
    let first = lines.iter().position(is_code)?;
    let at = lines[..first].iter().map(|line| line.len()).sum();
    let newline = if lines[first].ends_with("\r\n") { "\r\n" } else { "\n" };
    let new = format!("export {name}={value}{newline}");
    let edit = Edit { key: name.to_owned(), span: at..at, old: String::new(), new, value: value.to_owned() };
    Patch::new(config, vec![edit])
}

/// Both keys in one file, or none.
const TWO_PLACES: &str = "batch size and accumulation are set in two different places: change both by hand";

/// A batch of another size with as much accumulation as keeps the product; the reason where that cannot be written.
pub(crate) fn micro_batch(facts: &Facts<'_>, micro: u64, accumulation: u64) -> Result<Patch, String> {
    let refused = || "the settings stand where they cannot be written".to_owned();
    let steps = match facts.answer(Key::Accumulation) {
        Answer::Number { config, setting, .. } => Some((config, setting)),
        Answer::Unknown(why) => return Err(why),
        Answer::Absent => None,
    };
    if let Some((config, whole)) = facts.whole_batch() {
        let edit = match steps {
            Some((other, setting)) if other.name == config.name => replace(config, setting, accumulation),
            Some(_) => return Err(TWO_PLACES.to_owned()),
            None => add_after(config, whole, "gradient_accumulation_steps", accumulation).ok_or_else(refused)?,
        };
        return Patch::new(config, vec![edit]).ok_or_else(refused);
    }
    let (config, batch) = match facts.answer(Key::Batch) {
        Answer::Number { config, setting, .. } => (config, setting),
        Answer::Unknown(why) => return Err(why),
        Answer::Absent => return Err("no configuration given sets the batch size".to_owned()),
    };
    for (key, name) in [(Key::Batch, "the batch size"), (Key::Accumulation, "accumulation")] {
        if facts.rival(key).is_some() {
            return Err(format!("{name} is set in several places: change the one that was in use by hand"));
        }
    }
    let mut edits = vec![replace(config, batch, micro)];
    // Where nothing is updated there is nothing to gather, and a fixed update gathers what it needs by itself.
    if facts.is_on(Key::EvalOnly) == Some(true) || facts.fixed_update().is_some() {
        return Patch::new(config, edits).ok_or_else(refused);
    }
    match steps {
        Some((other, setting)) if other.name == config.name => edits.push(replace(config, setting, accumulation)),
        Some(_) if config.syntax != Syntax::Command => return Err(TWO_PLACES.to_owned()),
        _ => edits.push(added_steps(facts, config, batch, accumulation)?.ok_or_else(refused)?),
    }
    Patch::new(config, edits).ok_or_else(refused)
}

/// Accumulation where the configuration has none, in the words of whoever reads it.
fn added_steps(facts: &Facts<'_>, config: &Config, batch: &Setting, accumulation: u64) -> Result<Option<Edit>, String> {
    let is_lightning = facts
        .configs
        .iter()
        .any(|config| config.settings.iter().any(|setting| setting.path.len() > 1 && setting.path[0] == "trainer"));
    match (facts.is_nanogpt() || facts.is_hugging_face(), is_lightning, config.syntax) {
        (true, _, _) => Ok(add_after(config, batch, "gradient_accumulation_steps", accumulation)),
        (false, true, Syntax::Command) => Ok(add_after(config, batch, "trainer.accumulate_grad_batches", accumulation)),
        (false, true, Syntax::Yaml | Syntax::Json) => {
            let beside = config.settings.iter().find(|setting| setting.path.len() == 2 && setting.path[0] == "trainer");
            let beside = beside.ok_or("the trainer's settings stand in another file")?;
            Ok(add_after(config, beside, "accumulate_grad_batches", accumulation))
        }
        _ => {
            Err("the configuration has no key for accumulation, and a smaller batch alone would change training"
                .to_owned())
        }
    }
}

/// A part of a text with the edits that lie in it carried out.
fn spliced(text: &str, range: Range<usize>, edits: &[Edit]) -> String {
    let mut result = String::with_capacity(range.len() + 64);
    let mut at = range.start;
    for edit in edits.iter().filter(|edit| edit.span.start >= range.start && edit.span.end <= range.end) {
        result.push_str(&text[at..edit.span.start]);
        result.push_str(&edit.new);
        at = edit.span.end;
    }
    result.push_str(&text[at..range.end]);
    result
}

/// One line of the old text with what takes its place.
struct Line<'a> {
    old: &'a str,
    new: Option<String>,
}

fn diff(name: &str, text: &str, edits: &[Edit]) -> String {
    let mut lines = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let end = start + line.trim_end_matches('\n').len();
        let is_changed = edits.iter().any(|edit| edit.span.start >= start && edit.span.end <= end);
        lines
            .push(Line { old: line, new: is_changed.then(|| spliced(text, start..end, edits) + &line[end - start..]) });
        start += line.len();
    }
    let name = name.trim_start_matches('/');
    let mut result = format!("--- a/{name}\n+++ b/{name}\n");
    let changed: Vec<usize> = (0..lines.len()).filter(|index| lines[*index].new.is_some()).collect();
    let mut shift = 0_isize;
    let mut next = 0;
    while next < changed.len() {
        let first = next;
        while next + 1 < changed.len() && changed[next + 1] - changed[next] <= 2 * AROUND {
            next += 1;
        }
        let from = changed[first].saturating_sub(AROUND);
        let to = (changed[next] + AROUND + 1).min(lines.len());
        next += 1;
        let mut body = String::new();
        let mut added = 0;
        for line in &lines[from..to] {
            added += hunk_line(&mut body, line);
        }
        let new_start = (from + 1).saturating_add_signed(shift);
        let count = to - from;
        let _ = writeln!(result, "@@ -{},{count} +{new_start},{} @@", from + 1, count + added);
        result.push_str(&body);
        shift += added as isize;
    }
    result
}

/// Writes one line into a hunk; how many lines it has become more.
fn hunk_line(body: &mut String, line: &Line<'_>) -> usize {
    let Some(new) = &line.new else {
        put(body, ' ', line.old);
        return 0;
    };
    // Something added behind a line leaves the line itself as it is.
    let kept = line.old.trim_end_matches(['\n', '\r']);
    if line.old.ends_with('\n')
        && let Some(added) = new.strip_prefix(kept).filter(|added| added.starts_with(['\n', '\r']))
    {
        put(body, ' ', line.old);
        let added = &added[added.find('\n').map_or(0, |newline| newline + 1)..];
        added.split_inclusive('\n').for_each(|line| put(body, '+', line));
        return added.split_inclusive('\n').count();
    }
    if let Some(added) = new.strip_suffix(line.old).filter(|added| added.ends_with('\n')) {
        added.split_inclusive('\n').for_each(|line| put(body, '+', line));
        put(body, ' ', line.old);
        return added.split_inclusive('\n').count();
    }
    put(body, '-', line.old);
    new.split_inclusive('\n').for_each(|line| put(body, '+', line));
    new.split_inclusive('\n').count() - 1
}

fn put(body: &mut String, sign: char, line: &str) {
    body.push(sign);
    body.push_str(line);
    if !line.ends_with('\n') {
        body.push_str("\n\\ No newline at end of file\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Printout;

    #[track_caller]
    fn check(name: &str, text: &str, expected: &str) -> String {
        let configs = [Config::parse(name, text).unwrap()];
        let facts =
            Facts { configs: &configs, log: &Printout::default(), stack_is_nanogpt: false, computes_on_host: false };
        let patch = micro_batch(&facts, 4, 16).unwrap();
        assert_eq!(patch.apply(text).unwrap(), expected);
        assert_eq!(patch.apply(&format!("{text} ")), Err(PatchError::Changed));
        patch.diff
    }

    #[test]
    fn nanogpt_keeps_comments_and_order() {
        let text = "# mine\nout_dir = 'x'\nbatch_size = 64 # big\nblock_size = 1024\n\neval_iters = \
            200\ngradient_accumulation_steps = 1 # none\n";
        let diff = check(
            "config/train_owt.py",
            text,
            "# mine\nout_dir = 'x'\nbatch_size = 4 # big\nblock_size = 1024\n\neval_iters = \
             200\ngradient_accumulation_steps = 16 # none\n",
        );
        assert_eq!(
            diff,
            "--- a/config/train_owt.py\n+++ b/config/train_owt.py\n@@ -1,7 +1,7 @@\n # mine\n out_dir = \
             'x'\n-batch_size = 64 # big\n\
             +batch_size = 4 # big\n block_size = 1024\n \n eval_iters = 200\n-gradient_accumulation_steps = 1 # none\n\
             +gradient_accumulation_steps = 16 # none\n"
        );
        let diff = check(
            "a.py",
            "batch_size = 64\nblock_size = 8",
            "batch_size = 4\ngradient_accumulation_steps = 16\nblock_size = 8",
        );
        assert_eq!(
            diff,
            "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,3 @@\n-batch_size = 64\n+batch_size = 4\n+gradient_accumulation_steps \
             = 16\n \
             block_size = 8\n\\ No newline at end of file\n"
        );
    }

    #[test]
    fn every_syntax() {
        check(
            "run.yaml",
            "train:\n  batch_size: 64  # b\n  accum_steps: 1\n",
            "train:\n  batch_size: 4  # b\n  accum_steps: 16\n",
        );
        check(
            "args.yaml",
            "per_device_train_batch_size: 64  # b\nlr: 1\n",
            "per_device_train_batch_size: 4  # b\ngradient_accumulation_steps: 16\nlr: 1\n",
        );
        check(
            "args.json",
            "{\n  \"per_device_train_batch_size\": 64,\n  \"lr\": 1\n}\n",
            "{\n  \"per_device_train_batch_size\": 4,\n  \"gradient_accumulation_steps\": 16,\n  \"lr\": 1\n}\n",
        );
        check(
            "run.sh",
            "python run.py --per_device_train_batch_size 64 \\\n  --bf16\n",
            "python run.py --per_device_train_batch_size 4 --gradient_accumulation_steps 16 \\\n  --bf16\n",
        );
        check(
            "fit.sh",
            "python main.py fit --data.batch_size=64 --trainer.max_epochs=3\n",
            "python main.py fit --data.batch_size=4 --trainer.accumulate_grad_batches=16 --trainer.max_epochs=3\n",
        );
        check(
            "hydra.sh",
            "python main.py data.batch_size=64 trainer.max_epochs=3\n",
            "python main.py data.batch_size=4 trainer.accumulate_grad_batches=16 trainer.max_epochs=3\n",
        );
        check(
            "args.py",
            "args = TrainingArguments(\"o\", per_device_train_batch_size=64, gradient_accumulation_steps=1)  # x\n",
            "args = TrainingArguments(\"o\", per_device_train_batch_size=4, gradient_accumulation_steps=16)  # x\n",
        );
        check(
            "args.py",
            "args = TrainingArguments(per_device_train_batch_size=64)\n",
            "args = TrainingArguments(per_device_train_batch_size=4, gradient_accumulation_steps=16)\n",
        );
        check(
            "train.py",
            "p.add_argument('--batch-size', type=int, default=64)\np.add_argument('--accum_iter', default=1)\n",
            "p.add_argument('--batch-size', type=int, default=4)\np.add_argument('--accum_iter', default=16)\n",
        );
        check(
            "w.yaml",
            "a: {per_device_train_batch_size: 64, b: 1}\r\n",
            "a: {per_device_train_batch_size: 4, gradient_accumulation_steps: 16, b: 1}\r\n",
        );
    }

    #[test]
    fn groups_and_arguments() {
        check(
            "lightning.yaml",
            "trainer:\n  max_epochs: 3  # few\n  devices: 1\ndata:\n  batch_size: 64\n",
            "trainer:\n  max_epochs: 3  # few\n  accumulate_grad_batches: 16\n  devices: 1\ndata:\n  batch_size: 4\n",
        );
        check(
            "finetune.py",
            "args = TrainingArguments(\n    per_device_train_batch_size=64,  # big\n    lr=1e-4,\n)\n",
            "args = TrainingArguments(\n    per_device_train_batch_size=4,  # big\n    \
             gradient_accumulation_steps=16,\n    lr=1e-4,\n)\n",
        );
        check(
            "finetune.py",
            "args = TrainingArguments(\n    per_device_train_batch_size=64, lr=1e-4\n)\n",
            "args = TrainingArguments(\n    per_device_train_batch_size=4, gradient_accumulation_steps=16, lr=1e-4\n)\n",
        );
    }

    #[test]
    fn what_is_not_the_value_stays() {
        check(
            "a.yaml",
            "\u{feff}train:\n  batch_size: &b 64 # x\n  accum_steps: !!int 1\nlogged: *b\n",
            "\u{feff}train:\n  batch_size: &b 4 # x\n  accum_steps: !!int 16\nlogged: *b\n",
        );
    }

    #[test]
    fn groups_of_evaluation_are_left_alone() {
        check(
            "a.yaml",
            "val:\n  batch_size: 8\ntrain:\n  batch_size: 64\n  accum_steps: 1\n",
            "val:\n  batch_size: 8\ntrain:\n  batch_size: 4\n  accum_steps: 16\n",
        );
    }

    #[test]
    fn the_batch_of_a_whole_update_stays() {
        check(
            "ds.json",
            "{\n\t\"train_batch_size\": 64,\n\t\"gradient_accumulation_steps\": 1,\n\t\"steps_per_print\": 9\n}",
            "{\n\t\"train_batch_size\": 64,\n\t\"gradient_accumulation_steps\": 16,\n\t\"steps_per_print\": 9\n}",
        );
        check(
            "ds.json",
            "{\"train_micro_batch_size_per_gpu\": 64, \"gradient_accumulation_steps\": 1, \"train_batch_size\": 64}",
            "{\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 16, \"train_batch_size\": 64}",
        );
    }

    #[test]
    fn a_variable_goes_before_the_first_command() {
        let text = "#!/bin/bash\n#SBATCH --mem=8G\n\nset -e\npython a.py --batch_size 3\n";
        let config = Config::parse("run.sh", text).unwrap();
        let patch = export(&config, "MINE", "b").unwrap();
        assert_eq!(patch.apply(text).unwrap(), text.replace("set -e", "export MINE=b\nset -e"));
        assert_eq!(
            patch.diff,
            "--- a/run.sh\n+++ b/run.sh\n@@ -1,5 +1,6 @@\n #!/bin/bash\n #SBATCH --mem=8G\n \n+export MINE=b\n set \
             -e\n python a.py --batch_size 3\n"
        );
        assert_eq!(export(&Config::parse("run.sh", "MINE=c python a.py --x 1\n").unwrap(), "MINE", "b"), None);
        assert_eq!(export(&Config::parse("command line", "python a.py --x 1").unwrap(), "MINE", "b"), None);
    }

    #[test]
    fn a_fixed_update_takes_a_smaller_micro_batch_alone() {
        check(
            "mega.sh",
            "python pretrain_gpt.py --micro-batch-size 64 --global-batch-size 256 --seq-length 8\n",
            "python pretrain_gpt.py --micro-batch-size 4 --global-batch-size 256 --seq-length 8\n",
        );
        check(
            "litgpt.yaml",
            "train:\n  global_batch_size: 64\n  micro_batch_size: 16\n",
            "train:\n  global_batch_size: 64\n  micro_batch_size: 4\n",
        );
        check(
            "ds.json",
            "{\"train_batch_size\": 128, \"train_micro_batch_size_per_gpu\": 64}",
            "{\"train_batch_size\": 128, \"train_micro_batch_size_per_gpu\": 4}",
        );
        check(
            "all.json",
            "{\"global_batch_size\": 64, \"micro_batch_size\": 16, \"gradient_accumulation_steps\": 4}",
            "{\"global_batch_size\": 64, \"micro_batch_size\": 4, \"gradient_accumulation_steps\": 16}",
        );
    }

    #[test]
    fn where_nothing_is_updated_nothing_is_gathered() {
        check("eval_gpt2.py", "batch_size = 64\neval_only = True\n", "batch_size = 4\neval_only = True\n");
    }

    #[test]
    fn no_patch_that_would_change_training() {
        let text = "p.add_argument('--per_device_train_batch_size', default=64)\n";
        let configs = [Config::parse("a.py", text).unwrap()];
        let facts =
            Facts { configs: &configs, log: &Printout::default(), stack_is_nanogpt: false, computes_on_host: false };
        assert!(micro_batch(&facts, 4, 16).is_err());
        let text = "stages:\n  - {batch_size: 8, accum_steps: 1}\n  - {batch_size: 4, accum_steps: 2}\n";
        let configs = [Config::parse("a.yaml", text).unwrap()];
        let facts =
            Facts { configs: &configs, log: &Printout::default(), stack_is_nanogpt: false, computes_on_host: false };
        assert!(micro_batch(&facts, 4, 2).unwrap_err().contains("several places"));
        let text = "stages:\n  - {batch_size: 8, accum_steps: 1}\n  - {batch_size: 8, accum_steps: 2}\n";
        let configs = [Config::parse("a.yaml", text).unwrap()];
        let facts =
            Facts { configs: &configs, log: &Printout::default(), stack_is_nanogpt: false, computes_on_host: false };
        assert!(micro_batch(&facts, 4, 2).unwrap_err().contains("several places"));
        let configs = [Config::parse("a.yaml", "TRAIN:\n  BATCH_SIZE: 8\n").unwrap()];
        let facts =
            Facts { configs: &configs, log: &Printout::default(), stack_is_nanogpt: false, computes_on_host: false };
        assert!(micro_batch(&facts, 4, 2).unwrap_err().contains("would change training"));
    }
}
