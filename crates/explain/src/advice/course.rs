//! The course that advice takes: by the memory that ran out, then sorted by what fits.

use lowtide_oom::Place;

use super::case::Case;
use super::list::List;
use crate::patch::Patch;
use crate::verdict::Advice;

/// Advice, the patch for the first of it that has one, and what is to be said of the configuration.
pub(crate) fn advise(case: &Case<'_>) -> (Vec<Advice>, Option<Patch>, Vec<String>) {
    let mut list = List::new(*case);
    match case.oom.place {
        Place::Host => list.host(),
        Place::Device => list.device(),
    }
    list.what_fits_first();
    let patch = list.best_patch();
    (list.advice, patch, list.notes)
}
