//! A batch in variables of the environment that the script reads.

use std::ffi::OsString;

use lowtide_config::Config;
use lowtide_config::command::set_value;
use lowtide_trainers::{Access, Accumulation, Key, Variable, accumulation, variable};

use crate::command::found::Found;
use crate::command::gap::RungGap;
use crate::command::recipe::Recipe;
use crate::{BatchSplit, CommandRequest, EffectiveBatch, Template};

/// What a command has a variable set to: by `env NAME=value` before the program, else around it.
pub(crate) fn value_of(command: &[OsString], name: &str, access: &Access<'_>) -> Option<OsString> {
    set_value(command, name).map(OsString::from).or_else(|| (access.variable)(name))
}

/// Variables that a script reads its batch and its accumulation from. Where it divides by the accumulation, a retry changes
/// them.
pub(crate) fn by_environment(
    script: &Config,
    modules: &[Config],
    request: &CommandRequest,
    access: &Access<'_>,
) -> Option<Result<Found, RungGap>> {
    let [micro, accum] = [Key::Batch, Key::Accumulation].map(|key| variable(script, key));
    let micro = micro?;
    let number = |variable: &Variable, given: Option<u64>| {
        let number = match value_of(&request.command, &variable.name, access) {
            Some(set) => set.to_str().and_then(|set| set.trim().parse().ok()),
            None => variable.default,
        };
        number.or(given)
    };
    let samples = number(&micro, request.micro);
    let with = |template: &str, steps, names| {
        let recipe = Recipe { environment: Template::read_named(template).ok(), ..Recipe::default() };
        Some(Found { recipe, batch: Some(BatchSplit::new(samples?, steps?)?), names })
    };
    let Some(accum) = accum else {
        let template = format!("{}={{micro}}", micro.name);
        let shrinks = with(&template, Some(1), None).filter(|_| request.effective == EffectiveBatch::MayShrink);
        return shrinks.map(Ok);
    };
    let template = format!("{}={{micro}} {}={{accum}}", micro.name, accum.name);
    let steps = number(&accum, request.accum);
    let files: Vec<&Config> = std::iter::once(script).chain(modules).collect();
    let does = accumulation(&files, &accum.name, Some(&micro.name), &accum.name);
    let names = Some([micro.name, accum.name]);
    let found = with(&template, steps, names).filter(|_| does.as_ref().is_ok_and(|does| *does != Accumulation::Unseen));
    Some(found.ok_or(RungGap::Environment { template, numbers: [samples, steps], detail: does.err() }))
}
