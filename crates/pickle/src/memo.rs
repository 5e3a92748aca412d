//! Values that the pickle put aside.

use std::collections::HashMap;

use crate::NodeId;

const EMPTY: NodeId = NodeId(u32::MAX);
/// How far beyond the last entry an index may lie and still be kept in the table.
const GAP: usize = 1024;

/// Indices are dense in pickles that Python writes; the few that are not go to a map, so that one large index costs
/// nothing.
#[derive(Default)]
pub(crate) struct Memo {
    table: Vec<NodeId>,
    sparse: HashMap<u64, NodeId>,
    count: u32,
}

impl Memo {
    /// How many entries there are.
    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    /// Memory that it takes.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        // An entry of the map, its mark, and the room that a map leaves free.
        const SPARSE: usize = 2 * (size_of::<(u64, NodeId)>() + 1);
        (self.table.len() * size_of::<NodeId>() + self.sparse.len() * SPARSE) as u64
    }

    #[inline]
    pub(crate) fn get(&self, index: u64) -> Option<NodeId> {
        let dense = usize::try_from(index).ok().and_then(|index| self.table.get(index));
        match dense {
            Some(&node) if node != EMPTY => Some(node),
            _ => self.sparse.get(&index).copied(),
        }
    }

    /// Sets an entry, unless there are `limit` of them or the index is not below `limit`.
    #[inline]
    #[must_use]
    pub(crate) fn put(&mut self, index: u64, node: NodeId, limit: u32) -> bool {
        if index == self.table.len() as u64 && self.count < limit && index < u64::from(limit) && self.sparse.is_empty()
        {
            self.table.push(node);
            self.count += 1;
            return true;
        }
        self.put_out_of_order(index, node, limit)
    }

    /// Points an entry that is there elsewhere.
    pub(crate) fn replace(&mut self, index: u64, node: NodeId) {
        let dense = usize::try_from(index).ok().and_then(|index| self.table.get_mut(index));
        match dense {
            Some(entry) if *entry != EMPTY => *entry = node,
            _ => {
                self.sparse.insert(index, node);
            }
        }
    }

    fn put_out_of_order(&mut self, index: u64, node: NodeId, limit: u32) -> bool {
        if index >= u64::from(limit) {
            return false;
        }
        let is_new = self.get(index).is_none();
        if is_new && self.count >= limit {
            return false;
        }
        self.count += u32::from(is_new);
        // Below the limit, which is a u32.
        let dense = index as usize;
        if self.sparse.contains_key(&index) || dense > self.table.len() + GAP {
            self.sparse.insert(index, node);
            return true;
        }
        if dense >= self.table.len() {
            self.table.resize(dense + 1, EMPTY);
        }
        self.table[dense] = node;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_indices_cost_nothing() {
        let mut memo = Memo::default();
        assert!(memo.put(4_000_000_000, NodeId(1), u32::MAX));
        assert!(memo.put(0, NodeId(2), u32::MAX));
        assert!(memo.put(4_000_000_000, NodeId(3), u32::MAX));
        assert_eq!(memo.len(), 2);
        assert_eq!(memo.get(4_000_000_000), Some(NodeId(3)));
        assert_eq!(memo.get(0), Some(NodeId(2)));
        assert_eq!(memo.get(1), None);
        assert!(memo.table.len() < 2000);
    }

    #[test]
    fn the_limit_holds_for_indices_and_entries() {
        let mut memo = Memo::default();
        assert!(!memo.put(2, NodeId(1), 2));
        assert!(memo.put(1, NodeId(1), 2));
        assert!(memo.put(0, NodeId(1), 2));
        assert!(memo.put(0, NodeId(2), 2));
        assert_eq!(memo.len(), 2);
    }
}
