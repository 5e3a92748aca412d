//! Cards, by a driver's library that is made up, and by none.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kit::Tree;
use lowtide_sensors::{Cause, GpuMemory, Options, Reading, Sampler};

const GIB: u64 = 1 << 30;

/// Compiles `fake_nvml.c`, by the compiler that the build of Lowtide needs too.
fn library(folder: &Path) -> PathBuf {
    let path = folder.join("libnvidia-ml.so.1");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fake_nvml.c");
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&path).arg(source).status();
    assert!(status.expect("a C compiler named cc").success());
    path
}

fn sampler(tree: &Tree) -> Sampler {
    let nvml = Some(library(tree.path()));
    Sampler::new(Options { root: tree.path().to_owned(), process: Some(10), nvml, ..Options::default() })
}

#[test]
fn no_driver_is_normal() {
    let tree = Tree::new();
    let mut sampler = tree.sampler(None);
    let gpus = sampler.fast(0.0).gpus;
    let missing = gpus.missing.expect("a reason");
    assert_eq!((gpus.cards.len(), missing.cause), (0, Cause::Absent));
    assert_eq!(missing.detail, "/no/such/libnvidia-ml.so cannot be loaded: no NVIDIA driver");
    assert!(sampler.slow(0.0).cards.is_empty());
}

#[test]
fn a_library_that_is_none_is_a_reason_not_a_crash() {
    let tree = Tree::new();
    tree.write("libnvidia-ml.so.1", "not a library");
    let nvml = Some(tree.path().join("libnvidia-ml.so.1"));
    let gpus = Sampler::new(Options { root: tree.path().to_owned(), nvml, ..Options::default() }).fast(0.0).gpus;
    assert_eq!(gpus.missing.map(|missing| missing.cause), Some(Cause::Absent));
}

#[test]
fn memory_utilisation_and_temperature() {
    let tree = Tree::new();
    let gpus = sampler(&tree).fast(0.0).gpus;
    assert_eq!(gpus.missing, None);
    let [card, _] = gpus.cards.as_slice() else { panic!("{gpus:?}") };
    assert_eq!((card.index, card.name.as_str(), card.uuid.as_str()), (0, "Made \"Up\" 9000", "GPU-0"));
    let memory = GpuMemory { total_bytes: 48 * GIB, used_bytes: 41 * GIB, free_bytes: 6 * GIB, driver_bytes: GIB };
    assert_eq!(card.memory, Reading::Known(memory));
    assert_eq!((&card.utilisation_percent, &card.temperature_celsius), (&Reading::Known(87), &Reading::Known(64)));
}

#[test]
fn a_lost_card_does_not_hide_the_other() {
    let tree = Tree::new();
    let mut sampler = sampler(&tree);
    let lost = &sampler.fast(0.0).gpus.cards[1];
    assert_eq!(lost.memory.missing().map(|missing| missing.cause), Some(Cause::Failed));
    assert_eq!(lost.temperature_celsius.missing().map(|missing| missing.cause), Some(Cause::Failed));
    assert_eq!(sampler.slow(0.0).cards[1].processes.missing().map(|missing| missing.cause), Some(Cause::Failed));
}

#[test]
fn a_number_from_outside_of_a_container_is_not_taken_for_a_process_inside() {
    let tree = Tree::new();
    tree.process(10, 1, "train", 1024).process(77, 1, "bash", 1024);
    fs::create_dir_all(tree.path().join("proc/self/ns")).expect("a folder");
    symlink("pid:[4026532801]", tree.path().join("proc/self/ns/pid")).expect("a link");
    tree.write("proc/10/maps", "7f00-7f10 rw-s 00000000 00:06 469 /dev/nvidia0\n").write("proc/77/maps", "/bin/bash\n");
    let detail = sampler(&tree).slow(0.0);
    let processes = detail.cards[0].processes.known().expect("a list");
    assert_eq!((processes[0].pid, processes[0].name.known().map(String::as_str)), (10, Some("train")));
    assert!(processes[0].watched);
    let missing = processes[1].name.missing().expect("another process");
    assert_eq!(missing.detail, "process 77 is not one of this container");
}

#[test]
fn every_process_on_a_card_once_with_its_name() {
    let tree = Tree::new();
    tree.process(10, 1, "train", 1024).process(78, 1, "desktop", 1024);
    let mut sampler = sampler(&tree);
    sampler.watch_besides(&[78]);
    let detail = sampler.slow(0.0);
    let processes = detail.cards[0].processes.known().expect("a list");
    let seen: Vec<_> = processes
        .iter()
        .map(|it| (it.pid, it.name.known().map(String::as_str), it.memory_bytes.known().copied(), it.watched, it.of))
        .collect();
    let expected = [
        (10, Some("train"), Some(40 * GIB), true, Some(10)),
        (77, None, Some(2 * GIB), false, None),
        (78, Some("desktop"), None, false, Some(78)),
    ];
    assert_eq!(seen, expected);
}
