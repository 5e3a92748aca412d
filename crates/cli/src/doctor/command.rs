//! `lowtide doctor`: what this machine has for training, and what looks wrong with it.

use std::env;
use std::path::Path;
use std::process::ExitCode;

use lowtide_args::DoctorArgs;
use serde_json::json;

use super::facts::{Facts, HostEnvironment};
use super::findings::findings;
use super::text::{MARGIN, text};
use crate::engine;
use crate::output::{Failure, print_json, print_page, report};

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
        print_page(&text(&facts, &findings), MARGIN)?;
    }
    Ok(findings.is_empty())
}
