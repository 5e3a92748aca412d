//! `docs/reference/cli.md`: all commands and options, written from their declaration. `make reference` writes it anew.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use clap::{Arg, Command, CommandFactory};
use lowtide_args::Lowtide;

const FILE: &str = "../../docs/reference/cli.md";
/// Write the file instead of comparing it.
const WRITE: &str = "LOWTIDE_WRITE_REFERENCE";

const OPENING: &str = "\
# Command line

Every command, argument and option. `lowtide COMMAND --help` says the same in the terminal, and `man lowtide-COMMAND` where
the manual pages are installed. This page is written from the program itself by `make reference`.
";

#[test]
fn the_reference_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let text = reference();
    if env::var_os(WRITE).is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        return;
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    let differs = there.lines().zip(text.lines()).position(|(there, wanted)| there != wanted);
    let line = 1 + differs.unwrap_or(there.lines().count().min(text.lines().count()));
    assert!(
        there == text,
        "docs/reference/cli.md is not current, from line {line} on: `make reference` writes it anew"
    );
}

fn reference() -> String {
    let mut command = Lowtide::command();
    command.build();
    let shown = |command: &Command| shown_commands(command).cloned().collect::<Vec<_>>();
    let mut text = format!("{OPENING}\n");
    for inner in shown(&command) {
        let name = inner.get_name();
        writeln!(text, "- [`{name}`](#lowtide-{name}): {}", escaped(&about(&inner))).unwrap();
    }
    for inner in shown(&command) {
        describe(&mut text, &inner);
        shown(&inner).iter().for_each(|inner| describe(&mut text, inner));
    }
    text
}

fn shown_commands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
}

fn about(command: &Command) -> String {
    command.get_about().unwrap().to_string()
}

fn describe(text: &mut String, command: &Command) {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let long = command.get_long_about().map_or_else(|| format!("{}.", about(command)), ToString::to_string);
    writeln!(text, "\n## {}\n\n{}\n\n```text\n{usage}\n```", name(command), escaped(&long)).unwrap();
    let args = || command.get_arguments().filter(|arg| !arg.is_hide_set() && arg.get_id() != "help");
    let mut headings: Vec<&str> = args().map(heading).collect();
    headings.dedup();
    for wanted in headings {
        writeln!(text, "\n{wanted}:\n").unwrap();
        args().filter(|arg| heading(arg) == wanted).for_each(|arg| item(text, arg));
    }
    if let Some(after) = command.get_after_help() {
        writeln!(text, "\n```text\n{after}\n```").unwrap();
    }
}

/// The command as it is typed.
fn name(command: &Command) -> &str {
    command.get_bin_name().unwrap()
}

fn heading(arg: &Arg) -> &str {
    let usual = if arg.is_positional() { "Arguments" } else { "Options" };
    arg.get_help_heading().unwrap_or(usual)
}

fn item(text: &mut String, arg: &Arg) {
    let short = arg.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
    let help = arg.get_long_help().or(arg.get_help()).unwrap().to_string();
    let mut notes = Vec::new();
    if let Some(aliases) = arg.get_visible_aliases() {
        notes.extend(aliases.iter().map(|alias| format!("also `--{alias}`")));
    }
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !values.is_empty() && !arg.is_hide_possible_values_set() {
        notes.push(format!("one of {}", values.join(", ")));
    }
    if let Some(default) = arg.get_default_values().first()
        && arg.get_action().takes_values()
        && !arg.is_hide_default_value_set()
    {
        notes.push(format!("default `{}`", default.to_str().unwrap()));
    }
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
    let help = escaped(&help).replace("\n\n", "\n\n  ");
    writeln!(text, "- {short}`{arg}`{notes}: {help}").unwrap();
}

/// A text of which Markdown makes nothing else.
fn escaped(text: &str) -> String {
    text.replace('*', "\\*").replace('<', "\\<")
}
