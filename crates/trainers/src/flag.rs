//! The flag by which a number is given to a script: one that it declares, or one that is on its command line.

use lowtide_config::command::words;
use lowtide_config::python::last_name;
use lowtide_config::{Config, Gap, Scope, Setting, Syntax, whole_number};

use crate::answer::place;
use crate::config_file::{Overriding, overriding};
use crate::declaration::{Takes, declarations_of, subcommands};
use crate::{Answer, Declaration, Key, Question, answer, divides_whole, key_of_option, key_of_path};

/// A flag of a script, and the number that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// As it is typed, with its dashes.
    pub spelling: String,
    /// On the command line, or by default.
    pub number: u64,
    /// What the script calls its value.
    pub name: String,
    /// The numbers that it takes; any where that is empty.
    pub choices: Vec<u64>,
}

impl Flag {
    /// A flag that takes any number.
    #[must_use]
    pub fn new(spelling: impl Into<String>, number: u64) -> Self {
        let spelling: String = spelling.into();
        let name = spelling.trim_start_matches(['-', '+']).rsplit('.').next().unwrap_or_default().replace('-', "_");
        Self { spelling, number, name, choices: Vec::new() }
    }

    /// The flag with another value, as it is typed.
    #[must_use]
    pub fn with(&self, value: impl std::fmt::Display) -> String {
        let is_short = self.spelling.starts_with('-') && !self.spelling.starts_with("--");
        let sign = if is_short { ' ' } else { '=' };
        format!("{}{sign}{value}", self.spelling)
    }
}

/// Why the flag for a number is not known, or its number is not.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownFlag {
    /// Why, with the place in words.
    pub why: String,
    /// The flags that may be meant, as they are typed.
    pub flags: Vec<String>,
}

/// The flag for a number, where there is one: by what the scripts among these configurations declare and by what the
/// command lines among them have.
///
/// # Errors
///
/// Why it is not known: two may be meant, the number is none, or something else than the flag sets it.
pub fn flag(configs: &[Config], key: Key) -> Result<Option<Flag>, UnknownFlag> {
    let declared = declared(configs, key);
    let mut flags: Vec<String> = declared.iter().map(|(_, it)| it.flags[0].clone()).collect();
    flags.dedup();
    let unknown = |why: String| Err(UnknownFlag { why, flags: flags.clone() });
    let lines = || configs.iter().filter(|config| config.syntax == Syntax::Command);
    let Some((script, first)) = declared.first() else { return typed_alone(lines(), key) };
    // A script with subcommands may declare the same one several times.
    if let Some((other_script, other)) = declared.iter().find(|(_, other)| other.flags[0] != first.flags[0]) {
        let at = |config: &Config, it: &Declaration| format!("{} ({})", it.flags[0], place(config, it.at));
        return unknown(format!("both {} and {} may be meant", at(script, first), at(other_script, other)));
    }
    if let Some((gap_script, gap)) = declared.iter().find_map(|(script, it)| Some((script, changed(script, it)?))) {
        return unknown(format!(
            "{}: {} is changed by the script: `{}`",
            place(gap_script, gap.at),
            first.name,
            gap.text
        ));
    }
    if let Some((script, it)) = declared.iter().find(|(_, it)| it.takes == Takes::Unknown) {
        let at = place(script, it.at);
        return unknown(format!("{at}: {} takes several values, or some that are not read", it.flags[0]));
    }
    let known = |flag: Flag| {
        let numbers = |it: &Declaration| match &it.takes {
            Takes::OneOf(values) => values.iter().filter_map(|value| whole_number(value)).collect(),
            _ => Vec::new(),
        };
        Ok(Some(Flag { name: first.name.clone(), choices: numbers(first), ..flag }))
    };
    let overriding = overriding(configs);
    let set_elsewhere = |it: &Overriding| unknown(format!("{}: {} may be set by `{}`", it.at, first.flags[0], it.text));
    let every = || declared.iter().flat_map(|(_, it)| &it.flags);
    let typed = lines().rev().find_map(|line| {
        let own = line.settings.iter().rev().filter(|setting| setting.scope == Scope::File);
        own.filter_map(|setting| Some((setting, every().find(|flag| is_typed(setting, flag))?))).next()
    });
    if let Some((typed, flag)) = typed {
        if let Some(it) = overriding.iter().find(|it| it.wins) {
            return set_elsewhere(it);
        }
        let is_whole = flag.len() == spelled(typed).len();
        return number_of(typed, if is_whole { flag.clone() } else { spelled(typed) }).and_then(known);
    }
    let files = configs.iter().filter(|config| !matches!(config.syntax, Syntax::Command | Syntax::Python));
    if let Some(file) =
        files.rev().find(|file| answer(std::slice::from_ref(*file), Question::Key(key)) != Answer::Absent)
    {
        return unknown(format!("{} may be set in {}", first.flags[0], file.name));
    }
    if let Some(it) = overriding.first() {
        return set_elsewhere(it);
    }
    match default_of(&declared) {
        Ok(number) => known(Flag::new(first.flags[0].clone(), number)),
        Err(why) => unknown(why),
    }
}

/// The default of an option that is declared, once or several times alike.
fn default_of(declared: &[(&Config, Declaration)]) -> Result<u64, String> {
    let (script, first) = &declared[0];
    let defaults: Vec<(&Config, &Setting)> = declared
        .iter()
        .flat_map(|(script, it)| {
            let renewed = script.settings.iter().filter(|setting| {
                let is_set = setting.scope == Scope::Option && setting.owner.as_deref() == Some("set_defaults");
                is_set && setting.path == [it.name.clone()]
            });
            it.default.iter().chain(renewed).map(move |setting| (*script, setting))
        })
        .collect();
    let (spelling, at) = (&first.flags[0], place(script, first.at));
    let Some((_, default)) = defaults.first() else {
        return Err(format!("{at}: {spelling} has no default, and is not on the command line"));
    };
    if let Some((other_script, other)) = defaults.iter().find(|(_, other)| other.value != default.value) {
        let (other_at, other) = (place(other_script, other.span.start), &other.value);
        return Err(format!("{at}: {spelling} is `{}`, and `{other}` in {other_at}", default.value));
    }
    let none = || format!("{at}: {spelling} is `{}`, no plain whole number", default.value);
    whole_number(&default.value).ok_or_else(none)
}

/// The options that scripts declare for something.
fn declared(configs: &[Config], key: Key) -> Vec<(&Config, Declaration)> {
    let chosen = chosen_subcommands(configs);
    // Those of another subcommand are not taken.
    let is_taken = |it: &Declaration| {
        chosen.is_empty() || it.subcommands.is_empty() || it.subcommands.iter().any(|name| chosen.contains(name))
    };
    let declared = declarations_of(configs);
    let all = || declared.iter().filter(|(_, it)| is_taken(it)).cloned();
    let about = |key: Key| all().filter(|(_, it)| is_about(it, key)).collect::<Vec<_>>();
    if !matches!(key, Key::Batch | Key::UpdateBatch) {
        return about(key);
    }
    // Of two batches of which the script divides one by the other, one is computed at once and the other is that of a
    // whole step: `steps = batch_size // micro_batch_size`.
    let batches = about(Key::Batch);
    let scripts: Vec<&Config> = configs.iter().collect();
    let is_whole = |(_, whole): &(&Config, Declaration)| {
        batches.iter().any(|(_, part)| part.name != whole.name && divides_whole(&scripts, &whole.name, &part.name))
    };
    let (wholes, parts): (Vec<_>, Vec<_>) = batches.iter().cloned().partition(is_whole);
    if key == Key::Batch { parts } else { [wholes, about(key)].concat() }
}

/// The subcommands of the scripts that are on the command lines.
fn chosen_subcommands(configs: &[Config]) -> Vec<String> {
    let known: Vec<String> = configs.iter().flat_map(subcommands).collect();
    let lines = configs.iter().filter(|config| config.syntax == Syntax::Command && !known.is_empty());
    lines.flat_map(|line| words(&line.text)).map(|word| word.text).filter(|word| known.contains(word)).collect()
}

/// Whether an option is about something; a short one says it only where there is no long one.
fn is_about(declaration: &Declaration, key: Key) -> bool {
    let has_long = declaration.flags.iter().any(|flag| flag.starts_with("--"));
    let flags = declaration.flags.iter().filter(|flag| !has_long || flag.starts_with("--"));
    let names = flags.map(|flag| flag.trim_start_matches('-')).chain([&*declaration.name]);
    names.filter_map(key_of_option).any(|it| it == key)
}

/// Whether a word of the command line is a flag; argparse takes the beginning of a long one for it.
fn is_typed(setting: &Setting, flag: &str) -> bool {
    let [name] = setting.path.as_slice() else { return false };
    match flag.strip_prefix("--") {
        Some(long) => long.replace('-', "_").starts_with(&**name) && (name.len() > 2 || name.len() == long.len()),
        None => name == flag,
    }
}

/// A flag that no script here declares, and that is on the command line all the same; also as Hydra has it,
/// `train.batch_size=8`.
fn typed_alone<'a>(lines: impl Iterator<Item = &'a Config>, key: Key) -> Result<Option<Flag>, UnknownFlag> {
    let is_it = |setting: &&Setting| {
        let about = match setting.path.as_slice() {
            [name] => key_of_option(name),
            path => key_of_path(path).map(|(key, _)| key),
        };
        // One without a value is a switch.
        setting.scope == Scope::File && !setting.span.is_empty() && about == Some(key)
    };
    let typed =
        |line: &'a Config| line.settings.iter().filter(is_it).map(move |setting| (setting, word(line, setting)));
    let found: Vec<(&Setting, String)> = lines.flat_map(typed).collect();
    let Some((last, spelling)) = found.last() else { return Ok(None) };
    match found.iter().find(|(other, _)| other.path != last.path) {
        Some((_, other)) => {
            let why = format!("both {other} and {spelling} may be meant");
            Err(UnknownFlag { why, flags: vec![other.clone(), spelling.clone()] })
        }
        None => number_of(last, spelling.clone()).map(Some),
    }
}

/// The word that names an option on a command line, as it stands there.
fn word(line: &Config, setting: &Setting) -> String {
    let name = setting.path.concat();
    if name.starts_with('-') {
        return name;
    }
    let before = line.text[..setting.span.start].trim_end_matches(['=', ' ', '\'', '"']);
    before.rsplit([' ', '\'', '"', '\n']).next().unwrap_or_default().to_owned()
}

/// A flag of the command line, as it may be typed.
fn spelled(setting: &Setting) -> String {
    let name = setting.path.concat();
    if name.starts_with('-') { name } else { format!("--{name}") }
}

fn number_of(typed: &Setting, spelling: String) -> Result<Flag, UnknownFlag> {
    match whole_number(&typed.value) {
        Some(number) => Ok(Flag::new(spelling, number)),
        None => {
            let why = format!("{spelling} is `{}`, no plain whole number", typed.value);
            Err(UnknownFlag { why, flags: vec![spelling] })
        }
    }
}

/// Where the script itself gives the value of an option to something else: `args.batch_size = 4`.
fn changed<'a>(script: &'a Config, declaration: &Declaration) -> Option<&'a Gap> {
    script.gaps.iter().find(|gap| {
        let is_it = gap.scope == Scope::Member && gap.path == [declaration.name.clone()];
        // A member of a class has a name of its own, and what stands in quotes is an argument for somebody.
        let is_its = is_it && !gap.text.starts_with("self.") && !gap.text.starts_with(['"', '\'']);
        is_its && !is_cut(script, gap)
    })
}

/// Whether a batch is changed to what accumulation leaves of it, which is asked for on its own: `args.batch //= args.accum`.
fn is_cut(script: &Config, gap: &Gap) -> bool {
    let line = script.text[gap.at..].lines().next().unwrap_or_default();
    let Some((target, value)) = line.split_once('=') else { return false };
    let (target, is_augmented) = match target.trim_end().strip_suffix("//") {
        Some(target) => (target.trim(), true),
        None => (target.trim(), false),
    };
    let value = value.split('#').next().unwrap_or_default().trim();
    let value = value.strip_prefix("int(").and_then(|value| value.strip_suffix(')')).unwrap_or(value);
    let (whole, steps) = match is_augmented {
        true => (target, value),
        false => value.split_once("//").or_else(|| value.split_once('/')).unwrap_or((value, "")),
    };
    whole.trim() == target && key_of_option(last_name(steps)) == Some(Key::Accumulation)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARSER: &str = "p.add_argument('-b', '--batch-size', type=int, default=32)\n\
                          p.add_argument('--eval-batch-size', type=int, default=64)\n\
                          p.add_argument('--grad-accum', default=1)\np.add_argument('--beta', '-B', default=2)\n";

    #[track_caller]
    fn check(script: &str, command: &str, expected: [Result<Option<(&str, u64)>, &str>; 2]) {
        let configs = [
            Config::parse_as(Syntax::Python, "t.py", script).unwrap(),
            Config::parse_as(Syntax::Yaml, "c.yaml", if command.contains("c.yaml") { "batch_size: 4\n" } else { "" })
                .unwrap(),
            Config::parse_as(Syntax::Command, "command line", command).unwrap(),
        ];
        let found = [Key::Batch, Key::Accumulation].map(|key| flag(&configs, key));
        let found = found.each_ref().map(|it| match it {
            Ok(flag) => Ok(flag.as_ref().map(|flag| (&*flag.spelling, flag.number))),
            Err(unknown) => Err(&*unknown.why),
        });
        assert_eq!(found, expected, "{script}{command}");
    }

    #[test]
    fn what_a_script_declares() {
        let one = Ok(Some(("--grad-accum", 1)));
        check(PARSER, "python t.py", [Ok(Some(("--batch-size", 32))), one]);
        check(PARSER, "python t.py --batch_size 8", [Ok(Some(("--batch-size", 8))), one]);
        check(PARSER, "python t.py -b 16 --grad-accum=4", [Ok(Some(("-b", 16))), Ok(Some(("--grad-accum", 4)))]);
        check(PARSER, "python t.py --batch 16", [Ok(Some(("--batch", 16))), one]);
        check(PARSER, "python t.py -b16 -b 8", [Ok(Some(("-b", 8))), one]);
        check(PARSER, "python t.py --batch-size auto", [Err("--batch-size is `auto`, no plain whole number"), one]);
        check(PARSER, "python t.py --config c.yaml", [Err("--batch-size may be set in c.yaml"), one]);
        check(PARSER, "python t.py --config c.yaml -b 2", [Ok(Some(("-b", 2))), one]);
        let changed = format!("{PARSER}args.batch_size = args.batch_size // world\nself.grad_accum = f(x)\n");
        let why = "t.py, line 5: batch_size is changed by the script: `args.batch_size = args.batch_size // world`";
        check(&changed, "python t.py", [Err(why), one]);
        for cut in ["a.batch_size //= a.grad_accum", "a.batch_size = int(a.batch_size / a.grad_accum)  # each"] {
            check(&format!("{PARSER}{cut}\n"), "python t.py", [Ok(Some(("--batch-size", 32))), one]);
        }
        let two = format!("{PARSER}p.add_argument('--micro-batch-size', default=2)\n");
        let why = "both --batch-size (t.py, line 1) and --micro-batch-size (t.py, line 5) may be meant";
        check(&two, "python t.py -b 4", [Err(why), one]);
        let none = "p.add_argument('--bs', type=int, required=True)\np.add_argument('--accum', default=N)\n";
        check(
            none,
            "python t.py",
            [
                Err("t.py, line 1: --bs has no default, and is not on the command line"),
                Err("t.py, line 2: --accum is `N`, no plain whole number"),
            ],
        );
        check(none, "python t.py --bs=3 --accum 5", [Ok(Some(("--bs", 3))), Ok(Some(("--accum", 5)))]);
        let again = format!("{PARSER}p.set_defaults(batch_size=16)\n");
        check(&again, "python t.py", [Err("t.py, line 1: --batch-size is `32`, and `16` in t.py, line 5"), one]);
    }

    #[test]
    fn a_sweep_is_no_number() {
        check("x = 1\n", "t -m bs=128,256", [Err("bs is `128,256`, no plain whole number"), Ok(None)]);
    }

    #[test]
    fn options_of_several_values_or_of_some() {
        let several = PARSER.replace("default=32", "default=[32], nargs='+'");
        let why = "t.py, line 1: --batch-size takes several values, or some that are not read";
        check(&several, "python t.py --batch-size 32 64", [Err(why), Ok(Some(("--grad-accum", 1)))]);
        let some = PARSER.replace("default=32", "default=32, choices=[16, 32, 64]");
        let script = Config::parse_as(Syntax::Python, "t.py", &some).unwrap();
        assert_eq!(flag(&[script], Key::Batch).unwrap().unwrap().choices, [16, 32, 64]);
    }

    #[test]
    fn defaults_that_a_file_may_override() {
        let both = |script: &str, why: &str, typed: bool| {
            let script = format!("{PARSER}p.add_argument('--config', default='base.toml')\n{script}\n");
            let [batch, steps] = ["--batch-size", "--grad-accum"].map(|flag| format!("t.py, line 6: {flag} {why}"));
            check(&script, "python t.py", [Err(&batch), Err(&steps)]);
            let expected = if typed { Ok(Some(("-b", 8))) } else { Err(batch.as_str()) };
            check(&script, "python t.py -b 8", [expected, Err(&steps)]);
        };
        both(
            "p.set_defaults(**load(open(known.config)))",
            "may be set by `p.set_defaults(**load(open(known.config)))`",
            true,
        );
        let looped = "for k, v in load(args.config).items(): setattr(args, k, v)";
        both(looped, "may be set by `setattr(args, k, v)`", false);
        both("vars(args).update(load(args.config))", "may be set by `vars(args).update(load(args.config))`", false);
        both(
            "args.__dict__.update(load(args.config))",
            "may be set by `args.__dict__.update(load(args.config))`",
            false,
        );
        both("for k, v in d.items(): vars(args)[k] = v", "may be set by `vars(args)[k] = v`", false);
        both(
            "o = ArgumentParser(default_config_files=['a.yaml'])",
            "may be set by `default_config_files=['a.yaml']`",
            true,
        );
    }

    #[test]
    fn what_overrides_nothing() {
        let known = [Ok(Some(("--batch-size", 32))), Ok(Some(("--grad-accum", 1)))];
        for script in [
            // Nobody names a file.
            "p.add_argument('--config', default='')\nif args.config:\n    p.set_defaults(**load(open(args.config)))\n",
            "p.add_argument('-c', '--config')\nif args.config is not None: vars(args).update(load(args.config))\n",
            // The options themselves, and something else's.
            "for k, v in vars(args).items(): setattr(args, k, f(v))\n",
            "for k, v in vars(args).items(): setattr(config, k, v)\n",
            "setattr(args, 'lr', 3)\np.set_defaults(lr=4)\nmetrics.update(a=3)\n",
        ] {
            check(&format!("{PARSER}{script}"), "python t.py", known);
        }
        let file = "p.add_argument('--config')\np.set_defaults(**load(open(a.config)))\n";
        let other = "p.add_argument('--config')\nvars(args).update(load(open(args.config)))\n";
        let why = Err("--batch-size may be set in c.yaml");
        for script in [file, other] {
            check(&format!("{PARSER}{script}"), "python t.py --config c.yaml", [why, known[1]]);
        }
    }

    #[test]
    fn a_batch_that_is_divided_into_another() {
        let script = "def train(batch_size: int = 128, micro_batch_size: int = 4):\n    steps = batch_size // micro_batch_size\n\
                      fire.Fire(train)\n";
        check(script, "python t.py", [Ok(Some(("--micro_batch_size", 4))), Ok(None)]);
        let whole = flag(&[Config::parse_as(Syntax::Python, "t.py", script).unwrap()], Key::UpdateBatch);
        assert_eq!(whole, Ok(Some(Flag::new("--batch_size", 128))));
    }

    #[test]
    fn what_only_the_command_line_has() {
        check("x = 1\n", "t --bs 8 --accum=2", [Ok(Some(("--bs", 8))), Ok(Some(("--accum", 2)))]);
        check("x = 1\n", "t --bs 8 --eval-bs 4", [Ok(Some(("--bs", 8))), Ok(None)]);
        check("x = 1\n", "t --bs 8 --batch-size 4", [Err("both --bs and --batch-size may be meant"), Ok(None)]);
        check(
            "x = 1\n",
            "t data.batch_size=8 +train.accum_steps=2 val.batch_size=4",
            [Ok(Some(("data.batch_size", 8))), Ok(Some(("+train.accum_steps", 2)))],
        );
        check("x = 1\n", "t --train.batch-size 8 --accumulate", [Ok(Some(("--train.batch-size", 8))), Ok(None)]);
    }

    #[test]
    fn what_another_subcommand_declares() {
        let script = "t = s.add_parser('train')\nt.add_argument('--bs', default=8)\nt.add_argument('--accum', default=1)\n\
                      e = s.add_parser('eval')\ne.add_argument('--bs', default=4)\n";
        check(script, "python t.py train", [Ok(Some(("--bs", 8))), Ok(Some(("--accum", 1)))]);
        check(script, "python t.py eval", [Ok(Some(("--bs", 4))), Ok(None)]);
    }

    #[test]
    fn a_flag_as_it_is_typed() {
        let typed = |spelling: &str| Flag::new(spelling, 1).with(4);
        assert_eq!([typed("--bs"), typed("-b"), typed("a.bs")], ["--bs=4", "-b 4", "a.bs=4"]);
    }
}
