//! Which samples a step sees: the same at any number of ranks.

use serde_json::Value;

use super::kit::{PLAIN, difference, progress, weights};
use crate::kit::Place;

/// Rounding: sums of the same numbers in another order. After 4 steps of a learning rate of 0.002, Adam has moved each weight by
/// up to 0.008.
pub(super) const ROUNDING: f32 = 2e-5;

#[test]
fn two_ranks_and_four_end_with_the_weights_of_one() {
    let place = Place::new();
    let words = format!("{PLAIN} --set train.batch=32 --set eval.every=2 --set eval.batches=3");
    place.train("one", &words);
    for ranks in [2, 4] {
        let out = format!("of-{ranks}");
        place.train(&out, &format!("{words} --ranks {ranks}"));
        let apart = difference(&weights(&place, "one"), &weights(&place, &out));
        println!("{ranks} ranks: weights differ by up to {apart:e}");
        assert!(apart < ROUNDING, "{ranks} ranks: {apart}");
        let (one, many) = (place.summary("one"), place.summary(&out));
        for figure in ["eval_loss", "final_loss"] {
            let [one, many] = [&one, &many].map(|summary| summary[figure].as_f64().unwrap());
            assert!((one - many).abs() < 1e-5, "{figure}: {one}, {many}");
        }
        assert_eq!(many["samples_seen"], 128);
    }
}

#[test]
fn parts_that_differ_by_one_are_weighted_rightly() {
    let place = Place::new();
    let words = format!("{PLAIN} --set train.batch=7 --set train.micro_batch=2");
    place.train("one", &words);
    place.train("three", &format!("{words} --ranks 3"));
    let apart = difference(&weights(&place, "one"), &weights(&place, "three"));
    assert!(apart < ROUNDING, "{apart}");
}

#[test]
fn four_ranks_go_on_as_two_and_as_one() {
    let place = Place::new();
    let whole = format!("{PLAIN} --set save.every=1 --set save.keep=10 --set train.steps=6");
    place.train("four", &format!("{whole} --ranks 4"));
    place.train("cut", &format!("{whole} --ranks 4 --set train.steps=2"));
    place.resume("cut", "--ranks 2 --set train.steps=4");
    place.resume("cut", "--set train.steps=6");
    let apart = difference(&weights(&place, "four"), &weights(&place, "cut"));
    println!("4 ranks, then 2, then 1: weights differ by up to {apart:e}");
    assert!(apart < ROUNDING, "{apart}");
    for step in 1..=6 {
        for key in ["next_sample", "step"] {
            assert_eq!(progress(&place, "cut", step)[key], progress(&place, "four", step)[key]);
        }
    }
    assert_eq!(place.summary("cut")["samples_seen"], 48);
}

#[test]
fn a_run_on_as_many_ranks_is_the_same_bit_for_bit_however_it_is_cut() {
    let place = Place::new();
    place.train("whole", "--ranks 2 --set save.every=1");
    place.train("cut", "--ranks 2 --set save.every=1 --set train.steps=1");
    place.resume("cut", "--ranks 2 --set train.steps=4");
    assert_eq!(place.hash("cut"), place.hash("whole"));
}

#[test]
fn files_are_read_in_parts_and_every_sample_once() {
    let place = Place::new();
    place.ends(0, "generate scoring --out data --samples 400 --per-file 20");
    let run = "train scoring --device cpu --preprocessed-dir data --no-run-gnn-det --no-run-gvae --batch-size 16 \
               --set train.epochs=2 --set model.lstm_hidden=4 --set data.shuffle=window --set data.window=2";
    place.ends(0, &format!("{run} --out one"));
    for ranks in [2, 3] {
        let out = format!("of-{ranks}");
        place.ends(0, &format!("{run} --out {out} --ranks {ranks}"));
        let (one, many) = (place.summary("one"), place.summary(&out));
        assert_eq!(many["samples_seen"], one["samples_seen"]);
        let apart = difference(&weights(&place, "one"), &weights(&place, &out));
        println!("{ranks} ranks on files: weights differ by up to {apart:e}");
        assert!(apart < ROUNDING, "{ranks} ranks: {apart}");
        for figure in ["mae", "spearman"] {
            let [one, many] = [&one, &many].map(|summary| summary["metrics"][figure].as_f64().unwrap());
            assert!((one - many).abs() < 1e-4, "{figure}: {one}, {many}");
        }
        // The first rank asks for its part and for nothing else.
        let given_out = |summary: &Value| {
            ["hits", "loads"].map(|key| summary["cache"][key].as_u64().unwrap()).into_iter().sum::<u64>()
        };
        assert_eq!(given_out(&one), one["samples_seen"].as_u64().unwrap());
        assert_eq!(given_out(&many), given_out(&one) / 16 * 16_u64.div_ceil(ranks), "{many:#}");
    }
}
