//! Which files hold which made-up items.

use std::ops::Range;

use lowtide_args::{Format, ScoringArgs};
use lowtide_core::Bytes;
use lowtide_generators::traces::{ItemFiles, ItemFormat, PickledItems, SyntheticItems};
use lowtide_tensorfile::Packing;
use serde::Serialize;

use crate::output::Failure;

/// Samples of a batch file where nothing else is said.
const PER_FILE: u64 = 64;
/// More than any folder is good for.
const MOST_FILES: usize = 1_000_000;
/// So many are 440 GB, and more with longer sequences.
const MOST_SAMPLES: u64 = 100_000_000;

/// Where a file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Cut {
    PerFile(u64),
    FileSize(Bytes),
}

/// What is to be written.
pub(super) struct ScoringFiles {
    pub(super) data: ItemFiles,
    pub(super) format: Format,
    pub(super) cut: Cut,
    /// The numbers of the samples of each file.
    pub(super) ranges: Vec<Range<u64>>,
}

impl ScoringFiles {
    pub(super) fn of(args: &ScoringArgs) -> Result<ScoringFiles, Failure> {
        let pickles = args.format != Format::Pt;
        let cut = match args.file_size {
            Some(size) => Cut::FileSize(size),
            None => Cut::PerFile(args.per_file.unwrap_or(if pickles { 1 } else { PER_FILE })),
        };
        if cut == Cut::PerFile(0) {
            return Err(Failure::bad_input("--per-file must be at least 1".to_owned(), None));
        }
        let alone = if cut == Cut::PerFile(1) { PickledItems::One } else { PickledItems::List };
        let format = match args.format {
            Format::Pt => ItemFormat::Pt,
            Format::Pkl => ItemFormat::Pickle(Packing::Plain, alone),
            Format::PklGz => ItemFormat::Pickle(Packing::Gzip, alone),
        };
        let items = SyntheticItems { seed: args.seed, count: u64::MAX };
        let data = ItemFiles { items, steps: args.steps.clone(), format };
        let (mut ranges, mut bytes, mut next) = (Vec::new(), Bytes::ZERO, 0);
        let is_enough = |bytes: Bytes, next: u64| match args.size {
            Some(size) => bytes >= size,
            None => Some(next) >= args.samples,
        };
        while !is_enough(bytes, next) {
            if ranges.len() >= MOST_FILES {
                return Err(Failure::bad_input(
                    format!("more than {MOST_FILES} files: make them larger with --per-file"),
                    None,
                ));
            }
            if next >= MOST_SAMPLES {
                return Err(Failure::bad_input(
                    format!("more than {MOST_SAMPLES} samples: make them larger with --steps"),
                    None,
                ));
            }
            let (start, mut file_bytes) = (next, Bytes::ZERO);
            let is_full = |next: u64, file_bytes: Bytes| match cut {
                Cut::FileSize(size) => file_bytes >= size && next > start,
                Cut::PerFile(samples) => next - start >= samples,
            };
            while next < MOST_SAMPLES
                && !is_full(next, file_bytes)
                && !is_enough(bytes.saturating_add(file_bytes), next)
            {
                file_bytes = file_bytes.saturating_add(data.bytes_of(next));
                next += 1;
            }
            bytes = bytes.saturating_add(file_bytes);
            ranges.push(start..next);
        }
        if ranges.is_empty() {
            return Err(Failure::bad_input("there must be at least one sample".to_owned(), None));
        }
        Ok(ScoringFiles {
            data: ItemFiles { items: SyntheticItems { count: next, ..items }, ..data },
            format: args.format,
            cut,
            ranges,
        })
    }

    pub(super) fn samples(&self) -> u64 {
        self.data.items.count
    }

    /// Scores stand beside pickles, and in batches.
    pub(super) fn has_table(&self) -> bool {
        self.format != Format::Pt
    }

    /// The name of a file; names are in the order of the samples.
    pub(super) fn name_of(&self, file: usize) -> String {
        let digits = (self.ranges.len() - 1).to_string().len().max(5);
        let kind = if self.format == Format::Pt { "batch" } else { "trace" };
        format!("{kind}_{file:0digits$}.{}", self.format.name())
    }
}
