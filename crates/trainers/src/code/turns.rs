//! Loops that end after a number of micro-batches: with more of them for each update, they would make fewer updates.

use std::cell::LazyCell;

use super::given::{Given, Way};
use super::piece::{Code, Parents, Piece, names};
use super::updates::{Turn, turns};
use crate::{Key, key_of_option};

/// What loops over a number.
const RANGES: [&str; 3] = ["range", "trange", "islice"];
/// How often a number is followed to where it is computed.
const FARTHEST: usize = 5;

/// Conditions that are looked at.
const MOST_TURNS: usize = 32;

/// What ends a loop after a number of micro-batches.
pub(crate) struct Bound<'c> {
    /// Where it stands: the loop, or a condition within it.
    pub(crate) at: Piece<'c>,
    /// Where the number is: a call such as `range(steps)`, or a condition.
    pub(crate) number: Piece<'c>,
}

/// What an update of some scripts is made of.
pub(crate) struct Update<'a> {
    /// The names of the number of its micro-batches.
    pub(crate) steps: &'a [String],
    /// The names of the micro-batch.
    pub(crate) batch: &'a [String],
    /// Gives the names of options that are left at a value that says nothing.
    pub(crate) unset: &'a dyn Fn() -> Vec<String>,
}

/// What ends a loop after a number of micro-batches that does not depend on how many an update has.
pub(crate) fn counts_micro_batches<'c>(
    code: &'c Code<'_>,
    given: &[Given<'c>],
    update: &Update<'_>,
) -> Option<Bound<'c>> {
    let parents = code.parents();
    let is_its = |turn: &Turn<'c>| turn.steps.name().is_some_and(|name| update.steps.iter().any(|known| known == name));
    let bounds = |turn: Turn<'c>| bounds(&turn, &parents);
    let known = LazyCell::new(|| [update.steps, update.batch, &(update.unset)()].concat());
    let mut all = turns(code, &parents).into_iter().filter(is_its).take(MOST_TURNS).flat_map(bounds);
    all.find(|bound| !follows(bound.number, given, &known))
}

/// What ends the loops in which micro-batches are counted.
fn bounds<'c>(turn: &Turn<'c>, parents: &Parents<'c>) -> Vec<Bound<'c>> {
    let of_it = parents.of(turn.condition).take_while(|outer| outer.kind() != "function_definition");
    let loops: Vec<Piece<'c>> =
        of_it.filter(|outer| matches!(outer.kind(), "for_statement" | "while_statement")).collect();
    let Some(inner) = loops.first().copied() else { return Vec::new() };
    let mut counters: Vec<&str> = identifiers(turn.counter).collect();
    let is_free = |piece: Piece<'c>| {
        let mut outer = parents.of(piece).take_while(|outer| outer.id() != inner.id());
        outer.all(|outer| !matches!(outer.kind(), "if_statement" | "for_statement" | "while_statement"))
    };
    // Every micro-batch is counted here, and not every update.
    let counted = inner.all().filter(|piece| piece.kind() == "augmented_assignment" && is_free(*piece));
    counters
        .extend(counted.filter(|piece| piece.part("operator") == "+=").filter_map(|piece| piece.field("left")?.name()));
    let is_counted = |piece: Piece<'c>| names(piece).any(|name| counters.contains(&name));
    let by_loop = loops.iter().filter_map(|at| {
        let number = match at.kind() {
            "for_statement" => {
                at.field("left").filter(|left| is_counted(*left))?;
                at.field("right")?.all().find(|call| RANGES.contains(&call.callee()))?
            }
            _ => at.field("condition").filter(|condition| is_counted(*condition))?,
        };
        Some(Bound { at: *at, number })
    });
    let breaks = inner.all().filter(|piece| piece.kind() == "break_statement").filter_map(|piece| {
        let at = parents.of(piece).find(|outer| outer.kind() == "if_statement")?;
        let number = at.field("condition").filter(|condition| is_counted(*condition))?;
        (at.id() != turn.condition.id()).then_some(Bound { at, number })
    });
    by_loop.chain(breaks).collect()
}

/// Whether a number follows from the data, from the batch or from what an update has, or is none.
fn follows(number: Piece<'_>, given: &[Given<'_>], known: &[String]) -> bool {
    let mut pieces = vec![number];
    let mut seen: Vec<&str> = Vec::new();
    for _ in 0..FARTHEST {
        let found: Vec<&str> =
            pieces.iter().flat_map(|piece| names(*piece)).filter(|name| !seen.contains(name)).collect();
        let is_known = |name: &&&str| {
            **name == "len" || known.iter().any(|it| it == **name) || key_of_option(name) == Some(Key::Batch)
        };
        if found.iter().any(|name| is_known(&name)) {
            return true;
        }
        let is_found = |it: &&Given<'_>| it.way != Way::Element && found.contains(&it.name);
        pieces = given.iter().filter(is_found).map(|it| it.value).collect();
        seen.extend(found);
    }
    false
}

fn identifiers<'c>(piece: Piece<'c>) -> impl Iterator<Item = &'c str> {
    piece.all().filter(|inner| inner.kind() == "identifier").map(Piece::text)
}
