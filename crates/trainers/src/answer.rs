//! The one answer that configurations give to the question for a number.

use lowtide_config::{Config, Gap, GapKind, Scope, Setting, Syntax, whole_number};

use crate::deepspeed::{AUTO, whole_batch};
use crate::{Key, key_of, key_of_path};

/// What configurations say of a number.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer<'a> {
    /// Nothing.
    Absent,
    /// One number, in one place.
    Number {
        /// The number.
        number: u64,
        /// The configuration it stands in.
        config: &'a Config,
        /// The setting it is the value of.
        setting: &'a Setting,
    },
    /// Something that is no plain number, or several; with the place in words.
    Unknown(String),
}

impl Answer<'_> {
    /// The number, where there is one.
    #[must_use]
    pub const fn number(&self) -> Option<u64> {
        match self {
            Self::Number { number, .. } => Some(*number),
            Self::Absent | Self::Unknown(_) => None,
        }
    }
}

/// Which number is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// By what it is about, whatever it is called.
    Key(Key),
    /// By the one name that a trainer has for it, with dots in the path of a nested key.
    Name(&'static str),
}

impl Question {
    /// How well the keys that lead to a setting answer it, 0 best; `None` where they do not.
    fn rank(self, syntax: Syntax, path: &[String]) -> Option<usize> {
        match self {
            Self::Key(key) => key_of_path(path).filter(|(known, _)| *known == key).map(|(_, rank)| rank),
            // The trainer's settings have defaults in scripts; those of the data's class are not looked for.
            Self::Name(name) if syntax == Syntax::Python => {
                path.last().is_some_and(|last| last == name.trim_start_matches("trainer.")).then_some(0)
            }
            Self::Name(name) => {
                let path = path.join(".");
                // Where the file stands before the command `fit`, it has a level for each command.
                let path = path.strip_prefix("fit.").unwrap_or(&path);
                match path == name {
                    true => Some(0),
                    false => (Some(path) == deeper(name).as_deref()).then_some(1),
                }
            }
        }
    }

    /// Whether it is about something in a group that is not read.
    fn is_in(self, group: &[String]) -> bool {
        match (self, group) {
            (_, []) => true,
            (Self::Name(name), [group]) => name.split('.').next() == Some(group),
            _ => false,
        }
    }

    /// What it is called where no setting names it.
    const fn name(self) -> &'static str {
        match self {
            Self::Name(name) => name,
            Self::Key(Key::Batch) => "batch_size",
            Self::Key(Key::Accumulation) => "gradient_accumulation_steps",
            Self::Key(_) => "it",
        }
    }
}

/// A key as Lightning has it where the class is named in a file: one level deeper.
fn deeper(key: &str) -> Option<String> {
    key.rsplit_once('.').map(|(path, name)| format!("{path}.init_args.{name}"))
}

/// What configurations say of a number; a later one counts before an earlier one.
#[must_use]
pub fn answer(configs: &[Config], question: Question) -> Answer<'_> {
    let certain = configs.iter().rev().map(|config| answer_in(config, question)).find(|it| *it != Answer::Absent);
    // What is filled in elsewhere, and a variable of the same name in a function, leave it open what is meant.
    let open = || {
        configs.iter().find_map(|config| {
            let is_it = |path: &[String]| question.rank(config.syntax, path).is_some();
            let auto = config.settings.iter().find(|setting| is_auto(setting) && is_it(&setting.path));
            let local = || config.gaps.iter().find(|gap| gap.scope == Scope::Local && is_it(&gap.path));
            auto.map(|setting| not_a_number(config, setting))
                .or_else(|| local().map(|gap| unknown(config, gap, question)))
        })
    };
    certain.or_else(open).unwrap_or(Answer::Absent)
}

fn is_auto(setting: &Setting) -> bool {
    setting.value == AUTO
}

/// The settings of a configuration that answer a question, each with how well it does, 0 best.
pub fn candidates(config: &Config, question: Question) -> impl Iterator<Item = (usize, &Setting)> {
    let (end, whole) = (end(config), whole_batch(config));
    config.settings.iter().filter(move |setting| setting.span.start < end).filter_map(move |setting| {
        let is_left_open = is_auto(setting) && config.syntax != Syntax::Command;
        let rank = question.rank(config.syntax, &setting.path)?;
        let rank = if setting.scope == Scope::Class { rank + 2 } else { rank };
        (setting.scope != Scope::Launcher && !is_left_open && whole != Some(setting)).then_some((rank, setting))
    })
}

/// Where nanoGPT's scripts read their files and flags: what is set behind it is computed from them.
fn end(config: &Config) -> usize {
    let is_configurator = |gap: &&Gap| gap.kind == GapKind::Anything && gap.text.contains("configurator.py");
    config.gaps.iter().rfind(is_configurator).map_or(usize::MAX, |gap| gap.at)
}

fn answer_in(config: &Config, question: Question) -> Answer<'_> {
    let mut rest: Vec<(usize, &Setting)> = candidates(config, question).collect();
    let mut passed = None;
    while let Some((rank, best)) = rest.iter().min_by_key(|(rank, _)| *rank).copied() {
        let is_same = |setting: &Setting| match config.syntax {
            Syntax::Python => setting.name() == best.name(),
            _ => setting.path == best.path,
        };
        let (same, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|(_, setting)| is_same(setting));
        let (own, meant): (Vec<&Setting>, Vec<&Setting>) =
            same.iter().map(|(_, setting)| *setting).partition(|setting| is_own_name(setting));
        let key = |name| key_of(name).map(|(key, _)| Question::Key(key));
        let passes_on = meant.iter().all(|setting| {
            setting.value == meant[0].value && last_name(&setting.value).and_then(key) == Some(question)
        });
        if meant.is_empty() || passes_on && !others.is_empty() {
            passed = passed.or(same.first().map(|(_, setting)| *setting));
            rest = others;
            continue;
        }
        let answer = one_of(config, &meant);
        let Answer::Number { setting, .. } = answer else { return answer };
        // Assigned again, to what something else has under this name.
        let again = own.iter().find(|own| config.replaces(own, setting) && own.span.start > setting.span.start);
        let gap = || gaps(config, question).find(|(other, gap)| *other <= rank && hides(gap, setting));
        return match again {
            Some(again) => not_a_number(config, again),
            None => gap().map_or(answer, |(_, gap)| unknown(config, gap, question)),
        };
    }
    let gap = gaps(config, question).next().map(|(_, gap)| unknown(config, gap, question));
    gap.or_else(|| passed.map(|setting| not_a_number(config, setting)))
        .or_else(|| several(config, question))
        .unwrap_or(Answer::Absent)
}

/// What may be meant without a plain value, each with how well it answers the question.
fn gaps(config: &Config, question: Question) -> impl Iterator<Item = (usize, &Gap)> {
    let end = end(config);
    config.gaps.iter().filter(move |gap| gap.at < end && gap.scope != Scope::Local).filter_map(move |gap| {
        let rank = match gap.kind {
            GapKind::Anything | GapKind::Unread => question.is_in(&gap.path).then_some(0),
            GapKind::Computed | GapKind::Changed | GapKind::Alias => question.rank(config.syntax, &gap.path),
        };
        Some((rank?, gap))
    })
}

/// Whether a gap leaves it open what a name is set to, although a setting has a value for it.
fn hides(gap: &Gap, setting: &Setting) -> bool {
    match (gap.scope, gap.kind) {
        // Of what a file runs through, the last counts.
        (Scope::File, _) if setting.scope == Scope::File => gap.at > setting.span.start,
        (_, GapKind::Alias | GapKind::Anything) => false,
        _ => true,
    }
}

/// One value of settings with the same name.
fn one_of<'a>(config: &'a Config, meant: &[&'a Setting]) -> Answer<'a> {
    let Some(last) = meant.last() else { return Answer::Absent };
    let other = meant.iter().find(|setting| setting.value != last.value && !config.replaces(last, setting));
    if let Some(other) = other {
        return Answer::Unknown(format!(
            "{}: {} is `{}` in line {} and `{}` in line {}",
            config.name,
            last.path.join("."),
            other.value,
            config.line_of(other.span.start),
            last.value,
            config.line_of(last.span.start)
        ));
    }
    match number_of(config, last) {
        Some(number) => Answer::Number { number, config, setting: last },
        None => not_a_number(config, last),
    }
}

/// The number that a setting has: in quotes it is none, except for a shell, and with a comma it is several in Python.
fn number_of(config: &Config, setting: &Setting) -> Option<u64> {
    let is_text = config.syntax != Syntax::Command && config.text[setting.span.clone()].starts_with(['"', '\'']);
    let is_tuple = config.syntax == Syntax::Python && setting.value.contains(',');
    if is_text || is_tuple { None } else { whole_number(&setting.value) }
}

/// A group of values under a name that should have one.
fn several<'a>(config: &Config, question: Question) -> Option<Answer<'a>> {
    config.settings.iter().find_map(|setting| {
        let answers = |depth: &usize| question.rank(config.syntax, &setting.path[..*depth]).is_some();
        let depth = (1..setting.path.len()).find(answers)?;
        let (place, name) = (place(config, setting.span.start), setting.path[..depth].join("."));
        Some(Answer::Unknown(format!("{place}: {name} is a group of values, no plain number")))
    })
}

fn unknown<'a>(config: &Config, gap: &Gap, question: Question) -> Answer<'a> {
    let (place, name, text) = (place(config, gap.at), gap.path.join("."), &gap.text);
    Answer::Unknown(match gap.kind {
        GapKind::Unread => format!("{} may be set in {}, which {text}", question.name(), config.name),
        GapKind::Anything => format!("{place}: {} may be set by `{text}`", question.name()),
        _ if text.is_empty() => format!("{place}: {name} has no value"),
        GapKind::Changed => format!("{place}: {name} is changed: `{text}`"),
        GapKind::Alias => format!("{place}: {name} stands for another value: `{text}`"),
        GapKind::Computed => format!("{place}: {name} is set in a way that is not read here: `{text}`"),
    })
}

fn not_a_number<'a>(config: &Config, setting: &Setting) -> Answer<'a> {
    let (place, name) = (place(config, setting.span.start), setting.path.join("."));
    Answer::Unknown(format!("{place}: {name} is `{}`, no plain whole number", setting.value))
}

/// A configuration with the line of a place; what was typed has one line.
pub(crate) fn place(config: &Config, at: usize) -> String {
    match config.syntax == Syntax::Command && !config.text.contains('\n') {
        true => config.name.clone(),
        false => format!("{}, line {}", config.name, config.line_of(at)),
    }
}

/// `batch_size=args.batch_size`: passed on, set elsewhere.
fn is_own_name(setting: &Setting) -> bool {
    last_name(&setting.value).is_some_and(|name| setting.name() == Some(name))
}

/// The last part of a dotted name, where a value is nothing else.
fn last_name(value: &str) -> Option<&str> {
    let is_name = value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && value.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
    is_name.then(|| value.rsplit('.').next()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(question: Question, name: &str, text: &str, expected: Result<Option<u64>, &str>) {
        let syntax = match name.rsplit('.').next() {
            Some("py") => Syntax::Python,
            Some("yaml") => Syntax::Yaml,
            Some("json") => Syntax::Json,
            _ => Syntax::Command,
        };
        let configs = [Config::parse_as(syntax, name, text).unwrap()];
        let found = match answer(&configs, question) {
            Answer::Absent => Ok(None),
            Answer::Number { number, .. } => Ok(Some(number)),
            Answer::Unknown(why) => Err(why),
        };
        assert_eq!(found, expected.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn steps_that_no_text_tells() {
        for (name, text) in [
            ("a.py", "gradient_accumulation_steps = 480 // batch_size\n"),
            ("a.py", "gradient_accumulation_steps = int(os.environ.get('GA', 4))\n"),
            ("a.py", "gradient_accumulation_steps = max(1, 480 // batch_size)\n"),
            ("a.py", "gradient_accumulation_steps = 5 * 8\ngradient_accumulation_steps //= 8\n"),
            ("a.py", "gradient_accumulation_steps = 8\nif ddp:\n    gradient_accumulation_steps = 4\n"),
            ("a.py", "a = TrainingArguments('o', gradient_accumulation_steps=ACC)\n"),
            ("a.py", "a = TrainingArguments('o', gradient_accumulation_steps=64//world_size)\n"),
            ("a.py", "a = TrainingArguments('o', gradient_accumulation_steps=64 // world_size, x=1)\n"),
            ("a.py", "a = TrainingArguments('o', gradient_accumulation_steps=args.gradient_accumulation_steps)\n"),
            ("a.py", "p.add_argument('--gradient_accumulation_steps', type=int, default=DEFAULT_ACC)\n"),
            ("a.py", "p.add_argument('--gradient_accumulation_steps', type=int, required=True)\nx = 1\n"),
            ("a.py", "def main():\n    accum_steps = 4\nx = 1\n"),
            ("a.yaml", "accum: 8\ngradient_accumulation_steps: ${accum}\n"),
            ("a.yaml", "gradient_accumulation_steps: ${oc.env:GA,8}\n"),
            ("a.yaml", "x: &a 4\ngradient_accumulation_steps: *a\n"),
            ("a.yaml", "gradient_accumulation_steps: null\n"),
            ("a.yaml", "trainer:\n  accumulate_grad_batches: {0: 8, 4: 4}\n"),
            ("a.yaml", "trainer:\n  accumulate_grad_batches:\n    0: 8\n    4: 4\n"),
            ("a.json", "{\"gradient_accumulation_steps\": \"auto\"}"),
            ("a.sh", "ACC=4\npython run.py --gradient_accumulation_steps $ACC\n"),
            ("a.sh", "python run.py --gradient_accumulation_steps $((256 / 32))\n"),
            ("a.sh", "python a.py --accum_iter 2\npython b.py --accum_iter 4\n"),
        ] {
            let configs = [Config::parse(name, text).unwrap()];
            let found = answer(&configs, Question::Key(Key::Accumulation));
            assert!(matches!(found, Answer::Unknown(_)), "{text}");
        }
    }

    #[test]
    fn batches_in_several_places() {
        let batch = |name, text, expected| check(Question::Key(Key::Batch), name, text, expected);
        batch(
            "dl.py",
            "bs = 32\na = DataLoader(ds, batch_size=bs)\nb = DataLoader(ds, batch_size=256)\n",
            Err("dl.py: batch_size is `bs` in line 2 and `256` in line 3"),
        );
        batch("a.py", "bs = 32\na = DataLoader(ds, batch_size=bs)\n", Ok(Some(32)));
        batch("a.py", "batch_size = 12\na = DataLoader(ds, batch_size=batch_size)\n", Ok(Some(12)));
        batch(
            "a.py",
            "batch_size = 12\na = DataLoader(ds, batch_size=256)\n",
            Err("a.py: batch_size is `12` in line 1 and `256` in line 2"),
        );
        batch("a.py", "batch_size = 12\nbatch_size = 24\n", Ok(Some(24)));
        batch("a.py", "batch_size = 12\ndef f(x):\n    batch_size, n = x.shape\n", Ok(Some(12)));
        batch("a.py", "p.add_argument('--batch_size', default=8)\nn = args.batch_size\n", Ok(Some(8)));
        batch("a.py", "batch_size = 2**5\n", Err("a.py, line 1: batch_size is `2**5`, no plain whole number"));
        batch("a.json", "{\"batch_size\": 32.0}", Err("a.json, line 1: batch_size is `32.0`, no plain whole number"));
        batch("a.yaml", "bs: &bs 32\ntrain:\n  batch_size: *bs\n", Ok(Some(32)));
        batch(
            "a.yaml",
            "---\nbatch_size: 32\n---\nbatch_size: 64\n",
            Err("a.yaml: batch_size is `32` in line 2 and `64` in line 4"),
        );
        batch("a.sh", "python a.py --batch_size 8 \\\n  --batch_size 4\n", Ok(Some(4)));
        batch("a.yaml", "batch_size:\nlr: 1\n", Err("a.yaml, line 1: batch_size has no value"));
        batch("a.yaml", "lr: 1\n", Ok(None));
    }

    #[test]
    fn a_name_in_a_script() {
        let n = |text, expected| check(Question::Name("n"), "c.py", text, expected);
        n("n = 4 # n = 5\nm = 3\n", Ok(Some(4)));
        n("n = 5 * 8\n", Ok(Some(40)));
        n("n: int = 4\n", Ok(Some(4)));
        n("n = 4\nn = 40 // world\n", Err("c.py, line 2: n is `40 // world`, no plain whole number"));
        n("BS = 3\nn = BS\nx = n\n", Err("c.py, line 2: n is `BS`, no plain whole number"));
        n("n = BS\nn = 3\n", Ok(Some(3)));
        n("n = 40\nn //= 8\n", Err("c.py, line 2: n is changed: `n //= 8`"));
        n("n = 40\nn //= 8\nn = 3\n", Ok(Some(3)));
        n("n = 5\nif True:\n    n = 20\n", Err("c.py, line 3: n is set in a way that is not read here: `n = 20`"));
        n("n = 5\nif x:\n    n = args.n\n", Err("c.py, line 3: n stands for another value: `n = args.n`"));
        n("n = 5\nn = args.n\n", Err("c.py, line 2: n is `args.n`, no plain whole number"));
        n("n, m = 4, 5\n", Err("c.py, line 1: n is set in a way that is not read here: `n, m = 4, 5`"));
        n("n = 4,5\n", Err("c.py, line 1: n is `4,5`, no plain whole number"));
        n("n = '4'\n", Err("c.py, line 1: n is `4`, no plain whole number"));
        n("n = 4; m = 5\n", Ok(Some(4)));
        let item = "c.py, line 1: n is set in a way that is not read here: `globals()['n'] = 4`";
        n("globals()['n'] = 4\n", Err(item));
        n("n = 4\nfrom base import *\n", Err("c.py, line 2: n may be set by `from base import *`"));
        n("from base import *\nn = 4\n", Ok(Some(4)));
        n("from base import *\n", Err("c.py, line 1: n may be set by `from base import *`"));
        n("assert n == 4\nassert n <= 4\nx = n * 2\n\"\"\"\nn = 4\n\"\"\"\n", Ok(None));
        n("", Ok(None));
    }

    #[test]
    fn a_variable_of_a_function_is_another_one() {
        let n = |text, expected| check(Question::Name("n"), "c.py", text, expected);
        n("n = 12\ndef f(x):\n    n, m = x.shape\n", Ok(Some(12)));
        n("n = 12\nclass A:\n    def f(self, x):\n        for n in x: n += 1\n", Ok(Some(12)));
        n("def f(x):\n    n = 3\n", Err("c.py, line 2: n is set in a way that is not read here: `n = 3`"));
        let global = Err("c.py, line 3: n is set in a way that is not read here: `n = 3`");
        n("def f():\n    global n\n    n = 3\nn = 12\nf()\n", global);
    }

    #[test]
    fn quotes_in_comments_hide_nothing() {
        let n = |text, expected| check(Question::Name("n"), "c.py", text, expected);
        n("n = 12\n# don't use '''\nn = 24\n", Ok(Some(24)));
        let hidden = Err("c.py, line 4: n is set in a way that is not read here: `n = 3`");
        n("n = 12\n# \"\"\" a\nif x:\n    n = 3\n", hidden);
        n("n = 12\nx = '# \"\"\"'\nn = 24\n'''\nn = 3\n'''\n", Ok(Some(24)));
    }

    #[test]
    fn what_nanogpt_computes_from_its_settings_is_left_out() {
        let text = "n = 40\nexec(open('configurator.py').read()) # overrides\nif ddp:\n    n //= world\nn = 3\n";
        check(Question::Name("n"), "train.py", text, Ok(Some(40)));
        let other = "n = 40\nexec(open('other.py').read())\n";
        let set = Err("train.py, line 2: n may be set by `exec(open('other.py').read())`");
        check(Question::Name("n"), "train.py", other, set);
    }

    #[test]
    fn defaults_of_scripts() {
        let n = |text, expected| check(Question::Name("n"), "c.py", text, expected);
        n("class A(B):\n    n: int = field(default=16, metadata={'help': 'default=3'})\n", Ok(Some(16)));
        n("class A(B):\n    n: int = field(\n        default=16)\n", Ok(Some(16)));
        n("class A(B):\n    n: int = 16\n    m: int = 3\n", Ok(Some(16)));
        n("p.add_argument(\n    '--n',\n    type=int,\n    default=3,\n    help='n (default=4)',\n)\n", Ok(Some(3)));
        let computed = Err("c.py, line 1: n is `os.cpu_count()`, no plain whole number");
        n("p.add_argument('-n', \"--n\", default=os.cpu_count())", computed);
        let none = "c.py, line 1: n is set in a way that is not read here: `p.add_argument('--n', type=int)`";
        n("p.add_argument('--n', type=int)", Err(none));
        n("p.set_defaults(m=3, n=4)", Ok(Some(4)));
        n("C(trainer_defaults={'n': 4, 'm': 5})", Ok(Some(4)));
        n("T(n=16)", Ok(Some(16)));
        n("a.n = 16\n", Err("c.py, line 1: n is set in a way that is not read here: `a.n = 16`"));
        let passed = Err("c.py, line 1: n is `args.n`, no plain whole number");
        n("T(n=args.n)\nif args.n == 4:\n    x = args.n * 3\nprint(f'n = {a.n}')  # n = 3\n", passed);
        n("class A:\n    n: int = 3\nclass B:\n    n: int = 4\n", Err("c.py: n is `3` in line 2 and `4` in line 4"));
        n("class A:\n    n: int = 3\nclass B:\n    n: int = 3\n", Ok(Some(3)));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "[n:=+/<{}()\\[\\]\"',\\\\ \n0-9#.ü-]{0,40}") {
            let Ok(config) = Config::parse_as(Syntax::Python, "c.py", &text) else { return Ok(()) };
            let _ = answer(&[config], Question::Name("n"));
        }
    }
}
