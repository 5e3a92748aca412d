//! `lowtide doctor`: what this machine has for training, and what looks wrong with it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::facts::{Facts, HostEnvironment};
use super::findings::findings;
use super::text::text;
use crate::engine;
use crate::output::{Failure, print, print_json, report};

/// Say what this machine has for training, what looks wrong, and how to mend it.
///
/// Looks at GPUs and their driver, who holds their memory, PyTorch where it is installed (without starting it), the
/// allocator's environment, RAM, swap, the control group's limit, /dev/shm and the limit of open files. Changes
/// nothing.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lowtide doctor
  lowtide doctor --json         the same for a program

Exit codes:
  0    nothing looks wrong
  1    something does; each has its mend
  2    bad input to lowtide itself")]
pub(crate) struct DoctorArgs {
    /// Print everything as JSON.
    #[arg(long)]
    json: bool,

    /// Where the machine's /proc, /sys and installations are; for tests.
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
}

pub(crate) fn run(args: &DoctorArgs) -> ExitCode {
    match examined(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => report(Err(failure)),
    }
}

/// Whether nothing looks wrong.
fn examined(args: &DoctorArgs) -> Result<bool, Failure> {
    let here = args.root == Path::new("/");
    let engine = if here { engine::find().ok() } else { None };
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    let around = HostEnvironment { root: args.root.clone(), engine, variable: &|name| env::var(name).ok(), names };
    let facts = Facts::gather(&around);
    let findings = findings(&facts);
    if args.json {
        let told = json!({ "schema": 1, "machine": facts, "wrong": findings });
        print_json(&format!("{told:#}\n"))?;
    } else {
        print(&text(&facts, &findings))?;
    }
    Ok(findings.is_empty())
}
