//! Writing a patch into the configuration.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

use lowtide_args::ExplainArgs;
use lowtide_disk::{DiskError, PartialFile, rewrite};
use lowtide_explain::{Syntax, Verdict};

use crate::output::Failure;

/// What a command line is called in diffs.
pub(super) const COMMAND_LINE: &str = "command line";
/// The attribute of a file that says whose patch was written into it last. Editors that write a file anew leave it out.
const MARK: &str = "user.lowtide.patch";

/// The attribute by which SELinux labels every file.
const LABEL: &str = "security.selinux";
/// The longest list of names of attributes that Linux gives.
const LONGEST_LIST: usize = 64 << 10;

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
    replace_file(path, &text, &mark).map_err(|error| not_written(path, &error))?;
    Ok(patch.file.clone())
}

/// Why the file is as it was; or, where the system refused even that, where what it was can be found.
fn not_written(path: &Path, error: &DiskError) -> Failure {
    let is_a_copy_in_the_way = error.source.kind() == io::ErrorKind::AlreadyExists;
    let hint = match is_a_copy_in_the_way {
        true => "nothing was written; compare the two, and remove the copy once the file is as it should be",
        false => "nothing was written",
    };
    let place = if is_a_copy_in_the_way { &error.path } else { path };
    Failure::bad_input(format!("{}: {}", place.display(), error.source), Some(hint.to_owned()))
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
    let why = verdict.notes.iter().rev().find(|text| text.contains("no patch"));
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

/// Writes the file, with everything that is its own: names, owner, mode, attributes; a link stays a link.
fn replace_file(path: &Path, text: &str, mark: &str) -> Result<(), DiskError> {
    let refused = |source| DiskError { path: path.to_owned(), source };
    let path = fs::canonicalize(path).map_err(refused)?;
    let old = fs::metadata(&path).map_err(refused)?;
    let mut new = PartialFile::create(&path)?;
    if !can_be_another(&path, &old, new.file()) {
        drop(new);
        return rewrite(&path, text.as_bytes()).map(|file| set_mark(&file, mark));
    }
    new.file().set_permissions(old.permissions()).and_then(|()| new.write_all(text.as_bytes())).map_err(refused)?;
    set_mark(new.file(), mark);
    new.finish().map(drop)
}

/// Whether a new file can take the place of one and nobody sees a difference: it has no other name, its owner can be
/// given to the new one, and it has no attributes, such as lists of who may read it, that would be lost.
fn can_be_another(path: &Path, old: &Metadata, new: &File) -> bool {
    let is_ours = || fchown(new, Some(old.uid()), Some(old.gid())).is_ok();
    old.nlink() == 1 && is_ours() && has_no_attributes(path)
}

/// Whether a file has none but our own mark, and the label that every file gets by where it is.
fn has_no_attributes(path: &Path) -> bool {
    let mut names = vec![0; LONGEST_LIST];
    match rustix::fs::listxattr(path, &mut names) {
        Ok(length) => {
            let mut names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
            names.all(|name| name == MARK.as_bytes() || name == LABEL.as_bytes())
        }
        Err(error) => error == rustix::io::Errno::NOTSUP,
    }
}

/// Where attributes are not kept, a second patch is only warned of.
fn set_mark(file: &File, mark: &str) {
    let _ = rustix::fs::fsetxattr(file, MARK, mark.as_bytes(), rustix::fs::XattrFlags::empty());
}
