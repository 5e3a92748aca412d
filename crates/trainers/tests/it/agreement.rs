//! What a run's batch is, asked by `explain` for a patch and by `run` for rungs: scripts, files and command lines made up of
//! pieces whose meaning is known, and neither may change the effective batch.

use std::ffi::OsString;
use std::path::Path;

use lowtide_config::command::split;
use lowtide_explain::{Config, Context, Lever, Syntax, explain};
use lowtide_keep::{CommandLadder, CommandRequest};
use lowtide_trainers::Access;
use proptest::prelude::*;

/// Nothing in this log tells the batch.
const LOG: &str = "step 9 loss 2.1\nCUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of \
                   23.65 GiB of which 1.20 GiB is free. Of the allocated memory 21.60 GiB is allocated by PyTorch, \
                   and 411.00 MiB is reserved by PyTorch but unallocated.\n";
const COMMAND_LINE: &str = "command line";

/// What a number really is when the command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Truth {
    /// Nothing sets it: the trainer's own default.
    Default(Option<u64>),
    Set(u64),
    /// A script sets it where no flag reaches it.
    Fixed(u64),
    /// No text tells.
    Open,
}

impl Truth {
    const fn number(self) -> Option<u64> {
        match self {
            Self::Default(number) => number,
            Self::Set(number) | Self::Fixed(number) => Some(number),
            Self::Open => None,
        }
    }
}

#[derive(Debug, Clone)]
struct Case {
    /// In the order in which they count.
    files: Vec<(&'static str, String)>,
    command: String,
    /// Micro-batch and accumulation.
    truth: [Truth; 2],
}

impl Case {
    /// The batch that rungs begin with.
    fn rungs(&self) -> Option<[u64; 2]> {
        let command = split(&self.command).unwrap().into_iter().map(OsString::from).collect();
        let read =
            |path: &Path| self.files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| text.clone());
        let access = Access { variable: &|_| None, read: &read, cards: &|| 2 };
        let request = CommandRequest { command, ..CommandRequest::default() };
        let ladder = CommandLadder::make(request, &access).unwrap();
        ladder.rungs.first().map(|batch| [batch.micro, batch.accum])
    }

    /// The smaller micro-batch and the accumulation that an explanation advises, and the files and the command with its
    /// patch.
    fn advice(&self) -> (Option<[u64; 2]>, Option<Self>) {
        let python = |name: &str| if name.ends_with(".py") { Syntax::Python } else { Syntax::Yaml };
        let files = self.files.iter().map(|(name, text)| Config::parse_as(python(name), name, text).unwrap());
        let command = Config::parse_as(Syntax::Command, COMMAND_LINE, &self.command).unwrap();
        let verdicts =
            explain(LOG.as_bytes(), &Context { configs: files.chain([command]).collect(), ..Context::default() });
        let advice = verdicts[0].advice.iter().find(|advice| advice.lever == Lever::MicroBatch);
        // `(batch_size 4, accumulation 16)`
        let numbers = advice.and_then(|advice| {
            let (before, after) = advice.text.rsplit_once(", accumulation ")?;
            let micro = before.rsplit(' ').next()?.parse().ok()?;
            Some([micro, after.split(')').next()?.parse().ok()?])
        });
        let patched = advice.and_then(|advice| advice.patch.as_ref()).map(|patch| {
            let mut case = self.clone();
            let files = case.files.iter_mut().map(|(name, text)| (*name, text));
            let (_, text) =
                files.chain([(COMMAND_LINE, &mut case.command)]).find(|(name, _)| *name == patch.file).unwrap();
            *text = patch.apply(text).unwrap();
            case
        });
        (numbers, patched)
    }

    fn check(&self) {
        let [micro, accum] = self.truth;
        let truth = micro.number().zip(accum.number()).map(|(micro, accum)| [micro, accum]);
        let product = |[micro, accum]: [u64; 2]| micro * accum;
        let is_reached = !self.truth.iter().any(|truth| matches!(truth, Truth::Fixed(_)));
        // What a script sets where no flag reaches it is changed in a copy, or not at all.
        let rungs = self.rungs();
        assert!(rungs == truth || (!is_reached && rungs.is_none()), "rungs {rungs:?} of {self:#?}");

        let (advised, patched) = self.advice();
        let is_said = matches!(micro, Truth::Set(2..) | Truth::Fixed(2..)) && truth.is_some();
        assert_eq!(advised.map(product), truth.filter(|_| is_said).map(product), "advice of {self:#?}");
        if let Some(patched) = patched {
            assert!(is_said, "a patch of {self:#?}");
            if is_reached {
                assert_eq!(patched.rungs().map(product), truth.map(product), "rungs of {patched:#?}");
            }
            assert_eq!(patched.advice().0.map(product).or(truth.map(product)), truth.map(product), "{patched:#?}");
        }
    }
}

/// What a piece of a Python file does to a name.
enum Effect {
    Nothing,
    Set(u64),
    /// Until it is set again.
    Open,
    /// Whatever follows in this file.
    OpenForGood,
    /// For every name, until it is set again.
    AllOpen,
}

const PIECES: usize = 22;

fn piece(kind: usize, name: &str, value: u64) -> (String, Effect) {
    match kind {
        0 => (format!("{name} = {value}\n"), Effect::Set(value)),
        1 => (format!("{name}: int = {value}  # {name} = 3\n"), Effect::Set(value)),
        2 => (format!("{name} = {value} * 2\n"), Effect::Set(value * 2)),
        3 => (format!("x = 1; {name} = {value}\n"), Effect::Set(value)),
        4 => ("# it's '''\n".to_owned(), Effect::Nothing),
        5 => ("y = 'a'  # \"\"\" or '''\n".to_owned(), Effect::Nothing),
        6 => (format!("'''\n{name} = {value}\n'''\n"), Effect::Nothing),
        7 => (format!("def f(x):\n    {name}, n = x.shape\n    return n\n"), Effect::Nothing),
        8 => (format!("class A:\n    def f(self):\n        {name} = {value}\n        {name} //= 2\n"), Effect::Nothing),
        9 => (format!("assert {name} == {value} or x <= {name}\nprint(f'{{{name}=}}')\n"), Effect::Nothing),
        10 => (format!("z = [{name} for {name} in range({value})]\n"), Effect::Nothing),
        11 => (format!("if x:\n    {name} = {value}\n"), Effect::Open),
        12 => (format!("for {name} in range({value}):\n    pass\n"), Effect::Open),
        13 => (format!("{name} //= 2\n"), Effect::Open),
        14 => (format!("{name}, y = {value}, 3\n"), Effect::Open),
        15 => (format!("{name} = {value} // world\n"), Effect::Open),
        16 => (format!("{name} = '{value}'\n"), Effect::Open),
        17 => (format!("try:\n    from c import {name}\nexcept ImportError:\n    pass\n"), Effect::Open),
        18 => (format!("def g():\n    global {name}\n    {name} = {value}\n"), Effect::OpenForGood),
        19 => (format!("globals()['{name}'] = {value}\n"), Effect::OpenForGood),
        20 => ("from base import *\n".to_owned(), Effect::AllOpen),
        _ => ("exec(open('more.py').read())\n".to_owned(), Effect::AllOpen),
    }
}

type Pieces = Vec<(usize, usize, u64)>;

fn pieces() -> impl Strategy<Value = Pieces> {
    prop::collection::vec((0..PIECES, 0_usize..2, 2_u64..40), 0..5)
}

/// A file of pieces, and what it leaves the names at where it says anything of them.
fn file(pieces: &[(usize, usize, u64)], names: [&str; 2]) -> (String, [Option<Truth>; 2]) {
    let (mut text, mut truth, mut is_for_good) = (String::new(), [None; 2], [false; 2]);
    for (kind, index, value) in pieces {
        let (piece, effect) = piece(*kind, names[*index], *value);
        text.push_str(&piece);
        match effect {
            Effect::Nothing => {}
            Effect::Set(number) => truth[*index] = Some(Truth::Set(number)),
            Effect::Open => truth[*index] = Some(Truth::Open),
            Effect::OpenForGood => is_for_good[*index] = true,
            Effect::AllOpen => truth = [Some(Truth::Open); 2],
        }
    }
    let for_good = |index: usize| if is_for_good[index] { Some(Truth::Open) } else { truth[index] };
    (text, [for_good(0), for_good(1)])
}

const LAUNCHERS: [&str; 4] = [
    "python -u",
    "torchrun --standalone --nproc_per_node=2",
    "accelerate launch --num_processes 2 --gradient_accumulation_steps 7",
    "env A=1 mpirun -n 2 python",
];
/// What nanoGPT's script computes from its settings.
const AFTER: &str = "exec(open('configurator.py').read()) # overrides\nif ddp:\n    gradient_accumulation_steps //= 2\n\
                     batch_size, n = x.shape\n";

fn nanogpt() -> impl Strategy<Value = Case> {
    let flags = prop::collection::vec((0_usize..2, 2_u64..40, any::<bool>()), 0..3);
    (pieces(), pieces(), flags, 0..LAUNCHERS.len()).prop_map(|(before, settings, flags, launcher)| {
        let names = ["batch_size", "gradient_accumulation_steps"];
        let first = [vec![(0, 0, 12), (0, 1, 40)], before].concat();
        let (script, mut truth) = file(&first, names);
        let (settings, set) = file(&settings, names);
        for (truth, set) in truth.iter_mut().zip(set) {
            *truth = set.or(*truth);
        }
        // Words count in their order: what the file says of a flag before it is not looked up.
        let typed = |is_before: bool| {
            let here = flags.iter().filter(move |(.., before)| *before == is_before);
            here.map(|(index, value, _)| format!(" --{}={value}", names[*index])).collect::<String>()
        };
        for (index, truth) in truth.iter_mut().enumerate() {
            let last = |is_before| {
                flags
                    .iter()
                    .rfind(|(name, _, before)| *name == index && *before == is_before)
                    .map(|(_, value, _)| *value)
            };
            match (last(true), last(false)) {
                (_, Some(value)) => *truth = Some(Truth::Set(value)),
                (Some(_), None) => *truth = Some(Truth::Open),
                (None, None) => {}
            }
        }
        Case {
            files: vec![("train.py", script + AFTER), ("config/it.py", settings)],
            command: format!("{} train.py{} config/it.py{}", LAUNCHERS[launcher], typed(true), typed(false)),
            truth: truth.map(|truth| truth.unwrap_or(Truth::Default(None))),
        }
    })
}

/// One way for a script of Hugging Face's Trainer to have a number.
fn hugging_face_default(kind: usize, name: &str, value: u64) -> (String, Option<Truth>) {
    match kind {
        0 => (String::new(), None),
        1 => (
            format!("class A(TrainingArguments):\n    {name}: int = field(default={value})\n"),
            Some(Truth::Set(value)),
        ),
        2 => (format!("class A(TrainingArguments):\n    {name}: int = {value}\n"), Some(Truth::Set(value))),
        3 => (format!("p.add_argument(\n    '--{name}',\n    default={value},\n)\n"), Some(Truth::Set(value))),
        4 => (format!("parser.set_defaults({name}={value}, x=3)\n"), Some(Truth::Set(value))),
        5 => (format!("def f(x):\n    {name} = {value}\n# it's '''\np.set_defaults({name}=4)\n"), Some(Truth::Set(4))),
        6 => (format!("T(\n    'out',\n    {name}={value},\n)\n"), Some(Truth::Fixed(value))),
        7 => (
            format!("class A:\n    {name}: int = {value}\nclass B:\n    {name}: int = {}\n", value + 1),
            Some(Truth::Open),
        ),
        8 => (format!("p.add_argument('--{name}', type=int, required=True)\n"), Some(Truth::Open)),
        9 => (format!("args.{name} = {value}\n"), Some(Truth::Open)),
        10 => (format!("setattr(args, '{name}', {value})\n"), Some(Truth::Open)),
        _ => (format!("T({name}=args.size)\n"), Some(Truth::Open)),
    }
}

fn hugging_face() -> impl Strategy<Value = Case> {
    let number = || (0_usize..12, 2_u64..40, prop::option::of((0_usize..3, 2_u64..40)));
    (number(), number(), prop::option::of((0_usize..3, 2_u64..40)), 0..LAUNCHERS.len()).prop_map(
        |(micro, accum, filed, launcher)| {
            let names = ["per_device_train_batch_size", "gradient_accumulation_steps"];
            let mut script = "from transformers import HfArgumentParser, TrainingArguments\n".to_owned();
            let mut command = format!("{} run.py --output_dir out", LAUNCHERS[launcher]);
            let mut truth = [Truth::Default(Some(8)), Truth::Default(Some(1))];
            let mut files = Vec::new();
            for (index, (kind, value, _)) in [micro, accum].into_iter().enumerate() {
                let (text, set) = hugging_face_default(kind, names[index], value);
                script.push_str(&text);
                truth[index] = set.unwrap_or(truth[index]);
            }
            if let Some((index, value)) = filed.filter(|(index, _)| *index < 2) {
                command.push_str(" --config a.yaml");
                files.push(("a.yaml", format!("{}: {value}\n", names[index])));
                truth[index] = Truth::Set(value);
            }
            for (index, (.., flag)) in [micro, accum].into_iter().enumerate() {
                let Some((kind, value)) = flag else { continue };
                let name = if kind == 2 { names[index].replace('_', "-") } else { names[index].to_owned() };
                let sign = if kind == 0 { '=' } else { ' ' };
                command.push_str(&format!(" --{name}{sign}{value}"));
                truth[index] = Truth::Set(value);
            }
            files.insert(0, ("run.py", script));
            Case { files, command, truth }
        },
    )
}

fn lightning() -> impl Strategy<Value = Case> {
    let flag = || prop::option::of((any::<bool>(), 2_u64..40));
    (0_usize..6, 0_usize..5, 2_u64..40, 2_u64..40, (flag(), flag())).prop_map(
        |(data, trainer, micro, accum, (micro_flag, accum_flag))| {
            let (data, mut first) = match data {
                0 => ("data:\n  workers: 3\n".to_owned(), Truth::Default(None)),
                1 => (format!("data:\n  batch_size: {micro}  # samples\n"), Truth::Set(micro)),
                2 => (format!("data:\n  class_path: A\n  init_args:\n    batch_size: {micro}\n"), Truth::Set(micro)),
                3 => (format!("fit:\n  data:\n    batch_size: {micro}\n"), Truth::Set(micro)),
                4 => (format!("n: &n {micro}\ndata:\n  batch_size: *n\n"), Truth::Open),
                _ => (format!("data:\n  batch_size: '{micro}'\n"), Truth::Open),
            };
            let (trainer, mut second) = match trainer {
                0 => ("trainer:\n  max_epochs: 3\n".to_owned(), Truth::Default(Some(1))),
                1 => (format!("trainer:\n  accumulate_grad_batches: {accum}\n"), Truth::Set(accum)),
                2 => (format!("trainer: {{accumulate_grad_batches: {accum}}}\n"), Truth::Set(accum)),
                3 => (format!("trainer:\n  accumulate_grad_batches: {{0: {accum}}}\n"), Truth::Open),
                _ => ("trainer:\n  accumulate_grad_batches: null\n".to_owned(), Truth::Open),
            };
            let mut command = "python main.py fit --config fit.yaml".to_owned();
            let flags = [("data.batch_size", micro_flag), ("trainer.accumulate_grad_batches", accum_flag)];
            for (truth, (name, flag)) in [&mut first, &mut second].into_iter().zip(flags) {
                let Some((is_joined, value)) = flag else { continue };
                command.push_str(&format!(" --{name}{}{value}", if is_joined { '=' } else { ' ' }));
                *truth = Truth::Set(value);
            }
            let files = vec![("main.py", "LightningCLI(Net, Data)\n".to_owned()), ("fit.yaml", data + &trainer)];
            Case { files, command, truth: [first, second] }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn of_nanogpt(case in nanogpt()) {
        case.check();
    }

    #[test]
    fn of_hugging_face(case in hugging_face()) {
        case.check();
    }

    #[test]
    fn of_lightning(case in lightning()) {
        case.check();
    }
}

/// Those two that once were answered differently.
#[test]
fn a_local_name_and_a_quote_in_a_comment() {
    let check = |settings: &str, truth: [Truth; 2]| {
        let script = "batch_size = 8\ngradient_accumulation_steps = 5\nexec(open('configurator.py').read())\n";
        let files = vec![("train.py", script.to_owned()), ("it.py", settings.to_owned())];
        Case { files, command: "python train.py it.py".to_owned(), truth }.check();
    };
    let accum = Truth::Set(5);
    check("batch_size = 12\ndef f(x): batch_size, n = x.shape\n", [Truth::Set(12), accum]);
    check("batch_size = 12\n# it's '''\nbatch_size = 24\n", [Truth::Set(24), accum]);
    check("batch_size = 12\n# '''\nif x:\n    batch_size = 24\n", [Truth::Open, accum]);
}
