//! Memory that samples take is what was said of it, and goes back to the system.
//!
//! By what the system says of the process; so the test starts itself in one of its own, for tests of one process share
//! its memory.

use std::borrow::Cow;
use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use lowtide_core::Bytes;
use lowtide_data::feed::{Feed, FeedOptions, Store};
use lowtide_data::order::{Cursor, Order, Shuffle};
use lowtide_data::shard::{Compression, Writer};
use lowtide_data::{BatchFile, DataSet, OpenOptions, tensors_of};
use lowtide_tensorfile::{Dtype, PtTensor, PtValue, write_pt};

/// Set in the process that measures.
const ALONE: &str = "LOWTIDE_TEST_ALONE";
/// What measuring itself, the heap's ends and stacks of threads may differ by.
const SLACK: u64 = 6 << 20;

/// A number of kilobytes out of what the system says of the process.
fn status(key: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim_matches(|letter: char| !letter.is_ascii_digit()).parse::<u64>().unwrap() << 10
}

fn resident() -> u64 {
    status("VmRSS:")
}

/// The most that was resident during `work` beyond what was before; `None` where the system does not count anew.
fn peak_of<T>(work: impl FnOnce() -> T) -> (T, Option<u64>) {
    let can_reset = fs::write("/proc/self/clear_refs", "5").is_ok();
    let before = resident();
    let done = work();
    (done, can_reset.then(|| status("VmHWM:").saturating_sub(before)))
}

fn write_batch(path: &Path, samples: u64, floats: u64) {
    let tensor = |seed: u64| {
        let bytes = (0..floats).flat_map(|place| ((seed + place) as f32).to_le_bytes()).collect();
        PtValue::Tensor(PtTensor { dtype: Dtype::Float32, shape: vec![floats], bytes: Cow::Owned(bytes) })
    };
    let column = |name: &str, seed: u64| {
        let items = (0..samples).map(|sample| tensor(sample + seed)).collect();
        (PtValue::Str(name.to_owned().into()), PtValue::List(items))
    };
    write_pt(path, &PtValue::Dict(vec![column("x", 0), column("y", 9)])).unwrap();
}

fn repack(batch: &Path, shard: &Path) {
    let mut writer = Writer::create(shard, Compression::Zstd { level: 1 }).unwrap();
    for sample in BatchFile::open(batch).unwrap().read_all().unwrap() {
        writer.append(&tensors_of(&sample).unwrap(), None).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn memory_is_what_was_said_and_goes_back() {
    if env::var_os(ALONE).is_none() {
        let name = "memory::memory_is_what_was_said_and_goes_back";
        let alone =
            Command::new(env::current_exe().unwrap()).args(["--exact", name, "--nocapture"]).env(ALONE, "1").output();
        let alone = alone.unwrap();
        let said = String::from_utf8_lossy(&alone.stdout);
        assert!(
            alone.status.success() && said.contains("1 passed"),
            "{said}{}",
            String::from_utf8_lossy(&alone.stderr)
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (many, large) = (folder.path().join("many.pt"), folder.path().join("large.pt"));
    write_batch(&many, 20_000, 4);
    write_batch(&large, 8, 1 << 20);
    repack(&many, &folder.path().join("many.shard"));
    repack(&large, &folder.path().join("large.shard"));
    let set_of = |names: &[&str]| {
        let paths: Vec<_> = names.iter().map(|name| folder.path().join(name)).collect();
        Arc::new(DataSet::of_files(&paths, OpenOptions::default()).unwrap().set)
    };
    // What was said: first everything once, so that the heap has what it keeps.
    for set in [set_of(&["many.pt", "large.pt"]), set_of(&["many.shard", "large.shard"])] {
        for shard in [0, 1, 0, 1] {
            let base = resident();
            let (read, peak) = peak_of(|| set.read_shard(shard).unwrap());
            let name = set.path(shard).display().to_string();
            let (said, cost) = (set.shard_bytes(shard).get(), set.shard_cost(shard).get());
            let held = resident().saturating_sub(base);
            println!("{name}: said {said}, held {held}; cost {cost}, peak {peak:?}");
            if let Some(peak) = peak {
                assert!(peak <= cost + SLACK, "{name}: reading took {peak}, and {cost} were said");
            }
            let mine = read.iter().map(|sample| sample.bytes().get()).sum::<u64>();
            assert!(mine <= said, "{name}: {mine} of {said}");
            let before = resident();
            drop(read);
            let given_back = before.saturating_sub(resident());
            assert!(given_back + SLACK >= said, "{name}: {given_back} of {said} were given back");
        }
    }
    // A feed under a budget, with shards that come and go.
    for file in 0..20 {
        write_batch(&folder.path().join(format!("batch_{file}.pt")), 64, 20_000);
    }
    let names: Vec<String> = (0..20).map(|file| format!("batch_{file}.pt")).collect();
    let set = set_of(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let budget = Bytes(set.bytes().get() / 4);
    let before = resident();
    for shuffle in [Shuffle::Sequential, Shuffle::Window { shards: 2 }, Shuffle::Full] {
        let order = Order::new(set.layout().clone(), shuffle, 1);
        let end = Some(Cursor { epoch: 2, position: 0 });
        let options = FeedOptions { end, ..FeedOptions::new(budget) };
        let ((), peak) = peak_of(|| {
            let mut feed = Feed::start(Arc::clone(&set), &order, Cursor::default(), options).unwrap();
            while feed.take().unwrap().is_some() {}
            assert!(feed.stats().bytes_read > set.bytes(), "nothing came and went");
        });
        println!("{shuffle:?}: budget {budget}, peak {peak:?}, left {}", resident().saturating_sub(before));
        if let Some(peak) = peak {
            assert!(peak <= budget.get() + 2 * SLACK, "{shuffle:?}: {peak} under a budget of {budget}");
        }
    }
    let left = resident().saturating_sub(before);
    assert!(left <= budget.get() / 4 + SLACK, "{left} stayed of a budget of {budget}");
}
