//! The call in a script that begins the training, and what makes it resume from a checkpoint.
//!
//! Whose call it is shows by what its object is made by: a class whose name ends in `Trainer`, or one of the script's own
//! that is derived from such a class. A name that says so itself is taken where nothing shows what it is made by.

use lowtide_config::python::{last_name, tree};
use tree_sitter::Node;

use crate::nodes::{all, children};

/// The one call that begins the training, which takes a checkpoint by a keyword that it does not have yet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResumeCall {
    /// The call, as people would write it down: `t.train()`, `Trainer(...).train()`.
    pub call: String,
    /// The keyword.
    pub keyword: &'static str,
    /// What is other than it would have been without the stop.
    pub caveat: &'static str,
    /// The method that trains.
    method: &'static str,
}

/// A call of a trainer's method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrainerCall {
    /// Whose method it is, as the script has it; a call without its arguments.
    pub(crate) receiver: String,
    /// Its line, from 1.
    pub(crate) line: usize,
    /// Where its closing bracket stands.
    end: usize,
    /// Its arguments.
    arguments: String,
    /// How many of them have no name; all that may be, where one stands for others: `*arguments`, `**named`.
    unnamed: usize,
}

impl TrainerCall {
    /// Whether it has a keyword already, or an argument in its place.
    fn has(&self, keyword: &str) -> bool {
        let place = if keyword == "ckpt_path" { 4 } else { 0 };
        self.arguments.contains(keyword) || self.unnamed > place
    }
}

/// The calls of a trainer's method in a script, in their order.
pub(crate) fn trainer_calls(script: &str, method: &str) -> Vec<TrainerCall> {
    let body = script.strip_prefix('\u{feff}').unwrap_or(script);
    let mark = script.len() - body.len();
    let Some(tree) = tree(body) else { return Vec::new() };
    let nodes = all(tree.root_node());
    let trainers = Trainers::read(&nodes, body);
    let calls = nodes.iter().filter(|node| node.kind() == "call" && !node.has_error());
    calls.filter_map(|call| trainers.call(*call, method, mark)).collect()
}

impl ResumeCall {
    /// Finds the one call of a trainer's method, such as `train`.
    pub(crate) fn find(
        script: &str,
        method: &'static str,
        keyword: &'static str,
        caveat: &'static str,
    ) -> Option<Self> {
        let calls = trainer_calls(script, method);
        let [call] = calls.as_slice() else { return None };
        let shown = if call.arguments.is_empty() { "" } else { "..." };
        let call_text = format!("{}.{method}({shown})", call.receiver);
        (!call.has(keyword)).then_some(Self { call: call_text, keyword, caveat, method })
    }

    /// A text of the script in which the call resumes; `None` where the call is not in it, or the path is no plain text.
    #[must_use]
    pub fn applied(&self, script: &str, checkpoint: &str) -> Option<String> {
        let calls = trainer_calls(script, self.method);
        let [call] = calls.as_slice() else { return None };
        if call.has(self.keyword) || checkpoint.chars().any(char::is_control) {
            return None;
        }
        let comma = if call.arguments.is_empty() || call.arguments.ends_with(',') { "" } else { ", " };
        let path = checkpoint.replace('\\', "\\\\").replace('\'', "\\'");
        let (before, after) = script.split_at(call.end);
        Some(format!("{before}{comma}{}='{path}'{after}", self.keyword))
    }
}

/// What the trainers of a script are called.
struct Trainers<'a> {
    text: &'a str,
    /// Classes of the script's own, and whether they are derived from a trainer's.
    classes: Vec<(&'a str, bool)>,
    /// Names that something is given to, and whether that is a trainer, where it shows.
    names: Vec<(&'a str, Option<bool>)>,
}

impl<'a> Trainers<'a> {
    fn read(nodes: &[Node<'a>], text: &'a str) -> Self {
        let slice = |node: Node<'a>| &text[node.byte_range()];
        let mut trainers = Self { text, classes: Vec::new(), names: Vec::new() };
        for class in nodes.iter().filter(|node| node.kind() == "class_definition") {
            let Some(name) = class.child_by_field_name("name") else { continue };
            let bases = class.child_by_field_name("superclasses").map_or("", slice).trim_matches(['(', ')']);
            let is_derived = bases.split(',').any(|base| trainers.is_class(last_name(base)) == Some(true));
            trainers.classes.push((slice(name), is_derived));
        }
        for given in nodes.iter().filter(|node| matches!(node.kind(), "assignment" | "named_expression")) {
            let field = |name: &str, other: &str| given.child_by_field_name(name).or(given.child_by_field_name(other));
            let (Some(name), Some(value)) = (field("left", "name"), field("right", "value")) else { continue };
            let is_trainer = trainers.maker(value).and_then(|class| trainers.is_class(class));
            trainers.names.push((slice(name), is_trainer));
        }
        trainers
    }

    /// Whether a class makes trainers: one of the script's own by its base, others by their name; `None` for what may be a
    /// function.
    fn is_class(&self, name: &str) -> Option<bool> {
        let own = self.classes.iter().rev().find(|(known, _)| *known == name);
        own.map(|(_, is_derived)| *is_derived).or(name.ends_with("Trainer").then_some(true))
    }

    /// The class or function that makes a value.
    fn maker(&self, value: Node<'a>) -> Option<&'a str> {
        let function = value.child_by_field_name("function").filter(|_| value.kind() == "call")?;
        Some(last_name(&self.text[function.byte_range()]))
    }

    /// Whether a name is a trainer's: by what is given to it, else by what it says itself.
    fn is_name(&self, name: &str) -> bool {
        let given = || self.names.iter().filter(|(known, _)| *known == name).filter_map(|(_, is_trainer)| *is_trainer);
        given().any(|it| it) || given().next().is_none() && last_name(name).to_ascii_lowercase().contains("trainer")
    }

    /// A call of a trainer's method.
    fn call(&self, call: Node<'a>, method: &str, mark: usize) -> Option<TrainerCall> {
        let function = call.child_by_field_name("function").filter(|it| it.kind() == "attribute")?;
        let (object, name) = (function.child_by_field_name("object")?, function.child_by_field_name("attribute")?);
        let arguments = call.child_by_field_name("arguments")?;
        let (object_text, arguments_text) = (&self.text[object.byte_range()], &self.text[arguments.byte_range()]);
        let receiver = match object.kind() {
            "call" if self.maker(object).and_then(|class| self.is_class(class)) == Some(true) => {
                format!("{}(...)", &self.text[object.child_by_field_name("function")?.byte_range()])
            }
            "identifier" | "attribute" if self.is_name(object_text) => object_text.to_owned(),
            _ => return None,
        };
        // A comment may stand before the closing bracket.
        let is_plain = !arguments_text.contains('#') && arguments_text.ends_with(')');
        let kinds = children(arguments).into_iter().map(|argument| argument.kind());
        let unnamed = kinds.map(|kind| match kind {
            "keyword_argument" | "comment" => 0,
            "list_splat" | "dictionary_splat" => usize::MAX,
            _ => 1,
        });
        (is_plain && &self.text[name.byte_range()] == method).then(|| TrainerCall {
            receiver,
            line: call.start_position().row + 1,
            end: call.end_byte() - 1 + mark,
            arguments: arguments_text[1..arguments_text.len() - 1].trim().to_owned(),
            unnamed: unnamed.fold(0, usize::saturating_add),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resumed(script: &str) -> Option<String> {
        let call = ResumeCall::find(script, "train", "resume_from_checkpoint", "")?;
        call.applied(script, "/runs/it's/checkpoint-5")
    }

    #[test]
    fn the_one_call_gets_a_checkpoint() {
        let keyword = "resume_from_checkpoint='/runs/it\\'s/checkpoint-5'";
        for (script, expected) in [
            ("model.train()\ntrainer.train()\n", format!("model.train()\ntrainer.train({keyword})\n")),
            (
                "r = self.trainer.train(\n    trial=f(1),\n)\n",
                format!("r = self.trainer.train(\n    trial=f(1),\n{keyword})\n"),
            ),
            ("sft_trainer.train(trial=')')", format!("sft_trainer.train(trial=')', {keyword})")),
            (
                "t = Trainer(m, a)\nstudent.train()\nt.train()\n",
                format!("t = Trainer(m, a)\nstudent.train()\nt.train({keyword})\n"),
            ),
            ("trl.SFTTrainer(m, args=A(n=4)).train()\n", format!("trl.SFTTrainer(m, args=A(n=4)).train({keyword})\n")),
            (
                "class Own(Trainer): pass\nx: Own = Own(m)\nx.train()\n",
                format!("class Own(Trainer): pass\nx: Own = Own(m)\nx.train({keyword})\n"),
            ),
            ("trainer = build(a)\ntrainer.train()\n", format!("trainer = build(a)\ntrainer.train({keyword})\n")),
        ] {
            assert_eq!(resumed(script), Some(expected), "{script}");
        }
        for script in [
            "model.train()\n",
            "# trainer.train()\n",
            "trainer.train()\ntrainer.train()\n",
            "trainer.train(resume_from_checkpoint=True)\n",
            "trainer.train(last)\n",
            "trainer.train(*words)\n",
            "trainer.train(**named)\n",
            "trainer.train(",
            "trainer.train(  # ( \n)",
            // A class of the script's own has a method of its own.
            "class Trainer: pass\nt = Trainer(m)\nt.train()\n",
            "class Trainer: pass\ntrainer = Trainer(m)\ntrainer.train()\n",
        ] {
            assert_eq!(resumed(script), None, "{script}");
        }
    }

    #[test]
    fn a_copy_with_another_batch_has_the_same_call() {
        let script = "tr = L.Trainer(max_epochs=1)\ntr.fit(Net(), DataLoader(x, batch_size=16))\n";
        let call = ResumeCall::find(script, "fit", "ckpt_path", "").unwrap();
        assert_eq!(call.call, "tr.fit(...)");
        let copy = script.replace("16", "8");
        let expected = copy.replace("batch_size=8))", "batch_size=8), ckpt_path='a.ckpt')");
        assert_eq!(call.applied(&copy, "a.ckpt"), Some(expected));
        // Lightning's takes it as the fifth.
        let takes = |words: &str| {
            ResumeCall::find(&format!("trainer = L.Trainer()\ntrainer.fit({words})\n"), "fit", "ckpt_path", "")
                .is_some()
        };
        assert!(takes("m, train, val, None") && !takes("m, train, val, None, last") && !takes("m, **named"));
    }
}
