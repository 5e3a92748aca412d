//! Checkpoints that a start from step 0 would write over, brought to safety first.
//!
//! `torch.save` and its kin write into the file that is there, so a hard link would be written over with it. The copy stands
//! in the folder of the run, where no pattern of checkpoints finds it, or beside the checkpoint where that is on another file
//! system: on the same one many need no room for it, and what is moved is only renamed.
//!
//! All that match are kept, and not the newest alone: a start from step 0 comes by every step again. They are copied as
//! long as that takes no more than half of the room that is left, the newest first, and moved where it would take more. Of
//! scripts that nothing is known of, the files that the run wrote and that look like checkpoints are brought to safety
//! (`keep/command/strays.rs`), and those that the command names, whoever wrote them. What it may read too
//! is copied, or stays where it is.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lowtide_core::Bytes;
use lowtide_disk::{DiskError, PartialFile, move_to, write_folder};

use crate::KeepError;
use crate::command::checkpoint::BEFORE;

/// A checkpoint that was brought to safety, or could not be.
#[derive(Debug)]
pub struct KeptCheckpoint {
    /// Where it was.
    pub checkpoint: PathBuf,
    /// Whether it is whole.
    pub is_whole: bool,
    /// Its size.
    pub size: Bytes,
    /// Where it is safe, or why it is not.
    pub refuge: Result<Refuge, KeepError>,
}

/// Where a checkpoint is safe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refuge {
    /// There is a copy.
    Copy(PathBuf),
    /// It was moved, for there is no room for a copy.
    Moved(PathBuf),
    /// It was moved, so that the script does not find it.
    Aside(PathBuf),
    /// An earlier run made a copy of it.
    Earlier(PathBuf),
}

/// How checkpoints are brought to safety.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// They stay, for the script may read them.
    Copy,
    /// They stay, also where there is no room for a copy.
    CopyOnly,
    /// They do not stay, for the script would resume from them.
    Aside,
}

/// Deeper than any checkpoint.
const DEEPEST: usize = 8;

/// Brings checkpoints to safety before a start of a run, in their order.
pub(crate) fn keep_safe(
    checkpoints: &[PathBuf],
    way: Way,
    run: &Path,
    start: usize,
    is_whole: impl Fn(&Path) -> bool,
) -> Vec<KeptCheckpoint> {
    let mut folders = HashMap::new();
    let keep = |checkpoint: &PathBuf| {
        let (is_whole, size) = (is_whole(checkpoint), Bytes(size(checkpoint, DEEPEST)));
        let refuge = refuge(checkpoint, way, &mut folders, run, || free_folder(checkpoint, run, start));
        KeptCheckpoint { checkpoint: checkpoint.clone(), is_whole, size, refuge }
    };
    let is_link_to_another = |link: &PathBuf| {
        let target = link.canonicalize().ok();
        link.is_symlink() && checkpoints.iter().any(|other| other != link && other.canonicalize().ok() == target)
    };
    checkpoints.iter().filter(|it| !is_link_to_another(it)).map(keep).collect()
}

/// The first folder for a checkpoint that is not there yet: in the folder of the run, or beside the checkpoint.
fn free_folder(checkpoint: &Path, run: &Path, start: usize) -> PathBuf {
    let beside = parent(checkpoint);
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    let (parent, name) = match device(run).is_some() && device(run) == device(beside) {
        true => (run, format!("{BEFORE}start-{start}")),
        false => {
            let run = run.file_name().map_or_else(|| "run".into(), OsStr::to_string_lossy);
            (beside, format!("{BEFORE}{run}-start-{start}"))
        }
    };
    let names = (1_u32..).map(|number| if number == 1 { name.clone() } else { format!("{name}-{number}") });
    let mut folders = names.map(|name| parent.join(name));
    folders.find(|folder| fs::symlink_metadata(folder).is_err()).expect("not all numbers are taken")
}

fn parent(checkpoint: &Path) -> &Path {
    checkpoint.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Brings one of them to safety, in the folder that others from the same place are in already.
fn refuge(
    checkpoint: &Path,
    way: Way,
    folders: &mut HashMap<PathBuf, PathBuf>,
    run: &Path,
    free: impl FnOnce() -> PathBuf,
) -> Result<Refuge, KeepError> {
    let nameless = || KeepError::file(checkpoint)(io::ErrorKind::InvalidInput.into());
    let name = checkpoint.file_name().ok_or_else(nameless)?;
    let parent = parent(checkpoint);
    if way != Way::Aside
        && let Some(copy) = earlier(parent, run).map(|folder| folder.join(name)).find(|copy| is_copy(checkpoint, copy))
    {
        return Ok(Refuge::Earlier(copy));
    }
    let folder = folders.entry(parent.to_owned()).or_insert_with(free).clone();
    match fs::create_dir(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(KeepError::file(&folder)(error)),
        _ => {}
    }
    let target = folder.join(name);
    if way == Way::Aside {
        move_to(checkpoint, &target)?;
        return Ok(Refuge::Aside(target));
    }
    let size = size(checkpoint, DEEPEST);
    let without_room = || match way {
        Way::CopyOnly => {
            let _ = fs::remove_dir(&folder);
            Err(KeepError::NoRoom { bytes: Bytes(size) })
        }
        Way::Copy | Way::Aside => {
            move_to(checkpoint, &target)?;
            Ok(Refuge::Moved(target.clone()))
        }
    };
    if !has_room(parent, size) {
        return without_room();
    }
    let copied = match checkpoint.is_dir() {
        true => write_folder(&target, |folder| copy_folder(checkpoint, folder, DEEPEST)),
        false => copy_file(checkpoint, &target),
    };
    let times = || fs::metadata(checkpoint)?.modified().and_then(|time| File::open(&target)?.set_modified(time));
    match copied {
        Ok(()) => {
            // Without it, the next run only makes a copy more.
            let _ = times();
            Ok(Refuge::Copy(target))
        }
        Err(error) if is_full(&error) => without_room(),
        Err(error) => {
            let _ = fs::remove_dir(&folder);
            Err(error.into())
        }
    }
}

/// The folders with what earlier starts kept, of this run and of others: beside the checkpoint, and in the folders of runs.
fn earlier(beside: &Path, run: &Path) -> impl Iterator<Item = PathBuf> {
    let within = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let runs = within(parent(run)).filter(|folder| folder.is_dir());
    let is_it = |folder: &PathBuf| {
        folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(BEFORE.as_bytes()))
    };
    within(beside).chain(runs.flat_map(move |run| within(&run).collect::<Vec<_>>())).filter(is_it)
}

/// Whether a copy leaves as much room as it takes: training needs some too.
fn has_room(folder: &Path, bytes: u64) -> bool {
    rustix::fs::statvfs(folder).map_or(true, |disk| disk.f_bavail.saturating_mul(disk.f_frsize) / 2 >= bytes)
}

fn is_full(error: &DiskError) -> bool {
    matches!(
        error.source.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

fn copy_file(from: &Path, to: &Path) -> Result<(), DiskError> {
    let copy = PartialFile::create(to)?;
    // From file to file the system copies by itself, and shares the blocks where the file system can.
    let copied = File::open(from).and_then(|mut from| io::copy(&mut from, &mut copy.file()));
    copied.map_err(DiskError::at(to))?;
    copy.finish().map(drop)
}

fn copy_folder(from: &Path, to: &Path, depth: usize) -> Result<(), DiskError> {
    let too_deep = || DiskError::at(from)(io::Error::other("folders within each other, deeper than any checkpoint"));
    for entry in fs::read_dir(from).map_err(DiskError::at(from))? {
        let entry = entry.map_err(DiskError::at(from))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let metadata = fs::metadata(&path).map_err(DiskError::at(&path))?;
        if metadata.is_dir() {
            fs::create_dir(&target).map_err(DiskError::at(&target))?;
            copy_folder(&path, &target, depth.checked_sub(1).ok_or_else(too_deep)?)?;
        } else if metadata.is_file() {
            fs::copy(&path, &target).map_err(DiskError::at(&target))?;
        }
    }
    Ok(())
}

/// Whether one is a copy of the other, by its time and its size.
fn is_copy(checkpoint: &Path, copy: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    time(copy).is_some() && time(copy) == time(checkpoint) && size(copy, DEEPEST) == size(checkpoint, DEEPEST)
}

fn size(path: &Path, depth: usize) -> u64 {
    let Ok(metadata) = fs::metadata(path) else { return 0 };
    if !metadata.is_dir() || depth == 0 {
        return metadata.len();
    }
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| size(&entry.path(), depth - 1)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The folder of a run beside a checkpoint.
    fn run_folder(checkpoint: &Path, run: &str) -> PathBuf {
        let folder = parent(checkpoint).join("runs").join(run);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn kept(checkpoint: &Path, way: Way, run: &str, start: usize) -> Refuge {
        let mut kept = keep_safe(&[checkpoint.to_owned()], way, &run_folder(checkpoint, run), start, |_| true);
        kept.remove(0).refuge.unwrap()
    }

    #[test]
    fn all_are_kept_in_one_folder() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["checkpoint-9", "checkpoint-6", "latest"].map(|name| folder.path().join(name));
        for path in &paths[..2] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("model.bin"), "weights").unwrap();
        }
        std::os::unix::fs::symlink("checkpoint-9", &paths[2]).unwrap();
        let kept = keep_safe(&paths, Way::Copy, &run_folder(&paths[0], "t"), 1, |path| path.ends_with("checkpoint-6"));
        let kept: Vec<_> = kept.into_iter().map(|it| (it.is_whole, it.size, it.refuge.unwrap())).collect();
        let copy = |name| Refuge::Copy(folder.path().join("runs/t/before-start-1").join(name));
        assert_eq!(kept, [(false, Bytes(7), copy("checkpoint-9")), (true, Bytes(7), copy("checkpoint-6"))]);
    }

    #[test]
    fn what_the_script_would_take_is_moved() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = folder.path().join("checkpoint-9");
        fs::write(&checkpoint, "broken").unwrap();
        let target = folder.path().join("runs/t/before-start-2/checkpoint-9");
        assert_eq!(kept(&checkpoint, Way::Aside, "t", 2), Refuge::Aside(target.clone()));
        assert_eq!((fs::read_to_string(target).unwrap().as_str(), checkpoint.exists()), ("broken", false));
    }

    #[test]
    fn a_copy_outlives_what_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = folder.path().join("ckpt.pt");
        fs::write(&checkpoint, "first").unwrap();
        let copy = folder.path().join("runs/train-1/before-start-1/ckpt.pt");
        assert_eq!(kept(&checkpoint, Way::Copy, "train-1", 1), Refuge::Copy(copy.clone()));
        assert_eq!(kept(&checkpoint, Way::Copy, "train-2", 1), Refuge::Earlier(copy.clone()));
        // In its place, as torch.save does.
        fs::write(&checkpoint, "again").unwrap();
        assert_eq!(fs::read_to_string(&copy).unwrap(), "first");
        File::options().append(true).open(&checkpoint).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        let next = folder.path().join("runs/train-1/before-start-1-2/ckpt.pt");
        assert_eq!(kept(&checkpoint, Way::Copy, "train-1", 1), Refuge::Copy(next));
    }

    #[test]
    fn a_folder_is_copied_whole() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = folder.path().join("checkpoint-5");
        fs::create_dir_all(checkpoint.join("global_step5")).unwrap();
        fs::write(checkpoint.join("model.safetensors"), "weights").unwrap();
        fs::write(checkpoint.join("global_step5/optimizer.pt"), "moments").unwrap();
        let copy = folder.path().join("runs/t/before-start-3/checkpoint-5");
        assert_eq!(kept(&checkpoint, Way::Copy, "t", 3), Refuge::Copy(copy.clone()));
        assert_eq!(fs::read_to_string(copy.join("global_step5/optimizer.pt")).unwrap(), "moments");
        assert_eq!(kept(&checkpoint, Way::Copy, "t", 3), Refuge::Earlier(copy));
    }

    #[test]
    fn what_has_no_folder_of_a_run_on_its_disk_is_kept_beside() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = folder.path().join("a.pt");
        fs::write(&checkpoint, "weights").unwrap();
        // There is no such folder on any disk.
        let kept = keep_safe(&[checkpoint], Way::CopyOnly, Path::new("/proc/1/none/t-1"), 2, |_| true).remove(0);
        assert_eq!(kept.refuge.unwrap(), Refuge::Copy(folder.path().join("before-t-1-start-2/a.pt")));
    }
}
