//! Where the copies of checkpoints come from, written beside them, and how many of one checkpoint stay.
//!
//! A script that writes its weights into one file leaves a copy of them with each run that wrote it anew. The last few are
//! what people may want back; older ones go when a new one is made. What no origin is written down of stays.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lowtide_disk::read_text;

use crate::command::contents::{folder_of, written};

/// The file in a folder of copies that has their origins.
const ORIGINS: &str = "origins.json";
const LARGEST: u64 = 4 << 20;
/// How many copies of one checkpoint earlier runs leave.
pub(crate) const MOST_COPIES: usize = 3;

/// The names of copies, and the paths of what they are copies of.
type Origins = BTreeMap<String, String>;

/// Writes down what a copy is a copy of. Without it the copy stays for good.
pub(crate) fn record(folder: &Path, name: &OsStr, checkpoint: &Path) {
    let Some((name, origin)) = name.to_str().zip(origin(checkpoint)) else { return };
    let mut origins = read(folder);
    origins.insert(name.to_owned(), origin);
    write(folder, &origins);
}

/// Removes the oldest copies of a checkpoint from folders of earlier runs, where there are more than a few besides those that
/// are needed; those removed.
pub(crate) fn thin_out(checkpoint: &Path, folders: &[PathBuf], is_needed: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let Some(origin) = origin(checkpoint) else { return Vec::new() };
    let mut copies: Vec<(SystemTime, &PathBuf, String)> = Vec::new();
    for folder in folders {
        let is_it =
            |(name, other): &(String, String)| *other == origin && is_plain(name) && !is_needed(&folder.join(name));
        let named = read(folder).into_iter().filter(is_it);
        copies.extend(named.filter_map(|(name, _)| Some((written(&folder.join(&name))?, folder, name))));
    }
    copies.sort();
    let surplus = copies.len().saturating_sub(MOST_COPIES);
    let oldest = copies.drain(..surplus).map(|(_, folder, name)| folder.join(name));
    oldest.filter(|copy| remove(copy).is_some()).collect()
}

/// Removes a copy and what is written down of it; `None` where it stays.
pub(crate) fn remove(copy: &Path) -> Option<()> {
    let folder = copy.parent()?;
    let is_folder = fs::symlink_metadata(copy).ok()?.is_dir();
    if is_folder { fs::remove_dir_all(copy) } else { fs::remove_file(copy) }.ok()?;
    let mut origins = read(folder);
    origins.retain(|name, _| Some(OsStr::new(name)) != copy.file_name());
    if origins.is_empty() {
        let _ = fs::remove_file(folder.join(ORIGINS));
        // Something else may be in it.
        let _ = fs::remove_dir(folder);
    } else {
        write(folder, &origins);
    }
    Some(())
}

/// The path of a checkpoint, whatever folder it is named from.
fn origin(checkpoint: &Path) -> Option<String> {
    Some(folder_of(checkpoint).canonicalize().ok()?.join(checkpoint.file_name()?).to_str()?.to_owned())
}

fn read(folder: &Path) -> Origins {
    let text = read_text(&folder.join(ORIGINS), LARGEST).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn write(folder: &Path, origins: &Origins) {
    if let Ok(text) = serde_json::to_string_pretty(origins) {
        let _ = lowtide_disk::write(&folder.join(ORIGINS), text.as_bytes());
    }
}

/// Whether a name is that of a file in the folder itself.
fn is_plain(name: &str) -> bool {
    !name.contains('/') && !["", ".", ".."].contains(&name)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_last_copies_stay_and_what_is_not_known_to_be_one_too() {
        let top = tempfile::tempdir().unwrap();
        let checkpoint = top.path().join("model.pt");
        fs::write(&checkpoint, "weights").unwrap();
        let folders: Vec<PathBuf> =
            (1..7).map(|number| top.path().join(format!("runs/t-{number}/before-start-1"))).collect();
        for (age, folder) in (0..).zip(&folders) {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join("model.pt"), "copy").unwrap();
            let file = File::options().append(true).open(folder.join("model.pt")).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(age)).unwrap();
        }
        // The first two are of another file, and of nobody knows what.
        record(&folders[0], OsStr::new("model.pt"), &top.path().join("runs/model.pt"));
        for folder in &folders[2..] {
            record(folder, OsStr::new("model.pt"), &checkpoint);
        }
        fs::write(folders[3].join("notes"), "mine").unwrap();
        let oldest = folders[2].join("model.pt");
        assert!(thin_out(&checkpoint, &folders, &|copy| copy == oldest).is_empty());
        assert_eq!(thin_out(&checkpoint, &folders, &|_| false), [oldest]);
        assert!(thin_out(&checkpoint, &folders, &|_| false).is_empty());
        let is_there: Vec<bool> = folders.iter().map(|folder| folder.join("model.pt").exists()).collect();
        assert_eq!(is_there, [true, true, false, true, true, true]);
        assert!(!folders[2].exists() && folders[3].join("notes").exists());
    }

    #[test]
    fn nothing_outside_is_ever_removed() {
        let top = tempfile::tempdir().unwrap();
        let checkpoint = top.path().join("model.pt");
        let folder = top.path().join("before-start-1");
        fs::create_dir(&folder).unwrap();
        fs::write(&checkpoint, "weights").unwrap();
        let path = checkpoint.canonicalize().unwrap();
        let names = ["../model.pt", "..", ".", "", "a/../../model.pt"]
            .map(|name| (name.to_owned(), path.display().to_string()));
        write(&folder, &names.into_iter().collect());
        assert!(thin_out(&checkpoint, &vec![folder; 9], &|_| false).is_empty());
        assert!(checkpoint.exists());
    }
}
