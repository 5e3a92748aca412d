//! The machine's stack.

use crate::NodeId;

/// Values, and the places where the pickle set a mark.
#[derive(Default)]
pub(crate) struct Stack {
    values: Vec<NodeId>,
    marks: Vec<usize>,
}

impl Stack {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.values.len() + self.marks.len()
    }

    /// Memory that it takes.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        (self.values.len() * size_of::<NodeId>() + self.marks.len() * size_of::<usize>()) as u64
    }

    #[inline]
    pub(crate) fn push(&mut self, node: NodeId) {
        self.values.push(node);
    }

    #[inline]
    pub(crate) fn mark(&mut self) {
        self.marks.push(self.values.len());
    }

    /// The top value; nothing below the last mark is seen.
    #[inline]
    pub(crate) fn top(&self) -> Option<NodeId> {
        self.above_mark().last().copied()
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<NodeId> {
        self.top()?;
        self.values.pop()
    }

    /// Takes the last `N` values off, in order.
    #[inline]
    pub(crate) fn pop_array<const N: usize>(&mut self) -> Option<[NodeId; N]> {
        let values = *self.above_mark().last_chunk::<N>()?;
        self.values.truncate(self.values.len() - N);
        Some(values)
    }

    /// Where the last `count` values begin, if that many stand above the last mark.
    #[inline]
    pub(crate) fn place_of_last(&self, count: usize) -> Option<usize> {
        (self.above_mark().len() >= count).then(|| self.values.len() - count)
    }

    /// Takes the last mark off, and gives where the values above it begin; they stay until [`Stack::cut`].
    #[inline]
    pub(crate) fn pop_mark(&mut self) -> Option<usize> {
        self.marks.pop()
    }

    /// The values from a place on.
    #[inline]
    pub(crate) fn from(&self, place: usize) -> &[NodeId] {
        &self.values[place..]
    }

    /// The value just below a place, unless a mark stands between them.
    #[inline]
    pub(crate) fn value_below(&self, place: usize) -> Option<NodeId> {
        let floor = self.marks.last().copied().unwrap_or(0);
        self.values[floor..place].last().copied()
    }

    /// Drops the values from a place on.
    #[inline]
    pub(crate) fn cut(&mut self, place: usize) {
        self.values.truncate(place);
    }

    #[inline]
    fn above_mark(&self) -> &[NodeId] {
        &self.values[self.marks.last().copied().unwrap_or(0)..]
    }
}
