//! What a program that trains takes: the engine, and one of somebody else's that brings its own model.
//!
//! The arguments are those of `lowtide train` and `lowtide eval`; what help says of names and examples is the program's own.

use std::ffi::OsString;

use clap::{Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::eval::EvalArgs;
use crate::styles::STYLES;
use crate::train::{ScoringFlags, TrainArgs};

/// Trains neural networks inside a memory limit.
#[derive(Debug, Parser)]
#[command(arg_required_else_help = true, styles = STYLES)]
pub struct ProgramArgs {
    /// What is to be done.
    #[command(subcommand)]
    pub command: ProgramCommand,
}

/// A command with its arguments.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "each is described where its arguments are")]
pub enum ProgramCommand {
    Train(Box<TrainArgs>),
    Eval(EvalArgs),
}

impl ProgramArgs {
    /// What was typed; `words` begin with the program itself. `workloads` has at least one.
    ///
    /// # Errors
    ///
    /// A mistake, or help that was asked for.
    pub fn parse(
        name: &'static str,
        version: &'static str,
        workloads: &[&str],
        words: Vec<OsString>,
    ) -> Result<ProgramArgs, clap::Error> {
        let mut command = ProgramArgs::declaration(name, workloads).version(version);
        let matches = command.try_get_matches_from_mut(words)?;
        ProgramArgs::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }

    /// The command line of a program with this name and these workloads.
    fn declaration(name: &'static str, workloads: &[&str]) -> Command {
        let names = workloads.join(", ");
        let config = format!(
            "The configuration, a YAML file, or the name of a workload ({names}) for its own small one. May be left out with \
             --resume: the run's own is used"
        );
        let first = workloads.first().copied().unwrap_or("CONFIG");
        let train = format!(
            "Examples:
  {name} train {first}                                train with its own small configuration
  {name} train {first} --limit 64MiB                  ... inside 64 MiB of tensor memory
  {name} train {first} --set train.steps=50 --out runs/short
  {name} train --resume --out runs/short              resume where it stopped"
        );
        let eval = format!(
            "Examples:
  {name} eval runs/{first}-1                          the newest checkpoint
  {name} eval runs/{first}-1 --checkpoint best --set eval.batches=100
  {name} eval runs/{first}-1 --json                   figures for a program"
        );
        ProgramArgs::command()
            .name(name)
            .bin_name(name)
            .about(format!("Trains inside a memory limit: {names}"))
            .mut_subcommand("train", |command| {
                let command = command.mut_arg("config", |arg| arg.help(config));
                with_examples(without_foreign_flags(command, workloads), &train)
            })
            .mut_subcommand("eval", |command| with_examples(command, &eval))
    }
}

/// The first paragraph after the help has examples, which are the program's own.
fn with_examples(command: Command, examples: &str) -> Command {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let rest = after.split_once("\n\n").map_or("", |(_, rest)| rest);
    command.after_help(format!("{examples}\n\n{rest}"))
}

/// Nobody is shown the flags of a workload that is not there. Whoever types one is told by the settings that the key is unknown.
fn without_foreign_flags(command: Command, workloads: &[&str]) -> Command {
    if workloads.contains(&"scoring") {
        return command;
    }
    let flags = ScoringFlags::augment_args(Command::new("scoring"));
    flags.get_arguments().fold(command, |command, flag| command.mut_arg(flag.get_id(), |arg| arg.hide(true)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<ProgramArgs, clap::Error> {
        let words = ["spirals"].iter().chain(words).map(OsString::from).collect();
        ProgramArgs::parse("spirals", "1.2.3", &["spiral", "ring"], words)
    }

    fn help(words: &[&str]) -> String {
        parse(words).expect_err("help is no command").to_string()
    }

    #[test]
    fn it_contradicts_itself_nowhere() {
        ProgramArgs::declaration("spirals", &["spiral"]).debug_assert();
        ProgramArgs::declaration("lowtide", &["gpt", "scoring"]).debug_assert();
    }

    #[test]
    fn help_is_the_programs_own() {
        assert_eq!(help(&["--version"]), "spirals 1.2.3\n");
        assert!(
            help(&["--help"]).starts_with("Trains inside a memory limit: spiral, ring\n\nUsage: spirals <COMMAND>")
        );
        for text in [help(&["train", "--help"]), help(&["train", "-h"]), help(&["eval", "--help"])] {
            assert!(!text.contains("lowtide") && !text.contains("gpt"), "{text}");
            assert!(!text.contains("scoring") && !text.contains("--run-lstm"), "{text}");
            assert!(text.contains("  spirals ") && text.contains("Exit codes:"), "{text}");
        }
        assert!(help(&["train", "--help"]).contains("the name of a workload (spiral, ring)"));
    }

    #[test]
    fn the_engine_shows_the_flags_of_its_own() {
        let words = ["lowtide", "train", "--help"].map(OsString::from).to_vec();
        let text = ProgramArgs::parse("lowtide", "1", &["gpt", "scoring"], words).expect_err("help is no command");
        assert!(text.to_string().contains("--run-lstm"));
    }

    #[test]
    fn arguments_are_those_of_lowtide() {
        let typed = parse(&["train", "spiral", "--limit", "64MiB", "--resume"]).expect("it is right");
        let ProgramCommand::Train(args) = typed.command else { panic!("this is `train`") };
        assert!(args.resume && args.settings.line.is_some());
        // The name that it had before.
        assert!(parse(&["train", "spiral", "--line", "64MiB"]).is_ok());
        assert!(help(&["train", "--limti", "3"]).contains("'--limit'"));
    }
}
