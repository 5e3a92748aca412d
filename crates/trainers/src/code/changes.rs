//! What the names of scripts are given, and what changes them in their place, in each function by itself.

use std::collections::HashMap;

use lowtide_config::python::last_name;

use super::given::{Given, Way};
use super::piece::{Code, Parents, Piece, PieceId};

/// What changes a list in its place.
const ADDS: [&str; 2] = ["append", "extend"];
/// What runs only under a condition.
const CONDITIONAL: [&str; 4] = ["if_statement", "except_clause", "match_statement", "case_clause"];

/// A value that a name is given, or what changes it.
#[derive(Clone, Copy)]
pub(crate) enum Change<'c> {
    /// `loss = value`, also by a loop.
    Value(Piece<'c>),
    /// `losses["a"] = value`
    Item(Piece<'c>),
    /// `loss /= steps`
    Augmented(Piece<'c>),
    /// `loss.div_(steps)`, `losses.append(value)`
    Method(Piece<'c>),
}

impl<'c> Change<'c> {
    pub(crate) fn piece(self) -> Piece<'c> {
        match self {
            Self::Value(piece) | Self::Item(piece) | Self::Augmented(piece) | Self::Method(piece) => piece,
        }
    }
}

/// The changes of all names, in the order of the texts.
pub(crate) struct Changes<'c> {
    parents: Parents<'c>,
    by_scope: HashMap<(Scope, &'c str), Vec<Change<'c>>>,
    by_name: HashMap<&'c str, Vec<Change<'c>>>,
    /// What functions of the scripts are given for a parameter of a name.
    arguments: HashMap<&'c str, Vec<Piece<'c>>>,
}

/// A function, or what stands in none of a file.
pub(crate) type Scope = PieceId;

impl<'c> Changes<'c> {
    pub(crate) fn read(code: &'c Code<'_>, given: &[Given<'c>]) -> Self {
        let mut changes = Self {
            parents: code.parents(),
            by_scope: HashMap::new(),
            by_name: HashMap::new(),
            arguments: HashMap::new(),
        };
        for Given { name, value, way } in given {
            match way {
                Way::Assigned | Way::Element => changes.push(name, Change::Value(*value)),
                Way::Argument => changes.arguments.entry(name).or_default().push(*value),
                // A function of somebody else's has arguments of its own.
                Way::Named => {}
            }
        }
        for piece in code.pieces() {
            let (changed, change) = match piece.kind() {
                "augmented_assignment" => (piece.field("left"), Change::Augmented(piece)),
                "assignment" => match piece.field("left").filter(|left| left.kind() == "subscript") {
                    Some(left) => (left.field("value"), Change::Item(piece.field("right").unwrap_or(piece))),
                    None => continue,
                },
                "call" if piece.callee().ends_with('_') || ADDS.contains(&piece.callee()) => {
                    (piece.receiver(), Change::Method(piece))
                }
                _ => continue,
            };
            if let Some(name) = changed.and_then(target) {
                changes.push(name, change);
            }
        }
        for all in changes.by_scope.values_mut() {
            all.sort_by_key(|change| change.piece().range().start);
        }
        changes
    }

    fn push(&mut self, name: &'c str, change: Change<'c>) {
        self.by_scope.entry((self.scope(change.piece()), name)).or_default().push(change);
        self.by_name.entry(name).or_default().push(change);
    }

    /// The function that a piece stands in.
    pub(crate) fn scope(&self, piece: Piece<'c>) -> Scope {
        self.function(piece).map_or(module(piece), Piece::id)
    }

    fn function(&self, piece: Piece<'c>) -> Option<Piece<'c>> {
        self.parents.of(piece).find(|outer| outer.kind() == "function_definition")
    }

    /// The functions around a piece, the innermost first, and the module.
    pub(crate) fn scopes(&self, piece: Piece<'c>) -> Vec<Scope> {
        let functions = self.parents.of(piece).filter(|outer| outer.kind() == "function_definition");
        functions.map(Piece::id).chain([module(piece)]).collect()
    }

    /// What a name goes through in a function.
    pub(crate) fn within(&self, scope: Scope, name: &'c str) -> &[Change<'c>] {
        self.by_scope.get(&(scope, name)).map(Vec::as_slice).unwrap_or_default()
    }

    /// What a name goes through anywhere.
    pub(crate) fn anywhere(&self, name: &str) -> &[Change<'c>] {
        self.by_name.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// What calls give the function around a piece for a parameter of a name; `None` where it has none.
    pub(crate) fn arguments(&self, piece: Piece<'c>, name: &str) -> Option<&[Piece<'c>]> {
        let parameters = self.function(piece)?.field("parameters")?.children();
        let is_its = parameters.into_iter().any(|parameter| parameter.parameter() == name);
        is_its.then(|| self.arguments.get(name).map(Vec::as_slice).unwrap_or_default())
    }

    /// Whether a change is made wherever the script gets to a later piece.
    pub(crate) fn is_certain(&self, change: Piece<'c>, later: Piece<'c>) -> bool {
        let mut outer = self.parents.of(change).take_while(|outer| outer.kind() != "function_definition");
        !outer.any(|outer| CONDITIONAL.contains(&outer.kind()) && !outer.contains(later))
    }

    /// Whether only one of two pieces runs: they stand in two branches of a condition.
    pub(crate) fn are_exclusive(&self, one: Piece<'c>, other: Piece<'c>) -> bool {
        let branches = self.parents.of(one).filter(|outer| outer.kind() == "if_statement" && outer.contains(other));
        let branch_of = |statement: Piece<'c>, piece: Piece<'c>| {
            statement.children().into_iter().find(|branch| branch.contains(piece)).map(Piece::id)
        };
        branches.into_iter().any(|statement| branch_of(statement, one) != branch_of(statement, other))
    }

    /// Whether two pieces stand in one function, and in one loop of it where the first stands in any.
    pub(crate) fn are_together(&self, one: Piece<'c>, other: Piece<'c>) -> bool {
        let of_it = self.parents.of(one).take_while(|outer| outer.kind() != "function_definition");
        let mut loops = of_it.filter(|outer| matches!(outer.kind(), "for_statement" | "while_statement"));
        let innermost = loops.next();
        self.scope(one) == self.scope(other)
            && innermost.is_none_or(|it| it.contains(other) || loops.any(|it| it.contains(other)))
    }
}

/// What stands in no function of a file.
fn module(piece: Piece<'_>) -> Scope {
    (piece.id().0, usize::MAX)
}

/// The name of what is changed in its place; of `p.grad.data` that of the gradient.
fn target<'c>(piece: Piece<'c>) -> Option<&'c str> {
    match piece.kind() {
        "call" => piece.receiver().and_then(Piece::name),
        "subscript" => piece.field("value").and_then(Piece::name),
        _ if piece.text().ends_with(".grad.data") => Some(last_name(piece.text().strip_suffix(".data")?)),
        _ => piece.name(),
    }
}
