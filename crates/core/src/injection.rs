//! Out-of-memory errors on demand, as they are typed.

use std::str::FromStr;

use crate::{Phase, Step};

/// An error that a run is told to meet: written `step=3,phase=backward,times=2,alloc=5,rank=1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injection {
    /// The first step that may fail, counted from 1. Evaluations and checkpoints belong to the step before them.
    pub step: Step,
    /// What fails: forward, backward, optimizer, eval, save, or load, which comes before a resumed run's first step.
    pub phase: Phase,
    /// Tries that fail, one after the other. Default 1.
    pub times: u64,
    /// The allocation that fails, counted from the start of the phase on the CPU. Default 1.
    ///
    /// A phase that makes fewer is done, and the count goes on in the next one like it. On a GPU, whose allocations are
    /// not counted, the phase fails at its start.
    pub alloc: u64,
    /// The rank that fails, where several train together. Default 0.
    pub rank: u32,
}

/// A text that is no [`Injection`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InjectionError {
    /// A part is not `key=value` with a known key.
    #[error("`{0}` is not one of step=N, phase=PHASE, times=N, alloc=N and rank=N")]
    Part(String),
    /// A key is there twice.
    #[error("`{0}` is given twice")]
    Twice(String),
    /// A number is not one.
    #[error("{key} must be a whole number from {least} on, not `{text}`")]
    Number {
        /// The key.
        key: &'static str,
        /// The least it may be.
        least: u64,
        /// What was typed.
        text: String,
    },
    /// A phase that cannot be made to fail.
    #[error("`{0}` is not a phase: write forward, backward, optimizer, eval, save or load")]
    Phase(String),
    /// What cannot be left out.
    #[error("{0} is missing: write for example step=3,phase=backward")]
    Missing(&'static str),
}

impl FromStr for Injection {
    type Err = InjectionError;

    fn from_str(text: &str) -> Result<Injection, InjectionError> {
        let (mut step, mut phase, mut times, mut alloc, mut rank) = (None, None, None, None, None);
        for part in text.split(',') {
            let unknown = || InjectionError::Part(part.to_owned());
            let (key, value) = part.split_once('=').ok_or_else(unknown)?;
            let again = match key.trim() {
                "step" => step.replace(number("step", 1, value)?).is_some(),
                "phase" => phase.replace(injectable(value)?).is_some(),
                "times" => times.replace(number("times", 1, value)?).is_some(),
                "alloc" => alloc.replace(number("alloc", 1, value)?).is_some(),
                "rank" => rank.replace(number("rank", 0, value)?).is_some(),
                _ => return Err(unknown()),
            };
            if again {
                return Err(InjectionError::Twice(key.trim().to_owned()));
            }
        }
        Ok(Injection {
            step: Step(step.ok_or(InjectionError::Missing("step"))?),
            phase: phase.ok_or(InjectionError::Missing("phase"))?,
            times: times.unwrap_or(1),
            alloc: alloc.unwrap_or(1),
            rank: u32::try_from(rank.unwrap_or(0)).unwrap_or(u32::MAX),
        })
    }
}

fn number(key: &'static str, least: u64, text: &str) -> Result<u64, InjectionError> {
    let wrong = || InjectionError::Number { key, least, text: text.to_owned() };
    text.trim().parse().ok().filter(|number| *number >= least).ok_or_else(wrong)
}

fn injectable(text: &str) -> Result<Phase, InjectionError> {
    text.parse().map_err(|_| InjectionError::Phase(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str, expect: &str) {
        assert_eq!(text.parse::<Injection>().unwrap_err().to_string(), expect);
    }

    #[test]
    fn what_is_left_out_is_one() {
        let told: Injection = "step=3,phase=backward".parse().unwrap();
        assert_eq!(told, Injection { step: Step(3), phase: Phase::Backward, times: 1, alloc: 1, rank: 0 });
        let told: Injection = "alloc=5, times=2, phase=save, step=1, rank=3".parse().unwrap();
        assert_eq!(told, Injection { step: Step(1), phase: Phase::Save, times: 2, alloc: 5, rank: 3 });
    }

    #[test]
    fn bad_texts_are_refused() {
        refused("", "`` is not one of step=N, phase=PHASE, times=N, alloc=N and rank=N");
        refused("step=3,fase=save", "`fase=save` is not one of step=N, phase=PHASE, times=N, alloc=N and rank=N");
        refused("step=0,phase=save", "step must be a whole number from 1 on, not `0`");
        refused("step=1,phase=save,times=-1", "times must be a whole number from 1 on, not `-1`");
        refused("step=1,phase=save,rank=one", "rank must be a whole number from 0 on, not `one`");
        refused("step=1,step=2,phase=save", "`step` is given twice");
        refused("step=1", "phase is missing: write for example step=3,phase=backward");
        refused("phase=save", "step is missing: write for example step=3,phase=backward");
        let mend = "write forward, backward, optimizer, eval, save or load";
        refused("step=1,phase=lunch", &format!("`lunch` is not a phase: {mend}"));
    }
}
