//! What shows only in how the code of scripts goes on: what a name is given to, what gradients are computed of, when weights
//! are updated.

mod changes;
mod given;
mod libraries;
mod losses;
mod piece;
mod rates;
mod rhythm;
mod share;
mod turns;
mod updates;

pub(crate) use given::{Given, Way, counts_processes, is_one, is_product, names_of, names_of_products};
pub(crate) use libraries::{accumulates_in_context, is_deepspeeds};
pub(crate) use losses::{WrongLoss, check_losses, computes_gradients, is_of_sum, is_shown};
pub(crate) use piece::{Code, Parents, Piece, has_word, names};
pub(crate) use rates::rate_by;
pub(crate) use rhythm::{Beat, Uneven, uneven};
pub(crate) use share::Share;
pub(crate) use turns::{Bound, Update, counts_micro_batches};
pub(crate) use updates::counted_by;
