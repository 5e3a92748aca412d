//! Who refused decides which figures count.

use lowtide_oom::{Place, Source};

use super::allocator::allocator;
use super::driver::driver;
use super::host::host;
use super::judgement::Judgement;
use crate::log::Event;

/// Judges an event.
pub(crate) fn judge(event: &Event) -> Judgement {
    let mut judgement = match (event.oom.place, event.oom.source) {
        (Place::Host, _) => host(event),
        (Place::Device, Source::Allocator) => allocator(&event.oom),
        (Place::Device, _) => driver(event),
    };
    judgement.certainty = round(judgement.certainty * event.oom.certainty.number() / 0.98);
    judgement
}

fn round(certainty: f64) -> f64 {
    (certainty.clamp(0.0, 0.99) * 100.0).round() / 100.0
}
