//! A pickle that was read.

use lowtide_core::Bytes;

use crate::arena::Arena;
use crate::measure::Measure;
use crate::{NodeId, Value, Values};

/// The values of a pickle, in one table.
#[derive(Debug)]
pub struct Pickle {
    pub(crate) arena: Arena,
    pub(crate) root: NodeId,
    pub(crate) length: u64,
    pub(crate) measure: Measure,
}

impl Pickle {
    /// The value that the pickle stands for.
    #[must_use]
    pub fn root(&self) -> NodeId {
        self.root
    }

    /// Bytes from the first opcode to the last, so that what follows in the input can be found.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// How many values the table holds; every [`NodeId::index`] is below.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.arena.nodes.len()
    }

    /// Every value of the table, also those that do not hang on the root, in the order in which they were made.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        // As many as there are, and their number fits.
        (0..self.arena.nodes.len() as u32).map(NodeId)
    }

    /// Memory that the table takes, with room it has and does not use.
    #[must_use]
    pub fn memory(&self) -> Bytes {
        self.arena.memory()
    }

    /// Containers within containers at the deepest place; a value that contains itself counts once.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.measure.depth
    }

    /// How many values a walk along all paths meets; saturates, and a value that contains itself counts once on each
    /// path.
    #[must_use]
    pub fn walk(&self) -> u64 {
        self.measure.walk
    }

    /// The values.
    #[must_use]
    pub const fn values(&self) -> Values<'_> {
        Values(&self.arena)
    }

    /// The value of a node.
    #[must_use]
    pub fn get(&self, id: NodeId) -> Value<'_> {
        self.values().get(id)
    }

    /// The value of a string key in a dict, or in an object that was filled like one.
    ///
    /// Looks at every entry, from the last to the first.
    #[must_use]
    pub fn entry(&self, dict: NodeId, key: &str) -> Option<NodeId> {
        self.values().entry(dict, key)
    }

    /// The text of a string.
    #[must_use]
    pub fn str(&self, id: NodeId) -> Option<&str> {
        self.values().str(id)
    }

    /// An integer of 64 bits.
    #[must_use]
    pub fn int(&self, id: NodeId) -> Option<i64> {
        self.values().int(id)
    }
}
