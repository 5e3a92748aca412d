//! What gradients are computed of: the values that reach `backward`, or a gradient itself, and what they are divided by on
//! their way.
//!
//! A value is followed backwards through names, sums, products, shares and the functions of the scripts, by names alone: the
//! same one in two functions counts as one. What a function of somebody else's makes of its arguments is not followed, so that
//! the number of classes that a loss is computed with is no divisor of the loss.

use std::collections::{HashMap, HashSet};

use lowtide_config::python::last_name;

use super::given::{Given, Way};
use super::piece::{Code, Function, Functions, Piece, PieceId};

/// Methods that compute gradients.
const BACKWARD: [&str; 2] = ["backward", "manual_backward"];
/// Functions that only divide.
const DIVISIONS: [&str; 4] = ["div", "div_", "true_divide", "divide"];
/// Functions whose value is in proportion to their arguments'.
const PROPORTIONAL: [&str; 23] = [
    "sum",
    "mean",
    "stack",
    "cat",
    "add",
    "add_",
    "mul",
    "mul_",
    "multiply",
    "scale",
    "scale_loss",
    "where",
    "nan_to_num",
    "float",
    "tensor",
    "append",
    "extend",
    "clamp",
    "neg",
    "squeeze",
    "all_reduce",
    "reduce",
    "gather",
];
/// Methods after which no gradient flows: what they give is shown.
const SHOWN: [&str; 5] = ["item", "detach", "detach_", "numpy", "tolist"];
/// Pieces of a value that are looked at.
const LONGEST: usize = 100;
/// What the gradients of weights are called.
const GRADIENT: &str = "grad";

/// Whether scripts compute gradients.
pub(crate) fn computes_gradients<'c>(code: &'c Code<'_>) -> Option<Piece<'c>> {
    code.pieces().find(|piece| BACKWARD.contains(&piece.callee()))
}

/// What is divided by before gradients are computed, as it stands there.
pub(crate) fn divisors<'c>(code: &'c Code<'_>, given: &[Given<'c>]) -> Vec<&'c str> {
    let mut flow = Flow::new(code, given);
    // `loss_scaler(loss, optimizer)` computes gradients too.
    let is_backward = |piece: &Piece<'_>| BACKWARD.contains(&piece.callee()) || piece.callee().contains("scaler");
    for call in code.pieces().filter(is_backward) {
        flow.stack.extend(call.receiver());
        flow.stack.extend(call.arguments().into_iter().map(Piece::value));
    }
    flow.name(GRADIENT);
    while let Some(piece) = flow.stack.pop() {
        if flow.seen.insert(piece.id()) {
            flow.visit(piece);
        }
    }
    flow.divisors
}

struct Flow<'c> {
    functions: Functions<'c>,
    /// What each name is given, and what changes it in its place.
    values: HashMap<&'c str, Vec<Piece<'c>>>,
    names: HashSet<&'c str>,
    seen: HashSet<PieceId>,
    stack: Vec<Piece<'c>>,
    divisors: Vec<&'c str>,
}

impl<'c> Flow<'c> {
    fn new(code: &'c Code<'_>, given: &[Given<'c>]) -> Self {
        let mut values: HashMap<&'c str, Vec<Piece<'c>>> = HashMap::new();
        for Given { name, value, way } in given {
            // A function of somebody else's has arguments of its own.
            if *way != Way::Named {
                values.entry(name).or_default().push(*value);
            }
        }
        for piece in code.pieces() {
            let changed = match piece.kind() {
                "augmented_assignment" => piece.field("left"),
                "call" => piece.receiver().filter(|_| is_followed(piece.callee())),
                _ => None,
            };
            if let Some(name) = changed.and_then(target) {
                values.entry(name).or_default().push(piece);
            }
        }
        let functions = code.functions();
        let (names, seen) = (HashSet::new(), HashSet::new());
        Self { functions, values, names, seen, stack: Vec::new(), divisors: Vec::new() }
    }

    /// Follows what a name is given.
    fn name(&mut self, name: &'c str) {
        if self.names.insert(name) {
            self.stack.extend(self.values.get(name).into_iter().flatten());
        }
    }

    fn visit(&mut self, piece: Piece<'c>) {
        match piece.kind() {
            "identifier" | "attribute" => piece.name().into_iter().for_each(|name| self.name(name)),
            "subscript" => {
                let item = piece.name().filter(|_| piece.field("subscript").is_some_and(|it| it.kind() == "string"));
                item.into_iter().for_each(|name| self.name(name));
                self.stack.extend(piece.field("value"));
            }
            "binary_operator" | "augmented_assignment" => self.operation(piece),
            "call" => self.call(piece),
            "conditional_expression" => {
                let parts = piece.children();
                self.stack.extend([parts.first(), parts.get(2)].into_iter().flatten());
            }
            "pair" | "keyword_argument" | "named_expression" => self.stack.extend(piece.field("value")),
            "for_in_clause" => self.stack.extend(piece.field("right")),
            "string" | "lambda" | "comparison_operator" | "if_clause" => {}
            _ => self.stack.extend(piece.children()),
        }
    }

    fn operation(&mut self, piece: Piece<'c>) {
        let (left, right) = (piece.field("left"), piece.field("right"));
        self.stack.extend(left);
        match piece.part("operator") {
            "/" | "/=" if left.is_some_and(is_shown) => {}
            "/" | "/=" => self.divisors.push(piece.part("right")),
            "//" | "%" | "//=" | "%=" => {}
            _ => self.stack.extend(right),
        }
    }

    fn call(&mut self, call: Piece<'c>) {
        let name = call.callee();
        if SHOWN.contains(&name) {
            return;
        }
        self.stack.extend(call.receiver());
        if let Some(functions) = self.functions.get(name) {
            self.stack.extend(functions.iter().flat_map(Function::returned));
            return;
        }
        let arguments = call.arguments();
        if DIVISIONS.contains(&name) {
            self.divisors.extend(arguments.last().map(|argument| argument.text()));
            self.stack.extend(arguments.first().filter(|_| arguments.len() > 1));
        } else if PROPORTIONAL.contains(&name) {
            self.stack.extend(arguments.into_iter().map(Piece::value));
        }
    }
}

fn is_followed(method: &str) -> bool {
    DIVISIONS.contains(&method) || PROPORTIONAL.contains(&method)
}

/// The name of what is changed in its place; of `p.grad.data` that of the gradient.
fn target<'c>(piece: Piece<'c>) -> Option<&'c str> {
    match piece.kind() {
        "call" => piece.receiver().and_then(|receiver| receiver.name()),
        "subscript" => piece.field("value").and_then(|value| value.name()),
        _ if piece.text().ends_with(".grad.data") => Some(last_name(piece.text().strip_suffix(".data")?)),
        _ => piece.name(),
    }
}

/// Whether a value is only shown: `loss.item()`.
pub(crate) fn is_shown(piece: Piece<'_>) -> bool {
    piece.all().take(LONGEST).any(|inner| SHOWN.contains(&inner.callee()))
}
