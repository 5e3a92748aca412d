//! What is read of Python files, and what is not passed over.

use super::reader::settings;
use crate::config::shown;
use crate::{GapKind, Scope, unquoted};

#[track_caller]
fn check(text: &str, expected: &[(&str, &str, Scope)]) {
    let found = settings(text).unwrap().0;
    for (setting, (_, value, at)) in found.iter().zip(shown(&found, text)) {
        assert_eq!(setting.value, unquoted(&at), "{value}");
    }
    let found: Vec<_> =
        found.iter().map(|setting| (setting.path.join("."), setting.value.clone(), setting.scope)).collect();
    let found: Vec<_> = found.iter().map(|(path, value, scope)| (&**path, &**value, *scope)).collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn assignments_with_their_places() {
    check(
        "# a = 1\nbatch_size = 64 # of it\ngradient_accumulation_steps=5 * 8\ndtype = 'bf#16'\nif x == \
        3:\n    y = 4\n\
                n: int = 2\nlist = [\n1]\n'''\nz = 5\n'''\na = 1; b = 2\nf = lambda: 3\n",
        &[
            ("batch_size", "64", Scope::File),
            ("gradient_accumulation_steps", "5 * 8", Scope::File),
            ("dtype", "bf#16", Scope::File),
            ("n", "2", Scope::File),
            ("a", "1", Scope::File),
            ("b", "2", Scope::File),
            ("f", "lambda: 3", Scope::File),
        ],
    );
}

#[test]
fn a_quote_in_a_comment_hides_nothing() {
    check("# it's '''\nn = 1\n# \"\"\"\nn = 2\n", &[("n", "1", Scope::File), ("n", "2", Scope::File)]);
}

#[test]
fn arguments_defaults_fields_and_dictionaries() {
    check(
        "a = T(\n    n=8,  # x\n    m=k(2),\n)\ndef f(n=3): pass\n",
        &[("n", "8", Scope::Call), ("m", "k(2)", Scope::Call), ("n", "3", Scope::Parameter)],
    );
    check(
        "p.add_argument(\n    '-n', '--n-1',\n    type=int,\n    default=3,\n    help='default=4',\n)\n",
        &[("n_1", "3", Scope::Option)],
    );
    check("p.set_defaults(n=3)\n", &[("n", "3", Scope::Option)]);
    check(
        "class A(B):\n    n: int = field(default=3, metadata={'a': 1})\n    m = 4\n",
        &[("n", "3", Scope::Class), ("metadata.a", "1", Scope::Entry), ("m", "4", Scope::Class)],
    );
    check(
        "c = {'train': {'n': 4}, \"m\": 'x'}\nC(defaults={'n': 5})\n",
        &[
            ("c", "{'train': {'n': 4}, \"m\": 'x'}", Scope::File),
            ("c.train.n", "4", Scope::Entry),
            ("c.m", "x", Scope::Entry),
            ("defaults.n", "5", Scope::Entry),
        ],
    );
}

#[track_caller]
fn gaps(text: &str, expected: &[(&str, GapKind, Scope)]) {
    let found = settings(text).unwrap().1;
    let found: Vec<_> = found.iter().map(|gap| (gap.path.join("."), gap.kind, gap.scope)).collect();
    let found: Vec<_> = found.iter().map(|(path, kind, scope)| (&**path, *kind, *scope)).collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn names_without_a_plain_value() {
    let computed = |name| (name, GapKind::Computed, Scope::File);
    let member = |name| (name, GapKind::Computed, Scope::Member);
    let local = |name| (name, GapKind::Computed, Scope::Local);
    gaps("steps = 4\nsteps //= 8\n", &[("steps", GapKind::Changed, Scope::File)]);
    gaps("steps = 4\nif x:\n    steps = 8\n", &[computed("steps")]);
    gaps("if a: steps = 4\nelse: steps = 5\n", &[computed("steps"), computed("steps")]);
    gaps("if a:\n    n = args.n\n", &[("n", GapKind::Alias, Scope::File)]);
    gaps("size, steps = 12, 4\n", &[computed("steps"), computed("size")]);
    gaps("a = n = 3\n", &[computed("a"), computed("n")]);
    gaps("args.steps = 4\ncfg['size'] = 3\n", &[member("steps"), member("size")]);
    gaps("setattr(a, 'n', 4)\nf(['--n-m', '3'])\n", &[member("n"), member("n_m")]);
    gaps("p.add_argument('--grad-steps', required=True)\n", &[("grad_steps", GapKind::Computed, Scope::Option)]);
    gaps("def f(x):\n    n, m = x.shape\n    for k in x: pass\n", &[computed("f"), local("m"), local("n"), local("k")]);
    gaps("def f(x):\n    global n\n    n = 3\n", &[computed("f"), member("n")]);
    gaps(
        "for n in range(3): pass\nwith a as m: pass\nif (k := 3): pass\ndel x\n",
        &[computed("n"), computed("m"), computed("k"), computed("x")],
    );
    gaps(
        "from a import n, b as m\nfrom c import *\nexec(open('d').read())\n",
        &[computed("n"), computed("m"), ("", GapKind::Anything, Scope::File), ("", GapKind::Anything, Scope::File)],
    );
    gaps("n = [\n  3]\nclass A:\n    m = field()\n", &[computed("n"), ("m", GapKind::Computed, Scope::Class)]);
    // Read, passed on, compared or told.
    gaps("steps = 4  # steps //= 2\nf(a, steps=3)\np.add_argument('--size', default=4)\n", &[]);
    gaps("n: int = 4\nf(steps=steps, size=args.size)\nif n == 3 or n >= 4: pass\nself.n = n\n", &[]);
    gaps("print(f\"{n=}\", 'steps = 3')\n'''\nn += 1\n'''\n[n for n in x]\n", &[]);
}

#[test]
fn what_is_no_python_is_not_passed_over() {
    let (settings, gaps) = settings("a = 1\nbatch_size 12 = (\nb = 2\n").unwrap();
    assert!(settings.iter().any(|setting| setting.path == ["a"]));
    assert!(gaps.iter().any(|gap| gap.path == ["batch_size"]), "{gaps:?}");
}

#[test]
fn no_nesting_is_too_deep() {
    for piece in ["(", "[", "{", "{'a':", "f(n=", "not ", "-", "a.", "lambda: ", "x = ", "if x:", "'", "a if b else "] {
        let _ = settings(&piece.repeat(if piece.len() == 1 { 100_000 } else { 10_000 }));
    }
    let blocks: String = (0..500).map(|depth| format!("{}if x:\n", " ".repeat(depth))).collect();
    let _ = settings(&blocks);
    let closed = format!("n = {}1{}\n", "(".repeat(10_000), ")".repeat(10_000));
    assert!(settings(&closed).is_ok());
}

#[test]
fn what_a_call_is_for() {
    let text = "class D:\n    def val_dataloader(self):\n        return DataLoader(self.data, batch_size=4)\n\
                train_loader = DataLoader(train_set, 8, shuffle=True)\n";
    let found = settings(text).unwrap().0;
    let found: Vec<_> = found.iter().map(|it| (it.path.concat(), it.value.clone(), it.around.join(" "))).collect();
    let found: Vec<_> = found.iter().map(|(name, value, around)| (&**name, &**value, &**around)).collect();
    assert_eq!(
        found,
        [
            ("batch_size", "4", "val_dataloader data"),
            ("train_loader", "DataLoader(train_set, 8, shuffle=True)", ""),
            ("batch_size", "8", "train_loader train_set"),
            ("shuffle", "True", "train_loader train_set"),
        ]
    );
}
