//! What a loop does with every micro-batch that belongs to an update: the schedule of the learning rate, clipping and averages.

use super::given::{Given, Way, is_one};
use super::piece::{Code, Parents, Piece, has_word, names};
use super::updates::{Turn, is_update, turns};

/// What moves a schedule on.
const SCHEDULE: [&str; 2] = ["step", "step_update"];
/// What updates averages of weights.
const AVERAGING: [&str; 4] = ["update", "step", "update_parameters", "update_ema"];
/// Names that many functions have.
const COMMON: [&str; 6] = ["step", "update", "forward", "backward", "main", "__call__"];
/// Functions that keep a number one.
const ROUNDING: [&str; 7] = ["int", "float", "round", "max", "min", "ceil", "floor"];
/// Pieces of a value that are looked at, and how often one is followed.
const LONGEST: usize = 100;
const FARTHEST: usize = 5;

/// What happens with every micro-batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beat {
    Schedule,
    Clipping,
    Averaging,
    Scaling,
}

/// A loop that trains otherwise with more micro-batches for each update.
pub(crate) enum Uneven<'c> {
    /// What belongs to an update happens with every micro-batch.
    Each(Beat, Piece<'c>),
    /// A schedule that moves on with each update is as long as there are micro-batches.
    Length(Piece<'c>),
}

/// What more micro-batches for each update would change, where a counter says when weights are updated.
pub(crate) fn uneven<'c>(code: &'c Code<'_>, given: &[Given<'c>], steps: &[String]) -> Option<Uneven<'c>> {
    let parents = code.parents();
    let turns: Vec<Turn<'c>> =
        turns(code, &parents).into_iter().filter(|turn| is_one(turn.steps, steps)).take(LONGEST).collect();
    let guards = Guards::new(given, steps);
    let slow = slow_functions(code, &parents, &guards);
    let mut is_scheduled = false;
    for region in turns.iter().filter_map(|turn| region(turn, &parents)) {
        let passes = guards.passes(region, &parents);
        for piece in region.all() {
            let called = || slow.iter().find(|(name, _)| *name == piece.callee()).map(|(_, beat)| *beat);
            let Some(beat) = beat(piece).or_else(called) else { continue };
            let is_guarded =
                guards.hold(piece, region, &parents) || passes.iter().any(|it| it.is_before(piece, &parents));
            if !is_guarded {
                return Some(Uneven::Each(beat, piece));
            }
            is_scheduled |= beat == Beat::Schedule;
        }
    }
    is_scheduled.then(|| long_schedule(code, given, steps)).flatten().map(Uneven::Length)
}

/// The innermost loop around a turn, or the function where that has none.
fn region<'c>(turn: &Turn<'c>, parents: &Parents<'c>) -> Option<Piece<'c>> {
    let is_it = |piece: &Piece<'c>| matches!(piece.kind(), "for_statement" | "while_statement" | "function_definition");
    parents.of(turn.condition).find(is_it)
}

/// What a piece does that belongs to an update.
fn beat(piece: Piece<'_>) -> Option<Beat> {
    let name = piece.callee();
    let receiver = piece.receiver();
    let of = receiver.and_then(|of| of.name().or(Some(of.callee()))).unwrap_or_default().to_ascii_lowercase();
    let is_gradient = |value: Option<Piece<'_>>| {
        let text = value.map_or("", Piece::text);
        text.ends_with(".grad") || text.ends_with(".grad.data")
    };
    match piece.kind() {
        "augmented_assignment" => {
            let is_scaled = matches!(piece.part("operator"), "*=" | "/=") && is_gradient(piece.field("left"));
            is_scaled.then_some(Beat::Scaling)
        }
        "call" if matches!(name, "mul_" | "div_") && is_gradient(receiver) => Some(Beat::Scaling),
        // One that is told where it is needs no count of its own.
        "call" if SCHEDULE.contains(&name) && of.contains("sched") && piece.arguments().is_empty() => {
            Some(Beat::Schedule)
        }
        "call" if name.starts_with("clip_grad") => Some(Beat::Clipping),
        "call" if AVERAGING.contains(&name) && (name.ends_with("ema") || of.split('_').any(|word| word == "ema")) => {
            Some(Beat::Averaging)
        }
        _ => None,
    }
}

/// Functions of the scripts that clip or scale gradients whenever they are called.
fn slow_functions<'c>(code: &'c Code<'_>, parents: &Parents<'c>, guards: &Guards<'_>) -> Vec<(&'c str, Beat)> {
    let functions = code.pieces().filter(|piece| piece.kind() == "function_definition");
    let slow = functions.filter_map(|function| {
        let name = function.part("name");
        // What updates weights itself is called when they are updated.
        if COMMON.contains(&name) || name.starts_with("clip_grad") || function.all().any(is_update) {
            return None;
        }
        let is_always = |piece: Piece<'c>| {
            let mut outer = parents.of(piece).take_while(|outer| outer.id() != function.id());
            !outer.any(|outer| outer.kind() == "if_statement" && !outer.part("condition").contains("None"))
        };
        let beats = function.all().filter_map(|piece| Some((piece, beat(piece)?)));
        let mut lasting = beats.filter(|(_, beat)| matches!(beat, Beat::Clipping | Beat::Scaling));
        let (_, beat) = lasting.find(|(piece, _)| is_always(*piece) && !guards.hold(*piece, function, parents))?;
        Some((name, beat))
    });
    slow.collect()
}

/// Conditions that hold only where weights are updated.
struct Guards<'a> {
    names: Vec<&'a str>,
}

/// A condition behind which the loop goes on only where weights are updated.
struct Pass<'c> {
    condition: Piece<'c>,
    block: Piece<'c>,
}

impl Pass<'_> {
    fn is_before<'c>(&self, piece: Piece<'c>, parents: &Parents<'c>) -> bool {
        self.condition.range().end <= piece.range().start
            && parents.of(piece).any(|outer| outer.id() == self.block.id())
    }
}

impl<'a> Guards<'a> {
    fn new(given: &[Given<'a>], steps: &'a [String]) -> Self {
        // `is_last = (i + 1) % steps == 0`
        let is_flag = |it: &&Given<'a>| {
            let is_condition = matches!(it.value.kind(), "comparison_operator" | "boolean_operator" | "not_operator");
            is_condition && it.way != Way::Element && steps.iter().any(|name| has_word(it.value.text(), name))
        };
        let flags = given.iter().filter(is_flag).map(|it| it.name);
        Self { names: steps.iter().map(String::as_str).chain(flags).chain(["sync_gradients"]).collect() }
    }

    fn is_one(&self, statement: Piece<'_>) -> bool {
        let is_condition = matches!(statement.kind(), "if_statement" | "elif_clause" | "conditional_expression");
        let text = match statement.kind() {
            "conditional_expression" => statement.text(),
            _ => statement.part("condition"),
        };
        is_condition && self.names.iter().any(|name| has_word(text, name))
    }

    /// Whether a piece of a region runs only where one of them holds.
    fn hold<'c>(&self, piece: Piece<'c>, region: Piece<'c>, parents: &Parents<'c>) -> bool {
        parents.of(piece).take_while(|outer| outer.id() != region.id()).any(|outer| self.is_one(outer))
    }

    /// `if (i + 1) % steps != 0: continue`
    fn passes<'c>(&self, region: Piece<'c>, parents: &Parents<'c>) -> Vec<Pass<'c>> {
        let leaves = region.all().filter(|piece| matches!(piece.kind(), "continue_statement" | "return_statement"));
        let pass = |piece: Piece<'c>| {
            let condition = parents.of(piece).find(|outer| outer.kind() == "if_statement")?;
            let block = parents.of(condition).next()?;
            self.is_one(condition).then_some(Pass { condition, block })
        };
        leaves.filter_map(pass).collect()
    }
}

/// The length of a schedule that is a number of micro-batches.
fn long_schedule<'c>(code: &'c Code<'_>, given: &[Given<'c>], steps: &[String]) -> Option<Piece<'c>> {
    let makes = |piece: &Piece<'c>| {
        let name = piece.callee();
        name.ends_with("LR") || name.starts_with("get_") && name.contains("schedul")
    };
    code.pieces().filter(makes).find_map(|call| {
        let numbers: Vec<(Piece<'c>, Length)> =
            call.arguments().into_iter().map(|it| (it.value(), Length::of(it.value(), given, steps))).collect();
        let is_cut = numbers.iter().any(|(_, length)| length.has_steps);
        numbers.into_iter().find(|(_, length)| length.has_batches && !is_cut).map(|(piece, _)| piece)
    })
}

/// What a number is computed of.
#[derive(Default)]
struct Length {
    has_steps: bool,
    has_batches: bool,
}

impl Length {
    fn of<'c>(value: Piece<'c>, given: &[Given<'c>], steps: &[String]) -> Self {
        let mut length = Self::default();
        let (mut pieces, mut seen) = (vec![value], Vec::new());
        for _ in 0..FARTHEST {
            let mut found: Vec<&str> = Vec::new();
            let mut stack = std::mem::take(&mut pieces);
            let mut left = LONGEST;
            while let Some(piece) = stack.pop().filter(|_| left > 0) {
                left -= 1;
                length.has_steps |= names(piece).take(LONGEST).any(|name| steps.iter().any(|known| known == name));
                match piece.kind() {
                    "call" if piece.callee() == "len" => length.has_batches = true,
                    "call" if ROUNDING.contains(&piece.callee()) => stack.extend(piece.arguments()),
                    "call" | "string" => {}
                    _ => match piece.name() {
                        Some(name) => found.push(name),
                        None => stack.extend(piece.children()),
                    },
                }
            }
            found.retain(|name| !seen.contains(name));
            let is_found = |it: &&Given<'c>| it.way != Way::Element && found.contains(&it.name);
            pieces = given.iter().filter(is_found).take(LONGEST).map(|it| it.value).collect();
            seen.extend(found);
        }
        length
    }
}
