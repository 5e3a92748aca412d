//! The optimizer's state divided among ranks: less memory on each, the same bits, and the same checkpoints.

use std::fs;

use lowtide_core::{Event, Rung};

use super::kit::{BUSY, engines, kill};
use crate::kit::Place;

fn peak(place: &Place, out: &str) -> u64 {
    place.summary(out)["peak_allocated_bytes"].as_u64().unwrap()
}

/// Moments and random states of a checkpoint.
fn training(place: &Place, out: &str, step: u64) -> Vec<u8> {
    fs::read(place.path(&format!("{out}/checkpoints/{step:08}/training.safetensors"))).unwrap()
}

fn rungs(place: &Place, out: &str) -> Vec<Rung> {
    let rung = |event| match event {
        Event::RungTaken { rung, .. } => Some(rung),
        _ => None,
    };
    place.events(out).into_iter().filter_map(rung).collect()
}

/// The runs end with the same weights, and the checkpoints of their last step are the same.
#[track_caller]
fn check_same(place: &Place, one: &str, other: &str) {
    assert_eq!(place.hash(one), place.hash(other), "{one}, {other}");
    let steps = place.summary(one)["steps"].as_u64().unwrap();
    assert!(training(place, one, steps) == training(place, other, steps), "{one}, {other}: moments differ");
}

#[test]
fn parts_of_the_optimizer_state_give_the_same_bits_and_the_same_files_in_less_memory() {
    let place = Place::new();
    for ranks in [2, 3, 4] {
        let [whole, parts] = ["whole", "parts"].map(|name| format!("{name}-{ranks}"));
        place.train(&whole, &format!("{BUSY} --ranks {ranks} --set ranks.shard=off"));
        place.train(&parts, &format!("{BUSY} --ranks {ranks} --set ranks.shard=on"));
        check_same(&place, &parts, &whole);
        assert!(peak(&place, &parts) < peak(&place, &whole));
        let said = format!("each of {ranks} ranks holds a part of the optimizer state");
        assert!(place.text(&format!("{parts}/events.jsonl")).contains(&said));
    }
}

#[test]
fn an_error_in_any_phase_with_the_state_in_parts_leaves_no_trace() {
    let place = Place::new();
    for ranks in [2, 4] {
        let words = format!("{BUSY} --ranks {ranks}");
        let whole = format!("whole-{ranks}");
        place.train(&whole, &format!("{words} --set ranks.shard=off"));
        for rank in [0, ranks - 1] {
            // One error of training a step is answered by cleaning, and changes no number.
            let mut errors = vec![(1, "forward", 9), (2, "backward", 9), (3, "optimizer", 1), (4, "optimizer", 2)];
            errors.extend([(1, "eval", 1), (2, "eval", 9), (1, "save", 1)]);
            if rank == 0 {
                // The others allocate nothing to save; the first does for each moment that it asks for.
                errors.extend([(2, "save", 2), (3, "save", 9)]);
            }
            let inject = |(step, phase, alloc): &(u64, &str, u64)| {
                format!(" --inject-oom step={step},phase={phase},alloc={alloc},rank={rank}")
            };
            let inject: String = errors.iter().map(inject).collect();
            let failed = format!("failed-{ranks}-{rank}");
            place.train(&failed, &format!("{words} --set ranks.shard=on {inject}"));
            check_same(&place, &failed, &whole);
            let (errors, summary) = (errors.len(), place.summary(&failed));
            assert_eq!([&summary["oom_errors"], &summary["oom_recovered"]], [errors, errors], "{failed}");
        }
    }
}

#[test]
fn an_error_while_a_checkpoint_is_loaded_into_parts() {
    let place = Place::new();
    place.train("whole", &format!("{BUSY} --ranks 3 --set ranks.shard=off"));
    for (rank, alloc) in [(0, 1), (0, 7), (2, 1)] {
        let out = format!("out-{rank}-{alloc}");
        place.train(&out, &format!("{BUSY} --ranks 3 --set ranks.shard=on --set train.steps=2"));
        let inject = format!("--inject-oom step=1,phase=load,alloc={alloc},rank={rank}");
        place.resume(&out, &format!("--ranks 3 --set train.steps=4 {inject}"));
        check_same(&place, &out, "whole");
        assert_eq!(place.summary(&out)["oom_recovered"], 1);
    }
}

#[test]
fn an_optimizer_that_runs_out_twice_has_its_state_divided() {
    let place = Place::new();
    for ranks in [2, 4] {
        let [whole, taken] = ["whole", "taken"].map(|name| format!("{name}-{ranks}"));
        place.train(&whole, &format!("{BUSY} --ranks {ranks}"));
        let inject = "--inject-oom step=2,phase=optimizer,times=2,rank=1";
        let ran = place.train(&taken, &format!("{BUSY} --ranks {ranks} {inject}"));
        assert_eq!(rungs(&place, &taken), [Rung::Clean, Rung::Shard]);
        assert!(ran.stderr.contains("sharded optimizer state"), "{}", ran.stderr);
        check_same(&place, &taken, &whole);
        assert_eq!(place.summary(&taken)["oom_recovered"], 2);
    }
}

#[test]
fn a_state_that_may_not_be_divided_ends_the_run_where_nothing_else_is_left() {
    let place = Place::new();
    let inject = "--inject-oom step=2,phase=optimizer,times=2,rank=1";
    let words = format!("train tiny.yaml --device cpu --out out --ranks 2 {BUSY} --set ranks.shard=off {inject}");
    place.ends(3, &words);
    assert_eq!(rungs(&place, "out"), [Rung::Clean]);
}

#[test]
fn errors_while_the_state_is_being_divided() {
    let place = Place::new();
    // One sample at a time, so that only the loss and the optimizer's state are left to be made smaller.
    let words = format!("{BUSY} --ranks 2 --set train.micro_batch=1 --set train.recompute=off");
    let forward = "--inject-oom step=2,phase=forward,times=6,rank=1";
    place.train("taken", &format!("{words} {forward}"));
    assert_eq!(rungs(&place, "taken").last(), Some(&Rung::Shard), "{:?}", rungs(&place, "taken"));
    place.train("whole", &format!("{words} --set ranks.shard=off --schedule-from taken"));
    check_same(&place, "taken", "whole");
    for rank in [0, 1] {
        for alloc in [1, 2] {
            let out = format!("failed-{rank}-{alloc}");
            let inject = format!("{forward} --inject-oom step=2,phase=optimizer,alloc={alloc},rank={rank}");
            place.train(&out, &format!("{words} {inject}"));
            let taken = rungs(&place, &out);
            assert_eq!(taken[taken.len() - 2..], [Rung::Shard, Rung::Clean], "{out}: {taken:?}");
            check_same(&place, &out, "whole");
            assert_eq!(place.summary(&out)["oom_recovered"], place.summary(&out)["oom_errors"]);
        }
    }
}

#[test]
fn an_error_without_end_saves_the_state_of_all_parts() {
    let place = Place::new();
    place.train("whole", &format!("{BUSY} --ranks 2"));
    let inject = "--inject-oom step=3,phase=optimizer,times=1000,rank=1";
    place.ends(3, &format!("train tiny.yaml --device cpu --out out --ranks 2 {BUSY} {inject}"));
    assert_eq!(rungs(&place, "out"), [Rung::Clean, Rung::Shard]);
    place.resume("out", "--ranks 2");
    check_same(&place, "out", "whole");
}

#[test]
fn a_run_resumes_with_its_state_in_parts_or_whole_and_on_other_numbers_of_ranks() {
    let place = Place::new();
    let starts = [(4, "on"), (2, "off"), (3, "on"), (1, "on"), (2, "on"), (2, "off"), (4, "on")];
    for (steps, (ranks, shard)) in (1..).zip(starts) {
        let now = format!("--ranks {ranks} --set train.steps={steps}");
        if steps == 1 {
            place.train("parts", &format!("{BUSY} {now} --set ranks.shard={shard}"));
            place.train("whole", &format!("{BUSY} {now} --set ranks.shard=off"));
        } else {
            place.resume("parts", &format!("{now} --set ranks.shard={shard}"));
            place.resume("whole", &format!("{now} --set ranks.shard=off"));
        }
        check_same(&place, "parts", "whole");
    }
}

#[test]
fn state_that_does_not_fit_as_a_whole_is_divided() {
    let place = Place::new();
    let words =
        "--ranks 4 --set model.n_embd=256 --set train.micro_batch=1 --set eval.every=null --set train.recompute=on";
    place.train("whole", &format!("{words} --set ranks.shard=off"));
    place.train("parts", &format!("{words} --set ranks.shard=on"));
    // Between what both need: parameters, gradients and moments are more than that, and activations are few.
    let limit = (peak(&place, "parts") + peak(&place, "whole")) / 2;
    place.ends(2, &format!("train tiny.yaml --device cpu --out off {words} --set ranks.shard=off --limit {limit}"));
    let ran = place.train("auto", &format!("{words} --limit {limit}"));
    check_same(&place, "auto", "whole");
    assert!(peak(&place, "auto") <= limit);
    assert!(ran.stderr.contains("each of 4 ranks holds a part of the optimizer state"), "{}", ran.stderr);
}

#[test]
fn a_killed_rank_takes_its_part_with_it_and_the_checkpoint_before_counts() {
    let place = Place::new();
    let words = "--ranks 2 --set ranks.shard=on --set eval.every=null";
    for victim in [0, 1] {
        let out = format!("out-{victim}");
        let running =
            place.start(&format!("train tiny.yaml --device cpu --out {out} --json {words} --set train.steps=100000"));
        kill("KILL", engines(running.child.id())[victim]);
        assert_eq!(running.wait(), Some(137));
        assert_eq!(fs::read_dir(place.path(&format!("{out}/checkpoints"))).unwrap().count(), 1);
        place.resume(&out, "--ranks 2 --set train.steps=2");
    }
    place.train("whole", &format!("{words} --set train.steps=2"));
    check_same(&place, "out-0", "whole");
    check_same(&place, "out-1", "whole");
}
