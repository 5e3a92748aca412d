//! What torch saved: tensors and the small things around them.

use std::sync::Arc;

use lowtide_pickle::{Global, NodeId, Pickle, Value};

use super::Builder;
use crate::error::TensorFileError;
use crate::tensors::{Dtype, Flags, MOST_DIMENSIONS, Quantizer, Source, Storage, Tensor};
use crate::tree::{Fields, Sparse, Tree};

/// What a persistent id says of a storage.
#[derive(Debug)]
pub(crate) struct StorageId<'a> {
    /// Under which name it is in the file.
    pub(crate) key: &'a str,
    /// The type of its values; none where it is only bytes.
    pub(crate) dtype: Option<Dtype>,
    /// How many values it has, or bytes where they have no type.
    pub(crate) count: u64,
    /// Where the part that is meant begins, in values; files of old versions of torch have it.
    pub(crate) view_offset: u64,
}

/// Reads a persistent id: `("storage", class, key, location, count)`, in old files with a view behind it.
pub(crate) fn storage_id(pickle: &Pickle, id: NodeId) -> Option<StorageId<'_>> {
    let Value::Tuple([kind, class, key, _location, count, view @ ..]) = pickle.get(id) else { return None };
    if pickle.str(*kind) != Some("storage") {
        return None;
    }
    let Value::Global(class) = pickle.get(*class) else { return None };
    let dtype = Dtype::of_storage(class.name);
    if dtype.is_none() && !class.name.ends_with("UntypedStorage") {
        return None;
    }
    let view_offset = match view.first().map(|view| pickle.get(*view)) {
        Some(Value::Tuple([_, offset, _])) => u64::try_from(pickle.int(*offset)?).ok()?,
        _ => 0,
    };
    let count = u64::try_from(pickle.int(*count)?).ok()?;
    Some(StorageId { key: pickle.str(*key)?, dtype, count, view_offset })
}

/// A storage that a tensor is rebuilt on.
struct Base {
    storage: Arc<Storage>,
    dtype: Option<Dtype>,
    view_offset: u64,
}

impl<'a> Builder<'a> {
    /// What a call of torch makes, or `None` where the class is not torch's.
    pub(crate) fn torch_object(&mut self, class: Global<'_>, args: &[NodeId]) -> Result<Option<Tree>, TensorFileError> {
        let tree = match (class.module, class.name) {
            ("torch._utils", name) => self.rebuild(name, args)?,
            ("torch._tensor", "_rebuild_from_type" | "_rebuild_from_type_v2") => self.rebuild_from_type(args)?,
            ("torch.nested._internal.nested_tensor", "_rebuild_njt") => self.jagged(args)?,
            ("torch", "Size") => {
                let [sizes] = self.exactly(args)?;
                Tree::Size(self.sizes(sizes)?)
            }
            ("torch", "device") => self.device(args)?,
            ("torch.serialization", "_get_layout") => {
                let [layout] = self.exactly(args)?;
                self.build(layout)?
            }
            _ => return Ok(None),
        };
        Ok(Some(tree))
    }

    /// A storage that was saved by itself: its values in a row.
    pub(crate) fn bare_storage(&mut self, node: NodeId) -> Result<Tree, TensorFileError> {
        let base = self.base(node)?;
        let dtype = base.dtype.unwrap_or(Dtype::Uint8);
        let count = base.storage.bytes() / dtype.size() * dtype.per_byte();
        let tensor = Tensor::contiguous(base.storage, dtype, vec![count]).map_err(|problem| self.malformed(problem))?;
        Ok(Tree::Tensor(Arc::new(tensor)))
    }

    fn rebuild(&mut self, name: &str, args: &[NodeId]) -> Result<Tree, TensorFileError> {
        match name {
            "_rebuild_tensor" | "_rebuild_tensor_v2" | "_rebuild_tensor_v3" => self.strided(name, args),
            "_rebuild_parameter"
            | "_rebuild_parameter_with_state"
            | "_rebuild_device_tensor_from_cpu_tensor"
            | "_rebuild_device_tensor_from_numpy" => self.first_tensor(args),
            "_rebuild_qtensor" => self.quantized(args),
            "_rebuild_sparse_tensor" | "_rebuild_sparse_csr_tensor" => self.sparse(args),
            "_rebuild_nested_tensor" => {
                let names = ["buffer", "sizes", "strides", "storage_offsets"];
                let fields = self.named(&names, args)?;
                Ok(Tree::Object { class: "torch.nested".into(), fields })
            }
            "_rebuild_meta_tensor_no_storage" => self.meta(args),
            _ => Err(self.malformed(format!("is made by `torch._utils.{name}`, which is not known"))),
        }
    }

    /// The tensor that a parameter or a copy wraps.
    fn first_tensor(&mut self, args: &[NodeId]) -> Result<Tree, TensorFileError> {
        let Some(data) = args.first() else { return Err(self.wrong_arguments()) };
        match self.build(*data)? {
            tensor @ (Tree::Tensor(_) | Tree::Sparse(_)) => Ok(tensor),
            _ => Err(self.malformed("wraps a value that is no tensor")),
        }
    }

    fn strided(&mut self, name: &str, args: &[NodeId]) -> Result<Tree, TensorFileError> {
        let &[storage, offset, shape, stride, ref rest @ ..] = args else { return Err(self.wrong_arguments()) };
        let base = self.base(storage)?;
        // After the first four: requires_grad, hooks, then the type in the third version, then flags.
        let is_third = name == "_rebuild_tensor_v3";
        let dtype = match rest.get(2).map(|dtype| self.pickle.get(*dtype)) {
            Some(Value::Global(global)) if is_third && global.module == "torch" => Dtype::from_name(global.name),
            _ => base.dtype.filter(|_| !is_third),
        };
        let Some(dtype) = dtype else { return Err(self.malformed("is a tensor of a type that is not known")) };
        let mut tensor = self.view(base, dtype, offset, shape, stride)?;
        if let Some(flags) = rest.get(if is_third { 3 } else { 2 }) {
            tensor.flags = self.flags(*flags, dtype)?;
        }
        Ok(Tree::Tensor(Arc::new(tensor)))
    }

    fn quantized(&mut self, args: &[NodeId]) -> Result<Tree, TensorFileError> {
        let &[storage, offset, shape, stride, quantizer, ..] = args else { return Err(self.wrong_arguments()) };
        let base = self.base(storage)?;
        let Some(dtype) = base.dtype else { return Err(self.malformed("is a tensor of a type that is not known")) };
        let mut tensor = self.view(base, dtype, offset, shape, stride)?;
        let parts = match self.pickle.get(quantizer) {
            Value::Tuple(parts) => parts,
            _ => &[],
        };
        let parts: Vec<Value<'_>> = parts.iter().map(|part| self.pickle.get(*part)).collect();
        tensor.quantizer = Some(match parts[..] {
            [Value::Global(scheme), Value::Float(scale), Value::Int(zero_point)]
                if scheme.name == "per_tensor_affine" =>
            {
                Quantizer::PerTensor { scale, zero_point }
            }
            [Value::Global(scheme), ..] if scheme.name.starts_with("per_channel_affine") => Quantizer::PerChannel,
            _ => return Err(self.malformed("is quantized in a way that is not known")),
        });
        Ok(Tree::Tensor(Arc::new(tensor)))
    }

    fn sparse(&mut self, args: &[NodeId]) -> Result<Tree, TensorFileError> {
        let layout = match args.first().map(|layout| self.build(*layout)) {
            Some(Ok(Tree::Str(layout))) => layout,
            Some(Err(error)) => return Err(error),
            _ => return Err(self.wrong_arguments()),
        };
        let layout = layout.strip_prefix("torch.").unwrap_or(&layout).to_owned();
        let names: &[&str] = match layout.as_str() {
            "sparse_coo" => &["indices", "values"],
            "sparse_csr" | "sparse_bsr" => &["crow_indices", "col_indices", "values"],
            "sparse_csc" | "sparse_bsc" => &["ccol_indices", "row_indices", "values"],
            _ => return Err(self.malformed(format!("is a sparse tensor of layout `{}`", layout.escape_debug()))),
        };
        // The second argument holds the parts and the size; in old files they are arguments themselves.
        let parts = match args.get(1).map(|parts| self.pickle.get(*parts)) {
            Some(Value::Tuple(parts)) => parts,
            _ => return Err(self.wrong_arguments()),
        };
        let Some(shape) = parts.get(names.len()) else { return Err(self.wrong_arguments()) };
        let shape = self.sizes(*shape)?;
        let parts = self.named(names, parts)?;
        Ok(Tree::Sparse(Box::new(Sparse { layout: layout.into(), shape, parts })))
    }

    /// A tensor that has a shape and no values.
    fn meta(&mut self, args: &[NodeId]) -> Result<Tree, TensorFileError> {
        let &[dtype, shape, stride, ..] = args else { return Err(self.wrong_arguments()) };
        let Tree::Dtype(dtype) = self.build(dtype)? else { return Err(self.wrong_arguments()) };
        let storage = Storage::new(self.file, self.place(), Source::Nowhere, i64::MAX as u64);
        let (shape, stride) = (self.sizes(shape)?, self.sizes(stride)?);
        let tensor = Tensor::new(Arc::new(storage), dtype, 0, shape, stride);
        Ok(Tree::Tensor(Arc::new(tensor.map_err(|problem| self.malformed(problem))?)))
    }

    /// `_rebuild_from_type_v2(function, type, args, state)`: a subclass of tensor, or a tensor with attributes.
    fn rebuild_from_type(&mut self, args: &[NodeId]) -> Result<Tree, TensorFileError> {
        let &[function, _class, inner, ..] = args else { return Err(self.wrong_arguments()) };
        let Value::Global(function) = self.pickle.get(function) else { return Err(self.wrong_arguments()) };
        let inner = match self.pickle.get(inner) {
            Value::Tuple(inner) => inner,
            _ => return Err(self.wrong_arguments()),
        };
        match self.torch_object(function, inner)? {
            Some(tree) => Ok(tree),
            None => {
                Err(self.malformed(format!("is made by `{}.{}`, which is not known", function.module, function.name)))
            }
        }
    }

    fn jagged(&mut self, args: &[NodeId]) -> Result<Tree, TensorFileError> {
        match args.first().map(|parts| self.pickle.get(*parts)) {
            Some(Value::Dict(pairs)) => Ok(Tree::Object { class: "torch.nested".into(), fields: self.fields(pairs)? }),
            _ => Err(self.wrong_arguments()),
        }
    }

    fn device(&mut self, args: &[NodeId]) -> Result<Tree, TensorFileError> {
        match args.iter().map(|part| self.pickle.get(*part)).collect::<Vec<_>>()[..] {
            [Value::Str(kind)] => Ok(Tree::Device(kind.into())),
            [Value::Str(kind), Value::Int(index)] => Ok(Tree::Device(format!("{kind}:{index}").into())),
            _ => Err(self.wrong_arguments()),
        }
    }

    fn view(
        &mut self,
        base: Base,
        dtype: Dtype,
        offset: NodeId,
        shape: NodeId,
        stride: NodeId,
    ) -> Result<Tensor, TensorFileError> {
        let offset = self.pickle.int(offset).and_then(|offset| u64::try_from(offset).ok());
        let offset = offset.and_then(|offset| offset.checked_add(base.view_offset));
        let Some(offset) = offset else { return Err(self.wrong_arguments()) };
        let (shape, stride) = (self.sizes(shape)?, self.sizes(stride)?);
        Tensor::new(base.storage, dtype, offset, shape, stride).map_err(|problem| self.malformed(problem))
    }

    /// The storage behind a persistent id.
    fn base(&mut self, node: NodeId) -> Result<Base, TensorFileError> {
        let Value::Persistent(id) = self.pickle.get(node) else { return Err(self.wrong_arguments()) };
        let Some(id) = storage_id(self.pickle, id) else {
            return Err(self.malformed("refers to something outside the pickle that is no storage"));
        };
        let Some(storage) = self.storages.get(id.key) else {
            let key = id.key.escape_debug();
            return Err(self.malformed(format!("refers to the storage `{key}`, which the file does not have")));
        };
        let needed = id.dtype.unwrap_or(Dtype::Uint8).bytes_of(id.count);
        if needed.is_none_or(|needed| needed > storage.bytes()) {
            let key = id.key.escape_debug();
            let (count, has) = (id.count, storage.bytes());
            return Err(self.malformed(format!("needs {count} values of the storage `{key}`, which has {has} bytes")));
        }
        Ok(Base { storage: Arc::clone(storage), dtype: id.dtype, view_offset: id.view_offset })
    }

    /// A tuple, a list or a `torch.Size` of sizes.
    pub(crate) fn sizes(&self, node: NodeId) -> Result<Vec<u64>, TensorFileError> {
        let node = match self.pickle.get(node) {
            Value::Object(size) if size.class.name == "Size" => size.args.first().copied().unwrap_or(node),
            _ => node,
        };
        let (Value::Tuple(items) | Value::List(items)) = self.pickle.get(node) else {
            return Err(self.malformed("has a shape that is no tuple"));
        };
        if items.len() > MOST_DIMENSIONS {
            return Err(self.malformed(format!("has {} dimensions", items.len())));
        }
        let sizes: Option<Vec<u64>> =
            items.iter().map(|size| self.pickle.int(*size).and_then(|size| u64::try_from(size).ok())).collect();
        sizes.ok_or_else(|| self.malformed("has a size or a stride that is no number, or below 0"))
    }

    /// Whether the values are to be conjugated or negated, out of a dict of flags.
    fn flags(&self, node: NodeId, dtype: Dtype) -> Result<Flags, TensorFileError> {
        let is_set = |name: &str| {
            let flag = self.pickle.entry(node, name).map(|flag| self.pickle.get(flag));
            matches!(flag, Some(Value::Bool(true)))
        };
        let flags = Flags { conjugate: is_set("conj"), negative: is_set("neg") };
        let has_sign =
            dtype.is_complex() || matches!(dtype, Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32 | Dtype::Float64);
        if (flags.conjugate && !dtype.is_complex()) || (flags.negative && !has_sign) {
            return Err(self.malformed(format!("is a conjugated or negated view of {dtype}")));
        }
        Ok(flags)
    }

    fn named(&mut self, names: &[&str], nodes: &[NodeId]) -> Result<Fields, TensorFileError> {
        let mut fields = Fields::new();
        for (name, node) in names.iter().zip(nodes) {
            fields.push((Tree::Str((*name).into()), self.child((*name).to_owned(), *node)?));
        }
        Ok(fields)
    }

    fn exactly<const N: usize>(&self, args: &[NodeId]) -> Result<[NodeId; N], TensorFileError> {
        args.try_into().map_err(|_| self.wrong_arguments())
    }

    pub(crate) fn wrong_arguments(&self) -> TensorFileError {
        self.malformed("is made of other arguments than torch or numpy would write")
    }
}
