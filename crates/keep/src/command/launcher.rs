//! Programs that start a command several times over, as a group.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::Surroundings;
use crate::command::preset::{is_python, number};
use crate::command::template::current;

/// The number of processes that a launcher starts on this and all other machines; 1 where there is no launcher.
pub(crate) fn group(command: &[OsString], around: &Surroundings<'_>) -> u64 {
    // What stands after the script is the script's.
    let own = &command[..command.iter().position(|word| is_python(word)).unwrap_or(command.len())];
    let after = |names: &[&str]| {
        let named =
            |word: &OsString| Path::new(word).file_name().is_some_and(|name| names.iter().any(|it| name == *it));
        own.iter().position(named).map(|position| &own[position..])
    };
    let all_cards = || (around.cards)().max(1);
    let number_of = |words: &[OsString], key: &str| current(words, key).and_then(number);
    let processes = if let Some(words) = after(&["torchrun", "torch.distributed.run", "torch.distributed.launch"]) {
        let each = match current(words, "--nproc_per_node").map(|word| (word.to_str(), number(word))) {
            None | Some((Some("cpu"), None)) => 1,
            Some((_, Some(number))) => number,
            Some(_) => all_cards(),
        };
        // `--nnodes=1:4` begins with one machine.
        let machines =
            current(words, "--nnodes").and_then(|word| number(OsStr::new(word.to_str()?.split(':').next()?)));
        each.saturating_mul(machines.unwrap_or(1))
    } else if let Some(words) = after(&["accelerate"]) {
        let every = words.iter().any(|word| word == "--multi_gpu" || word == "--multi-gpu");
        number_of(words, "--num_processes").unwrap_or_else(|| if every { all_cards() } else { 1 })
    } else if let Some(words) = after(&["deepspeed"]) {
        let each = number_of(words, "--num_gpus").unwrap_or_else(all_cards);
        each.saturating_mul(number_of(words, "--num_nodes").unwrap_or(1))
    } else if let Some(words) = after(&["mpirun", "mpiexec"]) {
        ["-n", "-np", "--np"].iter().find_map(|key| number_of(words, key)).unwrap_or(1)
    } else if let Some(words) = after(&["srun"]) {
        let short = |key: &str| number_of(words, key).or_else(|| attached(words, key));
        let tasks = short("-n").or_else(|| number_of(words, "--ntasks"));
        let machines = || short("-N").or_else(|| number_of(words, "--nodes"));
        let spread = || Some(number_of(words, "--ntasks_per_node")?.saturating_mul(machines().unwrap_or(1)));
        let set = || number(&(around.variable)("SLURM_NTASKS")?);
        tasks.or_else(spread).or_else(set).unwrap_or(1)
    } else {
        // Lightning starts the others itself.
        let each = number_of(command, "--trainer.devices").unwrap_or(1);
        each.saturating_mul(number_of(command, "--trainer.num_nodes").unwrap_or(1))
    };
    processes.max(1)
}

/// The number in a word such as `-n4`.
fn attached(words: &[OsString], key: &str) -> Option<u64> {
    words.iter().find_map(|word| number(OsStr::new(word.to_str()?.strip_prefix(key)?)))
}
