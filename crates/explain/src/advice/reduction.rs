//! What is to be less is below what there is: flags of servers that advice lowers, by what the log shows of them.

/// What a setting is lowered to, of which a usual value may be known, what the log shows, and the least that makes sense. Half of
/// what is shown stands where the usual value is no less than it; none where that is too little.
pub(super) fn reduced(usual: Option<u64>, shown: Option<u64>, least: u64) -> Option<u64> {
    match (usual, shown) {
        (usual, None) => usual,
        (Some(usual), Some(shown)) if usual < shown => Some(usual),
        (_, Some(shown)) => Some(shown / 2).filter(|half| *half >= least.max(1)),
    }
}

/// A setting that is lowered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dial {
    /// What it is called.
    pub(super) name: &'static str,
    /// The value that is advised where nothing shows another.
    pub(super) usual: Option<u64>,
    /// What the log or the command shows.
    pub(super) shown: Option<u64>,
    pub(super) least: u64,
}

impl Dial {
    /// `--max-num-seqs 32 instead of 64`; none where it cannot be less.
    pub(super) fn lowered(&self) -> Option<String> {
        let name = self.name;
        match (reduced(self.usual, self.shown, self.least), self.shown) {
            (Some(value), Some(shown)) => Some(format!("{name} {value} instead of {shown}")),
            (Some(value), None) => Some(format!("{name} {value}")),
            (None, Some(_)) => None,
            (None, None) => Some(format!("a smaller {name}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reduction_is_below_what_there_is() {
        for usual in [None, Some(1), Some(64), Some(2048)] {
            for shown in [1, 2, 3, 64, 65, 2048, 131_072] {
                assert!(reduced(usual, Some(shown), 1).is_none_or(|value| value < shown && value > 0));
            }
        }
        assert_eq!(reduced(Some(64), Some(1024), 1), Some(64));
        assert_eq!(reduced(Some(64), Some(64), 1), Some(32));
        assert_eq!(reduced(Some(64), None, 1), Some(64));
        assert_eq!(reduced(Some(64), Some(40), 32), None);
    }

    #[test]
    fn what_cannot_be_less_is_left_out() {
        let dial = |usual, shown| Dial { name: "-ub", usual, shown, least: 32 }.lowered();
        assert_eq!(dial(Some(128), Some(512)).as_deref(), Some("-ub 128 instead of 512"));
        assert_eq!(dial(Some(128), Some(128)).as_deref(), Some("-ub 64 instead of 128"));
        assert_eq!(dial(Some(128), Some(32)), None);
        assert_eq!(dial(None, None).as_deref(), Some("a smaller -ub"));
    }
}
