//! The training loop of a script on plain PyTorch, and the same loop with gradient accumulation.

use lowtide_config::python::{is_name, last_name, tree};
use lowtide_config::{Config, Syntax};
use tree_sitter::Node;

use crate::hard_coded::has_word;

/// A training loop, as it would be with gradient accumulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrainingLoop {
    /// The lines of the script that it takes the place of, from 1, first and last.
    pub lines: (usize, usize),
    /// The loop with gradient accumulation, in the script's own names.
    pub text: String,
}

/// What the number of micro-batches is called, which a later look at the script finds again.
const STEPS: &str = "accumulation_steps";

/// The innermost loop of a script that computes gradients and updates weights, with so many micro-batches for each
/// update; `None` where it is not written as most are.
#[must_use]
pub fn training_loop(script: &Config, accumulation: u64) -> Option<TrainingLoop> {
    if script.syntax != Syntax::Python || script.text.contains(STEPS) {
        return None;
    }
    let text = script.text.strip_prefix('\u{feff}').unwrap_or(&script.text);
    let tree = tree(text)?;
    let mut cursor = tree.walk();
    let mut stack = vec![tree.root_node()];
    let mut found = None;
    while let Some(node) = stack.pop() {
        if node.kind() == "for_statement" && !node.has_error() {
            found = Body::read(node, text).or(found);
        }
        let first = stack.len();
        stack.extend(node.named_children(&mut cursor));
        stack[first..].reverse();
    }
    let body = found?;
    let lines = (body.node.start_position().row + 1, body.statements.last()?.node.end_position().row + 1);
    Some(TrainingLoop { lines, text: body.with_accumulation(accumulation)? })
}

/// Whether a script divides something by a number of this name: the loss, so that gradients stay the same. What is only shown
/// does not count.
pub(crate) fn is_divided_by(script: &Config, name: &str) -> bool {
    let Some(tree) = tree(&script.text) else { return false };
    let field = |node: Node<'_>, name: &str| node.child_by_field_name(name).map_or("", |it| &script.text[it.byte_range()]);
    all(tree.root_node()).into_iter().any(|node| match node.kind() {
        "call" => {
            let divides = ["div", "div_", "true_divide"].contains(&last_name(field(node, "function")));
            divides && has_word(field(node, "arguments"), name)
        }
        _ => {
            let is_shown = field(node, "left").contains(".item()");
            matches!(field(node, "operator"), "/" | "/=") && !is_shown && has_word(field(node, "right"), name)
        }
    })
}

/// The names of numbers by which a script takes a remainder: `(i + 1) % steps == 0`.
pub(crate) fn counted_by(script: &Config) -> Vec<String> {
    let Some(tree) = tree(&script.text) else { return Vec::new() };
    let mut names: Vec<String> = Vec::new();
    for node in all(tree.root_node()) {
        let field = |name| node.child_by_field_name(name).map_or("", |it: Node<'_>| &script.text[it.byte_range()]);
        let name = last_name(field("right"));
        if field("operator") == "%" && is_name(name) && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

fn all(root: Node<'_>) -> Vec<Node<'_>> {
    let mut cursor = root.walk();
    let (mut nodes, mut stack) = (Vec::new(), vec![root]);
    while let Some(node) = stack.pop() {
        nodes.push(node);
        let first = stack.len();
        stack.extend(node.named_children(&mut cursor));
        stack[first..].reverse();
    }
    nodes
}

/// What a statement of the loop does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Backward,
    ZeroGrad,
    /// The optimizer's, and what goes with it: its schedule, its scaler, clipping.
    Update,
    Other,
}

struct Statement<'a> {
    node: Node<'a>,
    role: Role,
}

struct Body<'a> {
    node: Node<'a>,
    text: &'a str,
    statements: Vec<Statement<'a>>,
}

impl<'a> Body<'a> {
    /// A loop that computes gradients and updates weights, each in a statement of its own.
    fn read(node: Node<'a>, text: &'a str) -> Option<Self> {
        let body = node.child_by_field_name("body")?;
        let mut cursor = node.walk();
        let statements = body.named_children(&mut cursor).map(|node| Statement { node, role: role(node, text) });
        // A comment behind a statement stands on its line.
        let is_behind = |node: Node<'_>| {
            node.kind() == "comment" && !text[..node.start_byte()].lines().next_back().unwrap_or("").trim().is_empty()
        };
        let statements: Vec<Statement<'a>> = statements.filter(|it| !is_behind(it.node)).collect();
        let first = statements.first()?.node;
        // `for x in loader: loss.backward()`
        if first.start_position().row == node.start_position().row {
            return None;
        }
        let count = |role| statements.iter().filter(|it| it.role == role).count();
        let backward = statements.iter().position(|it| it.role == Role::Backward)?;
        let updates = statements[backward..].iter().any(|it| it.role == Role::Update);
        (count(Role::Backward) == 1 && updates).then_some(Self { node, text, statements })
    }

    fn with_accumulation(&self, accumulation: u64) -> Option<String> {
        let (left, right) = (self.part("left")?, self.part("right")?);
        let outer = " ".repeat(self.node.start_position().column);
        let mut out = format!("{outer}{STEPS} = {accumulation}\n");
        if right.starts_with("range(") {
            out.push_str(&format!("{outer}for {left} in {right}:\n"));
            self.nested(&mut out)?;
            return Some(out);
        }
        let counter = match right.strip_prefix("enumerate(") {
            Some(inner) if !inner.contains(',') && left.contains(',') => {
                out.push_str(&format!("{outer}for {left} in {right}:\n"));
                format!("({} + 1)", left.trim_start_matches('(').split(',').next()?.trim())
            }
            Some(_) => return None,
            None => {
                let piece = ["piece", "micro_step"].into_iter().find(|name| !self.text.contains(name))?;
                let left =
                    if left.contains(',') && !left.starts_with('(') { format!("({left})") } else { left.to_owned() };
                out.push_str(&format!("{outer}for {piece}, {left} in enumerate({right}, 1):\n"));
                piece.to_owned()
            }
        };
        self.counted(&mut out, &counter)?;
        Some(out)
    }

    /// Weights are updated after every so many turns of the loop.
    fn counted(&self, out: &mut String, counter: &str) -> Option<()> {
        let indent = self.indent();
        let backward = self.statements.iter().position(|it| it.role == Role::Backward)?;
        let is_update = |it: &&Statement<'_>| matches!(it.role, Role::Update | Role::ZeroGrad);
        let last = self.statements[backward..].iter().filter(is_update).map(|it| it.node.start_byte()).max()?;
        for statement in &self.statements {
            match statement.role {
                Role::Backward => out.push_str(&self.divided(statement.node)?),
                Role::Other => out.push_str(&self.lines(statement.node)),
                Role::Update | Role::ZeroGrad if statement.node.start_byte() == last => {
                    out.push_str(&format!("{indent}if {counter} % {STEPS} == 0:\n"));
                    let (zeros, updates): (Vec<_>, Vec<_>) =
                        self.statements.iter().filter(is_update).partition(|it| it.role == Role::ZeroGrad);
                    for update in updates.into_iter().chain(zeros) {
                        out.push_str(&deeper(&self.lines(update.node)));
                    }
                }
                Role::Update | Role::ZeroGrad => {}
            }
        }
        Some(())
    }

    /// Each turn of the loop is an update, and computes several micro-batches.
    fn nested(&self, out: &mut String) -> Option<()> {
        let indent = self.indent();
        let backward = self.statements.iter().position(|it| it.role == Role::Backward)?;
        let (before, after) = self.statements.split_at(backward + 1);
        for statement in before.iter().filter(|it| it.role == Role::ZeroGrad) {
            out.push_str(&self.lines(statement.node));
        }
        out.push_str(&format!("{indent}for _ in range({STEPS}):\n"));
        for statement in before {
            match statement.role {
                Role::Backward => out.push_str(&deeper(&self.divided(statement.node)?)),
                Role::ZeroGrad => {}
                Role::Update | Role::Other => out.push_str(&deeper(&self.lines(statement.node))),
            }
        }
        for statement in after {
            out.push_str(&self.lines(statement.node));
        }
        Some(())
    }

    /// The statement that computes gradients, of a loss that is divided.
    fn divided(&self, statement: Node<'_>) -> Option<String> {
        let call = statement.named_child(0)?;
        let function = call.child_by_field_name("function")?;
        let object = function.child_by_field_name("object")?;
        let scaled = first_argument(object).filter(|_| object.kind() == "call");
        // `scaler.scale(loss).backward()`, `accelerator.backward(loss)`, `loss.backward()`
        let is_given = first_argument(call).filter(|argument| argument.kind() != "keyword_argument");
        let (loss, new) = match scaled.or(is_given) {
            Some(loss) => (loss, format!("{} / {STEPS}", self.slice(loss))),
            None => (object, format!("({} / {STEPS})", self.slice(object))),
        };
        let line = self.text[statement.byte_range()].to_owned();
        let at = loss.start_byte() - statement.start_byte()..loss.end_byte() - statement.start_byte();
        let mut line = format!("{}{line}\n", self.indent());
        let shift = self.indent().len();
        line.replace_range(at.start + shift..at.end + shift, &new);
        Some(line)
    }

    /// The lines of a statement, whole.
    fn lines(&self, node: Node<'_>) -> String {
        let start = self.text[..node.start_byte()].rfind('\n').map_or(0, |newline| newline + 1);
        let end = self.text[node.end_byte()..].find('\n').map_or(self.text.len(), |newline| node.end_byte() + newline);
        format!("{}\n", self.text[start..end].trim_end())
    }

    fn indent(&self) -> String {
        " ".repeat(self.statements[0].node.start_position().column)
    }

    fn part(&self, name: &str) -> Option<&'a str> {
        self.node.child_by_field_name(name).map(|node| self.slice(node))
    }

    fn slice(&self, node: Node<'_>) -> &'a str {
        &self.text[node.byte_range()]
    }
}

fn first_argument<'a>(call: Node<'a>) -> Option<Node<'a>> {
    call.child_by_field_name("arguments")?.named_child(0)
}

fn role(statement: Node<'_>, text: &str) -> Role {
    let call = statement.named_child(0).filter(|call| call.kind() == "call" && statement.named_child_count() == 1);
    let function = call.and_then(|call| call.child_by_field_name("function"));
    match function.map_or("", |function| last_name(&text[function.byte_range()])) {
        "backward" | "manual_backward" => Role::Backward,
        "zero_grad" => Role::ZeroGrad,
        "step" | "update" | "unscale_" | "clip_grad_norm_" | "clip_grad_value_" => Role::Update,
        _ => Role::Other,
    }
}

/// Lines of code, indented further.
fn deeper(lines: &str) -> String {
    lines.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<((usize, usize), &str)>) {
        let config = Config::parse_as(Syntax::Python, "t.py", text).unwrap();
        let found = training_loop(&config, 4);
        let found = found.as_ref().map(|it| (it.lines, &*it.text));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn a_loop_over_a_loader() {
        check(
            "for epoch in range(3):\n    for x, y in loader:\n        optimizer.zero_grad()\n        loss = f(model(x), y)  # it\n        \
             loss.backward()\n        clip_grad_norm_(model.parameters(), 1.0)\n        optimizer.step()\n        scheduler.step()\n        \
             print(loss.item())\n    evaluate()\n",
            Some((
                (2, 9),
                "    accumulation_steps = 4\n    for piece, (x, y) in enumerate(loader, 1):\n        loss = f(model(x), y)  # it\n        \
                 (loss / accumulation_steps).backward()\n        if piece % accumulation_steps == 0:\n            \
                 clip_grad_norm_(model.parameters(), 1.0)\n            optimizer.step()\n            scheduler.step()\n            \
                 optimizer.zero_grad()\n        print(loss.item())\n",
            )),
        );
        check(
            "for i, batch in enumerate(tqdm(loader)):\n    with autocast():\n        loss = m(batch)\n    scaler.scale(loss).backward()\n    \
             scaler.step(opt)\n    scaler.update()\n    opt.zero_grad()\n",
            Some((
                (1, 7),
                "accumulation_steps = 4\nfor i, batch in enumerate(tqdm(loader)):\n    with autocast():\n        loss = m(batch)\n    \
                 scaler.scale(loss / accumulation_steps).backward()\n    if (i + 1) % accumulation_steps == 0:\n        \
                 scaler.step(opt)\n        scaler.update()\n        opt.zero_grad()\n",
            )),
        );
    }

    #[test]
    fn a_loop_over_steps() {
        check(
            "for step in range(100):\n    x, y = get_batch('train')\n    loss = m(x, y)\n    opt.zero_grad(set_to_none=True)\n    \
             loss.backward()\n    opt.step()\n",
            Some((
                (1, 6),
                "accumulation_steps = 4\nfor step in range(100):\n    opt.zero_grad(set_to_none=True)\n    for _ in range(accumulation_steps):\n        \
                 x, y = get_batch('train')\n        loss = m(x, y)\n        (loss / accumulation_steps).backward()\n    opt.step()\n",
            )),
        );
    }

    #[test]
    fn what_is_written_in_another_way_is_left_alone() {
        check("for x in loader:\n    loss = m(x)\n", None);
        check("for x in loader:\n    if ok:\n        loss.backward()\n        opt.step()\n", None);
        check("for x in loader: loss.backward()\n", None);
        check("for i, x in enumerate(loader, start=1):\n    loss.backward()\n    opt.step()\n", None);
    }

    #[test]
    fn a_loss_is_divided() {
        let divided = |text: &str| is_divided_by(&Config::parse_as(Syntax::Python, "t.py", text).unwrap(), "N");
        assert!(
            divided("loss = loss / cfg['N']\n")
                && divided("loss = loss / N\n")
                && divided("loss /= args.N\n")
                && divided("(loss / N).backward()\n")
        );
        assert!(!divided("x = N / 2\ny = step % N\nz = a // N\n"));
    }
}
