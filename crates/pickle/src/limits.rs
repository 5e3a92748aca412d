//! How much a pickle may ask for.

/// Bounds on what a pickle may make of the reader's memory and of the time of whoever walks the result.
///
/// The defaults suit a file of some hundred megabytes that somebody chose to open: the table then stays below about 3
/// GiB besides its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Values, each 16 bytes. 64 Mi by default.
    pub nodes: u32,
    /// Places in containers and on the stack, each 4 bytes, and up to twice that while containers grow. 256 Mi by
    /// default.
    pub items: u32,
    /// Bytes of strings, byte strings and large integers. 2 GiB by default.
    pub text_bytes: u64,
    /// Entries of the memo and the largest index of one. 64 Mi by default.
    pub memo: u32,
    /// Containers within containers. 1000 by default, which is where Python itself gives up.
    pub depth: u32,
    /// Values that a walk along all paths meets, where a shared value counts each time. 1 Gi by default.
    pub walk: u64,
    /// Whether a value may contain itself. Refused by default.
    pub cycles: Cycles,
    /// Bytes that all tables take together while the pickle is read: values, places, text, memo and stack. 4 GiB by
    /// default; the other bounds are about numbers that this one cannot see.
    pub memory: u64,
    /// Byte strings longer than this are left where they are, as [`Value::FarBytes`](crate::Value::FarBytes). None by
    /// default.
    pub far_bytes: u64,
}

/// What to do with a value that contains itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cycles {
    /// Refuse the pickle: whoever walks the result need not look out for them.
    Refuse,
    /// Keep them: whoever walks the result must remember where it has been.
    Keep,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            nodes: 64 << 20,
            items: 256 << 20,
            text_bytes: 2 << 30,
            memo: 64 << 20,
            depth: 1000,
            walk: 1 << 30,
            cycles: Cycles::Refuse,
            memory: 4 << 30,
            far_bytes: u64::MAX,
        }
    }
}
