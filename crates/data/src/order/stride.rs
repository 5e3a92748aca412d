//! The places that a rank takes where steps go on through epochs, all of the same size.

/// The first `count` of every `period` places, counted from where somebody begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stride {
    count: u64,
    period: u64,
}

impl Stride {
    /// `None` where no place or more than there are would be taken.
    #[must_use]
    pub fn new(count: u64, period: u64) -> Option<Self> {
        (count > 0 && count <= period).then_some(Self { count, period })
    }

    /// Whether a place is taken, so many places behind the beginning.
    #[must_use]
    pub fn takes(&self, behind: u64) -> bool {
        behind % self.period < self.count
    }

    /// The next place that is taken after one.
    #[must_use]
    pub fn after(&self, behind: u64) -> u64 {
        let next = behind + 1;
        if self.takes(next) { next } else { next + self.period - next % self.period }
    }

    /// How many periods of places there are for one that is taken, rounded up.
    #[must_use]
    pub fn sparsity(&self) -> u64 {
        self.period.div_ceil(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_every_period() {
        let stride = Stride::new(2, 5).unwrap();
        assert_eq!((0..12).filter(|behind| stride.takes(*behind)).collect::<Vec<_>>(), [0, 1, 5, 6, 10, 11]);
        let walked: Vec<u64> = std::iter::successors(Some(0), |at| Some(stride.after(*at))).take(5).collect();
        assert_eq!(walked, [0, 1, 5, 6, 10]);
        assert_eq!(stride.sparsity(), 3);
        assert!(Stride::new(5, 5).unwrap().takes(7));
        assert_eq!([Stride::new(0, 5), Stride::new(6, 5)], [None, None]);
    }
}
