//! `lowtide pack`: what people see of packing, and what becomes of it when it is interrupted.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use insta::assert_snapshot;
use lowtide_data::pack::{Job, Options, Start};
use lowtide_tensorfile::{Dtype, PtTensor, PtValue, write_pt};
use lowtide_testkit::Printout;
use serde_json::Value;

use super::kit::Place;

impl Place {
    /// Files of 320 KiB, each of 40 samples.
    fn large(files: u64) -> Place {
        let place = Place::with_sources(&[]);
        for file in 0..files {
            let array = |sample: u64| {
                let bytes: Vec<u8> = (0..1024).flat_map(|value| (file * 1000 + sample + value).to_le_bytes()).collect();
                PtValue::Tensor(PtTensor { dtype: Dtype::Int64, shape: vec![1024], bytes: Cow::Owned(bytes) })
            };
            let batch = PtValue::Dict(vec![(PtValue::Str("x".into()), PtValue::List((0..40).map(array).collect()))]);
            write_pt(&place.path(&format!("src/batch_{file:04}.pt")), &batch).unwrap();
        }
        place
    }

    /// All files of a folder that is packed; of the index, which has the times of the shards, only that it is there.
    fn bytes_of(&self, out: &str) -> BTreeMap<String, Vec<u8>> {
        let file = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().unwrap();
            let bytes = if name == ".lowtide-index" { Vec::new() } else { fs::read(entry.path()).unwrap() };
            (name, bytes)
        };
        fs::read_dir(self.path(out)).unwrap().map(|entry| file(entry.unwrap())).collect()
    }
}

/// Numbers that look random and are the same every time.
fn scrambled(number: u64) -> u64 {
    (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33
}

const BATCHES: [&str; 3] = ["batch_0000.pt", "batch_0001.pt", "batch_0002.pt"];

#[test]
fn help() {
    let place = Place::with_sources(&[]);
    let help = place.says("pack --help");
    let help: String = help.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    assert_snapshot!(help, @r"
    Pack data files into shards, which are read faster and under any memory limit.

    Reads what `lowtide data` reads, and writes shards (00000.shard, ...) with a checksum for every
    sample. Interrupted in whatever way, the same command goes on behind the last whole shard and ends
    with the same bytes. A folder that is not finished cannot be taken for a data set.

    Usage: lowtide pack [OPTIONS] --out <DIR> <SRC>...

    Arguments:
      <SRC>...
              Data files, and folders of them, in the order in which their samples shall stand

    Options:
          --out <DIR>
              The folder for the shards: a new one, an empty one, or one that was begun by the same
              command

          --scores <FILE.csv>
              A table with the columns `id` and `score`; each sample gets its score as the field
              `scores`

          --allow-missing
              Pack samples that have no score, and pass over scores that have no sample

          --shard-size <SIZE>
              A shard ends with the sample that brings it to this size

              [default: 32MiB]

          --compress[=<LEVEL>]
              Compress every sample with zstd, at level 3 or at this one

          --verify
              Read all shards and sources again in the end and compare every sample

          --skip-damaged
              Leave out files that are damaged or cannot be read

          --decode-limit <SIZE>
              What a source may decode to: 256 MiB by default, or 64 times its size on the disk where
              that is more

          --restart
              Delete the shards that an earlier command packed into the folder, and begin anew

          --json
              Print what was packed as JSON

      -h, --help
              Print help (see a summary with '-h')

    Examples:
      lowtide pack data/train --out packed                all data files of a folder
      lowtide pack traces/*.pkl.gz --scores scores.csv --out packed
      lowtide pack data/train --out packed --compress=9   smaller, and slower to read
      lowtide pack data/train --out packed --verify       compare with the sources, now or later

    Exit codes:
      0    packed
      2    bad input or a full disk; what is whole stays
      130  interrupted; what is whole stays
    ");
    assert_eq!(place.says("help pack"), place.says("pack --help"));
}

#[test]
fn a_folder() {
    let place = Place::with_sources(&BATCHES);
    assert_snapshot!(place.says("pack src --out packed --shard-size 20KiB --verify"), @r"
    packed: 21 samples in 4 shards
      sources   3 files, 86.91 KiB
      shards    77.29 KiB
      ids       21, none twice
      verified  21 samples as in the sources
    ");
    assert_snapshot!(place.says("pack src --out packed --shard-size 20KiB"), @r"
    packed: 21 samples in 4 shards, packed before
      sources   3 files, 86.91 KiB
      shards    77.29 KiB
      ids       21, none twice
    ");
    fs::remove_file(place.path("packed/00002.shard")).unwrap();
    assert_snapshot!(place.says("pack src --out packed --shard-size 20KiB"), @r"
    packed: 21 samples in 4 shards, of which 2 were there already
      sources   3 files, 86.91 KiB
      shards    77.29 KiB
      ids       21, none twice
    ");
    assert_snapshot!(place.says("pack src --out small --compress=19 --json --verify"), @r#"
    {
      "bytes": 61775,
      "ids": {
        "again": 0,
        "examples": [],
        "seen": 21
      },
      "left_out": [],
      "samples": 21,
      "scores": null,
      "shards": 1,
      "shards_there_before": 0,
      "source_bytes": 88991,
      "sources": 3,
      "unpacked_bytes": 75988,
      "verified_samples": 21
    }
    "#);
}

#[test]
fn files_with_scores() {
    let place = Place::with_sources(&["batch_0000.pt"]);
    fs::write(place.path("a.pkl"), b"\x80\x02}(X\x02\0\0\0idX\x01\0\0\0aX\x01\0\0\0xK\x07u.").unwrap();
    fs::write(place.path("b.pkl"), b"\x80\x02}(X\x02\0\0\0idX\x01\0\0\0bX\x01\0\0\0xK\x08u.").unwrap();
    fs::write(place.path("scores.csv"), "id,score\na,0.5\nb,1.5\n").unwrap();
    assert_snapshot!(place.says("pack a.pkl b.pkl --scores scores.csv --out packed --verify"), @r"
    packed: 2 samples in 1 shard
      sources   2 files, 54 bytes
      shards    775 bytes
      ids       2, none twice
      scores    2 in the table
      verified  2 samples as in the sources
    ");
    fs::write(place.path("fewer.csv"), "id,score\nb,1.5\nc,2.5\nd,2.5\n").unwrap();
    assert_snapshot!(place.refuses("pack a.pkl b.pkl --scores fewer.csv --out other"), @r"
    error: fewer.csv: 1 sample has no score (`a`); 2 scores have no sample (`c`, `d`)
    hint: --allow-missing packs what there is
    ");
    assert!(!place.path("other").exists());
    assert_snapshot!(place.says("pack a.pkl b.pkl --scores fewer.csv --allow-missing --out other --verify"), @r"
    other: 2 samples in 1 shard
      sources   2 files, 54 bytes
      shards    711 bytes
      ids       2, none twice
      scores    3 in the table; 1 sample has no score (`a`); 2 scores have no sample (`c`, `d`)
      verified  2 samples as in the sources
    ");
    assert_snapshot!(place.refuses("pack src --scores scores.csv --allow-missing --out third"), @r"
    error: src/batch_0000.pt: sample 0 has a field `scores` of its own
    hint: leave --scores out, or save the samples without that field
    ");
    fs::write(place.path("wrong.csv"), "id,score\na,much\n").unwrap();
    assert_snapshot!(place.refuses("pack a.pkl --scores wrong.csv --out fourth"), @r"
    error: wrong.csv: line 2, column `score`: `much` is no finite number
    ");
}

#[test]
fn damaged_files() {
    let place = Place::with_sources(&["batch_0000.pt", "flipped.pt", "truncated.pt", "evil.pt"]);
    assert_snapshot!(place.refuses("pack src --out packed"), @r"
    error: src/evil.pt: `evil/data.pkl` at byte 64: byte 14: GLOBAL names `posix.system`, which is not on the list of allowed names
    hint: nothing was executed; save plain containers and tensors, such as a state_dict
    ");
    assert_snapshot!(place.says("pack src --out packed --skip-damaged --verify"), @r"
    packed: 6 samples in 1 shard
      sources   1 file, 21.43 KiB
      shards    18.44 KiB
      ids       6, none twice
      left out  3 files
                src/evil.pt: `evil/data.pkl` at byte 64: byte 14: GLOBAL names `posix.system`, which is not on the list of allowed names
                src/flipped.pt: `batch_0001/data/5` at byte 15296: damaged: its checksum is 7b163692, and 060b6a91 was written
                src/truncated.pt: byte 20515: it begins like a zip archive, but the directory that belongs at its end is missing: it was cut short
      verified  6 samples as in the sources
    ");
    assert_snapshot!(place.refuses("pack src --out packed"), @r"
    error: packed was begun with --skip-damaged on, and off is asked for
    hint: the command as it was goes on; --restart deletes the shards that were packed there and begins anew
    ");
    assert!(!place.path("lowtide-was-fooled").exists());
}

#[test]
fn ids_that_come_twice() {
    let place = Place::with_sources(&["batch_0000.pt"]);
    place.copy("batch_0000.pt", "src/copy.pt");
    assert_snapshot!(place.says("pack src --out packed"), @r"
    packed: 12 samples in 1 shard
      sources   2 files, 42.85 KiB
      shards    36.66 KiB
      ids       12, 6 of them a second time (`q1_00_000`, `q1_00_001`, `q1_00_002`, `q1_00_003`, `q1_00_004`, ...)
    ");
}

#[test]
fn what_is_refused() {
    let place = Place::with_sources(&BATCHES);
    assert_snapshot!(place.refuses("pack src --out src"), @r"
    error: src is not empty and not a folder of pack: there is `batch_0000.pt` in it
    hint: name a new folder, or an empty one
    ");
    assert_snapshot!(place.refuses("pack nowhere --out packed"), @r"
    error: nowhere: the file: No such file or directory (os error 2)
    hint: is the path right?
    ");
    assert_snapshot!(place.refuses("pack src src/batch_0001.pt --out packed"), @r"
    error: src/batch_0001.pt is there twice among the sources
    ");
    fs::create_dir(place.path("empty")).unwrap();
    assert_snapshot!(place.refuses("pack empty --out packed"), @r"
    error: empty: there are no data files in this folder
    hint: name the files themselves, or the folder that they are in: those within are not looked into
    ");
    assert_snapshot!(place.refuses("pack src --out src/batch_0000.pt"), @r"
    error: cannot list src/batch_0000.pt: Not a directory (os error 20)
    ");
    assert_snapshot!(place.refuses("pack src --out src/batch_0000.pt/packed"), @r"
    error: cannot list src/batch_0000.pt/packed: Not a directory (os error 20)
    ");
    assert!(!place.path("packed").exists());
    place.says("pack src --out packed");
    assert_snapshot!(place.refuses("pack src --out packed --compress"), @r"
    error: packed was begun with --compress none, and level 3 is asked for
    hint: the command as it was goes on; --restart deletes the shards that were packed there and begins anew
    ");
    assert_snapshot!(place.refuses("pack src/batch_0000.pt --out packed"), @r"
    error: packed was begun with other sources: PLACE/src/batch_0001.pt was among them
    hint: the command as it was goes on; --restart deletes the shards that were packed there and begins anew
    ");
    fs::write(place.path("packed/other.shard"), "").unwrap();
    assert_snapshot!(place.refuses("pack src --out packed --restart"), @r"
    error: packed/other.shard was not written by pack
    hint: move it to another folder: all shards of a folder are one data set
    ");
    assert_snapshot!(place.refuses("pack src --out packed --shard-size 0"), @r"
    error: invalid value '0' for '--shard-size <SIZE>': a shard has at least one byte

    For more information, try '--help'.
    ");
}

#[test]
fn a_folder_that_may_only_be_read() {
    let place = Place::with_sources(&BATCHES);
    fs::create_dir(place.path("out")).unwrap();
    fs::set_permissions(place.path("out"), fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(place.path("out/x"), "").is_ok() {
        eprintln!("skipped: this user may write everywhere");
        return;
    }
    assert_snapshot!(place.refuses("pack src --out out"), @r"
    error: cannot create out/.packing: Permission denied (os error 13)
    ");
    assert_snapshot!(place.refuses("pack src --out out/new"), @r"
    error: cannot make out/new: Permission denied (os error 13)
    ");
}

#[test]
fn a_disk_that_is_full() {
    let place = Place::large(12);
    // Files may not become larger than this; to the program it is a disk that refuses.
    let limited = |blocks: u32| {
        let program = env!("CARGO_BIN_EXE_lowtide");
        let line = format!("trap '' XFSZ; ulimit -f {blocks}; exec {program} pack src --out packed --shard-size 1MiB");
        Command::new("bash").arg("-c").arg(line).current_dir(place.path("")).output().unwrap()
    };
    assert_snapshot!(Printout::of(limited(400)).refusal(), @r"
    error: cannot write packed/00000.shard: File too large (os error 27)
    hint: make room and give the same command again: it goes on from the last whole shard
    ");
    place.says("pack src --out packed --shard-size 1MiB");
    place.says("pack src --out whole --shard-size 1MiB");
    assert_eq!(place.bytes_of("packed"), place.bytes_of("whole"));
}

#[test]
fn killed_at_any_moment_it_ends_with_the_same_bytes() {
    let place = Place::large(12);
    place.says("pack src --out whole --shard-size 32KiB");
    let whole = place.bytes_of("whole");
    let (mut kills, mut finished) = (0, 0);
    for attempt in 0.. {
        let mut child = place.start("pack src --out out --shard-size 32KiB");
        thread::sleep(Duration::from_micros(scrambled(attempt) % 100_000));
        child.kill().unwrap();
        if child.wait().unwrap().success() {
            let out = place.bytes_of("out");
            let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(&out), names(&whole), "after attempt {attempt}");
            assert!(out == whole, "after attempt {attempt}");
            fs::remove_dir_all(place.path("out")).unwrap();
            finished += 1;
        } else {
            kills += 1;
            if place.path("out/.packing").exists() {
                assert_eq!(place.run("data out").code, Some(2), "what is not finished is no data set");
            }
        }
        if kills >= 20 && finished > 0 {
            return;
        }
    }
}

#[test]
fn ctrl_c_leaves_what_is_whole() {
    let place = Place::large(40);
    let child = place.start("pack src --out out --shard-size 8KiB");
    while !place.path("out/00003.shard").exists() {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let Printout { code, stdout, stderr } = Printout::of(child.wait_with_output().unwrap());
    assert_eq!((code, &*stdout), (Some(130), ""));
    let shards: u64 = stderr.split_whitespace().nth(2).unwrap().parse().unwrap();
    let samples: u64 = stderr.split_whitespace().nth(5).unwrap().parse().unwrap();
    assert_eq!(
        stderr,
        format!(
            "error: stopped: {shards} shards with {samples} samples are whole in out\n\
             hint: give the same command again: it goes on from there\n"
        )
    );
    let packed: Value = serde_json::from_str(&place.says("pack src --out out --shard-size 8KiB --json")).unwrap();
    assert_eq!((&packed["shards_there_before"], &packed["samples"]), (&shards.into(), &1600.into()));
    assert!(
        !fs::read_dir(place.path("out"))
            .unwrap()
            .any(|entry| { entry.unwrap().file_name().to_string_lossy().ends_with(".partial") })
    );
}

#[test]
fn two_at_once() {
    let place = Place::with_sources(&BATCHES);
    let mut job = Job::begin(&[place.path("src")], &place.path("out"), Options::default(), Start::GoOn).unwrap();
    let mut complaints = Vec::new();
    job.run(&mut |_| {
        if complaints.is_empty() {
            complaints.push(place.refuses("pack src --out out"));
            complaints.push(place.refuses("pack src --out out --restart"));
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_snapshot!(complaints[0], @r"
    error: out is being packed by another process
    hint: wait for it, or name another folder
    ");
    assert_eq!(complaints[0], complaints[1]);
    place.says("pack src --out whole");
    assert_eq!(place.bytes_of("out"), place.bytes_of("whole"));
}
