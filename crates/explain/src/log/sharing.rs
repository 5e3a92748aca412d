//! What a run shares out among its cards, and what of it lies on the host: ZeRO, FSDP and their offloading.

use super::given::is_off;
use super::printout::number_behind;

/// What a log, a command or a configuration says of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SharingSwitches {
    /// ZeRO's stage: 1 shares out moments, 2 gradients, too, 3 weights, too, as FSDP does.
    pub(crate) stage: Option<u64>,
    /// Processes of all nodes, where something counts them as a whole.
    all: Option<u64>,
    /// Processes of each node, and nodes.
    of_node: Option<u64>,
    nodes: Option<u64>,
    /// Moments lie on the host.
    pub(crate) offloads_moments: bool,
    /// Weights lie on the host.
    pub(crate) offloads_weights: bool,
    /// A section of a file that is spread over several lines.
    open: Option<Section>,
}

/// DeepSpeed's section for what is to lie on the host, of which the line with the device has not come yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Section {
    is_of_weights: bool,
    /// How many lines may follow before that.
    lines: u8,
}

/// What launchers call the number of processes on each node, that of nodes, and what they and logs call all processes.
const OF_NODE: [&str; 4] = ["nproc_per_node", "nproc-per-node", "num_gpus", "gpus-per-node"];
const NODES: [&str; 4] = ["nnodes", "num_nodes", "num-nodes", "--nodes"];
const ALL: [&str; 6] = ["num_processes", "num-processes", "world_size", "world size", "WORLD_SIZE", "Num GPUs"];
/// What stage 3 is called where no number stands behind a name.
const WHOLE: [&str; 8] = ["zero3", "zero-3", "zero_3", "ZeRO-3", "ds_z3", "full_shard", "FULL_SHARD", "fully_shard("];

/// What names of stages, or values that stand for one, have in them.
const STAGES: [&str; 8] = ["stage", "zero", "Zero", "ZeRO", "ZERO", "shard", "SHARD", "ds_z"];
/// What every switch for the host has in its name.
const TO_HOST: &str = "ffload";
/// Names of files and switches that put weights and moments on the host, and of those that put moments there.
const WHOLE_TO_HOST: [&str; 5] =
    ["ds_z3_offload", "zero3_offload", "zero3-offload", "fsdp_offload_params", "cpu_offload=True"];
const MOMENTS_TO_HOST: [&str; 3] = ["ds_z2_offload", "zero2_offload", "zero2-offload"];
/// DeepSpeed's sections, and whether they are of weights.
const SECTIONS: [(&str, bool); 2] = [("offload_optimizer", false), ("offload_param", true)];
/// So many lines below its name a section has its device.
const WITHIN: u8 = 2;

/// Words of which a line must have one to say anything of it.
pub(super) fn words() -> Vec<&'static str> {
    [&OF_NODE[..], &NODES, &ALL, &STAGES, &[TO_HOST]].concat()
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
        self.note_within(line);
        if line.contains(TO_HOST) {
            self.note_host(line);
        }
        let most = |names: &[&str]| names.iter().filter_map(|name| count_behind(line, name)).max();
        self.of_node = most(&OF_NODE).or(self.of_node);
        self.nodes = most(&NODES).or(self.nodes);
        self.all = most(&ALL).or(self.all);
    }

    /// Looks at a line that may belong to a section above it.
    pub(super) fn note_within(&mut self, line: &str) {
        let Some(section) = self.open else { return };
        self.open = Some(Section { lines: section.lines - 1, ..section }).filter(|section| section.lines > 0);
        if line.contains("device") {
            self.open = None;
            self.lay(section.is_of_weights, is_host(line));
        }
    }

    fn note_host(&mut self, line: &str) {
        let is_on = |names: &[&str]| names.iter().any(|name| line.contains(name) && !is_off(value_behind(line, name)));
        let is_whole = is_on(&WHOLE_TO_HOST);
        self.lay(true, is_whole);
        self.lay(false, is_whole || is_on(&MOMENTS_TO_HOST));
        for (name, is_of_weights) in SECTIONS.iter().filter(|(name, _)| line.contains(name)) {
            let value = value_behind(line, name);
            self.lay(*is_of_weights, is_host(value.split('}').next().unwrap_or_default()));
            if value.trim_end().is_empty() || value.trim_end() == "{" {
                self.open = Some(Section { is_of_weights: *is_of_weights, lines: WITHIN });
            }
        }
    }

    fn lay(&mut self, is_of_weights: bool, is_on_host: bool) {
        let place = if is_of_weights { &mut self.offloads_weights } else { &mut self.offloads_moments };
        *place |= is_on_host;
    }

    /// How many processes share.
    pub(crate) fn ranks(&self) -> Option<u64> {
        let of_nodes = || Some(self.of_node?.saturating_mul(self.nodes.unwrap_or(1)));
        self.all.or_else(of_nodes).filter(|ranks| *ranks <= MOST)
    }

    /// How many processes a launcher starts on this machine.
    pub(crate) fn ranks_of_machine(&self) -> Option<u64> {
        self.of_node.or_else(|| self.all.filter(|_| self.nodes.is_none_or(|nodes| nodes == 1)))
    }
}

/// No job has more processes.
const MOST: u64 = 1 << 14;

/// `"stage": 3`, `zero_stage: 2`, `zero_optimization.stage=3`, `ds_config_zero3.json`, `--fsdp "full_shard auto_wrap"`.
fn stage(line: &str) -> Option<u64> {
    let numbered = ["zero_stage", "zero_optimization.stage", "\"stage\"", "zero stage", "ZeRO stage", "ZeRO Stage"];
    let by_number = numbered.iter().find_map(|name| count_behind(line, name)).filter(|stage| *stage <= 3);
    let is_whole = || WHOLE.iter().any(|name| line.contains(name) && !is_off(value_behind(line, name)));
    let is_second = || ["zero2", "zero-2", "zero_2", "ZeRO-2", "ds_z2"].iter().any(|name| line.contains(name));
    by_number.or_else(|| is_whole().then_some(3)).or_else(|| is_second().then_some(2)).filter(|stage| *stage > 0)
}

/// What stands close behind a name, without what sets it apart.
fn value_behind<'l>(line: &'l str, name: &str) -> &'l str {
    let rest = line.split_once(name).map_or("", |(_, rest)| rest);
    let end = rest.char_indices().nth(40).map_or(rest.len(), |(at, _)| at);
    rest[..end].trim_start_matches(['"', '\'', '=', ':', ' '])
}

/// Whether a device that a text names is the machine's memory, or its disk.
fn is_host(text: &str) -> bool {
    text.contains("cpu") || text.contains("nvme")
}

/// What a whole name is set to, where it may count processes or stages.
fn count_behind(line: &str, name: &str) -> Option<u64> {
    let (before, _) = line.split_once(name)?;
    let is_whole = !before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    number_behind(line, name).filter(|number| is_whole && (1..=MOST).contains(number))
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
            ("deepspeed --num_nodes 4 --num_gpus 8 train.py --deepspeed ds_z3_config.json", Some(3), Some(32)),
            ("torchrun --nnodes=2 --nproc_per_node=8 train.py --fsdp full_shard", Some(3), Some(16)),
            ("accelerate launch --num_machines 2 --num_processes 16 train.py", None, Some(16)),
            ("torchrun --nnodes 2 --nproc_per_node 8 train.py\nworld_size: 16", None, Some(16)),
            ("You can use ZeRO-3 or FSDP for that", None, None),
            ("fsdp: full_shard: false", None, None),
            ("stage one of 3", None, None),
        ] {
            assert_eq!((of(text).stage, of(text).ranks()), (stage, ranks), "{text}");
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
        let file = of("--deepspeed ds_z2_offload_config.json");
        assert!(file.offloads_moments && !file.offloads_weights && file.stage == Some(2));
    }

    #[test]
    fn sections_are_spread_over_lines() {
        for (text, moments, weights) in [
            ("\"offload_optimizer\": {\n  \"device\": \"cpu\",\n  \"pin_memory\": true\n}", true, false),
            ("\"offload_param\": {\n  \"pin_memory\": true,\n  \"device\": \"nvme\"", false, true),
            ("offload_optimizer:\n  device: cpu\noffload_param:\n  device: none", true, false),
            ("\"offload_optimizer\": {\n  \"device\": \"none\"\n},\n\"map\": \"cpu\"", false, false),
            ("{\"offload_optimizer\": {\"device\": \"none\"}, \"offload_param\": {\"device\": \"cpu\"}}", false, true),
            ("offload_optimizer_device: cpu", true, false),
        ] {
            let sharing = of(text);
            assert_eq!((sharing.offloads_moments, sharing.offloads_weights), (moments, weights), "{text}");
        }
    }
}
