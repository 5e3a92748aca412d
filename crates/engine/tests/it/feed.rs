//! Training on files: under a host line, from caches of any size, and on files that are damaged, deleted or changed.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use insta::assert_snapshot;
use lowtide_core::Event;
use serde_json::{Value, json};

use crate::kit::Place;

/// A small run on the files in `data`, with the same learning rate in each step.
const RUN: &str = "train scoring --device cpu --preprocessed-dir data --no-run-gnn-det --no-run-gvae --batch-size 8 \
                   --set train.epochs=null --set train.steps=60 --set eval.every=20 --set eval.batches=3 \
                   --set model.lstm_hidden=4 --set optimizer.min_learning_rate=0.002 --set optimizer.warmup_steps=0";

/// 400 samples in 20 files.
fn place() -> Place {
    let place = Place::new();
    place.ends(0, "generate scoring --out data --samples 400 --per-file 20");
    place
}

fn files(place: &Place) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(place.path("data")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "pt"));
    files.sort();
    files
}

/// Flips a byte of the last tensor of a file.
fn flip(path: &PathBuf) {
    let mut bytes = fs::read(path).unwrap();
    let place = bytes.len() * 3 / 4;
    bytes[place] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

/// Runs to a good end; the most resident memory that was seen from outside.
fn watched(place: &Place, words: &str) -> u64 {
    let mut child = place.command(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let code = loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let fields = text.lines().filter_map(|line| line.strip_prefix("VmHWM:").or(line.strip_prefix("VmRSS:")));
        let kib = fields.filter_map(|field| field.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        peak = kib.chain([peak]).max().unwrap();
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(code, Some(0), "lowtide {words}");
    peak * 1024
}

#[test]
fn half_a_gigabyte_is_trained_on_within_a_hundred_megabytes() {
    const LINE_ABOVE_BASE: u64 = 100_000_000;
    const DATA: u64 = 500_000_000;
    let place = place();
    let small = "--batch-size 256 --set model.lstm_hidden=4 --set model.graph_hidden=4 \
                 --set model.head_hidden=4 --set eval.batches=20";
    let base =
        watched(&place, &format!("train scoring --device cpu --out base --preprocessed-dir data --epochs 1 {small}"));
    place.ends(0, "generate scoring --out large --size 500MB --file-size 2MB");
    let large = format!("train scoring --device cpu --preprocessed-dir large {small}");
    let line = base + LINE_ABOVE_BASE;
    let two = "--run-lstm --run-gvae --no-run-gnn-det";
    let peak = watched(&place, &format!("{large} {two} --epochs 1 --out fed --host-limit {line}"));
    println!("base {base}, line {line}, peak {peak}");
    assert!(peak <= line, "{peak} bytes were resident, and the line is {line}");

    let summary = place.summary("fed");
    assert_eq!(summary["host_line_bytes"], json!(line));
    let told = summary["peak_rss_bytes"].as_u64().unwrap();
    assert!(told <= line && told >= base / 2, "{told} of {line}");
    let read = &summary["cache"]["bytes_read"];
    assert_eq!(read, &summary["cache"]["optimum_bytes_read"], "no policy reads less");
    // Four fifths of it are trained on, once by each of two models, one after the other.
    assert!(read.as_u64().unwrap() > DATA * 3 / 2, "{read}");
    for model in ["lstm", "gvae"] {
        assert_eq!(summary["models"][model]["stopped"], json!("finished"), "{model}");
    }

    // The old way takes all of it.
    let one = "--no-run-gnn-det --no-run-gvae --set train.steps=2 --set eval.every=2";
    let whole = watched(&place, &format!("{large} {one} --out whole --set data.load=whole"));
    println!("whole {whole}");
    assert!(whole > base / 2 + DATA * 8 / 10, "{whole} bytes for {DATA} of data");
}

#[test]
fn no_cache_and_no_number_of_threads_changes_a_bit() {
    let place = place();
    let run = |out: &str, words: &str| {
        place.ends(0, &format!("{RUN} --out {out} {words}"));
        (place.hash(out), place.summary(out)["metrics"].clone())
    };
    let plain = run("plain", "");
    let ways = [
        ("one", "--max-cache-batches 1 --set data.threads=1"),
        ("two", "--max-cache-batches 2 --set data.threads=4"),
        ("six", "--max-cache-batches 6"),
        ("lru", "--max-cache-batches 3 --set data.policy=lru"),
        ("line", "--host-limit 1GiB"),
        ("whole", "--set data.load=whole"),
        ("tried", "--inject-oom step=7,phase=backward --inject-oom step=20,phase=eval"),
    ];
    for (out, words) in ways {
        assert_eq!(run(out, words), plain, "{words}");
    }
    let full = run("full", "--set data.shuffle=full");
    assert_ne!(full, plain);
    assert_eq!(run("full-two", "--set data.shuffle=full --max-cache-batches 2"), full);
    let loads = |out: &str| place.summary(out)["cache"]["loads"].as_u64().unwrap();
    assert!(loads("one") > loads("six"), "{} and {}", loads("one"), loads("six"));
}

#[test]
fn a_run_goes_on_in_the_middle_of_an_epoch() {
    let place = place();
    place.ends(0, &format!("{RUN} --out through"));
    // 320 samples are 40 steps.
    place.ends(0, &format!("{RUN} --out cut --set train.steps=27"));
    place.resume("cut", "--set train.steps=60 --max-cache-batches 1 --set data.threads=1");
    assert_eq!(place.hash("cut"), place.hash("through"));
}

#[test]
fn a_run_does_not_go_on_with_other_files() {
    let place = place();
    place.ends(0, &format!("{RUN} --out cut --set train.steps=27"));
    let (first, second) = (&files(&place)[0], &files(&place)[1]);
    let aside = place.path("aside.pt");
    fs::rename(first, &aside).unwrap();
    let ran = place.ends(2, "train --resume --device cpu --out cut --set train.steps=60");
    assert!(ran.stderr.contains("not those that the run began with"), "{}", ran.stderr);
    fs::copy(second, first).unwrap();
    place.ends(2, "train --resume --device cpu --out cut --set train.steps=60");
    fs::rename(&aside, first).unwrap();
    place.resume("cut", "--set train.steps=60");
}

#[test]
fn nothing_to_evaluate_on_that_can_be_read_is_an_error_and_no_search_without_end() {
    let place = Place::new();
    place.ends(0, "generate scoring --out data --samples 40 --per-file 1");
    for path in files(&place) {
        let mut bytes = fs::read(&path).unwrap();
        let length = bytes.len();
        bytes[length * 3 / 10..length * 7 / 10].iter_mut().for_each(|byte| *byte ^= 0xFF);
        fs::write(path, bytes).unwrap();
    }
    let ran = place.ends(2, &format!("{RUN} --out none --set data.on_damage=skip"));
    assert!(ran.stderr.contains("can be read"), "{}", ran.stderr);
}

#[test]
fn what_was_typed_comes_before_the_file() {
    let place = place();
    let run = "train scoring --device cpu --preprocessed-dir data --no-run-gnn-det --no-run-gvae --batch-size 8";
    place.ends(0, &format!("{run} --out steps --set train.steps=3"));
    assert_eq!(place.summary("steps")["steps"], json!(3));
    let ran = place.ends(2, &format!("{run} --out both --set train.steps=3 --epochs 1"));
    assert!(ran.stderr.contains("say train.steps or train.epochs, not both"), "{}", ran.stderr);
}

#[test]
fn the_window_is_chosen_once() {
    let place = place();
    place.ends(0, &format!("{RUN} --out cut --set train.steps=27 --set data.window=auto --max-cache-batches 6"));
    assert!(place.text("cut/config.yaml").contains("window: 3"), "{}", place.text("cut/config.yaml"));
    place.ends(0, &format!("{RUN} --out through --set data.window=3"));
    place.resume("cut", "--set train.steps=60 --max-cache-batches 2");
    assert_eq!(place.hash("cut"), place.hash("through"));
}

#[test]
fn a_damaged_file_stops_the_run_or_is_left_out_and_counted() {
    let place = place();
    place.ends(0, &format!("{RUN} --out through"));
    let undamaged = fs::read(&files(&place)[7]).unwrap();
    flip(&files(&place)[7]);
    let ran = place.ends(2, &format!("{RUN} --out stop"));
    let error = ran.stderr.lines().find(|line| line.starts_with("error")).unwrap();
    assert!(error.contains("batch_00007.pt") && error.contains("checksum"), "{error}");
    let damaged = fs::read(&files(&place)[7]).unwrap();
    fs::write(&files(&place)[7], undamaged).unwrap();
    place.resume("stop", "");
    assert_eq!(place.hash("stop"), place.hash("through"), "nothing was lost");
    fs::write(&files(&place)[7], damaged).unwrap();

    let ran = place.ends(0, &format!("{RUN} --out skip --set data.on_damage=skip"));
    let summary = place.summary("skip");
    let (lost, skipped) = (&summary["samples_lost"], &summary["cache"]["skipped_samples"]);
    assert!(lost.as_u64().unwrap() > 0 && skipped.as_u64() >= lost.as_u64(), "{lost} and {skipped}");
    assert!(ran.stderr.contains("samples left out"), "{}", ran.stderr);

    // What can be seen at the start is left out from the start.
    let short = &files(&place)[7];
    fs::write(short, &fs::read(short).unwrap()[..2000]).unwrap();
    let ran = place.ends(2, &format!("{RUN} --out short"));
    assert!(ran.stderr.contains("batch_00007.pt"), "{}", ran.stderr);
    let ran = place.ends(0, &format!("{RUN} --out short-skip --set data.on_damage=skip"));
    let summary = place.summary("short-skip");
    assert_eq!((&summary["samples_lost"], &summary["cache"]["skipped_files"]), (&json!(0), &json!(1)));
    assert!(ran.stderr.contains("note: 1 file cannot be read and is left out"), "{}", ran.stderr);
}

#[test]
fn a_file_that_goes_or_changes_under_a_run_ends_it_and_costs_nothing() {
    let place = place();
    place.ends(0, &format!("{RUN} --out through --max-cache-batches 1"));
    for (out, change) in [("deleted", None), ("replaced", Some(1))] {
        let words = format!("{RUN} --out {out} --max-cache-batches 1 --set train.steps=60 --json");
        let mut running = place.start(&words);
        running.wait_for(|event| matches!(event, Event::StepDone { step, .. } if step.get() >= 3));
        let kept: Vec<(PathBuf, Vec<u8>)> =
            files(&place).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
        let before: Vec<_> = kept.iter().map(|(path, _)| fs::metadata(path).unwrap().modified().unwrap()).collect();
        for (path, _) in &kept {
            match change {
                None => fs::remove_file(path).unwrap(),
                Some(from) => fs::write(path, &kept[from].1).unwrap(),
            }
        }
        assert_eq!(running.wait(), Some(2), "{out}");
        for ((path, bytes), modified) in kept.iter().zip(before) {
            fs::write(path, bytes).unwrap();
            fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
        }
        place.resume(out, "");
        assert_eq!(place.hash(out), place.hash("through"), "{out}");
    }
}

#[test]
fn a_line_that_is_too_small_names_the_least_that_works() {
    let place = place();
    let ran = place.ends(2, &format!("{RUN} --out small --host-limit 150MiB"));
    let error = ran.stderr.lines().find(|line| line.starts_with("error")).unwrap();
    assert!(
        error.contains("the least of the data") && error.contains("the memory limit of the host is 150.00 MiB"),
        "{error}"
    );
    let needed = error.split("need ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let mib = needed.parse::<f64>().unwrap().ceil() as u64;
    // The program itself is not the same to the page in two runs.
    place.ends(0, &format!("{RUN} --out least --host-limit {}MiB", mib + 8));
}

#[test]
fn files_larger_than_the_cache_are_read_by_samples_and_that_is_said() {
    let place = Place::new();
    place.ends(0, "generate scoring --out data --size 60MB --file-size 20MB");
    let run = format!("{RUN} --set train.steps=3 --set eval.every=3");
    place.ends(0, &format!("{run} --out roomy"));
    let ran = place.ends(2, &format!("{run} --out small --host-limit 150MiB"));
    let needed = ran.stderr.split("need ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let line = needed.parse::<f64>().unwrap().ceil() as u64 + 4;
    let ran = place.ends(0, &format!("{run} --out tight --host-limit {line}MiB"));
    assert!(ran.stderr.contains("note: 3 of 3 shards are larger than the cache"), "{}", ran.stderr);
    assert_eq!(place.hash("tight"), place.hash("roomy"));
}

#[test]
fn raw_files_and_a_table_of_scores_are_loaded_as_a_whole() {
    let place = Place::new();
    place.ends(0, "generate scoring --out traces --samples 200 --format pkl");
    let run = "train scoring --device cpu --batch-size 8 --epochs 2 --no-run-lstm --no-run-gvae \
               --set model.graph_hidden=4 --data-pattern traces/*.pkl* --scores-file traces/scores.csv";
    place.ends(0, &format!("{run} --output-dir out"));
    let summary = place.summary("out");
    assert_eq!(summary["workload"], json!("scoring/gnn_det"));
    let config = place.text("out/config.yaml");
    assert!(config.contains("load: whole") && config.contains("epochs: 2"), "{config}");
    let trained = summary["samples_seen"].as_u64().unwrap();

    // Samples without a score are left out, and that is said.
    let table = place.text("traces/scores.csv");
    let fewer: Vec<&str> = table.lines().take(101).collect();
    fs::write(place.path("traces/scores.csv"), fewer.join("\n")).unwrap();
    let ran = place.ends(0, &format!("{run} --out fewer"));
    assert!(ran.stderr.contains("note: 100 samples have no score and are left out"), "{}", ran.stderr);
    assert!(place.summary("fewer")["samples_seen"].as_u64().unwrap() < trained);
}

#[test]
fn flags_choose_models_and_wrong_ones_are_named() {
    let place = place();
    let run = "train scoring --device cpu --preprocessed-dir data --batch-size 8 --set train.epochs=null \
               --set train.steps=2 --set eval.every=2 --set eval.batches=1";
    place.ends(0, &format!("{run} --out two --no-run-lstm"));
    let models: Vec<String> = place.summary("two")["models"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(models, ["gnn_det", "gvae"]);
    let refused = |words: &str| {
        let ran = place.ends(2, words);
        ran.stderr.lines().filter(|line| line.starts_with("error")).collect::<Vec<_>>().join("\n")
    };
    let none = refused(&format!("{run} --out none --no-run-lstm --no-run-gnn-det --no-run-gvae"));
    assert_snapshot!(none, @"error: --no-run-lstm []: model.run: name at least one model");
    let missing = refused("train scoring --device cpu --out missing --preprocessed-dir nowhere");
    assert_snapshot!(missing, @r#"error: --preprocessed-dir "nowhere": data.folder: there is no folder nowhere"#);
    let nothing = refused("train scoring --device cpu --out nothing --data-pattern nowhere/*.pkl");
    assert_snapshot!(
        nothing,
        @r#"error: --data-pattern "nowhere/*.pkl": data.pattern: nowhere/*.pkl: the file: no file fits this pattern"#
    );
    let other = refused("train gpt --device cpu --out other --preprocessed-dir data");
    assert_snapshot!(other, @r#"error: --preprocessed-dir "data": unknown key `data.folder`"#);
    let zero = refused(&format!("{run} --out zero --max-cache-batches 0"));
    assert_snapshot!(zero, @"error: --max-cache-batches 0: data.cache_batches: must be at least 1, or null");
}

#[test]
fn the_summary_tells_what_feeding_came_to() {
    let place = place();
    place.ends(0, &format!("{RUN} --out out --max-cache-batches 5"));
    let cache = place.summary("out")["cache"].clone();
    assert_eq!((&cache["policy"], &cache["shuffle"]), (&json!("belady"), &json!("window 4")));
    let number = |key: &str| cache[key].as_u64().unwrap();
    assert_eq!(number("hits") + number("loads"), 480, "60 steps of 8");
    assert_eq!(number("bytes_read"), number("optimum_bytes_read"));
    assert!(cache["waiting_share"].as_f64().is_some_and(|share| (0.0..=1.0).contains(&share)), "{cache}");
    assert!(cache["hit_rate"].as_f64().unwrap() > 0.9 && cache["eval"]["loads"].as_u64().unwrap() > 0, "{cache}");
    let curve = cache["curve"].as_array().unwrap();
    let reads: Vec<u64> = curve.iter().map(|point| point["bytes_per_epoch"].as_u64().unwrap()).collect();
    assert!(reads.is_sorted_by(|one, next| one >= next) && reads.last() == Some(&0), "{reads:?}");
    assert_ne!(cache["advice"], Value::Null);
}
