//! What `lowtide completions` takes.

use clap::{Args, ValueEnum};

/// Print what a shell needs to complete commands, options and files after `lowtide`.
#[derive(Debug, Args)]
#[command(after_help = "Examples, each for one user and for good:
  lowtide completions bash > ~/.local/share/bash-completion/completions/lowtide
  lowtide completions zsh > ~/.zfunc/_lowtide       with fpath+=~/.zfunc before compinit in ~/.zshrc
  lowtide completions fish > ~/.config/fish/completions/lowtide.fish")]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// A shell that can be told what to complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// Needs the package bash-completion for files in the right place.
    Bash,
    /// Reads it from a folder of `fpath`.
    Zsh,
    /// Reads it from its folder of completions.
    Fish,
}
