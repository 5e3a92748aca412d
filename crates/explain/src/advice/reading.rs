//! Levers for what is read into the machine's memory: data and weights in pieces, less of them at once, a heap that may grow.

use lowtide_core::Bytes;

use super::case::Case;
use super::framework::Framework;
use super::list::{ALL, List, NOT_NUMBERS};
use super::reduction::Dial;
use crate::Lever;
use crate::facts::Key;
use crate::log::{Flag, Sign};
use crate::own_heap::OwnHeap;
use crate::patch::single;

/// What a stack goes through where experience is kept for a learner, all of it reserved at once.
pub(super) const EXPERIENCE: &[&str] = &["replay", "Replay", "rollout_buffer", "RolloutBuffer", "common/buffers"];

impl Case<'_> {
    /// Whether samples are read for a training, or by workers of a loader.
    pub(super) fn feeds_a_training(&self) -> bool {
        let has_workers = self.facts.find(Key::Workers).is_some() || self.facts.log.workers.is_some();
        let has_loader = has_workers || self.passes(&["DataLoader", "torch/utils/data", "dataloader"]);
        has_loader || self.trains() && self.framework() != Framework::Other
    }

    /// The type of an array that was refused, a narrower one, and by how much it is narrower.
    fn wide_numbers(&self) -> Option<(&'static str, &'static str, u64)> {
        let types = [
            ("float64", "float32", 2),
            ("int64", "int32", 2),
            ("complex128", "complex64", 2),
            ("object", "float32", 2),
        ];
        types.into_iter().find(|(wide, ..)| self.message.contains(&format!("data type {wide}")))
    }

    pub(super) fn weights_in_pieces(&self) -> &'static str {
        match self.framework() {
            Framework::Torch => {
                "Read weights in pieces: low_cpu_mem_usage=True, safetensors, torch.load(..., mmap=True), and only one copy \
                 of them; let one rank read at a time"
            }
            _ => "Read weights in pieces or memory-mapped instead of whole",
        }
    }
}

impl List<'_> {
    /// A heap with a limit of its own is no matter of loaders and tensors.
    pub(super) fn own_heap(&mut self, heap: OwnHeap) {
        if heap == OwnHeap::JavaArray {
            return self.add(Lever::LoadInPieces, heap.advice(), ALL);
        }
        self.add(Lever::RaiseLimit, heap.advice(), ALL);
        self.join(Lever::RaiseLimit, &[Lever::MoreMemory], "; or a machine with more memory");
        if heap.holds_data() {
            self.less_at_once();
            let words = "; or fewer threads and processes side by side";
            self.join(Lever::SmallerInput, &[Lever::FewerJobs, Lever::FewerWorkers], words);
        }
    }

    pub(super) fn less_at_once(&mut self) {
        let text = "Put in less at once: a part of the data, a coarser one, or one piece after the other";
        self.add(Lever::SmallerInput, text, NOT_NUMBERS);
        self.join(Lever::SmallerInput, &[Lever::LoadInPieces, Lever::FewerRequests], "");
    }

    /// Nothing tells what filled the memory.
    pub(super) fn read_in_pieces(&mut self) {
        let case = self.case;
        let (text, keeps) = match (case.shows(Sign::Umap), case.framework()) {
            (true, _) => (
                "Let UMAP keep less: low_memory=True and init=\"random\" for it, or fit it on a part of the data and transform the \
                 rest",
                NOT_NUMBERS,
            ),
            (false, Framework::Other) => {
                ("Read data and weights in pieces, lazily or memory-mapped instead of whole", ALL)
            }
            (false, _) => (
                "Read data and weights in pieces, lazily or memory-mapped instead of whole (np.load with mmap_mode, np.memmap, \
                 streaming)",
                ALL,
            ),
        };
        self.add(Lever::LoadInPieces, text, keeps);
        if case.shows(Sign::Speech) {
            let words = "; or a smaller model, or its weights in fewer bits (int8)";
            self.join(Lever::LoadInPieces, &[Lever::SmallerModel, Lever::Quantize], words);
        }
        if case.facts.find(Key::Cache).is_none() {
            let words = match case.feeds_a_training() {
                true => "; or keep less at once: a smaller cache, replay or shuffle buffer",
                false => "; or keep less at once: a smaller cache",
            };
            self.join(Lever::LoadInPieces, &[Lever::SmallerDataCache], words);
        }
        self.fewer_samples_beside(Lever::LoadInPieces);
        self.fewer_at_once_beside(Lever::LoadInPieces);
    }

    /// What runs side by side, and what goes in at once, where nothing tells what filled the memory.
    fn fewer_at_once_beside(&mut self, lever: Lever) {
        if !self.case.trains() {
            let words = "; or fewer and smaller inputs at once";
            self.join(lever, &[Lever::FewerRequests, Lever::SmallerInput], words);
        }
        let is_set = self.case.facts.find(Key::Workers).is_some();
        let words = match (self.case.feeds_a_training(), self.case.framework()) {
            _ if is_set => return,
            (true, Framework::Torch) => {
                "; or fewer processes, threads and data workers side by side (jobs, cores, num_workers)"
            }
            (true, _) => "; or fewer processes, threads and data workers side by side (jobs, cores)",
            (false, _) => "; or fewer processes and threads side by side (jobs, cores)",
        };
        self.join(lever, &[Lever::FewerWorkers, Lever::FewerJobs], words);
    }

    /// Vectors of texts: fewer texts at once, and all of them in parts.
    pub(super) fn fewer_texts(&mut self) {
        let shown = self.case.facts.flags.number(Flag::EncodeBatch);
        let usual = if shown.is_none() { Some(8) } else { Some(32) };
        if let Some(fewer) = (Dial { name: "batch_size", usual, shown, least: 1 }).lowered() {
            let text = format!("Fewer texts at once: {fewer} in encode, or shorter ones (max_seq_length)");
            self.add(Lever::FewerRequests, text, NOT_NUMBERS);
            self.join(Lever::FewerRequests, &[Lever::MicroBatch, Lever::ShorterSequence], "");
        }
        self.add(
            Lever::LoadInPieces,
            "Encode the texts in chunks, some ten thousand at a time, and write the vectors of each to disk (np.save, a memory-mapped \
             array) instead of keeping all of them; read the texts chunk by chunk too",
            ALL,
        );
        let words = "; fewer processes of a pool (start_multi_process_pool), each of which has a model of its own";
        self.join(Lever::LoadInPieces, &[Lever::FewerWorkers], words);
        self.more_memory();
    }

    /// An array of numbers that are wider than they need be.
    pub(super) fn smaller_type(&mut self) {
        let Some((wide, narrow, part)) = self.case.wide_numbers() else { return };
        let size =
            self.case.oom.requested.map_or(String::new(), |bytes| format!(", {} here", Bytes(bytes.get() / part)));
        let text = format!(
            "A narrower type (dtype={narrow}{size}) in place of {wide}, or the array in pieces, or fewer or smaller samples in it; check \
             that its shape is what you meant"
        );
        self.add(Lever::SmallerType, text, NOT_NUMBERS);
        self.join(Lever::SmallerType, &[Lever::LoadInPieces, Lever::SmallerInput], "");
    }

    pub(super) fn data_cache(&mut self) {
        let (case, facts) = (self.case, self.case.facts);
        if let Some(((config, setting), size)) =
            facts.find(Key::Cache).zip(facts.number(Key::Cache)).filter(|(_, size)| *size > 1)
        {
            let smaller = size / 2;
            self.offer(single(config, setting, smaller));
            let text = format!("Keep less data in memory: {} {smaller} instead of {size}", setting.path.join("."));
            return self.add(Lever::SmallerDataCache, text, ALL);
        }
        if case.passes(EXPERIENCE) {
            let text = "Keep less experience in memory: a smaller replay or rollout buffer (buffer_size, replay_size, n_steps), fewer \
                        environments at once, observations of a lower resolution and in uint8; all of it is reserved at once";
            return self.add(Lever::SmallerDataCache, text, NOT_NUMBERS);
        }
        let ahead = match (case.feeds_a_training(), case.framework()) {
            (true, Framework::Torch) => {
                "; a smaller cache or shuffle buffer, fewer prefetched batches (prefetch_factor), no pinned copies"
            }
            (true, _) => "; a smaller cache or shuffle buffer, fewer prefetched batches",
            (false, _) => "; a smaller cache",
        };
        let text = format!(
            "Keep less data in memory: read it lazily or in pieces (memory-mapped, streaming) instead of whole{ahead}"
        );
        self.add(Lever::SmallerDataCache, text, ALL);
        self.join(Lever::SmallerDataCache, &[Lever::LoadInPieces], "");
    }
}
