//! `lowtide data` on files and folders of files.

use std::fs;
use std::io::pipe;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use insta::assert_snapshot;
use lowtide_testkit::Printout;
use serde_json::Value;

use super::kit::Place;

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

          --decode-limit <SIZE>
              What a file may decode to: 256 MiB by default, or 64 times its size on the disk where that
              is more

          --host-limit <SIZE>
              Of a folder: what a run whose memory stays below this limit would read in an epoch, and
              with other limits

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
      lowtide data packed --host-limit 4GiB   what a run in 4 GiB would read, an epoch

    Exit codes:
      0    listed
      2    bad input: something is missing, damaged, cut short or refused, or a limit is too small
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
    let printout = place.run("data . --sums");
    assert_eq!(printout.code, Some(2));
    assert_snapshot!(printout.stdout, @r"
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
    assert_snapshot!(printout.stderr, @r"
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
    assert_snapshot!(place.refuses("data truncated.pt"), @r"
    error: truncated.pt: byte 20515: it begins like a zip archive, but the directory that belongs at its end is missing: it was cut short
    hint: copy or write the file again
    ");
}

#[test]
fn a_flipped_byte_is_found_where_values_are_read() {
    let place = Place::with(&["flipped.pt"]);
    place.says("data flipped.pt");
    assert_snapshot!(place.refuses("data flipped.pt --sums"), @r"
    error: flipped.pt: `batch_0001/data/5` at byte 15296: damaged: its checksum is 7b163692, and 060b6a91 was written
    hint: copy or write the file again
    ");
    assert_eq!(place.refuses("data flipped.pt --json"), place.refuses("data flipped.pt --sums"));
}

#[test]
fn a_pickle_that_would_run_a_command_is_refused() {
    let place = Place::with(&["evil.pt"]);
    assert_snapshot!(place.refuses("data evil.pt"), @r"
    error: evil.pt: `evil/data.pkl` at byte 64: byte 14: GLOBAL names `posix.system`, which is not on the list of allowed names
    hint: nothing was executed; save plain containers and tensors, such as a state_dict
    ");
    assert_eq!(fs::read_dir(place.path("")).unwrap().count(), 1, "nothing was executed");
}

#[test]
fn a_file_that_is_not_there() {
    let place = Place::with(&[]);
    assert_snapshot!(place.refuses("data batch.pt"), @r"
    error: batch.pt: the file: No such file or directory (os error 2)
    hint: is the path right?
    ");
}

#[test]
fn a_file_of_another_kind() {
    let place = Place::with(&["facts.json"]);
    assert_snapshot!(place.refuses("data facts.json"), @r"
    error: facts.json: the file: a file of this kind is not read here
    hint: known are .pt, .npy, .npz, .safetensors, .pkl and .pkl.gz
    ");
}

#[test]
fn a_folder_without_data_files() {
    let place = Place::with(&["facts.json"]);
    assert_snapshot!(place.refuses("data ."), @r"
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
    assert_snapshot!(place.refuses("data legacy.pt"), @r"
    error: legacy.pt: the file: Permission denied (os error 13)
    hint: the file must be readable for you: chmod +r
    ");
}

#[test]
fn a_pipe_is_no_file() {
    let place = Place::with(&[]);
    assert!(Command::new("mkfifo").arg(place.path("pipe.pt")).status().unwrap().success());
    assert_snapshot!(place.refuses("data pipe.pt"), @"error: pipe.pt: the file: not a regular file");
}

#[test]
fn names_cannot_steer_the_terminal() {
    let place = Place::with(&[]);
    place.copy("truncated.pt", "a\u{1b}[2J.pt");
    let printout = place.run("data .");
    assert!(!printout.stdout.contains("\u{1b}") && !printout.stderr.contains("\u{1b}"));
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let place = Place::with(&["batch_0000.pt"]);
    for words in ["data batch_0000.pt", "data batch_0000.pt --json", "data ."] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let printout = Printout::of(place.command(words).stdout(writer).output().unwrap());
        assert_eq!((printout.code, &*printout.stderr), (Some(0), ""), "{words}");
    }
}
