//! Checkpoints that are damaged, foreign or half-written.

use std::fs;
use std::path::Path;

use lowtide_core::Event;
use lowtide_train::{Start, TrainError};
use tempfile::TempDir;

use crate::kit::{alone, curve, settings, train};

/// A run of four steps, with checkpoints after the second and the fourth.
fn finished() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let curve = curve(16);
    train(&curve, &settings(), folder.path(), Start::New, || {}).0.unwrap();
    folder
}

fn resume(folder: &Path, width: i64) -> lowtide_train::Result<lowtide_train::Outcome> {
    let mut settings = settings();
    settings.train.steps = 6;
    let curve = curve(width);
    train(&curve, &settings, folder, Start::Resume, || {}).0
}

/// Changes a file of the newest checkpoint and compares the refusal with `expect`.
#[track_caller]
fn check_damage(file: &str, change: impl FnOnce(&mut Vec<u8>), expect: &str) {
    let _alone = alone();
    let folder = finished();
    let path = folder.path().join("checkpoints/00000004").join(file);
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(&path, bytes).unwrap();
    let error = resume(folder.path(), 16).unwrap_err();
    assert!(matches!(error, TrainError::Damaged { .. }), "{error:?}");
    assert_eq!(error.to_string(), format!("{}: {expect}", path.display()));
    let command = format!("lowtide train --resume --out {} --checkpoint 2", folder.path().display());
    assert_eq!(error.hint("lowtide"), Some(format!("the checkpoint of step 2, before it, is whole: {command}")));

    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    assert_eq!(resume(folder.path(), 16).unwrap().summary.steps, 6);
}

/// What is said of a file of which other bytes are there than were written.
#[track_caller]
fn check_change(file: &str, change: impl Fn(&mut Vec<u8>)) {
    let _alone = alone();
    let folder = finished();
    let path = folder.path().join("checkpoints/00000004").join(file);
    let mut bytes = fs::read(&path).unwrap();
    let length = bytes.len();
    change(&mut bytes);
    let problem = if bytes.len() == length {
        "it was changed after it was written: its checksum is ".to_owned()
    } else {
        format!("it is {} bytes long, and {length} were written", bytes.len())
    };
    fs::write(&path, bytes).unwrap();
    let error = resume(folder.path(), 16).unwrap_err();
    assert!(matches!(error, TrainError::Damaged { .. }), "{error:?}");
    assert!(error.to_string().starts_with(&format!("{}: {problem}", path.display())), "{error}");
}

#[test]
fn a_file_of_another_length() {
    check_change("model.safetensors", |bytes| bytes.truncate(4));
    check_change("model.safetensors", |bytes| bytes.truncate(40));
    check_change("training.safetensors", Vec::clear);
    check_change("model.safetensors", |bytes| bytes.push(0));
}

#[test]
fn a_header_with_flipped_bits() {
    check_change("model.safetensors", |bytes| bytes[7] ^= 1);
    check_change("model.safetensors", |bytes| bytes[9] ^= 1);
}

/// Bits all over each file of a checkpoint, in tensors, headers and texts, one at a time.
#[test]
fn no_flipped_bit_is_silent() {
    let _alone = alone();
    let folder = finished();
    let checkpoint = folder.path().join("checkpoints/00000004");
    for file in ["model.safetensors", "training.safetensors", "state.json"] {
        let path = checkpoint.join(file);
        let whole = fs::read(&path).unwrap();
        for flip in 0..100 {
            let bit = (flip * 2_654_435_761_usize + 7) % (8 * whole.len());
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &bytes).unwrap();
            let error = resume(folder.path(), 16).expect_err("a changed bit is noticed").to_string();
            assert!(error.starts_with(&*path.to_string_lossy()), "bit {bit} of {file}: {error}");
        }
        fs::write(&path, whole).unwrap();
    }
    assert_eq!(resume(folder.path(), 16).unwrap().summary.steps, 6);
}

#[test]
fn a_checkpoint_of_an_older_version_is_used_and_not_checked() {
    let _alone = alone();
    let folder = finished();
    let path = folder.path().join("checkpoints/00000004/state.json");
    let mut state: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let fields = state.as_object_mut().unwrap();
    for key in ["crc32c", "files", "events_bytes"] {
        assert!(fields.remove(key).is_some(), "{key}");
    }
    // Its schema alone would be a lie.
    fs::write(&path, serde_json::to_string_pretty(&state).unwrap()).unwrap();
    let error = resume(folder.path(), 16).unwrap_err().to_string();
    assert!(error.ends_with("state.json: it is damaged: its checksums are missing"), "{error}");
    state["schema"] = 1.into();
    fs::write(&path, serde_json::to_string_pretty(&state).unwrap()).unwrap();
    let mut settings = settings();
    settings.train.steps = 6;
    let curve = curve(16);
    let (outcome, events) = train(&curve, &settings, folder.path(), Start::Resume, || {});
    assert_eq!(outcome.unwrap().summary.steps, 6);
    let expect = "checkpoint 00000004 was written by an older version, without checksums: it cannot be checked";
    assert!(events.iter().any(|event| matches!(event, Event::Note { message, .. } if message == expect)), "{events:?}");
}

#[test]
fn numbers_that_are_no_numbers() {
    check_damage(
        "state.json",
        |bytes| bytes.truncate(1),
        "it is damaged: EOF while parsing an object at line 1 column 1",
    );
}

#[test]
fn a_checkpoint_of_another_model() {
    let _alone = alone();
    let folder = finished();
    let before = fs::read_to_string(folder.path().join("config.yaml")).unwrap();
    let error = resume(folder.path(), 8).unwrap_err();
    assert!(matches!(error, TrainError::OtherModel { .. }), "{error:?}");
    let expect = "it is of another model: `in.bias` is F32 [16], and this model has F32 [8]";
    assert!(error.to_string().ends_with(expect), "{error}");
    assert_eq!(fs::read_to_string(folder.path().join("config.yaml")).unwrap(), before);
}

#[test]
fn what_a_kill_left_half_written_is_ignored_and_removed() {
    let _alone = alone();
    let folder = finished();
    let partial = folder.path().join("checkpoints/.00000009.partial");
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("model.safetensors"), "half").unwrap();
    assert_eq!(resume(folder.path(), 16).unwrap().summary.steps, 6);
    assert!(!partial.exists());
}

#[test]
fn a_resumed_run_ends_with_the_same_bits() {
    let _alone = alone();
    let folder = finished();
    let resumed = resume(folder.path(), 16).unwrap().summary;
    let mut settings = settings();
    settings.train.steps = 6;
    let whole = tempfile::tempdir().unwrap();
    let curve = curve(16);
    let whole = train(&curve, &settings, whole.path(), Start::New, || {}).0.unwrap().summary;
    assert_eq!(resumed.weights_sha256, whole.weights_sha256);
    assert_eq!(resumed.final_loss, whole.final_loss);
}

#[test]
fn the_best_checkpoint_is_kept_beside_the_last() {
    let _alone = alone();
    let mut settings = settings();
    (settings.train.steps, settings.save.keep) = (8, 1);
    (settings.eval.every, settings.save.every) = (Some(1), Some(1));
    // Nothing is learned, so the first stays the best.
    (settings.optimizer.learning_rate, settings.optimizer.min_learning_rate) = (0.0, 0.0);
    let folder = tempfile::tempdir().unwrap();
    let curve = curve(16);
    let (_, events) = train(&curve, &settings, folder.path(), Start::New, || {});
    let losses = events.iter().filter_map(|event| match event {
        Event::Evaluated { step, loss, .. } => Some((*loss, step.get())),
        _ => None,
    });
    let (loss, step) = losses.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
    assert!(step < 8, "the last is not to be the best here");
    let checkpoints = folder.path().join("checkpoints");
    let best: serde_json::Value = serde_json::from_str(&fs::read_to_string(checkpoints.join("best")).unwrap()).unwrap();
    assert_eq!((&best["schema"], &best["step"], &best["eval_loss"]), (&2.into(), &step.into(), &loss.into()));
    let mut names: Vec<_> =
        fs::read_dir(&checkpoints).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, [format!("{step:08}"), "00000008".to_owned(), "best".to_owned()]);
}
