//! A number that was looked for in a command's words and files.

/// What became of the search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is written down.
    Number(u64),
    /// Something sets it, and it cannot be told to what: why, in words that begin with its name.
    Unknown(String),
    /// Nothing sets it.
    Nowhere,
}

impl Found {
    /// What was found elsewhere, where there is nothing here.
    pub(crate) fn or_else(self, elsewhere: impl FnOnce() -> Self) -> Self {
        if self == Self::Nowhere { elsewhere() } else { self }
    }
}
