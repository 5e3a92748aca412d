//! Messages planted in noise are found, where they are, and nothing else is.

use lowtide_oom::{Engine, read, scan};
use serde_json::Value;

fn planted() -> Vec<(String, bool)> {
    include_str!("../fixtures/messages.jsonl")
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"))
        .map(|message| (message["text"].as_str().expect("text").to_owned(), message["label"] != "not_oom"))
        .collect()
}

fn noise(lines: usize) -> String {
    (0..lines)
        .map(|step| {
            format!("[step {step}] loss 2.{step} memory: device 1.21/3.50 GiB allocated 1.37 GiB, reserved 137 MiB\n")
        })
        .collect()
}

#[test]
fn every_planted_message_is_found_on_its_line() {
    for (text, is_oom) in planted() {
        let log = format!("{}{text}\n\n{}", noise(300), noise(200));
        let found: Vec<_> = scan(log.as_bytes()).collect();
        assert_eq!(!found.is_empty(), is_oom, "{text}");
        let lines = text.lines().count();
        for hit in found {
            assert!((301..301 + lines).contains(&hit.line), "{text}: line {}", hit.line);
            let start_line = log[..hit.range.start].matches('\n').count() + 1;
            assert_eq!(start_line, hit.line);
            assert!(!log[hit.range].contains('\n'));
        }
    }
}

#[test]
fn noise_has_none() {
    assert_eq!(scan(noise(10_000).as_bytes()).count(), 0);
    assert_eq!(scan(b"").count(), 0);
}

#[test]
fn repetitions_in_a_traceback_are_separate_hits() {
    let error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is free.";
    let log = format!(
        "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    except torch.OutOfMemoryError:\n{error}\n\nDuring handling of the above exception, another exception occurred:\n\n{error}\n"
    );
    let lines: Vec<_> = scan(log.as_bytes()).map(|found| found.line).collect();
    assert_eq!(lines, [4, 8]);
}

#[test]
fn a_line_without_end_is_looked_at_in_pieces() {
    let mut log = vec![b'x'; 300_000];
    log.extend_from_slice(
        b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity)",
    );
    log.extend(std::iter::repeat_n(b"allocate \xff ".as_slice(), 30_000).flatten());
    log.extend_from_slice(b"slurmstepd: error: Exceeded job memory limit");
    let engines: Vec<_> = scan(&log).map(|found| found.oom.engine).collect();
    assert_eq!(engines, [Engine::PyTorch, Engine::Slurm]);
}

#[test]
fn progress_bars_and_windows_lines_are_lines() {
    let log = b"  1%|    | 1/100\r  2%|    | 2/100\rMemoryError\r\nnext\r\n";
    let found: Vec<_> = scan(log).collect();
    assert_eq!(found.len(), 1);
    assert_eq!(&log[found[0].range.clone()], b"MemoryError");
    let crlf = "cudnn: fine\r\nAllocation on device 0 would exceed allowed memory. (out of memory)\r\nRequested : 1.00 GiB\r\n";
    assert_eq!(read(crlf).and_then(|oom| oom.requested).map(|bytes| bytes.get()), Some(1 << 30));
}
