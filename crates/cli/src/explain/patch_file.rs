//! Writing a patch into the configuration.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

use lowtide_disk::PartialFile;
use lowtide_explain::{Syntax, Verdict};

use super::args::ExplainArgs;
use crate::output::Failure;

/// What a command line is called in diffs.
pub(super) const COMMAND_LINE: &str = "command line";
/// The attribute of a file that says whose patch was written into it last. Editors that write a file anew leave it out.
const MARK: &str = "user.lowtide.patch";

/// Writes the patch of the last event, whole or not at all; the name of what was written.
pub(super) fn write_patch(args: &ExplainArgs, verdict: &Verdict) -> Result<String, Failure> {
    let Some(patch) = &verdict.patch else { return Err(no_patch(args, verdict)) };
    if patch.syntax == Syntax::Command && patch.file == COMMAND_LINE {
        let hint = "type it as the patch shows; leave --write out to see it";
        return Err(Failure::bad_input("a command line cannot be written to".to_owned(), Some(hint.to_owned())));
    }
    let path = Path::new(&patch.file);
    let failure = |problem: String| {
        Failure::bad_input(format!("{}: {problem}", path.display()), Some("nothing was written".to_owned()))
    };
    // A rename would go past it, but whoever made it read-only meant it.
    let is_read_only = fs::metadata(path).is_ok_and(|metadata| metadata.permissions().readonly());
    if is_read_only {
        return Err(failure("the file is read-only".to_owned()));
    }
    let mark = mark(verdict);
    if !args.force && bears(path, &mark) {
        let text = format!("{}: the patch of this log was written into it before", path.display());
        let hint = "nothing was written; run with the file as it is, or add --force";
        return Err(Failure::bad_input(text, Some(hint.to_owned())));
    }
    let now = fs::read_to_string(path).map_err(|error| failure(error.to_string()))?;
    let text = patch.apply(&now).map_err(|error| failure(error.to_string()))?;
    replace_file(path, &text, &mark).map_err(|error| failure(error.to_string()))?;
    Ok(patch.file.clone())
}

/// What tells an event of a log from others.
fn mark(verdict: &Verdict) -> String {
    format!("{}:{}", verdict.line, verdict.message.chars().take(200).collect::<String>())
}

/// Whether the patch of an event was written into a file; not where its file system keeps no attributes.
fn bears(path: &Path, mark: &str) -> bool {
    let mut kept = vec![0; mark.len() + 1];
    rustix::fs::getxattr(path, MARK, &mut kept).is_ok_and(|length| &kept[..length] == mark.as_bytes())
}

/// Why there is nothing to write.
fn no_patch(args: &ExplainArgs, verdict: &Verdict) -> Failure {
    let has_config = !args.config.is_empty() || args.command.is_some();
    let why = verdict.evidence.iter().rev().find(|text| text.contains("no patch"));
    let none = "there is no patch to write";
    let (text, hint) = match why {
        Some(why) if why.contains("another run") => (why.clone(), "give the configuration as this run had it"),
        Some(why) => (why.clone(), "change it by hand, as the advice says"),
        None if has_config => (
            format!("{none}: none of the advice is a change of a plain value in the configuration given"),
            "change it by hand, as the advice says",
        ),
        None => (format!("{none}: no configuration was given"), "give the configuration of this run with --config"),
    };
    Failure::bad_input(text, Some(hint.to_owned()))
}

/// Writes the file anew, whole or not at all, with its owner and mode; a link stays a link.
fn replace_file(path: &Path, text: &str, mark: &str) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    let old = fs::metadata(&path)?;
    let mut new = PartialFile::create(&path).map_err(|error| error.source)?;
    // Who may not give files away keeps this one.
    let _ = fchown(new.file(), Some(old.uid()), Some(old.gid()));
    new.file().set_permissions(old.permissions())?;
    new.write_all(text.as_bytes())?;
    // Where attributes are not kept, a second patch is only warned of.
    let _ = rustix::fs::fsetxattr(new.file(), MARK, mark.as_bytes(), rustix::fs::XattrFlags::empty());
    new.finish().map(drop).map_err(|error| error.source)
}
