//! Levers for what runs side by side on a machine: data workers, processes that map rows, tasks of Ray, ranks. Each holds
//! copies of its own, and they share what is in `/dev/shm`.

use lowtide_oom::Source;

use super::case::Case;
use super::framework::Framework;
use super::list::{ALL, List};
use super::reduction::reduced;
use crate::Lever;
use crate::facts::Key;
use crate::log::Sign;
use crate::patch::single;

/// With fewer, the copies that data workers hold are seldom what fills a machine.
const MANY_WORKERS: u64 = 4;

impl Case<'_> {
    /// Whether a process is gone that mapped the rows of one of Hugging Face's datasets.
    pub(super) fn loses_a_mapper(&self) -> bool {
        self.message.contains("during map operation")
    }

    /// Whether so many data workers are named that what they hold counts.
    pub(super) fn has_many_workers(&self) -> bool {
        self.facts.number(Key::Workers).max(self.facts.log.workers) >= Some(MANY_WORKERS)
    }
}

impl List<'_> {
    pub(super) fn workers(&mut self) {
        let facts = self.case.facts;
        match facts.find(Key::Workers).zip(facts.number(Key::Workers)) {
            Some(((config, setting), workers)) if workers > 0 => {
                let fewer = workers / 2;
                let text = format!(
                    "Fewer data workers: {} {fewer} instead of {workers}; each holds its own copy of what it reads",
                    setting.path.join(".")
                );
                self.offer(single(config, setting, fewer));
                self.add(Lever::FewerWorkers, text, ALL);
            }
            Some(_) => {}
            None => {
                let shown = facts.log.workers.filter(|workers| *workers > 0);
                let name = if self.case.framework() == Framework::Torch { "num_workers " } else { "" };
                let here = match (reduced(Some(2), shown, 1), shown) {
                    (Some(fewer), Some(workers)) => format!("{fewer} instead of {workers}, or 0"),
                    (Some(fewer), None) => format!("{name}{fewer}, or 0"),
                    (None, _) => "0 instead of 1".to_owned(),
                };
                let text = format!("Fewer data workers ({here}): each holds its own copy of what it reads");
                self.add(Lever::FewerWorkers, text, ALL);
            }
        }
    }

    /// Fewer data workers, where there are many and the process was killed.
    pub(super) fn many_workers(&mut self) {
        let is_kill = !matches!(self.case.oom.source, Source::Allocator | Source::Heap);
        if is_kill && self.case.has_many_workers() {
            self.workers();
        }
    }

    /// What workers hold is less where less is kept of the data.
    pub(super) fn less_data_beside_workers(&mut self) {
        if self.case.facts.find(Key::Cache).is_none() {
            let words = "; or less data in each: read it lazily instead of whole, without a cache of all samples";
            self.join(Lever::FewerWorkers, &[Lever::SmallerDataCache], words);
        }
        self.fewer_samples_beside(Lever::FewerWorkers);
    }

    /// A smaller batch where one is set: each worker holds several of them ahead.
    pub(super) fn fewer_samples_beside(&mut self, lever: Lever) {
        let case = self.case;
        let is_kill = !matches!(case.oom.source, Source::Allocator | Source::Heap);
        // Who shows no stack may have been anywhere.
        let is_open = is_kill || case.shows(Sign::Batch) || case.frames.is_empty();
        if case.trains() && is_open && case.facts.batch() != Some(1) {
            let words = "; or a smaller batch: several are held ahead of the step";
            self.join(lever, &[Lever::MicroBatch], words);
        }
    }

    /// Rows that Hugging Face's datasets hold before they write them.
    pub(super) fn smaller_writer(&mut self) {
        self.add(
            Lever::SmallerWriter,
            "Write rows sooner: writer_batch_size=100 (10 for pictures or sound) and a smaller batch_size for map, fewer \
             processes (num_proc, preprocessing_num_workers); each holds that many rows",
            ALL,
        );
    }

    /// Fewer of the processes that map rows, each of which holds as many as are written at once.
    pub(super) fn fewer_mappers(&mut self) {
        let fewer = match self.case.facts.log.mappers.filter(|mappers| *mappers > 2) {
            Some(mappers) => format!("num_proc {} instead of {mappers}", (mappers / 4).max(2)),
            None => "num_proc, preprocessing_num_workers".to_owned(),
        };
        let text = format!(
            "Fewer processes for map ({fewer}): each holds the rows it has not written; and rows written sooner: \
             writer_batch_size=100 (10 for pictures or sound) and a smaller batch_size for map"
        );
        self.add(Lever::FewerWorkers, text, ALL);
        self.join(Lever::FewerWorkers, &[Lever::SmallerWriter], "");
    }

    /// Fewer of Ray's tasks on a node, whose memory they share.
    pub(super) fn fewer_tasks(&mut self) {
        self.add(
            Lever::FewerJobs,
            "Fewer tasks side by side on a node: more CPUs or memory= asked for by each (num_cpus, ray.remote, ScalingConfig), \
             fewer workers; or a larger node",
            ALL,
        );
        self.join(Lever::FewerJobs, &[Lever::FewerWorkers, Lever::MoreMemory], "");
    }

    pub(super) fn shared_memory(&mut self) {
        self.add(
            Lever::SharedMemory,
            "Make /dev/shm larger (docker run --shm-size=8g or --ipc=host; an emptyDir of medium Memory in Kubernetes), or share \
             tensors by file_system",
            ALL,
        );
    }

    /// What NCCL passes between ranks of one machine.
    pub(super) fn shared_by_ranks(&mut self) {
        self.add(
            Lever::SharedMemory,
            "Make /dev/shm larger (docker run --shm-size=8g or --ipc=host; an emptyDir of medium Memory in Kubernetes), and \
             remove what ended runs left in it (rm /dev/shm/nccl-*, only when no job runs on the machine)",
            ALL,
        );
        let text = "Let NCCL do without it: NCCL_SHM_DISABLE=1; ranks of a machine then talk by peer access or the network, \
                    which may be slower";
        self.add(Lever::LeaveRoom, text, ALL);
    }
}
