//! Python files, by tree-sitter's grammar: every place that sets a name, in the order of the text.
//!
//! Nothing here recurses, so that no nesting is too deep for the stack, and what the parser could not make sense of is
//! not passed over: the names in it are gaps.

use std::collections::HashSet;

use tree_sitter::{Node, TreeCursor};

use super::context::{Arguments, Context, Region};
use super::tree::{is_name, last_name, tree};
use crate::{Gap, GapKind, Scope, Setting, unquoted};

/// Settings and gaps of a file.
const MOST: usize = 100_000;
/// Dictionaries within each other.
const DEEPEST: usize = 64;

/// Every setting and everything that is set without a plain value; the line and the problem where the text is larger or
/// deeper than any configuration.
pub(crate) fn settings(text: &str) -> Result<(Vec<Setting>, Vec<Gap>), (usize, String)> {
    let too_much = |line: usize| (line, "it is larger or deeper than a configuration".to_owned());
    let tree = tree(text).ok_or_else(|| too_much(1))?;
    let mut reader = Reader {
        text,
        cursor: tree.walk(),
        globals: HashSet::new(),
        groups: Vec::new(),
        around: Vec::new(),
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

struct Reader<'a> {
    text: &'a str,
    cursor: TreeCursor<'a>,
    /// The names that some function so far declares to be the file's.
    globals: HashSet<&'a str>,
    /// The keys that lead to each dictionary.
    groups: Vec<Vec<String>>,
    /// The names around each call that has arguments.
    around: Vec<Vec<String>>,
    settings: Vec<Setting>,
    gaps: Vec<Gap>,
}

type Stack<'a> = Vec<(Node<'a>, Context<'a>)>;

impl<'a> Reader<'a> {
    /// Reads a node and puts those within it on the stack that are to be read too.
    fn visit(&mut self, node: Node<'a>, context: Context<'a>, stack: &mut Stack<'a>) {
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
            "call" => return self.call(node, context, stack),
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

    fn descend(&mut self, node: Node<'a>, context: Context<'a>, stack: &mut Stack<'a>) {
        stack.extend(node.named_children(&mut self.cursor).map(|child| (child, context)));
    }

    /// A function or a class, whose body is of its own.
    fn definition(&mut self, node: Node<'a>, context: Context<'a>, region: Region, stack: &mut Stack<'a>) {
        let body = node.child_by_field_name("body");
        let owner = node.child_by_field_name("name").map(|name| self.slice(name));
        let context = Context { owner, ..context };
        let children = node.named_children(&mut self.cursor);
        stack.extend(
            children
                .filter(|child| child.kind() != "identifier")
                .map(|child| (child, if Some(child) == body { context.in_region(region) } else { context })),
        );
    }

    fn assignment(&mut self, node: Node<'a>, context: Context<'a>, stack: &mut Stack<'a>) {
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
            (Some(name), Region::File) => {
                self.setting(vec![name.to_owned()], right, node, (Scope::File, Context::FILE));
            }
            (Some(name), Region::Class) => self.field(name, right, node, context),
            (Some(name), Region::Branch) if self.passes_on(right, name) => {
                self.gap(vec![name.to_owned()], node, GapKind::Alias, Scope::File);
            }
            _ => self.targets(left, context.region, node, GapKind::Computed),
        }
        inner.group = name.and_then(|name| self.group(right, None, name));
        inner.target = matches!(left.kind(), "identifier" | "attribute").then(|| last_name(self.slice(left)));
        // An item that is given a value has a name too: `cfg["steps"] = 4`.
        stack.extend([(left, inside), (right, inner)]);
    }

    /// A field of a class; `field(default=4)` has its value as an argument.
    fn field(&mut self, name: &str, value: Node<'a>, whole: Node<'a>, context: Context<'a>) {
        let function = value.child_by_field_name("function").filter(|_| value.kind() == "call");
        let is_field = function.is_some_and(|function| matches!(last_name(self.slice(function)), "field" | "Field"));
        match is_field.then(|| self.keyword(value, "default")) {
            Some(Some(default)) => self.setting(vec![name.to_owned()], default, whole, (Scope::Class, context)),
            Some(None) => self.gap(vec![name.to_owned()], whole, GapKind::Computed, Scope::Class),
            None => self.setting(vec![name.to_owned()], value, whole, (Scope::Class, context)),
        }
    }

    fn call(&mut self, node: Node<'a>, context: Context<'a>, stack: &mut Stack<'a>) {
        let inside = context.inside();
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
        let around = Some(self.around(node, context));
        if function.ends_with("DataLoader")
            && let Some(batch) = self.positional(node, 1)
        {
            // PyTorch's, and whoever is called after it: `DataLoader(dataset, 32)`.
            let within = Context { owner: Some(function), around, ..inside };
            self.setting(vec!["batch_size".to_owned()], batch, node, (Scope::Call, within));
        }
        let children = node.named_children(&mut self.cursor);
        stack.extend(children.map(|child| {
            let is_list = child.kind() == "argument_list";
            (child, if is_list { Context { arguments, owner: Some(function), around, ..inside } } else { inside })
        }));
    }

    /// The names around a call that tell what it is for.
    fn around(&mut self, call: Node<'a>, context: Context<'a>) -> usize {
        let function = context.owner.filter(|_| context.region == Region::Function);
        let first = self.positional(call, 0).filter(|first| matches!(first.kind(), "identifier" | "attribute"));
        let first = first.map(|first| last_name(self.slice(first)));
        self.around.push([context.target, function, first].into_iter().flatten().map(str::to_owned).collect());
        self.around.len() - 1
    }

    fn positional(&mut self, call: Node<'a>, index: usize) -> Option<Node<'a>> {
        let list = call.child_by_field_name("arguments").filter(|list| list.kind() == "argument_list")?;
        let is_positional = |node: &Node<'a>| !matches!(node.kind(), "keyword_argument" | "comment");
        list.named_children(&mut self.cursor).filter(is_positional).nth(index)
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
                Some(default) => self.setting(vec![name], default, call, (Scope::Option, Context::FILE)),
                None => self.gap(vec![name], call, GapKind::Computed, Scope::Option),
            }
        }
    }

    /// `steps=4` in a call or among the parameters of a function.
    fn argument(&mut self, node: Node<'a>, context: Context<'a>, stack: &mut Stack<'a>) {
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
            self.setting(vec![name.to_owned()], value, node, (scope, context));
        }
        let group = self.group(value, None, name);
        stack.push((value, Context { group, ..context.inside() }));
    }

    /// `"steps": 4` in a dictionary.
    fn entry(&mut self, node: Node<'a>, context: Context<'a>, stack: &mut Stack<'a>) {
        let (key, value) = (node.child_by_field_name("key"), node.child_by_field_name("value"));
        let (Some(key), Some(value)) = (key.filter(|key| key.kind() == "string"), value) else {
            return self.descend(node, context.inside(), stack);
        };
        let key = unquoted(self.slice(key));
        if value.kind() != "dictionary" {
            self.setting(self.path(context.group, key), value, node, (Scope::Entry, Context::FILE));
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
    fn setting(&mut self, path: Vec<String>, value: Node<'a>, whole: Node<'a>, (scope, context): (Scope, Context<'a>)) {
        let text = self.slice(value);
        if text.contains('\n') || whole.has_error() {
            return self.gap(path, whole, GapKind::Computed, scope);
        }
        let plain = if value.kind() == "string" { unquoted(text) } else { text };
        let owner = context.owner.map(str::to_owned);
        let around = context.around.map(|around| self.around[around].clone()).unwrap_or_default();
        self.settings.push(Setting { scope, owner, around, ..Setting::new(path, value.byte_range(), plain) });
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
