//! Programs that start a command several times over, as a group.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use lowtide_config::command::{at_script, value};
use lowtide_config::whole_number;

use crate::Access;

/// The number of processes that a launcher starts on this and all other machines; 1 where there is no launcher.
#[must_use]
pub fn processes(command: &[OsString], access: &Access<'_>) -> u64 {
    // What stands after the script is the script's.
    let own = match at_script(command) {
        ([], all) => all,
        ([launcher @ .., _script], _) => launcher,
    };
    let after = |names: &[&str]| {
        let named =
            |word: &OsString| Path::new(word).file_name().is_some_and(|name| names.iter().any(|it| name == *it));
        own.iter().position(named).map(|position| &own[position..])
    };
    let all_cards = || (access.cards)().max(1);
    let number_of = |words: &[OsString], key: &str| value(words, key).and_then(number);
    let processes = if let Some(words) = after(&["torchrun", "torch.distributed.run", "torch.distributed.launch"]) {
        let each = match value(words, "--nproc_per_node").map(|word| (word.to_str(), number(word))) {
            None | Some((Some("cpu"), None)) => 1,
            Some((_, Some(number))) => number,
            Some(_) => all_cards(),
        };
        // `--nnodes=1:4` begins with one machine.
        let machines = value(words, "--nnodes").and_then(|word| number(OsStr::new(word.to_str()?.split(':').next()?)));
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
        let tasks = number_of(words, "-n").or_else(|| number_of(words, "--ntasks"));
        let machines = || number_of(words, "-N").or_else(|| number_of(words, "--nodes"));
        let spread = || Some(number_of(words, "--ntasks_per_node")?.saturating_mul(machines().unwrap_or(1)));
        let set = || number(&(access.variable)("SLURM_NTASKS")?);
        tasks.or_else(spread).or_else(set).unwrap_or(1)
    } else {
        // Lightning starts the others itself.
        let each = number_of(command, "--trainer.devices").unwrap_or(1);
        each.saturating_mul(number_of(command, "--trainer.num_nodes").unwrap_or(1))
    };
    processes.max(1)
}

fn number(word: &OsStr) -> Option<u64> {
    whole_number(word.to_str()?)
}
