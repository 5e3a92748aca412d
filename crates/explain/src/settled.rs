//! The numbers that a patch may rest on: one plain value that nothing in the configuration contradicts.

use lowtide_config::{Config, Setting, Syntax, UnclearKind, whole_number};

use crate::facts::{AUTO, Facts, candidates, whole_setting};
use crate::keys::{Key, key_of, key_of_path};

/// What configurations say of a number.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Settled<'a> {
    /// Nothing.
    Absent,
    /// One number, in one place.
    Plain { config: &'a Config, setting: &'a Setting, number: u64 },
    /// Something that is no plain number, or several; with the place in words.
    Unclear(String),
}

impl Settled<'_> {
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Self::Plain { number, .. } => Some(*number),
            _ => None,
        }
    }
}

/// A fixed number of samples for each update, which a smaller micro-batch leaves as it is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FixedUpdate<'a> {
    pub(crate) name: &'a str,
    pub(crate) samples: Option<u64>,
}

impl<'a> Facts<'a> {
    /// What the configurations say of a number; a later one counts before an earlier one.
    pub(crate) fn settled(&self, key: Key) -> Settled<'a> {
        for config in self.configs.iter().rev() {
            match settled_in(config, key) {
                Settled::Absent => {}
                settled => return settled,
            }
        }
        let is_auto = |setting: &&Setting| {
            setting.value == AUTO && key_of_path(&setting.path).is_some_and(|(known, _)| known == key)
        };
        let auto = self.configs.iter().find_map(|config| Some((config, config.settings.iter().find(is_auto)?)));
        auto.map_or(Settled::Absent, |(config, setting)| not_a_number(config, setting))
    }

    /// The batch of a whole update, where it is set beside the micro-batch and accumulation follows from both:
    /// Megatron's, litgpt's and DeepSpeed's way.
    pub(crate) fn fixed_update(&self) -> Option<FixedUpdate<'a>> {
        let Settled::Plain { config, setting, .. } = self.settled(Key::Batch) else { return None };
        let is_micro = matches!(
            setting.name()?.to_ascii_lowercase().replace('-', "_").as_str(),
            "micro_batch_size" | "train_micro_batch_size_per_gpu" | "device_batch_size" | "per_device_train_batch_size"
        );
        if !is_micro || self.settled(Key::Accumulation) != Settled::Absent {
            return None;
        }
        let whole = self.find(Key::UpdateBatch).map(|(_, setting)| setting).or_else(|| whole_setting(config))?;
        Some(FixedUpdate { name: whole.name()?, samples: whole_number(&whole.value).filter(|samples| *samples > 0) })
    }

    /// Batches gathered for one update: as set, as the log tells, or 1; the reason where that is not known.
    pub(crate) fn accumulation(&self) -> Result<u64, String> {
        let one = self.batch().zip(self.sequence()).and_then(|(batch, sequence)| batch.checked_mul(sequence));
        let told = self.log.tokens_per_iteration.zip(one.filter(|one| *one > 0));
        let set = match self.settled(Key::Accumulation) {
            Settled::Plain { number, .. } => Some(number),
            Settled::Unclear(why) => return Err(why),
            Settled::Absent => self.log.number(Key::Accumulation),
        };
        let steps = match (set, told) {
            (Some(set), _) => set.max(1),
            (None, Some((tokens, one))) => (tokens / one).max(1),
            (None, None) => 1,
        };
        let Some((tokens, one)) = told else { return Ok(steps) };
        let product = one.saturating_mul(steps);
        // Every process of a group adds its own tokens, where the script does not divide the steps among them.
        let is_told = tokens == product || self.log.is_group && tokens.is_multiple_of(product);
        match is_told {
            true => Ok(steps),
            false => Err(format!(
                "the log tells of {tokens} tokens per iteration, and {steps} batches of {one} tokens are {product}"
            )),
        }
    }
}

fn settled_in(config: &Config, key: Key) -> Settled<'_> {
    let mut rest: Vec<(usize, &Setting)> = candidates(config, key).collect();
    let mut passed = None;
    while let Some((rank, path)) = rest.iter().min_by_key(|(rank, _)| *rank).map(|(rank, best)| (*rank, &best.path)) {
        let (same, others): (Vec<_>, Vec<_>) = rest.iter().partition(|(_, setting)| setting.path == *path);
        let meant: Vec<&Setting> =
            same.iter().map(|(_, setting)| *setting).filter(|setting| !is_own_name(setting)).collect();
        let passes_on = meant.iter().all(|setting| {
            setting.value == meant[0].value
                && last_name(&setting.value).and_then(key_of).is_some_and(|(of, _)| of == key)
        });
        if meant.is_empty() || passes_on && !others.is_empty() {
            passed = passed.or(same.first().map(|(_, setting)| *setting));
            rest = others;
            continue;
        }
        let settled = one_of(config, &meant);
        let is_as_good = |other: usize| other <= rank;
        return match settled {
            Settled::Plain { .. } => unclear(config, key, is_as_good, true).unwrap_or(settled),
            settled => settled,
        };
    }
    let group = config.settings.iter().find(|setting| {
        let groups = &setting.path[..setting.path.len().saturating_sub(1)];
        (1..=groups.len()).any(|length| key_of_path(&groups[..length]).is_some_and(|(known, _)| known == key))
    });
    unclear(config, key, |_| true, false)
        .or_else(|| passed.map(|setting| not_a_number(config, setting)))
        .or_else(|| {
            let line = line_of(config, group?);
            let name = group?.path.iter().find(|name| key_of(name).is_some_and(|(known, _)| known == key))?;
            Some(Settled::Unclear(format!(
                "{}, line {line}: {name} is a group of values, no plain number",
                config.name
            )))
        })
        .unwrap_or(Settled::Absent)
}

/// One value of settings with the same name.
fn one_of<'a>(config: &'a Config, meant: &[&'a Setting]) -> Settled<'a> {
    let Some(last) = meant.last() else { return Settled::Absent };
    let other = meant.iter().find(|setting| setting.value != last.value && !is_replaced(config, setting, last));
    if let Some(other) = other {
        return Settled::Unclear(format!(
            "{}: {} is `{}` in line {} and `{}` in line {}",
            config.name,
            last.path.join("."),
            other.value,
            line_of(config, other),
            last.value,
            line_of(config, last)
        ));
    }
    match whole_number(&last.value) {
        Some(number) => Settled::Plain { config, setting: last, number },
        None => not_a_number(config, last),
    }
}

/// Whether a later setting of the same name takes the place of an earlier one: scripts assign again, and of the options
/// of one command the last one counts.
fn is_replaced(config: &Config, earlier: &Setting, later: &Setting) -> bool {
    match config.syntax {
        Syntax::Python => !earlier.is_argument && !later.is_argument,
        Syntax::Command => {
            let between = config.text.get(earlier.span.end..later.span.start).unwrap_or("\n");
            between
                .split_inclusive('\n')
                .filter(|line| line.ends_with('\n'))
                .all(|line| line.trim_end().ends_with('\\'))
        }
        Syntax::Yaml | Syntax::Json => false,
    }
}

/// A place that sets a name in a way nobody can read; `has_plain` where a plain value stands beside it.
fn unclear<'a>(
    config: &'a Config,
    key: Key,
    is_as_good: impl Fn(usize) -> bool,
    has_plain: bool,
) -> Option<Settled<'a>> {
    let found = config.unclear.iter().find(|unclear| {
        let counts = !has_plain || !matches!(unclear.kind, UnclearKind::Alias | UnclearKind::Local);
        counts && key_of_path(&unclear.path).is_some_and(|(known, rank)| known == key && is_as_good(rank))
    })?;
    let how = match found.kind {
        UnclearKind::Changed => "is changed",
        UnclearKind::Alias => "stands for another value",
        UnclearKind::Computed | UnclearKind::Local => "is set in a way that is not read here",
    };
    let name = found.path.join(".");
    let said = match found.text.is_empty() {
        true => "has no value".to_owned(),
        false => format!("{how}: `{}`", found.text),
    };
    Some(Settled::Unclear(format!("{}, line {}: {name} {said}", config.name, found.line)))
}

fn not_a_number<'a>(config: &Config, setting: &Setting) -> Settled<'a> {
    Settled::Unclear(format!(
        "{}, line {}: {} is `{}`, no plain whole number",
        config.name,
        line_of(config, setting),
        setting.path.join("."),
        setting.value
    ))
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

fn line_of(config: &Config, setting: &Setting) -> usize {
    config.text[..setting.span.start].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Printout;

    #[track_caller]
    fn check(key: Key, name: &str, text: &str, expected: Result<Option<u64>, &str>) {
        let configs = [Config::parse(name, text).unwrap()];
        let facts = Facts { configs: &configs, log: &Printout::default(), stack_is_nanogpt: false };
        let settled = match facts.settled(key) {
            Settled::Absent => Ok(None),
            Settled::Plain { number, .. } => Ok(Some(number)),
            Settled::Unclear(why) => Err(why),
        };
        assert_eq!(settled, expected.map_err(str::to_owned), "{text}");
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
            let facts = Facts { configs: &configs, log: &Printout::default(), stack_is_nanogpt: false };
            assert!(matches!(facts.settled(Key::Accumulation), Settled::Unclear(_)), "{text}");
        }
    }

    #[test]
    fn batches_in_several_places() {
        let batch = |name, text, expected| check(Key::Batch, name, text, expected);
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
}
