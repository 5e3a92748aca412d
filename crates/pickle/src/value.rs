//! What a pickle holds, as its reader sees it.

use crate::BigInt;

/// A value of a [`Pickle`](crate::Pickle); means nothing in another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// Position in the table, for a side table of the caller's own.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One value; containers give the ids of what they hold.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer of 64 bits.
    Int(i64),
    /// A larger integer.
    BigInt(BigInt<'a>),
    /// A float.
    Float(f64),
    /// A string. Strings of Python 2 are here too where they are UTF-8.
    Str(&'a str),
    /// A string with lone surrogates, which Python can hold and UTF-8 cannot: UTF-8 but for those.
    Surrogates(&'a [u8]),
    /// A byte string, or a string of Python 2 that is not UTF-8.
    Bytes(&'a [u8]),
    /// A byte array.
    ByteArray(&'a [u8]),
    /// A byte string or byte array longer than [`Limits::far_bytes`](crate::Limits::far_bytes), left in the input.
    FarBytes {
        /// Where its bytes begin, counted from the start of the pickle.
        offset: u64,
        /// How many they are, as the pickle says: where it was read by seeking, nobody has looked yet.
        length: u64,
    },
    /// A list.
    List(&'a [NodeId]),
    /// A tuple.
    Tuple(&'a [NodeId]),
    /// A dict, in the order of insertion.
    Dict(Pairs<'a>),
    /// A set, in the order of the pickle, with every member as often as it was added.
    Set(&'a [NodeId]),
    /// A frozen set, likewise.
    FrozenSet(&'a [NodeId]),
    /// A class or function that was named.
    Global(Global<'a>),
    /// What would have been an instance of a class or the result of a call.
    Object(Object<'a>),
    /// A reference to something outside the pickle, with the id that names it.
    Persistent(NodeId),
    /// A dict that was taken in while the pickle was read, by the number that [`Fold`](crate::Fold) gave it.
    Folded(u32),
}

/// A class or function, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Global<'a> {
    /// The module.
    pub module: &'a str,
    /// The name within it, with dots where classes are nested.
    pub name: &'a str,
}

/// How an object was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Construction {
    /// By a call of the class or function.
    Call,
    /// By `cls.__new__`, without a call of the class.
    New,
}

/// An instance or the result of a call, as data.
#[derive(Debug, Clone, Copy)]
pub struct Object<'a> {
    /// The class or function.
    pub class: Global<'a>,
    /// How it was made.
    pub construction: Construction,
    /// The arguments.
    pub args: &'a [NodeId],
    /// The keyword arguments, a dict.
    pub kwargs: Option<NodeId>,
    /// The state it was given afterwards.
    pub state: Option<NodeId>,
    /// What was appended or added, for subclasses of lists and sets.
    pub items: &'a [NodeId],
    /// What was set by key, for subclasses of dicts.
    pub pairs: Pairs<'a>,
}

/// Keys and values in the order of insertion.
///
/// A key that was set twice is here twice, and the later value is the one that counts.
#[derive(Debug, Clone, Copy)]
pub struct Pairs<'a>(pub(crate) &'a [NodeId]);

impl<'a> Pairs<'a> {
    /// How many there are.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.len() / 2
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Every key with its value.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = (NodeId, NodeId)> + ExactSizeIterator + 'a {
        self.0.chunks_exact(2).map(|pair| (pair[0], pair[1]))
    }
}
