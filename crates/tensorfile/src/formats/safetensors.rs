//! Files of safetensors: a header of JSON, then the bytes of the tensors.
//!
//! What a header may say is for the format's own crate to check ([`Metadata`]): types, shapes and offsets that leave no
//! gap. Only the header is read, whatever the length of the file, which is checked here.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;

use lowtide_core::Bytes;
use safetensors::tensor::{Dtype as Kind, Metadata, TensorInfo};
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::error::{Place, TensorFileError};
use crate::file::TensorFile;
use crate::tensors::{Dtype, Source, Storage, Tensor};
use crate::tree::{Fields, Tree};

/// The bound of the format's own reader.
const LONGEST_HEADER: u64 = 100_000_000;
/// Where the header begins, behind its length.
const HEADER: u64 = 8;
/// Memory for each byte of a header: the description of a tensor has about 90.
const HEADER_MEMORY: u64 = 8;
const METADATA: &str = "__metadata__";

/// Whether a file begins like one of safetensors.
pub(crate) fn is_safetensors(head: &[u8], length: u64) -> bool {
    match head.split_first_chunk::<8>() {
        Some((size, rest)) => u64::from_le_bytes(*size) <= length && rest.starts_with(b"{"),
        None => false,
    }
}

/// Reads the header; the root is a dict of tensors in the order of their bytes, with the metadata behind them where
/// there is some.
pub(crate) fn read(file: &Arc<TensorFile>) -> Result<Tree, TensorFileError> {
    let mut size = [0; HEADER as usize];
    file.read_at(&mut size, 0, &Place::Byte(0))?;
    let size = u64::from_le_bytes(size);
    if size > LONGEST_HEADER {
        return Err(file.malformed(Place::Byte(HEADER), format!("a header of {size} bytes")));
    }
    file.check_tables(Bytes(size.saturating_mul(HEADER_MEMORY)))?;
    let header = file.bytes_at(HEADER, size, &Place::Byte(HEADER))?;
    let metadata = safetensors_header(&header).map_err(|error| refusal(file, &header, &error))?;
    drop(header);
    let data = HEADER + size;
    let mut fields = Fields::new();
    for name in metadata.offset_keys() {
        let Some(info) = metadata.info(&name) else { continue };
        let tensor = tensor(file, &name, info, data)?;
        fields.push((Tree::Str(name.into()), Tree::Tensor(Arc::new(tensor))));
    }
    let end = data + metadata.data_len() as u64;
    if end < file.len() {
        let problem = format!("the tensors end at byte {end}, and the file has {}", file.len());
        return Err(file.malformed(Place::Whole, problem));
    }
    if let Some(texts) = metadata.metadata() {
        let texts: BTreeMap<_, _> = texts.iter().collect();
        let texts =
            texts.into_iter().map(|(key, text)| (Tree::Str(key.as_str().into()), Tree::Str(text.as_str().into())));
        fields.push((Tree::Str(METADATA.into()), Tree::Dict(texts.collect())));
    }
    Ok(Tree::Dict(fields))
}

/// Reads the JSON of a header: types, shapes, offsets that leave no gap and do not overlap, and no name twice.
///
/// # Errors
///
/// What is wrong with it.
pub fn safetensors_header(header: &[u8]) -> Result<Metadata, serde_json::Error> {
    // The format has no name twice, and its own reader takes the last one: another may take the first.
    serde_json::from_slice::<UniqueNames>(header)?;
    serde_json::from_slice(header)
}

/// An object whose names differ, also those of the metadata in it.
struct UniqueNames;

impl<'de> Deserialize<'de> for UniqueNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self)
    }
}

impl<'de> Visitor<'de> for UniqueNames {
    type Value = Self;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut seen: HashSet<String> = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == METADATA {
                map.next_value::<Option<Self>>()?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
            if seen.contains(&name) {
                return Err(A::Error::custom(format!("`{}` is there twice", name.escape_debug())));
            }
            seen.insert(name);
        }
        Ok(self)
    }
}

/// A tensor whose description was checked; `data` is where the bytes of all of them begin.
fn tensor(file: &Arc<TensorFile>, name: &str, info: &TensorInfo, data: u64) -> Result<Tensor, TensorFileError> {
    let place = Place::Value(name.to_owned());
    let Some(dtype) = dtype_of(info.dtype) else { return Err(unknown_type(file, name, &info.dtype.to_string())) };
    let (start, end) = info.data_offsets;
    let (offset, length) = (data.saturating_add(start as u64), (end - start) as u64);
    file.check_range(offset, length, &place)?;
    let storage = Storage::new(file, place.clone(), Source::File { offset }, length);
    let shape = info.shape.iter().map(|size| *size as u64).collect();
    Tensor::contiguous(Arc::new(storage), dtype, shape).map_err(|problem| file.malformed(place, problem))
}

/// Why a header is none: the format's own reader says what is wrong with it, and not always with which tensor.
fn refusal(file: &TensorFile, header: &[u8], error: &serde_json::Error) -> TensorFileError {
    let described: BTreeMap<String, Value> = serde_json::from_slice(header).unwrap_or_default();
    let tensors = described.iter().filter(|(name, _)| *name != METADATA);
    let known = tensors.into_iter().find_map(|(name, described)| refusal_of_tensor(file, name, described));
    known.unwrap_or_else(|| file.malformed(Place::Byte(HEADER), format!("no header of safetensors: {error}")))
}

fn refusal_of_tensor(file: &TensorFile, name: &str, described: &Value) -> Option<TensorFileError> {
    let malformed = |problem: String| Some(file.malformed(Place::Value(name.to_owned()), problem));
    if let Some(kind) = described["dtype"].as_str()
        && serde_json::from_value::<Kind>(described["dtype"].clone()).is_err()
    {
        return Some(unknown_type(file, name, kind));
    }
    let info: TensorInfo = match serde_json::from_value(described.clone()) {
        Ok(info) => info,
        Err(error) => return malformed(format!("is described without type, shape and offsets: {error}")),
    };
    let (start, end) = info.data_offsets;
    if end < start {
        return malformed(format!("ends at {end}, before it begins at {start}"));
    }
    let bits = info.shape.iter().try_fold(info.dtype.bitsize(), |bits, size| bits.checked_mul(*size));
    match bits {
        None => malformed(format!("a tensor of shape {:?}, which is too large", info.shape)),
        Some(bits) if bits.div_ceil(8) != end - start => {
            malformed(format!("takes {} bytes, and its shape and type make {}", end - start, bits.div_ceil(8)))
        }
        Some(_) => None,
    }
}

fn unknown_type(file: &TensorFile, name: &str, kind: &str) -> TensorFileError {
    file.unsupported(Place::Value(name.to_owned()), format!("a tensor of type `{}`", kind.escape_debug()), None)
}

fn dtype_of(kind: Kind) -> Option<Dtype> {
    Some(match kind {
        Kind::BOOL => Dtype::Bool,
        Kind::U8 => Dtype::Uint8,
        Kind::I8 => Dtype::Int8,
        Kind::I16 => Dtype::Int16,
        Kind::U16 => Dtype::Uint16,
        Kind::I32 => Dtype::Int32,
        Kind::U32 => Dtype::Uint32,
        Kind::I64 => Dtype::Int64,
        Kind::U64 => Dtype::Uint64,
        Kind::F16 => Dtype::Float16,
        Kind::BF16 => Dtype::Bfloat16,
        Kind::F32 => Dtype::Float32,
        Kind::F64 => Dtype::Float64,
        Kind::C64 => Dtype::Complex64,
        Kind::F8_E4M3 => Dtype::Float8E4m3fn,
        Kind::F8_E5M2 => Dtype::Float8E5m2,
        Kind::F8_E4M3FNUZ => Dtype::Float8E4m3fnuz,
        Kind::F8_E5M2FNUZ => Dtype::Float8E5m2fnuz,
        Kind::F8_E8M0 => Dtype::Float8E8m0fnu,
        _ => return None,
    })
}
