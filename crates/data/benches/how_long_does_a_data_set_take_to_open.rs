//! How long does a data set take to open, the first time and from its saved index?
//!
//! 1,000 samples in 10 files, 10,000 files of one sample each, and an index of a million samples.
//!
//! Run with `make bench BENCH=how_long_does_a_data_set_take_to_open`.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::borrow::Cow;
use std::fs;
use std::path::Path;
use std::time::Instant;

use lowtide_core::Bytes;
use lowtide_data::index::{Builder, FileCost, FileStamp, Index, SampleFacts, SetKind};
use lowtide_data::{DataSet, OpenOptions};
use lowtide_tensorfile::{Dtype, PtTensor, PtValue, write_pt};

fn main() {
    folder("1,000 samples in 10 files", 10, 100);
    folder("10,000 files of one sample", 10_000, 1);
    for (files, samples) in [(1000, 1000), (1_000_000, 1)] {
        saved(files, samples);
    }
}

fn folder(what: &str, files: u64, samples: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let name = |file| folder.path().join(format!("batch_{file:05}.pt"));
    write_batch(&name(0), samples);
    let bytes = fs::read(name(0)).expect("it is there");
    (1..files).for_each(|file| fs::write(name(file), &bytes).expect("room on the disk"));
    let open = || drop(DataSet::open(folder.path(), OpenOptions::default()).expect("good files"));
    println!("{what}: {:.3} s at first, {:.4} s from the saved index", seconds(open), seconds(open));
}

fn saved(files: u64, samples: u64) {
    let mut builder = Builder::default();
    for file in 0..files {
        let stamp = FileStamp { bytes: Bytes(file), modified: 1, fingerprint: 2 };
        let cost = FileCost { memory: Bytes(file), reading: Bytes(7) };
        let facts = (0..samples).map(|sample| SampleFacts { memory: Bytes(64), id_hash: sample * file + 1 });
        builder.add(&format!("batch_{file:07}.pt"), stamp, cost, facts);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("index");
    builder.finish().save(&path, SetKind::Batches).expect("room on the disk");
    let mut memory = Bytes::ZERO;
    let load = seconds(|| memory = Index::load(&path, SetKind::Batches).expect("a good index").memory());
    let each = memory.get() as f64 / (files * samples) as f64;
    println!("a million samples in {files} files: index loaded in {load:.3} s, {each:.1} bytes a sample in memory");
}

fn write_batch(path: &Path, samples: u64) {
    let text = |text: &str| PtValue::Str(Cow::Owned(text.to_owned()));
    let tensor = || {
        PtValue::Tensor(PtTensor {
            dtype: Dtype::Float32,
            shape: vec![28, 24],
            bytes: Cow::Owned(vec![1; 28 * 24 * 4]),
        })
    };
    let ids = (0..samples).map(|sample| text(&format!("q{sample}"))).collect();
    let sequences = (0..samples).map(|_| tensor()).collect();
    let batch =
        PtValue::Dict(vec![(text("question_ids"), PtValue::List(ids)), (text("sequences"), PtValue::List(sequences))]);
    write_pt(path, &batch).expect("room on the disk");
}

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}
