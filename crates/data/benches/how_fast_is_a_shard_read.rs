//! How fast are samples read from a shard and checked, against reading the same bytes and doing nothing with them?
//!
//! The peer reads the whole file with one call and leaves it unchecked. Except where it says "from the disk", the
//! file is brought into the page cache before each reading. Samples are 4 KiB and 64 KiB.
//!
//! Run with `make bench BENCH=how_fast_is_a_shard_read`.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::borrow::Cow;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use lowtide_data::shard::{Compression, FieldKind, Reader, Scratch, Tensor, Writer};
use lowtide_tensorfile::Dtype;

const SIZE: usize = 256 << 20;

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    for sample in [4 << 10, 64 << 10] {
        println!("samples of {} KiB, shard of {} MiB", sample >> 10, SIZE >> 20);
        for compression in [Compression::None, Compression::Zstd { level: 1 }] {
            let path = folder.path().join(format!("{sample}-{compression:?}"));
            measure(&path, sample, compression);
        }
    }
}

fn measure(path: &Path, sample: usize, compression: Compression) {
    let write = seconds(|| write(path, sample, compression));
    let reader = Reader::open(path).expect("a good shard");
    let open = seconds(|| drop(Reader::open(path)));
    let stored = reader.file_bytes().get() as usize;
    let rate = |seconds: f64| SIZE as f64 / seconds / 1e6;
    println!("  {compression:?}: {} MiB on the disk, opened in {:.2} ms", stored >> 20, open * 1e3);
    println!("    write and sync:              {:>7.0} MB/s", rate(write));
    let mut buffer = vec![1; stored];
    println!(
        "    from the disk, 1 call:       {:>7.0} MB/s",
        rate(seconds(|| read(&reader, reader.len(), &mut buffer)))
    );
    // Reading the file plainly brings it into the page cache; our reads take it out again, so it is brought in before
    // each.
    let file = File::open(path).expect("it is there");
    let mut ours = vec![1; stored];
    let mut peer = || file.read_exact_at(&mut buffer, 0).expect("it can be read");
    peer();
    println!("    peer, cached, unchecked:     {:>7.0} MB/s", rate(seconds(&mut peer)));
    for run in [reader.len(), 64, 1] {
        peer();
        println!("    cached, runs of {run:>6}:      {:>7.0} MB/s", rate(seconds(|| read(&reader, run, &mut ours))));
    }
}

/// Reads a whole shard, `run` records at a time, into a buffer that was used before: new memory costs more than the
/// copy.
fn read(reader: &Reader, run: u64, buffer: &mut [u8]) {
    let (mut scratch, mut sum) = (Scratch::default(), 0);
    for first in (0..reader.len()).step_by(run as usize) {
        let records = first..(first + run).min(reader.len());
        let bytes = reader.bytes_of(records.clone()).expect("they are there").get() as usize;
        let loaded = reader.read(records.clone(), &mut buffer[..bytes]).expect("a good shard");
        for record in records {
            sum += loaded.record(record, &mut scratch).expect("a good record").tensors()[0].bytes.len();
        }
    }
    assert_eq!(sum, SIZE);
}

/// Numbers below 50,000 in four bytes each, as tokens are: zstd makes them about half as large.
fn write(path: &Path, sample: usize, compression: Compression) {
    let mut writer = Writer::create(path, compression).expect("a new file");
    let (mut bytes, mut state) = (vec![0; sample], 1_u64);
    for _ in 0..SIZE / sample {
        for token in bytes.chunks_exact_mut(4) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            token.copy_from_slice(&((state >> 40) as u32 % 50_000).to_le_bytes());
        }
        let shape = Cow::Owned(vec![sample as u64 / 4]);
        writer
            .append(&[Tensor { name: "tokens", kind: FieldKind::Array(Dtype::Uint32), shape, bytes: &bytes }], None)
            .expect("a good sample");
    }
    writer.finish().expect("room on the disk");
}

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}
