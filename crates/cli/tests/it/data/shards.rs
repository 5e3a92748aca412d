//! `lowtide data` on shards, and what it foretells of a run.

use std::fs;
use std::sync::Arc;

use insta::assert_snapshot;
use lowtide_core::Bytes;
use lowtide_data::feed::{Feed, FeedOptions};
use lowtide_data::order::{Cursor, Order, Shuffle};
use lowtide_data::policy::Policy;
use lowtide_data::{DataSet, OpenOptions};
use serde_json::Value;

use super::kit::Place;

/// Packs the fixtures into four shards.
fn packed() -> Place {
    let place = Place::with_sources(&["batch_0000.pt", "batch_0001.pt", "batch_0002.pt"]);
    place.says("pack src --out packed --shard-size 20KiB");
    place
}

#[test]
fn a_folder_of_shards() {
    let place = packed();
    assert_snapshot!(place.says("data packed"), @r"
    packed: 4 shards
      samples  21
      on disk  77.29 KiB (smallest 11.73 KiB 00003.shard, largest 23.44 KiB 00002.shard)
      memory   83.76 KiB for everything, up to 24.96 KiB for one shard; the files are 92 % of that
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
      "disk_bytes": 79148,
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
        "bytes": 23999,
        "file": "00002.shard"
      },
      "largest_memory_bytes": 25563,
      "memory_bytes": 85772,
      "samples": 21,
      "shards": 4,
      "smallest": {
        "bytes": 12015,
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
      on disk  61.20 KiB (smallest 61.20 KiB 00000.shard, largest 61.20 KiB 00000.shard)
      memory   77.40 KiB for everything, up to 77.40 KiB for one shard; the files are 79 % of that
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
    15 tensors, 10.11 KiB; the file is 11.73 KiB (shard)
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
    let cost = |text: String| text[text.find("\nwith a memory limit of").unwrap()..].to_owned();
    assert_snapshot!(cost(place.says("data packed --host-limit 2.08MiB --base 2MiB")), @r"
    with a memory limit of 2.08 MiB for the host
      base     2.00 MiB, assumed for the engine itself (--base)
      cache    42.31 KiB, and 39.61 KiB for what is being read
      window   1 of 4 shards at a time
      epoch    reads 47.26 KiB of 83.76 KiB (lru: 60.13 KiB; at least: 41.45 KiB)
      larger   what is added is not read any more; from 2.12 MiB on, nothing is read twice
      least    2.04 MiB for single samples, 2.06 MiB for whole shards

        cache         window  read an epoch        lru
     8.38 KiB   10 %       -      83.76 KiB  83.76 KiB
    20.94 KiB   25 %       -      83.76 KiB  83.76 KiB
    41.88 KiB   50 %       1      47.26 KiB  60.13 KiB
    42.31 KiB   51 %       1      47.26 KiB  60.13 KiB  this limit
    62.82 KiB   75 %       1      24.95 KiB  44.55 KiB
    83.76 KiB  100 %       4        0 bytes    0 bytes
    ");
    assert_snapshot!(cost(place.says("data packed --host-limit 1GiB")), @r"
    with a memory limit of 1.00 GiB for the host
      base     350.00 MiB, assumed for the engine itself (--base)
      cache    673.96 MiB, and 39.61 KiB for what is being read
      window   all 4 shards
      epoch    reads nothing, once all is there
      larger   a larger limit would not help
      least    350.04 MiB for single samples, 350.06 MiB for whole shards

         cache           window  read an epoch        lru
      8.38 KiB     10 %       -      83.76 KiB  83.76 KiB
     20.94 KiB     25 %       -      83.76 KiB  83.76 KiB
     41.88 KiB     50 %       1      47.26 KiB  60.13 KiB
     62.82 KiB     75 %       1      24.95 KiB  44.55 KiB
     83.76 KiB    100 %       4        0 bytes    0 bytes
    673.96 MiB  > 999 %       4        0 bytes    0 bytes  this limit
    ");
    assert_snapshot!(cost(place.says("data packed --host-limit 2.05MiB --base 2MiB")), @r"
    with a memory limit of 2.05 MiB for the host
      base     2.00 MiB, assumed for the engine itself (--base)
      cache    11.59 KiB, and 39.61 KiB for what is being read
      window   none: no shard fits, samples are read one by one
      epoch    reads 83.76 KiB of 83.76 KiB (lru: 83.76 KiB; at least: 72.17 KiB)
      larger   what is added is not read any more; from 2.12 MiB on, nothing is read twice
      least    2.04 MiB for single samples, 2.06 MiB for whole shards

        cache         window  read an epoch        lru
     8.38 KiB   10 %       -      83.76 KiB  83.76 KiB
    11.59 KiB   14 %       -      83.76 KiB  83.76 KiB  this limit
    20.94 KiB   25 %       -      83.76 KiB  83.76 KiB
    41.88 KiB   50 %       1      47.26 KiB  60.13 KiB
    62.82 KiB   75 %       1      24.95 KiB  44.55 KiB
    83.76 KiB  100 %       4        0 bytes    0 bytes
    ");
    assert_snapshot!(cost(place.says("data packed --max-cache-batches 2 --base 2MiB")), @r"
    with a memory limit of 2.09 MiB for the host
      base     2.00 MiB, assumed for the engine itself (--base)
      cache    49.90 KiB, and 39.61 KiB for what is being read
      window   1 of 4 shards at a time
      epoch    reads 47.26 KiB of 83.76 KiB (lru: 60.13 KiB; at least: 33.87 KiB)
      larger   what is added is not read any more; from 2.12 MiB on, nothing is read twice
      least    2.04 MiB for single samples, 2.06 MiB for whole shards

        cache         window  read an epoch        lru
     8.38 KiB   10 %       -      83.76 KiB  83.76 KiB
    20.94 KiB   25 %       -      83.76 KiB  83.76 KiB
    41.88 KiB   50 %       1      47.26 KiB  60.13 KiB
    49.90 KiB   60 %       1      47.26 KiB  60.13 KiB  this limit
    62.82 KiB   75 %       1      24.95 KiB  44.55 KiB
    83.76 KiB  100 %       4        0 bytes    0 bytes
    ");
    assert_snapshot!(cost(place.says("data src --max-cache-batches 2 --base 2MiB")), @r"
    with a memory limit of 2.16 MiB for the host
      base     2.00 MiB, assumed for the engine itself (--base)
      cache    59.40 KiB, and 106.03 KiB for what is being read
      window   1 of 3 files at a time
      epoch    reads 26.08 KiB of 78.25 KiB (lru: 41.38 KiB; at least: 18.84 KiB)
      larger   what is added is not read any more; from 2.18 MiB on, nothing is read twice
      least    2.10 MiB for single samples, 2.14 MiB for whole files

        cache         window  read an epoch        lru
     7.82 KiB   10 %       -      78.25 KiB  78.25 KiB
    19.56 KiB   25 %       -      78.25 KiB  78.25 KiB
    39.12 KiB   50 %       1      69.23 KiB  69.23 KiB
    58.68 KiB   75 %       1      52.16 KiB  52.16 KiB
    59.40 KiB   76 %       1      26.08 KiB  41.38 KiB  this limit
    78.25 KiB  100 %       3        0 bytes    0 bytes
    ");
    let json: Value = serde_json::from_str(&place.says("data packed --max-cache-batches 2 --json")).unwrap();
    assert_snapshot!(serde_json::to_string_pretty(&json["cost"]).unwrap(), @r#"
    {
      "base_bytes": 367001600,
      "belady_bytes_per_epoch": 48395,
      "cache_bytes": 51094,
      "curve": [
        {
          "belady_bytes_per_epoch": 85772,
          "cache_bytes": 8577,
          "lru_bytes_per_epoch": 85772,
          "window": null
        },
        {
          "belady_bytes_per_epoch": 85772,
          "cache_bytes": 21443,
          "lru_bytes_per_epoch": 85772,
          "window": null
        },
        {
          "belady_bytes_per_epoch": 48395,
          "cache_bytes": 42886,
          "lru_bytes_per_epoch": 61574,
          "window": 1
        },
        {
          "belady_bytes_per_epoch": 25552,
          "cache_bytes": 64329,
          "lru_bytes_per_epoch": 45622,
          "window": 1
        },
        {
          "belady_bytes_per_epoch": 0,
          "cache_bytes": 85772,
          "lru_bytes_per_epoch": 0,
          "window": 4
        }
      ],
      "data_bytes": 85772,
      "host_line_bytes": 367093255,
      "least_line_bytes": 367042161,
      "least_line_for_everything_bytes": 367127933,
      "least_line_for_shards_bytes": 367067724,
      "lru_bytes_per_epoch": 61574,
      "optimum_bytes_per_epoch": 34678,
      "passing_bytes": 40561,
      "window": 1,
      "would_more_help": true
    }
    "#);
    let printout = place.run("data packed --host-limit 200MiB");
    assert_eq!(printout.code, Some(2));
    assert_snapshot!(printout.stderr, @r"
    error: a memory limit of 200.00 MiB is too small: about 350.00 MiB are the engine's own, and reading the largest sample takes 39.61 KiB
    hint: the least that works is 350.04 MiB
    ");
    assert_snapshot!(place.refuses("data packed --host-limit 1GiB --max-cache-batches 2"), @r"
    error: the argument '--host-limit <SIZE>' cannot be used with '--max-cache-batches <N>'

    Usage: lowtide data --host-limit <SIZE> <FILE|DIR>

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
    let printout = place.run("data packed");
    assert_eq!(printout.code, Some(2));
    assert_snapshot!(printout.stdout, @r"
    packed: 4 shards
      samples  16
      on disk  55.65 KiB (smallest 11.73 KiB 00003.shard, largest 23.44 KiB 00002.shard)
      memory   58.83 KiB for everything, up to 24.96 KiB for one shard; the files are 95 % of that
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
    assert_snapshot!(printout.stderr, @r"
    error: 2 of 4 shards cannot be read
    hint: each is listed with its reason; copy or pack them again
    ");
    assert_snapshot!(place.refuses("data packed/00001.shard"), @r"
    error: packed/00001.shard has no end: it was cut off at 20000 bytes, or its end was overwritten
    hint: copy or pack the file again
    ");
    assert_snapshot!(place.refuses("data packed/00002.shard"), @r"
    error: record 1 of packed/00002.shard at offset 3072 is damaged: its checksum should be 6e7a7e21 and is ada088c0
    hint: copy or pack the file again
    ");
}

#[test]
fn a_folder_that_is_not_packed_to_its_end() {
    let place = packed();
    fs::write(place.path("packed/.packing"), "").unwrap();
    assert_snapshot!(place.refuses("data packed"), @r"
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
    for line in [2_163_800_u64, 2_190_000, 2_212_000] {
        let base = 2 << 20;
        let words = format!("data packed --host-limit {line} --base {base} --json");
        let json: Value = serde_json::from_str(&place.says(&words)).unwrap();
        let number = |name: &str| json["cost"][name].as_u64().unwrap();
        let (cache, belady) = bytes_fed(&place, number("window"), line - base, Policy::Belady);
        assert_eq!((cache, belady), (number("cache_bytes"), number("belady_bytes_per_epoch")));
        let (_, lru) = bytes_fed(&place, number("window"), line - base, Policy::Lru);
        assert_eq!(lru, number("lru_bytes_per_epoch"));
        assert!(0 < belady && belady <= lru, "{line}: {belady} and {lru}");
    }
}
