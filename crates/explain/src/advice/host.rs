//! Which levers the machine's own memory has.

use lowtide_oom::Source;

use super::list::List;
use crate::facts::Key;
use crate::log::Activity;
use crate::patch::single;
use crate::verdict::Lever;

impl List<'_> {
    pub(super) fn host(&mut self) {
        let case = self.case;
        match case.oom.source {
            Source::SharedMemory => {
                self.add(
                    Lever::SharedMemory,
                    "Make /dev/shm larger (docker run --shm-size=8g or --ipc=host; an emptyDir of medium Memory in \
                     Kubernetes), or share \
                     tensors by file_system",
                );
                self.workers();
            }
            Source::ExitStatus => {
                self.add(
                    Lever::CheckLog,
                    "Look whether the kernel ended it: dmesg -T | grep -i 'killed process', or sacct -j JOB \
                     --format=State,MaxRSS",
                );
                self.workers();
            }
            Source::Cgroup | Source::Scheduler => {
                self.limit();
                self.workers();
            }
            Source::Allocator | Source::Heap if case.activity != Some(Activity::DataWorker) => {
                let is_loading = case.activity == Some(Activity::Loading);
                if case.facts.log.address_limit.is_some() {
                    self.process_limit();
                }
                self.add(
                    Lever::LoadInPieces,
                    "Read data and weights in pieces or memory-mapped instead of whole (mmap=True, np.memmap, \
                     streaming)",
                );
                if !is_loading {
                    self.micro_batch();
                }
                self.process_limit();
                self.workers();
            }
            _ => self.workers(),
        }
        self.data_cache();
        self.add(
            Lever::MoreMemory,
            "Run where there is more memory, or add swap so that the end comes as slowness instead",
        );
    }

    /// A limit that the process was started under refuses memory that the machine still has.
    fn process_limit(&mut self) {
        let text = "Look at the limits the process was started under (ulimit -v, which is RLIMIT_AS, and ulimit -d), \
                    and raise one that is below what the machine has";
        self.add(Lever::RaiseLimit, text);
    }

    pub(super) fn data_cache(&mut self) {
        let facts = self.case.facts;
        let text = match facts.find(Key::Cache).zip(facts.number(Key::Cache)) {
            Some(((config, setting), size)) if size > 1 => {
                let smaller = size / 2;
                self.offer(single(config, setting, smaller));
                format!("Keep less data in memory: {} {smaller} instead of {size}", setting.path.join("."))
            }
            _ => "Keep less data in memory: a smaller cache, fewer prefetched batches (prefetch_factor), no pinned \
                copies"
                .to_owned(),
        };
        self.add(Lever::SmallerDataCache, text);
    }

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
                self.add(Lever::FewerWorkers, text);
            }
            Some(_) => {}
            None => self
                .add(Lever::FewerWorkers, "Fewer data workers (num_workers): each holds its own copy of what it reads"),
        }
    }
}
