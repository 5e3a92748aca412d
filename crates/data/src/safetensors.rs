//! Files of safetensors: a header of JSON, then the bytes of the tensors.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use crate::file::DataFile;
use crate::storage::{Order, Source};
use crate::{DataError, Dtype, Fields, Place, Storage, Tensor, Tree};

/// The bound of the format's own reader.
const LONGEST_HEADER: u64 = 100_000_000;
const METADATA: &str = "__metadata__";

#[derive(Deserialize)]
#[serde(untagged)]
enum Described {
    Tensor { dtype: String, shape: Vec<u64>, data_offsets: (u64, u64) },
    Metadata(BTreeMap<String, String>),
}

/// Whether a file begins like one of safetensors.
pub(crate) fn is_safetensors(head: &[u8], length: u64) -> bool {
    match head.split_first_chunk::<8>() {
        Some((size, rest)) => u64::from_le_bytes(*size) <= length && rest.starts_with(b"{"),
        None => false,
    }
}

/// Reads the header; the root is a dict of tensors in the order of their bytes, with the metadata behind them where
/// there is some.
pub(crate) fn read(file: &Arc<DataFile>) -> Result<Tree, DataError> {
    let mut size = [0; 8];
    file.read_at(&mut size, 0, &Place::Byte(0))?;
    let size = u64::from_le_bytes(size);
    let place = Place::Byte(8);
    if size > LONGEST_HEADER {
        return Err(file.malformed(place, format!("a header of {size} bytes")));
    }
    let header = file.bytes_at(8, size, &place)?;
    let described: BTreeMap<String, Described> = serde_json::from_slice(&header)
        .map_err(|error| file.malformed(Place::Byte(8), format!("no header of safetensors: {error}")))?;
    let mut tensors = Vec::new();
    let mut metadata = None;
    for (name, described) in described {
        match described {
            Described::Metadata(texts) if name == METADATA => metadata = Some(texts),
            Described::Metadata(_) => {
                return Err(file.malformed(Place::Value(name), "is described without type, shape and offsets"));
            }
            Described::Tensor { dtype, shape, data_offsets } => {
                let tensor = tensor(file, &name, &dtype, shape, data_offsets, 8 + size)?;
                tensors.push((data_offsets.0, name, tensor));
            }
        }
    }
    tensors.sort_by(|first, second| (first.0, &first.1).cmp(&(second.0, &second.1)));
    let mut fields: Fields =
        tensors.into_iter().map(|(_, name, tensor)| (Tree::Str(name.into()), Tree::Tensor(Arc::new(tensor)))).collect();
    if let Some(texts) = metadata {
        let texts = texts.into_iter().map(|(key, text)| (Tree::Str(key.into()), Tree::Str(text.into())));
        fields.push((Tree::Str(METADATA.into()), Tree::Dict(texts.collect())));
    }
    Ok(Tree::Dict(fields))
}

fn tensor(
    file: &Arc<DataFile>,
    name: &str,
    dtype: &str,
    shape: Vec<u64>,
    (start, end): (u64, u64),
    data: u64,
) -> Result<Tensor, DataError> {
    let place = Place::Value(name.to_owned());
    let Some(known) = dtype_of(dtype) else {
        return Err(file.unsupported(place, format!("a tensor of type `{}`", dtype.escape_debug()), None));
    };
    let Some(length) = end.checked_sub(start) else {
        return Err(file.malformed(place, format!("ends at {end}, before it begins at {start}")));
    };
    let offset = data.saturating_add(start);
    file.check_range(offset, length, &place)?;
    let storage = Storage {
        file: Arc::clone(file),
        place: place.clone(),
        source: Source::File { offset },
        length,
        order: Order::Little,
        checksum: None,
    };
    let tensor =
        Tensor::contiguous(Arc::new(storage), known, shape).map_err(|problem| file.malformed(place, problem))?;
    if tensor.bytes() != length {
        let problem = format!("takes {length} bytes, and its shape and type make {}", tensor.bytes());
        return Err(file.malformed(Place::Value(name.to_owned()), problem));
    }
    Ok(tensor)
}

fn dtype_of(name: &str) -> Option<Dtype> {
    Some(match name {
        "BOOL" => Dtype::Bool,
        "U8" => Dtype::Uint8,
        "I8" => Dtype::Int8,
        "I16" => Dtype::Int16,
        "U16" => Dtype::Uint16,
        "I32" => Dtype::Int32,
        "U32" => Dtype::Uint32,
        "I64" => Dtype::Int64,
        "U64" => Dtype::Uint64,
        "F16" => Dtype::Float16,
        "BF16" => Dtype::Bfloat16,
        "F32" => Dtype::Float32,
        "F64" => Dtype::Float64,
        "C64" => Dtype::Complex64,
        "F8_E4M3" => Dtype::Float8E4m3fn,
        "F8_E5M2" => Dtype::Float8E5m2,
        "F8_E4M3FNUZ" => Dtype::Float8E4m3fnuz,
        "F8_E5M2FNUZ" => Dtype::Float8E5m2fnuz,
        "F8_E8M0" => Dtype::Float8E8m0fnu,
        _ => return None,
    })
}
