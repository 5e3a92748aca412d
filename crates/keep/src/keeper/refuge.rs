//! Checkpoints that a start from step 0 would write over, brought to safety first.
//!
//! `torch.save` and its kin write into the file that is there, so a hard link would be written over with it. The copy stands
//! in the folder of the run, where no pattern of checkpoints finds it, or beside the checkpoint where that is on another file
//! system: on the same one many need no room for it, and what is moved is only renamed.
//!
//! All that match are kept, and not the newest alone: a start from step 0 comes by every step again. They are copied as
//! long as that takes no more than half of the room that is left, the newest first. Where it would take more they stay where
//! they are, for the script may need them there, and no restart follows: only what certainly begins at step 0 may find them
//! gone. Of scripts that nothing is known of, the files that the run wrote and that look like checkpoints are brought to safety
//! (`keep/command/strays.rs`), and those that the command names, whoever wrote them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lowtide_core::Bytes;
use lowtide_disk::move_to;

use crate::KeepError;
use crate::command::checkpoint::{BEFORE, is_kept_folder};
use crate::command::contents::{Contents, folder_of};
use crate::keeper::copy::{CopyError, copy};
use crate::keeper::origins;

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
    /// They stay, for the script may read them, also where there is no room for a copy.
    Copy,
    /// They stay where there is room for a copy: the script reads none of them.
    CopyOrMove,
    /// They do not stay, for the script would resume from them.
    Aside,
}

/// The start before which checkpoints are brought to safety.
pub(crate) struct Occasion<'a> {
    /// The folder of the run.
    pub(crate) run: &'a Path,
    /// The number of the start, from 1.
    pub(crate) start: usize,
    /// Whether a checkpoint is whole.
    pub(crate) is_whole: &'a dyn Fn(&Path) -> bool,
}

/// A checkpoint that is to be brought to safety.
struct Candidate {
    path: PathBuf,
    contents: Contents,
    /// The copy of it that is there already.
    earlier: Option<PathBuf>,
}

/// Brings checkpoints to safety before a start of a run, in their order. `before_piece` is called before each piece that is
/// written, with the size of all that may have to be; where it breaks off, the rest stays as it is.
pub(crate) fn keep_safe(
    checkpoints: &[PathBuf],
    way: Way,
    occasion: &Occasion<'_>,
    before_piece: &mut dyn FnMut(Bytes) -> ControlFlow<()>,
) -> Vec<KeptCheckpoint> {
    let candidates = checkpoints.iter().enumerate().filter(|(index, _)| !is_link_to_another(checkpoints, *index));
    let candidates = candidates.map(|(_, path)| path);
    let mut places: HashMap<&Path, Vec<PathBuf>> = HashMap::new();
    let candidates = candidates.map(|path| {
        let copies = places.entry(folder_of(path)).or_insert_with_key(|parent| match way {
            Way::Aside => Vec::new(),
            Way::Copy | Way::CopyOrMove => earlier(parent, occasion.run).collect(),
        });
        Candidate::new(path, copies)
    });
    let candidates: Vec<Candidate> = candidates.collect();
    let written = candidates.iter().filter(|it| it.earlier.is_none()).map(|it| it.contents.bytes()).sum();
    let mut folders = HashMap::new();
    let mut kept = Vec::new();
    for candidate in candidates {
        let (is_whole, size) = ((occasion.is_whole)(&candidate.path), Bytes(candidate.contents.bytes()));
        let free = || free_folder(&candidate.path, occasion);
        let Some(refuge) =
            refuge(&candidate, way, &mut folders, free, &mut || before_piece(Bytes(written))).transpose()
        else {
            break;
        };
        kept.push(KeptCheckpoint { checkpoint: candidate.path, is_whole, size, refuge });
    }
    kept
}

/// Removes the copies that were just made where no start follows that would write over anything, and names only what could
/// not be copied or is elsewhere now.
pub(crate) fn take_back(kept: &mut Vec<KeptCheckpoint>) {
    kept.retain(|it| match &it.refuge {
        Ok(Refuge::Copy(copy)) => {
            // What cannot be removed is one copy more.
            let _ = origins::remove(copy);
            false
        }
        Ok(Refuge::Earlier(_)) => false,
        Ok(Refuge::Moved(_) | Refuge::Aside(_)) | Err(_) => true,
    });
}

/// Whether a checkpoint is a link to what stands among them by itself, or by an earlier link.
fn is_link_to_another(checkpoints: &[PathBuf], index: usize) -> bool {
    let link = &checkpoints[index];
    let is_same = |other: &Path| other.canonicalize().ok() == link.canonicalize().ok();
    let is_first = |at: usize, other: &Path| at < index || !other.is_symlink();
    let mut others = checkpoints.iter().enumerate().filter(|(at, _)| *at != index);
    link.is_symlink() && others.any(|(at, other)| is_first(at, other) && is_same(other))
}

/// Removes the oldest copies that earlier runs made of checkpoints of which there is a new one now, but for those that are
/// needed.
pub(crate) fn thin_out(kept: &[KeptCheckpoint], run: &Path, is_needed: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let is_new = |it: &&KeptCheckpoint| matches!(it.refuge, Ok(Refuge::Copy(_) | Refuge::Moved(_)));
    let of_others = |checkpoint: &Path| -> Vec<PathBuf> {
        earlier(folder_of(checkpoint), run).filter(|folder| !is_of_run(folder, run)).collect()
    };
    let removed = |it: &KeptCheckpoint| origins::thin_out(&it.checkpoint, &of_others(&it.checkpoint), is_needed);
    kept.iter().filter(is_new).flat_map(removed).collect()
}

/// Whether a folder of copies is of this run: in its folder, or beside a checkpoint with its name.
fn is_of_run(folder: &Path, run: &Path) -> bool {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    folder_of(folder) == run || name(folder).starts_with(&format!("{BEFORE}{}-start-", name(run)))
}

impl Candidate {
    /// A checkpoint, and the folders that a copy of it may be in.
    fn new(checkpoint: &Path, folders: &[PathBuf]) -> Self {
        let contents = Contents::of(checkpoint);
        let copies = folders.iter().filter_map(|folder| Some(folder.join(checkpoint.file_name()?)));
        let earlier = copies.into_iter().find(|copy| contents.is_copied_in(copy));
        Self { path: checkpoint.to_owned(), contents, earlier }
    }
}

/// The first folder for a checkpoint that is not there yet: in the folder of the run, or beside the checkpoint.
fn free_folder(checkpoint: &Path, occasion: &Occasion<'_>) -> PathBuf {
    let Occasion { run, start, .. } = *occasion;
    let beside = folder_of(checkpoint);
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

/// Brings one of them to safety, in the folder that others from the same place are in already; `None` where somebody wants an
/// end first.
fn refuge(
    candidate: &Candidate,
    way: Way,
    folders: &mut HashMap<PathBuf, PathBuf>,
    free: impl FnOnce() -> PathBuf,
    before_piece: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Option<Refuge>, KeepError> {
    if let Some(copy) = &candidate.earlier {
        return Ok(Some(Refuge::Earlier(copy.clone())));
    }
    let checkpoint = &*candidate.path;
    let nameless = || KeepError::file(checkpoint)(io::ErrorKind::InvalidInput.into());
    let name = checkpoint.file_name().ok_or_else(nameless)?;
    let parent = folder_of(checkpoint);
    let folder = folders.entry(parent.to_owned()).or_insert_with(free).clone();
    match fs::create_dir(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(KeepError::file(&folder)(error)),
        _ => {}
    }
    let target = folder.join(name);
    if way == Way::Aside {
        move_to(checkpoint, &target)?;
        return Ok(Some(Refuge::Aside(target)));
    }
    let bytes = candidate.contents.bytes();
    let has_room = has_room(parent, bytes);
    let copied = copy(checkpoint, &candidate.contents, &target, &mut || match has_room {
        false => Err(CopyError::NoRoom),
        true if before_piece().is_break() => Err(CopyError::ToldToEnd),
        true => Ok(()),
    });
    let refuge = match copied {
        Ok(()) => Ok(Some(Refuge::Copy(target))),
        Err(CopyError::ToldToEnd) => Ok(None),
        Err(CopyError::NoRoom) if way == Way::CopyOrMove => {
            move_to(checkpoint, &target).map(|()| Some(Refuge::Moved(target))).map_err(KeepError::from)
        }
        Err(CopyError::NoRoom) => Err(KeepError::NoRoom { bytes: Bytes(bytes) }),
        Err(CopyError::Disk(error)) => Err(error.into()),
    };
    match &refuge {
        Ok(Some(_)) => origins::record(&folder, name, checkpoint),
        // Where others are in it already, it stays.
        _ => drop(fs::remove_dir(&folder)),
    }
    refuge
}

/// The folders with what earlier starts kept, of this run and of others: beside the checkpoint, and in the folders of runs.
fn earlier(beside: &Path, run: &Path) -> impl Iterator<Item = PathBuf> {
    let within = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let runs = within(folder_of(run)).filter(|folder| folder.is_dir());
    let is_it = |folder: &PathBuf| folder.file_name().is_some_and(is_kept_folder);
    within(beside).chain(runs.flat_map(move |run| within(&run).collect::<Vec<_>>())).filter(is_it)
}

/// Whether a copy leaves as much room as it takes: training needs some too.
fn has_room(folder: &Path, bytes: u64) -> bool {
    rustix::fs::statvfs(folder).map_or(true, |disk| disk.f_bavail.saturating_mul(disk.f_frsize) / 2 >= bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The folder of a run beside a checkpoint.
    fn run_folder(checkpoint: &Path, run: &str) -> PathBuf {
        let folder = folder_of(checkpoint).join("runs").join(run);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn kept_in(checkpoints: &[PathBuf], way: Way, run: &Path, start: usize) -> Vec<KeptCheckpoint> {
        let is_whole = |path: &Path| !path.ends_with("checkpoint-9");
        keep_safe(checkpoints, way, &Occasion { run, start, is_whole: &is_whole }, &mut |_| ControlFlow::Continue(()))
    }

    fn kept(checkpoint: &Path, way: Way, run: &str, start: usize) -> Refuge {
        kept_in(&[checkpoint.to_owned()], way, &run_folder(checkpoint, run), start).remove(0).refuge.unwrap()
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
        let kept = kept_in(&paths, Way::Copy, &run_folder(&paths[0], "t"), 1);
        let kept: Vec<_> = kept.into_iter().map(|it| (it.is_whole, it.size, it.refuge.unwrap())).collect();
        let copy = |name| Refuge::Copy(folder.path().join("runs/t/before-start-1").join(name));
        assert_eq!(kept, [(false, Bytes(7), copy("checkpoint-9")), (true, Bytes(7), copy("checkpoint-6"))]);
    }

    #[test]
    fn of_several_links_to_one_file_one_is_kept() {
        let [folder, disk] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        fs::write(disk.path().join("weights"), "weights").unwrap();
        let links = ["last.pt", "best.pt"].map(|name| folder.path().join(name));
        for link in &links {
            std::os::unix::fs::symlink(disk.path().join("weights"), link).unwrap();
        }
        let kept = kept_in(&links, Way::Copy, &run_folder(&links[0], "t"), 1);
        let copy = folder.path().join("runs/t/before-start-1/last.pt");
        assert_eq!(fs::read_to_string(&copy).unwrap(), "weights");
        let refuges: Vec<_> = kept.into_iter().map(|it| it.refuge.unwrap()).collect();
        assert_eq!(refuges, [Refuge::Copy(copy)]);
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
        let file = fs::File::options().append(true).open(&checkpoint).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
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
        let kept = kept_in(&[checkpoint], Way::Copy, Path::new("/proc/1/none/t-1"), 2).remove(0);
        assert_eq!(kept.refuge.unwrap(), Refuge::Copy(folder.path().join("before-t-1-start-2/a.pt")));
    }

    #[test]
    fn of_a_folder_that_is_written_over_in_its_place_each_is_kept() {
        let top = tempfile::tempdir().unwrap();
        let checkpoint = top.path().join("step_500");
        fs::create_dir(&checkpoint).unwrap();
        for (number, run) in ["a", "b", "c"].into_iter().enumerate() {
            fs::write(checkpoint.join("model.pt"), run).unwrap();
            let file = fs::File::options().append(true).open(checkpoint.join("model.pt")).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(number as u64)).unwrap();
            let Refuge::Copy(copy) = kept(&checkpoint, Way::Copy, &format!("next-{run}"), 1) else { panic!("{run}") };
            assert_eq!(fs::read_to_string(copy.join("model.pt")).unwrap(), run);
        }
    }

    #[test]
    fn an_end_that_somebody_wants_leaves_the_rest_as_it_is() {
        let top = tempfile::tempdir().unwrap();
        let paths = ["a.pt", "b.pt", "c.pt"].map(|name| top.path().join(name));
        paths.iter().for_each(|path| fs::write(path, "weights").unwrap());
        let (run, mut asked) = (run_folder(&paths[0], "t"), Vec::new());
        let kept = keep_safe(&paths, Way::Copy, &Occasion { run: &run, start: 1, is_whole: &|_| true }, &mut |bytes| {
            asked.push(bytes);
            if asked.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if asked.is_empty() {
            // The file system shares blocks, and nothing is written.
            return;
        }
        assert_eq!((kept.len(), asked), (1, vec![Bytes(21); 2]));
        assert!(paths.iter().all(|path| path.exists()) && run.join("before-start-1/a.pt").exists());
    }

    #[test]
    fn only_a_few_copies_of_earlier_runs_stay() {
        let top = tempfile::tempdir().unwrap();
        let checkpoint = top.path().join("model.pt");
        let mut removed = Vec::new();
        for number in 1..=6 {
            fs::write(&checkpoint, "weights").unwrap();
            let file = fs::File::options().append(true).open(&checkpoint).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(number)).unwrap();
            let run = run_folder(&checkpoint, &format!("t-{number}"));
            removed.extend(thin_out(&kept_in(std::slice::from_ref(&checkpoint), Way::Copy, &run, 1), &run, &|_| false));
        }
        let copy = |number: u32| top.path().join(format!("runs/t-{number}/before-start-1/model.pt"));
        assert_eq!(removed, [copy(1), copy(2)]);
        assert!((3..=6).all(|number| copy(number).exists()));
    }
}
