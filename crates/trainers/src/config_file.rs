//! Where a script gives its options the values of a file, so that the defaults that it declares need not count.

use lowtide_config::{Config, Syntax};

use crate::accumulation::unset;
use crate::code::{Code, Given, Parents, Piece, Way, names};

/// What parses a command line.
const PARSES: [&str; 3] = ["parse_args", "parse_known_args", "parse_intermixed_args"];
/// How often a value is followed to the option that names its file.
const FARTHEST: usize = 3;

/// A place where options are given values that do not stand in the script.
pub(crate) struct Overriding {
    /// The place in words.
    pub(crate) at: String,
    /// What stands there.
    pub(crate) text: String,
    /// Whether it also overrides what is typed.
    pub(crate) wins: bool,
}

/// Where scripts give options the values of something that is not read here; what is read has its own say.
pub(crate) fn overriding(configs: &[Config]) -> Vec<Overriding> {
    // Most scripts do nothing of the kind, and need no closer look.
    let has = |config: &Config| SIGNS.iter().any(|sign| config.text.contains(sign));
    if !configs.iter().any(|config| config.syntax == Syntax::Python && has(config)) {
        return Vec::new();
    }
    let code = Code::read(configs);
    let given = code.given();
    let all: Vec<&Config> = configs.iter().collect();
    let search = Search { configs, unset: unset(&all), given: &given, parents: code.parents() };
    code.pieces().filter_map(|piece| search.overriding(piece)).collect()
}

/// Without one of these in it, a script overrides nothing.
const SIGNS: [&str; 6] = ["set_defaults", "setattr", ".update(", "default_config_files", "__dict__", "vars("];

struct Search<'s, 'c> {
    configs: &'s [Config],
    /// Options without a value.
    unset: Vec<String>,
    given: &'s [Given<'c>],
    parents: Parents<'c>,
}

impl<'c> Search<'_, 'c> {
    fn overriding(&self, piece: Piece<'c>) -> Option<Overriding> {
        let (values, wins) = self.values(piece)?;
        if self.is_off(piece, values) || self.is_read(values) {
            return None;
        }
        let text = piece.text().lines().next().unwrap_or_default().to_owned();
        Some(Overriding { at: piece.place(), text, wins })
    }

    /// The values that a piece gives options, and whether they override what is typed.
    fn values(&self, piece: Piece<'c>) -> Option<(Piece<'c>, bool)> {
        let splat = || piece.arguments().into_iter().find(|argument| argument.kind() == "dictionary_splat");
        match (piece.kind(), piece.callee()) {
            ("call", "set_defaults") => Some((splat()?, false)),
            ("keyword_argument", _) if piece.part("name") == "default_config_files" => Some((piece.value(), false)),
            ("call", "update") if self.is_namespace(piece.receiver()?) => Some((*piece.arguments().first()?, true)),
            ("call", "setattr") => {
                let arguments = piece.arguments();
                let [of, name, value] = arguments.as_slice() else { return None };
                let is_it = name.kind() != "string" && self.is_parsed(*of);
                // `for name, value in vars(args).items()` goes through the options themselves.
                let outer = self.parents.of(piece).find(|outer| outer.kind() == "for_statement");
                let source = outer.and_then(|outer| outer.field("right"));
                let is_own = source.is_some_and(|source| source.all().any(|inner| self.is_namespace(inner)));
                (is_it && !is_own).then(|| (source.unwrap_or(*value), true))
            }
            ("assignment", _) => {
                let left = piece.field("left").filter(|left| left.kind() == "subscript")?;
                let is_literal = left.field("subscript").is_some_and(|name| name.kind() == "string");
                let is_it = !is_literal && self.is_namespace(left.field("value")?);
                is_it.then(|| piece.field("right")).flatten().map(|value| (value, true))
            }
            _ => None,
        }
    }

    /// Whether something is what a parser of the command line gave.
    fn is_parsed(&self, piece: Piece<'c>) -> bool {
        let Some(name) = piece.name() else { return false };
        let is_given =
            |it: &Given<'c>| it.name == name && it.way == Way::Assigned && PARSES.contains(&it.value.callee());
        name == "args" || self.given.iter().any(is_given)
    }

    /// `vars(args)`, `args.__dict__`
    fn is_namespace(&self, piece: Piece<'c>) -> bool {
        match piece.kind() {
            "call" if piece.callee() == "vars" => piece.arguments().first().is_some_and(|of| self.is_parsed(*of)),
            "attribute" if piece.name() == Some("__dict__") => {
                piece.field("object").is_some_and(|of| self.is_parsed(of))
            }
            _ => false,
        }
    }

    /// Whether it is done only for an option that has no value here.
    fn is_off(&self, piece: Piece<'c>, values: Piece<'c>) -> bool {
        let outer = self.parents.of(piece).take_while(|outer| outer.kind() != "function_definition");
        let conditions =
            outer.filter(|outer| outer.kind() == "if_statement").filter_map(|outer| outer.field("condition"));
        let mut needed = conditions.flat_map(names).chain(self.sources(values));
        needed.any(|name| self.unset.iter().any(|it| it == name))
    }

    /// Whether the values are those of a file that the command line names and that is read.
    fn is_read(&self, values: Piece<'c>) -> bool {
        let is_read = |file: &str| {
            let is_it = |config: &&Config| matches!(config.syntax, Syntax::Yaml | Syntax::Json) && config.name == file;
            self.configs.iter().find(is_it).is_some_and(|config| config.gaps.iter().all(|gap| !gap.path.is_empty()))
        };
        let lines = self.configs.iter().filter(|config| config.syntax == Syntax::Command);
        let typed: Vec<_> = lines.flat_map(|line| &line.settings).collect();
        self.sources(values)
            .into_iter()
            .any(|name| typed.iter().any(|it| it.path.last().is_some_and(|last| last == name) && is_read(&it.value)))
    }

    /// The names that values come from.
    fn sources(&self, values: Piece<'c>) -> Vec<&'c str> {
        let (mut found, mut pieces): (Vec<&str>, _) = (Vec::new(), vec![values]);
        for _ in 0..FARTHEST {
            let new = pieces.into_iter().flat_map(names);
            let new: Vec<&str> = new.filter(|name| !found.contains(name)).collect();
            pieces = self.given.iter().filter(|it| new.contains(&it.name)).map(|it| it.value).collect();
            found.extend(new);
        }
        found
    }
}
