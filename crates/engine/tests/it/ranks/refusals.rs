//! What ranks are told that cannot train together: a clear message on every one, in time, and nothing is written.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use insta::assert_snapshot;

use super::kit::{ended, free_port, rank};
use crate::kit::Place;

const TRAIN: &str = "train tiny.yaml --device cpu --out out";

/// The error of a rank, with its hint.
fn errors(text: &str) -> String {
    let is_told = |line: &&str| line.contains("error: ") || line.contains("hint: ");
    let mut lines: Vec<&str> = text.lines().filter(is_told).collect();
    // Two that share standard error speak in any order.
    lines.sort_by_key(|line| line.starts_with("[rank"));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn ranks_with_other_settings() {
    let place = Place::new();
    let port = free_port();
    let first = rank(&place, (0, 2), port, TRAIN);
    let second = rank(&place, (1, 2), port, &format!("{TRAIN} --set train.steps=5 --set model.n_layer=3"));
    let (first, second) = (ended(first), ended(second));
    assert_eq!((first.code, second.code), (Some(2), Some(2)));
    assert_snapshot!(errors(&first.stderr) + &errors(&second.stderr), @r"
    error: rank 1: the settings are not those of rank 0: model.n_layer is 3 here and 2 there, train.steps is 5 here and 4 there
    [rank1]: error: the settings are not those of rank 0: model.n_layer is 3 here and 2 there, train.steps is 5 here and 4 there
    ");
    assert!(!place.path("out").exists());
}

#[test]
fn a_mistake_of_one_rank_is_told_on_all() {
    let place = Place::new();
    let port = free_port();
    let first = rank(&place, (0, 2), port, TRAIN);
    let second = rank(&place, (1, 2), port, "train nowhere.yaml --device cpu --out out");
    let (first, second) = (ended(first), ended(second));
    assert_eq!((first.code, second.code), (Some(2), Some(2)));
    assert_snapshot!(errors(&first.stderr) + &errors(&second.stderr), @r"
    error: rank 1: nowhere.yaml: there is no such file
    [rank1]: error: nowhere.yaml: there is no such file
    ");
    assert!(!place.path("out").exists());
}

#[test]
fn cards_that_are_not_there() {
    let place = Place::new();
    let port = free_port();
    let words = format!("{TRAIN} --set ranks.backend=nccl");
    let [first, second] = [0, 1].map(|number| rank(&place, (number, 2), port, &words)).map(ended);
    assert_eq!((first.code, second.code), (Some(2), Some(2)));
    assert_snapshot!(errors(&first.stderr) + &errors(&second.stderr), @r"
    error: ranks.backend is nccl, and tensors cannot go by it: rank 0: it computes on the CPU
    hint: --set ranks.backend=auto sends them through the host instead
    [rank1]: error: ranks.backend is nccl, and tensors cannot go by it: rank 0: it computes on the CPU
    [rank1]: hint: --set ranks.backend=auto sends them through the host instead
    ");
    assert!(!place.path("out").exists());
}

#[test]
fn an_address_that_is_missing() {
    let place = Place::new();
    let mut said = String::new();
    for variables in [&[][..], &[("MASTER_ADDR", "localhost")], &[("MASTER_ADDR", "localhost"), ("MASTER_PORT", "x")]] {
        let mut command = place.command(TRAIN);
        command.env("RANK", "0").env("WORLD_SIZE", "2").env_remove("MASTER_ADDR").env_remove("MASTER_PORT");
        let ran = lowtide_testkit::Printout::of(command.envs(variables.iter().copied()).output().unwrap());
        assert_eq!(ran.code, Some(2));
        said += &errors(&ran.stderr);
    }
    assert_snapshot!(said, @r"
    error: MASTER_ADDR is missing: RANK and WORLD_SIZE are set and this is not, so ranks cannot find each other; torchrun sets all of them
    error: MASTER_PORT is missing: RANK and WORLD_SIZE are set and this is not, so ranks cannot find each other; torchrun sets all of them
    error: MASTER_PORT is `x`, and must be a port from 1 to 65535
    ");
    assert!(!place.path("out").exists());
}

#[test]
fn a_port_that_is_taken() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let words = format!("{TRAIN} --set ranks.timeout=4");
    let first = rank(&place, (0, 2), port, &words);
    let second = rank(&place, (1, 2), port, &words);
    let (first, second) = (ended(first), ended(second));
    assert_eq!((first.code, second.code), (Some(2), Some(2)), "{}{}", first.stderr, second.stderr);
    let said = errors(&first.stderr).replace(&port.to_string(), "PORT");
    assert_snapshot!(said, @r"
    error: port PORT is taken by another program, and the ranks were to meet there
    hint: name a free port with MASTER_PORT (torchrun: --master-port)
    ");
    assert!(errors(&second.stderr).contains("error: "), "{}", second.stderr);
    assert!(!place.path("out").exists());
}

#[test]
fn a_rank_that_never_comes() {
    let place = Place::new();
    let (port, begun) = (free_port(), Instant::now());
    let words = format!("{TRAIN} --set ranks.timeout=3");
    let first = rank(&place, (0, 3), port, &words);
    let third = rank(&place, (2, 3), port, &words);
    let (first, third) = (ended(first), ended(third));
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert_eq!((first.code, third.code), (Some(2), Some(2)), "{}{}", first.stderr, third.stderr);
    assert_snapshot!(errors(&first.stderr) + &errors(&third.stderr), @r"
    error: rank 1 of 3 did not come within 3 s
    hint: see what that rank printed; --set ranks.timeout=SECONDS waits longer
    [rank2]: error: rank 1 of 3 did not come within 3 s
    [rank2]: hint: see what that rank printed; --set ranks.timeout=SECONDS waits longer
    ");
    assert!(!place.path("out").exists());
}

#[test]
fn a_first_rank_that_never_comes() {
    let place = Place::new();
    let port = free_port();
    let second = ended(rank(&place, (1, 2), port, &format!("{TRAIN} --set ranks.timeout=2")));
    assert_eq!(second.code, Some(2), "{}", second.stderr);
    let said = errors(&second.stderr).replace(&port.to_string(), "PORT");
    assert!(said.contains("[rank1]: error: nobody answered at 127.0.0.1:PORT within 2 s"), "{said}");
    assert!(!place.path("out").exists());
}

#[test]
fn more_ranks_than_samples_and_several_runs_at_once() {
    let place = Place::new();
    let few = place.ends(2, &format!("{TRAIN} --ranks 2 --set train.batch=1"));
    let several = place.ends(2, "train scoring --device cpu --out out --ranks 2");
    assert_snapshot!(errors(&few.stderr) + &errors(&several.stderr), @r"
    error: train.batch: a step has 1 samples, and 2 ranks are to have one at least
    [rank1]: error: train.batch: a step has 1 samples, and 2 ranks are to have one at least
    error: scoring:5: workload: several ranks train one run at a time, and these are several: lstm, gnn_det, gvae
    [rank1]: error: scoring:5: workload: several ranks train one run at a time, and these are several: lstm, gnn_det, gvae
    ");
    assert!(!place.path("out").exists());
}

#[test]
fn a_folder_that_holds_a_run_already() {
    let place = Place::new();
    place.train("out", "");
    let before = place.hash("out");
    let ran = place.ends(2, &format!("{TRAIN} --ranks 2"));
    assert_snapshot!(errors(&ran.stderr), @r"
    error: out: a run is already there
    hint: use --resume --out out to resume it, or another --out
    [rank1]: error: rank 0: out: a run is already there
    ");
    assert_eq!(place.hash("out"), before);
}
