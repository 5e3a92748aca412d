//! Scripts with their syntax trees, and pieces of them.

use std::collections::HashMap;
use std::ops::Range;

use lowtide_config::python::{last_name, tree};
use lowtide_config::{Config, Syntax};
use tree_sitter::{Node, Tree, TreeCursor};

use crate::answer::place;
use crate::nodes::children;

/// Scripts with their syntax trees.
pub(crate) struct Code<'a> {
    files: Vec<File<'a>>,
}

struct File<'a> {
    config: &'a Config,
    /// Without the mark that editors on Windows write first.
    text: &'a str,
    tree: Tree,
}

/// A node of a script's syntax tree.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'c> {
    node: Node<'c>,
    file: &'c File<'c>,
}

/// A function that the scripts define.
pub(crate) struct Function<'c> {
    /// What it calls its arguments, `self` left out.
    pub(crate) parameters: Vec<&'c str>,
    pub(crate) body: Piece<'c>,
}

impl<'c> Function<'c> {
    /// What it returns, each time.
    pub(crate) fn returned(&self) -> Vec<Piece<'c>> {
        let (mut returned, mut stack) = (Vec::new(), vec![self.body]);
        while let Some(piece) = stack.pop() {
            match piece.kind() {
                "function_definition" | "class_definition" | "lambda" => {}
                "return_statement" => returned.extend(piece.children()),
                _ => stack.extend(piece.children()),
            }
        }
        returned
    }
}

/// The functions of scripts by their names.
pub(crate) type Functions<'c> = HashMap<&'c str, Vec<Function<'c>>>;

impl<'a> Code<'a> {
    /// Reads the scripts among configurations.
    pub(crate) fn read(configs: impl IntoIterator<Item = &'a Config>) -> Self {
        let scripts = configs.into_iter().filter(|config| config.syntax == Syntax::Python);
        let file = |config: &'a Config| {
            let text = config.text.strip_prefix('\u{feff}').unwrap_or(&config.text);
            Some(File { config, text, tree: tree(text)? })
        };
        Self { files: scripts.filter_map(file).collect() }
    }

    /// All pieces, in the order of the texts.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        self.files.iter().flat_map(|file| Piece { node: file.tree.root_node(), file }.all())
    }

    /// What each piece stands in.
    pub(crate) fn parents(&self) -> Parents<'_> {
        let inner = self.pieces().flat_map(|piece| piece.children().into_iter().map(move |child| (child.id(), piece)));
        Parents(inner.collect())
    }

    /// Whether a name stands anywhere in the scripts.
    pub(crate) fn has_word(&self, name: &str) -> bool {
        self.files.iter().any(|file| has_word(file.text, name))
    }

    pub(crate) fn functions(&self) -> Functions<'_> {
        let mut functions: Functions<'_> = HashMap::new();
        for piece in self.pieces().filter(|piece| piece.kind() == "function_definition") {
            let (Some(name), Some(parameters)) = (piece.field("name"), piece.field("parameters")) else { continue };
            let names = parameters.children().into_iter().map(Piece::parameter);
            let parameters = names.filter(|name| !matches!(*name, "self" | "cls" | "*" | "/" | "")).collect();
            let Some(body) = piece.field("body") else { continue };
            functions.entry(name.text()).or_default().push(Function { parameters, body });
        }
        functions
    }
}

/// The next node that has a name, in the order of the text.
fn following<'t>(cursor: &mut TreeCursor<'t>) -> Option<Node<'t>> {
    loop {
        let is_inside = cursor.goto_first_child();
        while !is_inside && !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return None;
            }
        }
        if cursor.node().is_named() {
            return Some(cursor.node());
        }
    }
}

/// How far out it is looked what a piece stands in.
const OUTERMOST: usize = 200;

/// What each piece stands in; the tree itself would look for it from its root each time.
pub(crate) struct Parents<'c>(HashMap<PieceId, Piece<'c>>);

impl<'c> Parents<'c> {
    /// What a piece stands in, from the inside to the outside.
    pub(crate) fn of(&self, piece: Piece<'c>) -> impl Iterator<Item = Piece<'c>> {
        std::iter::successors(self.0.get(&piece.id()).copied(), |piece| self.0.get(&piece.id()).copied())
            .take(OUTERMOST)
    }
}

/// Which piece it is, among those of all scripts.
pub(crate) type PieceId = (*const u8, usize);

impl<'c> Piece<'c> {
    pub(crate) fn kind(self) -> &'c str {
        self.node.kind()
    }

    pub(crate) fn text(self) -> &'c str {
        &self.file.text[self.node.byte_range()]
    }

    /// The text of a part; nothing where there is none.
    pub(crate) fn part(self, name: &str) -> &'c str {
        self.field(name).map_or("", Piece::text)
    }

    pub(crate) fn field(self, name: &str) -> Option<Self> {
        Some(Self { node: self.node.child_by_field_name(name)?, ..self })
    }

    pub(crate) fn children(self) -> Vec<Self> {
        children(self.node).into_iter().map(|node| Self { node, ..self }).collect()
    }

    /// It and all within it, in the order of the text.
    pub(crate) fn all(self) -> impl Iterator<Item = Self> {
        let mut cursor = self.node.walk();
        let mut next = Some(self.node);
        std::iter::from_fn(move || {
            let node = next?;
            next = following(&mut cursor);
            Some(Self { node, ..self })
        })
    }

    /// What it is made of, where only nodes of some kinds and brackets are looked into.
    pub(crate) fn parts_of(self, kinds: &'static [&'static str]) -> impl Iterator<Item = Self> {
        self.parts(move |piece| kinds.contains(&piece.kind()))
    }

    /// What it is a product of; itself where it is none.
    pub(crate) fn factors(self) -> impl Iterator<Item = Self> {
        self.parts(|piece| piece.kind() == "binary_operator" && piece.part("operator") == "*")
    }

    fn parts(self, is_whole: impl Fn(Self) -> bool) -> impl Iterator<Item = Self> {
        let mut stack = vec![self];
        std::iter::from_fn(move || {
            let mut piece = stack.pop()?;
            while piece.kind() == "parenthesized_expression" || is_whole(piece) {
                stack.extend(piece.children().into_iter().rev());
                piece = stack.pop()?;
            }
            Some(piece)
        })
    }

    /// Where it stands in its text.
    pub(crate) fn range(self) -> Range<usize> {
        self.node.byte_range()
    }

    /// Which piece it is, among those of all scripts.
    pub(crate) fn id(self) -> PieceId {
        (self.file.text.as_ptr(), self.node.id())
    }

    pub(crate) fn contains(self, other: Self) -> bool {
        let (own, range) = (self.node.byte_range(), other.node.byte_range());
        self.file.text.as_ptr() == other.file.text.as_ptr() && own.start <= range.start && range.end <= own.end
    }

    /// The name of the function that a call calls, without what it is a method of.
    pub(crate) fn callee(self) -> &'c str {
        if self.kind() == "call" { last_name(self.part("function")) } else { "" }
    }

    /// What a call calls a method of.
    pub(crate) fn receiver(self) -> Option<Self> {
        self.field("function").filter(|_| self.kind() == "call")?.field("object")
    }

    /// The arguments of a call.
    pub(crate) fn arguments(self) -> Vec<Self> {
        self.field("arguments").filter(|_| self.kind() == "call").map(Self::children).unwrap_or_default()
    }

    /// The value of an argument, without its name.
    pub(crate) fn value(self) -> Self {
        let named = self.field("value").filter(|_| self.kind() == "keyword_argument");
        named.unwrap_or(self)
    }

    /// What a value is called: the last part of a dotted name, or an item's: `args.steps`, `config["steps"]`.
    pub(crate) fn name(self) -> Option<&'c str> {
        match self.kind() {
            "identifier" => Some(self.text()),
            "attribute" => Some(self.part("attribute")),
            "subscript" => Some(self.part("subscript").trim_matches(['"', '\''])),
            _ => None,
        }
    }

    /// What a function calls a parameter.
    pub(crate) fn parameter(self) -> &'c str {
        self.text().trim_start_matches('*').split([':', '=']).next().unwrap_or_default().trim()
    }

    /// Its line in the script, in words.
    pub(crate) fn place(self) -> String {
        let mark = self.file.config.text.len() - self.file.text.len();
        place(self.file.config, self.node.start_byte() + mark)
    }
}

/// Whether a name stands in a text.
pub(crate) fn has_word(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
}

/// The names in a value, without those of what they are parts of: of `args.steps` only the last.
pub(crate) fn names<'c>(piece: Piece<'c>) -> impl Iterator<Item = &'c str> {
    let mut stack = vec![piece];
    std::iter::from_fn(move || {
        while let Some(piece) = stack.pop() {
            match piece.name() {
                Some(name) => return Some(name),
                None if piece.kind() == "call" => {
                    stack.extend(piece.arguments().into_iter().map(Piece::value));
                    stack.extend(piece.receiver().or(piece.field("function")));
                }
                None => stack.extend(piece.children()),
            }
        }
        None
    })
}
