//! Errors that a run got over, and notes that are of no run: probes for a batch, steps that are skipped, histories, other days.

use lowtide_explain::{Context, Explanation, Investigation, LookAlike};

fn explained(log: &str) -> Explanation {
    let mut investigation = Investigation::default();
    investigation.feed(log.as_bytes());
    investigation.finish(&Context::default())
}

const OOM: &str = "CUDA out of memory. Tried to allocate 3.12 GiB. GPU 0 has a total capacity of 23.69 GiB of which 1.20 GiB is free.\n";
const CRASH: &str = "Traceback (most recent call last):\n  File \"train.py\", line 30, in <module>\n    labels = batch[\"labels\"]\n\
                     KeyError: 'labels'\n";

#[test]
fn a_probe_for_the_largest_batch_is_no_failure() {
    for log in [
        format!(
            "AutoBatch: Computing optimal batch size for imgsz=640\n{OOM}WARNING ⚠️ AutoBatch: CUDA anomaly detected, using default \
                 batch-size 16.\n      1/100      7.12G      1.231\n"
        ),
        format!(
            "Trying batch size: 64\n{OOM}Trying batch size: 32\n{OOM}Trying batch size: 16\nstep 1 loss 2.3\nstep 2 loss 2.2\n"
        ),
        format!("{OOM}Batch size 64 failed, trying batch size 32\nstep 1 loss 2.3\n"),
    ] {
        let found = explained(&log);
        assert_eq!(found.not_memory.map(|it| it.kind), Some(LookAlike::Attempt), "{log}");
        assert_eq!((found.verdicts.len(), found.events), (0, 0), "{log}");
    }
    // The last try has no other behind it.
    let last = explained(&format!("Trying batch size: 2\n{OOM}Trying batch size: 1\n{OOM}"));
    assert_eq!(last.verdicts.len(), 1);
}

#[test]
fn another_error_ended_a_run_that_went_on() {
    for log in [
        format!(
            "step 1 loss 2.3\nstep 2 loss 2.2\n| WARNING: ran out of memory, skipping batch: {OOM}step 3 loss 2.1\nstep 4 loss 2.0\n{CRASH}"
        ),
        format!(
            "step 1 loss 2.3\n{OOM}OOM caught, half the batch from here on\nstep 2 loss 2.2\nstep 3 loss 2.1\n{CRASH}"
        ),
    ] {
        let found = &explained(&log).verdicts[0];
        assert_eq!(found.ended_by.as_deref(), Some("KeyError: 'labels'"), "{log}");
        assert!(found.certainty <= 0.3 && found.evidence[0].contains("another error ended it"), "{found:?}");
    }
    // What its own handler raised follows from it.
    let handled = format!(
        "step 1 loss 2.3\nTraceback (most recent call last):\n  File \"train.py\", line 22, in step\n    loss = model(x)\n\
         torch.cuda.OutOfMemoryError: {OOM}\nDuring handling of the above exception, another exception occurred:\n\n{CRASH}"
    );
    let found = &explained(&handled).verdicts[0];
    assert!(found.ended_by.is_none() && found.certainty > 0.5, "{found:?}");
}

#[test]
fn what_the_kernel_noted_on_another_day_is_not_of_this_run() {
    let note = "[Mon Nov 16 03:12:44 2026] Out of memory: Killed process 991 (chrome) total-vm:43000000kB, anon-rss:8000000kB, \
                file-rss:0kB, shmem-rss:0kB\n";
    let steps = "2026-11-19 10:00:00 INFO step 100 loss 2.3\n2026-11-19 10:00:10 INFO step 101 loss 2.3\n";
    for log in [
        format!("{steps}$ dmesg -T | tail\n{note}"),
        format!("{steps}{CRASH}$ dmesg -T | tail\n{note}"),
        format!("step 100 loss 2.3\n{CRASH}$ dmesg -T | tail\n{note}"),
    ] {
        let found = explained(&log);
        assert_eq!(found.not_memory.map(|it| it.kind), Some(LookAlike::OtherProgram), "{log}");
        assert!(found.verdicts.is_empty(), "{log}");
    }
    let same_day = steps.replace("2026-11-19 10", "2026-11-16 03");
    assert_eq!(
        explained(&format!("{same_day}$ dmesg -T | tail\n{}", note.replace("chrome", "python"))).verdicts.len(),
        1
    );
}

#[test]
fn a_history_of_changes_is_no_failure() {
    let steps = "step 1 loss 2.3\nstep 2 loss 2.1\n";
    for log in [
        format!(
            "$ git log --oneline\na1b2c3d Fix CUDA out of memory in evaluation\nd4e5f6a RuntimeError: CUDA out of memory when the \
                 checkpoint is read\n$ python train.py\n{steps}"
        ),
        "commit 0a1b2c3d4e5f60718293a4b5c6d7e8f901234567\nAuthor: A <a@b.c>\nDate:   Mon Jan 1 10:00:00 2024 +0000\n\n    \
                 RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n\ncommit \
                 1a1b2c3d4e5f60718293a4b5c6d7e8f901234567\nAuthor: A <a@b.c>\nDate:   Mon Jan 1 10:00:00 2024 +0000\n\n    Out of \
                 memory: Killed process no more\n"
            .to_owned(),
    ] {
        assert!(explained(&log).verdicts.is_empty(), "{log}");
    }
}
