//! Starts a command again as long as there is a reason to.

pub(crate) mod copy;
pub(crate) mod folder;
pub(crate) mod judgement;
pub(crate) mod origins;
pub(crate) mod refuge;
pub(crate) mod safety;
pub(crate) mod sequel;
pub(crate) mod starts;
pub(crate) mod trainer_state;
