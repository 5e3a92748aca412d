//! Lightning's checkpoints: where its loggers and callbacks put them.

use std::ffi::OsString;

use lowtide_config::command::{at_script, value};
use lowtide_config::{Config, Setting, Syntax};

use super::knowledge::{Beginning, CheckpointPlace, Checkpoints, ResumeGap, ResumeWords, takes_none, trainer_name};
use crate::ResumeCall;

const LIGHTNING: &str = "Lightning restores weights, optimizer, schedule and step, but neither the random state nor its place in \
                         the data: it counts micro-batches, so that the epoch it was in gets another length and its first \
                         step may have fewer samples";

pub(super) fn lightning(command: &[OsString], script: Option<&Config>, sources: &[Config]) -> Checkpoints {
    let named = |name: &'static str| {
        let is_it = move |setting: &&Setting| setting.path.last().is_some_and(|key| key == name);
        let settings = sources.iter().flat_map(move |config| {
            let plain = move |setting: &&Setting| {
                config.syntax != Syntax::Python || config.text[setting.span.clone()].starts_with(['"', '\''])
            };
            config.settings.iter().filter(is_it).filter(plain)
        });
        settings.map(|setting| setting.value.clone()).filter(|value| value != "null").collect::<Vec<_>>()
    };
    let place = |names: &'static str| move |folder: String| CheckpointPlace::new(folder, names);
    let versions = |start_folder: &'static str, names: &'static str| {
        move |folder: String| CheckpointPlace {
            start_folder: Some(start_folder),
            ..CheckpointPlace::new(folder, names)
        }
    };
    let mut roots = named("default_root_dir");
    if roots.is_empty() {
        roots.push(".".to_owned());
    }
    roots.extend(named("save_dir"));
    let mut places: Vec<CheckpointPlace> = named("dirpath").into_iter().map(place("*.ckpt")).collect();
    let logs = versions("lightning_logs/version_*", "lightning_logs/version_*/checkpoints/*.ckpt");
    places.extend(roots.iter().cloned().map(logs));
    places.extend(roots.iter().cloned().map(place("checkpoints/*.ckpt")));
    let loggers = versions("*/version_*", "*/version_*/checkpoints/*.ckpt");
    places.extend(named("save_dir").into_iter().map(loggers));
    let own = at_script(command).1;
    let is_told = [value(own, "--ckpt_path"), value(own, "--fit.ckpt_path")].iter().any(Option::is_some)
        || sources.iter().any(|config| config.syntax == Syntax::Yaml && !named_in(config, "ckpt_path").is_empty());
    let fits = own.iter().any(|word| word == "fit");
    let resume = match (fits, script) {
        (true, _) => Ok(ResumeWords { words: Some("--ckpt_path={checkpoint}"), caveat: LIGHTNING }),
        (false, Some(script)) if !script.text.contains("LightningCLI(") => Err(ResumeGap {
            reason: takes_none(script, "fit"),
            remedy: format!(
                "{}.fit(..., ckpt_path=...) in {} makes it resume",
                trainer_name(script, "fit"),
                script.name
            ),
        }),
        (false, script) => Err(ResumeGap {
            reason: "only the command `fit` of Lightning's command line takes --ckpt_path".to_owned(),
            remedy: format!(
                "trainer.fit(..., ckpt_path=...) in {} makes it resume",
                script.map_or("the script", |script| &script.name)
            ),
        }),
    };
    let call = script.filter(|_| resume.is_err());
    let call = call.and_then(|script| ResumeCall::find(&script.text, "fit", "ckpt_path", LIGHTNING));
    let beginning = if is_told { Beginning::Resumes } else { Beginning::Beside };
    // Without a logger each start has the same folder, and its command line saves the settings there once.
    let saved = |root: &String| match root.trim_end_matches('/') {
        "." => "config.yaml".to_owned(),
        root => format!("{root}/config.yaml"),
    };
    let kept = roots.iter().filter(|_| fits).map(saved).collect();
    Checkpoints { places, last_file: None, beginning, resume, call, kept }
}

fn named_in<'a>(config: &'a Config, name: &str) -> Vec<&'a str> {
    let is_it = |setting: &&Setting| setting.path.last().is_some_and(|key| key == name) && setting.value != "null";
    config.settings.iter().filter(is_it).map(|setting| &*setting.value).collect()
}
