//! What a file holds.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use crate::tensors::{Dtype, Storage, Tensor};

/// Keys and values, in the order of the file.
pub type Fields = Vec<(Tree, Tree)>;

/// Names of keys that are tuples end here: their parts can be shared, and then they are longer than the file.
const LONGEST_TUPLE_NAME: usize = 256;

// There may be millions of them.
const _: () = assert!(size_of::<Tree>() <= 48);

/// A sparse tensor, by the tensors it is made of.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Sparse {
    /// The layout, such as `sparse_coo`.
    pub layout: Arc<str>,
    /// The shape of the whole.
    pub shape: Vec<u64>,
    /// The parts, such as `indices` and `values`.
    pub parts: Fields,
}

/// A value that was saved, with all that hangs on it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Tree {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer of 64 bits.
    Int(i64),
    /// A larger integer: decimal up to 128 bits, `0x...` in two's complement beyond.
    BigInt(Arc<str>),
    /// A float.
    Float(f64),
    /// A complex number.
    Complex {
        /// The real part.
        real: f64,
        /// The imaginary part.
        imaginary: f64,
    },
    /// A string; lone surrogates are replaced by U+FFFD.
    Str(Arc<str>),
    /// A byte string.
    Bytes(Arc<[u8]>),
    /// A byte string that is still in the file.
    Blob(Arc<Storage>),
    /// A list, or a deque.
    List(Vec<Tree>),
    /// A tuple.
    Tuple(Vec<Tree>),
    /// An instance of a subclass of tuple; the names of its fields are not in the file.
    NamedTuple {
        /// The class, with its module.
        class: Arc<str>,
        /// The fields.
        items: Vec<Tree>,
    },
    /// A set, or a frozen set.
    Set(Vec<Tree>),
    /// A dict, a defaultdict or a Counter.
    Dict(Fields),
    /// An `OrderedDict`.
    OrderedDict(Fields),
    /// An instance of another class, by its attributes.
    Object {
        /// The class, with its module.
        class: Arc<str>,
        /// Its attributes; those of a torch_geometric `Data` are what its stores hold.
        fields: Fields,
    },
    /// A tensor, a parameter, a numpy array or a storage.
    Tensor(Arc<Tensor>),
    /// A sparse tensor.
    Sparse(Box<Sparse>),
    /// A `torch.Size`.
    Size(Vec<u64>),
    /// A `torch.device`, such as `cuda:1`.
    Device(Arc<str>),
    /// A type of values: a `torch.dtype`, or a numpy one that has a name in torch.
    Dtype(Dtype),
    /// A class or function that is only named.
    Class(Arc<str>),
}

impl Tree {
    /// The value under a key or an index, written as in a path.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children().rev().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// The value at a path such as `graphs.0.edge_index`; keys may have dots in them.
    #[must_use]
    pub fn at(&self, path: &str) -> Option<&Self> {
        if path.is_empty() {
            return Some(self);
        }
        self.children().rev().find_map(|(key, value)| match path.strip_prefix(&*key)? {
            "" => Some(value),
            rest => value.at(rest.strip_prefix('.')?),
        })
    }

    /// The tensor, where it is one.
    #[must_use]
    #[inline]
    pub fn tensor(&self) -> Option<&Tensor> {
        match self {
            Self::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The text, where it is a string.
    #[must_use]
    pub fn str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// What it holds, each with the name it has in a path.
    #[must_use]
    #[inline]
    pub fn children(&self) -> impl DoubleEndedIterator<Item = (Cow<'_, str>, &Self)> {
        let (items, fields) = self.contents();
        let items = items.iter().enumerate().map(|(index, item)| (Cow::Owned(index.to_string()), item));
        items.chain(fields.iter().map(|(key, value)| (key.name(), value)))
    }

    /// What it holds, keys left out.
    pub fn parts(&self) -> impl Iterator<Item = &Self> {
        let (items, fields) = self.contents();
        items.iter().chain(fields.iter().map(|(_, value)| value))
    }

    fn contents(&self) -> (&[Self], &[(Self, Self)]) {
        match self {
            Self::List(items) | Self::Tuple(items) | Self::Set(items) | Self::NamedTuple { items, .. } => (items, &[]),
            Self::Dict(fields) | Self::OrderedDict(fields) | Self::Object { fields, .. } => (&[], fields),
            Self::Sparse(sparse) => (&[], &sparse.parts),
            _ => (&[], &[]),
        }
    }

    /// How a key is written in a path.
    #[must_use]
    #[inline]
    pub fn name(&self) -> Cow<'_, str> {
        match self {
            Self::Str(text) | Self::BigInt(text) | Self::Device(text) | Self::Class(text) => Cow::Borrowed(text),
            Self::None => Cow::Borrowed("None"),
            Self::Bool(true) => Cow::Borrowed("True"),
            Self::Bool(false) => Cow::Borrowed("False"),
            Self::Dtype(dtype) => Cow::Borrowed(dtype.name()),
            Self::Int(value) => Cow::Owned(value.to_string()),
            Self::Float(value) => Cow::Owned(format!("{value:?}")),
            Self::Bytes(bytes) => Cow::Owned(bytes.escape_ascii().to_string()),
            Self::Tuple(items) | Self::NamedTuple { items, .. } => {
                let mut name = "(".to_owned();
                for (index, item) in items.iter().enumerate() {
                    if name.len() > LONGEST_TUPLE_NAME {
                        name.push_str(", ...");
                        break;
                    }
                    let comma = if index == 0 { "" } else { ", " };
                    // Writing to a string does not fail.
                    let _ = write!(name, "{comma}{:.256}", item.name());
                }
                Cow::Owned(name + ")")
            }
            _ => Cow::Borrowed("?"),
        }
    }
}
