//! `lowtide generate` as a person meets it.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Deref;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use insta::assert_snapshot;
use lowtide_data::BatchFile;
use lowtide_testkit::Sandbox;
use serde_json::Value;

use crate::kit::sandbox;

/// A folder that a person stands in.
struct Place(Sandbox);

impl Deref for Place {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.0
    }
}

impl Place {
    fn new() -> Place {
        Place(sandbox())
    }

    fn command(&self, words: &str) -> Command {
        self.0.command(&format!("generate {words}"))
    }

    /// Writes to a good end, and gives the figures.
    #[track_caller]
    fn generate(&self, words: &str) -> Value {
        serde_json::from_str(&self.says(&format!("generate {words} --json"))).unwrap()
    }

    /// All files of a folder with their bytes, hidden ones too.
    fn files(&self, folder: &str) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(self.path(folder)).unwrap().map(Result::unwrap);
        entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
    }

    #[track_caller]
    fn refuses(&self, words: &str) -> String {
        self.0.refuses(&format!("generate {words}"))
    }
}

fn samples(path: &Path) -> u64 {
    BatchFile::open(path).unwrap().samples()
}

#[test]
fn it_needs_no_engine() {
    let place = Place::new();
    for words in ["scoring --out traces --samples 3", "deblur --out films --scenes 1 --frames 2 --frame-size 48x40"] {
        let output = place.command(words).env("LOWTIDE_ENGINE", "/nowhere/engine").output().unwrap();
        assert!(output.status.success(), "{words}: {output:?}");
    }
    assert!(place.path("traces/batch_00000.pt").exists() && place.path("films/scene_000/sharp/000001.png").exists());
}

#[test]
fn a_size_is_reached_and_hardly_passed() {
    let place = Place::new();
    let told = place.generate("scoring --out data --size 2MB --per-file 100");
    let bytes = told["bytes"].as_u64().unwrap();
    assert!((2_000_000..2_080_000).contains(&bytes), "{told}");
    let files = place.files("data");
    let data: Vec<&String> = files.keys().filter(|name| name.starts_with("batch_")).collect();
    assert_eq!(data.len() as u64, told["files"].as_u64().unwrap());
    assert_eq!(data[0], "batch_00000.pt");
    assert_eq!(bytes, data.iter().map(|name| files[*name].len() as u64).sum::<u64>());
    let counts: Vec<u64> = data.iter().map(|name| samples(&place.path("data").join(name))).collect();
    assert!(counts[..counts.len() - 1].iter().all(|count| *count == 100));
    assert_eq!(told["samples"].as_u64(), Some(counts.iter().sum()));
}

#[test]
fn files_of_a_size() {
    let place = Place::new();
    let told = place.generate("scoring --out data --samples 100 --file-size 50KB --steps 20..20");
    let sizes: Vec<usize> = place.files("data").values().map(Vec::len).filter(|size| *size > 10_000).collect();
    assert_eq!(told["samples"], 100);
    assert!(sizes[..sizes.len() - 1].iter().all(|size| (50_000..56_000).contains(size)), "{sizes:?}");
}

#[test]
fn the_same_command_again_keeps_what_is_there_and_mends_the_rest() {
    let place = Place::new();
    for format in ["pt", "pkl", "pkl.gz"] {
        let words = format!("scoring --out {format} --samples 30 --per-file 4 --format {format}");
        assert_eq!(place.generate(&words)["kept"], 0);
        let whole = place.files(format);
        let end = if format == "pt" { "batch_0000" } else { "trace_0000" };
        let name = |number: u32| place.path(format).join(format!("{end}{number}.{format}"));
        fs::remove_file(name(2)).unwrap();
        fs::write(name(5), &fs::read(name(5)).unwrap()[..1000]).unwrap();
        fs::write(place.path(format).join(format!(".{end}4.{format}.77-0.partial")), "cut").unwrap();
        assert_eq!(place.generate(&words)["kept"], 6);
        assert_eq!(place.files(format), whole, "{format}");
        assert_eq!(whole.contains_key("scores.csv"), format != "pt");
    }
}

#[test]
fn a_folder_with_other_things_or_of_another_command_is_refused() {
    let place = Place::new();
    fs::create_dir(place.path("mine")).unwrap();
    fs::write(place.path("mine/notes.txt"), "precious").unwrap();
    assert_snapshot!(place.refuses("scoring --out mine --samples 3"), @"
    error: mine: there is something else in it: `notes.txt`
    hint: name a new folder or an empty one
    ");
    assert_eq!(place.files("mine").len(), 1);

    place.generate("scoring --out data --samples 3");
    let before = place.files("data");
    assert_snapshot!(place.refuses("scoring --out data --samples 3 --seed 2"), @"
    error: data: another command wrote to it: `seed` is 1 there, and 2 here
    hint: name another folder, or delete this one
    ");
    fs::write(place.path("data/batch_00001.pt"), "of somebody else").unwrap();
    assert_snapshot!(place.refuses("scoring --out data --samples 3"), @"
    error: data: there is something else in it: `batch_00001.pt`
    hint: name a new folder or an empty one
    ");
    fs::remove_file(place.path("data/batch_00001.pt")).unwrap();
    assert_eq!(place.files("data"), before);

    fs::write(place.path("file"), "").unwrap();
    assert_snapshot!(place.refuses("scoring --out file --samples 3"), @"error: file: File exists (os error 17)");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::new();
    for (words, part) in [
        ("--samples 0", "there must be at least one sample"),
        ("--samples 3 --per-file 0", "--per-file must be at least 1"),
        ("--samples 3 --steps 9..8", "must go from at least 1 to at most 10000000"),
        ("--samples 3 --steps 0..8", "must go from at least 1 to at most 10000000"),
        ("--samples 3 --steps many", "must be two numbers, such as 8..48"),
        ("--samples 3 --size 3MB", "cannot be used with"),
        ("--size 100TB --per-file 1", "more than 1000000 files: make them larger with --per-file"),
        ("--samples 99999999999", "more than 1000000 files: make them larger with --per-file"),
        ("", "--size <SIZE>"),
    ] {
        let words = format!("scoring --out data {words}");
        let refused = place.refuses(&words);
        assert!(refused.contains(part), "{words}: {refused}");
        assert!(!place.path("data").exists(), "{words}");
    }
}

#[test]
fn an_interrupt_leaves_whole_files_and_the_same_command_goes_on() {
    let place = Place::new();
    let words = "scoring --out data --samples 4000 --per-file 8 --steps 1000..1200";
    let mut child = place.command(words).stderr(Stdio::piped()).spawn().unwrap();
    while !place.path("data/batch_00003.pt").exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let files = place.files("data");
    let there: Vec<&String> = files.keys().filter(|name| !name.starts_with('.')).collect();
    assert!(there.len() < 500 && there.iter().all(|name| samples(&place.path("data").join(name)) == 8), "{there:?}");
    assert!(!files.keys().any(|name| name.ends_with(".partial")));
    let told = place.generate(words);
    assert_eq!((told["kept"].as_u64(), &told["files"]), (Some(there.len() as u64), &Value::from(500)));
}

#[test]
fn two_at_once_do_not_write_to_one_folder() {
    let place = Place::new();
    let words = "scoring --out data --samples 4000 --per-file 8 --steps 1000..1200";
    let mut child = place.command(words).stderr(Stdio::null()).spawn().unwrap();
    while !place.path("data/batch_00000.pt").exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_snapshot!(place.refuses(words), @"
    error: data: another process writes to it
    hint: wait until it has ended, or name another folder
    ");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_full_disk_is_told_of_and_can_be_mended() {
    let place = Place::new();
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", script]).current_dir(place.folder());
        command.env("LOWTIDE", env!("CARGO_BIN_EXE_lowtide")).output()
    };
    if !unshare("mkdir -p disk && mount -t tmpfs tmpfs disk").is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: mounting is not allowed here");
        return;
    }
    let script = r#"
        mount -t tmpfs -o size=1m tmpfs disk
        generate() { "$LOWTIDE" generate scoring --out disk/data --size 2MB 2>errors; echo "code $?"; }
        generate
        sed 's/batch_0000./batch_0000N/' errors | grep -v samples
        ls -A disk/data | grep -c partial
        mount -o remount,size=8m disk
        generate
    "#;
    let printed = String::from_utf8(unshare(script).unwrap().stdout).unwrap();
    assert_snapshot!(printed, @"
    code 2
    error: disk/data/batch_0000N.pt: the file: No space left on device (os error 28)
    hint: make room, then run the same command again: the files that are there are whole
    0
    code 0
    ");
}
