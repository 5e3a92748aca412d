//! What a run shares out among its cards, and what of it lies on the host: ZeRO, FSDP and their offloading.

use super::printout::number_behind;

/// What a log, a command or a configuration says of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SharingSwitches {
    /// ZeRO's stage: 1 shares out moments, 2 gradients, too, 3 weights, too, as FSDP does.
    pub(crate) stage: Option<u64>,
    /// How many processes share.
    pub(crate) ranks: Option<u64>,
    /// Moments lie on the host.
    pub(crate) offloads_moments: bool,
    /// Weights lie on the host.
    pub(crate) offloads_weights: bool,
}

/// What launchers and logs call the number of processes.
const RANKS: [&str; 9] = [
    "nproc_per_node",
    "nproc-per-node",
    "num_processes",
    "num-processes",
    "num_gpus",
    "world_size",
    "world size",
    "WORLD_SIZE",
    "Num GPUs",
];
/// What stage 3 is called where no number stands behind a name.
const WHOLE: [&str; 8] = ["zero3", "zero-3", "zero_3", "ZeRO-3", "ds_z3", "full_shard", "FULL_SHARD", "fully_shard("];

/// What names of stages, or values that stand for one, have in them.
const STAGES: [&str; 8] = ["stage", "zero", "Zero", "ZeRO", "ZERO", "shard", "SHARD", "ds_z"];
/// What every switch for the host has in its name.
const TO_HOST: &str = "ffload";

/// Words of which a line must have one to say anything of it.
pub(super) fn words() -> Vec<&'static str> {
    [&RANKS[..], &STAGES, &[TO_HOST]].concat()
}

impl SharingSwitches {
    /// Looks at a line.
    pub(crate) fn note(&mut self, line: &str) {
        // A sentence that advises it, or asks for it, sets nothing.
        if line.contains("You can") || line.contains(" try ") || line.contains('?') {
            return;
        }
        if STAGES.iter().any(|name| line.contains(name)) {
            self.stage = stage(line).or(self.stage);
        }
        if line.contains(TO_HOST) {
            let is_whole =
                ["ds_z3_offload", "zero3_offload", "zero3-offload", "fsdp_offload_params", "cpu_offload=True"]
                    .iter()
                    .any(|name| line.contains(name) && !is_off(line, name));
            let is_on = |name: &str| {
                line.contains(name) && (behind(line, name).contains("cpu") || behind(line, name).contains("nvme"))
            };
            self.offloads_moments |=
                is_whole || is_on("offload_optimizer") || is_on("ds_z2_offload") || line.contains("zero2_offload");
            self.offloads_weights |= is_whole || is_on("offload_param");
        }
        self.ranks = RANKS.iter().filter_map(|name| count_behind(line, name)).max().or(self.ranks);
    }
}

/// `"stage": 3`, `zero_stage: 2`, `zero_optimization.stage=3`, `ds_config_zero3.json`, `--fsdp "full_shard auto_wrap"`.
fn stage(line: &str) -> Option<u64> {
    let numbered = ["zero_stage", "zero_optimization.stage", "\"stage\"", "zero stage", "ZeRO stage", "ZeRO Stage"];
    let by_number = numbered.iter().find_map(|name| count_behind(line, name)).filter(|stage| *stage <= 3);
    let is_whole = || WHOLE.iter().any(|name| line.contains(name) && !is_off(line, name));
    let is_second = || ["zero2", "zero-2", "zero_2", "ZeRO-2", "ds_z2"].iter().any(|name| line.contains(name));
    by_number.or_else(|| is_whole().then_some(3)).or_else(|| is_second().then_some(2)).filter(|stage| *stage > 0)
}

/// What stands close behind a name.
fn behind<'l>(line: &'l str, name: &str) -> &'l str {
    let rest = line.split_once(name).map_or("", |(_, rest)| rest);
    let end = rest.char_indices().nth(40).map_or(rest.len(), |(at, _)| at);
    &rest[..end]
}

fn is_off(line: &str, name: &str) -> bool {
    let value = behind(line, name).trim_start_matches(['"', '\'', '=', ':', ' ']);
    ["false", "False", "none", "None", "null"].iter().any(|word| value.starts_with(word))
}

/// What a whole name is set to, where it may count processes or stages.
fn count_behind(line: &str, name: &str) -> Option<u64> {
    let (before, _) = line.split_once(name)?;
    let is_whole = !before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    number_behind(line, name).filter(|number| is_whole && (1..=1 << 14).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> SharingSwitches {
        let mut sharing = SharingSwitches::default();
        text.lines().for_each(|line| sharing.note(line));
        sharing
    }

    #[test]
    fn stages_and_ranks() {
        for (text, stage, ranks) in [
            ("deepspeed --num_gpus=8 train.py --deepspeed ds_config_zero3.json", Some(3), Some(8)),
            ("torchrun --nproc_per_node 4 train.py --fsdp \"full_shard auto_wrap\"", Some(3), Some(4)),
            ("    \"stage\": 3,\nworld_size=16", Some(3), Some(16)),
            ("zero_optimization.stage=2", Some(2), None),
            ("accelerate launch --num_processes 2 train.py", None, Some(2)),
            ("You can use ZeRO-3 or FSDP for that", None, None),
            ("fsdp: full_shard: false", None, None),
            ("stage one of 3", None, None),
        ] {
            assert_eq!((of(text).stage, of(text).ranks), (stage, ranks), "{text}");
        }
    }

    #[test]
    fn what_lies_on_the_host() {
        let sharing = of("zero_optimization.offload_optimizer.device=cpu");
        assert!(sharing.offloads_moments && !sharing.offloads_weights);
        assert!(of("\"offload_param\": {\"device\": \"cpu\"}").offloads_weights);
        let whole = of("--deepspeed examples/ds_z3_offload_config.json");
        assert!(whole.offloads_moments && whole.offloads_weights && whole.stage == Some(3));
        assert!(!of("\"offload_optimizer\": {\"device\": \"none\"}").offloads_moments);
    }
}
