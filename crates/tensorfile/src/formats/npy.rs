//! Files of `numpy.save` and archives of them.

use std::io::{self, BufReader, Read};
use std::sync::Arc;

use crc32fast::hash;
use flate2::read::DeflateDecoder;

use super::objects::NumpyType;
use super::pickle;
use super::zip::{Entry, Method};
use crate::error::{Place, TensorFileError};
use crate::file::TensorFile;
use crate::tensors::{ByteOrder, Checksum, Source, Storage, Tensor, column_strides};
use crate::tree::{Fields, Tree};

pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";
/// Headers are some hundred bytes; numpy itself reads none that are longer.
const LONGEST_HEADER: usize = 10_000;

/// Reads a `.npy` file.
pub(crate) fn read_npy(file: &Arc<TensorFile>) -> Result<Tree, TensorFileError> {
    let array = Array::read(file, file.range(0, file.len()), &Place::Whole)?;
    if array.kind == NumpyType::Object {
        return pickle::read_plain(file, array.start);
    }
    let length = file.len().saturating_sub(array.start);
    let source = Source::File { offset: array.start };
    let storage = Storage::new(file, Place::Byte(array.start), source, length);
    array.tensor(file, storage)
}

/// Reads an `.npz` archive: a dict of arrays by name.
pub(crate) fn read_npz(file: &Arc<TensorFile>, entries: &[Entry]) -> Result<Tree, TensorFileError> {
    let mut fields = Fields::with_capacity(entries.len());
    for entry in entries {
        let name = entry.name.strip_suffix(".npy").unwrap_or(&entry.name);
        fields.push((Tree::Str(name.into()), read_entry(file, entry)?));
    }
    Ok(Tree::Dict(fields))
}

fn read_entry(file: &Arc<TensorFile>, entry: &Entry) -> Result<Tree, TensorFileError> {
    let place = entry.place();
    let range = BufReader::new(file.range(entry.offset, entry.packed));
    let array = match entry.method {
        Method::Stored => Array::read(file, range, &place)?,
        Method::Deflated => Array::read(file, DeflateDecoder::new(range), &place)?,
    };
    if array.kind == NumpyType::Object {
        if entry.method == Method::Stored {
            return pickle::read_plain(file, entry.offset + array.start);
        }
        return Err(file.unsupported(place, "a compressed array of Python's objects", Some("save it uncompressed")));
    }
    let source = match entry.method {
        Method::Stored => Source::File { offset: entry.offset + array.start },
        Method::Deflated => Source::Deflated { offset: entry.offset, packed: entry.packed, before: array.start },
    };
    let checksum = Some(Checksum { before: array.header_crc, expect: entry.crc });
    let length = entry.length.saturating_sub(array.start);
    let storage = Storage { checksum, ..Storage::new(file, place, source, length) };
    array.tensor(file, storage)
}

/// What the header of an array says.
struct Array {
    kind: NumpyType,
    columns_first: bool,
    shape: Vec<u64>,
    /// Where the values begin.
    start: u64,
    /// The checksum of everything before them.
    header_crc: u32,
}

impl Array {
    fn read(file: &TensorFile, mut stream: impl Read, place: &Place) -> Result<Self, TensorFileError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::UnexpectedEof => file.malformed(place.clone(), "it ends within the header of a numpy array"),
            _ => TensorFileError::Io { file: file.path().to_owned(), place: place.clone(), source },
        };
        let mut head = vec![0; 10];
        stream.read_exact(&mut head).map_err(failed)?;
        if !head.starts_with(MAGIC) {
            return Err(file.malformed(place.clone(), "the magic bytes of a numpy array are missing"));
        }
        let mut length = usize::from(u16::from_le_bytes([head[8], head[9]]));
        match (head[6], head[7]) {
            (1, 0) => {}
            (2 | 3, 0) => {
                let mut more = [0; 2];
                stream.read_exact(&mut more).map_err(failed)?;
                head.extend_from_slice(&more);
                length |= usize::from(u16::from_le_bytes(more)) << 16;
            }
            (version, minor) => {
                let what = format!("version {version}.{minor} of numpy's format");
                return Err(file.unsupported(place.clone(), what, None));
            }
        }
        if length > LONGEST_HEADER {
            return Err(file.malformed(place.clone(), format!("a header of {length} bytes")));
        }
        let before = head.len();
        head.resize(before + length, 0);
        stream.read_exact(&mut head[before..]).map_err(failed)?;
        let text = String::from_utf8_lossy(&head[before..]);
        let header = Header::parse(&text);
        let Some(header) = header else {
            let text = text.trim_end().escape_debug().to_string().replace("\\'", "'");
            let problem = format!("the header `{text}` is not understood");
            return Err(file.malformed(place.clone(), problem));
        };
        Ok(Self {
            kind: NumpyType::from_name(&header.kind, ByteOrder::Little),
            columns_first: header.columns_first,
            shape: header.shape,
            start: head.len() as u64,
            header_crc: hash(&head),
        })
    }

    fn tensor(self, file: &TensorFile, storage: Storage) -> Result<Tree, TensorFileError> {
        let place = storage.place.clone();
        let (dtype, order) = match self.kind {
            NumpyType::Number(dtype, order) => (dtype, order),
            kind => return Err(file.unsupported(place, format!("a numpy array of {kind}"), None)),
        };
        let storage = Arc::new(Storage { order, ..storage });
        let tensor = if self.columns_first {
            let stride = column_strides(&self.shape);
            Tensor::new(storage, dtype, 0, self.shape, stride)
        } else {
            Tensor::contiguous(storage, dtype, self.shape)
        };
        Ok(Tree::Tensor(Arc::new(tensor.map_err(|problem| file.malformed(place, problem))?)))
    }
}

/// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
#[derive(Debug, PartialEq, Eq)]
struct Header {
    kind: String,
    columns_first: bool,
    shape: Vec<u64>,
}

impl Header {
    /// Reads what numpy writes, and nothing that its own reader refuses.
    fn parse(text: &str) -> Option<Self> {
        let mut rest = start(text).strip_prefix('{')?;
        rest = start(rest);
        let (mut kind, mut columns_first, mut shape) = (None, None, None);
        while !rest.starts_with('}') {
            let (key, after) = quoted(rest)?;
            let value = start(start(after).strip_prefix(':')?);
            let after = match key {
                "descr" if value.starts_with('[') => {
                    // A structured type, which has no place in a tensor.
                    kind = Some("structured".to_owned());
                    after_bracket(value)?
                }
                "descr" => {
                    let (name, after) = quoted(value)?;
                    kind = Some(name.to_owned());
                    after
                }
                "fortran_order" => {
                    let after = value.strip_prefix("True").or_else(|| value.strip_prefix("False"))?;
                    columns_first = Some(value.starts_with("True"));
                    after
                }
                "shape" => {
                    let (inner, after) = value.strip_prefix('(')?.split_once(')')?;
                    shape = Some(sizes(inner)?);
                    after
                }
                _ => return None,
            };
            rest = start(after);
            if !rest.starts_with('}') {
                rest = start(rest.strip_prefix(',')?);
            }
        }
        if !is_blank(&rest[1..]) {
            return None;
        }
        Some(Self { kind: kind?, columns_first: columns_first?, shape: shape? })
    }
}

/// The text without the blanks that it begins with; those of Python are fewer than those of Unicode.
fn start(text: &str) -> &str {
    text.trim_ascii_start()
}

/// Whether there is nothing but blanks and a comment.
fn is_blank(text: &str) -> bool {
    let text = start(text);
    match text.strip_prefix('#') {
        Some(comment) => comment.split_once('\n').is_none_or(|(_, behind)| is_blank(behind)),
        None => text.is_empty(),
    }
}

/// What stands between the parentheses of a tuple of sizes: `3, 4`, or `3,` for one of them.
fn sizes(inner: &str) -> Option<Vec<u64>> {
    let inner = inner.trim_ascii();
    if inner.is_empty() {
        return Some(Vec::new());
    }
    let listed = inner.strip_suffix(',').unwrap_or(inner);
    let sizes: Option<Vec<u64>> = listed.split(',').map(|size| size_of_text(size.trim_ascii())).collect();
    sizes.filter(|sizes| sizes.len() > 1 || inner.ends_with(','))
}

fn size_of_text(text: &str) -> Option<u64> {
    // Python 2 wrote a letter behind long integers.
    let digits = text.strip_suffix('L').unwrap_or(text);
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    is_plain.then(|| digits.parse().ok()).flatten()
}

/// A string in quotes without escapes, and what follows it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
    text[1..].split_once(quote)
}

/// What follows a bracket and all it holds.
fn after_bracket(text: &str) -> Option<&str> {
    let mut depth = 0_usize;
    for (at, character) in text.char_indices() {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return text.get(at + 1..);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let header = |text| Header::parse(text);
        let expect = Header { kind: "<f4".to_owned(), columns_first: false, shape: vec![3, 4] };
        assert_eq!(header("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n"), Some(expect));
        let expect = Header { kind: "|b1".to_owned(), columns_first: true, shape: vec![] };
        assert_eq!(header("{'shape': (), 'fortran_order': True, 'descr': '|b1'}"), Some(expect));
        let expect = Header { kind: "structured".to_owned(), columns_first: false, shape: vec![5] };
        assert_eq!(
            header("{'descr': [('a', '<i4'), ('b', [('c', 'f4')])], 'fortran_order': False, 'shape': (5L,)}"),
            Some(expect)
        );
        for text in ["", "{", "{}", "{'descr': '<f4'}", "{'shape': (-1,), }", "{'descr': [", "{'x': 1}", "{é"] {
            assert_eq!(header(text), None, "{text}");
        }
    }

    /// Each was given to numpy 2.4.
    #[test]
    fn what_numpy_refuses_is_refused() {
        let good = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }";
        for blank in ["", "   ", "\n", "  # a comment\n", "\r\n", "\x0c\t\n"] {
            assert!(Header::parse(&format!("{blank}{good}{blank}")).is_some() || blank.contains('#'), "{blank:?}");
            assert!(Header::parse(&format!("{good}{blank}")).is_some(), "{blank:?}");
        }
        for junk in ["junk\n", " 1\n", good, ",", "\0\0", "\u{e9}", "\u{a0}\n", "\x0b", ";", "\nx\n", "}"] {
            assert_eq!(Header::parse(&format!("{good}{junk}")), None, "{junk:?}");
        }
        for shape in ["(12)", "(3,,4)", "(,3,4)", "(03, 4)", "(,)", "(3LL, 4)", "[3, 4]", "(3.0, 4)", "(+3, 4)", "12"] {
            let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
            assert_eq!(Header::parse(&text), None, "{shape}");
        }
        assert_eq!(Header::parse("{'descr': '<f4' 'fortran_order': False, 'shape': (3, 4), }"), None);
        assert_eq!(Header::parse("{'descr': '<f4',, 'fortran_order': False, 'shape': (3, 4), }"), None);
    }
}
