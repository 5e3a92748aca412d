//! Whether a loss is divided by the number of micro-batches that are accumulated, under whatever name that number goes.

use lowtide_config::python::{last_name, tree};
use lowtide_config::{Config, Syntax};
use tree_sitter::Node;

use crate::Flag;
use crate::answer::place;
use crate::declaration::declarations_of;
use crate::hard_coded::has_word;
use crate::nodes::{all, children};
use crate::training_loop::is_divided_by;

/// What divides by itself.
const LIBRARIES: [&str; 4] = ["deepspeed", ".accumulate(", "accumulate_grad_batches=", "gradient_accumulation_steps="];
/// How often a number is given another name on its way to the loop.
const MOST_NAMES: usize = 5;

/// Why more accumulation by a flag would change the gradients: one of the scripts computes some, and none divides by the
/// flag's number or hands it to a library. `None` where it would not, or where the loop is not to be seen.
#[must_use]
pub fn undivided(configs: &[Config], flag: &Flag) -> Option<String> {
    let mut declared = declarations_of(configs).into_iter().map(|(_, it)| it);
    let declared = declared.find(|it| it.flags.iter().any(|known| known.starts_with(&flag.spelling)))?;
    let scripts = || configs.iter().filter(|config| config.syntax == Syntax::Python);
    let (computes, at) = scripts().find_map(|script| Some((script, script.text.find("backward(")?)))?;
    if divides_by(configs, &declared.name) {
        return None;
    }
    let (at, it) = (place(computes, at), flag.with(flag.number));
    Some(format!("{at}: the loss is not divided by {it}, so that another would change the gradients"))
}

/// Whether one of the scripts divides by a number of a name, or something that it has does so.
#[must_use]
pub fn divides_by(configs: &[Config], name: &str) -> bool {
    let scripts: Vec<&Config> = configs.iter().filter(|config| config.syntax == Syntax::Python).collect();
    let by_library = |script: &&Config| LIBRARIES.iter().any(|word| script.text.contains(word));
    let names = names_of(name, &scripts);
    let divides = |script: &&Config| names.iter().any(|name| is_divided_by(script, name));
    scripts.iter().any(|script| by_library(script) || divides(script))
}

/// A name and all others that its value is given to.
fn names_of(name: &str, scripts: &[&Config]) -> Vec<String> {
    let mut names = vec![name.to_owned()];
    let trees: Vec<_> = scripts.iter().filter_map(|script| Some((tree(&script.text)?, &*script.text))).collect();
    for _ in 0..MOST_NAMES {
        let mut more = Vec::new();
        for (tree, text) in &trees {
            more.extend(all(tree.root_node()).into_iter().flat_map(|node| given_names(node, text, &names, &trees)));
        }
        more.retain(|name| !names.contains(name));
        if more.is_empty() {
            break;
        }
        names.append(&mut more);
        names.sort();
        names.dedup();
    }
    names
}

/// The names that a node gives the value of one of some names: `n = args.steps`, `train(n=args.steps)`, `train(args.steps)`.
fn given_names(node: Node<'_>, text: &str, names: &[String], trees: &[(tree_sitter::Tree, &str)]) -> Vec<String> {
    let slice = |node: Node<'_>| &text[node.byte_range()];
    let is_it = |value: Node<'_>| match value.kind() {
        "identifier" | "attribute" | "subscript" => {
            let name = last_name(slice(value).trim_end_matches([']', '"', '\'']));
            names.iter().any(|known| name.rsplit(['[', '"', '\'']).next() == Some(known))
        }
        "call" => {
            let function = value.child_by_field_name("function").map_or("", slice);
            ["int", "float", "max"].contains(&function) && names.iter().any(|name| has_word(slice(value), name))
        }
        _ => false,
    };
    let field = |name: &str| node.child_by_field_name(name);
    match node.kind() {
        "assignment" => {
            let (Some(left), Some(right)) = (field("left"), field("right")) else { return Vec::new() };
            let pairs: Vec<_> = match (left.kind(), right.kind()) {
                ("pattern_list", "expression_list") => children(left).into_iter().zip(children(right)).collect(),
                _ => vec![(left, right)],
            };
            let given = pairs.into_iter().filter(|(_, right)| is_it(*right));
            given.map(|(left, _)| last_name(slice(left)).to_owned()).collect()
        }
        "keyword_argument" if field("value").is_some_and(is_it) => {
            field("name").map(|name| slice(name).to_owned()).into_iter().collect()
        }
        "call" => {
            let arguments = field("arguments").map(children).unwrap_or_default();
            let function = field("function").map_or("", |function| last_name(slice(function)));
            let positions = arguments.iter().enumerate().filter(|(_, argument)| is_it(**argument));
            positions.filter_map(|(index, _)| parameter(function, index, trees)).collect()
        }
        _ => Vec::new(),
    }
}

/// What a function of the scripts calls its argument at a place.
fn parameter(function: &str, index: usize, trees: &[(tree_sitter::Tree, &str)]) -> Option<String> {
    trees.iter().find_map(|(tree, text)| {
        let slice = |node: Node<'_>| &text[node.byte_range()];
        let is_it = |node: &Node<'_>| {
            node.kind() == "function_definition"
                && node.child_by_field_name("name").is_some_and(|it| slice(it) == function)
        };
        let definition = all(tree.root_node()).into_iter().find(is_it)?;
        let parameters = children(definition.child_by_field_name("parameters")?).into_iter();
        let names = parameters.map(|it| slice(it).split([':', '=']).next().unwrap_or_default().trim().to_owned());
        names.filter(|name| name != "self").nth(index)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTION: &str = "p.add_argument('--grad-accum', type=int, default=1)\na = p.parse_args()\n";

    fn why(script: &str) -> Option<String> {
        let config = Config::parse_as(Syntax::Python, "t.py", &format!("{OPTION}{script}")).unwrap();
        undivided(&[config], &Flag { spelling: "--grad-accum".to_owned(), number: 1 })
    }

    #[test]
    fn a_loss_that_is_not_divided_by_the_flag() {
        let why_not =
            "t.py, line 3: the loss is not divided by --grad-accum=1, so that another would change the gradients";
        for script in [
            "loss.backward()\nif (i + 1) % a.grad_accum == 0: opt.step()\n",
            "loss.backward()\nshown += loss.item() / a.grad_accum\n",
        ] {
            assert_eq!(why(script).as_deref(), Some(why_not), "{script}");
        }
        for script in [
            "(loss / a.grad_accum).backward()\n",
            "loss /= a.grad_accum\nloss.backward()\n",
            "n = a.grad_accum\nloss = loss / n\nloss.backward()\n",
            "m, n = a.m, a.grad_accum\nloss.div_(n).backward()\n",
            "def train(model, steps): (f(model) / steps).backward()\ntrain(net, a.grad_accum)\n",
            "def train(*, steps): (f() * (1.0 / steps)).backward()\ntrain(steps=max(1, a.grad_accum))\n",
            "self.steps = a.grad_accum\nloss = loss / self.steps\nloss.backward()\n",
            "x = Accelerator(gradient_accumulation_steps=a.grad_accum)\nx.backward(loss)\n",
            // The loop is elsewhere.
            "import engine\nengine.train(a)\n",
        ] {
            assert_eq!(why(script), None, "{script}");
        }
    }
}
