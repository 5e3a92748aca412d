//! Reads a folder of batches or shards through the feed, epoch after epoch, and tells how fast and with how many reads.
//!
//! ```console
//! $ cargo run --release -p lowtide-data --example feed -- DIR --cache-batches 50 --window 8 --epochs 4
//! ```
//!
//! Prints a line of JSON for each epoch and one for all. `--print-order` prints the order instead, for simulations that
//! know nothing of this program. The scripts in `benches/` compare it with others.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use lowtide_core::Bytes;
use lowtide_data::feed::{Feed, FeedOptions, Store};
use lowtide_data::order::{Cursor, Order, Shuffle, window_for};
use lowtide_data::policy::Policy;
use lowtide_data::{DataSet, OpenOptions};
use lowtide_tensorfile::View;
use lowtide_tensorfile::pages::PageCache;
use rustix::fs::{Advice, fadvise};
use serde_json::json;

const USAGE: &str = "usage: feed DIR [--line SIZE | --cache SIZE | --cache-batches N] [--policy belady|lru] [--threads N] \
    [--epochs N] [--seed N] [--window N | --full | --sequential] \
    [--keep-page-cache] [--drop-page-cache] [--copy | --batch N] [--print-order]";

/// What this program takes beside the data: stacks of threads, the plan of reads, a copy of a sample, what malloc holds.
const OWN: Bytes = Bytes::from_mib(3);

/// What was typed.
struct Args {
    folder: PathBuf,
    /// What may be kept; what reading takes for the moment comes on top of batches, and out of a size; so does all else
    /// that the process takes, out of a line.
    cache: Cache,
    policy: Policy,
    threads: NonZeroUsize,
    epochs: u64,
    seed: u64,
    /// `None`: a window that suits the cache.
    shuffle: Option<Shuffle>,
    page_cache: PageCache,
    /// Whether the system's cache is emptied of the files before each epoch.
    drops: bool,
    /// Whether each sample is copied out, as a program does that makes tensors of it.
    copies: bool,
    /// So many samples are copied side by side, as a program does that makes batches of them; 0 makes none.
    batch: usize,
    prints_order: bool,
}

enum Cache {
    Line(Bytes),
    Bytes(Bytes),
    Batches(u64),
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = parse()?;
    let set = DataSet::open(&args.folder, OpenOptions { page_cache: args.page_cache, ..OpenOptions::default() })?.set;
    let set = Arc::new(set);
    let shards: Vec<Bytes> = (0..set.layout().shards()).map(|shard| set.shard_bytes(shard)).collect();
    let budget = budget_of(&args, &set, &shards);
    let shuffle = match args.shuffle {
        Some(shuffle) => shuffle,
        None => Shuffle::Window { shards: window_for(budget, &shards).unwrap_or(1) },
    };
    let order = Order::new(set.layout().clone(), shuffle, args.seed);
    if args.prints_order {
        print_order(&args, &set, &shards, &order);
        return Ok(());
    }
    run(&args, &set, &order, budget)
}

fn run(args: &Args, set: &Arc<DataSet>, order: &Order, budget: Bytes) -> Result<(), Box<dyn Error>> {
    let end = Some(Cursor { epoch: args.epochs, position: 0 });
    let options = FeedOptions { policy: args.policy, threads: args.threads, end, ..FeedOptions::new(budget) };
    let samples = set.layout().samples();
    let base_rss = status("VmRSS:");
    if args.drops {
        drop_page_cache(set)?;
    }
    let (begun, device) = (Instant::now(), device_bytes());
    let mut feed = Feed::start(Arc::clone(set), order, Cursor::default(), options)?;
    let (mut seen, mut sum, mut apart) = (0_u64, 0_u64, 0_u64);
    let mut batch = Batch::default();
    for epoch in 0..args.epochs {
        let (begun, device, before) = (Instant::now(), device_bytes(), feed.stats());
        for position in 0..samples {
            let Some(fed) = feed.take()? else { return Err("the feed ended early".into()) };
            let number = set.layout().number_of(fed.sample);
            apart += number.abs_diff(position);
            sum += if args.batch > 0 { batch.add(&fed, args.batch) } else { touch(&fed, args.copies) };
            seen += 1;
        }
        let (seconds, stats) = (begun.elapsed().as_secs_f64(), feed.stats());
        let line = json!({
            "epoch": epoch,
            "seconds": seconds,
            "samples_per_second": samples as f64 / seconds,
            "loads": stats.loads - before.loads,
            "bytes_read": stats.bytes_read.get() - before.bytes_read.get(),
            "device_bytes": device_bytes() - device,
            "waited_seconds": (stats.waited - before.waited).as_secs_f64(),
        });
        println!("{line}");
        if args.drops {
            drop_page_cache(set)?;
        }
    }
    let stats = feed.stats();
    let line = json!({
        "epochs": args.epochs,
        "samples": seen,
        "shards": set.layout().shards(),
        "data_bytes": set.bytes(),
        "seconds": begun.elapsed().as_secs_f64(),
        "loads": stats.loads,
        "hits": stats.hits,
        "bytes_read": stats.bytes_read,
        "device_bytes": device_bytes() - device,
        "budget_bytes": budget,
        "capacity_bytes": feed.capacity(),
        "held_bytes": stats.peak,
        "base_rss_bytes": base_rss,
        "peak_rss_bytes": status("VmHWM:"),
        "displacement": apart as f64 / seen as f64 / samples as f64,
        "touched": sum,
    });
    println!("{line}");
    Ok(())
}

/// The order of the epochs, and of one more, in which what is kept at the end is needed again.
fn print_order(args: &Args, set: &DataSet, shards: &[Bytes], order: &Order) {
    let layout = set.layout();
    let names: Vec<String> = (0..layout.shards()).map(|shard| set.path(shard).display().to_string()).collect();
    let counts: Vec<u64> = (0..layout.shards()).map(|shard| layout.samples_of(shard)).collect();
    println!("{}", json!({"files": names, "samples": counts, "bytes": shards, "shuffle": order.shuffle()}));
    for epoch in 0..=args.epochs {
        let numbers: Vec<u64> = order.epoch(epoch).samples_from(0).map(|sample| layout.number_of(sample)).collect();
        println!("{}", json!({"epoch": epoch, "order": numbers}));
    }
}

/// Uses a sample as little as one can, or copies it.
fn touch(sample: &lowtide_data::BufferedSample, copies: bool) -> u64 {
    let size = |view: View<'_>| match view {
        View::Text(text) => text.len() as u64,
        View::Array { bytes, .. } if copies => std::hint::black_box(bytes.to_vec()).len() as u64,
        View::Array { bytes, .. } => bytes.len() as u64,
    };
    sample.fields().map(|(_, view)| size(view)).sum()
}

/// Samples side by side, field by field. The batch before is held while the next one is made, as whoever trains on it does.
#[derive(Default)]
struct Batch {
    fields: Vec<Vec<u8>>,
    samples: usize,
    before: Vec<Vec<u8>>,
}

impl Batch {
    fn add(&mut self, sample: &lowtide_data::BufferedSample, samples: usize) -> u64 {
        let mut added = 0;
        for (number, (_, view)) in sample.fields().enumerate() {
            let bytes = match view {
                View::Text(text) => text.as_bytes(),
                View::Array { bytes, .. } => bytes,
            };
            if self.samples == 0 {
                self.fields.push(Vec::with_capacity(bytes.len() * samples));
            }
            self.fields[number].extend_from_slice(bytes);
            added += bytes.len() as u64;
        }
        self.samples += 1;
        if self.samples == samples {
            self.before = std::hint::black_box(std::mem::take(&mut self.fields));
            self.samples = 0;
        }
        added
    }
}

fn budget_of(args: &Args, set: &DataSet, shards: &[Bytes]) -> Bytes {
    let batches = match args.cache {
        Cache::Line(line) => {
            let beside = Bytes(status("VmRSS:")).saturating_add(set.most_kept_open()).saturating_add(OWN);
            return line.saturating_sub(beside);
        }
        Cache::Bytes(bytes) => return bytes,
        Cache::Batches(batches) => batches,
    };
    let largest = shards.iter().copied().max().unwrap_or_default();
    // What passes through comes on top: the feed sets it aside.
    let passing = (0..set.layout().shards()).map(|shard| set.shard_cost(shard).saturating_sub(set.shard_bytes(shard)));
    let samples = (0..set.layout().samples()).map(|number| set.sample_bytes(set.layout().sample(number)));
    let passing = passing.chain(samples).max().unwrap_or_default();
    largest.saturating_mul(batches).saturating_add(passing)
}

/// Asks the system to forget the files; pages that are being read stay.
fn drop_page_cache(set: &DataSet) -> std::io::Result<()> {
    for shard in 0..set.layout().shards() {
        fadvise(&File::open(set.path(shard))?, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// Bytes that this process made the disk read.
fn device_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    line.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// A size out of the process's own status.
fn status(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).map_or(0, |kibibytes| kibibytes * 1024)
}

fn parse() -> Result<Args, Box<dyn Error>> {
    let mut args = Args {
        folder: PathBuf::new(),
        cache: Cache::Batches(2),
        policy: Policy::Belady,
        threads: NonZeroUsize::new(2).expect("2 is not 0"),
        epochs: 3,
        seed: 1,
        shuffle: None,
        page_cache: PageCache::default(),
        drops: false,
        copies: false,
        batch: 0,
        prints_order: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value\n{USAGE}"));
        match &*word {
            "--line" => args.cache = Cache::Line(value()?.parse()?),
            "--cache" => args.cache = Cache::Bytes(value()?.parse()?),
            "--cache-batches" => args.cache = Cache::Batches(value()?.parse()?),
            "--policy" => args.policy = serde_json::from_value(value()?.into())?,
            "--threads" => args.threads = value()?.parse()?,
            "--epochs" => args.epochs = value()?.parse()?,
            "--seed" => args.seed = value()?.parse()?,
            "--window" => args.shuffle = Some(Shuffle::Window { shards: value()?.parse()? }),
            "--full" => args.shuffle = Some(Shuffle::Full),
            "--sequential" => args.shuffle = Some(Shuffle::Sequential),
            "--keep-page-cache" => args.page_cache = PageCache::Keep,
            "--drop-page-cache" => args.drops = true,
            "--copy" => args.copies = true,
            "--batch" => args.batch = value()?.parse()?,
            "--print-order" => args.prints_order = true,
            _ if word.starts_with('-') => return Err(format!("`{word}` is not known\n{USAGE}").into()),
            _ => args.folder = word.into(),
        }
    }
    if args.folder.as_os_str().is_empty() {
        return Err(USAGE.into());
    }
    Ok(args)
}
