//! Named tensors in a safetensors file, written and read one tensor at a time.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{attempt, gradients};
use safetensors::tensor::{Dtype, Metadata, SafeTensors, View, serialize_to_file};

use crate::error::{Result, TrainError};

/// Writes the tensors and makes sure they are on the disk. At most one tensor is copied at a time.
pub(crate) fn write(path: &Path, tensors: &BTreeMap<String, Tensor>) -> Result<()> {
    let mut views = Vec::new();
    for (name, tensor) in tensors {
        views.push((name.clone(), TensorView::of(path, name, tensor)?));
    }
    serialize_to_file(views, None, path).map_err(|error| file_error(path, io::Error::other(error)))?;
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| file_error(path, error))
}

/// Copies every tensor of the file into the tensor of the same name. Names, shapes and kinds must agree exactly, and are
/// compared before anything is changed.
pub(crate) fn read_into(path: &Path, targets: &BTreeMap<String, Tensor>) -> Result<()> {
    let wrong = |problem: String| TrainError::Checkpoint { path: path.to_owned(), problem };
    let mut file = File::open(path).map_err(|error| file_error(path, error))?;
    let (data_start, metadata) = read_metadata(&mut file).map_err(|problem| wrong(problem))?;
    let entries = metadata.tensors();
    if let Some(name) = entries.keys().find(|name| !targets.contains_key(*name)) {
        return Err(wrong(format!("it holds `{name}`, which this model does not have")));
    }
    for (name, target) in targets {
        let info = entries.get(name).ok_or_else(|| wrong(format!("`{name}` is missing")))?;
        let shape: Vec<i64> = info.shape.iter().map(|size| *size as i64).collect();
        if shape != target.size() || dtype(target.kind()) != Some(info.dtype) {
            return Err(wrong(format!(
                "`{name}` is {:?} {shape:?}, and the model has {:?} {:?}",
                info.dtype,
                target.kind(),
                target.size()
            )));
        }
    }
    let length = file.metadata().map_err(|error| file_error(path, error))?.len();
    if length != data_start + metadata.data_len() as u64 {
        return Err(wrong(format!(
            "it is {length} bytes long, and its header asks for {}",
            data_start + metadata.data_len() as u64
        )));
    }
    for (name, target) in targets {
        let (start, end) = entries[name].data_offsets;
        let mut bytes = vec![0; end - start];
        file.seek(SeekFrom::Start(data_start + start as u64))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(|error| file_error(path, error))?;
        let value = attempt(|| Tensor::from_data_size(&bytes, &target.size(), target.kind()))?;
        gradients::copy_quietly(target, &value)?;
    }
    Ok(())
}

/// The header of a safetensors file: where the data starts, and what is in it.
fn read_metadata(file: &mut File) -> std::result::Result<(u64, Metadata), String> {
    /// The format's own bound on a header.
    const MOST: u64 = 100_000_000;
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(|_| "it is cut short".to_owned())?;
    let header = u64::from_le_bytes(length);
    if header > MOST {
        return Err("its header is damaged".to_owned());
    }
    let mut bytes = length.to_vec();
    bytes.resize(8 + header as usize, 0);
    file.read_exact(&mut bytes[8..]).map_err(|_| "it is cut short".to_owned())?;
    let (_, metadata) =
        SafeTensors::read_metadata(&bytes).map_err(|error| format!("its header is damaged: {error}"))?;
    Ok((8 + header, metadata))
}

/// A tensor on its way to a file.
struct TensorView {
    tensor: Tensor,
    dtype: Dtype,
    shape: Vec<usize>,
}

impl TensorView {
    fn of(path: &Path, name: &str, tensor: &Tensor) -> Result<TensorView> {
        let dtype = dtype(tensor.kind()).ok_or_else(|| TrainError::Checkpoint {
            path: path.to_owned(),
            problem: format!("`{name}` is of kind {:?}, which the format does not have", tensor.kind()),
        })?;
        let shape = tensor.size().iter().map(|size| *size as usize).collect();
        Ok(TensorView { tensor: tensor.detach(), dtype, shape })
    }
}

impl View for TensorView {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(bytes_of(&self.tensor))
    }

    fn data_len(&self) -> usize {
        self.tensor.numel() * self.tensor.kind().elt_size_in_bytes()
    }
}

/// A tensor's values as they lie in memory, row by row.
pub(crate) fn bytes_of(tensor: &Tensor) -> Vec<u8> {
    let here = tensor.detach().to_device(Device::Cpu).contiguous();
    let count = here.numel();
    let mut bytes = vec![0; count * here.kind().elt_size_in_bytes()];
    here.copy_data_u8(&mut bytes, count);
    bytes
}

fn dtype(kind: Kind) -> Option<Dtype> {
    match kind {
        Kind::Float => Some(Dtype::F32),
        Kind::Double => Some(Dtype::F64),
        Kind::Half => Some(Dtype::F16),
        Kind::BFloat16 => Some(Dtype::BF16),
        Kind::Int64 => Some(Dtype::I64),
        Kind::Int => Some(Dtype::I32),
        Kind::Uint8 => Some(Dtype::U8),
        Kind::Bool => Some(Dtype::BOOL),
        _ => None,
    }
}

fn file_error(path: &Path, source: io::Error) -> TrainError {
    TrainError::File { path: path.to_owned(), source }
}
