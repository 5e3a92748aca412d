//! Pickles: that of a file of `torch.save`, in protocol 2 as torch writes it, and plain ones with arrays of numpy.

use std::collections::HashMap;
use std::path::Path;

use super::{PtTensor, PtValue};
use crate::error::{Place, TensorFileError};
use crate::tensors::row_strides;

const MARK: u8 = b'(';
const TUPLE: u8 = b't';
const REDUCE: u8 = b'R';
const BUILD: u8 = b'b';

/// A value that cannot be written, and why.
pub(super) struct Refusal {
    place: Place,
    problem: String,
}

impl Refusal {
    /// The same as an error of the file that was to be written.
    pub(super) fn of_file(self, path: &Path) -> TensorFileError {
        TensorFileError::Unwritable { file: path.to_owned(), place: self.place, problem: self.problem }
    }
}

/// What tensors become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrays {
    /// Tensors of torch, whose storages stand beside the pickle.
    Torch,
    /// Arrays of numpy, whose bytes are in the pickle.
    Numpy,
}

/// What is written once and referenced after that: it comes again and again.
#[derive(PartialEq, Eq, Hash)]
enum MemoKey<'v> {
    /// A class or a function: its module and its name.
    Global(&'static str, &'static str),
    /// A key of a dict.
    Text(&'v str),
    /// A type of numpy, by its name.
    Dtype(&'static str),
}

/// Writes values one after another and notes the tensors it meets.
pub(super) struct Pickler<'v> {
    out: Vec<u8>,
    arrays: Arrays,
    tensors: Vec<&'v PtTensor<'v>>,
    memo: HashMap<MemoKey<'v>, u32>,
    /// The keys on the way to where the writer is.
    path: Vec<String>,
}

impl<'v> Pickler<'v> {
    /// The pickle, and the tensors that stand beside it, in the order of the storages' keys.
    pub(super) fn write(value: &'v PtValue<'v>, arrays: Arrays) -> Result<(Vec<u8>, Vec<&'v PtTensor<'v>>), Refusal> {
        let protocol: &[u8] = if arrays == Arrays::Torch { b"\x80\x02" } else { b"\x80\x04" };
        let mut writer =
            Self { out: protocol.to_vec(), arrays, tensors: Vec::new(), memo: HashMap::new(), path: Vec::new() };
        writer.value(value)?;
        writer.out.push(b'.');
        Ok((writer.out, writer.tensors))
    }

    fn value(&mut self, value: &'v PtValue<'v>) -> Result<(), Refusal> {
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
            PtValue::Tensor(tensor) => match self.arrays {
                Arrays::Torch => self.tensor(tensor)?,
                Arrays::Numpy => self.numpy_array(tensor)?,
            },
        }
        Ok(())
    }

    fn items(&mut self, items: &'v [PtValue<'v>]) -> Result<(), Refusal> {
        for (index, item) in items.iter().enumerate() {
            self.child(index.to_string(), item)?;
        }
        Ok(())
    }

    fn dict(&mut self, fields: &'v [(PtValue<'v>, PtValue<'v>)]) -> Result<(), Refusal> {
        self.out.extend_from_slice(b"}(");
        for (key, value) in fields {
            if !is_key(key) {
                return Err(self.refusal("a key that Python cannot hash".to_owned()));
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

    fn child(&mut self, name: String, value: &'v PtValue<'v>) -> Result<(), Refusal> {
        self.path.push(name);
        self.value(value)?;
        self.path.pop();
        Ok(())
    }

    /// `torch._utils._rebuild_tensor_v2(storage, offset, shape, stride, requires_grad, hooks)`.
    fn tensor(&mut self, tensor: &'v PtTensor<'v>) -> Result<(), Refusal> {
        // `_rebuild_tensor_v2` takes no quantized ones.
        let Some(class) = tensor.dtype.storage_class().filter(|_| !tensor.dtype.is_quantized()) else {
            return Err(self.refusal(format!("tensors of {} are not written here", tensor.dtype)));
        };
        let count = self.count_of(tensor)?;
        let key = self.tensors.len().to_string();
        self.tensors.push(tensor);
        self.global("torch._utils", "_rebuild_tensor_v2");
        self.out.extend_from_slice(&[MARK, MARK]);
        self.shared_text("storage")?;
        self.global("torch", class);
        self.text(&key)?;
        self.shared_text("cpu")?;
        self.size(count);
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

    /// `_reconstruct(ndarray, (0,), b"b")`, and the state `(version, shape, type, columns first, bytes)`.
    ///
    /// The old name of the module is the one that every version of numpy reads.
    fn numpy_array(&mut self, array: &'v PtTensor<'v>) -> Result<(), Refusal> {
        let Some(name) = array.dtype.numpy_name() else {
            return Err(self.refusal(format!("arrays of {} are not written here", array.dtype)));
        };
        self.count_of(array)?;
        self.global("numpy.core.multiarray", "_reconstruct");
        self.out.push(MARK);
        self.global("numpy", "ndarray");
        self.out.extend_from_slice(b"K\x00\x85C\x01b");
        self.out.extend_from_slice(&[TUPLE, REDUCE, MARK, b'K', 1, MARK]);
        array.shape.iter().for_each(|size| self.size(*size));
        self.out.push(TUPLE);
        self.shared(MemoKey::Dtype(name), |out| push_numpy_type(out, name));
        self.out.push(b'\x89');
        match u32::try_from(array.bytes.len()) {
            Ok(length) => {
                self.out.push(b'B');
                self.out.extend_from_slice(&length.to_le_bytes());
            }
            Err(_) => {
                self.out.push(b'\x8e');
                self.out.extend_from_slice(&(array.bytes.len() as u64).to_le_bytes());
            }
        }
        self.out.extend_from_slice(&array.bytes);
        self.out.extend_from_slice(&[TUPLE, BUILD]);
        Ok(())
    }

    /// How many values a tensor has, if it is given the bytes of as many.
    fn count_of(&self, tensor: &PtTensor<'_>) -> Result<u64, Refusal> {
        let count = tensor.shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
        let expect = count.and_then(|count| tensor.dtype.bytes_of(count));
        match count {
            Some(count) if expect == Some(tensor.bytes.len() as u64) => Ok(count),
            _ => {
                let (shape, dtype, found) = (&tensor.shape, tensor.dtype, tensor.bytes.len());
                Err(self.refusal(format!("a tensor of shape {shape:?} in {dtype} is given {found} bytes")))
            }
        }
    }

    fn global(&mut self, module: &'static str, name: &'static str) {
        self.shared(MemoKey::Global(module, name), |out| {
            out.extend_from_slice(format!("c{module}\n{name}\n").as_bytes());
        });
    }

    fn shared_text(&mut self, text: &'v str) -> Result<(), Refusal> {
        let length = self.length_of(text)?;
        self.shared(MemoKey::Text(text), |out| push_text(out, length, text));
        Ok(())
    }

    /// Writes something the first time, and a reference to it after that.
    fn shared(&mut self, what: MemoKey<'v>, write: impl FnOnce(&mut Vec<u8>)) {
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

    fn text(&mut self, text: &str) -> Result<(), Refusal> {
        let length = self.length_of(text)?;
        push_text(&mut self.out, length, text);
        Ok(())
    }

    fn length_of(&self, text: &str) -> Result<u32, Refusal> {
        text.len().try_into().map_err(|_| self.refusal("a string of 4 GiB or more".to_owned()))
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

    fn refusal(&self, problem: String) -> Refusal {
        Refusal { place: Place::Value(self.path.join(".")), problem }
    }
}

fn push_text(out: &mut Vec<u8>, length: u32, text: &str) {
    out.push(b'X');
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// `dtype(name, False, True)`, and the state `(version, byte order, None, None, None, -1, -1, 0)`.
fn push_numpy_type(out: &mut Vec<u8>, name: &str) {
    let order: &[u8] = if cfg!(target_endian = "big") { b">" } else { b"<" };
    out.extend_from_slice(b"cnumpy\ndtype\n(X");
    out.extend_from_slice(&(name.len() as u32).to_le_bytes());
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\x89\x88tR(K\x03X\x01\0\0\0");
    out.extend_from_slice(order);
    out.extend_from_slice(b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb");
}

fn is_key(key: &PtValue<'_>) -> bool {
    match key {
        PtValue::List(_) | PtValue::Dict(_) | PtValue::Tensor(_) => false,
        PtValue::Tuple(items) => items.iter().all(is_key),
        _ => true,
    }
}
