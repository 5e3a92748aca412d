//! Starts a command again as long as there is a reason to.

pub(crate) mod folder;
pub(crate) mod judgement;
pub(crate) mod refuge;
pub(crate) mod sequel;
pub(crate) mod starts;
pub(crate) mod trainer_state;
