//! A batch that stands in the script itself, where no flag reaches it.

use lowtide_config::python::is_name;
use lowtide_config::{Config, Gap, Scope, Setting, whole_number};

use crate::accumulation::scales;
use crate::answer::place;
use crate::code::{Code, accumulates_in_context, counted_by, has_word};
use crate::preset::{is_arguments, is_library};
use crate::{Accumulation, Answer, Key, Preset, Question, accumulation, answer, candidates, key_of, key_of_option};

/// What a script says of its own batch.
#[derive(Debug, Clone, PartialEq)]
pub enum SourceBatch {
    /// Nothing.
    Absent,
    /// Micro-batch and accumulation, with their places.
    Both(HardCoded),
    /// A batch, and nothing that accumulates gradients.
    Alone {
        /// Samples computed at once.
        micro: u64,
        /// Where the batch stands.
        slot: Slot,
    },
    /// Something that is no plain number, or more than one; with the place in words.
    Unknown(String),
}

/// A batch that stands in a script.
#[derive(Debug, Clone, PartialEq)]
pub struct HardCoded {
    /// Samples computed at once.
    pub micro: u64,
    /// Micro-batches before a step of the optimizer.
    pub accum: u64,
    /// Where each of them stands.
    pub slots: [Slot; 2],
}

/// The place of a number in a script.
#[derive(Debug, Clone, PartialEq)]
pub struct Slot {
    /// The setting whose value is replaced; an empty place where it is added.
    pub setting: Setting,
    /// What is written before the number: the name of an argument that is added.
    prefix: String,
}

impl Slot {
    fn of(setting: &Setting) -> Self {
        Self { setting: setting.clone(), prefix: String::new() }
    }

    /// An argument that is added to a call, on the line of one that is there.
    fn beside(setting: &Setting, name: &str) -> Self {
        let (path, at) = (vec![name.to_owned()], setting.span.end);
        let setting = Setting { path, span: at..at, value: String::new(), ..setting.clone() };
        Self { setting, prefix: format!(", {name}=") }
    }

    /// What is written there for another number.
    #[must_use]
    pub fn text(&self, number: u64) -> String {
        format!("{}{number}", self.prefix)
    }

    /// What the script calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.setting.name().unwrap_or_default()
    }
}

/// What a script says of its own batch, by constants and arguments of calls.
#[must_use]
pub fn hard_coded(script: &Config) -> SourceBatch {
    hard_coded_for(script, &[])
}

/// The one module that a script imports and that says what its batch is, and what it says.
#[must_use]
pub fn imported_batch<'a>(script: &Config, modules: &'a [Config]) -> Option<(&'a Config, SourceBatch)> {
    let users: Vec<&Config> = std::iter::once(script).chain(modules).collect();
    let said = modules.iter().map(|module| (module, hard_coded_for(module, &users)));
    let mut known = said.filter(|(_, batch)| matches!(batch, SourceBatch::Both(_) | SourceBatch::Alone { .. }));
    known.next().filter(|_| known.next().is_none())
}

/// The same of a file whose names others may use.
fn hard_coded_for(script: &Config, users: &[&Config]) -> SourceBatch {
    if let Some(call) = only_call(script, is_arguments) {
        let sought = |index: usize, key: Key| {
            let (name, default) = (Preset::HuggingFace.keys()[index], Preset::HuggingFace.defaults()[index]);
            let is_named = script.settings.iter().any(|setting| setting.name() == Some(name));
            // By its own name, for other loaders have batches of their own, and through the constant it is set to.
            let question = if is_named { Question::Key(key) } else { Question::Name(name) };
            slot(script, question, Some((call, name, default)))
        };
        return both(script, users, sought(0, Key::Batch), |_| sought(1, Key::Accumulation));
    }
    both(script, users, slot(script, Question::Key(Key::Batch), None), |_| steps_for(script, users))
}

/// A number with its place, where there is one; why it is not known.
pub(crate) type Found = Result<Option<(u64, Slot)>, String>;

/// What a script says of accumulation by itself, where its batch is given by a flag.
///
/// # Errors
///
/// Why it is not known, or why another number would mean something else.
pub fn hard_coded_steps(script: &Config) -> Result<Option<(u64, Slot)>, String> {
    steps_for(script, &[])
}

pub(crate) fn steps_for(script: &Config, users: &[&Config]) -> Found {
    let call = trainer_call(script).map(|(call, name)| (call, name, Some(1)));
    let found = slot(script, Question::Key(Key::Accumulation), call)?.or_else(|| looped(script));
    let Some((accum, slot)) = found.as_ref().filter(|(_, slot)| !is_librarys(&slot.setting)) else { return Ok(found) };
    let files = if users.is_empty() { vec![script] } else { users.to_vec() };
    let (at, name) = (place(script, slot.setting.span.start), slot.name());
    let shown = format!("{name} ({accum})");
    match accumulation(&files, name, None, &shown)? {
        Accumulation::Scales | Accumulation::Cuts => Ok(found),
        Accumulation::Unseen => {
            Err(format!("{at}: the loss is not divided by {shown}, so that another would change the gradients"))
        }
    }
}

fn both(script: &Config, users: &[&Config], micro: Found, accum: impl FnOnce(&Slot) -> Found) -> SourceBatch {
    let is_in_use = |setting: &Setting| {
        let is_named =
            |user: &&Config| user.name != script.name && setting.name().is_some_and(|it| has_word(&user.text, it));
        is_in_use(script, setting) || users.iter().any(is_named)
    };
    let (micro, slot) = match micro {
        Ok(Some(found)) => found,
        Ok(None) => return SourceBatch::Absent,
        Err(why) => return SourceBatch::Unknown(why),
    };
    match accum(&slot) {
        Ok(Some((accum, other))) => SourceBatch::Both(HardCoded { micro, accum, slots: [slot, other] }),
        Ok(None) if is_in_use(&slot.setting) => SourceBatch::Alone { micro, slot },
        Ok(None) => SourceBatch::Absent,
        Err(why) => SourceBatch::Unknown(why),
    }
}

/// The place of a number, in the script or to be added to a call with the default that it has.
pub(crate) fn slot(script: &Config, question: Question, added: Option<(&Setting, &str, Option<u64>)>) -> Found {
    match answer(std::slice::from_ref(script), question) {
        Answer::Unknown(why) => {
            let is_it = |path: &[String]| question.rank(script.syntax, path).is_some();
            let known = local(script, question).or_else(|| constant(script, question));
            known.or_else(|| quotient(script, is_it)).map(Some).ok_or(why)
        }
        Answer::Absent => Ok(added.and_then(|(call, name, default)| Some((default?, Slot::beside(call, name))))),
        Answer::Number { setting, .. } if setting.scope == Scope::Option => Ok(None),
        Answer::Number { number, setting, .. } => {
            let is_rival =
                |it: &&Setting| it.span != setting.span && it.name() == setting.name() && !script.replaces(setting, it);
            let others = candidates(script, question).map(|(_, it)| it).filter(is_rival);
            match others.filter(|it| whole_number(&it.value).is_some()).last() {
                Some(other) => Err(format!(
                    "{}: {} is set in line {} too",
                    place(script, setting.span.start),
                    setting.path.join("."),
                    script.line_of(other.span.start)
                )),
                None => Ok(Some((number, Slot::of(setting)))),
            }
        }
    }
}

/// The place of a number that one function of the script keeps in a variable, set once and to a plain number.
fn local(script: &Config, question: Question) -> Option<(u64, Slot)> {
    let is_number = |(_, setting): &(usize, &Setting)| whole_number(&setting.value).is_some();
    let is_it = |gap: &&Gap| question.rank(script.syntax, &gap.path).is_some();
    let mut gaps = script.gaps.iter().filter(is_it);
    let (Some(gap), None) = (gaps.next(), gaps.next()) else { return None };
    if gap.scope != Scope::Local || candidates(script, question).any(|it| is_number(&it)) {
        return None;
    }
    local_number(script, gap)
}

/// The plain number that a function gives to a variable of its own.
fn local_number(script: &Config, gap: &Gap) -> Option<(u64, Slot)> {
    let line = script.text[gap.at..].lines().next()?;
    let value = line.strip_prefix(&*gap.path.concat())?.trim_start().strip_prefix('=')?;
    let start = gap.at + line.len() - value.trim_start().len();
    let value = value.split('#').next()?.trim();
    let (path, span) = (gap.path.clone(), start..start + value.len());
    let setting = Setting { path, span, value: value.to_owned(), scope: Scope::Local, owner: None, around: Vec::new() };
    Some((whole_number(value)?, Slot::of(&setting)))
}

/// The place of a number that is the value of a constant with a name of its own: `N = 16`, `batch_size=N`.
fn constant(script: &Config, question: Question) -> Option<(u64, Slot)> {
    let (_, best) = candidates(script, question).min_by_key(|(rank, _)| *rank)?;
    let name = best.value.as_str();
    let setting = only_constant(script, name)?;
    let key = match question {
        Question::Key(key) => Some(key),
        Question::Name(name) => key_of(name).map(|(key, _)| key),
    };
    // Used for something else too, another value would change that; what is called a batch is one wherever it is used.
    let says_so = key.is_some() && key_of_option(name) == key;
    let shown = |line: &&str| !line.trim_start().starts_with("print(");
    let words =
        script.text.lines().filter(shown).flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
    let is_only_use = says_so || words.filter(|word| *word == name).count() == 2;
    let number = whole_number(&setting.value).filter(|_| is_only_use)?;
    Some((number, Slot::of(setting)))
}

/// The constant of a name, where the file sets it once.
fn only_constant<'a>(script: &'a Config, name: &str) -> Option<&'a Setting> {
    let mut set = script.settings.iter().filter(|setting| setting.path == [name]);
    let (Some(setting), None) = (set.next(), set.next()) else { return None };
    let is_changed = script.gaps.iter().any(|gap| gap.path == [name]);
    (setting.scope == Scope::File && is_name(name) && !is_changed).then_some(setting)
}

/// The place of a number that is one constant divided by another: `ACCUM = TOTAL // MICRO`.
fn quotient(script: &Config, is_it: impl Fn(&[String]) -> bool) -> Option<(u64, Slot)> {
    let mut set = script.settings.iter().filter(|setting| setting.scope == Scope::File && is_it(&setting.path));
    let (Some(setting), None) = (set.next(), set.next()) else { return None };
    let (whole, part) = setting.value.split_once("//")?;
    let number = |name: &str| whole_number(&only_constant(script, name.trim())?.value);
    let (whole, part) = (number(whole)?, number(part)?);
    (part > 0 && whole.is_multiple_of(part)).then(|| (whole / part, Slot::of(setting)))
}

/// The place of a number that the loop accumulates by, whatever it is called: it counts up to it before an update, and divides
/// the loss by it.
fn looped(script: &Config) -> Option<(u64, Slot)> {
    let names = counted_by(&Code::read([script])).into_iter().filter(|name| scales(&[script], name));
    let mut found = names.filter_map(|name| {
        let is_it = |path: &[String]| path == [name.clone()];
        let plain = || {
            let setting = only_constant(script, &name)?;
            Some((whole_number(&setting.value)?, Slot::of(setting)))
        };
        let local = || {
            let mut gaps = script.gaps.iter().filter(|gap| is_it(&gap.path));
            let (Some(gap), None) = (gaps.next(), gaps.next()) else { return None };
            local_number(script, gap).filter(|_| gap.scope == Scope::Local)
        };
        plain().or_else(local).or_else(|| quotient(script, is_it))
    });
    found.next().filter(|_| found.next().is_none())
}

/// An argument of the one call of its kind that a script has.
fn only_call(script: &Config, is_it: impl Fn(&str) -> bool) -> Option<&Setting> {
    let of_it = |setting: &&Setting| setting.scope == Scope::Call && setting.owner.as_deref().is_some_and(&is_it);
    let first = script.settings.iter().find(of_it)?;
    let begin = format!("{}(", first.owner.as_deref()?);
    let code = script.text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let is_one = code.map(|line| line.matches(&*begin).count()).sum::<usize>() == 1;
    // `**settings` may have the argument already that would be added.
    let is_plain = || {
        let at = script.text[..first.span.start].rfind(&*begin).unwrap_or(0);
        !arguments(&script.text[at..]).contains("**")
    };
    (is_one && is_plain()).then_some(first)
}

/// The text of a call up to its last parenthesis.
fn arguments(text: &str) -> &str {
    let mut depth = 0_usize;
    let end = text.find(|c: char| {
        depth = match c {
            '(' => depth + 1,
            ')' => depth.saturating_sub(1),
            _ => depth,
        };
        c == ')' && depth == 0
    });
    &text[..end.unwrap_or(text.len())]
}

/// An argument of the call that makes the trainer of a library, and the name that it has for accumulation.
fn trainer_call(script: &Config) -> Option<(&Setting, &'static str)> {
    if script.text.contains("lightning") {
        return Some((only_call(script, |owner| owner == "Trainer")?, "accumulate_grad_batches"));
    }
    if let Some(call) = only_call(script, is_arguments) {
        return Some((call, Preset::HuggingFace.keys()[1]));
    }
    let call = only_call(script, |owner| owner == "Accelerator")?;
    if !accumulates_in_context(&Code::read([script])) {
        return None;
    }
    Some((call, "gradient_accumulation_steps"))
}

/// Whether a setting is an argument that a library accumulates by.
fn is_librarys(setting: &Setting) -> bool {
    let owner = setting.owner.as_deref().filter(|_| setting.scope == Scope::Call).unwrap_or_default();
    is_library(owner)
}

/// Whether a constant is more than written down: its name stands somewhere else too.
pub(crate) fn is_in_use(script: &Config, setting: &Setting) -> bool {
    setting.scope != Scope::File || setting.name().is_some_and(|name| script.text.matches(name).count() > 1)
}

#[cfg(test)]
mod tests {
    use lowtide_config::Syntax;

    use super::*;

    /// The numbers, and the script with half the micro-batch.
    #[track_caller]
    fn check(text: &str, expected: Result<(u64, u64, &str), &str>) {
        let config = Config::parse_as(Syntax::Python, "t.py", text).unwrap();
        let found = match hard_coded(&config) {
            SourceBatch::Both(found) => {
                let HardCoded { micro, accum, slots: [one, other] } = &found;
                let texts = [one.text(micro / 2), other.text(accum * 2)];
                let changed = config.with([(&one.setting, &*texts[0]), (&other.setting, &*texts[1])]);
                Ok((*micro, *accum, changed))
            }
            SourceBatch::Alone { micro, slot } => Err(format!("{} {micro} alone", slot.name())),
            SourceBatch::Unknown(why) => Err(why),
            SourceBatch::Absent => Err("absent".to_owned()),
        };
        let found = found.as_ref().map(|(micro, accum, text)| (*micro, *accum, &**text)).map_err(|why| &**why);
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn arguments_of_hugging_face() {
        check(
            "a = TrainingArguments(\n    output_dir='o',\n    per_device_train_batch_size=16,  # n\n    gradient_accumulation_steps=2,\n)\n",
            Ok((
                16,
                2,
                "a = TrainingArguments(\n    output_dir='o',\n    per_device_train_batch_size=8,  # n\n    gradient_accumulation_steps=4,\n)\n",
            )),
        );
        check(
            "BS = 16\na = SFTConfig(output_dir='o', per_device_train_batch_size=BS, lr=1)\n",
            Ok((
                16,
                1,
                "BS = 8\na = SFTConfig(output_dir='o', gradient_accumulation_steps=2, per_device_train_batch_size=BS, lr=1)\n",
            )),
        );
        check(
            "a = Seq2SeqTrainingArguments('o', lr=1)\n",
            Ok((
                8,
                1,
                "a = Seq2SeqTrainingArguments('o', lr=1, gradient_accumulation_steps=2, per_device_train_batch_size=4)\n",
            )),
        );
        check(
            "N = 4\na = TrainingArguments('o', per_device_train_batch_size=N, gradient_accumulation_steps=1)\n",
            Ok((
                4,
                1,
                "N = 2\na = TrainingArguments('o', per_device_train_batch_size=N, gradient_accumulation_steps=2)\n",
            )),
        );
        check(
            "N = 4\nlayers = N\na = TrainingArguments('o', per_device_train_batch_size=N)\n",
            Err("t.py, line 3: per_device_train_batch_size is `N`, no plain whole number"),
        );
        check(
            "# TrainingArguments(x)\na = TrainingArguments('o', per_device_train_batch_size=4, **more)\n",
            Err("per_device_train_batch_size 4 alone"),
        );
        check(
            "a = TrainingArguments('o', per_device_train_batch_size=n // 2)\n",
            Err("t.py, line 1: per_device_train_batch_size is `n // 2`, no plain whole number"),
        );
    }

    #[test]
    fn trainers_of_other_libraries() {
        check(
            "import lightning as L\nd = DataLoader(x, batch_size=32)\nt = L.Trainer(max_epochs=1)\n",
            Ok((
                32,
                1,
                "import lightning as L\nd = DataLoader(x, batch_size=16)\nt = L.Trainer(max_epochs=1, accumulate_grad_batches=2)\n",
            )),
        );
        check(
            "a = Accelerator(gradient_accumulation_steps=4)\nd = DataLoader(x, batch_size=32)\n",
            Ok((32, 4, "a = Accelerator(gradient_accumulation_steps=8)\nd = DataLoader(x, batch_size=16)\n")),
        );
    }

    #[test]
    fn a_data_module_is_made_with_another_batch_than_its_default() {
        let module = "import lightning as L\nclass Data(L.LightningDataModule):\n    def __init__(self, d='.', batch_size: int = 64):\n        \
                      self.batch_size = batch_size\n    def train_dataloader(self):\n        return DataLoader(x, batch_size=self.batch_size)\n";
        let text = |calls: &str| format!("{module}t = L.Trainer(accumulate_grad_batches=2)\n{calls}");
        let halved = text("t.fit(m, Data('in', batch_size=16))\n").replace("batches=2", "batches=4");
        check(&text("t.fit(m, Data('in', batch_size=32))\n"), Ok((32, 2, &halved)));
        let halved = text("t.fit(m, Data())\n").replace("= 64", "= 32").replace("batches=2", "batches=4");
        check(&text("t.fit(m, Data())\n"), Ok((64, 2, &halved)));
        check(
            &text("t.fit(m, Data(batch_size=32))\nt.test(m, Data())\n"),
            Err("t.py: batch_size is `64` in line 3 and `32` in line 8"),
        );
    }

    #[test]
    fn constants_that_are_used_as_such() {
        let text = "BATCH_SIZE = 32  # n\nACCUM_STEPS = 4\nd = DataLoader(x, batch_size=BATCH_SIZE)\n";
        check(
            &format!("{text}loss = loss / ACCUM_STEPS\n"),
            Ok((
                32,
                4,
                "BATCH_SIZE = 16  # n\nACCUM_STEPS = 8\nd = DataLoader(x, batch_size=BATCH_SIZE)\nloss = loss / ACCUM_STEPS\n",
            )),
        );
        check(
            text,
            Err("t.py, line 2: the loss is not divided by ACCUM_STEPS (4), so that another would change the gradients"),
        );
        let handed = format!("{text}def train(steps): (loss / steps).backward()\ntrain(ACCUM_STEPS)\n");
        check(&handed, Ok((32, 4, &handed.replace("32 ", "16 ").replace("= 4", "= 8"))));
        check(
            "def main():\n    batch_size = 8\n    accum_steps = 2\n    d = DataLoader(x, batch_size=batch_size)\n    loss /= accum_steps\n",
            Ok((
                8,
                2,
                "def main():\n    batch_size = 4\n    accum_steps = 4\n    d = DataLoader(x, batch_size=batch_size)\n    loss /= accum_steps\n",
            )),
        );
    }

    #[test]
    fn what_the_loop_accumulates_by_whatever_it_is_called() {
        let both = |text: &str| format!("{text}d = DataLoader(x, batch_size=B)\nprint(B, N)\n");
        let uses = "loss = loss / N\nloss.backward()\nif (i + 1) % N == 0: opt.step()\n";
        check(&both(&format!("B = 16\nN = 2\n{uses}")), Ok((16, 2, &both(&format!("B = 8\nN = 4\n{uses}")))));
        check(&both(&format!("B = 16\nN = 2\n{}", uses.replace("loss / N", "loss"))), Err("B 16 alone"));
        let whole = |micro: u64, steps: &str| {
            format!(
                "TOTAL_BATCH = 32\nMICRO_BATCH = {micro}\nACCUM = {steps}\nd = DataLoader(x, batch_size=MICRO_BATCH)\n\
                 (loss / ACCUM).backward()\nif i % ACCUM == 0: opt.step()\n"
            )
        };
        check(&whole(16, "TOTAL_BATCH // MICRO_BATCH"), Ok((16, 2, &whole(8, "4"))));
        let local = "def main():\n    n = 2\n    d = DataLoader(x, batch_size=16)\n    loss /= n\n    loss.backward()\n    \
                     if i % n == 0: opt.step()\n";
        check(local, Ok((16, 2, &local.replace("16", "8").replace("n = 2", "n = 4"))));
    }

    /// What is only counted up to, and divides something else, is no accumulation.
    #[test]
    fn an_interval_of_logging_or_a_number_of_classes_is_no_accumulation() {
        let head = "B = 64\nN = 100\nd = DataLoader(x, batch_size=B)\nprint(B, N)\n";
        for uses in [
            "loss.backward()\nopt.step()\nshown += loss.item()\nif i % N == N - 1: print(shown / N)\n",
            "loss.backward()\nopt.step()\nif i % N == 0:\n    avg = shown / N\n    scheduler.step()\n",
            "(loss / N).backward()\nopt.step()\nif i % N == 0: print(loss)\n",
            "smooth = 1.0 / N\nloss = criterion(x, y, smooth)\nloss.backward()\nif i % N == 0: opt.step()\n",
        ] {
            check(&format!("{head}{uses}"), Err("B 64 alone"));
        }
    }

    #[test]
    fn a_constant_that_is_called_a_batch() {
        let text = "BATCH = 16\nACCUM_STEPS = 2\nd = DataLoader(x, batch_size=BATCH)\nloss /= ACCUM_STEPS\nn = len(x) // BATCH\n";
        check(text, Ok((16, 2, &text.replace("16", "8").replace("STEPS = 2", "STEPS = 4"))));
    }

    #[test]
    fn a_batch_in_a_module_that_is_imported() {
        let parse = |name: &str, text: &str| Config::parse_as(Syntax::Python, name, text).unwrap();
        let said = |script: &str, modules: &[&str]| {
            let names = ["settings.py", "data.py"];
            let modules: Vec<Config> = names.iter().zip(modules).map(|(name, text)| parse(name, text)).collect();
            imported_batch(&parse("train.py", script), &modules).map(|(module, batch)| match batch {
                SourceBatch::Both(found) => format!("{}: {} x {}", module.name, found.micro, found.accum),
                SourceBatch::Alone { micro, .. } => format!("{}: {micro} alone", module.name),
                _ => unreachable!("only what is known is told"),
            })
        };
        let constants = "BATCH_SIZE = 32\nACCUM_STEPS = 4\n";
        let script = "from settings import ACCUM_STEPS, BATCH_SIZE\nloader = DataLoader(x, batch_size=BATCH_SIZE)\n";
        let divides = format!("{script}loss = loss / ACCUM_STEPS\n");
        assert_eq!(said(&divides, &[constants]), Some("settings.py: 32 x 4".to_owned()));
        // The loss is not divided anywhere.
        assert_eq!(said(script, &[constants]), None);
        assert_eq!(said(script, &["BATCH_SIZE = 32\n"]), Some("settings.py: 32 alone".to_owned()));
        assert_eq!(said("import settings\n", &["BATCH_SIZE = 32\n"]), None);
        let two = ["BATCH_SIZE = 32\n", "BATCH_SIZE = 64\n"];
        assert_eq!(said(script, &two), None);
    }

    #[test]
    fn a_batch_without_accumulation() {
        check("bs = 32\nd = DataLoader(x, batch_size=bs)\nloss.backward()\n", Err("bs 32 alone"));
        check("d = DataLoader(x, batch_size=32)\n", Err("batch_size 32 alone"));
        check("batch_size = 32\n", Err("absent"));
        check(
            "d = DataLoader(x, batch_size=32)\ne = DataLoader(y, batch_size=32)\n",
            Err("t.py, line 2: batch_size is set in line 1 too"),
        );
        check(
            "train_loader = DataLoader(x, 32)\ntest_loader = DataLoader(y, batch_size=1000)\nloss.backward()\n",
            Err("batch_size 32 alone"),
        );
        check("p.add_argument('--batch_size', default=3)\n", Err("absent"));
    }
}
