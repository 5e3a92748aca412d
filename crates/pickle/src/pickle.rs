//! A pickle that was read.

use lowtide_core::Bytes;

use crate::arena::{Arena, Container, InputSpan, Kind, Node};
use crate::measure::Measure;
use crate::value::{Global, Object, Pairs};
use crate::{BigInt, NodeId, Value};

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

    /// The value of a node.
    #[must_use]
    pub fn get(&self, id: NodeId) -> Value<'_> {
        let arena = &self.arena;
        match arena.node(id) {
            Node::None => Value::None,
            Node::Bool(value) => Value::Bool(value),
            Node::Int(value) => Value::Int(value),
            Node::Float(value) => Value::Float(value),
            Node::BigInt(span) => Value::BigInt(BigInt(arena.bytes_at(span))),
            Node::Str(span) => Value::Str(arena.str_at(span)),
            Node::Surrogates(span) => Value::Surrogates(arena.bytes_at(span)),
            Node::Bytes(span) => Value::Bytes(arena.bytes_at(span)),
            Node::ByteArray(span) => Value::ByteArray(arena.bytes_at(span)),
            Node::InputBytes(index) => {
                let InputSpan { offset, length } = arena.input_spans[index as usize];
                Value::FarBytes { offset, length }
            }
            Node::Container(kind, index) => self.container(kind, arena.containers[index as usize]),
            Node::Global(index) => Value::Global(self.global(index)),
            Node::Object(index) => Value::Object(self.object(index)),
        }
    }

    /// The value of a string key in a dict, or in an object that was filled like one.
    ///
    /// Looks at every entry, from the last to the first.
    #[must_use]
    pub fn entry(&self, dict: NodeId, key: &str) -> Option<NodeId> {
        let pairs = match self.get(dict) {
            Value::Dict(pairs) => pairs,
            Value::Object(object) => object.pairs,
            _ => return None,
        };
        pairs.iter().rev().find(|(name, _)| self.str(*name) == Some(key)).map(|(_, value)| value)
    }

    /// The text of a string.
    #[must_use]
    pub fn str(&self, id: NodeId) -> Option<&str> {
        match self.arena.node(id) {
            Node::Str(span) => Some(self.arena.str_at(span)),
            _ => None,
        }
    }

    /// An integer of 64 bits.
    #[must_use]
    pub fn int(&self, id: NodeId) -> Option<i64> {
        match self.arena.node(id) {
            Node::Int(value) => Some(value),
            _ => None,
        }
    }

    fn container(&self, kind: Kind, container: Container) -> Value<'_> {
        let items = self.arena.items_of(container);
        match kind {
            Kind::List => Value::List(items),
            Kind::Tuple => Value::Tuple(items),
            Kind::Dict => Value::Dict(Pairs(items)),
            Kind::Set => Value::Set(items),
            Kind::FrozenSet => Value::FrozenSet(items),
            Kind::Persistent => Value::Persistent(items[0]),
        }
    }

    fn global(&self, index: u32) -> Global<'_> {
        let global = self.arena.global_at(index);
        Global { module: &global.module, name: &global.name }
    }

    fn object(&self, index: u32) -> Object<'_> {
        let parts = &self.arena.objects[index as usize];
        Object {
            class: self.global(parts.global),
            construction: parts.construction,
            args: self.arena.items_of(parts.args),
            kwargs: parts.kwargs,
            state: parts.state,
            items: self.arena.items_of(parts.items),
            pairs: Pairs(self.arena.items_of(parts.pairs)),
        }
    }
}
