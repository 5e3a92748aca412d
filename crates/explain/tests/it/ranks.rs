//! Ranks that failed together, in logs that torchrun wrote (gloo, the errors raised by a script).

use lowtide_explain::{Context, RankErrors, explain};

fn ranks(log: &str) -> Option<(u64, RankErrors)> {
    let verdicts = explain(log.as_bytes(), &Context::default());
    assert!(verdicts.iter().skip(1).all(|verdict| verdict.ranks.is_none()), "only the first has it");
    let first = verdicts.into_iter().next()?;
    Some((first.line, first.ranks?))
}

#[track_caller]
fn check(log: &str, first: u64, by_launcher: bool, also: &[u64], consequences: &[Option<u64>]) {
    let (line, found) = ranks(log).expect("ranks");
    let line = log.lines().nth(line as usize - 1).expect("a line of the log");
    assert!(line.contains("out of memory") && line.contains(&format!("rank{first}]")), "{line}");
    assert_eq!((found.first, found.by_launcher), (first, by_launcher));
    assert_eq!(found.also_out_of_memory, also);
    assert_eq!(found.consequences.iter().map(|error| error.rank).collect::<Vec<_>>(), consequences);
    for error in &found.consequences {
        let line = log.lines().nth(error.line as usize - 1).expect("a line of the log");
        assert!(line.contains(&error.text), "{line}");
    }
}

const OOM: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a total capacity of \
                   23.64 GiB of which 1.41 GiB is free.";

#[test]
fn the_rank_that_ran_out_and_those_that_lost_it() {
    check(include_str!("../ranks/two.log"), 1, true, &[], &[Some(0)]);
    check(include_str!("../ranks/four.log"), 1, true, &[2], &[Some(3), Some(0)]);
}

#[test]
fn without_a_launchers_word_the_first_in_the_log_counts() {
    check(
        &format!(
            "[rank2]: {OOM}\n[rank0]:[E ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout\n\
             ncclRemoteError: a remote process exited\n"
        ),
        2,
        false,
        &[],
        &[Some(0), None],
    );
    // What another rank says may stand before it, as where the logs of ranks were put together.
    check(&format!("[rank0]: RuntimeError: Connection closed by peer\n[rank1]: {OOM}\n"), 1, false, &[], &[Some(0)]);
    // Of many that asked for the same.
    check(&format!("[rank3]: {OOM}\n[rank1]: {OOM}\n[rank2]: {OOM}\n"), 3, false, &[1, 2], &[]);
}

#[test]
fn one_rank_alone_is_no_group() {
    assert_eq!(ranks(&format!("[rank0]: {OOM}\n")), None);
    assert_eq!(ranks(&format!("{OOM}\nBroken pipe\n")), None);
}
