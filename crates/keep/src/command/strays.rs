//! Files that look like checkpoints, where nothing says where a script writes them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lowtide_trainers::ENDINGS;

use crate::command::checkpoint::BEFORE;
use crate::command::wholeness::{Form, is_whole};

/// Folders that nobody writes checkpoints to; hidden ones are none either.
const OTHERS: [&str; 6] = ["runs", "node_modules", "site-packages", "__pycache__", "venv", "wandb"];
/// How deep folders are looked into, and how many names are looked at: datasets may have millions.
const DEEPEST: usize = 4;
const MOST: usize = 20_000;
/// Far more checkpoints than people keep; more files are data that a script prepared.
const MOST_STRAYS: usize = 200;

/// The whole files below a folder that look like checkpoints and were written since a moment, the newest first.
pub(crate) fn strays(folder: &Path, since: SystemTime) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![(folder.to_owned(), DEEPEST)];
    let mut left = MOST;
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten().take(left) {
            left -= 1;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                let is_other = name.starts_with(['.', '_']) || name.starts_with(BEFORE) || OTHERS.contains(&&*name);
                folders.extend((depth > 0 && !is_other).then(|| (entry.path(), depth - 1)));
            } else if kind.is_file() && ENDINGS.iter().any(|ending| name.ends_with(ending)) {
                let written = entry.metadata().and_then(|metadata| metadata.modified());
                found.extend(written.ok().filter(|written| *written >= since).map(|written| (written, entry.path())));
            }
        }
    }
    found.sort();
    let newest = found.into_iter().rev().take(MOST_STRAYS).map(|(_, path)| path);
    newest.filter(|path| is_whole(path, Form::Own)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_what_was_written_since_and_looks_like_one() {
        let folder = tempfile::tempdir().unwrap();
        let begun = SystemTime::now() - Duration::from_secs(10);
        let write = |name: &str, age: u64| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "whole").unwrap();
            let time = SystemTime::now() - Duration::from_secs(age);
            fs::File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
        };
        assert!(strays(folder.path(), begun).is_empty());
        for name in ["old.pt", "out/best.pth"] {
            write(name, 3600);
        }
        for name in ["notes.txt", ".cache/a.pt", "runs/t-1/b.pt", "before-t-1-start-1/c.pt", "a/b/c/d/e/f.pt"] {
            write(name, 1);
        }
        assert!(strays(folder.path(), begun).is_empty());
        write("out/last.pth.tar", 2);
        write("out/deep/epoch.ckpt", 3);
        let both = ["out/last.pth.tar", "out/deep/epoch.ckpt"].map(|name| folder.path().join(name));
        assert_eq!(strays(folder.path(), begun), both);
        fs::write(folder.path().join("out/half.pt"), b"PK\x03\x04 cut").unwrap();
        assert_eq!(strays(folder.path(), begun), both);
    }
}
