//! How the values of a table are looked at.

use crate::arena::{Arena, Container, InputSpan, Kind, Node};
use crate::value::{Global, Object, Pairs};
use crate::{BigInt, NodeId, Value};

/// The values of a pickle, while it is read or afterwards.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a>(pub(crate) &'a Arena);

impl<'a> Values<'a> {
    /// Whether a list will not be forgotten with the dict that holds it: its node is good as long as the pickle is read.
    #[must_use]
    pub fn is_kept(self, list: NodeId) -> bool {
        matches!(self.0.node(list), Node::Container(Kind::SharedList, _))
    }

    /// The value of a node.
    #[must_use]
    pub fn get(self, id: NodeId) -> Value<'a> {
        let arena = self.0;
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
            Node::Folded(number) => Value::Folded(number),
        }
    }

    /// The value of a string key in a dict, or in an object that was filled like one.
    ///
    /// Looks at every entry, from the last to the first.
    #[must_use]
    pub fn entry(self, dict: NodeId, key: &str) -> Option<NodeId> {
        let pairs = match self.get(dict) {
            Value::Dict(pairs) => pairs,
            Value::Object(object) => object.pairs,
            _ => return None,
        };
        pairs.iter().rev().find(|(name, _)| self.str(*name) == Some(key)).map(|(_, value)| value)
    }

    /// The text of a string.
    #[must_use]
    pub fn str(self, id: NodeId) -> Option<&'a str> {
        match self.0.node(id) {
            Node::Str(span) => Some(self.0.str_at(span)),
            _ => None,
        }
    }

    /// An integer of 64 bits.
    #[must_use]
    pub fn int(self, id: NodeId) -> Option<i64> {
        match self.0.node(id) {
            Node::Int(value) => Some(value),
            _ => None,
        }
    }

    fn container(self, kind: Kind, container: Container) -> Value<'a> {
        let items = self.0.items_of(container);
        match kind {
            Kind::List | Kind::SharedList => Value::List(items),
            Kind::Tuple => Value::Tuple(items),
            Kind::Dict => Value::Dict(Pairs(items)),
            Kind::Set => Value::Set(items),
            Kind::FrozenSet => Value::FrozenSet(items),
            Kind::Persistent => Value::Persistent(items[0]),
        }
    }

    fn global(self, index: u32) -> Global<'a> {
        let global = self.0.global_at(index);
        Global { module: &global.module, name: &global.name }
    }

    fn object(self, index: u32) -> Object<'a> {
        let parts = &self.0.objects[index as usize];
        Object {
            class: self.global(parts.global),
            construction: parts.construction,
            args: self.0.items_of(parts.args),
            kwargs: parts.kwargs,
            state: parts.state,
            items: self.0.items_of(parts.items),
            pairs: Pairs(self.0.items_of(parts.pairs)),
        }
    }
}
