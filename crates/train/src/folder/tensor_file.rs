//! Named tensors in a safetensors file, written and read one tensor at a time.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use lowtide_tensorfile::safetensors_header;
use lowtide_torch::tch::{Device, Kind, Tensor};
use lowtide_torch::{attempt, gradients};
use safetensors::SafeTensorError;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use sha2::{Digest, Sha256};

use super::file_sum::{FileSum, Summed};
use crate::error::{Result, TrainError};

/// Writes the tensors, in the order and with the header that safetensors' own writer gives them. At most one is copied at a
/// time. `value` gives each in its turn, of the kind and shape of the one in `tensors`.
pub(super) fn write(
    path: &Path,
    tensors: &BTreeMap<String, Tensor>,
    value: impl Fn(&str, &Tensor) -> Result<Tensor>,
) -> Result<FileSum> {
    let mut entries = Vec::new();
    for (name, tensor) in tensors {
        entries.push((dtype_of(path, name, tensor)?, name, tensor));
    }
    entries.sort_by(|(left, left_name, _), (right, right_name, _)| right.cmp(left).then(left_name.cmp(right_name)));
    let header = header(&entries).map_err(|error| TrainError::at(path)(io::Error::other(error)))?;
    let file = File::create(path).map_err(TrainError::at(path))?;
    let mut out = Summed::new(BufWriter::with_capacity(1 << 20, file));
    let head = out.write_all(&(header.len() as u64).to_le_bytes()).and_then(|()| out.write_all(&header));
    head.map_err(TrainError::at(path))?;
    for (_, name, tensor) in entries {
        let value = value(name, tensor)?;
        let bytes = attempt(|| bytes_of(&value))?;
        out.write_all(&bytes).map_err(TrainError::at(path))?;
    }
    out.flush().map_err(TrainError::at(path))?;
    Ok(out.sum())
}

/// The tensor itself as its value.
pub(super) fn itself(_: &str, tensor: &Tensor) -> Result<Tensor> {
    Ok(tensor.shallow_clone())
}

/// Takes a value into the tensor itself.
pub(super) fn into_itself(_: &str, target: &Tensor, value: &Tensor) -> Result<()> {
    Ok(gradients::copy_quietly(target, value)?)
}

fn header(entries: &[(Dtype, &String, &Tensor)]) -> std::result::Result<Vec<u8>, SafeTensorError> {
    let mut infos = Vec::new();
    let mut start = 0;
    for (dtype, name, tensor) in entries {
        let end = start + tensor.numel() * tensor.kind().elt_size_in_bytes();
        let shape = tensor.size().iter().map(|size| *size as usize).collect();
        infos.push(((*name).clone(), TensorInfo { dtype: *dtype, shape, data_offsets: (start, end) }));
        start = end;
    }
    let mut header = serde_json::to_vec(&Metadata::new(None, infos)?)?;
    // Data begins at a multiple of 8 bytes, as the format asks for.
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok(header)
}

/// Gives `put` every tensor of the file with the target of the same name. Names, shapes and kinds must agree exactly, and are
/// compared before anything is changed; only a name in `optional` may be missing on either side. The file is compared with
/// its sum, where that was noted, as it is read: a difference is found after tensors were changed.
pub(super) fn read_into(
    path: &Path,
    targets: &BTreeMap<String, Tensor>,
    optional: &[&str],
    sum: Option<&FileSum>,
    put: impl Fn(&str, &Tensor, &Tensor) -> Result<()>,
) -> Result<()> {
    let damaged = |problem: String| TrainError::damaged(path, problem);
    let file = lowtide_disk::open(path).map_err(TrainError::at(path))?;
    let length = file.metadata().map_err(TrainError::at(path))?.len();
    sum.map_or(Ok(()), |sum| sum.check_length(length)).map_err(damaged)?;
    let mut file = Summed::new(file);
    let read = read_tensors(path, &mut file, length, targets, optional, put);
    let Some(sum) = sum else { return read };
    // Whatever the tensors look like, a file that was changed says nothing about the model.
    file.drain().map_err(TrainError::at(path))?;
    sum.check(&file.sum()).map_err(damaged)?;
    read
}

fn read_tensors(
    path: &Path,
    file: &mut Summed<File>,
    length: u64,
    targets: &BTreeMap<String, Tensor>,
    optional: &[&str],
    put: impl Fn(&str, &Tensor, &Tensor) -> Result<()>,
) -> Result<()> {
    let damaged = |problem: String| TrainError::damaged(path, problem);
    let (data_start, metadata) = read_metadata(file).map_err(damaged)?;
    let entries = metadata.tensors();
    if let Some(difference) = difference(&entries, targets, optional) {
        return Err(TrainError::OtherModel { path: path.to_owned(), difference });
    }
    let wanted = data_start.saturating_add(metadata.data_len() as u64);
    if length != wanted {
        return Err(damaged(format!("it is {length} bytes long, and its header asks for {wanted}")));
    }
    // In the order of the file, so that all of it passes once.
    let mut at = 0;
    for name in metadata.offset_keys() {
        let (start, end) = entries[&name].data_offsets;
        if start != at {
            return Err(damaged("its header names a tensor twice".to_owned()));
        }
        at = end;
        let mut bytes = vec![0; end - start];
        file.read_exact(&mut bytes).map_err(TrainError::at(path))?;
        let Some(target) = targets.get(&name) else { continue };
        let value = attempt(|| Tensor::from_data_size(&bytes, &target.size(), target.kind()))?;
        put(&name, target, &value)?;
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
fn read_metadata(file: &mut impl Read) -> std::result::Result<(u64, Metadata), String> {
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
    let metadata = safetensors_header(&bytes).map_err(|error| format!("its header is damaged: {error}"))?;
    Ok((8 + header, metadata))
}

fn dtype_of(path: &Path, name: &str, tensor: &Tensor) -> Result<Dtype> {
    dtype(tensor.kind()).ok_or_else(|| TrainError::Checkpoint {
        path: path.to_owned(),
        problem: format!("`{name}` is of kind {:?}, which the format does not have", tensor.kind()),
    })
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
