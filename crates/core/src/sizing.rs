//! How the first micro-batch is found: a small one is measured, then doubled while it fits, then one between.
//!
//! The first micro-batch is tried out, not guessed: one sample is computed, then twice as many as long as the next is
//! foreseen to fit (`core::Sizing`), then the largest between that is; two pieces each, because the second finds the
//! gradients of the first. Weights, random state, buffers and cursor are as before.

use crate::{Bytes, MicroBatch, Percent, Usage};

/// A micro-batch that was tried out, and what it needed; `None` where memory ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Samples computed at once.
    pub micro_batch: MicroBatch,
    /// What it needed.
    pub usage: Option<Usage>,
}

/// What to do after some probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizing {
    /// Try this one out.
    Measure(MicroBatch),
    /// Start with this one.
    Take(MicroBatch),
}

impl Sizing {
    /// The next thing to do. `probes` are those made so far, in order; `margin` is the share of the line that must stay free
    /// by the forecast.
    ///
    /// One sample is measured first. Where the whole `ceiling` fits even if all that a probe needed above rest grows with it,
    /// it is taken at once: that forecast errs to the high side. Otherwise the micro-batch doubles as long as the next one
    /// is foreseen to fit by the last two probes, which may err to the low side, so each one is measured; and then the largest
    /// below it that is foreseen to fit and makes fewer pieces. Nothing is measured where one sample is all there is to choose.
    #[must_use]
    pub fn after(probes: &[Probe], ceiling: MicroBatch, margin: Percent) -> Sizing {
        let Some((last, before)) = probes.split_last() else {
            return if ceiling == MicroBatch::ONE { Sizing::Take(ceiling) } else { Sizing::Measure(MicroBatch::ONE) };
        };
        let Some(usage) = last.usage else {
            return Sizing::Take(before.last().map_or(MicroBatch::ONE, |probe| probe.micro_batch));
        };
        let fits = |next| usage.admits(forecast(before.last(), last.micro_batch, usage, next), margin);
        match last.micro_batch.doubled(ceiling) {
            None => Sizing::Take(last.micro_batch),
            Some(_) if is_between(before.last(), last.micro_batch, ceiling) => Sizing::Take(last.micro_batch),
            Some(_) if usage.admits(usage.forecast(last.micro_batch, ceiling), margin) => Sizing::Take(ceiling),
            Some(next) => std::iter::successors(Some(next), |size| size.next_smaller(ceiling))
                .take_while(|size| *size > last.micro_batch)
                .find(|size| fits(*size))
                .map_or(Sizing::Take(last.micro_batch), Sizing::Measure),
        }
    }
}

/// Whether a probe was not twice the one before it: so the double of that one does not fit.
fn is_between(before: Option<&Probe>, now: MicroBatch, ceiling: MicroBatch) -> bool {
    before.is_some_and(|before| before.micro_batch.doubled(ceiling) != Some(now))
}

/// The peak to expect: on the line through the last two probes, or in proportion where there is one.
fn forecast(before: Option<&Probe>, now: MicroBatch, usage: Usage, next: MicroBatch) -> Bytes {
    let Some((earlier, before)) = before.and_then(|probe| Some((probe.micro_batch, probe.usage?))) else {
        return usage.forecast(now, next);
    };
    let grown = usage.peak.saturating_sub(before.peak);
    let (samples, more) = (now.get() - earlier.get(), next.get() - now.get());
    usage.peak.saturating_add(grown.scaled(more.into(), samples.into())).saturating_add(Bytes(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Line;

    const MARGIN: Percent = Percent::from_hundredths(500).expect("5 % is in range");

    /// Sizes that are measured, then the one taken, for a model that holds `fixed` and needs `each` for a sample.
    #[track_caller]
    fn check(ceiling: u32, line: u64, (fixed, each): (u64, u64), expect: (&[u32], u32)) {
        let ceiling = MicroBatch::new(ceiling).unwrap();
        let line = Line::at(Bytes(line)).unwrap();
        let mut probes = Vec::new();
        let taken = loop {
            match Sizing::after(&probes, ceiling, MARGIN) {
                Sizing::Take(micro_batch) => break micro_batch,
                Sizing::Measure(micro_batch) => {
                    let peak = Bytes(fixed + each * u64::from(micro_batch.get()));
                    let usage = Usage { resting: Bytes(fixed / 2), peak, line };
                    probes.push(Probe { micro_batch, usage: line.admits(peak, Bytes::ZERO).then_some(usage) });
                }
            }
        };
        let measured: Vec<u32> = probes.iter().map(|probe| probe.micro_batch.get()).collect();
        assert_eq!((measured.as_slice(), taken.get()), expect);
    }

    #[test]
    fn doubles_while_it_fits() {
        check(64, 1000, (100, 100), (&[1, 2, 4, 8], 8));
        check(64, 1000, (100, 10), (&[1, 2, 4, 8, 16], 64));
        check(6, 1000, (0, 150), (&[1], 6));
        check(6, 1000, (100, 140), (&[1, 2, 4, 6], 6));
    }

    #[test]
    fn then_takes_the_largest_between_that_fits() {
        check(64, 1000, (100, 36), (&[1, 2, 4, 8, 16, 22], 22));
        check(64, 1000, (100, 55), (&[1, 2, 4, 8, 13], 13));
        check(6, 1000, (100, 230), (&[1, 2, 3], 3));
    }

    #[test]
    fn one_between_that_fails_is_not_taken() {
        let line = Line::at(Bytes(1000)).unwrap();
        let probe = |samples: u32, peak: Option<u64>| Probe {
            micro_batch: MicroBatch::new(samples).unwrap(),
            usage: peak.map(|peak| Usage { resting: Bytes(50), peak: Bytes(peak), line }),
        };
        let probes =
            [probe(1, Some(136)), probe(2, Some(172)), probe(4, Some(244)), probe(8, Some(388)), probe(16, Some(676))];
        let ceiling = MicroBatch::new(64).unwrap();
        assert_eq!(Sizing::after(&probes, ceiling, MARGIN), Sizing::Measure(MicroBatch::new(22).unwrap()));
        let with_failure: Vec<Probe> = probes.into_iter().chain([probe(22, None)]).collect();
        assert_eq!(Sizing::after(&with_failure, ceiling, MARGIN), Sizing::Take(MicroBatch::new(16).unwrap()));
    }

    #[test]
    fn a_peak_that_is_flat_at_first_does_not_mislead() {
        let line = Line::at(Bytes(1000)).unwrap();
        let probe = |samples: u32| {
            let usage = Usage { resting: Bytes(50), peak: Bytes(500.max(100 * u64::from(samples))), line };
            Probe { micro_batch: MicroBatch::new(samples).unwrap(), usage: Some(usage) }
        };
        let next = |probes: &[Probe]| Sizing::after(probes, MicroBatch::new(64).unwrap(), MARGIN);
        assert_eq!(next(&[probe(1), probe(2)]), Sizing::Measure(MicroBatch::new(4).unwrap()));
        assert_eq!(next(&[probe(1), probe(2), probe(4), probe(8)]), Sizing::Take(MicroBatch::new(8).unwrap()));
    }

    #[test]
    fn with_much_room_one_sample_is_enough_and_with_none_one_is_left_to_the_guard() {
        check(64, 1_000_000, (100, 10), (&[1], 64));
        check(64, 100, (100, 10), (&[1], 1));
        check(1, 100, (100, 10), (&[], 1));
    }

    #[test]
    fn a_probe_that_fails_is_not_taken() {
        let usage = Usage { resting: Bytes(0), peak: Bytes(10), line: Line::at(Bytes(100)).unwrap() };
        let probe = |samples, usage| Probe { micro_batch: MicroBatch::new(samples).unwrap(), usage };
        let probes = [probe(1, Some(usage)), probe(2, Some(usage)), probe(4, None)];
        assert_eq!(Sizing::after(&probes, MicroBatch::new(64).unwrap(), MARGIN), Sizing::Take(probes[1].micro_batch));
    }
}
