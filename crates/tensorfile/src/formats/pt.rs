//! Files of `torch.save`.
//!
//! Since version 1.6 torch writes a zip archive: `NAME/data.pkl` is the pickle, `NAME/data/KEY` a storage. Before,
//! and on demand, it wrote pickles one after another: a magic number, a version, facts about the machine, the value
//! itself and the keys of the storages; then the storages, each with its length before it.

use std::collections::HashMap;
use std::io::BufReader;
use std::sync::Arc;

use lowtide_core::Bytes;
use lowtide_pickle::{Pickle, Value, read, read_seek};

use super::objects::{Builder, PickleOrigin, allow, limits, storage_id};
use super::pickle::{pickle_at, pickle_error};
use super::zip::{Entry, Method};
use crate::error::{Place, TensorFileError};
use crate::file::TensorFile;
use crate::tensors::{ByteOrder, Checksum, Dtype, Source, Storage};
use crate::tree::Tree;

/// `0x1950a86a20f9469cfc6c`, which torch writes as the first pickle.
const MAGIC: i128 = 0x1950_a86a_20f9_469c_fc6c;
const VERSION: i64 = 1001;
/// The folder in which the pickle of an archive stands, with a slash, where the archive is torch's.
pub(crate) fn root_of(entries: &[Entry]) -> Option<&str> {
    let roots = entries.iter().filter_map(|entry| entry.name.strip_suffix("data.pkl"));
    roots.into_iter().find(|root| root.matches('/').count() <= 1 && (root.is_empty() || root.ends_with('/')))
}

/// Reads an archive of `torch.save`.
pub(crate) fn read_zip(file: &Arc<TensorFile>, entries: &[Entry], root: &str) -> Result<Tree, TensorFileError> {
    let find = |name: &str| entries.iter().find(|entry| entry.name.strip_prefix(root) == Some(name));
    let is_script = entries.iter().any(|entry| {
        let name = entry.name.strip_prefix(root).unwrap_or_default();
        name == "constants.pkl" || name.starts_with("code/")
    });
    if is_script {
        let hint = Some("load it with torch.jit.load and save its state_dict");
        return Err(file.unsupported(Place::Whole, "a TorchScript archive", hint));
    }
    let order = match find("byteorder") {
        None => ByteOrder::Little,
        Some(entry) if entry.length > 16 => return Err(file.malformed(entry.place(), "a byte order of many bytes")),
        Some(entry) => match &entry.read(file)?[..] {
            b"little" => ByteOrder::Little,
            b"big" => ByteOrder::Big,
            other => {
                let problem = format!("the byte order `{}` is not known", other.escape_ascii());
                return Err(file.malformed(entry.place(), problem));
            }
        },
    };
    let Some(entry) = find("data.pkl") else { return Err(file.malformed(Place::Whole, "there is no data.pkl")) };
    entry.verify(file)?;
    // Read where it is: the pickle of a large file can be as large as all the memory that there is for it.
    let range = BufReader::with_capacity(64 << 10, file.range(entry.offset, entry.length));
    let pickle = read_seek(range, &allow(), &limits(file.table_bytes()));
    let pickle = pickle.map_err(|source| pickle_error(file, entry.place(), source))?;
    let storages = entries.iter().filter_map(|entry| {
        let key = entry.name.strip_prefix(root)?.strip_prefix("data/")?;
        Some((key.to_owned(), Arc::new(storage_of(file, entry, order))))
    });
    let storages: HashMap<String, Arc<Storage>> = storages.collect();
    Builder::new(&pickle, file, &storages, PickleOrigin::File { start: entry.offset }).build_root()
}

fn storage_of(file: &Arc<TensorFile>, entry: &Entry, order: ByteOrder) -> Storage {
    let source = match entry.method {
        Method::Stored => Source::File { offset: entry.offset },
        Method::Deflated => Source::Deflated { offset: entry.offset, packed: entry.packed, before: 0 },
    };
    let checksum = entry.has_checksum().then_some(Checksum { before: 0, expect: entry.crc });
    Storage { order, checksum, ..Storage::new(file, entry.place(), source, entry.length) }
}

/// Reads a file of the older format.
pub(crate) fn read_legacy(file: &Arc<TensorFile>) -> Result<Tree, TensorFileError> {
    let mut position = 0;
    let mut next = || -> Result<(Pickle, u64), TensorFileError> {
        let start = position;
        let pickle = pickle_at(file, start)?;
        position += pickle.length();
        Ok((pickle, start))
    };
    let (magic, _) = next()?;
    if !matches!(magic.get(magic.root()), Value::BigInt(number) if number.to_i128() == Some(MAGIC)) {
        return Err(file.malformed(Place::Byte(0), "the magic number of torch is missing"));
    }
    let (version, at) = next()?;
    if version.int(version.root()) != Some(VERSION) {
        return Err(file.malformed(Place::Byte(at), format!("only version {VERSION} of the older format is known")));
    }
    let (facts, at) = next()?;
    if let Some(Value::Bool(false)) = facts.entry(facts.root(), "little_endian").map(|order| facts.get(order)) {
        let what = "a file of the older format from a machine with the other byte order";
        return Err(file.unsupported(Place::Byte(at), what, Some("load it there and save it again")));
    }
    let (pickle, start) = next()?;
    let (keys, _) = next()?;
    let storages = legacy_storages(file, &pickle, &keys, position)?;
    Builder::new(&pickle, file, &storages, PickleOrigin::File { start }).build_root()
}

/// The storages that stand behind the pickles, in the order of the keys.
fn legacy_storages(
    file: &Arc<TensorFile>,
    pickle: &Pickle,
    keys: &Pickle,
    mut position: u64,
) -> Result<HashMap<String, Arc<Storage>>, TensorFileError> {
    let mut dtypes: HashMap<&str, Dtype> = HashMap::new();
    for node in pickle.nodes() {
        if let Value::Persistent(id) = pickle.get(node)
            && let Some(id) = storage_id(pickle, id)
        {
            dtypes.entry(id.key).or_insert(id.dtype.unwrap_or(Dtype::Uint8));
        }
    }
    let Value::List(list) = keys.get(keys.root()) else {
        return Err(file.malformed(Place::Byte(position), "the list of storages is missing"));
    };
    let mut storages = HashMap::new();
    for key in list.iter().map(|key| keys.str(*key).unwrap_or_default()) {
        let place = Place::Entry { name: format!("storage {key}"), offset: position };
        let Some(dtype) = dtypes.get(key) else {
            return Err(file.malformed(place, "a storage that no tensor uses"));
        };
        let mut count = [0; 8];
        file.read_at(&mut count, position, &place)?;
        let length = u64::try_from(i64::from_le_bytes(count)).ok().and_then(|count| dtype.bytes_of(count));
        let Some(length) = length else {
            return Err(file.malformed(place, format!("{} values of {dtype}", i64::from_le_bytes(count))));
        };
        let offset = position + 8;
        file.check_range(offset, length, &place)?;
        position = offset + length;
        let storage = Storage::new(file, place, Source::File { offset }, length);
        storages.insert(key.to_owned(), Arc::new(storage));
    }
    Ok(storages)
}

/// Whether the bytes that begin a file are those of the older format: a pickle of the magic number, at any protocol.
pub(crate) fn is_legacy(head: &[u8]) -> bool {
    match read(head, &allow(), &limits(Bytes::from_kib(64))) {
        Ok(pickle) => {
            matches!(pickle.get(pickle.root()), Value::BigInt(number) if number.to_i128() == Some(MAGIC))
        }
        Err(_) => false,
    }
}
