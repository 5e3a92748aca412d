//! What part of an update's loss one micro-batch computes gradients of.

/// What a value is, beside the loss of a whole update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Share {
    /// A number, or a value that no gradient flows through.
    Number,
    /// Nothing is known of it.
    Unknown,
    /// A sum over its samples: those of all micro-batches make that of the update.
    Sum,
    /// A mean over its samples: those of all micro-batches make too much.
    Mean,
    /// A sum over its samples that is divided by the number of micro-batches: too little.
    PartOfSum,
    /// A mean over its samples that is divided by the number of micro-batches.
    Part,
}

/// What a value is divided by.
#[derive(Clone, Copy)]
pub(crate) struct Divisor {
    /// The number of micro-batches of an update.
    pub(crate) has_steps: bool,
    /// Something that may be a number of samples.
    pub(crate) has_samples: bool,
}

impl Share {
    /// Whether those of all micro-batches make that of the update; `None` where it is not known.
    pub(crate) fn is_right(self) -> Option<bool> {
        match self {
            Self::Number | Self::Unknown => None,
            Self::Sum | Self::Part => Some(true),
            Self::Mean | Self::PartOfSum => Some(false),
        }
    }

    /// What may be one value or another: what is divided is so wherever it has to be.
    pub(crate) fn or(self, other: Self) -> Self {
        self.max(other)
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        let both = [self, other];
        let first = [Self::PartOfSum, Self::Mean].into_iter().find(|share| both.contains(share));
        first.unwrap_or_else(|| self.max(other))
    }

    pub(crate) fn times(self, other: Self) -> Self {
        match (self, other) {
            (Self::Number, it) | (it, Self::Number) => it,
            (Self::Part, Self::Sum) | (Self::Sum, Self::Part) => Self::PartOfSum,
            // What a sum is multiplied by may be one over its samples.
            (Self::Sum | Self::Unknown, Self::Sum | Self::Unknown) => Self::Unknown,
            _ => self.max(other),
        }
    }

    pub(crate) fn over(self, Divisor { has_steps, has_samples }: Divisor) -> Self {
        let each = match self {
            Self::Sum if has_samples => Self::Mean,
            Self::PartOfSum if has_samples => Self::Part,
            Self::Number if has_samples => Self::Unknown,
            it => it,
        };
        match each {
            Self::Sum if has_steps => Self::PartOfSum,
            Self::PartOfSum => Self::PartOfSum,
            _ if has_steps => Self::Part,
            it => it,
        }
    }
}
