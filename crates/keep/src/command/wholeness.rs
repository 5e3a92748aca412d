//! Whether a checkpoint was written to its end and can be read, as far as its form shows.
//!
//! Of files it is asked what their names promise: a zip archive or a pickle for `.pt`, the length that the header of safetensors
//! gives, JSON that is whole. Tensors are not read, so a look at a checkpoint of any size takes milliseconds. A file of a form
//! that nobody knows is whole if it is not empty.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use lowtide_disk::read_text;
use lowtide_pickle::PickleError;
use lowtide_tensorfile::TensorFileError;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::command::checkpoint::LARGEST_STATE;

/// How deep folders in a checkpoint are looked into: those of DeepSpeed have one level.
const DEEPEST: usize = 3;
/// What the names of files by `torch.save` end with.
const TORCH: [&str; 3] = ["pt", "pth", "ckpt"];
/// Files by `torch.save` whose names could also be anybody's.
const TORCH_BINS: [&str; 6] =
    ["pytorch_model", "adapter_model", "optimizer", "scheduler", "training_args", "random_states"];

/// What is known of the form of checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A known trainer's: what is named like a file of `torch.save` is one.
    Torch,
    /// The user's own: a name says little.
    Own,
}

/// Whether a checkpoint is whole. Of a folder, this is asked of the files in it.
pub(crate) fn is_whole(path: &Path, form: Form) -> bool {
    if path.is_dir() { is_whole_folder(path, form, DEEPEST) } else { file_is_whole(path, form).unwrap_or(false) }
}

fn is_whole_folder(path: &Path, form: Form, depth: usize) -> bool {
    let Ok(entries) = fs::read_dir(path) else { return false };
    let mut files = entries.flatten().map(|entry| entry.path()).peekable();
    let whole = |file: PathBuf| match file.metadata() {
        Ok(it) if it.is_dir() => depth == 0 || is_whole_folder(&file, form, depth - 1),
        Ok(it) if it.len() == 0 => may_be_empty(&file),
        Ok(_) => file_is_whole(&file, form).unwrap_or(false),
        Err(_) => false,
    };
    files.peek().is_some() && files.all(whole)
}

fn ending(path: &Path) -> &str {
    path.extension().and_then(OsStr::to_str).unwrap_or_default()
}

/// Whether a file in a folder may be empty: a mark or a list of words may, weights and states may not.
fn may_be_empty(path: &Path) -> bool {
    !TORCH.contains(&ending(path)) && !["bin", "pkl", "json", "safetensors", "distcp"].contains(&ending(path))
}

fn file_is_whole(path: &Path, form: Form) -> std::io::Result<bool> {
    // Opening a pipe would wait for whoever writes into it.
    if !path.metadata()?.is_file() {
        return Ok(false);
    }
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut start = Vec::new();
    file.by_ref().take(9).read_to_end(&mut start)?;
    if start.starts_with(b"PK\x03\x04") {
        return zip_is_whole(&mut file, size);
    }
    Ok(match start.as_slice() {
        [] => false,
        // The size of the header, then the header, in JSON.
        [length @ .., b'{'] if length.len() == 8 && ending(path) == "safetensors" => {
            safetensors_is_whole(&mut file, length, size)?
        }
        _ if ending(path) == "safetensors" => form == Form::Own,
        [0x80, ..] if is_torchs(path) => pickle_is_whole(path),
        _ if is_torchs(path) => form == Form::Own,
        _ if ending(path) == "json" => json_is_whole(path, size),
        _ => true,
    })
}

fn is_torchs(path: &Path) -> bool {
    let name = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    TORCH.contains(&ending(path))
        || ["bin", "pkl"].contains(&ending(path)) && TORCH_BINS.iter().any(|known| name.starts_with(known))
}

/// A zip archive ends with its table of contents and the length of that table, which a comment may follow.
fn zip_is_whole(file: &mut File, size: u64) -> std::io::Result<bool> {
    const END: &[u8] = b"PK\x05\x06";
    const END_BYTES: usize = 22;
    /// The comment's length has two bytes.
    const LONGEST_END: u64 = 22 + 65_535;
    /// What tells where the wide end is, and both together: they stand between the table and the end.
    const WIDE_PLACE: (&[u8], usize) = (b"PK\x06\x07", 20);
    const WIDE_END: u64 = 76;
    /// Where a number has no room here, and stands in the wide end.
    const ELSEWHERE: u64 = u32::MAX as u64;
    let begin = size.saturating_sub(LONGEST_END);
    file.seek(SeekFrom::Start(begin))?;
    let mut end = Vec::new();
    file.by_ref().take(LONGEST_END).read_to_end(&mut end)?;
    let number = |at: usize, bytes: usize| {
        end.get(at..at + bytes).map(|bytes| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    // In a comment there may be anything.
    let is_end =
        |at: &usize| number(at + 20, 2).is_some_and(|length| (at + END_BYTES) as u64 + length == end.len() as u64);
    let Some(at) = memchr::memmem::rfind_iter(&end, END).find(is_end) else { return Ok(false) };
    let (Some(entries), Some(table)) = (number(at + 10, 2), number(at + 12, 4)) else { return Ok(false) };
    if entries == 0 || table == ELSEWHERE {
        return Ok(true);
    }
    let is_wide = at.checked_sub(WIDE_PLACE.1).is_some_and(|place| end[place..].starts_with(WIDE_PLACE.0));
    let behind = table + if is_wide { WIDE_END } else { 0 };
    // Counted from the end, for torch may have written several archives one behind the other.
    let Some(table_at) = (begin + at as u64).checked_sub(behind) else { return Ok(false) };
    file.seek(SeekFrom::Start(table_at))?;
    let mut mark = [0; 4];
    file.read_exact(&mut mark)?;
    Ok(mark == *b"PK\x01\x02")
}

/// The older format of `torch.save`, or a plain pickle: its values are whole and the tensors' bytes are there.
fn pickle_is_whole(path: &Path) -> bool {
    match lowtide_tensorfile::open(path) {
        Ok(_) => true,
        Err(TensorFileError::Pickle { source, .. }) => {
            !matches!(*source, PickleError::Ends { .. } | PickleError::NoOpcode { .. } | PickleError::Io { .. })
        }
        Err(error) => matches!(
            error,
            TensorFileError::Unsupported { .. } | TensorFileError::TooMuch { .. } | TensorFileError::Unwritable { .. }
        ),
    }
}

/// JSON as Python writes it, which has `NaN` and `Infinity` in it.
fn json_is_whole(path: &Path, size: u64) -> bool {
    if size > LARGEST_STATE {
        return true;
    }
    let Ok(text) = read_text(path, LARGEST_STATE) else { return false };
    if path.to_str().is_some_and(|name| name.ends_with(".index.json")) {
        return has_its_parts(path, &text);
    }
    serde_json::from_str::<IgnoredAny>(&text).is_ok()
        || serde_json::from_str::<IgnoredAny>(&without_python_numbers(&text)).is_ok()
}

/// Whether all files are there that a list of weights in several files names.
fn has_its_parts(list: &Path, text: &str) -> bool {
    let Ok(list_value) = serde_json::from_str::<Value>(text) else { return false };
    let parts = list_value.get("weight_map").and_then(Value::as_object).into_iter().flatten();
    parts.filter_map(|(_, part)| part.as_str()).all(|part| list.with_file_name(part).exists())
}

/// JSON with `null` for the numbers that only Python's has; what stands in quotes stays.
fn without_python_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut quoted = false;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let number = ["NaN", "-Infinity", "Infinity"].into_iter().find(|word| !quoted && rest.starts_with(word));
        let taken = match (number, first) {
            (Some(word), _) => {
                out.push_str("null");
                word.len()
            }
            (None, '\\') if quoted => {
                let escape: String = rest.chars().take(2).collect();
                out.push_str(&escape);
                escape.len()
            }
            (None, _) => {
                quoted ^= first == '"';
                out.push(first);
                first.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    out
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
    let Ok(header) = serde_json::from_reader::<_, Value>(BufReader::new(file.take(length))) else {
        return Ok(false);
    };
    let tensors = header.as_object().into_iter().flatten();
    let ends = tensors.filter_map(|(_, tensor)| tensor.get("data_offsets")?.get(1)?.as_u64());
    let tensors_end = ends.max().unwrap_or(0);
    Ok((8 + length).checked_add(tensors_end) == Some(size))
}

#[cfg(test)]
mod tests {
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
        let is_whole = |path: &Path| is_whole(path, Form::Torch);
        let folder = tempfile::tempdir().unwrap();
        let absurd = br#"{"w":{"data_offsets":[0,18446744073709551615]}}"#;
        let absurd = [&(absurd.len() as u64).to_le_bytes()[..], absurd].concat();
        let cases: [(&str, &[u8], bool); 17] = [
            ("absurd.safetensors", &absurd, false),
            ("a.pt", ZIP, true),
            ("b.pt", &ZIP[..12], false),
            ("c.pt", b"", false),
            ("d.dat", b"some form of its own", true),
            ("e.safetensors", &safetensors(8), true),
            ("f.safetensors", &safetensors(7), false),
            ("g.safetensors", &safetensors(8)[..20], false),
            ("h.bin", b"\x08\0\0\0\0\0\0\0{", true),
            ("i.pt", b"PK", false),
            ("j.ckpt", b"xxxxxxxxxxxx", false),
            ("optimizer.bin", b"xxxxxxxxxxxx", false),
            ("k.safetensors", b"xxxxxxxxxxxx", false),
            ("l.pth", b"\x80\x02}q\x00.", true),
            ("m.pth", b"\x80\x02}q\x00", false),
            ("n.json", b"{\"loss\": NaN, \"a \\\" NaN\": [-Infinity]}", true),
            ("o.json", b"{\"loss\": 1, \"log", false),
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
    fn a_file_of_torch_without_its_last_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ckpt.pt");
        write_pt(&path, &PtValue::Dict(vec![(PtValue::Str("iter_num".into()), PtValue::Int(250))])).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert!(is_whole(&path, Form::Torch) && is_whole(&path, Form::Own));
        for cut in [1, 10, 22, 100] {
            fs::write(&path, &bytes[..bytes.len() - cut]).unwrap();
            assert!(!is_whole(&path, Form::Own), "{cut} bytes less");
        }
        // Its begin is another file's, and its length is right.
        fs::write(&path, [&bytes[..bytes.len() / 2], &vec![b'x'; bytes.len().div_ceil(2)]].concat()).unwrap();
        assert!(!is_whole(&path, Form::Own));
    }

    #[test]
    fn weights_in_several_files_are_all_there() {
        let folder = tempfile::tempdir().unwrap();
        let list = r#"{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}"#;
        fs::write(folder.path().join("model.safetensors.index.json"), list).unwrap();
        fs::write(folder.path().join("model-1.safetensors"), safetensors(8)).unwrap();
        assert!(!is_whole(folder.path(), Form::Torch));
        fs::write(folder.path().join("model-2.safetensors"), safetensors(8)).unwrap();
        assert!(is_whole(folder.path(), Form::Torch));
        for (name, whole) in [("optimizer.pt", false), ("trainer_state.json", false), ("merges.txt", true)] {
            fs::write(folder.path().join(name), "").unwrap();
            assert_eq!(is_whole(folder.path(), Form::Own), whole, "{name}");
            fs::remove_file(folder.path().join(name)).unwrap();
        }
    }

    #[test]
    fn a_name_says_little_of_a_form_of_ones_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("last.pt");
        fs::write(&path, "step 3").unwrap();
        assert_eq!([Form::Own, Form::Torch].map(|form| is_whole(&path, form)), [true, false]);
    }
}
