//! When it failed, as sentences tell it: in an evaluation, after a while, at one step, in saving, only the second time.

use super::narrative::{DENIALS, MEMORY, WELL, has_one, is_of};

/// From so many on, what is counted went well for a while.
const MANY: u64 = 100;
/// What the time of a failure is told by.
const WHEN: &[&str] =
    &["during", "while", "when", "whenever", "in", "at", "after", "before", "then", "only", "begins", "starts"];
/// How a failure is called.
const FAILS: &[&str] =
    &["fail", "fails", "failed", "crash", "crashes", "crashed", "oom", "stops", "stopped", "ends", "error", "killed"];
/// What is done one after the other, and what it takes.
const UNITS: &[&str] = &[
    "epoch",
    "epochs",
    "iteration",
    "iterations",
    "iter",
    "iters",
    "step",
    "steps",
    "batches",
    "image",
    "images",
    "picture",
    "pictures",
    "photo",
    "photos",
    "samples",
    "file",
    "files",
    "frames",
    "videos",
    "prompts",
    "requests",
    "generations",
    "tiles",
    "minute",
    "minutes",
    "hour",
    "hours",
    "days",
    "while",
    "time",
];

/// What is counted one after the other, and not taken at once.
const COUNTED: &[&str] = &[
    "epoch",
    "epochs",
    "iteration",
    "iterations",
    "iter",
    "iters",
    "step",
    "steps",
    "image",
    "frame",
    "picture",
    "file",
    "sample",
];

fn is_evaluation(word: &str) -> bool {
    word.starts_with("validat")
        || word.starts_with("evaluat")
        || matches!(word, "eval" | "eval.py" | "val" | "testing" | "test" | "tests")
}

/// Whether the sentence tells that an evaluation failed: while it ran, or beside a training that went well.
pub(super) fn fails_in_evaluation(words: &[&str]) -> bool {
    let trains_well = words.iter().position(|word| word.starts_with("train")).is_some_and(|at| {
        let well = words[at..].iter().take(8).position(|word| is_of(WELL, word));
        well.is_some_and(|well| !words[at.saturating_sub(2)..at + well].contains(&"not"))
    });
    words.iter().enumerate().filter(|(_, word)| is_evaluation(word)).any(|(at, _)| {
        let behind = &words[at + 1..];
        // What a sentence begins with is what it is about.
        let fails = match at {
            0 => has_one(behind, FAILS) || behind.contains(&"memory"),
            _ => has_one(&behind[..behind.len().min(4)], FAILS),
        };
        // `I would like to evaluate it`, `how much memory is needed for the evaluation`
        let before = &words[at.saturating_sub(4)..at];
        let is_meant = words[..at].last() == Some(&"to")
            && has_one(before, &["like", "want", "wanted", "try", "trying", "tried"])
            || has_one(before, &["needed", "need", "required"]) && before.contains(&"for");
        let is_then = is_meant
            || has_one(&words[at.saturating_sub(3)..at], WHEN)
            || has_one(&words[at.saturating_sub(7)..at], &["when", "while", "during"]);
        // Sets and data are what goes in, whatever is done with them.
        let is_of_data = behind.first().is_some_and(|word| is_of(&["set", "data", "dataset", "split", "images"], word));
        trains_well || fails || is_then && !is_of_data
    })
}

/// `after 3 epochs`, `after some of the pictures`, `for a while`, `the first one is fine and the second is not`.
pub(super) fn fails_later(words: &[&str]) -> bool {
    let by_time = words.iter().enumerate().any(|(at, word)| {
        let behind = &words[at + 1..];
        let is_each = behind.first().is_some_and(|word| is_of(&["each", "every"], word));
        *word == "after" && !is_each && has_one(&behind[..behind.len().min(5)], UNITS)
            || *word == "for" && behind.starts_with(&["a", "while"])
    });
    let first = words.iter().position(|word| *word == "first");
    let in_turn = first.is_some_and(|at| has_one(&words[at..], &["second", "next", "then"]));
    by_time || by_count(words) || in_turn && has_one(words, WELL)
}

/// `around image 13500 of 19994`, `at step 10000`, `in the 5th epoch`: a count or an ordinal beside a unit, where a failure is told
/// by it; how much is taken at once is told in other units.
fn by_count(words: &[&str]) -> bool {
    let is_unit = |word: &str| is_of(COUNTED, word);
    let ordinal =
        |word: &str| ["th", "st", "nd", "rd"].iter().find_map(|end| word.strip_suffix(end)?.parse::<u64>().ok());
    let is_many = |word: &str| word.parse().is_ok_and(|number: u64| number >= MANY);
    let is_late = |pair: &[&str]| {
        is_unit(pair[0]) && is_many(pair[1])
            || is_many(pair[0]) && is_unit(pair[1])
            || is_unit(pair[1]) && ordinal(pair[0]).is_some_and(|number| number > 1)
    };
    words.iter().enumerate().any(|(at, word)| {
        let near = &words[at + 1..(at + 4).min(words.len())];
        let is_when = is_of(&["around", "about", "at", "by", "until", "till", "in", "on"], word);
        is_when && !has_one(near, &["each", "every"]) && near.windows(2).any(is_late)
    })
}

/// `it stops at 5000 iters again`, `always after 2000 iterations`: a round number of steps that is said to be the same each time.
pub(super) fn fails_at_one_step(words: &[&str]) -> bool {
    const STEPS: &[&str] = &["iteration", "iterations", "iter", "iters", "step", "steps"];
    let is_round = |word: &str| word.parse().is_ok_and(|number: u64| number >= MANY && number.is_multiple_of(50));
    let is_count = words
        .windows(2)
        .any(|pair| is_round(pair[0]) && is_of(STEPS, pair[1]) || is_of(STEPS, pair[0]) && is_round(pair[1]));
    let is_each_time = has_one(words, &["always", "again", "too", "same", "every", "each", "exactly"]);
    let is_point = has_one(words, &["always", "every", "each", "again"])
        && words.windows(2).any(|pair| is_of(&["same"], pair[0]) && is_of(&["point", "step", "iteration"], pair[1]));
    is_count && is_each_time || is_point
}

/// `when the 5th epoch was about finished`, `at the end of the first epoch`
pub(super) fn ends_an_epoch(words: &[&str]) -> bool {
    let ends = ["end", "ends", "ended", "finished", "finishes", "finishing", "done", "complete", "completed", "over"];
    words.iter().enumerate().filter(|(_, word)| matches!(**word, "epoch" | "epochs")).any(|(at, _)| {
        let near = &words[at.saturating_sub(6)..(at + 5).min(words.len())];
        has_one(near, &ends) && has_one(near, &["when", "at", "after", "once", "as"])
    })
}

/// `the trainer cannot save the weights`, `model saving error`
pub(super) fn fails_in_saving(words: &[&str]) -> bool {
    words.iter().enumerate().filter(|(_, word)| matches!(**word, "save" | "saving" | "saves")).any(|(at, _)| {
        let before = &words[at.saturating_sub(3)..at];
        let saves_memory = words[at + 1..].iter().take(3).any(|word| MEMORY.contains(word));
        let fails = has_one(before, &["cannot", "can't", "not", "when", "while", "during", "fails", "error"])
            || has_one(&words[at + 1..(at + 4).min(words.len())], FAILS);
        fails && !saves_memory
    })
}

/// `the second time`, `on the second run`, `when I rerun it`.
pub(super) fn runs_again(words: &[&str]) -> bool {
    let is_second = words.windows(2).any(|pair| {
        is_of(&["second", "2nd", "third"], pair[0]) && is_of(&["time", "try", "run", "attempt", "cell"], pair[1])
            || is_of(&["next", "another"], pair[0]) && pair[1] == "cell"
    });
    is_second || has_one(words, &["rerun", "re-run", "rerunning", "re-running"])
}

/// `after a restart of the computer it works`; that it does not help is another matter.
pub(super) fn restart_helps(words: &[&str]) -> bool {
    let is_restart =
        |word: &&str| is_of(&["restart", "restarting", "restarted", "reboot", "rebooting", "rebooted"], word);
    let names_machine =
        has_one(words, &["computer", "machine", "pc", "laptop", "kernel", "runtime", "notebook", "system", "server"]);
    let helps = has_one(words, WELL) || has_one(words, &["resumes", "again", "solved", "solves", "fixes", "fixed"]);
    words.iter().any(is_restart) && names_machine && helps && !has_one(words, DENIALS)
}

#[cfg(test)]
mod tests {
    use crate::log::Narrative;

    fn of(line: &str) -> Narrative {
        let mut narrative = Narrative::default();
        narrative.note(line);
        narrative
    }

    #[test]
    fn an_evaluation_is_told_by_when_it_failed() {
        for line in [
            "It runs out of memory during validation.",
            "Training works fine but the evaluation does not.",
            "The memory goes from 17G to 23G when it ends the epoch and validates.",
            "Validation fails with an error of CUDA on my card.",
            "Evaluation with a batch_size of 4 gives CUDA Out Of Memory.",
            "训练正常，验证阶段显存不够",
        ] {
            assert!(of(line).evaluates, "{line}");
        }
        for line in [
            "I split the data into training and validation and started.",
            "My val set has 200 pictures of cats and dogs.",
            "The model does not train well on the test data.",
        ] {
            assert!(!of(line).evaluates, "{line}");
        }
        assert!(of("I only want to run inference on one picture").infers);
    }

    #[test]
    fn what_went_well_before_is_told() {
        for line in [
            "It happens after about 400 iterations on every card.",
            "The code runs for a while and then it stops.",
            "The first one is fine and with the second it stops.",
            "It breaks off at step 10000 of the whole run.",
            "This happens around image 13500 of 19994 in all.",
            "The memory is full in the 5th epoch of it.",
        ] {
            assert!(of(line).fails_later, "{line}");
        }
        for line in [
            "It happens right after each start of the program.",
            "I train with 256 images at once on each card.",
            "It happens at step 1 of the first epoch.",
            "It evaluates every 500 steps on the whole set.",
            "I put a mark on every 30th frame of it.",
        ] {
            assert!(!of(line).fails_later, "{line}");
        }
        for line in ["On the second try it says that memory is full.", "When I rerun the script it fails at once."] {
            assert!(of(line).runs_again, "{line}");
        }
        assert!(!of("It happens in the second epoch of the training.").runs_again);
        assert!(of("After a restart of the computer it works fine.").restart_helps);
        assert!(!of("I restarted the computer and it did not help, it fails again.").restart_helps);
    }

    #[test]
    fn what_fails_at_one_step_is_told() {
        for line in [
            "It stops at 5000 iters again and again.",
            "It ends with this error always at the same point.",
            "The error came at the end of the first epoch.",
        ] {
            assert!(of(line).fails_at_one_step, "{line}");
        }
        for line in ["It failed after 2000 iterations of training.", "Both of them use the same step size here."] {
            assert!(!of(line).fails_at_one_step, "{line}");
        }
    }

    #[test]
    fn a_model_that_cannot_be_saved_is_told() {
        assert!(of("The trainer cannot save the weights of the model.").saves);
        assert!(of("It runs out while saving the checkpoint there.").saves);
        assert!(!of("What can I do to save gpu memory here?").saves);
        assert!(!of("The checkpoint is saved every 500 steps.").saves);
    }
}
