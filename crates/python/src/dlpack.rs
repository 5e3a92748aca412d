//! Memory that becomes a tensor of somebody else's: a [`Block`] that is handed out by DLPack and never looked at again, or the
//! memory of a tensor that Python has made.
//!
//! What its `unsafe` relies on: a [`Part`] that was handed out keeps its block alive until the consumer's deleter runs, and has no
//! way to read or write it.

#![expect(unsafe_code, reason = "DLPack is an interface of C, and what a tensor of Python's holds is a pointer")]

use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use lowtide_tensorfile::Dtype;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::block::Block;
use crate::failure::Failure;

const FRESH: &CStr = c"dltensor";

/// The memory of a tensor that Python allocated, pinned for instance, and that is filled from its beginning on.
#[derive(Debug)]
pub(crate) struct Lent {
    /// Keeps the memory alive.
    _tensor: Py<PyAny>,
    start: NonNull<u8>,
    length: usize,
    filled: usize,
}

// SAFETY: while it is here, the memory is written to by whoever has it, and by nobody else: `lowtide._feed` made the tensor
// for this one call and looks at it when the call is over.
unsafe impl Send for Lent {}

impl Lent {
    /// The memory of a contiguous tensor of the host, of exactly so many bytes.
    pub(crate) fn of(tensor: &Bound<'_, PyAny>, bytes: usize) -> PyResult<Self> {
        let refuse = |what: &str| PyValueError::new_err(format!("a tensor to gather into must be {what}"));
        if !tensor.getattr("is_cpu")?.is_truthy()? || !tensor.call_method0("is_contiguous")?.is_truthy()? {
            return Err(refuse("contiguous, and in host memory"));
        }
        let length: usize = tensor.getattr("nbytes")?.extract()?;
        if length != bytes {
            return Err(refuse(&format!("of {bytes} bytes, not of {length}")));
        }
        let address: usize = tensor.call_method0("data_ptr")?.extract()?;
        let start = match NonNull::new(ptr::with_exposed_provenance_mut(address)) {
            Some(start) => start,
            None if bytes == 0 => NonNull::dangling(),
            None => return Err(refuse("one with memory")),
        };
        Ok(Self { _tensor: tensor.clone().unbind(), start, length, filled: 0 })
    }

    /// Adds bytes behind those that are there.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let end = self.filled.saturating_add(bytes.len());
        if end > self.length {
            return Err(PyValueError::new_err("a tensor to gather into is too small").into());
        }
        // SAFETY: torch has `length` bytes at `start`, for as long as the tensor lives that is held here; `bytes` are of a
        // sample in memory of our own.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(self.filled), bytes.len()) };
        self.filled = end;
        Ok(())
    }

    /// Bytes that were written.
    pub(crate) fn len(&self) -> usize {
        self.filled
    }

    /// Whether all of it was written to.
    pub(crate) fn is_full(&self) -> bool {
        self.filled == self.length
    }

    /// What was written so far, in memory of our own with as much room.
    pub(crate) fn to_block(&self) -> Result<Block, Failure> {
        let mut block = Block::with_room(self.length)?;
        // SAFETY: `filled` bytes were written through `start`, and are written by nobody else meanwhile.
        block.push(unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.filled) })?;
        Ok(block)
    }
}

/// A tensor in rows, as a part of a block: what `torch.from_dlpack` takes.
#[pyclass(module = "lowtide._native", frozen)]
#[derive(Debug)]
pub(crate) struct Part {
    block: Arc<Block>,
    offset: usize,
    shape: Vec<i64>,
    dtype: Dtype,
}

impl Part {
    /// The tensor of this shape that begins so many bytes into a block.
    pub(crate) fn new(block: &Arc<Block>, offset: usize, shape: &[u64], dtype: Dtype) -> PyResult<Self> {
        let outside = || PyValueError::new_err("a tensor does not lie within its memory");
        let shape: Option<Vec<i64>> = shape.iter().map(|size| i64::try_from(*size).ok()).collect();
        let shape = shape.ok_or_else(outside)?;
        let elements = shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size as u64));
        let end = elements.and_then(|elements| elements.checked_mul(dtype.size())?.checked_add(offset as u64));
        if dtype.per_byte() != 1 || end.is_none_or(|end| end > block.len() as u64) {
            return Err(outside());
        }
        Ok(Self { block: Arc::clone(block), offset, shape, dtype })
    }
}

#[pymethods]
impl Part {
    /// A capsule with the tensor, for whoever calls `from_dlpack`.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = (stream, max_version);
        if dl_device.is_some_and(|device| device != (CPU, 0)) || copy == Some(true) {
            return Err(pyo3::exceptions::PyBufferError::new_err("it is in host memory, and is not copied"));
        }
        let managed = Box::into_raw(self.managed());
        // SAFETY: Python is attached; `managed` is what a capsule of this name holds; `free_unused` frees it where no
        // consumer has taken it.
        let capsule = unsafe { ffi::PyCapsule_New(managed.cast(), FRESH.as_ptr(), Some(free_unused)) };
        // SAFETY: a new reference, or null with Python's error set.
        let capsule = unsafe { Bound::from_owned_ptr_or_err(py, capsule) };
        if capsule.is_err() {
            // SAFETY: no capsule has it.
            unsafe { free(managed) };
        }
        capsule
    }

    /// The host.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (CPU, 0)
    }

    /// The name of its type of values in torch.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    /// Whether DLPack has no name for its values, so that they are handed out as integers of the same size.
    #[getter]
    fn is_raw(&self) -> bool {
        code(self.dtype).is_none()
    }

    /// How many values there are along each dimension.
    #[getter]
    fn shape(&self) -> Vec<i64> {
        self.shape.clone()
    }
}

impl Part {
    fn managed(&self) -> Box<Managed> {
        let code = code(self.dtype).unwrap_or(INTEGER);
        let dtype = DataType { code, bits: (self.dtype.size() * 8) as u8, lanes: 1 };
        let mut held = Box::new(Held { shape: self.shape.clone(), strides: strides(&self.shape), block: None });
        let (shape, strides) = (held.shape.as_mut_ptr(), held.strides.as_mut_ptr());
        held.block = Some(Arc::clone(&self.block));
        // SAFETY: `new` has checked that the tensor lies within the block.
        let data = unsafe { self.block.address().add(self.offset) };
        let device = Device { kind: CPU, number: 0 };
        let dimensions = self.shape.len() as i32;
        let tensor = DlTensor { data: data.cast(), device, dimensions, dtype, shape, strides, byte_offset: 0 };
        Box::new(Managed { tensor, context: Box::into_raw(held).cast(), deleter: Some(free) })
    }
}

/// What a tensor that was handed out needs.
struct Held {
    shape: Vec<i64>,
    strides: Vec<i64>,
    block: Option<Arc<Block>>,
}

/// How far apart neighbours along each dimension are.
fn strides(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for at in (1..shape.len()).rev() {
        strides[at - 1] = strides[at] * shape[at].max(1);
    }
    strides
}

/// What DLPack calls a type; none for those that not every consumer knows.
fn code(dtype: Dtype) -> Option<u8> {
    Some(match dtype {
        Dtype::Int8 | Dtype::Int16 | Dtype::Int32 | Dtype::Int64 => INTEGER,
        Dtype::Uint8 | Dtype::Uint16 | Dtype::Uint32 | Dtype::Uint64 => 1,
        Dtype::Float16 | Dtype::Float32 | Dtype::Float64 => 2,
        Dtype::Bfloat16 => 4,
        Dtype::Complex64 | Dtype::Complex128 => 5,
        Dtype::Bool => 6,
        _ => return None,
    })
}

const INTEGER: u8 = 0;
const CPU: i32 = 1;

// The structures of `dlpack.h`, before version 1: what every consumer takes.

#[repr(C)]
struct Device {
    kind: i32,
    number: i32,
}

#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// Frees a tensor that was handed out: called by its consumer, once, on any thread.
unsafe extern "C" fn free(managed: *mut Managed) {
    // SAFETY: `managed` came out of a box in `__dlpack__`, its context out of one in `managed()`, and both are freed here
    // alone.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Held>()));
    }
}

/// Frees a tensor that no consumer has taken: one that does renames the capsule.
unsafe extern "C" fn free_unused(capsule: *mut ffi::PyObject) {
    // SAFETY: Python destroys a capsule that was made in `__dlpack__`; under its first name it still holds what was put into
    // it there.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, FRESH.as_ptr()) == 1 {
            free(ffi::PyCapsule_GetPointer(capsule, FRESH.as_ptr()).cast());
        }
    }
}
