//! Blocks that the allocator keeps for later, and when they are released although nothing failed.

use lowtide_core::{Bytes, Percent, Step};
use lowtide_settings::Clean;

/// A moment at which cleaning may be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// A step begins.
    InStep,
    /// A step was committed, with so much memory in use at its peak and so much taken from the device. Between two steps much
    /// is unused that the next one asks for again, so only the peak tells what is idle.
    AfterStep { peak: Bytes, reserved: Bytes },
    /// A checkpoint was written.
    AfterSave,
    /// An evaluation begins, with so much memory in use and so much taken from the device.
    BeforeEvaluation { allocated: Bytes, reserved: Bytes },
    /// So many batches of an evaluation are done.
    InEvaluation { batches: u64 },
    /// An evaluation ended, with so much memory in use and so much taken from the device.
    AfterEvaluation { allocated: Bytes, reserved: Bytes },
}

/// Steps between two cleanings by the clock in the step, in the loop, and batches in an evaluation.
const CLOCK: (u64, u64, u64) = (10, 20, 5);
/// Cleaning pays where more than this of the room is taken and not in use ...
const IDLE: Percent = Percent::from_hundredths(20_00).expect("20 % is in range");
/// ... and more than this of it is taken.
const TAKEN: Percent = Percent::from_hundredths(80_00).expect("80 % is in range");

/// Cleaning pays after an evaluation that leaves more than this taken and not in use, however much room there is:
/// evaluation leaves blocks of other sizes than those that training asks for, and on a shared card they belong to
/// others.
const LEFT_BY_EVALUATION: Bytes = Bytes::from_gib(1);

/// Whether to clean at this moment. `room` is what may be taken from a device that caches blocks, where there is one.
pub(crate) fn is_due(clean: Clean, moment: Moment, step: Step, room: Option<Bytes>) -> bool {
    match clean {
        Clean::Never => false,
        Clean::Auto => room.is_some_and(|room| pays(moment, room)),
        Clean::Clock => by_clock(moment, step),
    }
}

fn pays(moment: Moment, room: Bytes) -> bool {
    match moment {
        Moment::AfterStep { peak, reserved } => {
            reserved.saturating_sub(peak) > room.of_percent(IDLE) && reserved > room.of_percent(TAKEN)
        }
        Moment::AfterEvaluation { allocated, reserved } => reserved.saturating_sub(allocated) > LEFT_BY_EVALUATION,
        Moment::BeforeEvaluation { allocated, reserved } => reserved.saturating_sub(allocated) > room.of_percent(IDLE),
        Moment::InStep | Moment::AfterSave | Moment::InEvaluation { .. } => false,
    }
}

fn by_clock(moment: Moment, step: Step) -> bool {
    match moment {
        Moment::InStep => step.get().is_multiple_of(CLOCK.0),
        Moment::AfterStep { .. } => step.get().is_multiple_of(CLOCK.1),
        Moment::AfterSave | Moment::BeforeEvaluation { .. } => true,
        Moment::InEvaluation { batches } => batches.is_multiple_of(CLOCK.2),
        Moment::AfterEvaluation { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(peak: u64, reserved: u64) -> Moment {
        Moment::AfterStep { peak: Bytes(peak), reserved: Bytes(reserved) }
    }

    #[test]
    fn it_pays_near_the_line_with_much_that_is_idle() {
        let due = |moment| is_due(Clean::Auto, moment, Step(10), Some(Bytes(1000)));
        assert!(due(after(600, 900)));
        assert!(!due(after(750, 900)), "little is idle");
        assert!(!due(after(100, 800)), "there is room");
        assert!(!due(Moment::AfterSave));
        assert!(!is_due(Clean::Auto, after(600, 900), Step(10), None), "nothing is cached");
        assert!(!is_due(Clean::Never, after(600, 900), Step(10), Some(Bytes(1000))));
    }

    #[test]
    fn it_pays_after_an_evaluation_that_leaves_much() {
        let left = |bytes: Bytes| Moment::AfterEvaluation {
            allocated: Bytes::from_gib(2),
            reserved: Bytes::from_gib(2).saturating_add(bytes),
        };
        let much = left(Bytes::from_gib(1).saturating_add(Bytes(1)));
        let room = Some(Bytes::from_gib(100));
        let due = |clean, moment, room| is_due(clean, moment, Step(20), room);
        assert!(due(Clean::Auto, much, room), "there is room, and it is for others");
        assert!(!due(Clean::Auto, left(Bytes::from_gib(1)), room), "little is left");
        assert!(!due(Clean::Auto, much, None), "nothing is cached");
        assert!(!due(Clean::Never, much, room));
        assert!(!due(Clean::Clock, much, room), "the clock has its own times");
    }

    #[test]
    fn it_pays_before_an_evaluation_where_much_is_idle() {
        let due = |allocated, reserved, room: Option<u64>| {
            let moment = Moment::BeforeEvaluation { allocated: Bytes(allocated), reserved: Bytes(reserved) };
            is_due(Clean::Auto, moment, Step(20), room.map(Bytes))
        };
        assert!(due(300, 501, Some(1000)));
        assert!(!due(300, 500, Some(1000)), "little is idle");
        assert!(!due(300, 501, None), "nothing is cached");
    }

    #[test]
    fn the_clock_strikes() {
        let due = |moment, step| is_due(Clean::Clock, moment, Step(step), None);
        assert!(due(Moment::InStep, 10) && !due(Moment::InStep, 11));
        assert!(due(after(0, 0), 20) && !due(after(0, 0), 10));
        let before = Moment::BeforeEvaluation { allocated: Bytes(0), reserved: Bytes(0) };
        assert!(due(Moment::AfterSave, 1) && due(before, 1));
        assert!(due(Moment::InEvaluation { batches: 5 }, 1) && !due(Moment::InEvaluation { batches: 4 }, 1));
    }
}
