//! Recordings at several sizes, and the program at any other.

use std::sync::Arc;

use super::laws::{Laws, laws_of};
use super::multiprocessors::Multiprocessors;
use super::pairing::Pairing;
use super::program::SizedRecording;
use crate::recording::Input;
use crate::{Recording, SimError, Source};

/// Recordings of one program at several sizes.
#[derive(Debug, Clone)]
pub struct Fit {
    /// By size.
    recorded: Vec<SizedRecording>,
    /// The laws of each recording's requests.
    laws: Vec<Laws>,
    multiprocessors: Multiprocessors,
}

/// Which form of the laws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Likely,
    Low,
    High,
    /// One of many between the least and the greatest, each request of one size drawn for itself.
    Draw(u64),
}

impl Fit {
    /// Pairs the requests of recordings of the same program.
    ///
    /// # Errors
    ///
    /// Where there are fewer than two sizes, where two have the same, or where they are not of the same program or the same kind of memory.
    pub fn new(mut recorded: Vec<SizedRecording>) -> Result<Self, SimError> {
        let wrong = |reason: String| SimError::Sizes { reason };
        recorded.sort_by_key(SizedRecording::size);
        if recorded.len() < 2 {
            return Err(wrong("recordings at two sizes or more are needed".to_owned()));
        }
        if let Some(two) = recorded.windows(2).find(|two| two[0].size == two[1].size) {
            return Err(wrong(format!("two recordings are at size {}", two[0].size)));
        }
        if recorded.iter().any(|one| one.source() != recorded[0].source()) {
            return Err(wrong("some of the recordings are of a GPU and some of a CPU".to_owned()));
        }
        let laws = (0..recorded.len()).map(|index| laws_of(&recorded, index)).collect::<Result<_, _>>()?;
        let multiprocessors = Multiprocessors::of(&recorded)?;
        Ok(Self { recorded, laws, multiprocessors })
    }

    /// The recordings, by size.
    #[must_use]
    pub fn recorded(&self) -> &[SizedRecording] {
        &self.recorded
    }

    /// Whose memory they are of.
    #[must_use]
    pub fn source(&self) -> Source {
        self.recorded[0].source()
    }

    /// How well they pair, for a prediction at this size.
    #[must_use]
    pub fn pairing(&self, size: u64) -> Pairing {
        self.laws[self.base(size)].pairing
    }

    /// Whether the recording that a prediction at this size follows was cut at its front.
    #[must_use]
    pub fn is_reconstructed(&self, size: u64) -> bool {
        self.recorded[self.base(size)].is_reconstructed
    }

    /// The recording that a prediction follows: the next larger one, or the largest.
    pub(super) fn base(&self, size: u64) -> usize {
        let last = self.recorded.len() - 1;
        self.recorded.iter().position(|recorded| recorded.size >= size).unwrap_or(last)
    }

    /// The recordings that bound a prediction: those beside the size, where it lies between two.
    pub(super) fn bases(&self, size: u64) -> std::ops::RangeInclusive<usize> {
        let base = self.base(size);
        let is_between = base > 0 && size < self.recorded[base].size;
        base - usize::from(is_between)..=base
    }

    /// The requests of the program at a size, as far as they are known.
    #[must_use]
    pub fn at(&self, size: u64) -> Recording {
        self.form(self.base(size), size, Form::Likely)
    }

    /// The requests of one recording with the sizes they have at another size.
    pub(super) fn form(&self, base: usize, size: u64, form: Form) -> Recording {
        let recorded = &self.recorded[base];
        if recorded.size == size {
            return recorded.recording.clone();
        }
        let multiprocessors = self.multiprocessors.get(form);
        let laws = &self.laws[base];
        let mut recording = Recording::empty(recorded.source());
        let mut entries = recorded.recording.entries.to_vec();
        // New numbers of requests, since some come between.
        let mut numbers: Vec<u32> = Vec::with_capacity(laws.requests.len());
        for (input, entry) in &recorded.recording.inputs {
            let entry = *entry;
            let mut add = |input| recording.inputs.push((input, entry));
            match *input {
                Input::Alloc { stream, .. } => {
                    let law = &laws.requests[numbers.len()];
                    let request = law.at(size, form, multiprocessors, recorded.requests[numbers.len()].bytes);
                    let buffer = laws.sums.get(&numbers.len()).filter(|_| form != Form::Low);
                    numbers.push(recording.requests);
                    entries[entry as usize].size = request;
                    add(Input::Alloc { request, stream });
                    recording.requests += 1;
                    let new = buffer.and_then(|sum| Some((sum.buffer(size, multiprocessors)?, sum.flags())));
                    if let Some((buffer, flags)) = new {
                        let number = recording.requests;
                        add(Input::Alloc { request: buffer, stream });
                        add(Input::Alloc { request: flags, stream });
                        for gone in [number + 1, number] {
                            add(Input::Free(gone));
                            add(Input::Complete(gone));
                        }
                        recording.requests += 2;
                    }
                }
                Input::Free(number) => add(Input::Free(numbers[number as usize])),
                Input::Complete(number) => add(Input::Complete(numbers[number as usize])),
                other => add(other),
            }
        }
        recording.entries = Arc::new(entries);
        recording
    }
}
