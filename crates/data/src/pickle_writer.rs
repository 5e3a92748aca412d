//! The pickle of a file of `torch.save`, in protocol 2 as torch writes it.

use std::collections::HashMap;

use crate::tensor::row_strides;
use crate::{Dtype, Place, PtTensor, PtValue};

const PROTOCOL: &[u8] = b"\x80\x02";
const MARK: u8 = b'(';
const TUPLE: u8 = b't';
const REDUCE: u8 = b'R';

/// What cannot be written, and why.
pub(crate) type Unwritable = (Place, String);

/// What is written once and referenced after that: it comes again and again.
#[derive(PartialEq, Eq, Hash)]
enum Shared<'v> {
    /// A class or a function: its module and its name.
    Global(&'static str, &'static str),
    /// A key of a dict.
    Text(&'v str),
}

/// Writes values one after another and notes the tensors it meets.
pub(crate) struct PickleWriter<'v> {
    out: Vec<u8>,
    tensors: Vec<&'v PtTensor<'v>>,
    memo: HashMap<Shared<'v>, u32>,
    /// The keys on the way to where the writer is.
    path: Vec<String>,
}

impl<'v> PickleWriter<'v> {
    /// The pickle, and its tensors in the order of the storages' keys.
    pub(crate) fn write(value: &'v PtValue<'v>) -> Result<(Vec<u8>, Vec<&'v PtTensor<'v>>), Unwritable> {
        let mut writer = Self { out: PROTOCOL.to_vec(), tensors: Vec::new(), memo: HashMap::new(), path: Vec::new() };
        writer.value(value)?;
        writer.out.push(b'.');
        Ok((writer.out, writer.tensors))
    }

    fn value(&mut self, value: &'v PtValue<'v>) -> Result<(), Unwritable> {
        match value {
            PtValue::None => self.out.push(b'N'),
            PtValue::Bool(true) => self.out.push(b'\x88'),
            PtValue::Bool(false) => self.out.push(b'\x89'),
            PtValue::Int(value) => self.int(*value),
            PtValue::Float(value) => {
                self.out.push(b'G');
                self.out.extend_from_slice(&value.to_be_bytes());
            }
            PtValue::Str(text) => self.text(text)?,
            PtValue::List(items) => {
                self.out.extend_from_slice(b"](");
                self.items(items)?;
                self.out.push(b'e');
            }
            PtValue::Tuple(items) => {
                self.out.push(MARK);
                self.items(items)?;
                self.out.push(TUPLE);
            }
            PtValue::Dict(fields) => self.dict(fields)?,
            PtValue::Tensor(tensor) => self.tensor(tensor)?,
        }
        Ok(())
    }

    fn items(&mut self, items: &'v [PtValue<'v>]) -> Result<(), Unwritable> {
        for (index, item) in items.iter().enumerate() {
            self.child(index.to_string(), item)?;
        }
        Ok(())
    }

    fn dict(&mut self, fields: &'v [(PtValue<'v>, PtValue<'v>)]) -> Result<(), Unwritable> {
        self.out.extend_from_slice(b"}(");
        for (key, value) in fields {
            if !is_key(key) {
                return Err(self.unwritable("a key that Python cannot hash".to_owned()));
            }
            match key {
                PtValue::Str(text) => self.shared_text(text)?,
                key => self.value(key)?,
            }
            let name = match key {
                PtValue::Str(text) => text.to_string(),
                PtValue::Int(value) => value.to_string(),
                _ => "?".to_owned(),
            };
            self.child(name, value)?;
        }
        self.out.push(b'u');
        Ok(())
    }

    fn child(&mut self, name: String, value: &'v PtValue<'v>) -> Result<(), Unwritable> {
        self.path.push(name);
        self.value(value)?;
        self.path.pop();
        Ok(())
    }

    /// `torch._utils._rebuild_tensor_v2(storage, offset, shape, stride, requires_grad, hooks)`.
    fn tensor(&mut self, tensor: &'v PtTensor<'v>) -> Result<(), Unwritable> {
        let Some(class) = storage_class(tensor.dtype) else {
            return Err(self.unwritable(format!("tensors of {} are not written here", tensor.dtype)));
        };
        let count = tensor.shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
        let expect = count.and_then(|count| tensor.dtype.bytes_of(count));
        if expect != Some(tensor.bytes.len() as u64) {
            let (shape, dtype, found) = (&tensor.shape, tensor.dtype, tensor.bytes.len());
            return Err(self.unwritable(format!("a tensor of shape {shape:?} in {dtype} is given {found} bytes")));
        }
        let key = self.tensors.len().to_string();
        self.tensors.push(tensor);
        self.global("torch._utils", "_rebuild_tensor_v2");
        self.out.extend_from_slice(&[MARK, MARK]);
        self.shared_text("storage")?;
        self.global("torch", class);
        self.text(&key)?;
        self.shared_text("cpu")?;
        self.size(count.unwrap_or(0));
        self.out.extend_from_slice(&[TUPLE, b'Q']);
        self.int(0);
        for sizes in [&tensor.shape, &row_strides(&tensor.shape)] {
            self.out.push(MARK);
            sizes.iter().for_each(|size| self.size(*size));
            self.out.push(TUPLE);
        }
        self.out.push(b'\x89');
        self.global("collections", "OrderedDict");
        self.out.extend_from_slice(&[b')', REDUCE, TUPLE, REDUCE]);
        Ok(())
    }

    fn global(&mut self, module: &'static str, name: &'static str) {
        self.shared(Shared::Global(module, name), |out| {
            out.extend_from_slice(format!("c{module}\n{name}\n").as_bytes());
        });
    }

    fn shared_text(&mut self, text: &'v str) -> Result<(), Unwritable> {
        let length = self.length_of(text)?;
        self.shared(Shared::Text(text), |out| push_text(out, length, text));
        Ok(())
    }

    /// Writes something the first time, and a reference to it after that.
    fn shared(&mut self, what: Shared<'v>, write: impl FnOnce(&mut Vec<u8>)) {
        if let Some(index) = self.memo.get(&what) {
            self.out.push(b'j');
            self.out.extend_from_slice(&index.to_le_bytes());
            return;
        }
        write(&mut self.out);
        let index = self.memo.len() as u32;
        self.memo.insert(what, index);
        self.out.push(b'r');
        self.out.extend_from_slice(&index.to_le_bytes());
    }

    fn text(&mut self, text: &str) -> Result<(), Unwritable> {
        let length = self.length_of(text)?;
        push_text(&mut self.out, length, text);
        Ok(())
    }

    fn length_of(&self, text: &str) -> Result<u32, Unwritable> {
        text.len().try_into().map_err(|_| self.unwritable("a string of 4 GiB or more".to_owned()))
    }

    /// A size of a tensor whose bytes are in memory, so that it fits.
    fn size(&mut self, size: u64) {
        self.int(i64::try_from(size).unwrap_or(i64::MAX));
    }

    fn int(&mut self, value: i64) {
        if let Ok(small) = u8::try_from(value) {
            self.out.extend_from_slice(&[b'K', small]);
        } else if let Ok(word) = i32::try_from(value) {
            self.out.push(b'J');
            self.out.extend_from_slice(&word.to_le_bytes());
        } else {
            self.out.extend_from_slice(b"\x8a\x08");
            self.out.extend_from_slice(&value.to_le_bytes());
        }
    }

    fn unwritable(&self, problem: String) -> Unwritable {
        (Place::Value(self.path.join(".")), problem)
    }
}

fn push_text(out: &mut Vec<u8>, length: u32, text: &str) {
    out.push(b'X');
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn is_key(key: &PtValue<'_>) -> bool {
    match key {
        PtValue::List(_) | PtValue::Dict(_) | PtValue::Tensor(_) => false,
        PtValue::Tuple(items) => items.iter().all(is_key),
        _ => true,
    }
}

/// The class of a storage, for the types that `_rebuild_tensor_v2` takes.
fn storage_class(dtype: Dtype) -> Option<&'static str> {
    match dtype {
        Dtype::Uint8 => Some("ByteStorage"),
        Dtype::Int8 => Some("CharStorage"),
        Dtype::Int16 => Some("ShortStorage"),
        Dtype::Int32 => Some("IntStorage"),
        Dtype::Int64 => Some("LongStorage"),
        Dtype::Bool => Some("BoolStorage"),
        Dtype::Float16 => Some("HalfStorage"),
        Dtype::Bfloat16 => Some("BFloat16Storage"),
        Dtype::Float32 => Some("FloatStorage"),
        Dtype::Float64 => Some("DoubleStorage"),
        Dtype::Complex64 => Some("ComplexFloatStorage"),
        Dtype::Complex128 => Some("ComplexDoubleStorage"),
        _ => None,
    }
}
