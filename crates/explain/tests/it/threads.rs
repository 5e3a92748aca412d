//! What people post is recognised, its cause and its figures are right, and what only looks like it is left alone.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::path::{Path, PathBuf};

use lowtide_explain::{Cause, CheckpointWork, Context, Investigation, Relation, Source, Verdict};

/// A post, as `labels.csv` describes it and as it is explained.
struct Thread {
    name: String,
    cause: String,
    contributing: String,
    phase: String,
    device_total: String,
    requested: String,
    log: String,
    verdicts: Vec<Verdict>,
}

fn explained(log: &str) -> Vec<Verdict> {
    let mut investigation = Investigation::default();
    investigation.feed(log.as_bytes());
    investigation.finish(&Context::default()).verdicts
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/threads")
}

fn post(name: &str) -> String {
    fs::read_to_string(folder().join(format!("{name}.log"))).unwrap()
}

fn threads() -> Vec<Thread> {
    let mut table = csv::Reader::from_path(folder().join("labels.csv")).unwrap();
    let rows = table.records().map(|row| {
        let row = row.unwrap();
        let log = post(&row[0]);
        Thread {
            name: row[0].to_owned(),
            cause: row[1].to_owned(),
            contributing: row[2].to_owned(),
            phase: row[3].to_owned(),
            device_total: row[4].to_owned(),
            requested: row[5].to_owned(),
            verdicts: explained(&log),
            log,
        }
    });
    rows.collect()
}

fn verdict_of(name: &str) -> Verdict {
    explained(&post(name)).remove(0)
}

/// A value as it stands in JSON.
fn name(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).unwrap().as_str().unwrap_or_default().to_owned()
}

#[test]
fn memory_is_recognised_and_nothing_else_is() {
    let threads = threads();
    assert!(threads.len() > 500);
    let wrong: Vec<&str> = threads
        .iter()
        .filter(|thread| (thread.cause == "none") != thread.verdicts.is_empty())
        .map(|thread| &*thread.name)
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn causes_are_right() {
    let wrong: Vec<String> = threads()
        .iter()
        .filter(|thread| !matches!(&*thread.cause, "none" | "unclear"))
        .filter_map(|thread| {
            let verdict = thread.verdicts.first()?;
            let cause = name(verdict.cause);
            (cause != thread.cause)
                .then(|| format!("{}: {cause} ({}) instead of {}", thread.name, verdict.certainty, thread.cause))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_also_holds_is_named() {
    let threads = threads();
    let (mut stated, mut missing) = (0, Vec::new());
    for thread in threads.iter().filter(|thread| !thread.contributing.is_empty()) {
        let verdict = &thread.verdicts[0];
        let causes: Vec<String> = verdict.contributing.iter().copied().chain([verdict.cause]).map(name).collect();
        stated += 1;
        if !causes.contains(&thread.contributing) {
            missing.push(format!("{}: {causes:?} without {}", thread.name, thread.contributing));
        }
    }
    // Where the figures say a thing by a hair, either may be named.
    assert!(stated > 50 && missing.len() * 15 <= stated, "{missing:#?}");
}

#[test]
fn what_the_text_leaves_open_is_not_called_certain() {
    for thread in threads().iter().filter(|thread| thread.cause == "unclear") {
        let verdict = &thread.verdicts[0];
        assert!(verdict.certainty <= 0.75, "{}: {:?} {}", thread.name, verdict.cause, verdict.certainty);
    }
}

#[test]
fn figures_are_exact() {
    for thread in threads().iter().filter(|thread| thread.cause != "none") {
        for stated in [&thread.device_total, &thread.requested].into_iter().filter(|stated| !stated.is_empty()) {
            let expected = bytes(stated);
            // The figures of the text have two decimals; those of tables are whole MiB.
            let is_it = |value: u64| (value as f64 - expected).abs() <= expected * 0.006 + 1.0;
            let found = thread.verdicts.iter().any(|verdict| figures(verdict).into_iter().any(is_it));
            assert!(found, "{}: {stated}", thread.name);
        }
    }
}

/// `23.70 GiB`, `8112MiB`, `4770354232`; everybody counts in steps of 1024.
fn bytes(text: &str) -> f64 {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let power = match text[end..].trim().chars().next() {
        Some('K' | 'k') => 10,
        Some('M') => 20,
        Some('G') => 30,
        Some('T') => 40,
        _ => 0,
    };
    text[..end].parse::<f64>().unwrap() * 2_f64.powi(power)
}

fn figures(verdict: &Verdict) -> Vec<u64> {
    let figures = [verdict.capacity_bytes, verdict.tried_bytes, verdict.limit_bytes, verdict.free_bytes];
    figures.into_iter().flatten().map(lowtide_core::Bytes::get).collect()
}

#[test]
fn a_phase_that_is_named_is_right() {
    let threads = threads();
    let stated = threads.iter().filter(|thread| !thread.phase.is_empty() && !thread.verdicts.is_empty());
    let (mut named, mut wrong) = (0, Vec::new());
    for thread in stated {
        let Some(phase) = thread.verdicts[0].phase.map(name) else { continue };
        named += 1;
        if phase != thread.phase {
            wrong.push(format!("{}: {phase} instead of {}", thread.name, thread.phase));
        }
    }
    // A bar without a name may be of training or of reading.
    assert!(named > 80 && wrong.len() * 40 <= named, "{wrong:#?}");
}

/// What whoever collects lines puts before each of them.
const PREFIXES: [&str; 8] = [
    "> ",
    "[rank3]: ",
    "[default1]:",
    "3: ",
    "trainer-1  | ",
    "2026-01-02T03:04:05.123456Z ",
    "2026-03-02T10:11:12.123456789Z stderr F ",
    "Jan 17 16:39:29 host run[4173]: ",
];

#[test]
fn a_prefix_before_every_line_changes_no_cause() {
    check_prefixes(2);
}

#[test]
#[ignore = "a minute for what others look at in turn: every prefix before every post"]
fn every_prefix_before_every_line_changes_no_cause() {
    check_prefixes(PREFIXES.len());
}

/// So many prefixes before each post, others before the next one.
fn check_prefixes(of_each: usize) {
    let threads = threads();
    for (at, prefix) in PREFIXES.iter().enumerate() {
        let changed: Vec<String> = threads
            .iter()
            .zip(at..)
            .filter_map(|(thread, turn)| (turn % PREFIXES.len() < of_each).then_some(thread))
            // A quotation inside of what is quoted is nobody's post.
            .filter(|thread| thread.log.lines().all(|line| !line.starts_with('>')))
            .filter_map(|thread| {
                let log: String = thread.log.lines().map(|line| format!("{prefix}{line}\n")).collect();
                let cause = |verdicts: &[Verdict]| verdicts.first().map(|verdict| name(verdict.cause));
                let (before, after) = (cause(&thread.verdicts), cause(&explained(&log)));
                (before != after).then(|| format!("{}: {after:?} instead of {before:?}", thread.name))
            })
            .collect();
        assert!(changed.is_empty(), "{prefix:?} {changed:#?}");
    }
}

/// A text as a terminal of some width breaks it.
fn broken_at(log: &str, width: usize) -> String {
    let lines = log.lines().flat_map(|line| {
        let characters: Vec<char> = line.chars().collect();
        let pieces = characters.chunks(width).map(|piece| piece.iter().collect::<String>());
        if characters.is_empty() { vec![String::new()] } else { pieces.collect() }
    });
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn lines_that_a_terminal_broke_are_mostly_read_all_the_same() {
    let threads = threads();
    let cause = |verdicts: &[Verdict]| verdicts.first().map(|verdict| verdict.cause);
    let changed: Vec<String> = [80, 100, 132]
        .into_iter()
        .flat_map(|width| threads.iter().map(move |thread| (width, thread)))
        .filter_map(|(width, thread)| {
            let (whole, broken) = (cause(&thread.verdicts), cause(&explained(&broken_at(&thread.log, width))));
            (whole != broken).then(|| format!("{} at {width}: {broken:?} instead of {whole:?}", thread.name))
        })
        .collect();
    // A line that is as long as the terminal is wide cannot be told from one that goes on.
    assert!(changed.len() * 100 <= threads.len(), "{} {changed:#?}", changed.len());
}

#[test]
fn others_on_a_card_are_told_apart() {
    let shared = verdict_of("table_after_error");
    assert_eq!((shared.cause, &*shared.free_cards), (Cause::OtherProcess, &[1][..]));
    assert_eq!((shared.holders[0].pid, shared.holders[0].relation), (50112, Relation::Other));
    let is_job = |verdict: &Verdict| verdict.holders.iter().all(|holder| holder.relation == Relation::SameJob);
    for story in ["moe_four_ranks_one_card", "rm_13b_ranks_398mib", "eight_ranks_on_card_zero", "rank_contexts"] {
        let verdict = verdict_of(story);
        assert!(!verdict.holders.is_empty() && is_job(&verdict), "{story}: {:?}", verdict.holders);
    }
    assert!(!is_job(&verdict_of("two_users_pids_apart")));
    let desktop = verdict_of("so_desktop_numbers");
    assert!(desktop.holders.iter().all(|holder| holder.relation == Relation::Desktop), "{:?}", desktop.holders);
}

#[test]
fn what_is_open_has_possibilities_and_what_tells_them_apart() {
    for story in ["free_nine_gib_and_fails", "plenty_free", "nearly_full", "free_by_a_hair", "xpu_wsl_1_7g"] {
        let verdict = verdict_of(story);
        assert!(verdict.possibilities.len() >= 2 && verdict.certainty <= 0.5, "{story}: {}", verdict.certainty);
        assert_eq!(verdict.possibilities[0].cause, verdict.cause, "{story}");
        assert!(!verdict.contributing.contains(&Cause::Limit), "{story}: no limit is asserted");
        assert!(verdict.possibilities.iter().all(|possibility| !possibility.test.is_empty()), "{story}");
    }
}

#[test]
fn saving_loading_and_resuming_are_known() {
    for (story, work) in [
        ("fsdp_state_dict_opt13b", CheckpointWork::Gather),
        ("fsdp_full_state_on_save", CheckpointWork::Gather),
        ("save_8bit_lora_13b", CheckpointWork::Copy),
        ("torch_load_onto_card", CheckpointWork::LoadOntoDevice),
        ("pythia_restore_optimizer", CheckpointWork::OptimizerState),
        ("nanogpt_resume_checkpoint_kept", CheckpointWork::Resumed),
    ] {
        assert_eq!(verdict_of(story).checkpoint, Some(work), "{story}");
    }
    assert_eq!(verdict_of("semseg_large_crops").checkpoint, None);
}

#[test]
fn the_kill_of_a_control_group_is_called_that() {
    let verdict = verdict_of("cgroup_dmesg_python");
    assert_eq!(verdict.source, Source::Cgroup);
    assert!(verdict.evidence[0].contains("control group"), "{:?}", verdict.evidence);
}
