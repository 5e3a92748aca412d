//! `lowtide data`: what people see of their data files, and what they are told of bad ones.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::io::pipe;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use insta::assert_snapshot;
use lowtide_core::Bytes;
use lowtide_data::feed::{Feed, FeedOptions};
use lowtide_data::order::{Cursor, Order, Shuffle};
use lowtide_data::policy::Policy;
use lowtide_data::{DataSet, OpenOptions};
use serde_json::Value;
use tempfile::TempDir;

/// A folder with some of the fixtures of the crate `data`, in which the command is run.
struct Place(TempDir);

impl Place {
    fn with(names: &[&str]) -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        names.iter().for_each(|name| place.copy(name, name));
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn copy(&self, fixture: &str, name: &str) {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/tests/fixtures/given");
        let to = self.path(name);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(fixtures.join(fixture), to).unwrap();
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lowtide"));
        command.current_dir(self.0.path()).args(words.split_whitespace()).env_remove("COLUMNS");
        command
    }

    fn run(&self, words: &str) -> Output {
        self.command(words).output().unwrap()
    }

    /// What a command says that ends well.
    #[track_caller]
    fn says(&self, words: &str) -> String {
        let output = self.run(words);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
        text(&output.stdout)
    }

    /// What a command says that is given something bad, and prints nothing else.
    #[track_caller]
    fn complains(&self, words: &str) -> String {
        let output = self.run(words);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()));
        text(&output.stderr)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn help() {
    let place = Place::with(&[]);
    let help = place.says("data --help");
    let help: String = help.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    assert_snapshot!(help, @r"
    Look into data files: a file's tensors, or the samples of a folder and what a run would read of
    them.

    Reads .pt, .pth, .ckpt, .npy, .npz, .safetensors, .pkl and .pkl.gz, whose first bytes tell the
    format, and .shard. Nothing in a file is executed, and the values stay in it unless --sums or --json
    asks for them.

    Usage: lowtide data [OPTIONS] <FILE|DIR>

    Arguments:
      <FILE|DIR>
              A data file, or a folder of them. Folders within a folder are not looked into

    Options:
          --json
              Print JSON: for a file the list of its tensors with their sums, for a folder one object.

              A sum is null for complex numbers and where it is no finite number.

          --sums
              Read every value, which verifies the checksums, and add up those of each tensor

          --host-line <SIZE>
              Of a folder: what a run whose memory stays below this would read in an epoch, and with
              other lines

          --max-cache-batches <N>
              The same for a cache that holds so many files or shards

          --base <SIZE>
              Memory that the engine takes before any data is there; a run measures it

              [default: 350MiB]

      -h, --help
              Print help (see a summary with '-h')

    Examples:
      lowtide data batch_0000.pt              every tensor: path, type, shape, bytes
      lowtide data batch_0000.pt --sums       ... and the sum of its values; finds flipped bytes
      lowtide data data/train                 files, samples, sizes and fields of a folder
      lowtide data data/train --sums          ... after every value was read
      lowtide data packed --host-line 4GiB    what a run in 4 GiB would read, an epoch

    Exit codes:
      0    listed
      2    bad input: something is missing, damaged, cut short or refused, or a line is too small
    ");
    assert_eq!(place.says("help data"), place.says("data --help"));
}

#[test]
fn a_file() {
    let place = Place::with(&["batch_0000.pt"]);
    assert_snapshot!(place.says("data batch_0000.pt"), @r"
    path                 dtype    shape        bytes
    sequences.0          float32  10 x 24  960 bytes
    sequences.1          float32  17 x 24   1.59 KiB
    sequences.2          float32  8 x 24   768 bytes
    sequences.3          float32  23 x 24   2.16 KiB
    sequences.4          float32  23 x 24   2.16 KiB
    sequences.5          float32  31 x 24   2.91 KiB
    graphs.0.x           float32  7 x 12   336 bytes
    graphs.0.edge_index  int64    2 x 20   320 bytes
    graphs.1.x           float32  8 x 12   384 bytes
    graphs.1.edge_index  int64    2 x 21   336 bytes
    graphs.2.x           float32  9 x 12   432 bytes
    graphs.2.edge_index  int64    2 x 22   352 bytes
    graphs.3.x           float32  10 x 12  480 bytes
    graphs.3.edge_index  int64    2 x 23   368 bytes
    graphs.4.x           float32  11 x 12  528 bytes
    graphs.4.edge_index  int64    2 x 24   384 bytes
    graphs.5.x           float32  12 x 12  576 bytes
    graphs.5.edge_index  int64    2 x 25   400 bytes
    lengths              int64    6         48 bytes
    scores               float32  6         24 bytes
    20 tensors, 15.35 KiB; the file is 21.43 KiB (torch.save)
    ");
}

#[test]
fn every_type_with_sums() {
    let place = Place::with(&["dtypes.pt"]);
    assert_snapshot!(place.says("data dtypes.pt --sums"), @r"
    path            dtype      shape       bytes  sum
    f32             float32    3 x 4    48 bytes  -3.26110727712512
    f16             float16    3 x 4    24 bytes  -3.66534423828125
    bf16            bfloat16   3 x 4    24 bytes  -0.0986328125
    f64             float64    3 x 4    96 bytes  1.7241713479161263
    c64             complex64  2 x 2    32 bytes  -
    bool            bool       9         9 bytes  6
    int8            int8       5         5 bytes  221
    uint8           uint8      5         5 bytes  253
    int16           int16      5        10 bytes  210
    int32           int32      5        20 bytes  190
    int64           int64      5        40 bytes  320
    scalar          float32    scalar    4 bytes  2.5
    empty           float32    0 x 4     0 bytes  0
    view_a          float32    3 x 4    48 bytes  -0.7687472552061081
    view_t          float32    8 x 6   192 bytes  2.1909903585910797
    param           float32    2 x 3    24 bytes  0.8411769010126591
    od.a            float32    2         8 bytes  -1.992244005203247
    tuple.0         float32    1         4 bytes  -0.14333318173885345
    tuple.1.0       float32    2         8 bytes  1.8309288620948792
    tuple.1.1.deep  float32    3        12 bytes  -1.0904715359210968
    20 tensors, 613 bytes; the file is 6.39 KiB (torch.save)
    ");
}

#[test]
fn a_file_as_json() {
    let place = Place::with(&["legacy.pt", "dtypes.pt", "batch_0002.pt"]);
    assert_snapshot!(place.says("data legacy.pt --json"), @r#"
    [
    {"path":"w","dtype":"float32","shape":[6,8],"stride":[8,1],"bytes":192,"sum":2.1909903585910797},
    {"path":"again","dtype":"float32","shape":[6,8],"stride":[8,1],"bytes":192,"sum":2.1909903585910797}
    ]
    "#);
    let rows: Value = serde_json::from_str(&place.says("data dtypes.pt --json")).unwrap();
    let without: Vec<_> = rows.as_array().unwrap().iter().filter(|row| row["sum"].is_null()).collect();
    assert_eq!(without.len(), 1);
    assert_eq!((&without[0]["path"], &without[0]["dtype"]), (&"c64".into(), &"complex64".into()));
}

#[test]
fn a_file_without_tensors() {
    let place = Place::with(&[]);
    fs::write(place.path("words.pkl"), b"\x80\x02](X\x01\0\0\0aX\x01\0\0\0be.").unwrap();
    assert_snapshot!(place.says("data words.pkl"), @"0 tensors, 0 bytes; the file is 18 bytes (pickle)");
    assert_eq!(place.says("data words.pkl --json"), "[]\n");
}

#[test]
fn a_folder() {
    let place = Place::with(&["batch_0000.pt", "batch_0001.pt", "batch_0002.pt", "facts.json"]);
    fs::write(place.path(".batch_0003.pt.12-0.partial"), "half of a file").unwrap();
    assert_snapshot!(place.says("data ."), @r"
    .: 3 data files, 1 other passed over
      format   torch.save: 3 files
      samples  21
      on disk  86.91 KiB (smallest 21.43 KiB batch_0000.pt, largest 35.43 KiB batch_0002.pt)
      decoded  77.06 KiB for everything, up to 31.98 KiB for one file
      ids      21, none twice

    field              dtype    shape   samples
    question_ids       str      scalar       21
    sequences          float32  ? x 24       21
    graphs.x           float32  ? x 12       21
    graphs.edge_index  int64    2 x ?        21
    lengths            int64    scalar       21
    scores             float32  scalar       21

    beside the samples: `meta`
    ");
    assert_snapshot!(place.says("data . --sums"), @r"
    .: 3 data files, 1 other passed over
      format   torch.save: 3 files
      samples  21
      on disk  86.91 KiB (smallest 21.43 KiB batch_0000.pt, largest 35.43 KiB batch_0002.pt)
      decoded  77.06 KiB for everything, up to 31.98 KiB for one file
      ids      21, none twice

    field              dtype    shape   samples
    question_ids       str      scalar       21
    sequences          float32  ? x 24       21
    graphs.x           float32  ? x 12       21
    graphs.edge_index  int64    2 x ?        21
    lengths            int64    scalar       21
    scores             float32  scalar       21

    beside the samples: `meta`
    ");
}

#[test]
fn a_folder_as_json() {
    let place = Place::with(&["legacy.pt"]);
    assert_snapshot!(place.says("data . --json"), @r#"
    {
      "cost": null,
      "decoded_bytes": 1488,
      "disk_bytes": 560,
      "fields": [
        {
          "dtypes": [
            "float32"
          ],
          "name": "w",
          "samples": 6,
          "shape": [
            8
          ]
        },
        {
          "dtypes": [
            "float32"
          ],
          "name": "again",
          "samples": 6,
          "shape": [
            8
          ]
        }
      ],
      "files": 1,
      "formats": {
        "torch.save, older format": 1
      },
      "ids": {
        "again": 0,
        "examples": [],
        "seen": 0
      },
      "largest": {
        "bytes": 560,
        "file": "legacy.pt"
      },
      "largest_decoded_bytes": 1488,
      "left_out": [],
      "samples": 6,
      "smallest": {
        "bytes": 560,
        "file": "legacy.pt"
      },
      "unreadable": [],
      "unreadable_count": 0
    }
    "#);
}

#[test]
fn ids_that_come_twice() {
    let place = Place::with(&["batch_0000.pt"]);
    place.copy("batch_0000.pt", "copy.pt");
    assert_snapshot!(place.says("data ."), @r"
    .: 2 data files
      format   torch.save: 2 files
      samples  12
      on disk  42.85 KiB (smallest 21.43 KiB batch_0000.pt, largest 21.43 KiB batch_0000.pt)
      decoded  36.71 KiB for everything, up to 18.36 KiB for one file
      ids      12, 6 of them a second time:
               `q1_00_000` in batch_0000.pt and copy.pt
               `q1_00_001` in batch_0000.pt and copy.pt
               `q1_00_002` in batch_0000.pt and copy.pt
               `q1_00_003` in batch_0000.pt and copy.pt
               `q1_00_004` in batch_0000.pt and copy.pt

    field              dtype    shape   samples
    question_ids       str      scalar       12
    sequences          float32  ? x 24       12
    graphs.x           float32  ? x 12       12
    graphs.edge_index  int64    2 x ?        12
    lengths            int64    scalar       12
    scores             float32  scalar       12

    beside the samples: `meta`
    ");
}

#[test]
fn files_that_cannot_be_read_do_not_stop_the_listing() {
    let place = Place::with(&["batch_0001.pt", "evil.pt", "truncated.pt", "flipped.pt"]);
    symlink("nowhere", place.path("gone.pt")).unwrap();
    fs::write(place.path("empty.pt"), "").unwrap();
    let output = place.run("data . --sums");
    assert_eq!(output.status.code(), Some(2));
    assert_snapshot!(text(&output.stdout), @r"
    .: 6 data files
      format   torch.save: 1 file
      samples  7
      on disk  30.05 KiB (smallest 30.05 KiB batch_0001.pt, largest 30.05 KiB batch_0001.pt)
      decoded  26.73 KiB for everything, up to 26.73 KiB for one file
      ids      7, none twice

    field              dtype    shape   samples
    question_ids       str      scalar        7
    sequences          float32  ? x 24        7
    graphs.x           float32  ? x 12        7
    graphs.edge_index  int64    2 x ?         7
    lengths            int64    scalar        7
    scores             float32  scalar        7

    beside the samples: `meta`

    cannot be read: 5 files
      empty.pt: the file: it is empty
      evil.pt: `evil/data.pkl` at byte 64: byte 14: GLOBAL names `posix.system`, which is not on the list of allowed names
      flipped.pt: `batch_0001/data/5` at byte 15296: damaged: its checksum is 7b163692, and 060b6a91 was written
      gone.pt: the file: No such file or directory (os error 2)
      truncated.pt: byte 20515: it begins like a zip archive, but the directory that belongs at its end is missing: it was cut short
    ");
    assert_snapshot!(text(&output.stderr), @r"
    error: 5 of 6 files cannot be read
    hint: each is listed with its reason
    ");
    assert!(!place.path("lowtide-was-fooled").exists());
}

#[test]
fn many_files() {
    let place = Place::with(&[]);
    for number in 0..500 {
        place.copy("batch_0002.pt", &format!("many/batch_{number:04}.pt"));
    }
    let summary: Value = serde_json::from_str(&place.says("data many --json")).unwrap();
    assert_eq!((&summary["files"], &summary["samples"]), (&500.into(), &4000.into()));
}

#[test]
fn a_file_that_was_cut_short() {
    let place = Place::with(&["truncated.pt"]);
    assert_snapshot!(place.complains("data truncated.pt"), @r"
    error: truncated.pt: byte 20515: it begins like a zip archive, but the directory that belongs at its end is missing: it was cut short
    hint: copy or write the file again
    ");
}

#[test]
fn a_flipped_byte_is_found_where_values_are_read() {
    let place = Place::with(&["flipped.pt"]);
    place.says("data flipped.pt");
    assert_snapshot!(place.complains("data flipped.pt --sums"), @r"
    error: flipped.pt: `batch_0001/data/5` at byte 15296: damaged: its checksum is 7b163692, and 060b6a91 was written
    hint: copy or write the file again
    ");
    assert_eq!(place.complains("data flipped.pt --json"), place.complains("data flipped.pt --sums"));
}

#[test]
fn a_pickle_that_would_run_a_command_is_refused() {
    let place = Place::with(&["evil.pt"]);
    assert_snapshot!(place.complains("data evil.pt"), @r"
    error: evil.pt: `evil/data.pkl` at byte 64: byte 14: GLOBAL names `posix.system`, which is not on the list of allowed names
    hint: nothing was executed; save plain containers and tensors, such as a state_dict
    ");
    assert_eq!(fs::read_dir(place.path("")).unwrap().count(), 1, "nothing was executed");
}

#[test]
fn a_file_that_is_not_there() {
    let place = Place::with(&[]);
    assert_snapshot!(place.complains("data batch.pt"), @r"
    error: batch.pt: the file: No such file or directory (os error 2)
    hint: is the path right?
    ");
}

#[test]
fn a_file_of_another_kind() {
    let place = Place::with(&["facts.json"]);
    assert_snapshot!(place.complains("data facts.json"), @r"
    error: facts.json: the file: a file of this kind is not read here
    hint: known are .pt, .npy, .npz, .safetensors, .pkl and .pkl.gz
    ");
}

#[test]
fn a_folder_without_data_files() {
    let place = Place::with(&["facts.json"]);
    assert_snapshot!(place.complains("data ."), @r"
    error: .: there are no data files in this folder
    hint: data files end in .pt, .pth, .ckpt, .npy, .npz, .safetensors, .pkl, .pickle, .pkl.gz, .pickle.gz; folders within are not looked into
    ");
}

#[test]
fn a_file_that_may_not_be_read() {
    let place = Place::with(&["legacy.pt"]);
    fs::set_permissions(place.path("legacy.pt"), fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(place.path("legacy.pt")).is_ok() {
        eprintln!("skipped: this user may read any file");
        return;
    }
    assert_snapshot!(place.complains("data legacy.pt"), @r"
    error: legacy.pt: the file: Permission denied (os error 13)
    hint: the file must be readable for you: chmod +r
    ");
}

#[test]
fn a_pipe_is_no_file() {
    let place = Place::with(&[]);
    assert!(Command::new("mkfifo").arg(place.path("pipe.pt")).status().unwrap().success());
    assert_snapshot!(place.complains("data pipe.pt"), @"error: pipe.pt: the file: not a regular file");
}

#[test]
fn names_cannot_steer_the_terminal() {
    let place = Place::with(&[]);
    place.copy("truncated.pt", "a\u{1b}[2J.pt");
    let output = place.run("data .");
    assert!(!output.stdout.contains(&0x1b) && !output.stderr.contains(&0x1b));
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let place = Place::with(&["batch_0000.pt"]);
    for words in ["data batch_0000.pt", "data batch_0000.pt --json", "data ."] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let output = place.command(words).stdout(writer).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{words}");
    }
}

/// Packs the fixtures into four shards.
fn packed() -> Place {
    let place = Place::with(&[]);
    for name in ["batch_0000.pt", "batch_0001.pt", "batch_0002.pt"] {
        place.copy(name, &format!("src/{name}"));
    }
    place.says("pack src --out packed --shard-size 20KiB");
    place
}

#[test]
fn a_folder_of_shards() {
    let place = packed();
    assert_snapshot!(place.says("data packed"), @r"
    packed: 4 shards
      samples  21
      on disk  77.10 KiB (smallest 11.70 KiB 00003.shard, largest 23.38 KiB 00002.shard)
      memory   77.96 KiB for everything, up to 23.58 KiB for one shard; the files are 99 % of that
      ids      21, none twice

    field              dtype    shape   samples
    question_ids       str      scalar       21
    sequences          float32  ? x 24       21
    graphs.x           float32  ? x 12       21
    graphs.edge_index  int64    2 x ?        21
    lengths            int64    scalar       21
    scores             float32  scalar       21
    ");
    assert_eq!(place.says("data packed --sums"), place.says("data packed"));
    assert_snapshot!(place.says("data packed --json"), @r#"
    {
      "cost": null,
      "disk_bytes": 78948,
      "fields": [
        {
          "dtypes": [
            "str"
          ],
          "name": "question_ids",
          "samples": 21,
          "shape": []
        },
        {
          "dtypes": [
            "float32"
          ],
          "name": "sequences",
          "samples": 21,
          "shape": [
            null,
            24
          ]
        },
        {
          "dtypes": [
            "float32"
          ],
          "name": "graphs.x",
          "samples": 21,
          "shape": [
            null,
            12
          ]
        },
        {
          "dtypes": [
            "int64"
          ],
          "name": "graphs.edge_index",
          "samples": 21,
          "shape": [
            2,
            null
          ]
        },
        {
          "dtypes": [
            "int64"
          ],
          "name": "lengths",
          "samples": 21,
          "shape": []
        },
        {
          "dtypes": [
            "float32"
          ],
          "name": "scores",
          "samples": 21,
          "shape": []
        }
      ],
      "fields_seen_in_samples": 21,
      "ids": {
        "again": 0,
        "examples": [],
        "seen": 21
      },
      "largest": {
        "bytes": 23943,
        "file": "00002.shard"
      },
      "largest_memory_bytes": 24151,
      "memory_bytes": 79828,
      "samples": 21,
      "shards": 4,
      "smallest": {
        "bytes": 11983,
        "file": "00003.shard"
      },
      "unreadable": [],
      "unreadable_count": 0
    }
    "#);
    place.says("pack src --out small --compress");
    assert_snapshot!(place.says("data small"), @r"
    small: 1 shard
      samples  21
      on disk  61.03 KiB (smallest 61.03 KiB 00000.shard, largest 61.03 KiB 00000.shard)
      memory   77.03 KiB for everything, up to 77.03 KiB for one shard; the files are 79 % of that
      ids      21, none twice

    field              dtype    shape   samples
    question_ids       str      scalar       21
    sequences          float32  ? x 24       21
    graphs.x           float32  ? x 12       21
    graphs.edge_index  int64    2 x ?        21
    lengths            int64    scalar       21
    scores             float32  scalar       21
    ");
}

#[test]
fn one_shard() {
    let place = packed();
    assert_snapshot!(place.says("data packed/00003.shard --sums"), @r"
    path                 dtype    shape        bytes  sum
    0.sequences          float32  18 x 24   1.69 KiB  20.664946381002665
    0.graphs.x           float32  12 x 12  576 bytes  -20.386755980551243
    0.graphs.edge_index  int64    2 x 25   400 bytes  286
    0.lengths            int64    scalar     8 bytes  18
    0.scores             float32  scalar     4 bytes  0.9741107225418091
    1.sequences          float32  27 x 24   2.53 KiB  -23.256413607217837
    1.graphs.x           float32  13 x 12  624 bytes  3.525279916357249
    1.graphs.edge_index  int64    2 x 26   416 bytes  308
    1.lengths            int64    scalar     8 bytes  27
    1.scores             float32  scalar     4 bytes  0.23277564346790314
    2.sequences          float32  30 x 24   2.81 KiB  14.69441498080414
    2.graphs.x           float32  14 x 12  672 bytes  -9.577187377217342
    2.graphs.edge_index  int64    2 x 27   432 bytes  351
    2.lengths            int64    scalar     8 bytes  30
    2.scores             float32  scalar     4 bytes  1.1993043422698975
    15 tensors, 10.11 KiB; the file is 11.70 KiB (shard)
    ");
    assert_snapshot!(place.says("data packed/00003.shard --json"), @r#"
    [
    {"path":"0.sequences","dtype":"float32","shape":[18,24],"stride":[24,1],"bytes":1728,"sum":20.664946381002665},
    {"path":"0.graphs.x","dtype":"float32","shape":[12,12],"stride":[12,1],"bytes":576,"sum":-20.386755980551243},
    {"path":"0.graphs.edge_index","dtype":"int64","shape":[2,25],"stride":[25,1],"bytes":400,"sum":286.0},
    {"path":"0.lengths","dtype":"int64","shape":[],"stride":[],"bytes":8,"sum":18.0},
    {"path":"0.scores","dtype":"float32","shape":[],"stride":[],"bytes":4,"sum":0.9741107225418091},
    {"path":"1.sequences","dtype":"float32","shape":[27,24],"stride":[24,1],"bytes":2592,"sum":-23.256413607217837},
    {"path":"1.graphs.x","dtype":"float32","shape":[13,12],"stride":[12,1],"bytes":624,"sum":3.525279916357249},
    {"path":"1.graphs.edge_index","dtype":"int64","shape":[2,26],"stride":[26,1],"bytes":416,"sum":308.0},
    {"path":"1.lengths","dtype":"int64","shape":[],"stride":[],"bytes":8,"sum":27.0},
    {"path":"1.scores","dtype":"float32","shape":[],"stride":[],"bytes":4,"sum":0.23277564346790314},
    {"path":"2.sequences","dtype":"float32","shape":[30,24],"stride":[24,1],"bytes":2880,"sum":14.69441498080414},
    {"path":"2.graphs.x","dtype":"float32","shape":[14,12],"stride":[12,1],"bytes":672,"sum":-9.577187377217342},
    {"path":"2.graphs.edge_index","dtype":"int64","shape":[2,27],"stride":[27,1],"bytes":432,"sum":351.0},
    {"path":"2.lengths","dtype":"int64","shape":[],"stride":[],"bytes":8,"sum":30.0},
    {"path":"2.scores","dtype":"float32","shape":[],"stride":[],"bytes":4,"sum":1.1993043422698975}
    ]
    "#);
    // The same tensors have the same sums, whatever file they are in.
    let sums = |name: &str| -> Vec<String> {
        let rows: Value = serde_json::from_str(&place.says(&format!("data {name} --json"))).unwrap();
        let is_large = |row: &&Value| row["path"].as_str().unwrap().contains("sequences");
        rows.as_array().unwrap().iter().filter(is_large).map(|row| row["sum"].to_string()).collect()
    };
    let shards = (0..4).flat_map(|shard| sums(&format!("packed/{shard:05}.shard")));
    let batches = (0..3).flat_map(|batch| sums(&format!("src/batch_{batch:04}.pt")));
    assert_eq!(shards.collect::<Vec<_>>(), batches.collect::<Vec<_>>());
}

#[test]
fn what_a_run_would_read() {
    let place = packed();
    let cost = |text: String| text[text.find("\nat a host line").unwrap()..].to_owned();
    assert_snapshot!(cost(place.says("data packed --host-line 2.32MiB --base 2MiB")), @r"
    at a host line of 2.32 MiB
      base     2.00 MiB, assumed for the engine itself (--base)
      cache    41.53 KiB, and 286.15 KiB for what is being read
      window   1 of 4 shards at a time
      epoch    reads 44.00 KiB of 77.96 KiB (lru: 55.96 KiB; at least: 36.43 KiB)
      larger   what is added is not read any more; from 2.36 MiB on, nothing is read twice
      least    2.28 MiB for single samples, 2.30 MiB for whole shards

        cache         window  read an epoch        lru
     7.79 KiB   10 %       -      77.96 KiB  77.96 KiB
    19.49 KiB   25 %       -      77.96 KiB  77.96 KiB
    38.98 KiB   50 %       1      44.00 KiB  55.96 KiB
    41.53 KiB   53 %       1      44.00 KiB  55.96 KiB  this line
    58.47 KiB   75 %       1      22.99 KiB  41.12 KiB
    77.96 KiB  100 %       4        0 bytes    0 bytes
    ");
    assert_snapshot!(cost(place.says("data packed --host-line 1GiB")), @r"
    at a host line of 1.00 GiB
      base     350.00 MiB, assumed for the engine itself (--base)
      cache    673.72 MiB, and 286.15 KiB for what is being read
      window   all 4 shards
      epoch    reads nothing, once all is there
      larger   a larger line would not help
      least    350.28 MiB for single samples, 350.30 MiB for whole shards

         cache           window  read an epoch        lru
      7.79 KiB     10 %       -      77.96 KiB  77.96 KiB
     19.49 KiB     25 %       -      77.96 KiB  77.96 KiB
     38.98 KiB     50 %       1      44.00 KiB  55.96 KiB
     58.47 KiB     75 %       1      22.99 KiB  41.12 KiB
     77.96 KiB    100 %       4        0 bytes    0 bytes
    673.72 MiB  > 999 %       4        0 bytes    0 bytes  this line
    ");
    assert_snapshot!(cost(place.says("data packed --host-line 2.29MiB --base 2MiB")), @r"
    at a host line of 2.29 MiB
      base     2.00 MiB, assumed for the engine itself (--base)
      cache    10.81 KiB, and 286.15 KiB for what is being read
      window   none: no shard fits, samples are read one by one
      epoch    reads 77.96 KiB of 77.96 KiB (lru: 77.96 KiB; at least: 67.15 KiB)
      larger   what is added is not read any more; from 2.36 MiB on, nothing is read twice
      least    2.28 MiB for single samples, 2.30 MiB for whole shards

        cache         window  read an epoch        lru
     7.79 KiB   10 %       -      77.96 KiB  77.96 KiB
    10.81 KiB   14 %       -      77.96 KiB  77.96 KiB  this line
    19.49 KiB   25 %       -      77.96 KiB  77.96 KiB
    38.98 KiB   50 %       1      44.00 KiB  55.96 KiB
    58.47 KiB   75 %       1      22.99 KiB  41.12 KiB
    77.96 KiB  100 %       4        0 bytes    0 bytes
    ");
    assert_snapshot!(cost(place.says("data packed --max-cache-batches 2 --base 2MiB")), @r"
    at a host line of 2.32 MiB
      base     2.00 MiB, assumed for the engine itself (--base)
      cache    45.40 KiB, and 286.15 KiB for what is being read
      window   1 of 4 shards at a time
      epoch    reads 44.00 KiB of 77.96 KiB (lru: 55.96 KiB; at least: 32.56 KiB)
      larger   what is added is not read any more; from 2.36 MiB on, nothing is read twice
      least    2.28 MiB for single samples, 2.30 MiB for whole shards

        cache         window  read an epoch        lru
     7.79 KiB   10 %       -      77.96 KiB  77.96 KiB
    19.49 KiB   25 %       -      77.96 KiB  77.96 KiB
    38.98 KiB   50 %       1      44.00 KiB  55.96 KiB
    45.40 KiB   58 %       1      44.00 KiB  55.96 KiB  this line
    58.47 KiB   75 %       1      22.99 KiB  41.12 KiB
    77.96 KiB  100 %       4        0 bytes    0 bytes
    ");
    assert_snapshot!(cost(place.says("data src --max-cache-batches 2 --base 2MiB")), @r"
    at a host line of 2.16 MiB
      base     2.00 MiB, assumed for the engine itself (--base)
      cache    58.87 KiB, and 105.82 KiB for what is being read
      window   1 of 3 files at a time
      epoch    reads 25.82 KiB of 77.45 KiB (lru: 40.94 KiB; at least: 18.58 KiB)
      larger   what is added is not read any more; from 2.18 MiB on, nothing is read twice
      least    2.10 MiB for single samples, 2.13 MiB for whole files

        cache         window  read an epoch        lru
     7.74 KiB   10 %       -      77.45 KiB  77.45 KiB
    19.36 KiB   25 %       -      77.45 KiB  77.45 KiB
    38.72 KiB   50 %       1      68.52 KiB  68.52 KiB
    58.09 KiB   75 %       1      51.63 KiB  51.63 KiB
    58.87 KiB   76 %       1      25.82 KiB  40.94 KiB  this line
    77.45 KiB  100 %       3        0 bytes    0 bytes
    ");
    let json: Value = serde_json::from_str(&place.says("data packed --max-cache-batches 2 --json")).unwrap();
    assert_snapshot!(serde_json::to_string_pretty(&json["cost"]).unwrap(), @r#"
    {
      "base_bytes": 367001600,
      "belady_bytes_per_epoch": 45059,
      "cache_bytes": 46486,
      "curve": [
        {
          "belady_bytes_per_epoch": 79828,
          "cache_bytes": 7982,
          "lru_bytes_per_epoch": 79828,
          "window": null
        },
        {
          "belady_bytes_per_epoch": 79828,
          "cache_bytes": 19957,
          "lru_bytes_per_epoch": 79828,
          "window": null
        },
        {
          "belady_bytes_per_epoch": 45059,
          "cache_bytes": 39914,
          "lru_bytes_per_epoch": 57298,
          "window": 1
        },
        {
          "belady_bytes_per_epoch": 23545,
          "cache_bytes": 59871,
          "lru_bytes_per_epoch": 42104,
          "window": 1
        },
        {
          "belady_bytes_per_epoch": 0,
          "cache_bytes": 79828,
          "lru_bytes_per_epoch": 0,
          "window": 4
        }
      ],
      "data_bytes": 79828,
      "host_line_bytes": 367341103,
      "least_line_bytes": 367294617,
      "least_line_for_everything_bytes": 367374445,
      "least_line_for_shards_bytes": 367318768,
      "lru_bytes_per_epoch": 57298,
      "optimum_bytes_per_epoch": 33342,
      "passing_bytes": 293017,
      "window": 1,
      "would_more_help": true
    }
    "#);
    let output = place.run("data packed --host-line 200MiB");
    assert_eq!(output.status.code(), Some(2));
    assert_snapshot!(text(&output.stderr), @r"
    error: a host line of 200.00 MiB is too small: about 350.00 MiB are the engine's own, and reading the largest sample takes 286.15 KiB
    hint: the least that works is 350.28 MiB
    ");
    assert_snapshot!(place.complains("data packed --host-line 1GiB --max-cache-batches 2"), @r"
    error: the argument '--host-line <SIZE>' cannot be used with '--max-cache-batches <N>'

    Usage: lowtide data --host-line <SIZE> <FILE|DIR>

    For more information, try '--help'.
    ");
}

#[test]
fn damaged_shards() {
    let place = packed();
    let cut = fs::read(place.path("packed/00001.shard")).unwrap();
    fs::write(place.path("packed/00001.shard"), &cut[..20_000]).unwrap();
    let mut flipped = fs::read(place.path("packed/00002.shard")).unwrap();
    flipped[5000] ^= 1;
    fs::write(place.path("packed/00002.shard"), flipped).unwrap();
    let output = place.run("data packed");
    assert_eq!(output.status.code(), Some(2));
    assert_snapshot!(text(&output.stdout), @r"
    packed: 4 shards
      samples  16
      on disk  55.50 KiB (smallest 11.70 KiB 00003.shard, largest 23.38 KiB 00002.shard)
      memory   56.15 KiB for everything, up to 23.58 KiB for one shard; the files are 99 % of that
      ids      16, none twice

    field              dtype    shape   samples
    question_ids       str      scalar       10
    sequences          float32  ? x 24       10
    graphs.x           float32  ? x 12       10
    graphs.edge_index  int64    2 x ?        10
    lengths            int64    scalar       10
    scores             float32  scalar       10

    cannot be read: 2 shards
      packed/00001.shard has no end: it was cut off at 20000 bytes, or its end was overwritten
      record 1 of packed/00002.shard at offset 3072 is damaged: its checksum should be 6e7a7e21 and is ada088c0
    ");
    assert_snapshot!(text(&output.stderr), @r"
    error: 2 of 4 shards cannot be read
    hint: each is listed with its reason; copy or pack them again
    ");
    assert_snapshot!(place.complains("data packed/00001.shard"), @r"
    error: packed/00001.shard has no end: it was cut off at 20000 bytes, or its end was overwritten
    hint: copy or pack the file again
    ");
    assert_snapshot!(place.complains("data packed/00002.shard"), @r"
    error: record 1 of packed/00002.shard at offset 3072 is damaged: its checksum should be 6e7a7e21 and is ada088c0
    hint: copy or pack the file again
    ");
}

#[test]
fn a_folder_that_is_not_packed_to_its_end() {
    let place = packed();
    fs::write(place.path("packed/.packing"), "").unwrap();
    assert_snapshot!(place.complains("data packed"), @r"
    error: packed is not packed to its end
    hint: wait for `lowtide pack`, or give its command again where it was interrupted
    ");
}

/// What a feed reads in the three epochs behind the first.
fn bytes_fed(place: &Place, window: u64, budget: u64, policy: Policy) -> (u64, u64) {
    let set = Arc::new(DataSet::open(&place.path("packed"), OpenOptions::default()).unwrap().set);
    let shuffle = Shuffle::Window { shards: window as u32 };
    let order = Order::new(Arc::clone(set.index().layout()), shuffle, 1);
    let read = |epochs| {
        let end = Some(Cursor { epoch: epochs, position: 0 });
        let options = FeedOptions { policy, end, ..FeedOptions::new(Bytes(budget)) };
        let mut feed = Feed::start(Arc::clone(&set), &order, Cursor::default(), options).unwrap();
        while feed.take().unwrap().is_some() {}
        (feed.capacity().get(), feed.stats().bytes_read.get())
    };
    (read(4).0, (read(4).1 - read(1).1) / 3)
}

#[test]
fn a_run_reads_what_was_foretold() {
    let place = packed();
    for line in [2_416_000_u64, 2_440_000, 2_460_000] {
        let base = 2 << 20;
        let words = format!("data packed --host-line {line} --base {base} --json");
        let json: Value = serde_json::from_str(&place.says(&words)).unwrap();
        let number = |name: &str| json["cost"][name].as_u64().unwrap();
        let (cache, belady) = bytes_fed(&place, number("window"), line - base, Policy::Belady);
        assert_eq!((cache, belady), (number("cache_bytes"), number("belady_bytes_per_epoch")));
        let (_, lru) = bytes_fed(&place, number("window"), line - base, Policy::Lru);
        assert_eq!(lru, number("lru_bytes_per_epoch"));
        assert!(0 < belady && belady <= lru, "{line}: {belady} and {lru}");
    }
}
