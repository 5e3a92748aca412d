//! How fast are the samples of `.pt` batches read, file by file, and of the same samples as shards?
//!
//! A file has 64 samples: sequences, graphs, scores and ids of made-up questions. The page cache is warm. Given a
//! folder, the batches are written there and left, for another reader to be measured on them.
//!
//! Run with `make bench BENCH=how_fast_are_batches_read`.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use lowtide_data::feed::Store;
use lowtide_data::shard::{Compression, Writer};
use lowtide_data::{BatchFile, DataSet, OpenOptions, tensors_of};
use lowtide_tensorfile::pages::PageCache;
use lowtide_tensorfile::{Dtype, PtTensor, PtValue, write_pt};

const FILES: u64 = 100;
const SAMPLES: u64 = 64;
const ROUNDS: u32 = 5;

fn main() {
    let made = tempfile::tempdir().expect("a folder");
    let given = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).map(PathBuf::from);
    let batches = given.unwrap_or_else(|| made.path().join("batches"));
    std::fs::create_dir_all(&batches).expect("a folder");
    let mut random = Random(1);
    (0..FILES).for_each(|file| write_batch(&batches.join(format!("batch_{file:04}.pt")), file, &mut random));
    measure("batches", &batches);
    for (name, compression) in [("shards", Compression::None), ("zstd", Compression::Zstd { level: 1 })] {
        let folder = made.path().join(name);
        std::fs::create_dir(&folder).expect("a new folder");
        repack(&batches, &folder, compression);
        measure(name, &folder);
    }
}

fn measure(what: &str, folder: &Path) {
    let options = OpenOptions { page_cache: PageCache::Keep, ..OpenOptions::default() };
    let open = || DataSet::open(folder, options).expect("a good data set");
    let (first, looked) = timed(open);
    let (_, opened) = timed(open);
    let set = first.set;
    let samples = set.layout().samples();
    println!(
        "{what}: {samples} samples, {} in memory; looked at in {looked:.3} s, opened again in {opened:.4} s",
        set.bytes()
    );
    let shards = 0..set.layout().shards();
    // The best of some rounds for each file: whatever else the machine does disturbs some of them.
    let best_of = |read: &dyn Fn(u32)| -> f64 {
        let best = |shard| (0..ROUNDS).map(|_| timed(|| read(shard)).1).fold(f64::INFINITY, f64::min);
        shards.clone().map(best).sum()
    };
    let best = best_of(&|shard| drop(set.read_shard(shard).expect("a good file")));
    let (files, rate) = (f64::from(set.layout().shards()), set.bytes().get() as f64 / best / 1e6);
    println!(
        "  read_shard:   {:>9.0} samples/s, {:>6.0} us a file, {rate:.0} MB/s",
        samples as f64 / best,
        best / files * 1e6
    );
    let seconds = best_of(&|shard| drop(set.read_samples(shard, &[3, 4, 40]).expect("a good file")));
    println!("  read_samples: {:>9.0} us for three of a file", seconds / files * 1e6);
}

fn repack(batches: &Path, folder: &Path, compression: Compression) {
    for file in 0..FILES {
        let batch = BatchFile::open(&batches.join(format!("batch_{file:04}.pt"))).expect("a good file");
        let mut writer = Writer::create(folder.join(format!("{file:04}.shard")), compression).expect("a new file");
        for sample in batch.read_all().expect("a good file") {
            writer.append(&tensors_of(&sample).expect("plain numbers"), None).expect("room on the disk");
        }
        writer.finish().expect("room on the disk");
    }
}

fn write_batch(path: &Path, file: u64, random: &mut Random) {
    let text = |text: String| PtValue::Str(Cow::Owned(text));
    let mut sequences = Vec::new();
    let mut graphs = Vec::new();
    for _ in 0..SAMPLES {
        let (steps, nodes) = (8 + random.below(41), 6 + random.below(25));
        let edges = 2 * nodes;
        sequences.push(random.floats(&[steps, 24]));
        let ends = (0..2 * edges).flat_map(|_| (random.below(nodes) as i64).to_le_bytes()).collect();
        let edges = tensor(Dtype::Int64, &[2, edges], ends);
        graphs.push(PtValue::Dict(vec![
            (text("x".to_owned()), random.floats(&[nodes, 12])),
            (text("edge_index".to_owned()), edges),
        ]));
    }
    let ids = (0..SAMPLES).map(|sample| text(format!("q{:06}", file * SAMPLES + sample))).collect();
    let batch = PtValue::Dict(vec![
        (text("sequences".to_owned()), PtValue::List(sequences)),
        (text("graphs".to_owned()), PtValue::List(graphs)),
        (text("scores".to_owned()), random.floats(&[SAMPLES])),
        (text("question_ids".to_owned()), PtValue::List(ids)),
    ]);
    write_pt(path, &batch).expect("room on the disk");
}

fn tensor(dtype: Dtype, shape: &[u64], bytes: Vec<u8>) -> PtValue<'static> {
    PtValue::Tensor(PtTensor { dtype, shape: shape.to_vec(), bytes: Cow::Owned(bytes) })
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn floats(&mut self, shape: &[u64]) -> PtValue<'static> {
        let count = shape.iter().product::<u64>();
        let bytes = (0..count).flat_map(|_| (self.below(1 << 20) as f32 / 1024.0).to_le_bytes()).collect();
        tensor(Dtype::Float32, shape, bytes)
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let done = work();
    (done, start.elapsed().as_secs_f64())
}
