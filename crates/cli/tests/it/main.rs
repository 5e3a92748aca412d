//! The commands of `lowtide` that need no LibTorch, as people meet them. Those that need it are tested beside the engine.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod colours;
mod completions;
mod data;
mod doctor;
mod explain;
mod explained_files;
mod explained_runs;
mod generate;
mod help;
mod help_on_training;
mod hostile_names;
mod kit;
mod manual;
mod replay;
mod replay_page;
mod run;
mod watching;
mod with_man;
mod with_zsh;
