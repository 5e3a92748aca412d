//! Dicts that become numbers as they are read.
//!
//! A long memory snapshot is millions of small dicts in a row. Whoever knows what they are can take from each what it wants while the rest is
//! still being read, and the table never holds more than a few of them.
//!
//! What may be forgotten: a dict is whole when its pairs are set, and everything above it in the table was made for it. No older value can have
//! come to hold any of that, because a container is only filled at the place where it was made ([`crate::stack`]), and what the memo knows is
//! kept.

use std::io::BufRead;

use crate::arena::{Kind, Node};
use crate::reader::Reader;
use crate::{NodeId, Pairs, PickleError, Values};

/// Takes dicts in as they are read.
pub trait Fold {
    /// Whether there is anything to do.
    #[doc(hidden)]
    const IS_ON: bool = true;

    /// A number that stands for the dict from now on, as [`Value::Folded`](crate::Value::Folded); none where the dict is to be kept.
    ///
    /// A node is only good for this call, except for a list that [`Values::is_kept`].
    fn fold(&mut self, dict: Pairs<'_>, values: Values<'_>) -> Option<u32>;
}

/// Keeps everything.
pub(crate) struct KeepAll;

impl Fold for KeepAll {
    const IS_ON: bool = false;

    fn fold(&mut self, _dict: Pairs<'_>, _values: Values<'_>) -> Option<u32> {
        None
    }
}

/// What the memo knows, as far as it decides what may be forgotten.
#[derive(Default)]
pub(crate) struct Puts {
    /// The newest value in the memo.
    newest: Option<NodeId>,
    /// The entry that put it there, and the newest before.
    last: Option<(u64, Option<NodeId>)>,
}

impl Puts {
    #[inline]
    pub(crate) fn put(&mut self, index: u64, node: NodeId) {
        if Some(node) > self.newest {
            self.last = Some((index, self.newest));
            self.newest = Some(node);
        } else if Some(node) == self.newest {
            // Two entries: neither alone can be pointed elsewhere.
            self.last = None;
        }
    }
}

impl<R: BufRead, F: Fold> Reader<'_, R, F> {
    /// Makes the values that all others share, so that none of them is part of a dict that is forgotten.
    pub(crate) fn prepare_to_fold(&mut self) -> Result<(), PickleError> {
        let Self { arena, shared, .. } = self;
        let made = (0..=u8::MAX).try_for_each(|value| arena.small_int(shared, value).map(|_| ()));
        made.and_then(|()| arena.empty_tuple(shared).map(|_| ())).map_err(|over| self.over(over))
    }

    /// Adds the values from `start` on to the list below them, or finds one that is like it.
    pub(crate) fn fill_list(&mut self, list: u32, start: usize) -> Result<(), PickleError> {
        if F::IS_ON && self.share_list(start)? {
            return Ok(());
        }
        let items = self.stack.from(start);
        let Self { arena, shared, .. } = self;
        // Places of items that may be forgotten are not remembered.
        let filled = if F::IS_ON { arena.append(list, items) } else { arena.append_to_list(shared, list, items) };
        filled.map_err(|over| self.over(over))
    }

    /// Whether the list below `start` became one that was there before, with the values from `start` on as its items.
    fn share_list(&mut self, start: usize) -> Result<bool, PickleError> {
        let Some(node) = self.stack.value_below(start) else { return Ok(false) };
        if self.puts.newest != Some(node) || !self.arena.is_last_and_empty(node) {
            return Ok(false);
        }
        let known = self.arena.list_like(&mut self.shared, node, self.stack.from(start));
        let known = known.map_err(|over| self.over(over))?;
        let Some(known) = known else { return Ok(false) };
        let is_shared = self.use_instead(node, known);
        if is_shared {
            self.stack.replace_below(start, known);
        }
        Ok(is_shared)
    }

    /// Lets the memo have another node instead of the newest of the table, which goes; not where it is in the memo twice.
    fn use_instead(&mut self, newest: NodeId, known: NodeId) -> bool {
        let Some((entry, before)) = self.puts.last.filter(|(entry, _)| self.memo.get(*entry) == Some(newest)) else {
            return false;
        };
        self.arena.forget_from(newest);
        self.memo.replace(entry, known);
        self.puts = Puts { newest: before, last: None };
        true
    }

    /// Hands the dict below `start` over, with the values from there on as its pairs; whether it was taken.
    pub(crate) fn fold_dict(&mut self, start: usize) -> Result<bool, PickleError> {
        let Some(dict) = self.stack.value_below(start) else { return Ok(false) };
        if !self.arena.is_empty_container(dict) {
            return Ok(false);
        }
        let pairs = Pairs(self.stack.from(start));
        let Some(number) = self.fold.fold(pairs, Values(&self.arena)) else { return Ok(false) };
        self.forget_empty_list(start)?;
        // Whatever hangs on an object may have been given to it from afar.
        if self.puts.newest <= Some(dict) && self.arena.objects.is_empty() {
            self.arena.forget_behind(dict);
        }
        self.arena.nodes[dict.index()] = Node::Folded(number);
        Ok(true)
    }

    /// An empty list at the end of a dict is never filled, and so has not met those that are like it.
    fn forget_empty_list(&mut self, start: usize) -> Result<(), PickleError> {
        let Some(last) = self.stack.from(start).last().copied() else { return Ok(()) };
        if self.puts.newest != Some(last) || !self.arena.is_last_and_empty(last) {
            return Ok(());
        }
        let known = self.arena.list_like(&mut self.shared, last, &[]).map_err(|over| self.over(over))?;
        if let Some(known) = known {
            self.use_instead(last, known);
        }
        Ok(())
    }

    /// Refuses to add to a container from afar: it may be in a dict that was taken in.
    pub(crate) fn check_fill(&self, target: Option<Node>, start: usize) -> Result<(), PickleError> {
        let is_container = matches!(target, Some(Node::Container(Kind::List | Kind::Dict | Kind::Set, _)));
        if is_container && !self.stack.is_open_below(start) {
            return Err(self.malformed("adds to a value that was whole already".to_owned()));
        }
        Ok(())
    }
}
