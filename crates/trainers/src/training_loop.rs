//! The training loop of a script on plain PyTorch, and the same loop with gradient accumulation.

use lowtide_config::python::{is_name, last_name, tree};
use lowtide_config::{Config, Syntax};
use tree_sitter::Node;

use crate::code::{Code, has_word, is_of_sum};
use crate::nodes::{all, children};

/// A training loop, as it would be with gradient accumulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrainingLoop {
    /// The lines of the script that it takes the place of, from 1, first and last.
    pub lines: (usize, usize),
    /// The loop with gradient accumulation, in the script's own names.
    pub text: String,
}

/// Why a loop is not written down with gradient accumulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoopGap {
    /// There is none that is written as most are.
    Unknown,
    /// It computes gradients so often in each turn, of several losses: for an optimizer each, as in a GAN.
    SeveralLosses(usize),
    /// The model takes a state from one batch to the next, which has a place for each sample.
    CarriesState,
}

/// What the number of micro-batches is called, which a later look at the script finds again.
const STEPS: &str = "accumulation_steps";

/// The innermost loop of a script that computes gradients and updates weights, with so many micro-batches for each
/// update.
///
/// It is the same training: a group of micro-batches has the samples that one batch had, the last group of an epoch too, and
/// each of them counts by its number of samples.
///
/// # Errors
///
/// Why there is none.
pub fn training_loop(script: &Config, accumulation: u64) -> Result<TrainingLoop, LoopGap> {
    if script.syntax != Syntax::Python || script.text.contains(STEPS) {
        return Err(LoopGap::Unknown);
    }
    let text = script.text.strip_prefix('\u{feff}').unwrap_or(&script.text);
    let tree = tree(text).ok_or(LoopGap::Unknown)?;
    let loops = all(tree.root_node()).into_iter().filter(|node| node.kind() == "for_statement" && !node.has_error());
    let bodies: Vec<Body<'_>> = loops.filter_map(|node| Body::read(node, text)).collect();
    let body = bodies.last().ok_or(LoopGap::Unknown)?;
    let losses = body.statements.iter().filter(|it| it.role == Role::Backward).count();
    if losses > 1 {
        return Err(LoopGap::SeveralLosses(losses));
    }
    if body.carries_state() {
        return Err(LoopGap::CarriesState);
    }
    let last = body.statements.last().ok_or(LoopGap::Unknown)?.node;
    let lines = (body.node.start_position().row + 1, last.end_position().row + 1);
    let is_sum = body.statements.iter().find(|it| it.role == Role::Backward).is_some_and(|loss| {
        let range = loss.node.byte_range();
        is_of_sum(&Code::read([script]), |call| call.range().start >= range.start && call.range().end <= range.end)
    });
    let text =
        body.with_accumulation(accumulation, if is_sum { Loss::Sum } else { Loss::Mean }).ok_or(LoopGap::Unknown)?;
    Ok(TrainingLoop { lines, text })
}

/// What a loss is over its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// Those of all micro-batches make that of the update.
    Sum,
    Mean,
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
        let backward = statements.iter().position(|it| it.role == Role::Backward)?;
        let updates = statements[backward..].iter().any(|it| it.role == Role::Update);
        // Where tabs indent, ours would stand between them.
        let is_plain = !text.lines().any(|line| line.starts_with('\t'));
        (updates && is_plain).then_some(Self { node, text, statements })
    }

    fn with_accumulation(&self, accumulation: u64, loss: Loss) -> Option<String> {
        let outer = " ".repeat(self.node.start_position().column);
        let right = self.node.child_by_field_name("right")?;
        let is_call = |name: &str| right.kind() == "call" && self.field(right, "function") == Some(name);
        if self.hides_an_update() {
            return None;
        }
        let mut out = format!("{outer}{STEPS} = {accumulation}\n");
        if is_call("range") {
            out.push_str(&format!("{outer}for {} in {}:\n", self.part("left")?, self.slice(right)));
            self.nested(&mut out, loss)?;
            return Some(out);
        }
        let [group, batches, samples] = ["group", "micro_batches", "samples"].map(|name| self.free(name));
        let (counter, target, loader, more) = match is_call("enumerate") {
            true => self.enumerated(right)?,
            false => (None, self.part("left")?.to_owned(), self.slice(right).to_owned(), String::new()),
        };
        let target = if target.contains(',') && !target.starts_with('(') { format!("({target})") } else { target };
        let groups = match self.text.contains("drop_last=True") {
            // What a loader leaves out of the last batch is left out of the last group.
            true => format!("zip(*[{batches}] * {STEPS})"),
            false => format!("iter(lambda: list(itertools.islice({batches}, {STEPS})), [])"),
        };
        if !groups.starts_with("zip") {
            out.insert_str(0, &format!("{outer}import itertools\n"));
        }
        out.push_str(&format!("{outer}{batches} = iter({loader})\n"));
        match counter {
            Some(counter) => out.push_str(&format!("{outer}for {counter}, {group} in enumerate({groups}{more}):\n")),
            None => out.push_str(&format!("{outer}for {group} in {groups}:\n")),
        }
        self.grouped(&mut out, [&group, &samples], target.trim_matches(['(', ')']), loss)?;
        Some(out)
    }

    /// `for i, (x, y) in enumerate(loader, 1)`: the counter, the target, the loader and what else it is given.
    fn enumerated(&self, call: Node<'_>) -> Option<(Option<String>, String, String, String)> {
        let left = self.node.child_by_field_name("left")?;
        let (counter, target) = match children(left).as_slice() {
            [counter, target] => (self.slice(*counter).to_owned(), self.slice(*target).to_owned()),
            _ => return None,
        };
        let arguments = children(call.child_by_field_name("arguments")?);
        let (loader, more) = arguments.split_first()?;
        let more: String = more.iter().map(|argument| format!(", {}", self.slice(*argument))).collect();
        Some((Some(counter), target, self.slice(*loader).to_owned(), more))
    }

    /// A name that the script does not have.
    fn free(&self, name: &str) -> String {
        if has_word(self.text, name) { format!("{name}_") } else { name.to_owned() }
    }

    /// Weights are updated after every group of micro-batches, of which each counts by its samples.
    fn grouped(&self, out: &mut String, [group, samples]: [&str; 2], target: &str, kind: Loss) -> Option<()> {
        let indent = self.indent();
        let backward = self.statements.iter().position(|it| it.role == Role::Backward)?;
        let (before, after) = self.statements.split_at(backward);
        let (loss, after) = after.split_first()?;
        let names = self.names_of_a_micro_batch(target, before);
        let of_it = |it: &&Statement<'_>| {
            let text = &self.text[it.node.byte_range()];
            it.role == Role::Other && names.iter().any(|name| has_word(text, name))
        };
        let leaves = |it: &Statement<'_>| {
            all(it.node).iter().any(|node| matches!(node.kind(), "break_statement" | "continue_statement"))
        };
        let is_first = |it: &Statement<'_>| it.role == Role::ZeroGrad || leaves(it) && !of_it(&it);
        if before.iter().chain(after).any(|it| leaves(it) && of_it(&it)) {
            return None;
        }
        before.iter().filter(|it| is_first(it)).for_each(|it| out.push_str(&self.lines(it.node)));
        let count = count_of(target, &self.text[self.node.byte_range()]);
        let share = match &count {
            _ if kind == Loss::Sum => String::new(),
            Some(count) => {
                out.push_str(&format!("{indent}{samples} = sum({count} for {target} in {group})\n"));
                format!(" * {count} / {samples}")
            }
            None => format!(" / len({group})"),
        };
        out.push_str(&format!("{indent}for {target} in {group}:\n"));
        let inner = before.iter().filter(|it| !is_first(it));
        inner.for_each(|it| out.push_str(&deeper(&self.lines(it.node))));
        out.push_str(&deeper(&self.divided(loss.node, &share)?));
        after.iter().filter(of_it).for_each(|it| out.push_str(&deeper(&self.lines(it.node))));
        after.iter().filter(|it| !of_it(it)).for_each(|it| out.push_str(&self.lines(it.node)));
        Some(())
    }

    /// The names that a micro-batch has for itself and for what is computed of it.
    fn names_of_a_micro_batch(&self, target: &str, before: &[Statement<'_>]) -> Vec<String> {
        let words = |text: &str| -> Vec<String> {
            let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
            words.filter(|word| is_name(word) && *word != "_").map(str::to_owned).collect()
        };
        let mut names = words(target);
        for statement in before.iter().filter(|it| it.role == Role::Other) {
            for node in all(statement.node).into_iter().filter(|node| node.kind() == "assignment") {
                let right = self.field(node, "right").unwrap_or_default();
                if names.iter().any(|name| has_word(right, name)) {
                    names.extend(words(self.field(node, "left").unwrap_or_default()));
                }
            }
        }
        names
    }

    /// Whether what is computed of one batch goes into the next: `out, hidden = model(x, hidden)`.
    fn carries_state(&self) -> bool {
        let is_backward = |it: &&Statement<'_>| it.role != Role::Backward;
        let before = self.statements.iter().take_while(is_backward).flat_map(|it| all(it.node));
        let mut own = vec![self.part("left").unwrap_or_default()];
        for assignment in before.filter(|node| node.kind() == "assignment") {
            let (Some(left), Some(right)) =
                (assignment.child_by_field_name("left"), assignment.child_by_field_name("right"))
            else {
                continue;
            };
            let targets = all(left).into_iter().filter(|node| node.kind() == "identifier").map(|node| self.slice(node));
            let is_new = |name: &&str| !own.iter().any(|known| has_word(known, name));
            let is_carried = |name: &str| {
                left.kind() == "pattern_list" && right.kind() == "call" && has_word(self.slice(right), name)
            };
            if targets.filter(is_new).any(is_carried) {
                return true;
            }
            // What a state is only detached by makes it no batch's own.
            if !all(left).into_iter().any(|node| has_word(self.slice(right), self.slice(node))) {
                own.push(self.slice(left));
            }
        }
        false
    }

    /// Each turn of the loop is an update, and computes several micro-batches.
    fn nested(&self, out: &mut String, loss: Loss) -> Option<()> {
        let indent = self.indent();
        let backward = self.statements.iter().position(|it| it.role == Role::Backward)?;
        let (before, after) = self.statements.split_at(backward + 1);
        // What the turn's number chooses would be computed several times.
        let number = self.part("left")?;
        let is_chosen =
            |node: &Node<'_>| matches!(node.kind(), "subscript" | "slice") && has_word(self.slice(*node), number);
        if before.iter().flat_map(|it| all(it.node)).any(|node| is_chosen(&node)) {
            return None;
        }
        for statement in before.iter().filter(|it| it.role == Role::ZeroGrad) {
            out.push_str(&self.lines(statement.node));
        }
        out.push_str(&format!("{indent}for _ in range({STEPS}):\n"));
        for statement in before {
            match statement.role {
                Role::Backward => {
                    let share = if loss == Loss::Sum { String::new() } else { format!(" / {STEPS}") };
                    out.push_str(&deeper(&self.divided(statement.node, &share)?));
                }
                Role::ZeroGrad => {}
                Role::Update | Role::Other => out.push_str(&deeper(&self.lines(statement.node))),
            }
        }
        for statement in after {
            out.push_str(&self.lines(statement.node));
        }
        Some(())
    }

    /// The statement that computes gradients, of a loss of which it takes a share: ` / 4`.
    fn divided(&self, statement: Node<'_>, share: &str) -> Option<String> {
        if share.is_empty() {
            return Some(self.lines(statement));
        }
        let call = statement.named_child(0)?;
        let function = call.child_by_field_name("function")?;
        let object = function.child_by_field_name("object")?;
        let scaled = first_argument(object).filter(|_| object.kind() == "call");
        // `scaler.scale(loss).backward()`, `accelerator.backward(loss)`, `loss.backward()`
        let is_given = first_argument(call).filter(|argument| argument.kind() != "keyword_argument");
        let (loss, new) = match scaled.or(is_given) {
            Some(loss) => (loss, format!("{}{share}", self.bracketed(loss))),
            None => (object, format!("({}{share})", self.bracketed(object))),
        };
        let line = self.text[statement.byte_range()].to_owned();
        let at = loss.start_byte() - statement.start_byte()..loss.end_byte() - statement.start_byte();
        let mut line = format!("{}{line}\n", self.indent());
        let shift = self.indent().len();
        line.replace_range(at.start + shift..at.end + shift, &new);
        Some(line)
    }

    /// An expression that a share is taken of.
    fn bracketed(&self, loss: Node<'_>) -> String {
        match loss.kind() {
            "binary_operator" | "conditional_expression" | "unary_operator" => format!("({})", self.slice(loss)),
            _ => self.slice(loss).to_owned(),
        }
    }

    /// Whether a statement with others in it, such as `with autocast():`, has one among them that is for whole groups only.
    fn hides_an_update(&self) -> bool {
        let is_hidden = |node: &Node<'_>| {
            let role = if node.kind() == "expression_statement" { role(*node, self.text) } else { Role::Other };
            matches!(role, Role::Backward | Role::ZeroGrad)
        };
        self.statements.iter().any(|it| it.role == Role::Other && all(it.node).iter().any(is_hidden))
    }

    /// Whether a statement shares its line with another: `opt.zero_grad(); loss = f(x)`.
    fn shares_its_line(&self, node: Node<'_>) -> bool {
        let rows = |node: Node<'_>| node.start_position().row..=node.end_position().row;
        let touches =
            |it: &Statement<'_>| it.node.id() != node.id() && rows(it.node).any(|row| rows(node).contains(&row));
        self.statements.iter().any(touches)
    }

    /// The lines of a statement, whole; of one that shares its line, what is its own.
    fn lines(&self, node: Node<'_>) -> String {
        if self.shares_its_line(node) {
            return format!("{}{}\n", self.indent(), self.slice(node));
        }
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

    fn field(&self, node: Node<'_>, name: &str) -> Option<&'a str> {
        node.child_by_field_name(name).map(|node| self.slice(node))
    }

    fn slice(&self, node: Node<'_>) -> &'a str {
        &self.text[node.byte_range()]
    }
}

/// How many samples a micro-batch has, by the names that the loop has for it and what it takes of it; `None` where that does
/// not show.
fn count_of(target: &str, text: &str) -> Option<String> {
    if let Some((first, _)) = target.split_once(',') {
        return is_name(first.trim()).then(|| format!("len({})", first.trim()));
    }
    if !is_name(target) {
        return None;
    }
    let behind = |before: &str| text.split(before).nth(1);
    let item = text.match_indices(&format!("{target}[")).find_map(|(at, _)| {
        let is_other = text[..at].ends_with(|c: char| c.is_alphanumeric() || "_.".contains(c));
        text[at..]
            .split_once(']')
            .map(|(item, _)| format!("len({item}])"))
            .filter(|item| !is_other && !item.contains(':'))
    });
    let values = || {
        let is_dict = behind(&format!("**{target}")).or(behind(&format!("{target}.items()"))).is_some();
        is_dict.then(|| format!("len(next(iter({target}.values())))"))
    };
    let whole = || behind(&format!("({target})")).map(|_| format!("len({target})"));
    item.or_else(values).or_else(whole)
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
    fn check(text: &str, expected: Result<((usize, usize), &str), LoopGap>) {
        let config = Config::parse_as(Syntax::Python, "t.py", text).unwrap();
        let found = training_loop(&config, 4);
        let found = found.as_ref().map(|it| (it.lines, &*it.text)).map_err(|gap| *gap);
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn a_loop_over_a_loader() {
        check(
            "for epoch in range(3):\n    for x, y in loader:\n        optimizer.zero_grad()\n        loss = f(model(x), y)  # it\n        \
             loss.backward()\n        clip_grad_norm_(model.parameters(), 1.0)\n        optimizer.step()\n        scheduler.step()\n        \
             print(loss.item())\n        steps += 1\n    evaluate()\n",
            Ok((
                (2, 10),
                "    import itertools\n    accumulation_steps = 4\n    micro_batches = iter(loader)\n    \
                 for group in iter(lambda: list(itertools.islice(micro_batches, accumulation_steps)), []):\n        \
                 optimizer.zero_grad()\n        samples = sum(len(x) for x, y in group)\n        for x, y in group:\n            \
                 loss = f(model(x), y)  # it\n            (loss * len(x) / samples).backward()\n            print(loss.item())\n        \
                 clip_grad_norm_(model.parameters(), 1.0)\n        optimizer.step()\n        scheduler.step()\n        steps += 1\n",
            )),
        );
    }

    #[test]
    fn a_loop_with_a_scaler_and_a_counter() {
        check(
            "loader = DataLoader(d, 16, drop_last=True)\nfor i, batch in enumerate(tqdm(loader, disable=True), 1):\n    \
             with autocast():\n        loss = m(batch['x'].to(c))\n    scaler.scale(loss).backward()\n    \
             scaler.step(opt)\n    scaler.update()\n    opt.zero_grad()\n",
            Ok((
                (2, 8),
                "accumulation_steps = 4\nmicro_batches = iter(tqdm(loader, disable=True))\n\
                 for i, group in enumerate(zip(*[micro_batches] * accumulation_steps), 1):\n    \
                 samples = sum(len(batch['x']) for batch in group)\n    for batch in group:\n        with autocast():\n            \
                 loss = m(batch['x'].to(c))\n        scaler.scale(loss * len(batch['x']) / samples).backward()\n    \
                 scaler.step(opt)\n    scaler.update()\n    opt.zero_grad()\n",
            )),
        );
    }

    #[test]
    fn statements_that_share_a_line() {
        let expected = "import itertools\naccumulation_steps = 4\nmicro_batches = iter(loader)\n\
             for group in iter(lambda: list(itertools.islice(micro_batches, accumulation_steps)), []):\n    \
             opt.zero_grad()\n    samples = sum(len(x) for x, y in group)\n    for x, y in group:\n        \
             loss = f(x, y)\n        (loss * len(x) / samples).backward()\n";
        check(
            "for x, y in loader:\n    opt.zero_grad(); loss = f(x, y); loss.backward(); opt.step()  # all\n",
            Ok(((1, 2), &format!("{expected}    opt.step()\n"))),
        );
        check(
            "for x, y in loader:\n    opt.zero_grad()\n    loss = f(x, y); loss.backward()\n    opt.step(); total += loss.item()\n",
            Ok(((1, 4), &format!("{expected}        total += loss.item()\n    opt.step()\n"))),
        );
    }

    #[test]
    fn samples_of_a_batch() {
        for (target, text, expected) in [
            ("x, y", "", Some("len(x)")),
            ("batch", "x, y = batch[0].to(d), batch[1]", Some("len(batch[0])")),
            ("batch", "out = model(**batch)", Some("len(next(iter(batch.values())))")),
            ("batch", "out = model(batch)", Some("len(batch)")),
            ("batch", "out = model(batch.x, micro_batch[0])", None),
        ] {
            assert_eq!(count_of(target, text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_loop_over_steps() {
        check(
            "for step in range(100):\n    x, y = get_batch('train')\n    loss = m(x, y)\n    opt.zero_grad(set_to_none=True)\n    \
             loss.backward()\n    opt.step()\n",
            Ok((
                (1, 6),
                "accumulation_steps = 4\nfor step in range(100):\n    opt.zero_grad(set_to_none=True)\n    for _ in range(accumulation_steps):\n        \
                 x, y = get_batch('train')\n        loss = m(x, y)\n        (loss / accumulation_steps).backward()\n    opt.step()\n",
            )),
        );
    }

    #[test]
    fn sums_are_not_divided() {
        check(
            "def f(r, x): return binary_cross_entropy(r, x, reduction='sum') + kld\nfor i, (x, _) in enumerate(loader):\n    opt.zero_grad()\n    \
             loss = f(model(x), x)\n    loss.backward()\n    total += loss.item()\n    opt.step()\n",
            Ok((
                (2, 7),
                "import itertools\naccumulation_steps = 4\nmicro_batches = iter(loader)\n\
                 for i, group in enumerate(iter(lambda: list(itertools.islice(micro_batches, accumulation_steps)), [])):\n    \
                 opt.zero_grad()\n    for x, _ in group:\n        loss = f(model(x), x)\n        loss.backward()\n        \
                 total += loss.item()\n    opt.step()\n",
            )),
        );
    }

    #[test]
    fn a_state_that_goes_from_batch_to_batch() {
        let looped = |body: &str| {
            format!("for x, y in loader:\n{body}    loss = f(out, y)\n    loss.backward()\n    opt.step()\n")
        };
        let state = "    if rnn:\n        hidden = detach(hidden)\n        out, hidden = model(x, hidden)\n";
        check(&looped(state), Err(LoopGap::CarriesState));
        let config = |text: &str| Config::parse_as(Syntax::Python, "t.py", text).unwrap();
        for own in [
            "    hidden = zeros(len(x))\n    out, hidden = model(x, hidden)\n",
            "    x, y = move(x, y)\n    out = model(x)\n",
        ] {
            assert!(training_loop(&config(&looped(own)), 4).is_ok(), "{own}");
        }
    }

    #[test]
    fn what_is_written_in_another_way_is_left_alone() {
        for text in [
            "for x in loader:\n    loss = m(x)\n",
            "for x in loader:\n    if ok:\n        loss.backward()\n        opt.step()\n",
            "for x in loader: loss.backward()\n",
            "for x in loader:\n    loss = m(x)\n    if isnan(loss): continue\n    loss.backward()\n    opt.step()\n",
            "for x in loader:\n    with autocast():\n        opt.zero_grad()\n        loss = m(x)\n    loss.backward()\n    opt.step()\n",
            "for x in loader:\n    with autocast():\n        loss = m(x)\n        loss.backward()\n    opt.step()\n",
            "for x in loader:\n\tloss = m(x)\n\tloss.backward()\n\topt.step()\n",
            "for x, y in loader: opt.zero_grad(); loss = m(x); loss.backward(); opt.step()\n",
            "for i in range(0, 100, 8):\n    loss = m(x[i:i + 8])\n    loss.backward()\n    opt.step()\n",
        ] {
            check(text, Err(LoopGap::Unknown));
        }
        check(
            "for x in loader:\n    d(x).backward(); od.step()\n    g(x).backward(); og.step()\n",
            Err(LoopGap::SeveralLosses(2)),
        );
    }
}
