//! When weights are updated: after so many micro-batches, where a counter has no remainder, or begins anew.

use std::collections::{HashMap, HashSet};

use lowtide_config::python::is_name;

use super::piece::{Code, Parents, Piece, PieceId};

/// What has a method `step` and is no optimizer, by a part of its name.
const NO_OPTIMIZERS: [&str; 6] = ["sched", "prof", "env", "bar", "writer", "log"];

/// What it depends on whether weights are updated: `(i + 1) % steps == 0`, `n == steps`.
pub(crate) struct Turn<'c> {
    /// What counts micro-batches.
    pub(crate) counter: Piece<'c>,
    /// How many micro-batches an update has.
    pub(crate) steps: Piece<'c>,
    /// The condition's statement.
    pub(crate) condition: Piece<'c>,
}

/// The names of numbers by which a script counts micro-batches up to an update.
pub(crate) fn counted_by(code: &Code<'_>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for turn in turns(code, &code.parents()) {
        let name = turn.steps.name().filter(|name| is_name(name) && !names.iter().any(|known| known == name));
        names.extend(name.map(str::to_owned));
    }
    names
}

/// What updates depend on, in the order of the texts.
pub(crate) fn turns<'c>(code: &'c Code<'_>, parents: &Parents<'c>) -> Vec<Turn<'c>> {
    let updating = updating(code, parents);
    let mut conditions: HashMap<&str, Vec<Piece<'c>>> = HashMap::new();
    for condition in code.pieces().filter(|piece| updating.contains(&piece.id())) {
        for name in condition.field("condition").into_iter().flat_map(Piece::all).filter_map(Piece::name) {
            conditions.entry(name).or_default().push(condition);
        }
    }
    let turn = |counted: Piece<'c>| {
        let (counter, steps) = counted_in(counted)?;
        let outer = parents.of(counted).find(|piece| is_end(*piece))?;
        let condition = match outer.kind() {
            "if_statement" | "elif_clause" => Some(outer).filter(|outer| updating.contains(&outer.id())),
            // `is_last = (i + 1) % steps == 0`, or as an argument of a function of the script's own.
            "assignment" => conditions.get(outer.field("left")?.name()?)?.first().copied(),
            "keyword_argument" => conditions.get(outer.part("name"))?.first().map(|_| outer),
            _ => None,
        }?;
        let is_turn = counted.kind() == "binary_operator" || is_reset(counter, condition);
        is_turn.then_some(Turn { counter, steps, condition })
    };
    code.pieces().filter_map(turn).collect()
}

/// The counter and the number that it is counted up to: `(i + 1) % steps`, `n == steps`, `n >= steps`.
fn counted_in(piece: Piece<'_>) -> Option<(Piece<'_>, Piece<'_>)> {
    match piece.kind() {
        "binary_operator" if piece.part("operator") == "%" => Some((piece.field("left")?, piece.field("right")?)),
        "comparison_operator" if matches!(piece.part("operators"), "==" | ">=") => match piece.children().as_slice() {
            [counter, steps] => counter.name().and(steps.name()).map(|_| (*counter, *steps)),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a counter begins anew where weights are updated: `n = 0`.
fn is_reset(counter: Piece<'_>, condition: Piece<'_>) -> bool {
    let is_it = |piece: Piece<'_>| {
        let left = piece.field("left").filter(|_| piece.kind() == "assignment");
        left.is_some_and(|left| left.text() == counter.text()) && piece.part("right") == "0"
    };
    condition.all().any(is_it)
}

/// Where a condition ends, or is given a name.
fn is_end(piece: Piece<'_>) -> bool {
    matches!(piece.kind(), "if_statement" | "elif_clause" | "assignment" | "keyword_argument" | "block" | "module")
}

/// The conditions on which it depends whether weights are updated: those around an update, and those that pass over it.
fn updating(code: &Code<'_>, parents: &Parents<'_>) -> HashSet<PieceId> {
    let (mut found, mut blocks) = (HashSet::new(), HashSet::new());
    let direct: Vec<Piece<'_>> = code.pieces().filter(|piece| is_update(*piece)).collect();
    // A function of the script's own that updates weights.
    let own =
        direct.iter().filter_map(|update| parents.of(*update).find(|piece| piece.kind() == "function_definition"));
    let own: HashSet<&str> = own.map(|function| function.part("name")).collect();
    let by_own = code.pieces().filter(|piece| own.contains(piece.callee()));
    for update in direct.iter().copied().chain(by_own) {
        for outer in parents.of(update).take_while(|piece| piece.kind() != "function_definition") {
            match outer.kind() {
                "if_statement" | "elif_clause" if !is_in_condition(outer, update) => drop(found.insert(outer.id())),
                "block" => drop(blocks.insert(outer.id())),
                _ => {}
            }
        }
    }
    // `if (i + 1) % steps != 0: continue`, and the update behind it.
    let passes = code.pieces().filter(|piece| piece.kind() == "continue_statement").filter_map(|piece| {
        let condition = parents.of(piece).find(|outer| outer.kind() == "if_statement")?;
        let block = parents.of(condition).next()?;
        blocks.contains(&block.id()).then(|| condition.id())
    });
    let passes: Vec<PieceId> = passes.collect();
    found.extend(passes);
    found
}

fn is_in_condition(statement: Piece<'_>, piece: Piece<'_>) -> bool {
    statement.field("condition").is_some_and(|condition| condition.contains(piece))
}

/// `optimizer.step()`, `scaler.step(optimizer)`, `self.optimizer_step()`.
pub(super) fn is_update(call: Piece<'_>) -> bool {
    let name = call.callee();
    if name == "step" {
        let receiver = call.receiver().and_then(|of| of.name().or(Some(of.callee()))).unwrap_or_default();
        let receiver = receiver.to_ascii_lowercase();
        return !receiver.is_empty() && !NO_OPTIMIZERS.iter().any(|part| receiver.contains(part));
    }
    name.contains("optim") && name.split('_').any(|word| word == "step")
}
