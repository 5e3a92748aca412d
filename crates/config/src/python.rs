//! Python files, by tree-sitter's grammar: every place that sets a name, in the order of the text.
//!
//! Nothing here recurses, so that no nesting is too deep for the stack, and what the parser could not make sense of is
//! not passed over: the names in it are gaps.

use std::collections::HashSet;
use std::ops::ControlFlow;

use tree_sitter::{Node, ParseOptions, Parser, Tree, TreeCursor};

use crate::{Gap, GapKind, Scope, Setting, unquoted};

/// Far above any script that people write by hand; it takes a second.
const LARGEST: usize = 1 << 20;
/// Settings and gaps of a file.
const MOST: usize = 100_000;
/// Dictionaries within each other.
const DEEPEST: usize = 64;
/// How often the parser may say that it goes on: for so many bytes once, and so often besides. A script takes one for
/// fifty bytes, and more where the parser looks for a way past errors.
const PATIENCE: (usize, usize) = (8, 10_000);

/// Every setting and everything that is set without a plain value; the line and the problem where the text is larger or
/// deeper than any configuration.
pub(crate) fn settings(text: &str) -> Result<(Vec<Setting>, Vec<Gap>), (usize, String)> {
    let too_much = |line: usize| (line, "it is larger or deeper than a configuration".to_owned());
    let tree = parsed(text).ok_or_else(|| too_much(1))?;
    let mut reader = Reader {
        text,
        cursor: tree.walk(),
        globals: HashSet::new(),
        groups: Vec::new(),
        settings: Vec::new(),
        gaps: Vec::new(),
    };
    let mut stack = vec![(tree.root_node(), Context::FILE)];
    while let Some((node, context)) = stack.pop() {
        let first = stack.len();
        reader.visit(node, context, &mut stack);
        stack[first..].reverse();
        let depth = context.group.map_or(0, |group| reader.groups[group].len());
        if reader.settings.len() + reader.gaps.len() > MOST || depth > DEEPEST {
            return Err(too_much(node.start_position().row + 1));
        }
    }
    Ok((reader.settings, reader.gaps))
}

fn parsed(text: &str) -> Option<Tree> {
    if text.len() > LARGEST {
        return None;
    }
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_python::LANGUAGE.into()).expect("the grammar is of the parser's version");
    let mut left = text.len() / PATIENCE.0 + PATIENCE.1;
    let mut patience = |_: &_| {
        left = left.saturating_sub(1);
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let options = ParseOptions::new().progress_callback(&mut patience);
    parser.parse_with_options(&mut |at, _| &text.as_bytes()[at.min(text.len())..], None, Some(options))
}

/// What a piece of code belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Region {
    /// It runs whenever the file does.
    File,
    /// It runs with the file or not: under a condition, in a loop.
    Branch,
    Class,
    Function,
}

/// What the arguments of a call are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arguments {
    Plain,
    /// Defaults of options by their names: `set_defaults(steps=4)`.
    Defaults,
    /// What an option or a field is made of, and no settings: `add_argument("--steps", type=int)`.
    Parts,
}

#[derive(Clone, Copy)]
struct Context {
    region: Region,
    arguments: Arguments,
    /// What a dictionary is called that stands here.
    group: Option<usize>,
    /// Whether every name is to be taken for one that is set.
    is_obscure: bool,
    /// Whether it is the value of an assignment: `a = b = 4`.
    is_chained: bool,
}

impl Context {
    const FILE: Self =
        Self { region: Region::File, arguments: Arguments::Plain, group: None, is_obscure: false, is_chained: false };

    /// Within something else, in the same region.
    fn inside(self) -> Self {
        Self { region: self.region, is_obscure: self.is_obscure, ..Self::FILE }
    }

    fn in_region(self, region: Region) -> Self {
        Self { region, ..self.inside() }
    }

    /// Where code may be run or not.
    fn in_branch(self) -> Self {
        self.in_region(if self.region == Region::Function { Region::Function } else { Region::Branch })
    }
}

struct Reader<'a> {
    text: &'a str,
    cursor: TreeCursor<'a>,
    /// The names that some function so far declares to be the file's.
    globals: HashSet<&'a str>,
    /// The keys that lead to each dictionary.
    groups: Vec<Vec<String>>,
    settings: Vec<Setting>,
    gaps: Vec<Gap>,
}

type Stack<'a> = Vec<(Node<'a>, Context)>;

impl<'a> Reader<'a> {
    /// Reads a node and puts those within it on the stack that are to be read too.
    fn visit(&mut self, node: Node<'a>, context: Context, stack: &mut Stack<'a>) {
        let inside = context.inside();
        match node.kind() {
            "comment" | "nonlocal_statement" => return,
            // It stands before what it is about.
            "global_statement" => {
                let names = node.named_children(&mut self.cursor).map(|name| &self.text[name.byte_range()]);
                return self.globals.extend(names);
            }
            "ERROR" | "case_pattern" => return self.descend(node, Context { is_obscure: true, ..inside }, stack),
            "identifier" if context.is_obscure => {
                let scope = self.scope_of(self.slice(node), context.region);
                self.gap(vec![self.slice(node).to_owned()], node, GapKind::Computed, scope);
            }
            "string" => {
                let option = unquoted(self.slice(node)).strip_prefix("--").unwrap_or_default();
                let name = option.split('=').next().unwrap_or_default();
                if context.arguments != Arguments::Parts && is_name(&name.replace('-', "_")) {
                    self.gap(vec![name.replace('-', "_")], node, GapKind::Computed, Scope::Member);
                }
            }
            "assignment" => return self.assignment(node, context, stack),
            "augmented_assignment" => self.gaps_of(node, "left", GapKind::Changed, context.region),
            "named_expression" => self.gaps_of(node, "name", GapKind::Computed, context.region),
            "delete_statement" | "as_pattern_target" => {
                self.targets(node, context.region, node, GapKind::Computed);
            }
            "import_statement" | "import_from_statement" => return self.import(node, context.region),
            "exec_statement" => self.gap(Vec::new(), node, GapKind::Anything, Scope::File),
            "call" => return self.call(node, inside, stack),
            "keyword_argument" | "default_parameter" | "typed_default_parameter" => {
                return self.argument(node, context, stack);
            }
            "pair" => return self.entry(node, context, stack),
            "dictionary" | "argument_list" => return self.descend(node, context, stack),
            "for_statement" => {
                let context = inside.in_branch();
                self.gaps_of(node, "left", GapKind::Computed, context.region);
                return self.descend(node, context, stack);
            }
            "if_statement" | "while_statement" | "try_statement" | "with_statement" | "match_statement" => {
                return self.descend(node, inside.in_branch(), stack);
            }
            "function_definition" => {
                self.gaps_of(node, "name", GapKind::Computed, context.region);
                return self.definition(node, inside, Region::Function, stack);
            }
            "class_definition" => return self.definition(node, inside, Region::Class, stack),
            _ => {}
        }
        self.descend(node, inside, stack);
    }

    fn descend(&mut self, node: Node<'a>, context: Context, stack: &mut Stack<'a>) {
        stack.extend(node.named_children(&mut self.cursor).map(|child| (child, context)));
    }

    /// A function or a class, whose body is of its own.
    fn definition(&mut self, node: Node<'a>, context: Context, region: Region, stack: &mut Stack<'a>) {
        let body = node.child_by_field_name("body");
        let children = node.named_children(&mut self.cursor);
        stack.extend(
            children
                .filter(|child| child.kind() != "identifier")
                .map(|child| (child, if Some(child) == body { context.in_region(region) } else { context })),
        );
    }

    fn assignment(&mut self, node: Node<'a>, context: Context, stack: &mut Stack<'a>) {
        let inside = context.inside();
        let (Some(left), Some(right)) = (node.child_by_field_name("left"), node.child_by_field_name("right")) else {
            return self.descend(node, inside, stack);
        };
        if node.has_error() {
            return self.descend(node, Context { is_obscure: true, ..inside }, stack);
        }
        let is_one_of_several = context.is_chained || matches!(right.kind(), "assignment" | "augmented_assignment");
        let name = (left.kind() == "identifier" && !is_one_of_several).then(|| self.slice(left));
        let mut inner = Context { is_chained: true, ..inside };
        match (name, context.region) {
            (Some(name), Region::File) => self.setting(vec![name.to_owned()], right, node, Scope::File),
            (Some(name), Region::Class) => self.field(name, right, node),
            (Some(name), Region::Branch) if self.passes_on(right, name) => {
                self.gap(vec![name.to_owned()], node, GapKind::Alias, Scope::File);
            }
            _ => self.targets(left, context.region, node, GapKind::Computed),
        }
        inner.group = name.and_then(|name| self.group(right, None, name));
        // An item that is given a value has a name too: `cfg["steps"] = 4`.
        stack.extend([(left, inside), (right, inner)]);
    }

    /// A field of a class; `field(default=4)` has its value as an argument.
    fn field(&mut self, name: &str, value: Node<'a>, whole: Node<'a>) {
        let function = value.child_by_field_name("function").filter(|_| value.kind() == "call");
        let is_field = function.is_some_and(|function| matches!(last_name(self.slice(function)), "field" | "Field"));
        match is_field.then(|| self.keyword(value, "default")) {
            Some(Some(default)) => self.setting(vec![name.to_owned()], default, whole, Scope::Class),
            Some(None) => self.gap(vec![name.to_owned()], whole, GapKind::Computed, Scope::Class),
            None => self.setting(vec![name.to_owned()], value, whole, Scope::Class),
        }
    }

    fn call(&mut self, node: Node<'a>, inside: Context, stack: &mut Stack<'a>) {
        let function = node.child_by_field_name("function").map_or("", |function| last_name(self.slice(function)));
        let arguments = match function {
            "exec" | "execfile" => {
                self.gap(Vec::new(), node, GapKind::Anything, Scope::File);
                Arguments::Plain
            }
            "setattr" => {
                if let Some(name) = self.strings(node).first() {
                    self.gap(vec![name.clone()], node, GapKind::Computed, Scope::Member);
                }
                Arguments::Plain
            }
            "set_defaults" => Arguments::Defaults,
            "field" | "Field" => Arguments::Parts,
            _ if function.ends_with("argument") || function.ends_with("ption") => {
                self.option(node);
                Arguments::Parts
            }
            _ => Arguments::Plain,
        };
        let children = node.named_children(&mut self.cursor);
        stack.extend(children.map(|child| {
            let is_list = child.kind() == "argument_list";
            (child, if is_list { Context { arguments, ..inside } } else { inside })
        }));
    }

    /// `add_argument("-b", "--batch-size", dest="batch", default=64)`, and the like of other libraries.
    fn option(&mut self, call: Node<'a>) {
        let dest = self.keyword(call, "dest").map(|dest| unquoted(self.slice(dest)).to_owned());
        let long = |word: String| Some(word.strip_prefix("--")?.replace('-', "_"));
        let names: Vec<String> =
            self.strings(call).into_iter().filter_map(long).chain(dest).filter(|name| is_name(name)).collect();
        let default = self.keyword(call, "default");
        for name in names {
            match default {
                Some(default) => self.setting(vec![name], default, call, Scope::Option),
                None => self.gap(vec![name], call, GapKind::Computed, Scope::Option),
            }
        }
    }

    /// `steps=4` in a call or among the parameters of a function.
    fn argument(&mut self, node: Node<'a>, context: Context, stack: &mut Stack<'a>) {
        let (name, value) = (node.child_by_field_name("name"), node.child_by_field_name("value"));
        let (Some(name), Some(value)) = (name, value) else { return self.descend(node, context.inside(), stack) };
        let name = self.slice(name);
        let scope = match context.arguments {
            _ if node.kind() != "keyword_argument" => Some(Scope::Parameter),
            Arguments::Plain => Some(Scope::Call),
            Arguments::Defaults => Some(Scope::Option),
            Arguments::Parts => None,
        };
        if let Some(scope) = scope.filter(|_| value.kind() != "dictionary") {
            self.setting(vec![name.to_owned()], value, node, scope);
        }
        let group = self.group(value, None, name);
        stack.push((value, Context { group, ..context.inside() }));
    }

    /// `"steps": 4` in a dictionary.
    fn entry(&mut self, node: Node<'a>, context: Context, stack: &mut Stack<'a>) {
        let (key, value) = (node.child_by_field_name("key"), node.child_by_field_name("value"));
        let (Some(key), Some(value)) = (key.filter(|key| key.kind() == "string"), value) else {
            return self.descend(node, context.inside(), stack);
        };
        let key = unquoted(self.slice(key));
        if value.kind() != "dictionary" {
            self.setting(self.path(context.group, key), value, node, Scope::Entry);
        }
        let group = self.group(value, context.group, key);
        stack.push((value, Context { group, ..context.inside() }));
    }

    fn import(&mut self, node: Node<'a>, region: Region) {
        let children: Vec<Node<'a>> = node.named_children(&mut self.cursor).collect();
        let module = node.child_by_field_name("module_name");
        for child in children.into_iter().filter(|child| Some(*child) != module) {
            match child.kind() {
                "wildcard_import" => self.gap(Vec::new(), node, GapKind::Anything, Scope::File),
                "aliased_import" => self.gaps_of(child, "alias", GapKind::Computed, region),
                _ => self.targets(child, region, node, GapKind::Computed),
            }
        }
    }

    /// Gaps for all that a part of a node sets.
    fn gaps_of(&mut self, node: Node<'a>, field: &str, kind: GapKind, region: Region) {
        if let Some(target) = node.child_by_field_name(field) {
            self.targets(target, region, node, kind);
        }
    }

    /// Gaps for every target within a node; `whole` is what sets them.
    fn targets(&mut self, node: Node<'a>, region: Region, whole: Node<'a>, kind: GapKind) {
        let mut stack = vec![node];
        while let Some(node) = stack.pop() {
            let member = match node.kind() {
                "identifier" => {
                    let name = self.slice(node);
                    self.gap(vec![name.to_owned()], whole, kind, self.scope_of(name, region));
                    continue;
                }
                "attribute" => node.child_by_field_name("attribute"),
                "subscript" => node.child_by_field_name("subscript").filter(|item| item.kind() == "string"),
                _ => {
                    stack.extend(node.named_children(&mut self.cursor));
                    continue;
                }
            };
            let name = member.map_or("", |member| unquoted(self.slice(member)));
            let value = whole.child_by_field_name("right");
            if is_name(name) && !value.is_some_and(|value| self.passes_on(value, name)) {
                self.gap(vec![name.to_owned()], whole, kind, Scope::Member);
            }
        }
    }

    /// Whose variable a name is that code of a region sets.
    fn scope_of(&self, name: &str, region: Region) -> Scope {
        match region {
            Region::Function if self.globals.contains(name) => Scope::Member,
            Region::Function => Scope::Local,
            Region::File | Region::Branch | Region::Class => Scope::File,
        }
    }

    /// A setting whose value is written on one line, or a gap; `whole` is what sets it.
    fn setting(&mut self, path: Vec<String>, value: Node<'a>, whole: Node<'a>, scope: Scope) {
        let text = self.slice(value);
        if text.contains('\n') || whole.has_error() {
            return self.gap(path, whole, GapKind::Computed, scope);
        }
        let plain = if value.kind() == "string" { unquoted(text) } else { text };
        self.settings.push(Setting { scope, ..Setting::new(path, value.byte_range(), plain) });
    }

    fn gap(&mut self, path: Vec<String>, node: Node<'a>, kind: GapKind, scope: Scope) {
        self.gaps.push(Gap::new(path, node.start_byte(), self.slice(node), kind, scope));
    }

    /// The value of an argument of a call, by its name.
    fn keyword(&mut self, call: Node<'a>, name: &str) -> Option<Node<'a>> {
        let list = call.child_by_field_name("arguments")?;
        let text = self.text;
        let is_it = |argument: &Node<'a>| {
            let named = argument.child_by_field_name("name").filter(|_| argument.kind() == "keyword_argument");
            named.is_some_and(|named| &text[named.byte_range()] == name)
        };
        list.named_children(&mut self.cursor).find(is_it)?.child_by_field_name("value")
    }

    /// The arguments of a call that are strings.
    fn strings(&mut self, call: Node<'a>) -> Vec<String> {
        let Some(list) = call.child_by_field_name("arguments") else { return Vec::new() };
        let strings = list.named_children(&mut self.cursor).filter(|node| node.kind() == "string");
        strings.map(|node| unquoted(&self.text[node.byte_range()]).to_owned()).collect()
    }

    /// Whether a value is only a name that ends with this one: `args.steps`.
    fn passes_on(&self, value: Node<'a>, name: &str) -> bool {
        matches!(value.kind(), "identifier" | "attribute") && last_name(self.slice(value)) == name
    }

    /// The keys that lead to something in a dictionary.
    fn path(&self, group: Option<usize>, key: &str) -> Vec<String> {
        let outer = group.map(|group| &*self.groups[group]).unwrap_or_default();
        outer.iter().cloned().chain([key.to_owned()]).collect()
    }

    /// What a value is called by that is a dictionary.
    fn group(&mut self, value: Node<'a>, outer: Option<usize>, key: &str) -> Option<usize> {
        (value.kind() == "dictionary").then(|| {
            let path = self.path(outer, key);
            self.groups.push(path);
            self.groups.len() - 1
        })
    }

    fn slice(&self, node: Node<'a>) -> &'a str {
        &self.text[node.byte_range()]
    }
}

/// The last part of a dotted name.
fn last_name(text: &str) -> &str {
    text.rsplit('.').next().unwrap_or(text).trim()
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_') && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::shown;

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
        gaps(
            "def f(x):\n    n, m = x.shape\n    for k in x: pass\n",
            &[computed("f"), local("m"), local("n"), local("k")],
        );
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
        for piece in
            ["(", "[", "{", "{'a':", "f(n=", "not ", "-", "a.", "lambda: ", "x = ", "if x:", "'", "a if b else "]
        {
            let _ = settings(&piece.repeat(if piece.len() == 1 { 100_000 } else { 10_000 }));
        }
        let blocks: String = (0..500).map(|depth| format!("{}if x:\n", " ".repeat(depth))).collect();
        let _ = settings(&blocks);
        let closed = format!("n = {}1{}\n", "(".repeat(10_000), ")".repeat(10_000));
        assert!(settings(&closed).is_ok());
    }
}
