//! Which classes and functions a pickle may name, and what becomes of a call.

use std::collections::{HashMap, HashSet};

/// What a pickle may do with a name, and what comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// A call or a new instance becomes a [`Value::Object`](crate::Value::Object).
    Object,
    /// A new instance without a call of the class (`cls.__new__`) becomes an object; a call is refused.
    New,
    /// As [`Call::Object`], and a call of such an instance becomes an object of the same class again.
    Factory,
    /// May be named, as `torch.float32` is, but neither called nor made.
    Name,
    /// `set(list)`: a [`Value::Set`](crate::Value::Set).
    Set,
    /// `frozenset(list)`: a [`Value::FrozenSet`](crate::Value::FrozenSet).
    FrozenSet,
    /// `bytes()`: a [`Value::Bytes`](crate::Value::Bytes).
    Bytes,
    /// `bytearray(bytes)`: a [`Value::ByteArray`](crate::Value::ByteArray).
    ByteArray,
    /// `codecs.encode(text, "latin1")`, which is how Python 3 writes byte strings for Python 2: a
    /// [`Value::Bytes`](crate::Value::Bytes).
    Encode,
    /// `copyreg._reconstructor(class, base, value)`, which is how protocols 0 and 1 make instances: an object of that
    /// class.
    Reconstruct,
}

/// The names that a pickle may use; everything else is refused where it is named.
#[derive(Debug, Clone)]
pub struct AllowList {
    /// By module and name with a line end between them, which neither can hold.
    calls: HashMap<String, Call>,
    unknown: Option<HashSet<String>>,
}

/// The names that Python itself writes for plain values, with those of Python 2 beside them.
const PLAIN: [(&str, &str, Call); 13] = [
    ("builtins", "set", Call::Set),
    ("__builtin__", "set", Call::Set),
    ("builtins", "frozenset", Call::FrozenSet),
    ("__builtin__", "frozenset", Call::FrozenSet),
    ("builtins", "bytes", Call::Bytes),
    ("__builtin__", "bytes", Call::Bytes),
    ("builtins", "bytearray", Call::ByteArray),
    ("__builtin__", "bytearray", Call::ByteArray),
    ("_codecs", "encode", Call::Encode),
    ("copyreg", "_reconstructor", Call::Reconstruct),
    ("copy_reg", "_reconstructor", Call::Reconstruct),
    // `_reconstructor` is given the base class `object` for plain instances.
    ("builtins", "object", Call::Name),
    ("__builtin__", "object", Call::Name),
];

impl AllowList {
    /// What Python writes for plain values and containers, and nothing else.
    #[must_use]
    pub fn plain() -> Self {
        let mut allow = Self { calls: HashMap::new(), unknown: None };
        allow.add(&PLAIN);
        allow
    }

    /// Adds names, each as module, name within it, and what becomes of a call.
    pub fn add(&mut self, names: &[(&str, &str, Call)]) {
        for (module, name, call) in names {
            self.calls.insert(key(module, name), *call);
        }
    }

    /// Lets every other class be made by [`Call::New`], but those of `modules`.
    ///
    /// A named tuple is an instance of a class that nobody can list beforehand. Calls of unknown names stay refused.
    #[must_use]
    pub fn with_unknown_classes_except(mut self, modules: &[&str]) -> Self {
        self.unknown = Some(modules.iter().map(|module| (*module).to_owned()).collect());
        self
    }

    pub(crate) fn look_up(&self, module: &str, name: &str) -> Option<Call> {
        if let Some(call) = self.calls.get(&key(module, name)) {
            return Some(*call);
        }
        let refused = self.unknown.as_ref()?;
        let top = module.split('.').next().unwrap_or(module);
        (!refused.contains(module) && !refused.contains(top)).then_some(Call::New)
    }
}

pub(crate) fn key(module: &str, name: &str) -> String {
    format!("{module}\n{name}")
}
