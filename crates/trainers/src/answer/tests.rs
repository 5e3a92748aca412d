//! What configurations say of a number, and where they leave it open.

use proptest::prelude::*;

use lowtide_config::{Config, Syntax};

use super::reading::{Answer, Question, answer};
use crate::Key;

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
        ("a.sh", "ACC=4\nACC=2\npython run.py --gradient_accumulation_steps $ACC\n"),
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
    batch("a.py", "c = {'batch_size': 12}\na = DataLoader(ds, batch_size=c['batch_size'])\n", Ok(Some(12)));
    batch("a.py", "c = {'bs': 12}\na = DataLoader(ds, batch_size=c['x'][\"bs\"])\n", Ok(Some(12)));
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
