//! A pickle as a tree.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use lowtide_pickle::{Construction, Global, NodeId, Object, Pairs, Pickle, Value};

use crate::error::{Place, TensorFileError};
use crate::file::TensorFile;
use crate::tensors::{ByteOrder, Dtype, Source, Storage, Tensor};
use crate::tree::{Fields, Tree};

/// Where the byte strings are that the pickle reader left in the input.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PickleOrigin {
    /// In the file; the pickle begins at `start`.
    File { start: u64 },
    /// In the file once it is inflated.
    Gzip,
}

/// The longest key or name of a class that is kept in a path or in an object.
const LONGEST_NAME: usize = 200;
/// What malloc takes besides, and rounds up to.
pub(super) const MALLOC: u64 = 16;
/// The place of a value that is shared in the table that finds it again.
const SHARED: u64 = 48;

/// Turns the nodes of a pickle into a tree.
///
/// Strings, storages and tensors that are referenced several times are made once and shared, so that a small pickle
/// makes no large tree of them. Lists that share their elements do: what is made is counted, and there is an end to it.
pub(crate) struct Builder<'a> {
    pub(crate) pickle: &'a Pickle,
    pub(crate) file: &'a Arc<TensorFile>,
    pub(crate) storages: &'a HashMap<String, Arc<Storage>>,
    origin: PickleOrigin,
    /// Bytes that the tree may still take.
    room: u64,
    /// The keys on the way to where the builder is.
    path: Vec<String>,
    /// The nodes on that way.
    open: HashSet<NodeId>,
    texts: HashMap<NodeId, Arc<str>>,
    blobs: HashMap<NodeId, Arc<Storage>>,
    tensors: HashMap<NodeId, Arc<Tensor>>,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(
        pickle: &'a Pickle,
        file: &'a Arc<TensorFile>,
        storages: &'a HashMap<String, Arc<Storage>>,
        origin: PickleOrigin,
    ) -> Self {
        Self {
            pickle,
            file,
            storages,
            origin,
            room: file.table_bytes().saturating_sub(pickle.memory()).get(),
            path: Vec::new(),
            open: HashSet::new(),
            texts: HashMap::new(),
            blobs: HashMap::new(),
            tensors: HashMap::new(),
        }
    }

    /// The tree of the whole pickle.
    pub(crate) fn build_root(&mut self) -> Result<Tree, TensorFileError> {
        self.build(self.pickle.root())
    }

    /// The tree of a node.
    pub(crate) fn build(&mut self, node: NodeId) -> Result<Tree, TensorFileError> {
        self.charge(size_of::<Tree>() as u64)?;
        Ok(match self.pickle.get(node) {
            Value::None => Tree::None,
            Value::Bool(value) => Tree::Bool(value),
            Value::Int(value) => Tree::Int(value),
            Value::BigInt(_) => Tree::BigInt(self.text(node)?),
            Value::Float(value) => Tree::Float(value),
            Value::Str(_) | Value::Surrogates(_) => Tree::Str(self.text(node)?),
            Value::Bytes(_) | Value::ByteArray(_) | Value::FarBytes { .. } => self.byte_string(node)?,
            Value::Global(global) => match (global.module, Dtype::from_name(global.name)) {
                ("torch", Some(dtype)) => Tree::Dtype(dtype),
                _ => Tree::Class(self.class_name(global)?),
            },
            Value::List(items) => Tree::List(self.enter(node, |builder| builder.items(items))?),
            Value::Tuple(items) => Tree::Tuple(self.enter(node, |builder| builder.items(items))?),
            Value::Set(items) | Value::FrozenSet(items) => Tree::Set(self.enter(node, |builder| builder.items(items))?),
            Value::Dict(pairs) => Tree::Dict(self.enter(node, |builder| builder.fields(pairs))?),
            Value::Persistent(_) => self.bare_storage(node)?,
            // Nothing is folded here.
            Value::Folded(number) => Tree::Int(i64::from(number)),
            Value::Object(object) => match self.tensors.get(&node) {
                Some(tensor) => Tree::Tensor(Arc::clone(tensor)),
                None => {
                    let tree = self.enter(node, |builder| builder.object(&object))?;
                    if let Tree::Tensor(tensor) = &tree {
                        let sizes = (2 * tensor.shape().len() * size_of::<u64>()) as u64;
                        self.charge(size_of::<Tensor>() as u64 + sizes + 3 * MALLOC + SHARED)?;
                        self.tensors.insert(node, Arc::clone(tensor));
                    }
                    tree
                }
            },
        })
    }

    /// Counts bytes before they are taken.
    pub(super) fn charge(&mut self, bytes: u64) -> Result<(), TensorFileError> {
        match self.room.checked_sub(bytes) {
            Some(room) => self.room = room,
            None => {
                let limit = self.file.table_bytes();
                let what = format!("more than {limit} of lists, dicts and numbers");
                return Err(self.file.too_much(self.place(), what, limit.to_string()));
            }
        }
        Ok(())
    }

    /// Does `work` on what a node holds, unless it is being worked on already.
    fn enter<T>(
        &mut self,
        node: NodeId,
        work: impl FnOnce(&mut Self) -> Result<T, TensorFileError>,
    ) -> Result<T, TensorFileError> {
        if !self.open.insert(node) {
            return Err(self.malformed("contains itself"));
        }
        self.charge(MALLOC)?;
        let done = work(self);
        self.open.remove(&node);
        done
    }

    pub(crate) fn items(&mut self, items: &[NodeId]) -> Result<Vec<Tree>, TensorFileError> {
        items.iter().enumerate().map(|(index, item)| self.child(index.to_string(), *item)).collect()
    }

    /// Entries of a dict; where a key was set twice, the later value stands in the place of the first.
    pub(crate) fn fields(&mut self, pairs: Pairs<'_>) -> Result<Fields, TensorFileError> {
        let mut fields = Fields::with_capacity(pairs.len());
        let mut places: HashMap<&str, usize> = HashMap::new();
        let pickle = self.pickle;
        for (key, value) in pairs.iter() {
            let (key_tree, value) = self.field(key, value)?;
            match pickle.str(key).and_then(|text| places.insert(text, fields.len()).map(|place| (text, place))) {
                Some((text, place)) => {
                    places.insert(text, place);
                    fields[place].1 = value;
                }
                None => fields.push((key_tree, value)),
            }
        }
        Ok(fields)
    }

    fn field(&mut self, key: NodeId, value: NodeId) -> Result<(Tree, Tree), TensorFileError> {
        let key = self.build(key)?;
        let value = self.child(key.name().into_owned(), value)?;
        Ok((key, value))
    }

    /// The tree of a node that stands under a name.
    pub(crate) fn child(&mut self, name: String, node: NodeId) -> Result<Tree, TensorFileError> {
        // Long keys are cut, for each storage keeps its path.
        self.path.push(if name.len() > LONGEST_NAME { format!("{name:.LONGEST_NAME$}...") } else { name });
        let tree = self.build(node);
        self.path.pop();
        tree
    }

    pub(crate) fn text(&mut self, node: NodeId) -> Result<Arc<str>, TensorFileError> {
        if let Some(text) = self.texts.get(&node) {
            return Ok(Arc::clone(text));
        }
        let text: Arc<str> = match self.pickle.get(node) {
            Value::Str(text) => text.into(),
            Value::Surrogates(bytes) => String::from_utf8_lossy(bytes).into(),
            Value::BigInt(value) => value.to_string().into(),
            _ => "".into(),
        };
        self.charge(text.len() as u64 + 2 * MALLOC + SHARED)?;
        self.texts.insert(node, Arc::clone(&text));
        Ok(text)
    }

    fn byte_string(&mut self, node: NodeId) -> Result<Tree, TensorFileError> {
        match self.pickle.get(node) {
            Value::Bytes(bytes) | Value::ByteArray(bytes) if bytes.len() < 64 => {
                self.charge(bytes.len() as u64 + 2 * MALLOC)?;
                Ok(Tree::Bytes(bytes.into()))
            }
            _ => Ok(self.blob(node, ByteOrder::Little)?.map_or(Tree::None, Tree::Blob)),
        }
    }

    /// Bytes of the pickle as a storage: a copy where the reader took them in, a place in the file where it left them
    /// there.
    pub(crate) fn blob(&mut self, node: NodeId, order: ByteOrder) -> Result<Option<Arc<Storage>>, TensorFileError> {
        if let Some(blob) = self.blobs.get(&node).filter(|blob| blob.order == order) {
            return Ok(Some(Arc::clone(blob)));
        }
        let held = match self.pickle.get(node) {
            Value::Bytes(bytes) | Value::ByteArray(bytes) => bytes.len(),
            Value::Str(text) => text.len(),
            _ => 0,
        };
        let place = self.path.iter().map(|name| name.len() + 1).sum::<usize>();
        self.charge((size_of::<Storage>() + held + place) as u64 + 3 * MALLOC + SHARED)?;
        let (source, length) = match self.pickle.get(node) {
            Value::Bytes(bytes) | Value::ByteArray(bytes) => (Source::Memory(bytes.to_vec()), bytes.len() as u64),
            // Bytes of Python 2 that happen to be UTF-8.
            Value::Str(text) => (Source::Memory(text.as_bytes().to_vec()), text.len() as u64),
            Value::FarBytes { offset, length } => match self.origin {
                PickleOrigin::File { start } => {
                    let offset = start.saturating_add(offset);
                    // The pickle was read by seeking, so nobody has looked whether they are there.
                    self.file.check_range(offset, length, &self.place())?;
                    (Source::File { offset }, length)
                }
                PickleOrigin::Gzip => (Source::Gzip { before: offset }, length),
            },
            _ => return Ok(None),
        };
        let blob = Arc::new(Storage { order, ..Storage::new(self.file, self.place(), source, length) });
        self.blobs.insert(node, Arc::clone(&blob));
        Ok(Some(blob))
    }

    fn object(&mut self, object: &Object<'a>) -> Result<Tree, TensorFileError> {
        if let Some(tree) = self.torch_object(object.class, object.args)? {
            return Ok(tree);
        }
        if let Some(tree) = self.numpy_object(object)? {
            return Ok(tree);
        }
        let args = object.args;
        match (object.class.module, object.class.name) {
            ("collections", "OrderedDict") => {
                let mut fields = self.pairs_of_lists(args.first().copied())?;
                fields.extend(self.fields(object.pairs)?);
                Ok(Tree::OrderedDict(fields))
            }
            ("collections", "defaultdict") => Ok(Tree::Dict(self.fields(object.pairs)?)),
            ("collections", "Counter") => match args.first().map(|counts| self.pickle.get(*counts)) {
                Some(Value::Dict(pairs)) => Ok(Tree::Dict(self.fields(pairs)?)),
                _ => Ok(Tree::Dict(self.fields(object.pairs)?)),
            },
            ("collections", "deque") => {
                let mut items = match args.first().map(|items| self.pickle.get(*items)) {
                    Some(Value::List(items) | Value::Tuple(items)) => self.items(items)?,
                    _ => Vec::new(),
                };
                items.extend(self.items(object.items)?);
                Ok(Tree::List(items))
            }
            ("builtins" | "__builtin__", "complex") => {
                match args.iter().map(|part| self.pickle.get(*part)).collect::<Vec<_>>()[..] {
                    [Value::Float(real), Value::Float(imaginary)] => Ok(Tree::Complex { real, imaginary }),
                    _ => Err(self.malformed("is a complex number without two parts")),
                }
            }
            ("pathlib" | "pathlib._local", _) => {
                let parts: Option<Vec<&str>> = args.iter().map(|part| self.pickle.str(*part)).collect();
                let path: std::path::PathBuf = parts.unwrap_or_default().into_iter().collect();
                Ok(Tree::Str(path.to_string_lossy().into()))
            }
            (module, _) if module.starts_with("torch_geometric.") => self.geometric(object),
            _ => self.instance(object),
        }
    }

    /// `OrderedDict([(key, value), ...])`, as Python 2 writes it.
    fn pairs_of_lists(&mut self, list: Option<NodeId>) -> Result<Fields, TensorFileError> {
        let Some(Value::List(pairs)) = list.map(|list| self.pickle.get(list)) else { return Ok(Fields::new()) };
        let mut fields = Fields::new();
        for pair in pairs {
            let (Value::List(pair) | Value::Tuple(pair)) = self.pickle.get(*pair) else { continue };
            if let [key, value] = pair {
                fields.push(self.field(*key, *value)?);
            }
        }
        Ok(fields)
    }

    /// An instance of a class that is known by nothing but its shape.
    fn instance(&mut self, object: &Object<'_>) -> Result<Tree, TensorFileError> {
        let class = self.class_name(object.class)?;
        let is_tuple = object.construction == Construction::New
            && !object.args.is_empty()
            && object.state.is_none()
            && object.items.is_empty()
            && object.pairs.is_empty();
        if is_tuple {
            return Ok(Tree::NamedTuple { class, items: self.items(object.args)? });
        }
        let mut fields: Fields = Vec::new();
        for (index, item) in object.args.iter().chain(object.items).enumerate() {
            fields.push((Tree::Int(index as i64), self.child(index.to_string(), *item)?));
        }
        fields.extend(self.fields(object.pairs)?);
        fields.extend(self.state_fields(object.state)?);
        Ok(Tree::Object { class, fields })
    }

    /// Attributes out of a state: a dict of them, or such a dict and one of the slots.
    fn state_fields(&mut self, state: Option<NodeId>) -> Result<Fields, TensorFileError> {
        match state.map(|state| self.pickle.get(state)) {
            None | Some(Value::None) => Ok(Fields::new()),
            Some(Value::Dict(pairs)) => self.fields(pairs),
            Some(Value::Tuple(&[attributes, slots]))
                if matches!(self.pickle.get(attributes), Value::None | Value::Dict(_))
                    && matches!(self.pickle.get(slots), Value::Dict(_)) =>
            {
                let mut fields = self.state_fields(Some(attributes))?;
                fields.extend(self.state_fields(Some(slots))?);
                Ok(fields)
            }
            Some(_) => {
                let state = self.child("__state__".to_owned(), state.unwrap_or(self.pickle.root()))?;
                Ok(vec![(Tree::Str("__state__".into()), state)])
            }
        }
    }

    /// Graphs of torch_geometric: what their stores hold, without the stores.
    fn geometric(&mut self, object: &Object<'_>) -> Result<Tree, TensorFileError> {
        let class = self.class_name(object.class)?;
        let Some(Value::Dict(state)) = object.state.map(|state| self.pickle.get(state)) else {
            return self.instance(object);
        };
        let mut fields = Fields::new();
        for (key, value) in state.iter() {
            match self.pickle.str(key) {
                // The way back to the owner, and classes that only name things.
                Some("_parent" | "_edge_attr_cls" | "_tensor_attr_cls" | "_key") => {}
                Some("_store" | "_global_store") => match self.build(value)? {
                    Tree::Object { fields: stored, .. } => fields.extend(stored),
                    other => fields.push((self.build(key)?, other)),
                },
                Some("_mapping" | "_node_store_dict" | "_edge_store_dict") => match self.pickle.get(value) {
                    Value::Dict(pairs) => fields.extend(self.enter(value, |builder| builder.fields(pairs))?),
                    _ => fields.push((self.build(key)?, self.build(value)?)),
                },
                _ => fields.push(self.field(key, value)?),
            }
        }
        Ok(Tree::Object { class, fields })
    }

    pub(crate) fn place(&self) -> Place {
        Place::Value(self.path.join("."))
    }

    pub(crate) fn malformed(&self, problem: impl Into<String>) -> TensorFileError {
        self.file.malformed(self.place(), problem)
    }

    /// A class with its module; names of any length are shared in the pickle, and not in the tree.
    fn class_name(&mut self, class: Global<'_>) -> Result<Arc<str>, TensorFileError> {
        let name = format!("{:.LONGEST_NAME$}.{:.LONGEST_NAME$}", class.module, class.name);
        self.charge(name.len() as u64 + 2 * MALLOC)?;
        Ok(name.into())
    }
}
