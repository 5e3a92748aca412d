//! The options that a Python script declares for its own command line: by argparse, click, typer, absl or fire, or as
//! fields of a class that a parser is made of.

use lowtide_config::python::{is_name, last_name, tree};
use lowtide_config::{Config, Scope, Setting, Syntax, unquoted};
use tree_sitter::{Node, Tree, TreeCursor};

/// An option of a script's own command line that takes a value.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Declaration {
    /// As it is typed, with its dashes; at least one, what people would type first.
    pub flags: Vec<String>,
    /// What the script calls its value.
    pub name: String,
    /// Its default, where that is written down plainly.
    pub default: Option<Setting>,
    /// Where it is declared, in bytes.
    pub at: usize,
    /// The subcommand that alone takes it, with its other names; none where every one does.
    pub subcommands: Vec<String>,
    /// What it takes.
    pub takes: Takes,
}

/// What an option takes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Takes {
    /// One value.
    One,
    /// One of these values, as they are written.
    OneOf(Vec<String>),
    /// Several values, or one of several that are computed.
    Unknown,
}

/// How a library makes flags of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spelling {
    /// `--batch_size`
    AsItIs,
    /// `--batch-size`
    Dashes,
}

impl Spelling {
    fn flag(self, name: &str) -> String {
        match self {
            Self::AsItIs => format!("--{name}"),
            Self::Dashes => format!("--{}", name.replace('_', "-")),
        }
    }
}

/// Calls that make options of the fields or parameters of what they are given.
const PARSERS: [(&str, Spelling); 13] = [
    ("HfArgumentParser", Spelling::AsItIs),
    ("TrlParser", Spelling::AsItIs),
    ("tyro.cli", Spelling::Dashes),
    ("simple_parsing.parse", Spelling::AsItIs),
    ("add_arguments", Spelling::AsItIs),
    ("pyrallis.parse", Spelling::AsItIs),
    ("draccus.parse", Spelling::AsItIs),
    ("jsonargparse.CLI", Spelling::AsItIs),
    ("auto_cli", Spelling::AsItIs),
    ("CLI", Spelling::AsItIs),
    ("Fire", Spelling::AsItIs),
    ("typer.run", Spelling::Dashes),
    ("chz.entrypoint", Spelling::AsItIs),
];

/// The options that a script declares, in the order of its text; none of other configurations.
#[must_use]
pub fn declarations(script: &Config) -> Vec<Declaration> {
    declarations_with(script, &[])
}

/// The options that each of several scripts declares, where a parser in one may be made of a class in another.
pub(crate) fn declarations_of<'a>(
    scripts: impl IntoIterator<Item = &'a Config> + Clone,
) -> Vec<(&'a Config, Declaration)> {
    let parsed: Vec<(String, Spelling)> = scripts.clone().into_iter().flat_map(parsed_elsewhere).collect();
    let declared = scripts.into_iter().flat_map(|script| {
        declarations_with(script, &parsed).into_iter().map(move |declaration| (script, declaration))
    });
    declared.collect()
}

/// What a parser in a script is made of, under the names that other files have for it.
fn parsed_elsewhere(script: &Config) -> Vec<(String, Spelling)> {
    let has_parser = script.syntax == Syntax::Python && PARSERS.iter().any(|(name, _)| script.text.contains(name));
    let Some(tree) = tree(&script.text).filter(|_| has_parser) else { return Vec::new() };
    let mut finder = Finder::new(&script.text, &tree);
    let mut stack = vec![tree.root_node()];
    while let Some(node) = stack.pop() {
        if node.kind() == "call" {
            finder.call(node);
        }
        stack.extend(node.named_children(&mut finder.cursor));
    }
    let is_defined = |name: &str| ["class ", "def "].iter().any(|word| script.text.contains(&format!("{word}{name}")));
    let elsewhere = finder.parsed.into_iter().filter(|(name, _)| !is_defined(name));
    elsewhere.map(|(name, spelling)| (name.to_owned(), spelling)).collect()
}

fn declarations_with(script: &Config, parsed: &[(String, Spelling)]) -> Vec<Declaration> {
    if script.syntax != Syntax::Python {
        return Vec::new();
    }
    let text = script.text.strip_prefix('\u{feff}').unwrap_or(&script.text);
    let mark = script.text.len() - text.len();
    let Some(tree) = tree(text) else { return Vec::new() };
    let mut finder = Finder::new(text, &tree);
    finder.parsed.extend(parsed.iter().map(|(name, spelling)| (&**name, *spelling)));
    let mut definitions = Vec::new();
    let mut stack = vec![tree.root_node()];
    while let Some(node) = stack.pop() {
        match node.kind() {
            "call" => finder.call(node),
            "assignment" => finder.assignment(node),
            "class_definition" | "function_definition" => definitions.push(node),
            _ => {}
        }
        let first = stack.len();
        stack.extend(node.named_children(&mut finder.cursor));
        stack[first..].reverse();
    }
    definitions.into_iter().for_each(|definition| finder.definition(definition));
    for declaration in &mut finder.found {
        declaration.at += mark;
        if let Some(default) = &mut declaration.default {
            default.span = default.span.start + mark..default.span.end + mark;
        }
    }
    finder.found
}

struct Finder<'a> {
    text: &'a str,
    cursor: TreeCursor<'a>,
    /// What parsers are imported under other names, with these names.
    aliases: Vec<(&'static str, &'a str)>,
    /// Classes and functions whose fields or parameters are options.
    parsed: Vec<(&'a str, Spelling)>,
    /// What names were given so far, and the subcommand that it parses, with its other names.
    parsers: Vec<(&'a str, Vec<String>)>,
    found: Vec<Declaration>,
}

/// The subcommands that a script declares by argparse, with their other names.
#[must_use]
pub(crate) fn subcommands(script: &Config) -> Vec<String> {
    if script.syntax != Syntax::Python || !script.text.contains("add_parser(") {
        return Vec::new();
    }
    let Some(tree) = tree(&script.text) else { return Vec::new() };
    let mut finder = Finder::new(&script.text, &tree);
    let (mut names, mut stack) = (Vec::new(), vec![tree.root_node()]);
    while let Some(node) = stack.pop() {
        names.extend(finder.subcommand(node).into_iter().flatten());
        stack.extend(node.named_children(&mut finder.cursor));
    }
    names
}

/// The options of a script that have no value and are off where they are not typed.
pub(crate) fn switches(script: &Config) -> Vec<String> {
    let is_worth_it = ["store_true", "is_flag"].iter().any(|word| script.text.contains(word));
    let Some(tree) = tree(&script.text).filter(|_| script.syntax == Syntax::Python && is_worth_it) else {
        return Vec::new();
    };
    let mut finder = Finder::new(&script.text, &tree);
    let (mut names, mut stack) = (Vec::new(), vec![tree.root_node()]);
    while let Some(node) = stack.pop() {
        if node.kind() == "call" {
            names.extend(finder.switch(node));
        }
        stack.extend(node.named_children(&mut finder.cursor));
    }
    names
}

impl<'a> Finder<'a> {
    fn new(text: &'a str, tree: &'a Tree) -> Self {
        let alias = |name: &'static str| {
            let lines =
                text.split("import ").skip(1).filter_map(move |rest| rest.strip_prefix(name)?.strip_prefix(" as "));
            lines.map(move |rest| (name, rest.lines().next().unwrap_or_default()))
        };
        let aliases = PARSERS.iter().flat_map(|(name, _)| alias(name)).collect();
        Self { text, cursor: tree.walk(), aliases, parsed: Vec::new(), parsers: Vec::new(), found: Vec::new() }
    }

    /// Whether a call is of a function by its name or by the one that it is imported under.
    fn is_of(&self, function: &str, name: &str) -> bool {
        match name.contains('.') {
            true => function == name,
            false => last_name(function) == name || self.aliases.contains(&(name, function)),
        }
    }

    /// The names of the subcommand that a call makes a parser for: `add_parser("train", aliases=["t"])`.
    fn subcommand(&mut self, call: Node<'a>) -> Option<Vec<String>> {
        let function = call.child_by_field_name("function").filter(|_| call.kind() == "call")?;
        if last_name(self.slice(function)) != "add_parser" {
            return None;
        }
        let mut names = self.strings(call);
        let aliases = self.keyword(call, "aliases").map_or("", |aliases| self.slice(aliases));
        names.extend(aliases.split(['"', '\'']).skip(1).step_by(2).map(str::to_owned));
        Some(names)
    }

    /// What a call of a parser's method is for: the parser's subcommand, also where that is a group of options.
    fn subcommand_of(&mut self, object: Node<'a>) -> Vec<String> {
        if let Some(names) = self.subcommand(object) {
            return names;
        }
        if let Some(inner) = object.child_by_field_name("function").filter(|_| object.kind() == "call") {
            let is_group =
                ["add_argument_group", "add_mutually_exclusive_group"].contains(&last_name(self.slice(inner)));
            let parser = inner.child_by_field_name("object").filter(|_| is_group);
            return parser.map(|parser| self.subcommand_of(parser)).unwrap_or_default();
        }
        let name = self.slice(object);
        self.parsers.iter().rev().find(|(known, _)| *known == name).map(|(_, names)| names.clone()).unwrap_or_default()
    }

    /// `train = commands.add_parser("train")`
    fn assignment(&mut self, node: Node<'a>) {
        let (Some(left), Some(right)) = (node.child_by_field_name("left"), node.child_by_field_name("right")) else {
            return;
        };
        let names = self.subcommand_of(right);
        self.parsers.push((self.slice(left), names));
    }

    fn call(&mut self, call: Node<'a>) {
        let function = call.child_by_field_name("function").map_or("", |function| self.slice(function));
        let parser = PARSERS.iter().find(|(name, _)| self.is_of(function, name));
        if let Some((_, spelling)) = parser {
            let names = self.names_within(call);
            return self.parsed.extend(names.into_iter().map(|name| (name, *spelling)));
        }
        match last_name(function) {
            "add_argument" | "add_option" | "option" | "argument" => self.option(call),
            "DEFINE_integer" | "DEFINE_int" => self.absl(call),
            _ => {}
        }
    }

    /// `add_argument("-b", "--batch-size", dest="batch", default=64)`, `@click.option(...)`.
    fn option(&mut self, call: Node<'a>) {
        let words = self.strings(call);
        let mut flags: Vec<String> = words.iter().filter(|word| word.starts_with('-')).cloned().collect();
        // Long ones say what they are.
        flags.sort_by_key(|flag| !flag.starts_with("--"));
        let Some(first) = flags.first() else { return };
        let action = self.keyword(call, "action").map(|action| unquoted(self.slice(action)));
        if action.is_some_and(|action| action != "store") || self.keyword(call, "is_flag").is_some() {
            return;
        }
        let takes = self.takes(call);
        let name = self.name_of(call, &words, first);
        let default = self.keyword(call, "default");
        self.push(flags, name, default, call);
        self.found.last_mut().into_iter().for_each(|it| it.takes = takes.clone());
    }

    /// What a script calls the value of an option.
    fn name_of(&mut self, call: Node<'a>, words: &[String], flag: &str) -> String {
        let dest = self.keyword(call, "dest").map(|dest| unquoted(self.slice(dest)).to_owned());
        let own = words.iter().find(|word| is_name(word)).cloned();
        dest.or(own).unwrap_or_else(|| flag.trim_start_matches('-').replace('-', "_"))
    }

    /// `add_argument("--debug", action="store_true")`
    fn switch(&mut self, call: Node<'a>) -> Option<String> {
        let has = |finder: &mut Self, name: &str, value: &str| {
            finder.keyword(call, name).is_some_and(|it| unquoted(finder.slice(it)) == value)
        };
        let is_switch = has(self, "action", "store_true") || has(self, "is_flag", "True");
        if !is_switch || has(self, "default", "True") {
            return None;
        }
        let words = self.strings(call);
        let flags = || words.iter().filter(|word| word.starts_with('-'));
        let flag = flags().find(|flag| flag.starts_with("--")).or(flags().next())?;
        Some(self.name_of(call, &words, flag))
    }

    /// How many values an option takes, and which.
    fn takes(&mut self, call: Node<'a>) -> Takes {
        let nargs = self.keyword(call, "nargs").map(|nargs| unquoted(self.slice(nargs)));
        if nargs.is_some_and(|nargs| nargs != "?") || self.keyword(call, "multiple").is_some() {
            return Takes::Unknown;
        }
        // `type=click.Choice([16, 32])`
        let made = self.keyword(call, "type").filter(|made| made.kind() == "call");
        let choices = self.keyword(call, "choices").or_else(|| self.positional(made?, 0));
        let Some(choices) = choices else { return Takes::One };
        let values: Vec<Node<'a>> = choices.named_children(&mut self.cursor).collect();
        let is_plain = |value: &Node<'a>| matches!(value.kind(), "integer" | "float" | "string" | "none");
        let is_list = matches!(choices.kind(), "list" | "tuple" | "set");
        match is_list && values.iter().all(is_plain) {
            true => Takes::OneOf(values.iter().map(|value| unquoted(self.slice(*value)).to_owned()).collect()),
            false => Takes::Unknown,
        }
    }

    /// `flags.DEFINE_integer("batch_size", 64, "...")`
    fn absl(&mut self, call: Node<'a>) {
        let Some(name) = self.strings(call).into_iter().next() else { return };
        let default = self.keyword(call, "default").or_else(|| self.positional(call, 1));
        self.push(vec![format!("--{name}")], name, default, call);
    }

    /// A class or a function that a parser is made of, or that says so itself.
    fn definition(&mut self, node: Node<'a>) {
        let Some(name) = node.child_by_field_name("name").map(|name| self.slice(name)) else { return };
        let given = self.parsed.iter().find(|(known, _)| *known == name).map(|(_, spelling)| *spelling);
        if node.kind() == "class_definition" {
            let bases = node.child_by_field_name("superclasses").map_or("", |bases| self.slice(bases));
            let is_parser = bases.trim_matches(['(', ')']).split(',').any(|base| last_name(base) == "Tap");
            if let Some(spelling) = given.or(is_parser.then_some(Spelling::AsItIs)) {
                self.fields(node, spelling);
            }
            return;
        }
        let decorators = node.parent().filter(|parent| parent.kind() == "decorated_definition");
        let is_command = decorators.is_some_and(|decorated| {
            let mut children = decorated.named_children(&mut self.cursor);
            children.any(|child| child.kind() == "decorator" && self.text[child.byte_range()].contains(".command"))
        });
        let is_typer = is_command && self.text.contains("typer");
        if let Some(spelling) = given.or(is_typer.then_some(Spelling::Dashes)) {
            self.parameters(node, spelling);
        }
    }

    fn fields(&mut self, class: Node<'a>, spelling: Spelling) {
        let Some(body) = class.child_by_field_name("body") else { return };
        let statements: Vec<Node<'a>> = body.named_children(&mut self.cursor).collect();
        for statement in statements {
            let Some(field) = statement.named_child(0).filter(|field| field.kind() == "assignment") else { continue };
            let (Some(left), true) = (field.child_by_field_name("left"), field.child_by_field_name("type").is_some())
            else {
                continue;
            };
            let right = field.child_by_field_name("right");
            let is_made = right.is_some_and(|right| right.kind() == "call");
            let default = if is_made { self.keyword(right.expect("a call"), "default") } else { right };
            let name = self.slice(left).to_owned();
            self.push(vec![spelling.flag(&name)], name, default, field);
        }
    }

    fn parameters(&mut self, function: Node<'a>, spelling: Spelling) {
        let Some(list) = function.child_by_field_name("parameters") else { return };
        let parameters: Vec<Node<'a>> = list.named_children(&mut self.cursor).collect();
        for parameter in parameters {
            let Some(name) = parameter.child_by_field_name("name") else { continue };
            let name = self.slice(name).to_owned();
            let value = parameter.child_by_field_name("value");
            // `typer.Option(32, "--bs")`, as a default or in `Annotated[int, typer.Option("--bs")]`.
            let made = value.filter(|value| value.kind() == "call");
            let annotation = parameter.child_by_field_name("type").map_or("", |annotation| self.slice(annotation));
            let mut flags: Vec<String> = match made {
                Some(call) => self.strings(call),
                None => annotation.split(['"', '\'']).skip(1).step_by(2).map(str::to_owned).collect(),
            };
            flags.retain(|flag| flag.starts_with('-'));
            if flags.is_empty() {
                flags.push(spelling.flag(&name));
            }
            let default = match made {
                Some(call) => self.keyword(call, "default").or_else(|| self.positional(call, 0)),
                None => value,
            };
            self.push(flags, name, default, parameter);
        }
    }

    fn push(&mut self, flags: Vec<String>, name: String, default: Option<Node<'a>>, whole: Node<'a>) {
        let plain = default.filter(|default| !self.slice(*default).contains('\n') && !whole.has_error());
        let default = plain.map(|default| Setting {
            path: vec![name.clone()],
            span: default.byte_range(),
            value: self.slice(default).to_owned(),
            scope: Scope::Option,
            owner: None,
            around: Vec::new(),
        });
        let object = whole.child_by_field_name("function").and_then(|function| function.child_by_field_name("object"));
        let subcommands = object.map(|object| self.subcommand_of(object)).unwrap_or_default();
        self.found.push(Declaration { flags, name, default, at: whole.start_byte(), subcommands, takes: Takes::One });
    }

    /// The names among the arguments of a call, also in a tuple or a list.
    fn names_within(&mut self, call: Node<'a>) -> Vec<&'a str> {
        let mut names = Vec::new();
        let mut stack: Vec<Node<'a>> = call.child_by_field_name("arguments").into_iter().collect();
        while let Some(node) = stack.pop() {
            match node.kind() {
                "identifier" => names.push(self.slice(node)),
                "attribute" => names.push(last_name(self.slice(node))),
                "keyword_argument" => stack.extend(node.child_by_field_name("value")),
                "argument_list" | "tuple" | "list" => stack.extend(node.named_children(&mut self.cursor)),
                _ => {}
            }
        }
        names
    }

    fn arguments(&mut self, call: Node<'a>) -> Vec<Node<'a>> {
        let list = call.child_by_field_name("arguments").filter(|list| list.kind() == "argument_list");
        list.map(|list| list.named_children(&mut self.cursor).collect()).unwrap_or_default()
    }

    fn keyword(&mut self, call: Node<'a>, name: &str) -> Option<Node<'a>> {
        let text = self.text;
        let is_it = |argument: &Node<'a>| {
            let named = argument.child_by_field_name("name").filter(|_| argument.kind() == "keyword_argument");
            named.is_some_and(|named| &text[named.byte_range()] == name)
        };
        self.arguments(call).into_iter().find(is_it)?.child_by_field_name("value")
    }

    fn positional(&mut self, call: Node<'a>, index: usize) -> Option<Node<'a>> {
        self.arguments(call).into_iter().filter(|node| node.kind() != "keyword_argument").nth(index)
    }

    fn strings(&mut self, call: Node<'a>) -> Vec<String> {
        let strings = self.arguments(call).into_iter().filter(|node| node.kind() == "string");
        strings.map(|node| unquoted(&self.text[node.byte_range()]).to_owned()).collect()
    }

    fn slice(&self, node: Node<'a>) -> &'a str {
        &self.text[node.byte_range()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str, Option<&str>)]) {
        let config = Config::parse_as(Syntax::Python, "t.py", text).unwrap();
        let found = declarations(&config);
        for default in found.iter().filter_map(|declaration| declaration.default.as_ref()) {
            assert_eq!(config.text[default.span.clone()], default.value);
        }
        let default = |it: &Declaration| it.default.as_ref().map(|default| default.value.clone());
        let found: Vec<_> = found.iter().map(|it| (it.flags.join(" "), it.name.clone(), default(it))).collect();
        let found: Vec<_> = found.iter().map(|(flags, name, it)| (&**flags, &**name, it.as_deref())).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn options_of_every_library() {
        check(
            "\u{feff}p.add_argument('-b', \"--bs\", type=int, default=32, help='n')\np.add_argument('--x', action='store_true')\n\
             p.add_argument('--gpus', nargs='+', default=1)\np.add_argument('-a', dest='accum', type=int)\n\
             p.add_argument('data')\n",
            &[("--bs -b", "bs", Some("32")), ("--gpus", "gpus", Some("1")), ("-a", "accum", None)],
        );
        check(
            "@click.command()\n@click.option('--batch-size', '-b', default=8)\n@click.option('--n', 'm', default=1)\n\
             @click.option('--amp', is_flag=True)\ndef main(batch_size, m, amp): pass\n",
            &[("--batch-size -b", "batch_size", Some("8")), ("--n", "m", Some("1"))],
        );
        check(
            "import typer\napp = typer.Typer()\n@app.command()\ndef main(batch_size: int = 8, n: int = typer.Option(2, '--m')):\n  \
             pass\n",
            &[("--batch-size", "batch_size", Some("8")), ("--m", "n", Some("2"))],
        );
        check("flags.DEFINE_integer('batch_size', 128, 'size')\n", &[("--batch_size", "batch_size", Some("128"))]);
        check(
            "def main(bs=4, *, n: int = 2): pass\nfire.Fire(main)\n",
            &[("--bs", "bs", Some("4")), ("--n", "n", Some("2"))],
        );
    }

    #[test]
    fn options_of_several_values_and_of_some() {
        let takes = |words: &str| {
            let text = format!("p.add_argument('--bs', {words})\n");
            let config = Config::parse_as(Syntax::Python, "t.py", &text).unwrap();
            declarations(&config)[0].takes.clone()
        };
        let some = |values: &[&str]| Takes::OneOf(values.iter().map(|value| (*value).to_owned()).collect());
        assert_eq!(takes("default=4"), Takes::One);
        assert_eq!(takes("choices=[16, 32], default=16"), some(&["16", "32"]));
        assert_eq!(takes("choices=('a', None)"), some(&["a", "None"]));
        for words in ["nargs='+'", "choices=range(1, 9)", "choices=[N, 4]", "multiple=True"] {
            assert_eq!(takes(words), Takes::Unknown, "{words}");
        }
    }

    #[test]
    fn options_of_subcommands() {
        let text = "p.add_argument('--seed')\nt = s.add_parser('train', aliases=['fit'])\nt.add_argument('--bs')\n\
                    g = t.add_argument_group('g')\ng.add_argument('--accum')\nt = s.add_parser('eval')\nt.add_argument('--n')\n\
                    s.add_parser('show').add_argument('--m')\n";
        let config = Config::parse_as(Syntax::Python, "t.py", text).unwrap();
        let found: Vec<_> = declarations(&config).into_iter().map(|it| (it.name, it.subcommands.join(" "))).collect();
        let expected = [("seed", ""), ("bs", "train fit"), ("accum", "train fit"), ("n", "eval"), ("m", "show")];
        assert_eq!(found, expected.map(|(name, words)| (name.to_owned(), words.to_owned())));
        let mut names = subcommands(&config);
        names.sort();
        assert_eq!(names, ["eval", "fit", "show", "train"]);
    }

    #[test]
    fn a_parser_of_another_file() {
        let scripts = [
            "from transformers import HfArgumentParser as Parser\nimport options as O\nmine = Parser((O.Args,))\n",
            "@dataclass\nclass Args:\n    batch_size: int = 8\n@dataclass\nclass Model:\n    width: int = 4\n",
        ];
        let scripts = scripts.map(|text| Config::parse_as(Syntax::Python, "t.py", text).unwrap());
        let found: Vec<_> = declarations_of(&scripts).into_iter().map(|(_, it)| it.flags.join(" ")).collect();
        assert_eq!(found, ["--batch_size"]);
        assert_eq!(declarations(&scripts[1]), []);
    }

    #[test]
    fn fields_of_what_a_parser_is_made_of() {
        let class = "@dataclass\nclass Args:\n    \"\"\"a\"\"\"\n    batch_size: int = 8  # n\n    steps: int = field(default=2)\n    \
                     data: str\n    names = 3\n    def f(self, n: int = 3): pass\n@dataclass\nclass Model:\n    width: int = 4\n";
        let fields = |spelled: &'static str| {
            [(spelled, "batch_size", Some("8")), ("--steps", "steps", Some("2")), ("--data", "data", None)]
        };
        check(&format!("{class}HfArgumentParser((Args, Other))\n"), &fields("--batch_size"));
        check(&format!("{class}args = tyro.cli(Args)\n"), &fields("--batch-size"));
        check(&class.replace("Args:", "Args(Tap):"), &fields("--batch_size"));
        check(class, &[]);
    }
}
