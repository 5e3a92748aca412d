//! The table in which the values of a pickle stand.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use lowtide_core::Bytes;

use crate::allow_list::key;
use crate::measure::MEASURED;
use crate::value::Construction;
use crate::{Call, LimitKind, Limits, NodeId};

/// A value in 16 bytes; whatever has no fixed size stands in a table of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Node {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    BigInt(Span),
    Str(Span),
    Surrogates(Span),
    Bytes(Span),
    ByteArray(Span),
    InputBytes(u32),
    Container(Kind, u32),
    Global(u32),
    Object(u32),
    /// A dict that was taken in while the pickle was read, by the number that its reader gave it.
    Folded(u32),
}

const _: () = assert!(size_of::<Node>() == 16);

/// What a container and an object take besides their node, with their place in the last check.
const CONTAINER: u64 = (size_of::<Container>() + MEASURED) as u64;
const OBJECT: u64 = (size_of::<ObjectParts>() + MEASURED) as u64;
/// A name with its place in the map that finds it.
const GLOBAL: u64 = (size_of::<GlobalName>() + 64) as u64;

/// A piece of the text or of the bytes.
#[derive(Debug, Clone, Copy)]
#[repr(Rust, packed(4))]
pub(crate) struct Span {
    start: u64,
    length: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    List,
    /// A list that others turned out to be like: one node does for all, and nothing can be added to it.
    SharedList,
    Tuple,
    Dict,
    Set,
    FrozenSet,
    /// One item: the id.
    Persistent,
}

/// Where the items of a container stand in the pool of all items.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Container {
    start: u32,
    length: u32,
    capacity: u32,
}

#[derive(Debug)]
pub(crate) struct GlobalName {
    pub(crate) module: String,
    pub(crate) name: String,
    pub(crate) call: Call,
}

#[derive(Debug)]
pub(crate) struct ObjectParts {
    pub(crate) global: u32,
    pub(crate) construction: Construction,
    pub(crate) args: Container,
    pub(crate) kwargs: Option<NodeId>,
    pub(crate) state: Option<NodeId>,
    pub(crate) items: Container,
    pub(crate) pairs: Container,
}

/// Bytes that were left in the input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InputSpan {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// More than a limit allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overrun {
    pub(crate) what: LimitKind,
    pub(crate) limit: u64,
}

/// All tables; grows while the pickle is read and stays as it is afterwards.
#[derive(Debug)]
pub(crate) struct Arena {
    limits: Limits,
    /// Bytes that may still be taken.
    room: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) containers: Vec<Container>,
    pub(crate) objects: Vec<ObjectParts>,
    globals: Vec<GlobalName>,
    pub(crate) input_spans: Vec<InputSpan>,
    items: Vec<NodeId>,
    text: String,
    bytes: Vec<u8>,
}

/// Lists of so many items are looked for among those that are there: most often they are stacks, which many values share.
const SHARED_ITEMS: std::ops::RangeInclusive<usize> = 4..=512;
/// What remembering a list takes.
const REMEMBERED: u64 = 32;

/// Which nodes stand for a value that needs no more than one; only wanted while the pickle is read.
pub(crate) struct SharedNodes {
    small_ints: [Option<NodeId>; 256],
    /// Nothing can be added to it, so that one does for all.
    empty_tuple: Option<NodeId>,
    globals: HashMap<String, NodeId>,
    hasher: RandomState,
    /// Where the items of lists stand, by their hash.
    items: HashMap<u64, (u32, u32)>,
    /// Lists that are kept as they are, by the hash of their items.
    lists: HashMap<u64, NodeId>,
}

impl SharedNodes {
    pub(crate) fn new() -> Self {
        Self {
            small_ints: [None; 256],
            empty_tuple: None,
            globals: HashMap::new(),
            hasher: RandomState::new(),
            items: HashMap::new(),
            lists: HashMap::new(),
        }
    }
}

/// `None`, `False` and `True` are the first nodes of every table.
pub(crate) const NONE: NodeId = NodeId(0);
pub(crate) const FALSE: NodeId = NodeId(1);
pub(crate) const TRUE: NodeId = NodeId(2);

impl Arena {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            room: limits.memory,
            limits,
            nodes: vec![Node::None, Node::Bool(false), Node::Bool(true)],
            containers: Vec::new(),
            objects: Vec::new(),
            globals: Vec::new(),
            input_spans: Vec::new(),
            items: Vec::new(),
            text: String::new(),
            bytes: Vec::new(),
        }
    }

    /// Counts bytes before they are taken.
    #[inline]
    pub(crate) fn charge(&mut self, bytes: u64) -> Result<(), Overrun> {
        match self.room.checked_sub(bytes) {
            Some(room) => self.room = room,
            None => return Err(Overrun { what: LimitKind::Memory, limit: self.limits.memory }),
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn push(&mut self, node: Node) -> Result<NodeId, Overrun> {
        self.charge(size_of::<Node>() as u64)?;
        // The three that are always there do not count.
        if self.nodes.len() >= self.limits.nodes as usize + 3 {
            return Err(Overrun { what: LimitKind::Nodes, limit: u64::from(self.limits.nodes) });
        }
        let id = u32::try_from(self.nodes.len());
        self.nodes.push(node);
        id.map(NodeId).map_err(|_| Overrun { what: LimitKind::Nodes, limit: u64::from(u32::MAX) })
    }

    #[inline]
    pub(crate) fn small_int(&mut self, shared: &mut SharedNodes, value: u8) -> Result<NodeId, Overrun> {
        if let Some(node) = shared.small_ints[usize::from(value)] {
            return Ok(node);
        }
        let node = self.push(Node::Int(i64::from(value)))?;
        shared.small_ints[usize::from(value)] = Some(node);
        Ok(node)
    }

    #[inline]
    pub(crate) fn empty_tuple(&mut self, shared: &mut SharedNodes) -> Result<NodeId, Overrun> {
        if let Some(node) = shared.empty_tuple {
            return Ok(node);
        }
        let node = self.push_container(Kind::Tuple, &[])?;
        shared.empty_tuple = Some(node);
        Ok(node)
    }

    /// How much more text there may be.
    pub(crate) fn text_left(&self) -> u64 {
        self.text_limit_left().min(self.room)
    }

    fn text_limit_left(&self) -> u64 {
        self.limits.text_bytes.saturating_sub(self.text.len() as u64 + self.bytes.len() as u64)
    }

    /// Refuses text that is too long, before any of it is read.
    #[inline]
    pub(crate) fn check_text(&self, length: u64) -> Result<(), Overrun> {
        if length > self.text_limit_left() {
            return Err(Overrun { what: LimitKind::TextBytes, limit: self.limits.text_bytes });
        }
        if length > u64::from(u32::MAX) {
            return Err(Overrun { what: LimitKind::TextBytes, limit: u64::from(u32::MAX) });
        }
        if length > self.room {
            return Err(Overrun { what: LimitKind::Memory, limit: self.limits.memory });
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn push_str(&mut self, text: &str) -> Result<NodeId, Overrun> {
        self.check_text(text.len() as u64)?;
        self.charge(text.len() as u64)?;
        let span = Span { start: self.text.len() as u64, length: text.len() as u32 };
        self.text.push_str(text);
        self.push(Node::Str(span))
    }

    /// Adds bytes as the node that `kind` makes of their place.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8], kind: fn(Span) -> Node) -> Result<NodeId, Overrun> {
        self.check_text(bytes.len() as u64)?;
        self.charge(bytes.len() as u64)?;
        let span = Span { start: self.bytes.len() as u64, length: bytes.len() as u32 };
        self.bytes.extend_from_slice(bytes);
        self.push(kind(span))
    }

    pub(crate) fn push_input_span(&mut self, span: InputSpan) -> Result<NodeId, Overrun> {
        self.charge(size_of::<InputSpan>() as u64)?;
        let index = self.input_spans.len() as u32;
        let node = self.push(Node::InputBytes(index))?;
        self.input_spans.push(span);
        Ok(node)
    }

    #[inline]
    pub(crate) fn push_container(&mut self, kind: Kind, items: &[NodeId]) -> Result<NodeId, Overrun> {
        self.charge(CONTAINER)?;
        // No more containers than nodes, whose number fits.
        let index = self.containers.len() as u32;
        let node = self.push(Node::Container(kind, index))?;
        // An empty one remembers what came before it, for `forget_behind`.
        let start = u32::try_from(self.items.len()).unwrap_or_default();
        let mut container = Container { start, length: 0, capacity: 0 };
        self.extend(&mut container, items)?;
        self.containers.push(container);
        Ok(node)
    }

    pub(crate) fn push_object(&mut self, parts: ObjectParts) -> Result<NodeId, Overrun> {
        self.charge(OBJECT)?;
        let index = self.objects.len() as u32;
        let node = self.push(Node::Object(index))?;
        self.objects.push(parts);
        Ok(node)
    }

    /// The node of a name that may be used; one for each name, however often it is used.
    pub(crate) fn global(
        &mut self,
        shared: &mut SharedNodes,
        module: &str,
        name: &str,
        look_up: impl FnOnce() -> Option<Call>,
    ) -> Result<Option<NodeId>, Overrun> {
        let key = key(module, name);
        if let Some(node) = shared.globals.get(&key) {
            return Ok(Some(*node));
        }
        let Some(call) = look_up() else { return Ok(None) };
        self.check_text(key.len() as u64)?;
        self.charge(GLOBAL + 2 * key.len() as u64)?;
        let index = self.globals.len() as u32;
        let node = self.push(Node::Global(index))?;
        self.globals.push(GlobalName { module: module.to_owned(), name: name.to_owned(), call });
        shared.globals.insert(key, node);
        Ok(Some(node))
    }

    /// Adds items to a container of the table.
    #[inline]
    pub(crate) fn append(&mut self, container: u32, items: &[NodeId]) -> Result<(), Overrun> {
        let mut grown = self.containers[container as usize];
        self.extend(&mut grown, items)?;
        self.containers[container as usize] = grown;
        Ok(())
    }

    /// Adds items to a list; an empty one that becomes like one that is there shares its items.
    ///
    /// Items of a list are never changed, and one that grows further does so elsewhere: what it shares has no room left.
    pub(crate) fn append_to_list(
        &mut self,
        shared: &mut SharedNodes,
        list: u32,
        items: &[NodeId],
    ) -> Result<(), Overrun> {
        if self.containers[list as usize].length > 0 || !SHARED_ITEMS.contains(&items.len()) {
            return self.append(list, items);
        }
        let hash = shared.hasher.hash_one(items);
        if let Some((start, length)) = shared.items.get(&hash).copied()
            && self.items[start as usize..][..length as usize] == *items
        {
            self.containers[list as usize] = Container { start, length, capacity: length };
            return Ok(());
        }
        self.charge(REMEMBERED)?;
        self.append(list, items)?;
        let Container { start, length, .. } = self.containers[list as usize];
        shared.items.insert(hash, (start, length));
        Ok(())
    }

    /// Whether a node is the last of the table, and an empty list.
    pub(crate) fn is_last_and_empty(&self, node: NodeId) -> bool {
        let is_last = node.index() + 1 == self.nodes.len();
        is_last
            && matches!(self.node(node), Node::Container(Kind::List, index)
            if index as usize + 1 == self.containers.len() && self.containers[index as usize].length == 0)
    }

    pub(crate) fn is_empty_container(&self, node: NodeId) -> bool {
        matches!(self.node(node), Node::Container(_, index) if self.containers[index as usize].length == 0)
    }

    /// A list with these items that stands in the table and in the memo; where there is none, `list` is it from now on.
    ///
    /// Only for lists in the memo, which are never forgotten.
    pub(crate) fn list_like(
        &mut self,
        shared: &mut SharedNodes,
        list: NodeId,
        items: &[NodeId],
    ) -> Result<Option<NodeId>, Overrun> {
        if items.len() > *SHARED_ITEMS.end() {
            return Ok(None);
        }
        let hash = shared.hasher.hash_one(items);
        let Some(known) = shared.lists.get(&hash).copied() else {
            self.charge(REMEMBERED)?;
            shared.lists.insert(hash, list);
            return Ok(None);
        };
        // An empty list that nothing was added to, twice.
        if known == list {
            return Ok(None);
        }
        let Node::Container(Kind::List | Kind::SharedList, index) = self.node(known) else { return Ok(None) };
        if self.items_of(self.containers[index as usize]) != items {
            return Ok(None);
        }
        self.nodes[known.index()] = Node::Container(Kind::SharedList, index);
        Ok(Some(known))
    }

    /// Takes everything off the table that is newer than an empty container, and its place among the containers.
    pub(crate) fn forget_behind(&mut self, container: NodeId) {
        let Node::Container(_, index) = self.node(container) else { return };
        let start = self.containers[index as usize].start as usize;
        self.forget(container.index() + 1, index as usize, start);
    }

    /// Takes an empty container and everything that is newer off the table.
    pub(crate) fn forget_from(&mut self, container: NodeId) {
        let Node::Container(_, index) = self.node(container) else { return };
        let start = self.containers[index as usize].start as usize;
        self.forget(container.index(), index as usize, start);
    }

    fn forget(&mut self, nodes: usize, containers: usize, items: usize) {
        let fewer = |from: usize, to: usize, each: usize| (from.saturating_sub(to) * each) as u64;
        self.room += fewer(self.nodes.len(), nodes, size_of::<Node>());
        self.room += fewer(self.containers.len(), containers, CONTAINER as usize);
        self.room += fewer(self.items.len(), items, size_of::<NodeId>());
        self.nodes.truncate(nodes);
        self.containers.truncate(containers);
        self.items.truncate(items);
    }

    /// Adds items to a container of an object, its items or its pairs.
    pub(crate) fn append_to_object(
        &mut self,
        object: u32,
        part: impl Fn(&mut ObjectParts) -> &mut Container,
        items: &[NodeId],
    ) -> Result<(), Overrun> {
        let mut grown = *part(&mut self.objects[object as usize]);
        self.extend(&mut grown, items)?;
        *part(&mut self.objects[object as usize]) = grown;
        Ok(())
    }

    /// Adds items to a container: in place where there is room or nothing stands behind it, else at a new place of
    /// twice the size.
    #[inline]
    fn extend(&mut self, container: &mut Container, more: &[NodeId]) -> Result<(), Overrun> {
        if more.is_empty() {
            return Ok(());
        }
        let over = Overrun { what: LimitKind::Items, limit: u64::from(self.limits.items) };
        let length = container.length as usize + more.len();
        let start = container.start as usize;
        if length <= container.capacity as usize {
            let old_end = start + container.length as usize;
            self.items[old_end..start + length].copy_from_slice(more);
            container.length = length as u32;
            return Ok(());
        }
        if self.items.len().saturating_add(length) > self.limits.items as usize {
            return Err(over);
        }
        let is_last = start + container.capacity as usize == self.items.len();
        if is_last && container.length == container.capacity {
            self.charge_items(more.len())?;
            self.items.extend_from_slice(more);
            container.capacity = length as u32;
        } else if container.length == 0 {
            self.charge_items(more.len())?;
            container.start = u32::try_from(self.items.len()).map_err(|_| over)?;
            container.capacity = length as u32;
            self.items.extend_from_slice(more);
        } else {
            let new_start = self.items.len();
            let capacity = length.next_power_of_two();
            self.charge_items(capacity)?;
            container.start = u32::try_from(new_start).map_err(|_| over)?;
            container.capacity = u32::try_from(capacity).map_err(|_| over)?;
            self.items.extend_from_within(start..start + container.length as usize);
            self.items.extend_from_slice(more);
            self.items.resize(new_start + capacity, NONE);
        }
        container.length = length as u32;
        Ok(())
    }

    #[inline]
    fn charge_items(&mut self, count: usize) -> Result<(), Overrun> {
        self.charge((count * size_of::<NodeId>()) as u64)
    }

    /// Gives back the room that the tables took to grow.
    pub(crate) fn shrink(&mut self) {
        self.nodes.shrink_to_fit();
        self.containers.shrink_to_fit();
        self.items.shrink_to_fit();
        self.text.shrink_to_fit();
        self.bytes.shrink_to_fit();
    }

    pub(crate) fn memory(&self) -> Bytes {
        fn of<T>(table: &Vec<T>) -> usize {
            table.capacity() * size_of::<T>()
        }
        let names: usize = self.globals.iter().map(|global| global.module.capacity() + global.name.capacity()).sum();
        let tables =
            of(&self.nodes) + of(&self.containers) + of(&self.objects) + of(&self.globals) + of(&self.input_spans);
        Bytes((tables + of(&self.items) + self.text.capacity() + of(&self.bytes) + names) as u64)
    }

    #[inline]
    pub(crate) fn node(&self, id: NodeId) -> Node {
        self.nodes[id.index()]
    }

    #[inline]
    pub(crate) fn items_of(&self, container: Container) -> &[NodeId] {
        &self.items[container.start as usize..][..container.length as usize]
    }

    pub(crate) fn str_at(&self, span: Span) -> &str {
        let start = span.start as usize;
        &self.text[start..start + span.length as usize]
    }

    pub(crate) fn bytes_at(&self, span: Span) -> &[u8] {
        let start = span.start as usize;
        &self.bytes[start..start + span.length as usize]
    }

    pub(crate) fn global_at(&self, index: u32) -> &GlobalName {
        &self.globals[index as usize]
    }
}
