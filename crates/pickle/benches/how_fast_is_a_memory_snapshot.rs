//! How fast is a snapshot of PyTorch's CUDA allocator read, and how much memory does the table take?
//!
//! The pickle has the shape of `torch.cuda.memory._snapshot()`: a long list of dicts with the same seven keys, which
//! come out of the memo. The peer is Python's own `pickle.load`, where a `python3` is at hand; the floor is a sum
//! over the bytes. A path in `LOWTIDE_SNAPSHOT` reads that file instead.
//!
//! Run with `make bench BENCH=how_fast_is_a_memory_snapshot`.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::fs;
use std::hint::black_box;
use std::io::BufReader;
use std::process::Command;
use std::time::Instant;

use lowtide_pickle::{AllowList, Limits, read};

const SIZE: usize = 100_000_000;
/// Times as fast as Python's.
const GOAL: f64 = 1.5;
const KEYS: [&str; 7] = ["action", "addr", "size", "stream", "time_us", "compile_context", "user_metadata"];

fn main() {
    let bytes = match std::env::var_os("LOWTIDE_SNAPSHOT") {
        Some(path) => fs::read(path).expect("the file that LOWTIDE_SNAPSHOT names"),
        None => snapshot(),
    };
    let megabytes = bytes.len() as f64 / 1e6;
    let path = std::env::temp_dir().join(format!("lowtide-snapshot-{}.pickle", std::process::id()));
    fs::write(&path, &bytes).expect("a temporary file");

    let pickle = read(&bytes[..], &AllowList::plain(), &Limits::default()).expect("a pickle");
    println!("{megabytes:.1} MB, {} values, a table of {}", pickle.node_count(), pickle.memory());
    drop(pickle);
    let slice =
        best_of(5, || read(&bytes[..], &AllowList::plain(), &Limits::default()).expect("a pickle").node_count());
    let file = best_of(5, || {
        let file = BufReader::with_capacity(64 << 10, fs::File::open(&path).expect("the file"));
        read(file, &AllowList::plain(), &Limits::default()).expect("a pickle").node_count()
    });
    let floor = best_of(5, || bytes.iter().map(|byte| usize::from(*byte)).sum());
    println!("from memory:   {:>8.0} MB/s", megabytes / slice);
    println!("from a file:   {:>8.0} MB/s", megabytes / file);
    println!("sum of bytes:  {:>8.0} MB/s", megabytes / floor);
    match python(&path.to_string_lossy()) {
        Some(python) => {
            let ratio = python / slice;
            let verdict = if ratio >= GOAL { "ok" } else { "MISSED" };
            println!("python3:       {:>8.0} MB/s", megabytes / python);
            println!("from memory it is {ratio:.1} times as fast as Python; goal {GOAL}: {verdict}");
        }
        None => println!("python3:       not here"),
    }
    // The file is this program's own.
    let _ = fs::remove_file(path);
}

/// The shortest time of several runs, in seconds.
fn best_of(runs: usize, mut work: impl FnMut() -> usize) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..runs {
        let start = Instant::now();
        black_box(work());
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

/// Seconds that Python takes for the same bytes in memory, without its collector, which would only slow it down.
fn python(path: &str) -> Option<f64> {
    let program = "import gc, pickle, sys, time\n\
        gc.disable()\n\
        data = open(sys.argv[1], 'rb').read()\n\
        times = []\n\
        for _ in range(3):\n\
        \x20   start = time.perf_counter()\n\
        \x20   pickle.loads(data)\n\
        \x20   times.append(time.perf_counter() - start)\n\
        print(min(times))";
    let output = Command::new("python3").args(["-c", program, path]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// A trace of allocations, as Python writes it at protocol 4.
fn snapshot() -> Vec<u8> {
    let mut bytes = b"\x80\x04](".to_vec();
    for key in KEYS {
        bytes.extend_from_slice(&[0x8c, key.len() as u8]);
        bytes.extend_from_slice(key.as_bytes());
        bytes.push(0x94);
    }
    bytes.extend_from_slice(b"1(");
    let mut step = 0_u64;
    while bytes.len() < SIZE {
        step += 1;
        bytes.extend_from_slice(b"}\x94(");
        let action = if step.is_multiple_of(2) { &b"\x8c\x05alloc\x94"[..] } else { b"\x8c\x0efree_completed\x94" };
        bytes.extend_from_slice(&[&b"h\0"[..], action, b"h\x01\x8a\x06"].concat());
        bytes.extend_from_slice(&(0x7f00_0000_0000 + step * 512).to_le_bytes()[..6]);
        bytes.extend_from_slice(
            &[&b"h\x02J"[..], &(512 + step as u32 % 99_999).to_le_bytes(), b"h\x03K\0h\x04\x8a\x07"].concat(),
        );
        bytes.extend_from_slice(&(1_790_000_000_000_000 + step).to_le_bytes()[..7]);
        bytes.extend_from_slice(b"h\x05h\0h\x06h\x01u");
    }
    bytes.extend_from_slice(b"e.");
    bytes
}
