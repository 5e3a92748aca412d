//! The state of the first rank on all others: what they begin with, or go on from.

use lowtide_torch::{GradScaler, Ranks};
use serde::{Deserialize, Serialize};

use super::team::Team;
use crate::error::Result;
use crate::step::State;

/// What ranks do meanwhile.
const DOING: &str = "taking over the state of rank 0";

/// What of the state is no tensor.
#[derive(Serialize, Deserialize)]
struct Numbers {
    optimizer_steps: u64,
    scaler: Option<GradScaler>,
}

/// Makes the state of every rank that of the first: weights, buffers, counters, and moments where each holds all of them. Random numbers are
/// each rank's own.
pub(crate) fn spread_state(state: &mut State<'_>, team: &Team) -> Result<()> {
    let Some(ranks) = team.ranks() else { return Ok(()) };
    let numbers = Numbers { optimizer_steps: state.optimizer.steps, scaler: state.scaler };
    let numbers = team.of_first(DOING, Some(numbers))?;
    spread_tensors(state, ranks)?;
    state.optimizer.steps = numbers.optimizer_steps;
    if let (Some(scaler), Some(first)) = (&mut state.scaler, numbers.scaler) {
        *scaler = first;
    }
    Ok(())
}

fn spread_tensors(state: &State<'_>, ranks: &Ranks) -> Result<()> {
    for tensor in state.model.workload.state().values() {
        ranks.spread(DOING, tensor)?;
    }
    // Moments in parts are zero before the first step, and else every rank was given its own from the checkpoint.
    let moments = state.shards.is_none().then(|| state.optimizer.moments());
    for (first, second) in moments.into_iter().flatten() {
        ranks.spread(DOING, first)?;
        ranks.spread(DOING, second)?;
    }
    Ok(())
}
