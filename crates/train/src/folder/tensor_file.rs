//! Named tensors in a safetensors file, written and read one tensor at a time.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{attempt, gradients};
use safetensors::SafeTensorError;
use safetensors::tensor::{Dtype, Metadata, TensorInfo, View, serialize_to_file};
use sha2::{Digest, Sha256};

use crate::error::{Result, TrainError};

/// Writes the tensors. At most one is copied at a time.
pub(super) fn write(path: &Path, tensors: &BTreeMap<String, Tensor>) -> Result<()> {
    let mut views = Vec::new();
    for (name, tensor) in tensors {
        views.push((name.clone(), TensorView::of(path, name, tensor)?));
    }
    attempt(|| serialize_to_file(views, None, path))?.map_err(|error| match error {
        SafeTensorError::IoError(source) => TrainError::at(path)(source),
        other => TrainError::at(path)(io::Error::other(other)),
    })
}

/// Copies every tensor of the file into the tensor of the same name. Names, shapes and kinds must agree exactly, and are
/// compared before anything is changed; only a name in `optional` may be missing on either side.
pub(super) fn read_into(path: &Path, targets: &BTreeMap<String, Tensor>, optional: &[&str]) -> Result<()> {
    let damaged = |problem: String| TrainError::Damaged { path: path.to_owned(), problem };
    let mut file = File::open(path).map_err(TrainError::at(path))?;
    let (data_start, metadata) = read_metadata(&mut file).map_err(damaged)?;
    let entries = metadata.tensors();
    if let Some(difference) = difference(&entries, targets, optional) {
        return Err(TrainError::OtherModel { path: path.to_owned(), difference });
    }
    let length = file.metadata().map_err(TrainError::at(path))?.len();
    let wanted = data_start.saturating_add(metadata.data_len() as u64);
    if length != wanted {
        return Err(damaged(format!("it is {length} bytes long, and its header asks for {wanted}")));
    }
    for (name, target) in targets {
        let Some(entry) = entries.get(name) else { continue };
        let (start, end) = entry.data_offsets;
        let mut bytes = vec![0; end - start];
        file.seek(SeekFrom::Start(data_start + start as u64))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(TrainError::at(path))?;
        let value = attempt(|| Tensor::from_data_size(&bytes, &target.size(), target.kind()))?;
        gradients::copy_quietly(target, &value)?;
    }
    Ok(())
}

/// The first thing, by name, in which a file and the tensors it is for do not agree.
fn difference(
    entries: &HashMap<String, &TensorInfo>,
    targets: &BTreeMap<String, Tensor>,
    optional: &[&str],
) -> Option<String> {
    for (name, target) in targets {
        let Some(info) = entries.get(name) else {
            if optional.contains(&name.as_str()) {
                continue;
            }
            return Some(format!("it does not hold `{name}`"));
        };
        let shape: Vec<i64> = info.shape.iter().map(|size| *size as i64).collect();
        let wanted = dtype(target.kind());
        if shape != target.size() || wanted != Some(info.dtype) {
            let wanted = wanted.map_or("unknown".to_owned(), |dtype| format!("{dtype:?}"));
            let size = target.size();
            return Some(format!("`{name}` is {:?} {shape:?}, and this model has {wanted} {size:?}", info.dtype));
        }
    }
    let surplus =
        entries.keys().filter(|name| !targets.contains_key(*name) && !optional.contains(&name.as_str())).min()?;
    Some(format!("it holds `{surplus}`, which this model does not have"))
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
    let mut bytes = vec![0; header as usize];
    file.read_exact(&mut bytes).map_err(|_| "it is cut short".to_owned())?;
    // The library's own reader wants the whole file in memory; this checks the same and reads the header only.
    let metadata = serde_json::from_slice(&bytes).map_err(|error| format!("its header is damaged: {error}"))?;
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

/// SHA-256 over names, shapes and values, in the order of names.
pub(crate) fn weights_sha256(state: &BTreeMap<String, Tensor>) -> String {
    let mut hash = Sha256::new();
    for (name, tensor) in state {
        hash.update(format!("{name} {:?} {:?}\n", tensor.kind(), tensor.size()));
        hash.update(bytes_of(tensor));
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A tensor's values as they lie in memory, row by row.
fn bytes_of(tensor: &Tensor) -> Vec<u8> {
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
