//! Levers for state on its way to disk or back: gathered on the host, in shards, let go as soon as it is loaded.

use super::case::Case;
use super::framework::Framework;
use super::list::{ALL, List, NOT_NUMBERS};
use crate::log::Sign;
use crate::{Activity, CheckpointWork, Lever};

impl Case<'_> {
    /// Whether a run that goes on from a checkpoint failed before its first step: the checkpoint may still be held.
    pub(super) fn holds_a_checkpoint(&self) -> bool {
        let is_said = self.narrative().resumes && !self.has_run_a_while();
        self.judgement.checkpoint == Some(CheckpointWork::Resumed) || is_said
    }

    /// Whether a checkpoint was on its way to the device.
    pub(super) fn reads_onto_the_device(&self) -> bool {
        let loads = matches!(
            self.judgement.checkpoint,
            Some(CheckpointWork::LoadOntoDevice | CheckpointWork::OptimizerState | CheckpointWork::Resumed)
        );
        loads || self.passes(&["torch.load(", "load_checkpoint", "torch/serialization"])
    }

    /// Whether the state of a model was on its way to disk.
    pub(super) fn is_saving(&self) -> bool {
        let of_state = matches!(self.judgement.checkpoint, Some(CheckpointWork::Gather | CheckpointWork::Copy));
        let is_told = self.narrative().saves && self.frames.is_empty() && self.activity.is_none();
        of_state || is_told || self.activity == Some(Activity::Saving)
    }

    /// Whether a model that is trained whole goes to the card: nobody takes fewer bits or adapters for one that is no transformer.
    pub(super) fn moves_a_small_model(&self) -> bool {
        let reads = self.reads_onto_the_device() || self.facts.log.is_group || self.shows(Sign::Weights);
        self.trains() && !reads && !self.is_transformer() && !self.takes_words()
    }

    fn gathers(&self) -> bool {
        let gathers = self.judgement.checkpoint == Some(CheckpointWork::Gather);
        gathers || self.shows(Sign::Fsdp) && self.framework() == Framework::Torch
    }
}

impl List<'_> {
    pub(super) fn saving(&mut self) {
        let case = self.case;
        if case.framework() != Framework::Torch {
            self.save_less();
            self.contributors();
            return;
        }
        if case.passes(&["bitsandbytes"]) {
            self.add(
                Lever::StateToHost,
                "Save the adapter alone (model.save_pretrained of peft), not the 8-bit weights below it, which are laid out a \
                 second time on the device to be saved; a current bitsandbytes does without that",
                ALL,
            );
        } else if case.passes(&["zero3_consolidated", "deepspeed/runtime/zero"]) {
            self.save_parts_of_zero();
        } else if case.gathers() {
            self.add(
                Lever::StateToHost,
                "Gather the state in CPU memory, on one rank: FullStateDictConfig(offload_to_cpu=True, rank0_only=True), or \
                 get_model_state_dict with StateDictOptions(full_state_dict=True, cpu_offload=True)",
                ALL,
            );
            self.add(
                Lever::ShardedState,
                "Let every rank save its own part: StateDictType.SHARDED_STATE_DICT, torch.distributed.checkpoint \
                 (fsdp_state_dict_type: SHARDED_STATE_DICT in accelerate), and put the parts together afterwards",
                ALL,
            );
        } else {
            self.add(
                Lever::StateToHost,
                "Copy the state to CPU memory before it is saved: {name: tensor.cpu() for name, tensor in model.state_dict().items()}; \
                 no clone, no second copy of the weights (EMA) on the device",
                ALL,
            );
        }
        self.save_less();
        self.contributors();
        self.micro_batch();
    }

    /// DeepSpeed gathers the weights of each layer on the device where it is told to save them whole.
    fn save_parts_of_zero(&mut self) {
        self.add(
            Lever::ShardedState,
            "Let every rank save its own part: stage3_gather_16bit_weights_on_model_save false in DeepSpeed's configuration \
             (zero3_save_16bit_model false in accelerate), model_engine.save_checkpoint, and zero_to_fp32.py, which lies beside the \
             checkpoint, to put the weights together afterwards, in CPU memory",
            ALL,
        );
        self.add(
            Lever::EmptyCache,
            "Empty the cache before saving: deepspeed.accelerator.get_accelerator().empty_cache(); and keep less on the device in \
             between (stage3_max_live_parameters, stage3_max_reuse_distance, stage3_prefetch_bucket_size)",
            ALL,
        );
    }

    pub(super) fn save_less(&mut self) {
        let what = match (self.case.shows(Sign::Adapters), self.case.framework()) {
            (true, _) => "the adapters alone, not the whole model",
            (false, Framework::Torch) => {
                "the weights alone, in half precision (save_only_model=True in Hugging Face's Trainer); training cannot be resumed \
                 from them"
            }
            (false, _) => "the weights alone, in half precision; training cannot be resumed from them",
        };
        self.add(Lever::SaveLess, format!("Save less, or more rarely: {what}"), ALL);
    }

    pub(super) fn free_checkpoint(&mut self) {
        let load = match self.case.framework() {
            Framework::Torch => {
                "torch.load(..., map_location='cpu'), load_state_dict, then `del checkpoint` (checkpoint = None)"
            }
            _ => "read it into the machine's memory, copy it to the device, and delete it",
        };
        self.add(
            Lever::FreeCheckpoint,
            format!(
                "Do not keep the loaded checkpoint on the device: {load} before the first step; otherwise weights and optimizer states \
                 are there twice"
            ),
            ALL,
        );
    }

    /// Weights do not fit where they are moved to, or a checkpoint is read to the device.
    pub(super) fn loading(&mut self) {
        let case = self.case;
        if case.reads_onto_the_device() {
            self.free_checkpoint();
        }
        if case.judgement.checkpoint == Some(CheckpointWork::OptimizerState) {
            self.smaller_optimizer();
            self.spill();
        }
        let is_of_job = case.facts.log.is_group && case.judgement.holders.is_empty();
        if is_of_job || case.is_shared_among_ranks() {
            self.shard();
        }
        self.half_weights();
        self.adapters();
        self.contributors();
        self.offload();
        self.add(
            Lever::LoadInPieces,
            format!(
                "Load weights to CPU memory first{}, move them once, and delete the checkpoint before the optimizer is made",
                case.framework().to_host()
            ),
            ALL,
        );
        self.shard();
        self.spill();
    }

    fn half_weights(&mut self) {
        if self.case.framework() != Framework::Torch {
            self.precision();
            return;
        }
        let size = self.case.size_of_weights();
        let (text, kin): (_, &[Lever]) = match self.case.loads_in_half() {
            true => (
                format!(
                    "Weights in fewer bytes: 8 or 4 bits (bitsandbytes) take a half or a quarter of the half precision they come \
                     in{size}; or a smaller model"
                ),
                &[Lever::SmallerModel],
            ),
            false => (
                format!(
                    "Weights in fewer bytes: torch_dtype=torch.bfloat16 takes half of fp32, 8 or 4 bits (bitsandbytes) a quarter or an \
                     eighth{size}; or a smaller model"
                ),
                &[Lever::Precision, Lever::SmallerModel],
            ),
        };
        self.add(Lever::Quantize, text, NOT_NUMBERS);
        self.join(Lever::Quantize, kin, "");
    }

    pub(super) fn offload(&mut self) {
        let case = self.case;
        if case.framework() != Framework::Torch || case.activity == Some(Activity::Training) {
            return;
        }
        if case.shows(Sign::Diffusers) || case.shows(Sign::Diffusion) {
            return self.unused_to_host();
        }
        self.add(
            Lever::Offload,
            "Offload a part of the weights to CPU memory: device_map=\"auto\" (Transformers), or sequential CPU offload (diffusers: \
             pipe.enable_sequential_cpu_offload()), or run on the CPU; slower",
            ALL,
        );
    }
}
