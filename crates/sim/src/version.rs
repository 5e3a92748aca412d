//! Which PyTorch is imitated: what changes a result, by version.

use std::fmt;
use std::str::FromStr;

use crate::SimError;

/// A version of PyTorch, as `2.11`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TorchVersion {
    major: u16,
    minor: u16,
}

/// What decides between free blocks of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TieBreak {
    Address,
    /// The age of the block object.
    Block,
    /// The age of the segment, then the address.
    Segment,
}

impl TorchVersion {
    /// The version whose allocator was held against recordings of real cards.
    pub const VERIFIED: Self = Self::new(2, 11);
    const OLDEST: Self = Self::new(2, 0);
    const NEWEST: Self = Self::new(2, 15);

    /// A version by its first two numbers.
    #[must_use]
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    /// Whether this version's rules were verified on a card; the others are read from its source.
    #[must_use]
    pub fn is_verified(self) -> bool {
        self == Self::VERIFIED
    }

    pub(crate) fn is_at_least(self, minor: u16) -> bool {
        self >= Self::new(2, minor)
    }

    pub(crate) fn tie_break(self) -> TieBreak {
        match self.is_at_least(13) {
            true => TieBreak::Segment,
            false if self.is_at_least(12) => TieBreak::Block,
            false => TieBreak::Address,
        }
    }
}

impl Default for TorchVersion {
    fn default() -> Self {
        Self::VERIFIED
    }
}

impl fmt::Display for TorchVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for TorchVersion {
    type Err = SimError;

    fn from_str(text: &str) -> Result<Self, SimError> {
        let mut numbers = text.split(['.', '+']).map(str::parse::<u16>);
        let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
            return Err(SimError::Version { text: text.to_owned() });
        };
        let version = Self::new(major, minor);
        match (Self::OLDEST..=Self::NEWEST).contains(&version) {
            true => Ok(version),
            false => Err(SimError::Version { text: text.to_owned() }),
        }
    }
}
