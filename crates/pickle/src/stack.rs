//! The machine's stack.

use crate::NodeId;

/// Values, and the places where the pickle set a mark.
#[derive(Default)]
pub(crate) struct Stack {
    values: Vec<NodeId>,
    marks: Vec<usize>,
    /// Containers that are being filled, each with its place, where it has been since it was made: what stands below it is older than it.
    open: Vec<(NodeId, usize)>,
}

impl Stack {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.values.len() + self.marks.len()
    }

    /// Memory that it takes.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        let open = self.open.len() * size_of::<(NodeId, usize)>();
        (self.values.len() * size_of::<NodeId>() + self.marks.len() * size_of::<usize>() + open) as u64
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
        let value = self.values.pop();
        self.close();
        value
    }

    /// Takes the last `N` values off, in order.
    #[inline]
    pub(crate) fn pop_array<const N: usize>(&mut self) -> Option<[NodeId; N]> {
        let values = *self.above_mark().last_chunk::<N>()?;
        self.values.truncate(self.values.len() - N);
        self.close();
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
        self.close();
    }

    /// Takes the top for a container that was just made.
    #[inline]
    pub(crate) fn open_top(&mut self) {
        if let Some(top) = self.values.last() {
            self.open.push((*top, self.values.len() - 1));
        }
    }

    /// Whether the value just below a place is a container that has been there since it was made.
    #[inline]
    pub(crate) fn is_open_below(&self, place: usize) -> bool {
        // Those above it are filled by now.
        let open = self.open.iter().rev().find(|(_, at)| *at < place);
        open.is_some_and(|(node, at)| at + 1 == place && self.values[*at] == *node)
    }

    /// Puts another node in the place of the value just below one.
    pub(crate) fn replace_below(&mut self, place: usize, node: NodeId) {
        self.values[place - 1] = node;
    }

    /// Forgets containers that are no longer where they were.
    #[inline]
    fn close(&mut self) {
        while self.open.last().is_some_and(|(_, place)| *place >= self.values.len()) {
            self.open.pop();
        }
    }

    #[inline]
    fn above_mark(&self) -> &[NodeId] {
        &self.values[self.marks.last().copied().unwrap_or(0)..]
    }
}
