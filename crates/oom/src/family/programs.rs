//! Programs and libraries that tell figures of their own: toolkits for speech and pictures, pools, databases.

use lowtide_core::Bytes;

use crate::message::Message;
use crate::phrase::{figure_after, has_any, size_after, size_after_any, size_before};
use crate::talk::is_only_mentioned;
use crate::{Certainty, DeviceKind, Engine, Oom, Source};

pub(super) fn read(message: &Message<'_>) -> Option<Oom> {
    let line = &*message.line;
    theano(line)
        .or_else(|| kaldi(line))
        .or_else(|| attention_steps(line))
        .or_else(|| pool(message))
        .or_else(|| driver_array(line))
        .or_else(|| index(line))
        .or_else(|| database(line))
        .or_else(|| php(line))
        .or_else(|| search_of_pipelines(line))
        .or_else(|| darknet(line))
}

/// `Dummy prediction failed with run state StatusType.MEMOUT ... 'Memout (used more than 3072 MB).'`: auto-sklearn's own limit.
fn search_of_pipelines(line: &str) -> Option<Oom> {
    let is_ended = line.contains("StatusType.MEMOUT") && line.contains("failed");
    is_ended.then(|| Oom {
        certainty: Certainty::Likely,
        limit: size_after(line, "used more than "),
        ..Oom::host(Engine::Python, Source::Scheduler)
    })
}

/// ` Try to set subdivisions=64 in your cfg-file.`: what darknet says of a card that is full, before the runtime's own word.
fn darknet(line: &str) -> Option<Oom> {
    let is_own = line.trim_start().starts_with("Try to set subdivisions=");
    is_own.then(|| Oom {
        certainty: Certainty::Likely,
        device_kind: Some(DeviceKind::Cuda),
        ..Oom::device(Engine::Cuda, Source::Runtime)
    })
}

/// `Error allocating 71323200 bytes of device memory (out of memory). Driver report 10526720 bytes free and 4294770688 bytes total`
fn theano(line: &str) -> Option<Oom> {
    let (refused, report) = line.split_once(" bytes of device memory (out of memory). Driver report ")?;
    Some(Oom {
        certainty: Certainty::Likely,
        device_kind: Some(DeviceKind::Cuda),
        requested: refused.rsplit(' ').next()?.parse().ok().map(Bytes),
        free: size_before(report, " free"),
        capacity: size_before(report, " total"),
        ..Oom::device(Engine::Unknown, Source::Runtime)
    })
}

/// `Failed to allocate a memory region of 8088715264 bytes. ... Memory info: free:15426M, used:17053M, total:32480M`
fn kaldi(line: &str) -> Option<Oom> {
    let (refused, report) = line.split_once("Memory info: free:")?;
    let requested = size_after_any(refused, &["memory region of ", "requested memory, size was "]);
    requested.is_some().then(|| Oom {
        certainty: Certainty::Likely,
        device_kind: Some(DeviceKind::Cuda),
        requested,
        free: size_after(report, ""),
        capacity: size_after(report, "total:"),
        ..Oom::device(Engine::Unknown, Source::Runtime)
    })
}

/// `Not enough memory, use lower resolution (max approx. 448x448). Need: 1.9GB free, Have:1.2GB free`: attention of programs for
/// pictures, which reckon by what the card has free before they ask it.
fn attention_steps(line: &str) -> Option<Oom> {
    let phrase = "Not enough memory, use lower resolution";
    let at = line.find(phrase)?;
    let size = |words: &[&str]| size_after_any(&line[at..], words).filter(|size| !size.is_zero());
    (!is_only_mentioned(line, at, at + phrase.len())).then(|| Oom {
        certainty: Certainty::Likely,
        requested: size(&["Need: ", "Need:"]),
        free: size(&["Have: ", "Have:"]),
        ..Oom::device(Engine::PyTorch, Source::Allocator)
    })
}

/// Libraries that ask a driver for every array and raise Python's own error for it, PyCUDA and tinygrad: `MemoryError: cuMemAlloc failed:
/// out of memory`, `MemoryError: Cannot allocate 4096 bytes: no memory is available.`, `MemoryError: Metal OOM while allocating size=4096`.
fn driver_array(line: &str) -> Option<Oom> {
    let (_, rest) = line.split_once("MemoryError: ")?;
    let words = [
        "cuMemAlloc failed",
        "cuMemAllocPitch failed",
        "cudaMalloc failed",
        "out of GPU memory",
        "of device memory",
        "Metal OOM while",
        "bytes: no memory is available",
    ];
    has_any(rest, &words).then(|| Oom {
        certainty: Certainty::Likely,
        requested: size_after_any(rest, &["Cannot allocate ", "size="]),
        ..Oom::device(Engine::Unknown, Source::Allocator)
    })
}

/// RELION's pool: `CudaCustomAllocator out of memory`, with what was asked for and what is left of it in lines of their own; or
/// `out of memory in src/acc/cuda/custom_allocator.cuh at line 436 (error-code 2)`.
fn pool(message: &Message<'_>) -> Option<Oom> {
    if has_any(&message.line, &["custom_allocator.cuh at line", "custom_allocator.hpp at line"])
        && message.line.contains("out of memory in ")
    {
        return Some(Oom { certainty: Certainty::Likely, ..Oom::device(Engine::Unknown, Source::Allocator) });
    }
    if !message.line.contains("CustomAllocator out of memory") {
        return None;
    }
    let body = message.body();
    let asked = figure_after(body, "[requestedSpace: ");
    let largest = size_after(body, "[largestContinuousFreeSpace: ");
    let idle = size_after(body, "[totalFreeSpace: ");
    Some(Oom {
        // A size that no memory has is kept as one that nobody meant.
        requested: asked.map(|figure| figure.memory().unwrap_or(Bytes(u64::MAX))),
        // What could be had in one piece is free; the rest is in pieces.
        free: largest,
        reserved_unallocated: idle.zip(largest).map(|(idle, largest)| idle.saturating_sub(largest)),
        ..Oom::device(Engine::Unknown, Source::Allocator)
    })
}

/// faiss: `alloc fail type FlatData dev 2 space Device stream 0 size 2764800000 bytes (cudaMalloc error out of memory [2])`
fn index(line: &str) -> Option<Oom> {
    let is_refused = line.contains("faiss::gpu") && line.contains("out of memory");
    is_refused.then(|| Oom {
        certainty: Certainty::Likely,
        device_kind: Some(DeviceKind::Cuda),
        requested: size_after_any(line, &[" size ", "cudaMalloc "]),
        ..Oom::device(Engine::Unknown, Source::Runtime)
    })
}

/// Databases, which have limits of their own: `Memory limit (total) exceeded: would use 64.00 GiB (attempt to allocate chunk of 4217828
/// bytes), maximum: 64.00 GiB`, `Out of Memory Error: failed to allocate data of size 256.0 MiB (260.3 MiB/476.8 MiB used)`.
fn database(line: &str) -> Option<Oom> {
    if let Some((_, rest)) =
        line.split_once("xceeded per-node").and_then(|(_, rest)| rest.split_once("memory limit of "))
    {
        return Some(Oom {
            requested: size_after(rest, "Delta: "),
            in_use: size_after(rest, "Allocated: "),
            limit: size_after(rest, ""),
            ..Oom::host(Engine::Unknown, Source::Heap)
        });
    }
    // `Memory limit (total) exceeded: `, and since 2024 `(total) memory limit exceeded: `
    let clickhouse = line.contains("emory limit ") && line.contains("exceeded: would use ");
    if !clickhouse && !line.contains("Out of Memory Error: ") {
        return None;
    }
    let (in_use, limit) = match line.split_once(" used)").and_then(|(head, _)| head.rsplit('(').next()?.split_once('/'))
    {
        Some((used, limit)) => (size_after(used, ""), size_after(limit, "")),
        None => (size_after(line, "would use "), size_after(line, "maximum: ")),
    };
    Some(Oom {
        certainty: if limit.is_some() { Certainty::Sure } else { Certainty::Likely },
        requested: size_after_any(line, &["chunk of ", "of size ", "block of "]),
        in_use,
        limit,
        ..Oom::host(Engine::Unknown, Source::Heap)
    })
}

/// `Allowed memory size of 134217728 bytes exhausted (tried to allocate 81513688 bytes)`
fn php(line: &str) -> Option<Oom> {
    let (_, rest) = line.split_once("Allowed memory size of ")?;
    let (limit, rest) = rest.split_once(" exhausted")?;
    Some(Oom {
        limit: size_after(limit, ""),
        requested: size_after(rest, "tried to allocate "),
        ..Oom::host(Engine::Unknown, Source::Heap)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;

    fn read_text(text: &str) -> Oom {
        crate::read(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn words_of_their_own() {
        for (text, place) in [
            (" Try to set subdivisions=64 in your cfg-file. ", Place::Device),
            ("CUDA Error: out of memory: Cannot allocate memory", Place::Device),
            (
                "Uncaught exception: Could not allocate memory: cudaMalloc(&p, n) failed with error out of memory",
                Place::Device,
            ),
            ("ResourceExhaustedError: Fail to alloc memory of 4096 size, error code is 12.", Place::Host),
            ("System memory 466092032 must be at least 471859200. Please increase heap size using", Place::Host),
            ("I get the error java.lang.OutofMemoryError: Java heap space.", Place::Host),
            ("MemoryError:", Place::Host),
        ] {
            assert_eq!(read_text(text).place, place, "{text}");
        }
        assert_eq!(crate::read("Show the size when an array gives a MemoryError"), None);
    }

    #[test]
    fn figures_of_their_own() {
        let oom = read_text(
            "Error allocating 4096 bytes of device memory (out of memory). Driver report 2048 bytes free and 8192 bytes total",
        );
        assert_eq!((oom.requested, oom.free, oom.capacity), (Some(Bytes(4096)), Some(Bytes(2048)), Some(Bytes(8192))));
        let oom = read_text(
            "Failed to allocate a memory region of 4096 bytes. x Memory info: free:15M, used:17M, total:32M, free/total:0.4 CUDA error: 'out of memory'",
        );
        assert_eq!(
            (oom.requested, oom.free, oom.capacity),
            (Some(Bytes(4096)), Some(Bytes(15 << 20)), Some(Bytes(32 << 20)))
        );
        let oom = read_text(
            "ERROR: CudaCustomAllocator out of memory\n [requestedSpace:             90 B]\n [largestContinuousFreeSpace: 40 B]\n [totalFreeSpace:             100 B]\n",
        );
        assert_eq!(
            (oom.requested, oom.free, oom.reserved_unallocated),
            (Some(Bytes(90)), Some(Bytes(40)), Some(Bytes(60)))
        );
        let oom = read_text("Out of Memory Error: failed to allocate data of size 4.0 MiB (93.5 MiB/95.5 MiB used)");
        assert_eq!((oom.requested, oom.limit), (Some(Bytes(4 << 20)), Some(Bytes(191 << 19))));
        let oom = read_text(
            "DB::Exception: Memory limit (for query) exceeded: would use 2.00 GiB (attempt to allocate chunk of 4096 bytes), maximum: 1.00 GiB",
        );
        assert_eq!((oom.requested, oom.limit), (Some(Bytes(4096)), Some(Bytes(1 << 30))));
        let oom = read_text(
            "PHP Fatal error:  Allowed memory size of 4096 bytes exhausted (tried to allocate 2048 bytes) in a.php on line 4",
        );
        assert_eq!((oom.requested, oom.limit), (Some(Bytes(2048)), Some(Bytes(4096))));
        let oom = read_text(
            "ValueError: Dummy prediction failed with run state StatusType.MEMOUT and additional output: {'error': 'Memout (used more than 3072 MB).'}",
        );
        assert_eq!(oom.limit, Some(Bytes(3072 << 20)));
        let oom = read_text("Query exceeded per-node total memory limit of 2GB [Allocated: 1GB, Delta: 4MB]");
        assert_eq!((oom.requested, oom.limit), (Some(Bytes(4 << 20)), Some(Bytes(2 << 30))));
    }
}
