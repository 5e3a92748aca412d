//! What is written is there as a whole or not at all.

use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use lowtide_disk::{DiskError, PartialFile, leftover_of, write, write_folder, write_with};

const OLD: &str = "the old one";

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("a folder")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// A folder with a file `file` in it, and its path.
fn with_old() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    fs::write(&path, OLD).expect("a file");
    (folder, path)
}

#[track_caller]
fn is_as_it_was(folder: &Path) {
    assert_eq!(names(folder), ["file"]);
    assert_eq!(fs::read_to_string(folder.join("file")).expect("a file"), OLD);
}

#[test]
fn a_file_is_replaced() {
    let (folder, path) = with_old();
    write(&path, b"new").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    write_with(&path, |out| (0..100_000).try_for_each(|number| writeln!(out, "{number}"))).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 100_000);
    assert_eq!(names(folder.path()), ["file"]);
}

#[test]
fn a_failure_while_it_is_written_leaves_the_old_file() {
    let (folder, path) = with_old();
    let error = write_with(&path, |out| {
        out.write_all(&[0; 4 << 20])?;
        Err(io::ErrorKind::StorageFull.into())
    });
    let error = error.unwrap_err();
    assert_eq!((error.path.as_path(), error.source.kind()), (path.as_path(), io::ErrorKind::StorageFull));
    is_as_it_was(folder.path());
    drop(PartialFile::create(&path).unwrap());
    is_as_it_was(folder.path());
}

#[test]
fn a_name_that_cannot_be_had_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("taken");
    fs::create_dir(&taken).unwrap();
    assert_eq!(write(&taken, b"new").unwrap_err().source.kind(), io::ErrorKind::IsADirectory);
    assert_eq!(names(folder.path()), ["taken"]);
    let error = write(&folder.path().join("absent/file"), b"new").unwrap_err();
    assert_eq!(error.source.kind(), io::ErrorKind::NotFound);
    assert!(error.to_string().contains("absent/file: No such file"), "{error}");
    write(Path::new("/"), b"new").unwrap_err();
}

/// Runs this test again in a process whose files may not grow, which refuses as a full disk does.
#[test]
fn a_write_that_the_system_refuses_leaves_the_old_file() {
    const INNER: &str = "LOWTIDE_DISK_TEST_FOLDER";
    if let Some(folder) = env::var_os(INNER) {
        let folder = Path::new(&folder);
        let path = folder.join("file");
        let large = vec![0; 3 << 20];
        for error in [
            write(&path, &large).unwrap_err(),
            write_with(&path, |out| out.write_all(&large)).unwrap_err(),
            // Fails only when the buffer is handed on, at the end.
            write_with(&path, |out| large[..900 << 10].chunks(1000).try_for_each(|piece| out.write_all(piece)))
                .unwrap_err(),
        ] {
            assert_eq!(error.source.kind(), io::ErrorKind::FileTooLarge, "{error}");
            is_as_it_was(folder);
        }
        return;
    }
    let (folder, _) = with_old();
    let script =
        r#"trap "" XFSZ; ulimit -f 16; exec "$0" --exact whole::a_write_that_the_system_refuses_leaves_the_old_file"#;
    let output =
        Command::new("sh").args(["-c", script]).arg(env::current_exe().unwrap()).env(INNER, folder.path()).output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn two_writers_do_not_touch_each_other() {
    let (folder, path) = with_old();
    let (mut first, mut second) = (PartialFile::create(&path).unwrap(), PartialFile::create(&path).unwrap());
    first.write_all(b"first").unwrap();
    second.write_all(b"second").unwrap();
    second.finish().unwrap();
    first.finish().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "first");
    assert_eq!(names(folder.path()), ["file"]);
}

#[test]
fn a_locked_file_has_one_writer_and_stays_locked_under_its_name() {
    let (folder, path) = with_old();
    let leftover = folder.path().join(".file.partial");
    fs::write(&leftover, "what a killed writer had written so far").unwrap();
    let mut first = PartialFile::create_locked(&path).unwrap();
    let refused = || PartialFile::create_locked(&path).unwrap_err().source.kind();
    assert_eq!(refused(), io::ErrorKind::WouldBlock);
    assert!(leftover.exists(), "the file of the first writer is not the second one's to remove");
    first.write_all(b"new").unwrap();
    let file = first.finish().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert!(fs::File::open(&path).unwrap().try_lock().is_err());
    drop(file);
    fs::File::open(&path).unwrap().try_lock().unwrap();
    drop(PartialFile::create_locked(&path).unwrap());
    assert_eq!(names(folder.path()), ["file"]);
}

#[test]
fn a_folder_is_there_as_a_whole_or_not_at_all() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("00000007");
    let leftover = place.path().join(".00000007.partial");
    fs::create_dir(&leftover).unwrap();
    fs::write(leftover.join("half"), "").unwrap();
    assert_eq!(leftover_of(".00000007.partial"), Some("00000007"));
    let fill = |folder: &Path| {
        assert!(!path.exists());
        fs::create_dir(folder.join("below")).unwrap();
        fs::write(folder.join("below/file"), "new").unwrap();
    };
    let error = write_folder(&path, |folder| {
        fill(folder);
        Err(DiskError { path: folder.join("below"), source: io::ErrorKind::StorageFull.into() })
    });
    assert_eq!(error.unwrap_err().path, leftover.join("below"));
    assert!(names(place.path()).is_empty());
    write_folder(&path, |folder| {
        fill(folder);
        Ok::<(), DiskError>(())
    })
    .unwrap();
    assert_eq!(names(place.path()), ["00000007"]);
    assert_eq!(
        (names(&path), fs::read_to_string(path.join("below/file")).unwrap()),
        (vec!["below".to_owned()], "new".to_owned())
    );
    let taken = write_folder(&path, |_| Ok::<(), DiskError>(())).unwrap_err();
    assert_eq!(taken.source.kind(), io::ErrorKind::DirectoryNotEmpty);
    assert_eq!(names(place.path()), ["00000007"]);
}
