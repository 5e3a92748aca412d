//! What a step needs of others: the team it is made in, and what all of it agree on.

use lowtide_core::{Bytes, Line, Phase, Usage};
use lowtide_torch::{Ranks, TorchError};

use crate::error::TrainError;
use crate::memory::DeviceMemory;
use crate::ranks::{Agreed, OwnFailure, RankFailure, Team};

/// What is asked of a run from outside, on any rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// To end after this step.
    pub(crate) stop: bool,
    /// To save after it.
    pub(crate) save: bool,
    /// To save what was deleted from the folder.
    pub(crate) restore: bool,
    /// To tell of memory after it.
    pub(crate) sample: bool,
}

/// Those a step is made with.
pub(crate) struct Companions<'t> {
    pub(crate) team: &'t Team,
    pub(crate) memory: &'t DeviceMemory,
    /// What this rank holds whatever its micro-batch is.
    pub(crate) resting: Bytes,
    /// What is asked of this rank; after the step, of any.
    pub(crate) asked: Asked,
    /// The memory of the rank that has the least room, once all have computed theirs.
    pub(crate) tightest: Option<Usage>,
}

/// What a rank has computed of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Over the targets that all ranks were to have.
    pub(super) loss: f64,
    pub(super) samples: u64,
    pub(super) targets: u64,
    /// How many parameters have a gradient.
    pub(super) gradients: u64,
}

/// A step that was not made.
#[derive(Debug)]
pub(crate) enum StepFailure {
    /// Memory ran out: it left nothing behind, or an update to finish.
    Failed(Vec<RankFailure>),
    /// The run cannot go on.
    Ended(TrainError),
}

impl StepFailure {
    /// A failure of a run that has no other ranks.
    pub(super) fn of(own: OwnFailure) -> StepFailure {
        match Team::default().agree::<()>("", Err(own), &[]) {
            Ok((Agreed::Failed(failures), _)) => StepFailure::Failed(failures),
            Ok((Agreed::Done(()), _)) => unreachable!("it failed"),
            Err(error) => StepFailure::Ended(error),
        }
    }

    pub(super) fn ended(error: impl Into<TrainError>) -> StepFailure {
        StepFailure::Ended(error.into())
    }
}

impl<'t> Companions<'t> {
    /// The other ranks, where there are any.
    pub(super) fn ranks(&self) -> Option<&'t Ranks> {
        self.team.ranks()
    }

    pub(super) fn failure(&self, phase: Phase, error: TorchError) -> OwnFailure {
        OwnFailure::new(phase, error, self.memory)
    }

    /// Goes on once this was done by all.
    pub(super) fn agree<T>(&self, doing: &'static str, own: Result<T, OwnFailure>) -> Result<T, StepFailure> {
        match self.team.agree(doing, own, &[]) {
            Ok((Agreed::Done(done), _)) => Ok(done),
            Ok((Agreed::Failed(failures), _)) => Err(StepFailure::Failed(failures)),
            Err(error) => Err(StepFailure::Ended(error)),
        }
    }

    /// Goes on once all have their part; the sum of all of them. What is asked of any rank is asked of all.
    pub(super) fn agree_on(&mut self, part: Result<Part, OwnFailure>) -> Result<Part, StepFailure> {
        let row = Row::new(self, part.as_ref().ok());
        let agreed = self.team.agree("agreeing on a step", part, &row.0).map_err(StepFailure::Ended)?;
        let rows: Vec<Row> = agreed.1.into_iter().map(Row).collect();
        self.asked = rows.iter().map(Row::asked).fold(Asked::default(), Asked::or);
        match agreed.0 {
            Agreed::Failed(failures) => Err(StepFailure::Failed(failures)),
            Agreed::Done(own) => {
                self.tightest = Usage::tightest(&rows.iter().map(Row::usage).collect::<Vec<_>>());
                let parts: Vec<Part> = rows.iter().map(Row::part).collect();
                if let Some((rank, _)) = (0..).zip(&parts).find(|(_, part)| part.gradients != own.gradients) {
                    let message =
                        format!("rank {rank} has gradients for other parameters: such a model trains on one rank");
                    return Err(StepFailure::ended(TorchError::Engine(message)));
                }
                let nothing = Part { loss: 0.0, samples: 0, targets: 0, ..own };
                Ok(parts.into_iter().fold(nothing, Part::and))
            }
        }
    }
}

impl Part {
    fn and(self, other: Part) -> Part {
        let (samples, targets) = (self.samples + other.samples, self.targets + other.targets);
        Part { loss: self.loss + other.loss, samples, targets, ..self }
    }
}

impl Asked {
    pub(crate) fn or(self, other: Asked) -> Asked {
        Asked {
            stop: self.stop || other.stop,
            save: self.save || other.save,
            restore: self.restore || other.restore,
            sample: self.sample || other.sample,
        }
    }
}

/// What a rank tells of a step, as numbers: what is asked of it, its memory, its part.
struct Row(Vec<i64>);

impl Row {
    fn new(companions: &Companions<'_>, part: Option<&Part>) -> Row {
        let Asked { stop, save, restore, sample } = companions.asked;
        let asked = [stop, save, restore, sample].map(i64::from);
        let peak = companions.memory.reading().map_or(Bytes::ZERO, |reading| reading.allocated_peak);
        let line = companions.memory.roof().limit().map_or(-1, |limit| number(limit.get()));
        let memory = [number(companions.resting.get()), number(peak.get()), line];
        let part = part.map_or([0; 4], |part| {
            let bits = i64::from_ne_bytes(part.loss.to_ne_bytes());
            [bits, number(part.samples), number(part.targets), number(part.gradients)]
        });
        Row(asked.into_iter().chain(memory).chain(part).collect())
    }

    fn asked(&self) -> Asked {
        let [stop, save, restore, sample] = [0, 1, 2, 3].map(|at| self.0[at] != 0);
        Asked { stop, save, restore, sample }
    }

    fn usage(&self) -> Usage {
        let line = u64::try_from(self.0[6]).ok().and_then(|limit| Line::at(Bytes(limit)).ok()).unwrap_or(Line::NONE);
        Usage { resting: Bytes(size(self.0[4])), peak: Bytes(size(self.0[5])), line }
    }

    fn part(&self) -> Part {
        Part {
            loss: f64::from_ne_bytes(self.0[7].to_ne_bytes()),
            samples: size(self.0[8]),
            targets: size(self.0[9]),
            gradients: size(self.0[10]),
        }
    }
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn size(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
