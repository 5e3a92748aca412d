//! Learning rates that are computed from the batch.

use super::given::{Given, Way, closure, is_one};
use super::piece::{Code, Piece};

/// Functions that grow with their argument.
const GROWING: [&str; 7] = ["sqrt", "int", "float", "round", "max", "min", "pow"];

/// What a learning rate is set to that grows with one number and not with another, which would keep it.
pub(crate) fn rate_by<'c>(code: &'c Code<'_>, given: &[Given<'c>], batch: &str, steps: &str) -> Option<Piece<'c>> {
    let [batch, steps] = [batch, steps].map(|name| growing_with(name, given));
    let rates = given.iter().filter(|it| is_rate(it.name)).map(|it| it.value);
    // `args.lr *= args.batch_size / 256`
    let scaled = code.pieces().filter_map(|piece| {
        let is_scaled = piece.kind() == "augmented_assignment" && piece.part("operator") == "*=";
        let left = piece.field("left").filter(|left| is_scaled && left.name().is_some_and(is_rate));
        left.and(piece.field("right"))
    });
    rates.chain(scaled).find(|value| grows_with(*value, &batch) && !grows_with(*value, &steps))
}

/// `lr`, `base_lr`, `learning_rate`
fn is_rate(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("learning_rate") || name.rsplit('_').next() == Some("lr")
}

/// A name, and all others that are given something that grows with its value.
fn growing_with(name: &str, given: &[Given<'_>]) -> Vec<String> {
    closure(name, |names| {
        given.iter().filter(|it| it.way != Way::Element && grows_with(it.value, names)).map(|it| it.name).collect()
    })
}

fn grows_with(value: Piece<'_>, names: &[String]) -> bool {
    let mut stack = vec![value];
    while let Some(piece) = stack.pop() {
        match piece.kind() {
            "parenthesized_expression" | "boolean_operator" => stack.extend(piece.children()),
            "binary_operator" => match piece.part("operator") {
                "*" => stack.extend(piece.children()),
                "/" | "//" | "**" => stack.extend(piece.field("left")),
                _ => {}
            },
            "conditional_expression" => {
                let parts = piece.children();
                stack.extend([parts.first(), parts.get(2)].into_iter().flatten());
            }
            "call" if GROWING.contains(&piece.callee()) => stack.extend(piece.arguments()),
            _ if is_one(piece, names) => return true,
            _ => {}
        }
    }
    false
}
