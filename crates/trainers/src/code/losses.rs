//! What gradients are computed of: the values that reach `backward`, or a gradient itself, and what they are divided by on
//! their way.
//!
//! A value is followed backwards through names, sums, products and the functions of the scripts. A name has what its
//! function gave it before; only what stands nowhere in a function is looked for elsewhere by its name. What a
//! function of somebody else's makes of its arguments is not followed, so that the number of classes that a loss is computed with
//! is no divisor of the loss.

use std::collections::HashMap;

use super::changes::{Change, Changes};
use super::given::{Given, counts_processes};
use super::piece::{Code, Function, Functions, Piece, PieceId, has_word, names};
use super::share::{Divisor, Share};

/// Methods that compute gradients.
const BACKWARD: [&str; 2] = ["backward", "manual_backward"];
/// Functions that only divide.
const DIVISIONS: [&str; 4] = ["div", "div_", "true_divide", "divide"];
/// Functions that add, and that multiply.
const ADDITIONS: [&str; 4] = ["add", "add_", "append", "extend"];
const PRODUCTS: [&str; 3] = ["mul", "mul_", "multiply"];
/// Functions whose value is in proportion to their first argument, or to what they are a method of.
const PROPORTIONAL: [&str; 30] = [
    "sum",
    "mean",
    "stack",
    "cat",
    "scale",
    "scale_loss",
    "nan_to_num",
    "float",
    "tensor",
    "clamp",
    "neg",
    "squeeze",
    "all_reduce",
    "reduce",
    "gather",
    "to",
    "cuda",
    "cpu",
    "clone",
    "contiguous",
    "view",
    "reshape",
    "flatten",
    "half",
    "double",
    "type",
    "values",
    "items",
    "list",
    "max",
];
/// Functions whose value is a number, or begins a sum.
const NUMBERS: [&str; 14] = [
    "zeros",
    "zeros_like",
    "new_zeros",
    "ones",
    "ones_like",
    "full",
    "empty",
    "len",
    "int",
    "range",
    "dict",
    "defaultdict",
    "OrderedDict",
    "deque",
];
/// Methods after which no gradient flows: what they give is shown.
const SHOWN: [&str; 5] = ["item", "detach", "detach_", "numpy", "tolist"];
/// Pieces of a value that are looked at.
const LONGEST: usize = 100;
/// What the gradients of weights are called.
const GRADIENT: &str = "grad";
/// How deep a value is followed, how many pieces in all, and how many changes of a name elsewhere.
const DEEPEST: usize = 100;
const MOST_PIECES: usize = 100_000;
const MOST_ELSEWHERE: usize = 32;
/// How many changes of a name before a place, or behind it, are looked at.
const MOST_CHANGES: usize = 64;

/// Whether scripts compute gradients.
pub(crate) fn computes_gradients<'c>(code: &'c Code<'_>) -> Option<Piece<'c>> {
    code.pieces().find(|piece| is_backward(*piece))
}

/// Whether a call computes gradients.
pub(crate) fn is_backward(call: Piece<'_>) -> bool {
    BACKWARD.contains(&call.callee())
}

/// A loss that is not what it would have to be.
pub(crate) struct WrongLoss<'c> {
    /// Where gradients are computed of it.
    pub(crate) at: Piece<'c>,
    pub(crate) share: Share,
}

/// Whether gradients of all micro-batches make those of the update, where `steps` are the names of how many it has.
///
/// # Errors
///
/// The first loss that does not; a script that computes none has none either.
pub(crate) fn check_losses<'c>(
    code: &'c Code<'_>,
    given: &[Given<'c>],
    steps: &[String],
) -> Result<(), Option<WrongLoss<'c>>> {
    let mut flow = Flow::new(code, given, steps);
    if flow.divides_gradients() {
        return Ok(());
    }
    // `loss_scaler(loss, optimizer)` computes gradients too.
    let is_it = |piece: &Piece<'_>| is_backward(*piece) || piece.callee().contains("scaler");
    let losses: Vec<(Piece<'c>, Share)> = code.pieces().filter(is_it).map(|call| (call, flow.loss(call))).collect();
    let (right, other): (Vec<_>, Vec<_>) = losses.into_iter().partition(|(_, share)| share.is_right() == Some(true));
    let wrong = |(at, share): (Piece<'c>, Share)| WrongLoss { at, share };
    if right.is_empty() {
        let first = other.iter().find(|(_, share)| share.is_right() == Some(false)).or(other.first());
        return Err(first.copied().map(wrong));
    }
    // Other loops and other branches may be for a training of another kind.
    let stands_beside = |at: Piece<'c>| {
        right.iter().any(|(it, _)| flow.changes.are_together(at, *it))
            && !right.iter().any(|(it, _)| flow.changes.are_exclusive(at, *it))
    };
    let beside = other.into_iter().find(|(at, share)| share.is_right() == Some(false) && stands_beside(*at));
    beside.map_or(Ok(()), |beside| Err(Some(wrong(beside))))
}

/// Whether a call computes gradients of a sum over samples.
pub(crate) fn is_of_sum<'c>(code: &'c Code<'_>, is_it: impl Fn(Piece<'c>) -> bool) -> bool {
    let given = code.given();
    let mut flow = Flow::new(code, &given, &[]);
    code.pieces().filter(|piece| is_backward(*piece) && is_it(*piece)).any(|call| flow.loss(call) == Share::Sum)
}

struct Flow<'c, 'n> {
    steps: &'n [String],
    functions: Functions<'c>,
    changes: Changes<'c>,
    known: HashMap<PieceId, Share>,
    depth: usize,
}

impl<'c, 'n> Flow<'c, 'n> {
    fn new(code: &'c Code<'_>, given: &[Given<'c>], steps: &'n [String]) -> Self {
        let (functions, changes) = (code.functions(), Changes::read(code, given));
        Self { steps, functions, changes, known: HashMap::new(), depth: 0 }
    }

    /// `p.grad /= steps`
    fn divides_gradients(&mut self) -> bool {
        let changes = self.changes.anywhere(GRADIENT).to_vec();
        changes.into_iter().any(|change| self.changed(Share::Unknown, change) == Share::Part)
    }

    /// What a call computes gradients of.
    fn loss(&mut self, call: Piece<'c>) -> Share {
        let receiver = call.receiver().map_or(Share::Unknown, |receiver| self.share(receiver));
        let first = call.arguments().into_iter().find(|argument| argument.kind() != "keyword_argument");
        match first {
            // `loss.backward(weights)`
            Some(_) if matches!(receiver, Share::Part | Share::PartOfSum | Share::Sum) => receiver,
            Some(argument) => self.share(argument),
            None => receiver,
        }
    }

    fn share(&mut self, piece: Piece<'c>) -> Share {
        if let Some(known) = self.known.get(&piece.id()) {
            return *known;
        }
        if self.depth >= DEEPEST || self.known.len() >= MOST_PIECES {
            return Share::Unknown;
        }
        // What is computed of itself.
        self.known.insert(piece.id(), Share::Unknown);
        self.depth += 1;
        let share = self.visit(piece);
        self.depth -= 1;
        self.known.insert(piece.id(), share);
        share
    }

    fn visit(&mut self, piece: Piece<'c>) -> Share {
        match piece.kind() {
            "identifier" => self.name(piece, piece.text()),
            "attribute" => self.part(piece, piece.field("object"), Some(piece.part("attribute"))),
            "subscript" => {
                let is_text = piece.field("subscript").is_some_and(|item| item.kind() == "string");
                self.part(piece, piece.field("value"), piece.name().filter(|_| is_text))
            }
            "binary_operator" => self.operation(piece),
            "call" => self.call(piece),
            "conditional_expression" => {
                let parts = piece.children();
                self.any([parts.first(), parts.get(2)].into_iter().flatten().copied())
            }
            "pair" | "keyword_argument" | "named_expression" => self.of(piece.field("value")),
            "list" | "set" => piece.children().into_iter().fold(Share::Number, |sum, it| sum.plus(self.share(it))),
            "list_comprehension" | "generator_expression" | "set_comprehension" => self.of(piece.field("body")),
            "integer"
            | "float"
            | "string"
            | "true"
            | "false"
            | "none"
            | "lambda"
            | "comparison_operator"
            | "not_operator" => Share::Number,
            _ => self.any(piece.children()),
        }
    }

    fn of(&mut self, piece: Option<Piece<'c>>) -> Share {
        piece.map_or(Share::Unknown, |piece| self.share(piece))
    }

    fn any(&mut self, pieces: impl IntoIterator<Item = Piece<'c>>) -> Share {
        pieces.into_iter().take(LONGEST).fold(Share::Number, |share, piece| share.or(self.share(piece)))
    }

    /// `out.loss`, `out["loss"]`, `losses[0]`: of what the function made, or of that name anywhere.
    fn part(&mut self, at: Piece<'c>, whole: Option<Piece<'c>>, name: Option<&'c str>) -> Share {
        let whole = match whole {
            Some(whole) if whole.kind() != "identifier" || self.is_own(whole) || name.is_none() => self.share(whole),
            _ => Share::Unknown,
        };
        match name {
            Some(name) if matches!(whole, Share::Number | Share::Unknown) => {
                let share = self.name(at, name);
                if share != Share::Unknown {
                    return share;
                }
                let changes: Vec<Change<'c>> =
                    self.changes.anywhere(name).iter().take(MOST_ELSEWHERE).copied().collect();
                changes.into_iter().fold(Share::Unknown, |share, change| share.or(self.changed(Share::Unknown, change)))
            }
            _ => whole,
        }
    }

    /// Whether a name is given a value in the function that it stands in.
    fn is_own(&self, name: Piece<'c>) -> bool {
        !self.changes.within(self.changes.scope(name), name.text()).is_empty()
    }

    /// What a name stands for at a place.
    fn name(&mut self, at: Piece<'c>, name: &'c str) -> Share {
        let arguments = self.changes.arguments(at, name).map(<[_]>::to_vec);
        let parameter = arguments.map(|given| match given.is_empty() {
            true => Share::Unknown,
            false => self.any(given.into_iter().take(MOST_ELSEWHERE)),
        });
        let own = self.changes.within(self.changes.scope(at), name);
        let count = own.partition_point(|change| change.piece().range().end <= at.range().start);
        let before = own[count.saturating_sub(MOST_CHANGES)..count].to_vec();
        let behind: Vec<Change<'c>> = own[count..].iter().take(MOST_CHANGES).copied().collect();
        let share = self.after(parameter, &before, at);
        match share {
            // What is summed up in a loop is given its summands behind.
            None | Some(Share::Number) if !behind.is_empty() => {
                self.after(share.or(parameter), &behind, at).unwrap_or(Share::Unknown)
            }
            Some(share) => share,
            None => self.outside(at, name),
        }
    }

    /// What a name stands for after some changes, in their order.
    fn after(&mut self, first: Option<Share>, changes: &[Change<'c>], at: Piece<'c>) -> Option<Share> {
        let mut share = first;
        for change in changes {
            let piece = change.piece();
            if self.changes.are_exclusive(piece, at) {
                continue;
            }
            let new = self.changed(share.unwrap_or(Share::Number), *change);
            let is_certain = self.changes.is_certain(piece, at);
            share = Some(share.filter(|_| !is_certain).map_or(new, |old| old.or(new)));
        }
        share
    }

    /// What a name stands for that its function gives no value.
    fn outside(&mut self, at: Piece<'c>, name: &'c str) -> Share {
        let scopes = self.changes.scopes(at);
        let first = |scope| self.changes.within(scope, name).iter().take(MOST_ELSEWHERE).copied().collect::<Vec<_>>();
        let found = scopes.into_iter().skip(1).map(first);
        let Some(changes) = found.into_iter().find(|changes| !changes.is_empty()) else { return Share::Unknown };
        changes.into_iter().fold(Share::Unknown, |share, it| share.or(self.changed(share, it)))
    }

    fn changed(&mut self, share: Share, change: Change<'c>) -> Share {
        match change {
            Change::Value(value) => self.share(value),
            Change::Item(value) => share.plus(self.share(value)),
            Change::Augmented(piece) => {
                let right = piece.field("right");
                match piece.part("operator") {
                    "/=" => right.map_or(share, |right| share.over(self.divisor(right))),
                    "*=" => share.times(self.of(right)),
                    "+=" | "-=" => share.plus(self.of(right)),
                    _ => share,
                }
            }
            Change::Method(call) => {
                let (name, argument) = (call.callee(), call.arguments().first().copied());
                match argument {
                    Some(by) if DIVISIONS.contains(&name) => share.over(self.divisor(by)),
                    Some(by) if PRODUCTS.contains(&name) => share.times(self.share(by)),
                    Some(by) if ADDITIONS.contains(&name) => share.plus(self.share(by)),
                    _ => share,
                }
            }
        }
    }

    fn operation(&mut self, piece: Piece<'c>) -> Share {
        let (Some(left), Some(right)) = (piece.field("left"), piece.field("right")) else { return Share::Unknown };
        let is_zero = |piece: Piece<'c>| matches!(piece.text(), "0" | "0." | "0.0");
        match piece.part("operator") {
            "/" if is_shown(left) => self.share(left),
            "/" => {
                let divisor = self.divisor(right);
                // What is divided so often is looked at once.
                if divisor.has_steps && divisor.has_samples { Share::Part } else { self.share(left).over(divisor) }
            }
            "+" | "-" => self.share(left).plus(self.share(right)),
            // What only lets every weight have a gradient.
            "*" if is_zero(left) || is_zero(right) => Share::Number,
            "*" => self.share(left).times(self.share(right)),
            _ => self.share(left),
        }
    }

    fn divisor(&self, by: Piece<'c>) -> Divisor {
        const CASTS: [&str; 4] = ["int", "float", "max", "min"];
        let is_steps = |name: &str| self.steps.iter().any(|known| known == name);
        let is_number = |name: &str| is_steps(name) || CASTS.contains(&name) || counts_processes(name);
        Divisor {
            has_steps: self.steps.iter().any(|name| has_word(by.text(), name)),
            has_samples: names(by).take(LONGEST).any(|name| !is_number(name)),
        }
    }

    fn call(&mut self, call: Piece<'c>) -> Share {
        let (name, arguments) = (call.callee(), call.arguments());
        if SHOWN.contains(&name) || NUMBERS.contains(&name) {
            return Share::Number;
        }
        let returned = self.functions.get(name).map(|all| all.iter().flat_map(Function::returned).collect::<Vec<_>>());
        if let Some(returned) = returned.filter(|returned| !returned.is_empty()) {
            return self.any(returned);
        }
        let receiver = call.receiver();
        let first = arguments.first().map(|argument| argument.value());
        match name {
            _ if DIVISIONS.contains(&name) => {
                let whole = if arguments.len() > 1 { first } else { receiver };
                let share = self.of(whole);
                arguments.last().map_or(share, |by| share.over(self.divisor(by.value())))
            }
            _ if ADDITIONS.contains(&name) => self.any(receiver).plus(self.all(&arguments)),
            _ if PRODUCTS.contains(&name) => match arguments.as_slice() {
                [one, other] => self.share(one.value()).times(self.share(other.value())),
                _ => self.of(receiver).times(self.of(first)),
            },
            "where" => self.any(arguments.into_iter().skip(1)),
            _ if PROPORTIONAL.contains(&name) => match first.map(|first| self.share(first)) {
                Some(share) if !matches!(share, Share::Number | Share::Unknown) => share,
                other => receiver.map(|receiver| self.share(receiver)).or(other).unwrap_or(Share::Unknown),
            },
            _ => match receiver.map(|receiver| self.share(receiver)) {
                Some(share @ (Share::Part | Share::PartOfSum)) => share,
                _ if self.sums(call) => Share::Sum,
                _ => Share::Mean,
            },
        }
    }

    fn all(&mut self, arguments: &[Piece<'c>]) -> Share {
        arguments.iter().fold(Share::Number, |sum, argument| sum.plus(self.share(argument.value())))
    }

    /// Whether a call computes a sum over samples: by an argument of its own, or of the one that made its function.
    fn sums(&self, call: Piece<'c>) -> bool {
        let is_sum = |argument: Piece<'c>| {
            let value = argument.value().text().trim_matches(['"', '\'']);
            matches!((argument.part("name"), value), ("reduction", "sum") | ("size_average", "False"))
        };
        let says_so = |call: Piece<'c>| call.arguments().into_iter().any(is_sum);
        let made = self.changes.anywhere(call.callee()).iter().take(MOST_ELSEWHERE);
        says_so(call)
            || made
                .into_iter()
                .any(|change| matches!(change, Change::Value(value) if made_by(*value).is_some_and(says_so)))
    }
}

/// The call that makes a value: `MSELoss(reduction="sum").to(device)`.
fn made_by(value: Piece<'_>) -> Option<Piece<'_>> {
    let calls = std::iter::successors(Some(value), |piece| piece.receiver().filter(|inner| inner.kind() == "call"));
    calls.take(DEEPEST).last().filter(|piece| piece.kind() == "call")
}

/// Whether a value is only shown: `loss.item()`.
pub(crate) fn is_shown(piece: Piece<'_>) -> bool {
    piece.all().take(LONGEST).any(|inner| SHOWN.contains(&inner.callee()))
}
