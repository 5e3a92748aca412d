//! `docs/reference/exit-codes.md` has the codes that every command's help has, and no other.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Command, CommandFactory};
use lowtide_args::Lowtide;

const PAGE: &str = include_str!("../../../../docs/reference/exit-codes.md");
/// The column of the commands that have none of their own.
const OTHERS: &str = "the others";

/// The codes that the page has for each command that heads a column.
fn codes_in_page() -> BTreeMap<String, BTreeSet<String>> {
    let rows: Vec<Vec<&str>> = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'))
        .map(|row| row.split('|').map(str::trim).collect())
        .collect();
    let mut codes = BTreeMap::<String, BTreeSet<String>>::new();
    for (column, heads) in rows[0].iter().enumerate().skip(1) {
        let named = rows[2..].iter().filter(|row| !row[column].is_empty()).flat_map(|row| row[0].split(", "));
        let named: BTreeSet<String> = named.map(str::to_owned).collect();
        codes.extend(heads.split(", ").map(|head| (head.trim_matches('`').to_owned(), named.clone())));
    }
    codes
}

/// The codes in the help of a command; none where it lists none.
fn codes_in_help(command: &Command) -> BTreeSet<String> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let listed = help.split_once("Exit codes:\n").map_or("", |(_, listed)| listed);
    let first_words = listed.lines().filter_map(|line| line.split_whitespace().next());
    first_words.filter(|word| word.parse::<u8>().is_ok()).map(str::to_owned).collect()
}

#[test]
fn the_page_has_the_codes_of_every_command() {
    let page = codes_in_page();
    let mut others = BTreeSet::new();
    for command in Lowtide::command().get_subcommands().flat_map(|command| match command.has_subcommands() {
        true => command.get_subcommands().collect(),
        false => vec![command],
    }) {
        let (name, codes) = (command.get_name(), codes_in_help(command));
        match page.get(name) {
            // Besides those it has in its help, the command's own are passed on.
            Some(named) if name == "run" => assert!(codes.is_subset(named), "{name}: {codes:?} in help, {named:?}"),
            Some(named) => assert_eq!(&codes, named, "{name}"),
            None => others.extend(codes),
        }
    }
    assert_eq!(others, page[OTHERS], "{OTHERS}");
}
