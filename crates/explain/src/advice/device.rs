//! Levers for the device as a whole: its allocator, who else is on it, limits, and what lies outside the allocator.

use lowtide_core::Bytes;
use lowtide_oom::{DeviceKind, Engine, Place, Source};

use super::case::Case;
use super::framework::Framework;
use super::list::{ALL, Gain, List};
use crate::Activity;
use crate::log::{Flag, Sign};
use crate::patch::export;
use crate::verdict::{Cause, Lever};

/// What the caching allocator of the PyTorch that wrote a message can be told about pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AllocatorSwitch {
    /// From 2.1 on.
    Expandable,
    /// From 1.10 on, whose messages name it.
    MaxSplit,
    /// Before.
    None,
}

/// GiB of host memory that are advised at least as a reserve.
const LEAST_RESERVE: u64 = 4;

impl Case<'_> {
    /// By the words of the message, which changed with the versions.
    pub(super) fn allocator_switch(&self) -> AllocatorSwitch {
        let has = |words: &str| self.message.contains(words);
        match has("already allocated") || has(" cached)") {
            true if has("max_split_size_mb") => AllocatorSwitch::MaxSplit,
            true => AllocatorSwitch::None,
            false => AllocatorSwitch::Expandable,
        }
    }

    /// What keeps memory from lying in pieces, as a variable and its value.
    pub(super) fn allocator_setting(&self) -> (&'static str, &'static str) {
        match (self.framework(), self.oom.device_kind, self.allocator_switch()) {
            (Framework::Tensorflow | Framework::Jax, ..) => ("TF_GPU_ALLOCATOR", "cuda_malloc_async"),
            (_, Some(DeviceKind::Npu), _) => ("PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True"),
            (_, Some(DeviceKind::Hip), AllocatorSwitch::Expandable) => {
                ("PYTORCH_HIP_ALLOC_CONF", "expandable_segments:True")
            }
            (_, Some(DeviceKind::Hip), _) => ("PYTORCH_HIP_ALLOC_CONF", "max_split_size_mb:512"),
            (_, _, AllocatorSwitch::Expandable) => ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
            _ => ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:512"),
        }
    }

    /// Whether segments may grow already, by what the log shows of this run.
    pub(super) fn lets_segments_grow(&self) -> bool {
        let is_expandable = self.allocator_switch() == AllocatorSwitch::Expandable;
        self.facts.log.switches.expandable_segments && is_expandable && self.framework() == Framework::Torch
    }

    /// Whether the message is of a PyTorch before 1.10.
    pub(super) fn is_old_torch(&self) -> bool {
        self.framework() == Framework::Torch && self.allocator_switch() == AllocatorSwitch::None
    }

    /// Whether pieces are the matter beyond doubt, and the allocator can be told.
    pub(super) fn is_clearly_in_pieces(&self) -> bool {
        let is_clear = self.judgement.cause == Cause::Fragmentation && self.judgement.certainty >= 0.6;
        is_clear && self.allocator_switch() != AllocatorSwitch::None
    }

    /// Whether others fill the card beyond doubt, or the log shows a card that is free.
    fn is_clearly_others(&self) -> bool {
        let judgement = self.judgement;
        let is_shown = !judgement.free_cards.is_empty() || self.is_shared_among_ranks();
        judgement.certainty >= 0.7 || is_shown || self.is_first_use()
    }

    /// Whether what is free and idle together is as much as was asked for.
    pub(super) fn fits_in_pieces(&self) -> bool {
        let free = self.oom.free.zip(self.oom.reserved_unallocated_or_derived());
        free.zip(self.oom.requested).is_some_and(|((free, idle), asked)| free.saturating_add(idle) >= asked)
    }

    /// Whether a few bytes were refused on a card of which nothing was free and nothing is known to be this process's: others have it.
    fn is_refused_a_crumb(&self) -> bool {
        let is_full = self.oom.free.is_some_and(|free| free.is_zero()) && self.oom.allocated.is_none();
        is_full && self.oom.requested.is_some_and(|asked| asked < Bytes::from_mib(1))
    }

    /// Whether far more was free than was asked for, and no limit is printed: who held it may be gone.
    fn had_plenty(&self) -> bool {
        let free = self.oom.free.unwrap_or_default();
        self.oom.place == Place::Device
            && self.oom.limit.is_none()
            && self.oom.requested.is_some_and(|asked| free.get() / 4 > asked.get())
            && free.get() > 1 << 30
    }

    /// Whether so much was free that others are only one of the possibilities.
    fn had_room_after_all(&self) -> bool {
        self.had_plenty() && !self.judgement.possibilities.is_empty() && !self.is_shared_among_ranks()
    }

    /// Whether the driver refused before a step ended: nothing of this run can have filled the device.
    fn is_first_use(&self) -> bool {
        // PyTorch 0.4 and 1.0 had no other words, whoever asked.
        let is_refused = self.oom.source == Source::Runtime && !self.computes_with_the_model();
        (is_refused || self.message.contains("implicit initialization")) && !self.has_run()
    }

    /// Whether something was computed before, by the log or by what people tell.
    pub(super) fn has_run(&self) -> bool {
        let told = self.narrative();
        self.step.is_some()
            || self.facts.log.has_progress
            || self.activity == Some(Activity::Evaluation)
            || told.evaluates
            || told.fails_later
            || told.grows
    }

    /// Whether the library that was refused takes each of its tensors from the driver.
    fn asks_the_driver(&self) -> bool {
        self.message.contains("tiny-cuda-nn")
    }

    /// Whether Windows has less memory than the card, for which its page file has to stand in.
    fn needs_a_page_file(&self) -> bool {
        let told = self.narrative();
        let is_less = told.machine_gigabytes.zip(told.card_gigabytes).is_some_and(|(machine, card)| machine < card);
        is_less && (told.names_windows || self.shows(Sign::Windows))
    }

    /// Whether the stack ends where a model computes, and not where it is made or moved.
    fn computes_with_the_model(&self) -> bool {
        let words =
            ["backward", "forward", "optimize_parameters", " model(", "self.model(", " @ ", "matmul(", "softmax("];
        self.passes(&words)
    }

    /// Who gives a process of the machine its memory, and how it is asked for more.
    fn host_limit(&self, limit: &str) -> String {
        match self.oom.engine {
            Engine::Dask => format!(
                "Give each Dask worker more memory{limit}: memory_limit (--memory-limit) up, or fewer workers on the machine; and \
                 smaller partitions or chunks"
            ),
            Engine::Spark => format!(
                "Ask for more memory{limit}: spark.executor.memoryOverhead (spark.yarn.executor.memoryOverhead before Spark 2.3) \
                 or spark.executor.memory up, or fewer cores for each executor{}",
                if self.message.contains("irtual memory limits") || self.message.contains("'VIRTUAL'") {
                    "; or let YARN not count addresses: yarn.nodemanager.vmem-check-enabled=false"
                } else {
                    "; mapreduce.map.memory.mb and mapreduce.reduce.memory.mb for MapReduce"
                }
            ),
            Engine::Tensorflow | Engine::Xla => format!(
                "Let TensorFlow pin more of the machine's memory{limit}: TF_GPU_HOST_MEM_LIMIT_IN_MB in the environment (64 GiB unless \
                 it is set)"
            ),
            Engine::Condor => format!("Ask for more memory{limit}: request_memory in the submit file"),
            Engine::Python => {
                format!("Raise the program's own limit{limit}: memory_limit, in MB, up to what the machine has")
            }
            Engine::Pbs => format!("Ask for more memory{limit}: mem= in -l select (or -l mem=, -l vmem=)"),
            Engine::Lsf => format!("Ask for more memory{limit}: -M, and -R \"rusage[mem=...]\""),
            Engine::Slurm => format!("Ask for more memory{limit}: --mem or --mem-per-cpu, for srun and sbatch"),
            Engine::Kubernetes => {
                format!("Ask for more memory{limit}: resources.limits.memory for Kubernetes, --memory for Docker")
            }
            _ if self.message.contains("kubepods") => {
                format!("Ask for more memory{limit}: resources.limits.memory of the container")
            }
            _ => format!(
                "Ask for more memory{limit}: --mem or --mem-per-cpu for Slurm, resources.limits.memory for Kubernetes, \
                 --memory for Docker, ulimit -v"
            ),
        }
    }
}

impl List<'_> {
    /// What stands in the way besides the need itself comes first.
    pub(super) fn what_stands_in_the_way(&mut self) {
        let case = self.case;
        // Without figures people's word for it is all there is.
        let told = case.narrative();
        let is_shared = told.shares_the_card && case.oom.capacity.is_none();
        let is_shared = is_shared || case.is_refused_a_crumb();
        if (is_shared || told.crowds_the_first_card) && case.oom.place == Place::Device {
            self.other_process();
        }
        if told.asks_for_another_card {
            self.other_card();
        }
        if case.shows(Sign::VolatileGone) {
            self.no_graph();
        }
        if case.message.contains("faiss::gpu") {
            let text = "Let faiss reserve less: noTempMemory() or setTempMemory(bytes) of its StandardGpuResources, which holds a part \
                        of the card from the start; or add vectors in smaller pieces";
            self.add(Lever::LeaveRoom, text, ALL);
        }
        if case.needs_a_page_file() && case.oom.place == Place::Device {
            self.page_file();
        }
        if case.judgement.rank_contexts.is_some() {
            self.other_process();
        }
        match case.judgement.cause {
            Cause::Fragmentation if case.is_clearly_in_pieces() => self.expandable(),
            // What was free says that it need not be others: a closer look comes first.
            Cause::OtherProcess if case.had_room_after_all() => {
                self.look_at_the_card();
                if case.makes_one_tensor() {
                    self.look_for_a_limit();
                }
            }
            Cause::OtherProcess => {
                self.other_process();
                // Where it may as well be the need, what makes that smaller is the second thing to try.
                if case.is_clearly_others() && !case.is_shared_among_ranks() {
                    self.other_card();
                }
            }
            Cause::Limit => self.limit(),
            // Engines that ask the driver for each tensor have nothing outside an allocator.
            Cause::OutsideAllocator if case.framework() == Framework::Other || case.asks_the_driver() => {}
            // A large picture fills a card by itself.
            Cause::OutsideAllocator if told.names_large_pictures && case.oom.source == Source::Runtime => {}
            Cause::OutsideAllocator if case.fits_in_pieces() => {
                self.expandable();
                self.outside();
            }
            Cause::OutsideAllocator if case.is_said_to_evaluate() && case.oom.source == Source::Runtime => {}
            // Where only the driver's word is there, the phase tells more; unless nothing ran yet.
            Cause::OutsideAllocator if case.oom.source != Source::Runtime || case.is_first_use() => self.outside(),
            Cause::OutsideAllocator if case.computes_with_the_model() => {}
            Cause::OutsideAllocator if case.activity.is_none() && !case.trains() => self.outside(),
            _ if case.oom.device_kind == Some(DeviceKind::Mps) && case.has(Cause::Limit) => self.limit(),
            _ => {}
        }
        if case.had_plenty() {
            self.look_at_the_card();
        }
    }

    pub(super) fn expandable(&mut self) {
        if self.case.lets_segments_grow() {
            return self.idle_in_segments_that_grow();
        }
        let needed = self.case.need_of_a_step();
        let switch = self.case.allocator_switch();
        let (name, value) = self.case.allocator_setting();
        if let Some(size) = self.case.facts.log.switches.max_split.filter(|_| value.starts_with("max_split")) {
            let text = format!(
                "Update PyTorch to 2.1 or newer, and export {name}=expandable_segments:True there: blocks above {size} MiB are \
                 kept whole already, by max_split_size_mb"
            );
            return self.push(Lever::ExpandableSegments, text, Gain::peak(needed), ALL);
        }
        self.offer(self.case.facts.configs.iter().rev().find_map(|config| export(config, name, value)));
        let text = match switch {
            AllocatorSwitch::Expandable => {
                format!("Reduce fragmentation: export {name}={value}")
            }
            AllocatorSwitch::MaxSplit => format!(
                "Reduce fragmentation: export {name}={value}; from PyTorch 2.1 on, expandable_segments:True does more"
            ),
            AllocatorSwitch::None => format!(
                "Reduce fragmentation: export {name}={value} (PyTorch 1.10 and later; this one may be older), or update PyTorch"
            ),
        };
        self.push(Lever::ExpandableSegments, text, Gain::peak(needed), ALL);
    }

    /// What helps against idle memory where the allocator's switch is set already.
    pub(super) fn idle_in_segments_that_grow(&mut self) {
        self.add(
            Lever::EmptyCache,
            "Check whether expandable segments, which the log shows set, are in force: \
             torch.cuda.memory._snapshot()[\"allocator_settings\"] (they have to be set before torch is imported, in the process \
             that trains). Where they are, what is idle belongs to another stream or to CUDA graphs \
             (torch.compile's reduce-overhead), or lies around tensors of sizes that change: pad to a few lengths, and call \
             torch.cuda.empty_cache() between phases, not in each step",
            ALL,
        );
    }

    /// Nothing in the script changes, and the step is done: slowly, and the whole of it.
    pub(super) fn reserve(&mut self) {
        let case = self.case;
        let is_nvidia = matches!(case.oom.device_kind, None | Some(DeviceKind::Cuda));
        let is_new = case.allocator_switch() == AllocatorSwitch::Expandable && case.oom.source == Source::Allocator;
        let Some(requested) = case.oom.requested.filter(|_| is_nvidia && is_new) else { return };
        if case.framework() != Framework::Torch {
            return;
        }
        // Whoever asked was not the last one who would have.
        let size = LEAST_RESERVE.max(requested.get().saturating_mul(4).div_ceil(1 << 30));
        let text = match case.shows(Sign::Reserve) {
            // How large it was is not read, so no size is named that might be smaller.
            true => "A larger reserve of host memory than the one it had (lowtide run --reserve)".to_owned(),
            false => format!(
                "Let PyTorch (2.8 or newer) fall back on host memory where the card is full: lowtide run --reserve \
                 {size}GiB -- followed by your command; such a step is slow instead of out of memory"
            ),
        };
        self.add(Lever::Reserve, text, ALL);
    }

    pub(super) fn limit(&mut self) {
        let case = self.case;
        // Metal's limit is taken away by a ratio of zero.
        let is_unlimited = case.facts.flags.value(Flag::Watermark).is_some_and(|ratio| ratio.parse() == Ok(0.0));
        if is_unlimited && case.oom.device_kind == Some(DeviceKind::Mps) && case.oom.engine != Engine::Mlx {
            return;
        }
        let limit = case.oom.limit.map_or(String::new(), |limit| format!(" (it is {limit})"));
        let text = match (case.oom.place, case.oom.device_kind, case.framework()) {
            (Place::Device, ..) if case.message.contains("larger than 4GB") => {
                "Allow blocks above 4 GB: UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1 where the driver has it; else nothing \
                 may be larger in one piece"
                    .to_owned()
            }
            (Place::Device, ..) if case.oom.source == Source::Scheduler => {
                format!("Ask for a larger part of the card{limit}: `nvidia.com/gpumem` in the container's resources, in MiB")
            }
            (Place::Device, ..) if case.oom.engine == Engine::Mlx => format!(
                "Raise the limit{limit}: `sudo sysctl iogpu.wired_limit_mb=` with what the model needs, below the machine's memory \
                 (macOS 15 or later, until the next start); let MLX keep less (mx.set_cache_limit), and close other programs"
            ),
            (Place::Device, Some(DeviceKind::Mps), _) => format!(
                "Raise the limit{limit}: PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 removes Metal's limit, but the whole Mac may freeze where \
                 its memory is full: close other programs first"
            ),
            (Place::Device, _, Framework::Torch) => {
                format!("Raise the limit{limit}: set_per_process_memory_fraction, or the engine's own memory fraction")
            }
            (Place::Device, _, Framework::Tensorflow) => {
                format!("Raise the limit{limit}: memory_limit of tf.config.set_logical_device_configuration")
            }
            (Place::Device, _, Framework::Jax) => return self.larger_jax_pool(),
            (Place::Device, ..) => format!("Raise the limit{limit}: the engine's own memory fraction"),
            (Place::Host, ..) => case.host_limit(&limit),
        };
        self.push(Lever::RaiseLimit, text, Gain::peak(case.needed()), ALL);
    }

    pub(super) fn outside(&mut self) {
        let case = self.case;
        let framework = case.framework();
        let leave = case.leave_room();
        // A library that gets no memory for a step says what an allocator would have said of a larger batch.
        let computes = case.trains() || case.activity == Some(Activity::Training);
        let is_of_step = matches!(case.oom.source, Source::Blas | Source::Dnn) && framework.preallocation().is_none();
        let halves = computes && is_of_step;
        if case.is_first_use() {
            self.other_process();
            if framework.preallocation().is_some() {
                self.join_others(&[Lever::LeaveRoom], &format!("; or {leave}"));
            }
            // A line alone may be a cut one of a step.
            if case.frames.is_empty() {
                self.micro_batch();
                self.smaller_samples();
            }
        }
        let less = match computes {
            _ if halves || self.names(Lever::MicroBatch) => "",
            true => "half the batch with twice the gradient accumulation, or ",
            false => "fewer samples at once, or ",
        };
        let text = match case.oom.source {
            Source::Collectives => format!(
                "Leave room for NCCL: {less}{leave}; and make its buffers smaller (NCCL_BUFFSIZE, fewer channels)"
            ),
            Source::Blas => format!(
                "Leave room for cuBLAS: {less}{leave}; where memory is free, an index out of range shows itself this \
                 way too: run once with CUDA_LAUNCH_BLOCKING=1"
            ),
            Source::Dnn if framework == Framework::Torch => {
                format!("Leave room for cuDNN: {less}{leave}, and turn torch.backends.cudnn.benchmark off")
            }
            Source::Dnn => format!("Leave room for cuDNN: {less}{leave}"),
            _ => format!("Leave room for what the allocator does not count (contexts, libraries): {less}{leave}"),
        };
        self.add(Lever::LeaveRoom, text, ALL);
        if halves {
            self.micro_batch();
            self.smaller_samples();
        }
        self.other_card();
        if case.oom.source == Source::Runtime {
            self.other_process();
        }
    }

    /// What worked once fails where the first run is still on the device.
    pub(super) fn start_afresh(&mut self) {
        if self.case.narrative().restart_helps {
            let text = format!(
                "End what an earlier run left on the device, which is what a restart did: {} shows its process, kill ends it",
                self.case.card_tool()
            );
            self.add(Lever::EndOtherProcess, text, ALL);
            self.join(Lever::EndOtherProcess, &[Lever::RestartKernel], "; in a notebook, restart its kernel");
        }
        if !self.case.narrative().runs_again || self.case.framework() != Framework::Torch {
            return;
        }
        self.add(
            Lever::RestartKernel,
            "Restart the notebook's kernel (or end the process of the first run): it still holds what that run left on the device",
            ALL,
        );
        let words = format!(
            "; or, between two runs, delete the model and its outputs, then gc.collect() and {}.empty_cache()",
            self.case.torch_device()
        );
        self.join(Lever::RestartKernel, &[Lever::EmptyCache], &words);
    }

    /// A notebook's kernel holds what a failed cell left.
    pub(super) fn restart_kernel(&mut self) {
        if self.case.shows(Sign::Notebook) {
            self.add(
                Lever::RestartKernel,
                "Restart the notebook's kernel: after an error it holds what the failed cell left on the device",
                ALL,
            );
        }
    }
}
