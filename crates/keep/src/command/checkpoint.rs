//! The newest checkpoint that is whole.
//!
//! A checkpoint counts only if it was written since the first start, for an older one belongs to another run, and only
//! if it is whole: memory may run out while it is written. Where trainers write theirs and what makes them resume is
//! one table (`trainers/checkpoints/knowledge.rs`); a flag is added only where the script shows that it takes it, and
//! in a copy of the script the call that trains gets the checkpoint (`trainers/resume_call.rs`). Of Hugging Face's
//! checkpoints a folder of links with the new micro-batch is given (`keep/keeper/trainer_state.rs`), since many
//! versions take the checkpoint's instead of the one they are told.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lowtide_disk::read_text;
use lowtide_tensorfile::Tree;

/// How deep folders in a checkpoint are looked into: those of DeepSpeed have one level.
const DEEPEST: usize = 3;
/// What Hugging Face's Trainer writes of itself in each checkpoint.
pub(crate) const TRAINER_STATE: &str = "trainer_state.json";
/// It has a line for each report of the whole training.
pub(crate) const LARGEST_STATE: u64 = 64 << 20;

/// A checkpoint that is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The file or folder.
    pub path: PathBuf,
    /// The step that it was written at, where it says so.
    pub step: Option<u64>,
}

/// What a look for a checkpoint found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckpointSearch {
    /// The newest whole one.
    pub(crate) found: Option<Checkpoint>,
    /// Newer ones that are not whole, the newest first.
    pub(crate) damaged: Vec<PathBuf>,
}

/// The newest file or folder of some patterns that was written since a moment and is whole. An older one is another
/// run's, and memory may have run out while the newest was being written. A folder has the file that is written last, where
/// that is known.
pub(crate) fn newest(patterns: &[String], last_file: Option<&str>, since: SystemTime) -> CheckpointSearch {
    let mut damaged = Vec::new();
    for path in by_age(patterns, since) {
        if is_finished(&path, last_file) {
            let step = step_of(&path);
            return CheckpointSearch { found: Some(Checkpoint { path, step }), damaged };
        }
        damaged.push(path);
    }
    CheckpointSearch { found: None, damaged }
}

/// The same, without a look at its step.
pub(crate) fn newest_whole(patterns: &[String], last_file: Option<&str>, since: SystemTime) -> Option<PathBuf> {
    by_age(patterns, since).into_iter().find(|path| is_finished(path, last_file))
}

fn is_finished(path: &Path, last_file: Option<&str>) -> bool {
    is_whole(path, DEEPEST) && last_file.is_none_or(|file| !path.is_dir() || path.join(file).exists())
}

/// All that was written since a moment, the newest first.
fn by_age(patterns: &[String], since: SystemTime) -> Vec<PathBuf> {
    let written = |path: &PathBuf| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let found = patterns.iter().filter_map(|pattern| glob::glob(pattern).ok()).flatten().flatten();
    let found = found.filter_map(|path| Some((written(&path)?, path))).filter(|(time, _)| *time >= since);
    let mut found: Vec<(SystemTime, PathBuf)> = found.collect();
    found.sort();
    found.into_iter().rev().map(|(_, path)| path).collect()
}

/// Where checkpoints of files have their step.
const STEP_KEYS: [&str; 5] = ["iter_num", "global_step", "step", "iteration", "iter"];

/// The step of a checkpoint: what it says itself, or its name.
fn step_of(path: &Path) -> Option<u64> {
    let said = match path.is_dir() {
        true => {
            read_text(&path.join(TRAINER_STATE), LARGEST_STATE).ok().and_then(|state| number(&state, "global_step"))
        }
        false => lowtide_tensorfile::open(path).ok().and_then(|contents| {
            STEP_KEYS.iter().find_map(|key| match contents.tree.child(key)? {
                Tree::Int(step) => u64::try_from(*step).ok(),
                _ => None,
            })
        }),
    };
    said.or_else(|| {
        let name = path.file_stem()?.to_str()?;
        let at = ["step=", "step_", "checkpoint-"].iter().find_map(|word| Some(name.find(word)? + word.len()))?;
        name[at..].split(|it: char| !it.is_ascii_digit()).next()?.parse().ok()
    })
}

/// The number of a key of the outermost level, in JSON as Python writes it with an indent of two.
fn number(state: &str, key: &str) -> Option<u64> {
    let (_, rest) = state.split_once(&format!("\n  \"{key}\": "))?;
    rest.split(|it: char| !it.is_ascii_digit()).next()?.parse().ok()
}

/// Whether a checkpoint was written to its end, as far as its form shows: an empty one was not, nor a file of
/// `torch.save` or of safetensors that is too short. Of a folder, this is asked of the files in it.
fn is_whole(path: &Path, depth: usize) -> bool {
    if !path.is_dir() {
        return is_whole_file(path);
    }
    let Ok(entries) = fs::read_dir(path) else { return false };
    let mut files = entries.flatten().map(|entry| entry.path()).peekable();
    // Small files in a folder may well be empty.
    let whole = |file: PathBuf| match file.metadata() {
        Ok(it) if it.is_dir() => depth == 0 || is_whole(&file, depth - 1),
        Ok(it) => it.len() == 0 || is_whole(&file, 0),
        Err(_) => false,
    };
    files.peek().is_some() && files.all(whole)
}

/// The same of a single file.
pub(crate) fn is_whole_file(path: &Path) -> bool {
    file_is_whole(path).unwrap_or(false)
}

fn file_is_whole(path: &Path) -> std::io::Result<bool> {
    // Opening a pipe would wait for whoever writes into it.
    if !path.metadata()?.is_file() {
        return Ok(false);
    }
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut start = Vec::new();
    file.by_ref().take(9).read_to_end(&mut start)?;
    if start.starts_with(b"PK\x03\x04") {
        return ends_as_zip(&mut file, size);
    }
    match start.as_slice() {
        [] => Ok(false),
        // The size of the header, then the header, in JSON.
        [length @ .., b'{'] if length.len() == 8 && path.extension() == Some(OsStr::new("safetensors")) => {
            safetensors_is_whole(&mut file, length, size)
        }
        _ => Ok(true),
    }
}

/// A zip archive ends with its table of contents, which a comment of at most 64 KiB may follow.
fn ends_as_zip(file: &mut File, size: u64) -> std::io::Result<bool> {
    const END: &[u8] = b"PK\x05\x06";
    const LONGEST_END: u64 = 22 + 65_535;
    file.seek(SeekFrom::Start(size.saturating_sub(LONGEST_END)))?;
    let mut end = Vec::new();
    file.take(LONGEST_END).read_to_end(&mut end)?;
    Ok(memchr::memmem::rfind(&end, END).is_some())
}

/// The tensors' places in the header say how long the file is.
fn safetensors_is_whole(file: &mut File, length: &[u8], size: u64) -> std::io::Result<bool> {
    /// As the format has it.
    const LONGEST_HEADER: u64 = 100_000_000;
    let length = length.try_into().map_or(0, u64::from_le_bytes);
    if length > LONGEST_HEADER || length > size {
        return Ok(false);
    }
    file.seek(SeekFrom::Start(8))?;
    let Ok(header) = serde_json::from_reader::<_, serde_json::Value>(BufReader::new(file.take(length))) else {
        return Ok(false);
    };
    let tensors = header.as_object().into_iter().flatten();
    let ends = tensors.filter_map(|(_, tensor)| tensor.get("data_offsets")?.get(1)?.as_u64());
    let tensors_end = ends.max().unwrap_or(0);
    Ok((8 + length).checked_add(tensors_end) == Some(size))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lowtide_tensorfile::{PtValue, write_pt};

    use super::*;

    /// A zip archive without files in it.
    const ZIP: &[u8] = b"PK\x03\x04 a file PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

    fn safetensors(tensor_bytes: usize) -> Vec<u8> {
        let header = br#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
        let length = (header.len() as u64).to_le_bytes();
        [&length[..], header, &vec![0; tensor_bytes]].concat()
    }

    #[test]
    fn what_was_cut_short_is_passed_over() {
        let is_whole = |path: &Path| is_whole(path, DEEPEST);
        let folder = tempfile::tempdir().unwrap();
        let absurd = br#"{"w":{"data_offsets":[0,18446744073709551615]}}"#;
        let absurd = [&(absurd.len() as u64).to_le_bytes()[..], absurd].concat();
        let cases: [(&str, &[u8], bool); 10] = [
            ("absurd.safetensors", &absurd, false),
            ("a.pt", ZIP, true),
            ("b.pt", &ZIP[..12], false),
            ("c.pt", b"", false),
            ("d.ckpt", b"some form of its own", true),
            ("e.safetensors", &safetensors(8), true),
            ("f.safetensors", &safetensors(7), false),
            ("g.safetensors", &safetensors(8)[..20], false),
            ("h.bin", b"\x08\0\0\0\0\0\0\0{", true),
            ("i.pt", b"PK", true),
        ];
        for (name, bytes, whole) in cases {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            assert_eq!(is_whole(&path), whole, "{name}");
        }
        assert!(!is_whole(&folder.path().join("none")));
        // Folders, as Hugging Face's Trainer and Lowtide write them.
        let step = folder.path().join("checkpoint-5");
        fs::create_dir(&step).unwrap();
        assert!(!is_whole(&step));
        fs::write(step.join("trainer_state.json"), "{}").unwrap();
        fs::write(step.join("model.safetensors"), safetensors(8)).unwrap();
        assert!(is_whole(&step));
        let below = step.join("global_step5");
        fs::create_dir(&below).unwrap();
        fs::write(below.join("optimizer.pt"), ZIP).unwrap();
        assert!(is_whole(&step));
        fs::write(below.join("optimizer.pt"), &ZIP[..12]).unwrap();
        assert!(!is_whole(&step));
        fs::remove_dir_all(below).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(step.join("pipe")).status().unwrap().success());
        assert!(!is_whole(&step.join("pipe")));
    }

    #[test]
    fn the_newest_that_this_run_wrote_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let pattern = [folder.path().join("*.pt").display().to_string()];
        let begun = SystemTime::now();
        let written = |name: &str, bytes: &[u8], seconds: i64| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            let offset = Duration::from_secs(seconds.unsigned_abs());
            let file = File::options().append(true).open(path).unwrap();
            file.set_modified(if seconds < 0 { begun - offset } else { begun + offset }).unwrap();
        };
        assert_eq!(newest(&pattern, None, begun), CheckpointSearch::default());
        written("old.pt", ZIP, -10);
        assert_eq!(newest(&pattern, None, begun), CheckpointSearch::default());
        written("a.pt", ZIP, 20);
        written("b.pt", ZIP, 10);
        written("half.pt", &ZIP[..12], 30);
        let path = |name| folder.path().join(name);
        let found = Some(Checkpoint { path: path("a.pt"), step: None });
        assert_eq!(newest(&pattern, None, begun), CheckpointSearch { found, damaged: vec![path("half.pt")] });
        assert_eq!(newest_whole(&pattern, None, SystemTime::UNIX_EPOCH), Some(path("a.pt")));
    }

    #[test]
    fn a_checkpoint_says_its_step() {
        let folder = tempfile::tempdir().unwrap();
        let named = |name: &str| folder.path().join(name);
        let dict = |key: &'static str| PtValue::Dict(vec![(PtValue::Str(key.into()), PtValue::Int(250))]);
        write_pt(&named("ckpt.pt"), &dict("iter_num")).unwrap();
        write_pt(&named("epoch=3-step=400.ckpt"), &dict("state")).unwrap();
        write_pt(&named("none.pt"), &dict("state")).unwrap();
        for name in ["checkpoint-7", "checkpoint-8", "step_9", "epoch_3"] {
            fs::create_dir(named(name)).unwrap();
        }
        fs::write(named("checkpoint-7").join(TRAINER_STATE), "{\n  \"epoch\": NaN,\n  \"global_step\": 70\n}").unwrap();
        let steps =
            ["ckpt.pt", "epoch=3-step=400.ckpt", "none.pt", "checkpoint-7", "checkpoint-8", "step_9", "epoch_3"];
        let steps = steps.map(|name| step_of(&named(name)));
        assert_eq!(steps, [Some(250), Some(400), None, Some(70), Some(8), Some(9), None]);
        // The Trainer writes its state last.
        let folders = [named("checkpoint-*").display().to_string()];
        fs::write(named("checkpoint-8").join("optimizer.pt"), ZIP).unwrap();
        let found = |last_file| newest_whole(&folders, last_file, SystemTime::UNIX_EPOCH);
        assert_eq!(found(None), Some(named("checkpoint-8")));
        assert_eq!(found(Some(TRAINER_STATE)), Some(named("checkpoint-7")));
    }
}
