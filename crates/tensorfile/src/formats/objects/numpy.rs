//! What numpy saved: arrays, scalars and types.

use std::fmt;
use std::sync::Arc;

use lowtide_pickle::{NodeId, Object, Value};

use super::builder::{Builder, MALLOC};
use crate::error::TensorFileError;
use crate::tensors::{ByteOrder, Dtype, Number, Tensor, column_strides, decoder};
use crate::tree::{Fields, Tree};

/// A type of numpy, as far as it has a place in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NumpyType {
    Number(Dtype, ByteOrder),
    /// Strings of so many characters of four bytes.
    Text(usize, ByteOrder),
    /// Byte strings of so many bytes.
    ByteText(usize),
    /// Python's objects.
    Object,
    /// Anything else, by name.
    Other(String),
}

impl NumpyType {
    /// The type of a name such as `<f4` or `|S3`; `order` counts where the name has none.
    pub(crate) fn from_name(name: &str, order: ByteOrder) -> Self {
        let (order, kind) = match name.split_at_checked(1) {
            Some(("<" | "|" | "=", rest)) => (if name.starts_with('<') { ByteOrder::Little } else { order }, rest),
            Some((">", rest)) => (ByteOrder::Big, rest),
            _ => (order, name),
        };
        let number = match Dtype::of_numpy(kind) {
            Some(dtype) => dtype,
            None if kind == "?" => Dtype::Bool,
            // Times are integers with a unit.
            None if kind.starts_with("M8") || kind.starts_with("m8") => Dtype::Int64,
            None => return Self::without_numbers(kind, name, order),
        };
        Self::Number(number, order)
    }

    fn without_numbers(kind: &str, name: &str, order: ByteOrder) -> Self {
        let size = kind.get(1..).and_then(|size| size.parse::<usize>().ok());
        match (kind.as_bytes().first(), size) {
            (Some(b'O'), _) => Self::Object,
            (Some(b'U'), Some(size)) => Self::Text(size, order),
            (Some(b'S' | b'a'), Some(size)) => Self::ByteText(size),
            _ => Self::Other(name.escape_debug().take(60).collect()),
        }
    }
}

impl fmt::Display for NumpyType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(dtype, _) => write!(formatter, "{dtype}"),
            Self::Text(size, _) => write!(formatter, "strings of {size} characters"),
            Self::ByteText(size) => write!(formatter, "strings of {size} bytes"),
            Self::Object => formatter.write_str("objects"),
            Self::Other(name) => write!(formatter, "type `{name}`"),
        }
    }
}

impl<'a> Builder<'a> {
    /// What a call of numpy makes, or `None` where the class is not numpy's.
    pub(crate) fn numpy_object(&mut self, object: &Object<'a>) -> Result<Option<Tree>, TensorFileError> {
        let tree = match (object.class.module, object.class.name) {
            ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct") => self.reconstructed(object)?,
            ("numpy.core.multiarray" | "numpy._core.multiarray", "scalar") => self.scalar(object.args)?,
            ("numpy.core.numeric" | "numpy._core.numeric", "_frombuffer") => self.buffer_array(object.args)?,
            ("numpy", "dtype") => match self.type_of_object(object)? {
                NumpyType::Number(dtype, _) => Tree::Dtype(dtype),
                other => Tree::Class(format!("numpy.dtype: {other}").into()),
            },
            _ => return Ok(None),
        };
        Ok(Some(tree))
    }

    /// `_reconstruct(...)` with the state `(version, shape, type, columns first, bytes)`.
    fn reconstructed(&mut self, object: &Object<'a>) -> Result<Tree, TensorFileError> {
        let state = match object.state.map(|state| self.pickle.get(state)) {
            Some(Value::Tuple(state)) => state,
            _ => return Err(self.malformed("is a numpy array without values")),
        };
        let &[.., shape, kind, columns_first, bytes] = state else { return Err(self.wrong_arguments()) };
        let Value::Bool(columns_first) = self.pickle.get(columns_first) else { return Err(self.wrong_arguments()) };
        self.array(kind, shape, bytes, if columns_first { ArrayOrder::Columns } else { ArrayOrder::Rows })
    }

    /// `_frombuffer(bytes, type, shape, order)`.
    fn buffer_array(&mut self, args: &[NodeId]) -> Result<Tree, TensorFileError> {
        let &[bytes, kind, shape, order] = args else { return Err(self.wrong_arguments()) };
        let layout = if self.pickle.str(order) == Some("F") { ArrayOrder::Columns } else { ArrayOrder::Rows };
        self.array(kind, shape, bytes, layout)
    }

    fn scalar(&mut self, args: &[NodeId]) -> Result<Tree, TensorFileError> {
        let &[kind, bytes] = args else { return Err(self.wrong_arguments()) };
        let value = match (self.numpy_type(kind)?, self.pickle.get(bytes)) {
            (NumpyType::Number(dtype, order), Value::Bytes(bytes)) => number(dtype, bytes, order),
            (NumpyType::Number(dtype, order), Value::Str(text)) => number(dtype, text.as_bytes(), order),
            (NumpyType::Text(_, order), Value::Bytes(bytes)) => Some(Tree::Str(utf32(bytes, order).into())),
            (NumpyType::ByteText(_), Value::Bytes(bytes)) => Some(Tree::Bytes(bytes.into())),
            (NumpyType::Object, _) => Some(self.build(bytes)?),
            _ => None,
        };
        value.ok_or_else(|| self.malformed("is a numpy scalar of a type that is not known"))
    }

    fn array(
        &mut self,
        kind: NodeId,
        shape: NodeId,
        bytes: NodeId,
        layout: ArrayOrder,
    ) -> Result<Tree, TensorFileError> {
        let shape = self.sizes(shape)?;
        let kind = self.numpy_type(kind)?;
        if let (NumpyType::Object, Value::List(items)) = (&kind, self.pickle.get(bytes)) {
            let items = Tree::List(self.items(items)?);
            return Ok(shaped(items, shape));
        }
        match kind {
            NumpyType::Number(dtype, order) => {
                let Some(storage) = self.blob(bytes, order)? else { return Err(self.wrong_arguments()) };
                let tensor = match layout {
                    ArrayOrder::Rows => Tensor::contiguous(storage, dtype, shape),
                    ArrayOrder::Columns => {
                        let stride = column_strides(&shape);
                        Tensor::new(storage, dtype, 0, shape, stride)
                    }
                };
                Ok(Tree::Tensor(Arc::new(tensor.map_err(|problem| self.malformed(problem))?)))
            }
            NumpyType::Text(size, order) => {
                let text = |bytes: &[u8]| Tree::Str(utf32(bytes, order).into());
                self.texts_of_array(bytes, size.saturating_mul(4), shape, text)
            }
            NumpyType::ByteText(size) => self.texts_of_array(bytes, size, shape, |bytes| {
                let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                Tree::Bytes(bytes[..end].into())
            }),
            NumpyType::Object => Err(self.wrong_arguments()),
            other @ NumpyType::Other(_) => {
                Err(self.file.unsupported(self.place(), format!("a numpy array of {other}"), None))
            }
        }
    }

    /// An array of strings of a fixed size, as a list.
    fn texts_of_array(
        &mut self,
        bytes: NodeId,
        size: usize,
        shape: Vec<u64>,
        text: impl Fn(&[u8]) -> Tree,
    ) -> Result<Tree, TensorFileError> {
        let Some(storage) = self.blob(bytes, ByteOrder::Little)? else { return Err(self.wrong_arguments()) };
        let count: u64 = shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size)).unwrap_or(u64::MAX);
        if size == 0 || count.checked_mul(size as u64) != Some(storage.bytes()) {
            return Err(self.malformed("is an array of strings whose size does not fit its bytes"));
        }
        if count > MOST_TEXTS || storage.bytes() > LARGEST_TEXTS {
            return Err(self.file.unsupported(
                self.place(),
                "an array of more than a million strings or 256 MiB",
                None,
            ));
        }
        self.charge(storage.bytes().saturating_add(count * (size_of::<Tree>() as u64 + 2 * MALLOC)))?;
        let mut bytes = vec![0; storage.bytes() as usize];
        storage.read_at(0, &mut bytes)?;
        Ok(shaped(Tree::List(bytes.chunks_exact(size).map(text).collect()), shape))
    }

    pub(crate) fn numpy_type(&self, node: NodeId) -> Result<NumpyType, TensorFileError> {
        match self.pickle.get(node) {
            Value::Object(object) if object.class.module == "numpy" && object.class.name == "dtype" => {
                self.type_of_object(&object)
            }
            _ => Err(self.wrong_arguments()),
        }
    }

    /// `dtype("f4", ...)` with the state `(version, byte order, ..., names, fields, ...)`.
    fn type_of_object(&self, object: &Object<'_>) -> Result<NumpyType, TensorFileError> {
        let name = object.args.first().and_then(|name| self.pickle.str(*name));
        let Some(name) = name else { return Err(self.wrong_arguments()) };
        let order = match object.state.map(|state| self.pickle.get(state)) {
            Some(Value::Tuple([_, order, ..])) if self.pickle.str(*order) == Some(">") => ByteOrder::Big,
            _ => ByteOrder::Little,
        };
        Ok(NumpyType::from_name(name, order))
    }
}

/// Arrays of strings become lists, so there is an end to their size.
const LARGEST_TEXTS: u64 = 256 << 20;
const MOST_TEXTS: u64 = 1 << 20;

enum ArrayOrder {
    Rows,
    Columns,
}

/// A list for an array of one dimension, and an object that tells the shape for one of more.
fn shaped(items: Tree, shape: Vec<u64>) -> Tree {
    if shape.len() == 1 {
        return items;
    }
    let field = |name: &str, value| (Tree::Str(name.into()), value);
    let fields: Fields = vec![field("shape", Tree::Size(shape)), field("items", items)];
    Tree::Object { class: "numpy.ndarray".into(), fields }
}

fn utf32(bytes: &[u8], order: ByteOrder) -> String {
    let codes = bytes.chunks_exact(4).map(|code| {
        let code = [code[0], code[1], code[2], code[3]];
        if order == ByteOrder::Big { u32::from_be_bytes(code) } else { u32::from_le_bytes(code) }
    });
    let text: String = codes.map(|code| char::from_u32(code).unwrap_or('\u{fffd}')).collect();
    text.trim_end_matches('\0').to_owned()
}

/// One number of a type that has numbers, as bytes in an order.
fn number(dtype: Dtype, bytes: &[u8], order: ByteOrder) -> Option<Tree> {
    if dtype.is_complex() {
        let half = match dtype {
            Dtype::Complex64 => Dtype::Float32,
            Dtype::Complex128 => Dtype::Float64,
            _ => Dtype::Float16,
        };
        let (real, imaginary) = bytes.split_at_checked(half.size() as usize)?;
        let float = |bytes| match number(half, bytes, order) {
            Some(Tree::Float(value)) => Some(value),
            _ => None,
        };
        return Some(Tree::Complex { real: float(real)?, imaginary: float(imaginary)? });
    }
    if bytes.len() as u64 != dtype.size() {
        return None;
    }
    Some(match decoder(dtype)?(bytes, order) {
        Number::Integer(value) if dtype == Dtype::Bool => Tree::Bool(value != 0),
        Number::Integer(value) => match i64::try_from(value) {
            Ok(value) => Tree::Int(value),
            Err(_) => Tree::BigInt(value.to_string().into()),
        },
        Number::Float(value) => Tree::Float(value),
    })
}
