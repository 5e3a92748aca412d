//! What a run prints of itself: its settings, the size of its model, what gives rise to remarks.

use lowtide_config::{Config, Syntax, printed_number, unquoted, whole_number};
use lowtide_core::Bytes;
use lowtide_log::{BatchReport, BatchUnit, is_of_group, shows_progress, steps};
use lowtide_oom::Sieve;
use lowtide_trainers::{Key, key_of};

use super::cards::CardFacts;
use super::flags::Flags;
use super::given::is_off;
use super::group::{Groups, key_within};
use super::growth::Growth;
use super::narrative::Narrative;
use super::remark::{self, Remark, remark};
use super::sign::Signs;
use super::size::{named_parameters, parameters, vocabulary};
use super::switches::Switches;

/// What a run prints of itself.
#[derive(Debug, Default, Clone)]
pub(crate) struct Printout {
    /// Settings as the log prints them, the last of each.
    settings: Vec<(Key, String)>,
    /// The groups that the next setting stands in.
    groups: Groups,
    pub(crate) tokens_per_iteration: Option<u64>,
    /// All parameters of the model, and those that are trained.
    pub(crate) parameters: Option<u64>,
    pub(crate) trained: Option<u64>,
    /// Parameters of the largest model that the log names.
    pub(crate) named_parameters: Option<u64>,
    /// How many tokens the model knows, as the program found it.
    pub(crate) vocabulary: Option<u64>,
    pub(crate) signs: Signs,
    pub(crate) remarks: Vec<Remark>,
    /// Whether a loss or an epoch is printed, as after the first step.
    pub(crate) has_progress: bool,
    /// The first step that the log names, and the last one after all events.
    pub(crate) first_step: Option<u64>,
    pub(crate) last_step: Option<u64>,
    /// Whether several processes train together.
    pub(crate) is_group: bool,
    /// What `ulimit -v` allows a process, where the log shows the command.
    pub(crate) address_limit: Option<Bytes>,
    /// Height and width of frames, where the log names them.
    pub(crate) frame: Option<(u64, u64)>,
    /// What the log says of the cards.
    pub(crate) cards: CardFacts,
    /// The longest sample that a training is set to take, in tokens.
    pub(crate) longest_sample: Option<u64>,
    /// The last epoch that the log names.
    pub(crate) epoch: Option<u64>,
    /// Whether the run was resumed from a checkpoint.
    pub(crate) resumes: bool,
    /// The most data workers that a command or a list of settings names.
    pub(crate) workers: Option<u64>,
    /// The most processes that map the rows of a dataset.
    pub(crate) mappers: Option<u64>,
    /// Memory that grows from report to report.
    pub(crate) growth: Growth,
    /// The script that a command line starts, without its folder and ending.
    pub(crate) script: Option<String>,
    /// What the sentences around the log tell.
    pub(crate) narrative: Narrative,
    /// What the run has turned on already.
    pub(crate) switches: Switches,
    /// Flags that were given to programs, with their values.
    pub(crate) flags: Flags,
}

/// Words of runs that go on from a checkpoint.
const RESUMES: [&str; 13] = [
    "Resuming training",
    "Restoring model state from",
    "Restoring optimizer state from",
    "Resuming from",
    "resuming from",
    "Resumed from",
    "init_from=resume",
    "init_from = 'resume'",
    "resume_from_checkpoint",
    "--resume",
    "Continuing training from checkpoint",
    "Loading states from",
    "Restoring states from the checkpoint",
];

/// Whether a line says that the run was resumed, and not that it was not.
fn resumes(line: &str) -> bool {
    // What a function may be given says nothing of what it was given.
    if line.contains("(self, ") {
        return false;
    }
    RESUMES.iter().any(|words| {
        let Some((_, rest)) = line.split_once(words).filter(|(_, rest)| !hands_on(rest)) else { return false };
        // `--resume_from_checkpoint None`
        let value = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        let value = value.trim_start_matches(['=', ':', ' ', '"', '\'']);
        // A sentence may go on with `no`.
        !is_off(value) || value.starts_with("no ")
    })
}

/// `=checkpoint)`, `=args.resume,`: code that hands on whatever a name stands for.
fn hands_on(rest: &str) -> bool {
    let Some(value) = rest.strip_prefix('=') else { return false };
    let behind = value.trim_start_matches(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.'));
    value.starts_with(|c: char| c.is_lowercase() || c == '_') && behind.starts_with([')', ','])
}

/// `trainer.train(resume_from_checkpoint=True)`
fn resumes_in_code(line: &str) -> bool {
    let given = line.split_once("resume_from_checkpoint=").map(|(_, rest)| rest);
    given.is_some_and(|rest| rest.starts_with(['"', '\'']) || rest.starts_with("True"))
}

/// Whether a line names a place in a source file, as a stack does above each line that it quotes.
fn is_place_in_code(line: &str) -> bool {
    line.contains('"') && line.contains("File \"") && line.contains("\", line ")
}

/// `--cutoff_len 102400`, `"cutoff_len": 51974`: the longest sample of a training, wherever in a line it is set.
const LONGEST_SAMPLE: [&str; 5] =
    ["cutoff_len", "max_seq_length", "max_seq_len", "model_max_length", "max_source_length"];
/// Words of lines that tell of habits, and of others that are about the run.
static OF_HABITS: Sieve = Sieve::new(|| [&LONGEST_SAMPLE[..], &["workers", "num_proc", "python"]].concat());
static OF_RUN: Sieve = Sieve::new(|| {
    let others = ["aram", "ARAM", "ocab", "ulimit ", "mem", "Mem", "batch_size"];
    RESUMES.into_iter().chain(remark::words()).chain(others).collect()
});

/// Longer lines are data.
const LONGEST_LINE: usize = 2000;

impl Printout {
    /// Looks at some lines of the log.
    pub(crate) fn note(&mut self, text: &str) {
        let report = BatchReport::find(text.as_bytes()).filter(|report| report.unit == BatchUnit::Tokens);
        self.tokens_per_iteration = report.map(|report| report.number).or(self.tokens_per_iteration);
        self.is_group |= is_of_group(text.as_bytes());
        self.signs.note(text);
        self.first_step = self.first_step.or_else(|| steps(text.as_bytes()).next());
        let mut is_quoted = false;
        for line in text.lines().filter(|line| line.len() < LONGEST_LINE) {
            let is_code = std::mem::replace(&mut is_quoted, is_place_in_code(line));
            if !is_code {
                self.groups.note(line);
                self.note_setting(line);
            }
            self.named_parameters = self.named_parameters.max(named_parameters(line));
            self.frame = frame(line).or(self.frame);
            self.has_progress |= shows_progress(line.as_bytes());
            self.cards.note(line);
            self.note_habits(line);
            self.epoch = epoch(line).or(self.epoch);
            if OF_RUN.passes(line) {
                self.note_words(line, is_code);
            }
        }
    }

    /// What only lines with some of the words tell; code that a stack quotes sets nothing, but for what it hands on in so many words.
    fn note_words(&mut self, line: &str, is_quoted: bool) {
        self.resumes |= if is_quoted { resumes_in_code(line) } else { resumes(line) };
        if let Some(remark) = remark(line)
            && self.remarks.len() < 16
            && !self.remarks.iter().any(|known| known.kind == remark.kind)
        {
            self.remarks.push(remark);
        }
        if let Some(found) = parameters(line) {
            self.parameters = found.all.or(self.parameters);
            self.trained = found.trained.or(self.trained);
        }
        self.vocabulary = vocabulary(line).or(self.vocabulary);
        self.address_limit = address_limit(line).or(self.address_limit);
        self.growth.note(line);
        let is_of_training = || self.groups.key_of("batch_size") == Some(Key::Batch);
        self.note_single_sample(is_batch_of_one(line) && is_of_training());
    }

    /// Looks at what configurations and a command turn on.
    pub(crate) fn note_configs(&mut self, configs: &[Config]) {
        let settings = configs.iter().flat_map(|config| config.settings.iter().map(move |setting| (config, setting)));
        for (config, setting) in settings {
            // A model's own configuration says how its weights are stored, and not how they are loaded.
            let is_stored = config.syntax == Syntax::Json && setting.path.iter().any(|name| name.ends_with("dtype"));
            if is_stored {
                continue;
            }
            let value = if setting.value.is_empty() { "None" } else { &*setting.value };
            let line = format!("--{}={value}", setting.path.join("."));
            if line.len() < LONGEST_LINE {
                self.signs.note_of_memory(&line);
                if !is_off(value) {
                    self.switches.note(&line);
                }
            }
        }
    }

    /// Looks at what stands between two messages of one event, or behind the last.
    pub(crate) fn note_between(&mut self, text: &str) {
        text.lines().filter(|line| line.len() < LONGEST_LINE).for_each(|line| self.cards.note(line));
    }

    /// Looks at what follows the last event.
    pub(crate) fn note_end(&mut self, text: &str) {
        self.last_step = steps(text.as_bytes()).next_back();
        self.cards.end_before();
        self.note_between(text);
        text.lines().filter(|line| line.len() < LONGEST_LINE).for_each(|line| self.note_habits(line));
        self.signs.note(text);
        self.is_group |= is_of_group(text.as_bytes());
    }

    /// What a line tells of how the run goes, wherever it stands.
    fn note_habits(&mut self, line: &str) {
        self.narrative.note(line);
        self.switches.note(line);
        self.flags.note(line);
        self.note_single_sample(self.narrative.takes_one_sample);
        if OF_HABITS.passes(line) {
            self.note_words_of_habits(line);
        }
    }

    fn note_words_of_habits(&mut self, line: &str) {
        self.workers = self.workers.max(data_workers(line));
        self.mappers = self.mappers.max(number_behind(line, "num_proc"));
        if self.script.is_none() {
            self.script = script(line);
        }
        let longest = LONGEST_SAMPLE.iter().find_map(|name| number_behind(line, name));
        self.longest_sample = self.longest_sample.max(longest);
    }

    /// A batch that is told and not set counts where none is set.
    fn note_single_sample(&mut self, is_single: bool) {
        if is_single && self.number(Key::Batch).is_none() {
            self.settings.push((Key::Batch, "1".to_owned()));
        }
    }

    /// `batch_size = 64`, `Overriding: batch_size = 64`, `  batch_size: 64`: nanoGPT and many others print their
    /// settings.
    fn note_setting(&mut self, line: &str) {
        let line = line.trim().trim_start_matches("Overriding: ");
        let Some((name, value)) =
            line.split_once(" = ").or_else(|| line.split_once(": ")).or_else(|| line.split_once('='))
        else {
            return;
        };
        let name = name.trim().trim_matches(['"', '\'']);
        let key = match name.contains(' ') {
            true => key_of_words(name),
            false => match key_of(name) {
                // The batch of a validation is another.
                Some((Key::Batch, _)) => self.groups.key_of(name),
                key => key.map(|(key, _)| key),
            },
        };
        let Some(key) = key else { return };
        let value = value.split('#').next().unwrap_or_default().trim().trim_end_matches(',');
        if value.is_empty() || value.len() > 64 {
            return;
        }
        let value = unquoted(value);
        let value = printed_number(value).map_or_else(|| value.to_owned(), |number| number.to_string());
        match self.settings.iter_mut().find(|(known, _)| *known == key) {
            Some((_, old)) => *old = value,
            None => self.settings.push((key, value)),
        }
    }

    pub(crate) fn text(&self, key: Key) -> Option<&str> {
        self.settings.iter().find(|(known, _)| *known == key).map(|(_, value)| &**value)
    }

    pub(crate) fn number(&self, key: Key) -> Option<u64> {
        self.text(key).and_then(whole_number)
    }
}

/// What Hugging Face's Trainer calls them where it prints them: `Instantaneous batch size per device = 8`.
fn key_of_words(name: &str) -> Option<Key> {
    if name.ends_with("Gradient Accumulation steps") {
        return Some(Key::Accumulation);
    }
    ["batch size per device", "batch size per GPU"].iter().any(|words| name.ends_with(words)).then_some(Key::Batch)
}

/// `Epoch 12`, `[epoch: 3/40]`
fn epoch(line: &str) -> Option<u64> {
    let (before, rest) = line.split_once("poch")?;
    // `--max_epoch 25` is how many there are to be.
    if before.trim_end_matches(['e', 'E']).ends_with(['_', '-']) {
        return None;
    }
    let digits = rest.trim_start_matches([' ', ':', '=', '[', '#', ']']);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    // `epoch 0.21` is a part of the first.
    digits[..end].parse().ok().filter(|_| digits.len() < rest.len())
}

/// `Namespace(batch_size=1, ...)`, `{'batch_size': 1, ...}`; other sizes say nothing without the accumulation beside them.
fn is_batch_of_one(line: &str) -> bool {
    let sizes = line.match_indices("batch_size").filter_map(|(at, name)| {
        let before = line[..at].trim_end_matches("per_device_train_").trim_end_matches("train_").trim_end_matches("--");
        let is_whole = !before.ends_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
        let value = line[at + name.len()..].trim_start_matches(['\'', '"', '=', ':', ' ', '[']);
        (is_whole && key_within(line, at, name) == Some(Key::Batch)).then_some(value)
    });
    let is_one = |value: &str| {
        value.strip_prefix('1').is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
    };
    // A name without a number says nothing.
    let mut sizes = sizes.filter(|value| value.starts_with(|c: char| c.is_ascii_digit())).map(is_one).peekable();
    sizes.peek().is_some() && sizes.all(|is_one| is_one)
}

/// `workers=12`, `--num_workers 8`, `"num_workers": 8`, `data.num_workers=8`; those that prepare data beforehand are others.
fn data_workers(line: &str) -> Option<u64> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let names = ["workers", "num_workers", "n_workers", "nworkers", "dataloader_num_workers", "dataloader_workers"];
    let numbers = line.match_indices("workers").filter_map(|(at, word)| {
        let end = at + word.len();
        let start = line[..at].trim_end_matches(is_part).len();
        let name = line[start..end].trim_start_matches('-').replace('-', "_");
        let rest = &line[end..];
        let value = rest.trim_start_matches(['"', '\'', '=', ':', ' ']);
        let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
        let is_set = value.len() < rest.len() && names.contains(&&*name);
        is_set.then(|| value[..digits].parse().ok())?
    });
    // More than that are processes of something else, or no number of them.
    numbers.filter(|workers| *workers <= 256).max()
}

/// `python tools/test.py --config a.yaml`: `test`; `python.exe -m demucs.separate`: `separate`.
fn script(line: &str) -> Option<String> {
    let (_, command) = line.split_once("python")?;
    let command = command.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let command = command.strip_prefix("exe").unwrap_or(command).strip_prefix(' ')?;
    let mut words = command.split(' ').filter(|word| !word.is_empty()).take(8);
    let module = command.strip_prefix("-m ").and_then(|rest| rest.split(' ').next());
    // A launcher starts a script.
    let module = module.filter(|module| !module.starts_with("torch") && !module.starts_with("accelerate"));
    let file =
        words.find_map(|word| word.strip_suffix(".py")).or(module.and_then(|module| module.rsplit('.').next()))?;
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
    is_name.then(|| name.to_owned())
}

/// The number that a name is set to: behind a blank, an equals sign or a colon, and quotes.
pub(super) fn number_behind(line: &str, name: &str) -> Option<u64> {
    let (_, rest) = line.split_once(name)?;
    let value = rest.trim_start_matches(['"', '\'', '=', ':', ' ']);
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    value[..digits].parse().ok().filter(|_| value.len() < rest.len())
}

/// `ulimit -v 4000000`, in KiB.
fn address_limit(line: &str) -> Option<Bytes> {
    let (_, rest) = line.split_once("ulimit ")?;
    let (_, rest) = rest.split_once("-v ").or_else(|| rest.split_once("-Sv "))?;
    let digits = rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse::<u64>().ok()?.checked_mul(1024).map(Bytes)
}

/// `1920x1080` in a line about frames, as height and width.
fn frame(line: &str) -> Option<(u64, u64)> {
    if !line.contains(['x', 'X', '×']) {
        return None;
    }
    let lower = line.to_ascii_lowercase();
    let mut words = lower.split(|c: char| !c.is_ascii_alphabetic());
    let names = ["frame", "frames", "resolution", "image", "images", "full", "video", "videos", "val"];
    if !words.any(|word| names.contains(&word)) {
        return None;
    }
    for (at, cross) in lower.match_indices(['x', '×']) {
        let before = lower[..at].trim_end();
        let start = before
            .rfind(|c: char| !c.is_ascii_digit())
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        let after = lower[at + cross.len()..].trim_start();
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        if let (Ok(width), Ok(height)) = (before[start..].parse::<u64>(), after[..end].parse::<u64>())
            && (64..=16_384).contains(&width)
            && (64..=16_384).contains(&height)
        {
            return Some((height, width));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::lines_of_threads;

    #[test]
    fn a_line_without_the_words_tells_nothing() {
        let nothing = format!("{:?}", Printout::default());
        for line in lines_of_threads() {
            for is_quoted in [false, true] {
                let mut printout = Printout::default();
                printout.note_words(&line, is_quoted);
                assert!(OF_RUN.is_match(&line) || format!("{printout:?}") == nothing, "{line}");
            }
            let mut printout = Printout::default();
            printout.note_words_of_habits(&line);
            assert!(OF_HABITS.is_match(&line) || format!("{printout:?}") == nothing, "{line}");
        }
    }

    #[test]
    fn what_runs_print() {
        let mut printout = Printout::default();
        printout.note(
            "Overriding config with config/a.py:\nbatch_size = 64 # x\ntokens per iteration will be: \
            65,536\nnumber of parameters: 123.59M\nval frames 1920x1080\n+ ulimit -v 4000000\n",
        );
        assert_eq!(printout.number(Key::Batch), Some(64));
        assert_eq!(printout.tokens_per_iteration, Some(65_536));
        assert_eq!(printout.parameters, Some(123_590_000));
        assert_eq!(printout.frame, Some((1080, 1920)));
        assert_eq!(frame("interval 512x512, available 640x480"), None);
        assert_eq!(printout.address_limit, Some(Bytes(4_096_000_000)));
        assert_eq!(address_limit("ulimit -v unlimited"), None);
        assert_eq!([epoch("[Epoch 2/150][Batch 8]"), epoch("epoch: 0.21"), epoch("epochs")], [Some(2), Some(0), None]);
        assert_eq!([epoch("train.py --max_epoch 25 --input film"), epoch("--epoch 300")], [None, None]);
        for one in [
            "Namespace(accum=64, batch_size=1, cfg='a')",
            "{'train': {'batch_size': 1, 'x': 2}}",
            "batch_size=[1], e=4",
        ] {
            assert!(is_batch_of_one(one), "{one}");
        }
        for other in [
            "batch_size=16",
            "eval_batch_size=1",
            "batch_size = 1.5",
            "{'train': {'batch_size': 16}, 'val': {'batch_size': 1}}",
            "val_dataloader = dict(batch_size=1, num_workers=2)",
            "{'batch_size': 16, 'loader': {'batch_size': 1}}",
        ] {
            assert!(!is_batch_of_one(other), "{other}");
        }
        let told = |line: &str| {
            let mut printout = Printout::default();
            printout.note(line);
            printout
        };
        for line in ["--cutoff_len 102400 --fp16", "{\"cutoff_len\": 102400, \"a\": 1}", "cutoff_len: 102400"] {
            assert_eq!(told(line).longest_sample, Some(102_400), "{line}");
        }
        assert_eq!(told("raise max_seq_length if need be").longest_sample, None);
        assert_eq!(number_behind("Running tokenizer (num_proc=64):  41%", "num_proc"), Some(64));
        assert_eq!(number_behind("--num_processes 8", "num_proc"), None);
        for (line, expected) in [
            ("$ python3 tools/test.py -c a.yaml", Some("test")),
            ("python -m torch.x", None),
            ("python.exe -m demucs.separate --dl", Some("separate")),
        ] {
            assert_eq!(script(line).as_deref(), expected, "{line}");
        }
        for line in [
            "resume_from_checkpoint=out/checkpoint-500,",
            "--resume_from_checkpoint=latest",
            "Resuming training from a",
        ] {
            assert!(resumes(line), "{line}");
        }
        for line in [
            "resume_from_checkpoint=None,",
            "python run.py --resume_from_checkpoint None --lr 1",
            "python run.py --resume False",
            "resume_from_checkpoint=False",
            "trainer.train(resume_from_checkpoint=checkpoint)",
            "resume_from_checkpoint=a.b,",
        ] {
            assert!(!resumes(line), "{line}");
        }
        printout.note("  File \"a.py\", line 3, in f\n    batch_size = 8\n  File \"a.py\", line 4, in g\n    print('Resuming from')\n");
        assert_eq!((printout.number(Key::Batch), printout.resumes), (Some(64), false));
        printout.note("  File \"a.py\", line 3, in f\n    trainer.train(resume_from_checkpoint=True)\n");
        assert!(printout.resumes);
        printout.note("0%| | 0/100 [00:01<00:01]\r1%| | 1/100 [00:01<00:01]\r2%| | 2/100 [00:01<00:01]\n");
        assert_eq!(printout.first_step, Some(0));
    }
}
