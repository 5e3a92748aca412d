//! The command line as a whole.

use clap::builder::ValueHint;
use clap::{Command, CommandFactory};
use lowtide_args::Lowtide;

/// Calls `check` with each command, those within commands too.
fn each(command: &Command, check: &mut impl FnMut(&Command)) {
    check(command);
    command.get_subcommands().for_each(|inner| each(inner, check));
}

#[test]
fn it_contradicts_itself_nowhere() {
    Lowtide::command().debug_assert();
}

#[test]
fn each_command_and_each_option_says_what_it_is() {
    let mut command = Lowtide::command();
    command.build();
    each(&command, &mut |command| {
        assert!(command.get_about().is_some(), "{}", command.get_name());
        for arg in command.get_arguments() {
            assert!(arg.get_help().is_some(), "{} {arg}", command.get_name());
        }
    });
}

/// Shells complete what takes files with files, and with folders what takes folders.
#[test]
fn paths_are_completed() {
    each(&Lowtide::command(), &mut |command| {
        for arg in command.get_arguments() {
            let name = arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
            let expect = match name {
                "DIR" | "RUN_DIR" => ValueHint::DirPath,
                "FILE" | "FILE.csv" | "CONFIG" => ValueHint::FilePath,
                "FILE|DIR" | "SRC" => ValueHint::AnyPath,
                _ => continue,
            };
            assert_eq!(arg.get_value_hint(), expect, "{} {arg}", command.get_name());
        }
    });
}
