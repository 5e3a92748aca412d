//! What is in a file of others, as values of Python.

use std::path::PathBuf;
use std::sync::Arc;

use lowtide_core::Bytes;
use lowtide_tensorfile::{DecodeLimit, Fields, Loader, StorageReader, Tensor, Tree, open_within};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyComplex, PyDict, PyInt, PyList, PySet, PyTuple};

use crate::block::Block;
use crate::dlpack::Part;
use crate::failure::{Failure, Kind};

/// Storages of views that are kept for the next view of them.
const KEPT: Bytes = Bytes::from_mib(64);

/// What a file holds: dicts, lists, tuples, sets and plain values, with what `make` makes of tensors.
///
/// `make` has `tensor`, which is given what `torch.from_dlpack` takes, and `named`, which is given `size`, `device` or
/// `dtype` and a value. `objects` says what becomes of instances of classes: `refuse`, or `dict` for their attributes.
#[pyfunction]
#[pyo3(signature = (path, make, *, objects, decode_bytes))]
pub(crate) fn open_tree<'py>(
    py: Python<'py>,
    path: PathBuf,
    make: Bound<'py, PyAny>,
    objects: &str,
    decode_bytes: Option<u64>,
) -> PyResult<Bound<'py, PyAny>> {
    let limit = DecodeLimit::asked(decode_bytes.map(Bytes));
    let contents = py.detach(|| open_within(&path, limit)).map_err(Failure::from)?;
    let objects = if objects == "dict" { Objects::Dict } else { Objects::Refuse };
    let mut reading = Reading { py, path, make, objects, loader: Loader::new(KEPT), place: Vec::new() };
    reading.value(&contents.tree)
}

/// What becomes of instances of classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Objects {
    Refuse,
    Dict,
}

struct Reading<'py> {
    py: Python<'py>,
    path: PathBuf,
    make: Bound<'py, PyAny>,
    objects: Objects,
    loader: Loader,
    /// The keys that lead to the value that is being made.
    place: Vec<String>,
}

impl<'py> Reading<'py> {
    fn value(&mut self, tree: &Tree) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        Ok(match tree {
            Tree::None => py.None().into_bound(py),
            Tree::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
            Tree::Int(value) => value.into_pyobject(py)?.into_any(),
            Tree::BigInt(digits) => self.big(digits)?,
            Tree::Float(value) => value.into_pyobject(py)?.into_any(),
            Tree::Complex { real, imaginary } => PyComplex::from_doubles(py, *real, *imaginary).into_any(),
            Tree::Str(text) => text.into_pyobject(py)?.into_any(),
            Tree::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
            Tree::Blob(storage) => {
                let bytes = py.detach(|| StorageReader::default().read(storage)).map_err(Failure::from)?;
                PyBytes::new(py, &bytes).into_any()
            }
            Tree::List(items) => PyList::new(py, self.items(items)?)?.into_any(),
            Tree::Tuple(items) | Tree::NamedTuple { items, .. } => PyTuple::new(py, self.items(items)?)?.into_any(),
            Tree::Set(items) => PySet::new(py, self.items(items)?)?.into_any(),
            Tree::Dict(fields) | Tree::OrderedDict(fields) => self.fields(fields)?.into_any(),
            Tree::Object { fields, .. } if self.objects == Objects::Dict => self.fields(fields)?.into_any(),
            Tree::Tensor(tensor) => self.tensor(tensor)?,
            Tree::Size(sizes) => self.make.call_method1("named", ("size", sizes.clone()))?,
            Tree::Device(name) => self.make.call_method1("named", ("device", &**name))?,
            Tree::Dtype(dtype) => self.make.call_method1("named", ("dtype", dtype.name()))?,
            Tree::Object { class, .. } => {
                let hint = "nothing was executed; objects=\"dict\" gives its attributes";
                return Err(self.refuse(&format!("an object of the class {class}"), hint));
            }
            Tree::Class(name) => return Err(self.refuse(&format!("the name {name}"), "save plain values and tensors")),
            Tree::Sparse(sparse) => {
                let what = format!("a tensor with the layout {}", sparse.layout);
                return Err(self.refuse(&what, "save its parts, or tensor.to_dense()"));
            }
            _ => return Err(self.refuse("a value of a kind that is not known", "save plain values and tensors")),
        })
    }

    fn items(&mut self, items: &[Tree]) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let items = items.iter().enumerate().map(|(at, item)| self.at(|| at.to_string(), item));
        items.collect()
    }

    fn fields(&mut self, fields: &Fields) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(self.py);
        for (key, value) in fields {
            let name = self.value(key)?;
            dict.set_item(name, self.at(|| key.name().into_owned(), value)?)?;
        }
        Ok(dict)
    }

    fn at(&mut self, name: impl FnOnce() -> String, value: &Tree) -> PyResult<Bound<'py, PyAny>> {
        // Most values are scalars in long lists: only what holds others, or can be refused, needs a name.
        if matches!(value, Tree::Int(_) | Tree::Float(_) | Tree::Str(_) | Tree::Bool(_) | Tree::None) {
            return self.value(value);
        }
        self.place.push(name());
        let made = self.value(value);
        self.place.pop();
        made
    }

    fn tensor(&mut self, tensor: &Arc<Tensor>) -> PyResult<Bound<'py, PyAny>> {
        let dtype = tensor.dtype();
        if tensor.quantizer().is_some() || dtype.per_byte() != 1 || is_opaque(dtype.name()) {
            return Err(self.refuse(&format!("a tensor of {}", dtype.name()), "save it as float32, or as integers"));
        }
        let length = usize::try_from(tensor.bytes()).map_err(|_| Failure::NoMemory(tensor.bytes()))?;
        let loader = &mut self.loader;
        let block = self
            .py
            .detach(|| Block::filled_by(length, |bytes| loader.read_into(tensor, bytes).map_err(Failure::from)))?;
        let part = Part::new(&Arc::new(block), 0, tensor.shape(), dtype)?;
        self.make.call_method1("tensor", (part,))
    }

    fn big(&self, digits: &str) -> PyResult<Bound<'py, PyAny>> {
        let int = self.py.get_type::<PyInt>();
        match digits.starts_with("0x") {
            true => Err(self.refuse("an integer of more than 128 bits", "save it as a text")),
            false => int.call1((digits,)),
        }
    }

    fn refuse(&self, what: &str, hint: &str) -> PyErr {
        let place =
            if self.place.is_empty() { "the whole file".to_owned() } else { format!("`{}`", self.place.join(".")) };
        let text = format!("{}: {place}: {what} is not read here", self.path.display());
        Failure::new(Kind::Unsupported, text, hint).into()
    }
}

/// Types of values that torch itself cannot compute with.
fn is_opaque(name: &str) -> bool {
    name.starts_with("bits") || name.starts_with('q') || name.contains("_x2")
}
