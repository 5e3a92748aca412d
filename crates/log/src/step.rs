//! Steps of a training, as logs name or draw them.
//!
//! What is taken for a step decides whether a program went on after an error, so a number that may be something else is
//! none: a step of Slurm's, time for a step, a bar of loading or evaluating.
//!
//! Bars of loading, mapping and evaluating are known by their label or unit (`log/bar.rs`); those that Hugging Face's
//! Trainer draws without a name while it evaluates, by what they count to.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};
use memchr::{memchr_iter, memmem};

use crate::bar::bar;
use crate::line::{lines, without_colours};
use crate::number::leading_number;

/// `iteration` before its own beginning.
const WORDS: [&str; 3] = ["iteration", "iter", "step"];
/// What stands between the word and the number: `step: 5`, `"step": 7`, Megatron's `iteration       10/ 500`.
const GAP: &[u8] = b" \t:=#\"'[";
/// More than any log sets apart.
const WIDEST_GAP: usize = 16;
/// Words before `step` and `iter` that make a rate of them.
const RATES: [&str; 6] = ["per ", "per_", "ms/", "sec/", "samples/", "tokens/"];
/// What makes a step one of the whole training.
const GLOBAL: [&str; 3] = ["global_", "global ", "global-"];
/// Hugging Face's Trainer says so, and then draws a bar that names nothing.
const EVALUATION: &[u8] = b"***** Running Evaluation";

static STEP_WORDS: LazyLock<AhoCorasick> = LazyLock::new(|| searcher(&WORDS));
static PROGRESS_WORDS: LazyLock<AhoCorasick> = LazyLock::new(|| searcher(&["loss", "epoch"]));

fn searcher(words: &[&str]) -> AhoCorasick {
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .match_kind(MatchKind::LeftmostFirst)
        .build(words)
        .expect("a few short words make a searcher")
}

/// The steps that the lines of a text name or draw, in order: `iter 120:`, `[Step 1000]`, `global_step=5`, `"step": 7`,
/// `| 12/100 [00:03`.
pub fn steps(text: &[u8]) -> impl DoubleEndedIterator<Item = u64> {
    let evaluation = memmem::find(text, EVALUATION);
    let (training, mixed) = text.split_at(evaluation.unwrap_or(text.len()));
    // Once an evaluation draws bars without a name, those of training are known by what they count to.
    let goal = evaluation.and_then(|_| lines(training).rev().find_map(drawn)).map(|(_, all)| all);
    let in_training = lines(training).filter_map(|line| step(line, |_| true));
    in_training.chain(lines(mixed).filter_map(move |line| step(line, |all| Some(all) == goal)))
}

/// Whether a line tells of a loss or of an epoch with its number, as logs do after the first step: `loss: 2.31`,
/// `Epoch=3`.
#[must_use]
pub fn shows_progress(line: &[u8]) -> bool {
    PROGRESS_WORDS.find_iter(line).any(|word| {
        let rest = &line[word.end()..];
        let gap = rest.iter().take_while(|byte| b" :='\"".contains(byte)).count();
        gap > 0 && rest.get(gap).is_some_and(u8::is_ascii_digit)
    })
}

/// The step of a line, where it is named, or drawn by a bar that counts to what bars of training do.
fn step(line: &[u8], is_of_training: impl Fn(u64) -> bool) -> Option<u64> {
    let line = without_colours(line);
    let drawn = || drawn(&line).filter(|(_, all)| is_of_training(*all)).map(|(done, _)| done);
    named(&line).or_else(drawn).or_else(|| counted(&line))
}

/// `Epoch: [3][120/5005] Loss 2.31`, `[ 120/1000] d_loss: 3.4`, `Train Epoch: 3 [120/60000 (0%)] Loss: 2.31`: how far a loop has come,
/// in a line that tells of its loss.
fn counted(line: &[u8]) -> Option<u64> {
    let counts = memchr_iter(b'[', line).find_map(|open| {
        let (done, rest) = leading_number(line[open + 1..].trim_ascii_start())?;
        let (_, rest) = leading_number(rest.strip_prefix(b"/")?.trim_ascii_start())?;
        matches!(rest, [b']', ..] | [b' ', b'(', ..]).then_some(done)
    });
    counts.filter(|_| shows_progress(line))
}

fn drawn(line: &[u8]) -> Option<(u64, u64)> {
    bar(line)?.steps()
}

/// The first step that a line names; a global one counts before one of an epoch or a batch.
fn named(line: &[u8]) -> Option<u64> {
    let mut first = None;
    for word in STEP_WORDS.find_iter(line) {
        let (before, after) = (&line[..word.start()], &line[word.end()..]);
        let Some((number, rest)) = number_after(after) else { continue };
        if GLOBAL.iter().any(|global| ends_with(before, global)) && !is_fraction(without_zeros(rest)) {
            return Some(number).filter(|_| !is_foreign(line));
        }
        let is_apart = before.last().is_none_or(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
        let is_rate = || RATES.iter().any(|rate| ends_with(before, rate));
        if first.is_none() && is_apart && !is_fraction(rest) && !is_rate() {
            first = Some(number);
        }
    }
    first.filter(|_| !is_foreign(line))
}

/// The number behind a word, and what follows it.
fn number_after(text: &[u8]) -> Option<(u64, &[u8])> {
    let gap = text.iter().take(WIDEST_GAP + 1).take_while(|byte| GAP.contains(byte)).count();
    (1..=WIDEST_GAP).contains(&gap).then(|| leading_number(&text[gap..]))?
}

/// Whether the number before goes on: `4242.0` is Slurm's name for a job, `3ms` a time, `45%` a part.
fn is_fraction(rest: &[u8]) -> bool {
    match rest {
        [b'.', next, ..] => next.is_ascii_digit(),
        [next, ..] => next.is_ascii_alphabetic() || *next == b'%',
        [] => false,
    }
}

/// What follows a number after `.0`, as loggers of figures print it.
fn without_zeros(rest: &[u8]) -> &[u8] {
    let [b'.', b'0', zeros @ ..] = rest else { return rest };
    let digits = zeros.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (zeros, after) = zeros.split_at(digits);
    if zeros.iter().all(|zero| *zero == b'0') { after } else { rest }
}

/// Whether a line is of somebody else: a frame of a traceback, Slurm, an image that is built, a summary after the end.
fn is_foreign(line: &[u8]) -> bool {
    line.starts_with(b"wandb:")
        || [&b"File \""[..], b"slurmstepd", b"srun: ", b"ob step "]
            .iter()
            .any(|words| memmem::find(line, words).is_some())
        || memmem::find_iter(line, b"Step ").any(|at| is_of_image(&line[at + b"Step ".len()..]))
}

/// `5/12 : RUN npm run build`, as Docker counts the lines of its file.
fn is_of_image(text: &[u8]) -> bool {
    let behind = |text| leading_number(text).map(|(_, rest)| rest);
    let all = behind(text).and_then(|rest| rest.strip_prefix(b"/"));
    all.and_then(behind).is_some_and(|rest| rest.starts_with(b" : "))
}

fn ends_with(text: &[u8], word: &str) -> bool {
    let start = text.len().checked_sub(word.len());
    start.is_some_and(|start| text[start..].eq_ignore_ascii_case(word.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_as_logs_name_them() {
        for (line, expected) in [
            ("iter 120: loss 3.1, time 5ms", Some(120)),
            ("step 12: train loss 4.2", Some(12)),
            ("[Step 1000] Memory", Some(1000)),
            ("step=5, loss=3", Some(5)),
            ("step 1,500: loss 3", Some(1500)),
            ("Epoch 3 | Step: 99 | loss", Some(99)),
            ("{'loss': 2.1, \"step\": 7}", Some(7)),
            ("{'loss': 1.0, 'global_step': 40}", Some(40)),
            ("global_step: 31", Some(31)),
            ("step 3 of the epoch, train/global_step=531.0", Some(531)),
            ("Iteration 5 (global step 500)", Some(500)),
            (" iteration       10/  500000 | consumed samples: 80", Some(10)),
            ("\x1b[32mstep \x1b[36m120\x1b[0m loss", Some(120)),
            ("训练step: 5", Some(5)),
            ("Epoch: [25][3096/5005]\tTime  0.551\tLoss 1.9055e+00 (2.1268e+00)", Some(3096)),
            ("[ 1000/1000000] time: 1313.0527 d_loss: 3.22, g_loss: 1498.8", Some(1000)),
            ("Train Epoch: 1 [400/2022 (20%)]\tLoss: 0.000023", Some(400)),
            ("[4/18] linking loss.o 3", None),
            (" 12%|█▏        | 12/100 [00:03<00:21,  4.1it/s]", Some(12)),
            ("12/100 ━━━━━━━━━━━━━━━━━━━━ 3s 4ms/step - loss: 2.31", Some(12)),
            ("Epoch 3:  45%|████▌ | 45/100 [00:03<00:04, loss_step=0.5, global_step=345.0]", Some(345)),
            // Names of functions, of jobs and of settings, times, rates, summaries.
            ("  File \"train.py\", line 3, in step 3", None),
            ("slurmstepd: error: *** STEP 4242.0 ON node CANCELLED", None),
            ("slurmstepd: error: Detected 1 oom_kill event in step 4242", None),
            ("srun: error: STEP 4242.0 ON node", None),
            ("srun: Job step 12 aborted before step completely launched.", None),
            ("slurmd: launch task of job step 12", None),
            ("Step 5/12 : RUN npm run build", None),
            ("Step 5/12: loss 2.31", Some(5)),
            ("stepping 3", None),
            ("number of steps", None),
            ("gradient_accumulation_steps = 8", None),
            ("warmup_step = 8", None),
            ("steps 300", None),
            ("step 120ms, iter: 5%", None),
            ("iter: 0.35 s", None),
            ("learning rate per step 3, ms/iter 15", None),
            ("wandb: global_step 9", None),
            ("Loading checkpoint shards: 50%|#####  | 2/4 [00:03<00:03]", None),
            ("", None),
        ] {
            assert_eq!(steps(line.as_bytes()).next(), expected, "{line}");
        }
    }

    #[test]
    fn bars_of_an_unnamed_evaluation_are_no_steps() {
        let training = " 1%| | 8/500 [00:01<00:40]\r 2%| | 9/500 [00:01<00:40]\n";
        let evaluation = "***** Running Evaluation *****\n  Batch size = 8\n 50%| | 20/40 [00:01<00:01]\n";
        let all = |text: &str| steps(text.as_bytes()).collect::<Vec<_>>();
        assert_eq!(all(&format!("{training}{evaluation}")), [8, 9]);
        assert_eq!(all(&format!("{training}{evaluation}{training}")), [8, 9, 8, 9]);
        assert_eq!(all(&format!("{evaluation}step 3\n")), [3]);
        assert_eq!(all(&format!("{evaluation}{training}")), [0; 0]);
        assert_eq!(steps(format!("{training}{evaluation}").as_bytes()).next_back(), Some(9));
    }

    #[test]
    fn losses_and_epochs_show_progress() {
        for (line, expected) in [
            ("loss 2.31", true),
            ("{'Loss': 2.1}", true),
            ("Epoch=3", true),
            ("epoch3", false),
            ("loss function: cross entropy", false),
            ("", false),
        ] {
            assert_eq!(shows_progress(line.as_bytes()), expected, "{line}");
        }
    }
}
