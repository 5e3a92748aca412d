//! Trainers that refuse other numbers than those they were set up with, or that count micro-batches themselves.

use std::ffi::OsString;
use std::path::Path;

use lowtide_config::command::{at_script, value};
use lowtide_config::{Config, Scope, Syntax};

use crate::answer::place;
use crate::code::{Code, Piece, is_one, names_of};
use crate::deepspeed::fixed_numbers;
use crate::preset::is_arguments;
use crate::sources::file;
use crate::{Access, Answer, Question, answer};

/// Why another micro-batch and more accumulation are not what a trainer takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Why, with the place in words.
    pub detail: String,
    /// What would help.
    pub remedy: String,
}

/// Lightning's own name for accumulation.
const LIGHTNING_STEPS: &str = "accumulate_grad_batches";
/// Options by which a command names a configuration of DeepSpeed's.
const DEEPSPEED: [&str; 2] = ["--deepspeed", "--deepspeed_config"];

/// Why the trainer of a command refuses more accumulation, which is called `steps` there, or would make another training of it.
#[must_use]
pub fn refusal(command: &[OsString], configs: &[Config], steps: &str, access: &Access<'_>) -> Option<Refusal> {
    fixed_by_deepspeed(command, configs, access).or_else(|| refused_by_lightning(configs, steps))
}

/// A configuration of DeepSpeed's that has plain numbers in the places of the batch: both must be the same.
fn fixed_by_deepspeed(command: &[OsString], configs: &[Config], access: &Access<'_>) -> Option<Refusal> {
    let own = at_script(command).1;
    let typed = DEEPSPEED.iter().filter_map(|option| value(own, option)?.to_str());
    let is_argument = |owner: &Option<String>| owner.as_deref().is_some_and(is_arguments);
    let settings = configs.iter().filter(|config| config.syntax == Syntax::Python).flat_map(|config| &config.settings);
    let called = settings.filter(|it| it.scope == Scope::Call && it.path == ["deepspeed"] && is_argument(&it.owner));
    let mut files = typed.chain(called.map(|it| &*it.value)).filter_map(|name| file(Path::new(name), access).ok());
    let config = files.find(|config| config.syntax == Syntax::Json)?;
    let (setting, name) = fixed_numbers(&config).next().map(|it| (it, it.path.concat()))?;
    let at = place(&config, setting.span.start);
    let detail = format!("{at}: {name} is {} for DeepSpeed, whatever a retry changes", setting.value);
    Some(Refusal { detail, remedy: format!("\"{name}\": \"auto\" in {} lets a retry change it", config.name) })
}

/// Where Lightning accumulates: a model that updates its weights itself, and an epoch of so many micro-batches.
fn refused_by_lightning(configs: &[Config], steps: &str) -> Option<Refusal> {
    let scripts = configs.iter().filter(|config| config.syntax == Syntax::Python);
    let is_lightning = steps.ends_with(LIGHTNING_STEPS)
        || scripts.clone().any(|script| script.text.contains(LIGHTNING_STEPS)) && is_handed_on(configs, steps);
    if !is_lightning {
        return None;
    }
    if scripts.clone().any(|script| script.text.contains("automatic_optimization"))
        && let Some(at) = Code::read(configs).pieces().find(|piece| is_manual(*piece)).map(Piece::place)
    {
        let detail = format!(
            "{at}: automatic_optimization is off, and Lightning refuses {LIGHTNING_STEPS} for a model that updates its \
             weights itself"
        );
        let remedy = "the model itself has to accumulate: manual_backward(loss / steps) for each micro-batch, and \
                      optimizer.step() after every `steps` of them"
            .to_owned();
        return Some(Refusal { detail, remedy });
    }
    let Answer::Number { number, config, setting } = answer(configs, Question::Name("trainer.limit_train_batches"))
    else {
        return None;
    };
    let at = place(config, setting.span.start);
    let detail = format!(
        "{at}: limit_train_batches={number} counts micro-batches, so that a smaller one would make an epoch smaller"
    );
    let remedy = "a share of the data, such as limit_train_batches=0.1, is the same with any micro-batch".to_owned();
    Some(Refusal { detail, remedy })
}

/// `self.automatic_optimization = False`, or a property that says so.
fn is_manual(piece: Piece<'_>) -> bool {
    const NAME: &str = "automatic_optimization";
    match piece.kind() {
        "assignment" => {
            piece.field("left").is_some_and(|left| left.name() == Some(NAME)) && piece.part("right") == "False"
        }
        "function_definition" => piece.part("name") == NAME && piece.part("body").contains("return False"),
        _ => false,
    }
}

/// Whether Lightning's Trainer is given a number of another name.
fn is_handed_on(configs: &[Config], steps: &str) -> bool {
    let code = Code::read(configs);
    let given = code.given();
    let names = names_of(steps, &given);
    given.iter().any(|it| it.name == LIGHTNING_STEPS && is_one(it.value, &names))
}
