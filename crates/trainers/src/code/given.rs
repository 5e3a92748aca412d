//! The names that values are given in scripts, on their way from an option to the loop.

use super::piece::{Code, Functions, Piece};

/// How often a number is given another name on its way to the loop.
const MOST_NAMES: usize = 5;

/// What a batch may be multiplied by and still be one, by a part of its name.
const PROCESSES: [&str; 6] = ["world", "gpu", "device", "rank", "proc", "replica"];

/// Whether a name is of a number of processes.
pub(crate) fn counts_processes(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    PROCESSES.iter().any(|part| name.contains(part))
}

/// A name that is given a value.
pub(crate) struct Given<'c> {
    pub(crate) name: &'c str,
    pub(crate) value: Piece<'c>,
    pub(crate) way: Way,
}

/// How a name is given a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// `n = value`, `def f(n=value)`
    Assigned,
    /// `for n in value`
    Element,
    /// As an argument of a function that the scripts define.
    Argument,
    /// As an argument of any other function, or as an item.
    Named,
}

impl Code<'_> {
    /// Every name that is given a value, in the order of the texts.
    pub(crate) fn given(&self) -> Vec<Given<'_>> {
        let functions = self.functions();
        let by_code = self.pieces().flat_map(|piece| given_by(piece, &functions));
        // What a function returns goes by its name.
        let returned = functions.iter().flat_map(|(name, all)| {
            let values = all.iter().flat_map(|function| function.returned());
            values.map(|value| Given { name, value, way: Way::Assigned })
        });
        by_code.chain(returned).collect()
    }
}

/// A name and all others that its value is given to.
pub(crate) fn names_of(name: &str, given: &[Given<'_>]) -> Vec<String> {
    closure(name, |names| {
        given.iter().filter(|it| it.way != Way::Element && is_one(it.value, names)).map(|it| it.name).collect()
    })
}

/// The same, with names that are given a product of it: `tokens = micro * length`.
pub(crate) fn names_of_products(name: &str, given: &[Given<'_>]) -> Vec<String> {
    closure(name, |names| {
        given.iter().filter(|it| it.way != Way::Element && is_product(it.value, names)).map(|it| it.name).collect()
    })
}

pub(super) fn closure<'c>(name: &str, more: impl Fn(&[String]) -> Vec<&'c str>) -> Vec<String> {
    let mut names = vec![name.to_owned()];
    for _ in 0..MOST_NAMES {
        let mut found: Vec<String> = more(&names).into_iter().map(str::to_owned).collect();
        found.retain(|name| !names.contains(name));
        if found.is_empty() {
            break;
        }
        names.append(&mut found);
        names.sort();
        names.dedup();
    }
    names
}

/// Whether a value is what one of some names stands for: `args.steps`, `int(steps)`, `steps or 1`, `os.environ["STEPS"]`.
pub(crate) fn is_one(value: Piece<'_>, names: &[String]) -> bool {
    let is_named = |name: &str| names.iter().any(|known| known == name);
    let mut stack = vec![value];
    while let Some(piece) = stack.pop() {
        match piece.kind() {
            "parenthesized_expression" | "boolean_operator" => stack.extend(piece.children()),
            "conditional_expression" => {
                let parts = piece.children();
                stack.extend([parts.first(), parts.get(2)].into_iter().flatten());
            }
            "call" if matches!(piece.part("function"), "int" | "float" | "max" | "min") => {
                stack.extend(piece.arguments());
            }
            "call" if matches!(piece.callee(), "get" | "getenv" | "getattr") => {
                let mut strings = piece.arguments().into_iter().filter(|it| it.kind() == "string");
                if strings.any(|it| is_named(it.text().trim_matches(['"', '\'']))) {
                    return true;
                }
            }
            "call" if is_named(piece.callee()) => return true,
            _ if piece.name().is_some_and(is_named) => return true,
            _ => {}
        }
    }
    false
}

/// Whether a value is what one of some names stands for, or a product with it.
pub(crate) fn is_product(value: Piece<'_>, names: &[String]) -> bool {
    value.factors().any(|factor| is_one(factor, names))
}

fn given_by<'c>(piece: Piece<'c>, functions: &Functions<'c>) -> Vec<Given<'c>> {
    let pair = |name: &str, value: &str| Some((piece.field(name)?, piece.field(value)?));
    let to = |name: Option<&'c str>, value: Piece<'c>, way: Way| {
        name.filter(|name| !name.is_empty()).map(|name| Given { name, value, way })
    };
    let each = |left: Piece<'c>, right: Piece<'c>, way: Way| -> Vec<Given<'c>> {
        pairs(left, right).into_iter().filter_map(|(left, right)| to(left.name(), right, way)).collect()
    };
    match piece.kind() {
        "assignment" => pair("left", "right").map(|(left, right)| each(left, right, Way::Assigned)),
        "for_statement" | "for_in_clause" => pair("left", "right").map(|(left, right)| each(left, right, Way::Element)),
        // `with scale_loss(loss) as scaled:`
        "as_pattern" => piece.children().first().zip(piece.field("alias")).map(|(value, alias)| {
            alias.children().first().and_then(|alias| to(alias.name(), *value, Way::Assigned)).into_iter().collect()
        }),
        "named_expression" | "default_parameter" | "typed_default_parameter" => {
            pair("name", "value").map(|(name, value)| each(name, value, Way::Assigned))
        }
        "pair" => pair("key", "value").map(|(key, value)| {
            let name = Some(key.text().trim_matches(['"', '\''])).filter(|_| key.kind() == "string");
            to(name, value, Way::Named).into_iter().collect()
        }),
        "call" => Some(arguments(piece, functions)),
        _ => None,
    }
    .unwrap_or_default()
}

/// What the parameters of a function are given by a call of it.
fn arguments<'c>(call: Piece<'c>, functions: &Functions<'c>) -> Vec<Given<'c>> {
    let known = functions.get(call.callee()).map(Vec::as_slice).unwrap_or_default();
    let mut given = Vec::new();
    for (index, argument) in call.arguments().into_iter().enumerate() {
        let value = argument.value();
        if argument.kind() == "keyword_argument" {
            let name = argument.part("name");
            let is_known = known.iter().any(|function| function.parameters.contains(&name));
            given.push(Given { name, value, way: if is_known { Way::Argument } else { Way::Named } });
            continue;
        }
        let names = known.iter().filter_map(|function| function.parameters.get(index));
        given.extend(names.map(|name| Given { name, value, way: Way::Argument }));
    }
    given
}

/// The targets of an assignment with what each is given: `a, b = 1, 2`, `a = b = 1`.
fn pairs<'c>(left: Piece<'c>, right: Piece<'c>) -> Vec<(Piece<'c>, Piece<'c>)> {
    const PATTERNS: [&str; 3] = ["pattern_list", "tuple_pattern", "list_pattern"];
    let right = std::iter::successors(Some(right), |it| it.field("right").filter(|_| it.kind() == "assignment"));
    let Some(right) = right.last() else { return Vec::new() };
    if !PATTERNS.contains(&left.kind()) {
        return vec![(left, right)];
    }
    let (targets, is_list) = (left.children(), matches!(right.kind(), "expression_list" | "tuple" | "list"));
    match right.children() {
        values if is_list && values.len() == targets.len() => targets.into_iter().zip(values).collect(),
        _ => left.parts_of(&PATTERNS).map(|target| (target, right)).collect(),
    }
}
