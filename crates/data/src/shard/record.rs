//! One record: the tensors of a sample.

use std::borrow::Cow;

use super::FieldKind;
use super::format::{ALIGNMENT, aligned, take};

/// A tensor of a sample: a name, a type, a shape and its bytes, little-endian and in row-major order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor<'a> {
    /// The name, which no other tensor of the sample has.
    pub name: &'a str,
    /// What its elements are.
    pub kind: FieldKind,
    /// The size of each dimension; none for a single element.
    pub shape: Cow<'a, [u64]>,
    /// The elements.
    pub bytes: &'a [u8],
}

/// A record that was read: the tensors of one sample, as views of the bytes that were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    tensors: Vec<Tensor<'a>>,
}

impl<'a> Record<'a> {
    /// The tensors, in the order in which they were written.
    pub fn tensors(&self) -> &[Tensor<'a>] {
        &self.tensors
    }

    /// The tensor of that name.
    pub fn get(&self, name: &str) -> Option<&Tensor<'a>> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    /// Reads the bytes of a record, given the names of the shard; the error says what is wrong with them. Never panics.
    ///
    /// # Errors
    ///
    /// Where the bytes are no record.
    pub fn parse(bytes: &'a [u8], names: &'a [String]) -> Result<Self, &'static str> {
        Self::parse_apart(bytes, bytes, names)
    }

    /// The same for a record whose head is elsewhere.
    pub(crate) fn parse_apart(head: &'a [u8], bytes: &'a [u8], names: &'a [String]) -> Result<Self, &'static str> {
        let tensors = RecordTensors::of(head, bytes, names).collect::<Result<Vec<_>, _>>()?;
        let is_text = |tensor: &Tensor<'_>| tensor.shape.len() == 1 && str::from_utf8(tensor.bytes).is_ok();
        match tensors.iter().find(|tensor| tensor.kind == FieldKind::Text && !is_text(tensor)) {
            None => Ok(Self { tensors }),
            Some(_) => Err("a text is not UTF-8"),
        }
    }
}

/// The tensors of a record, one after the other; ends at the first that is none.
pub(crate) struct RecordTensors<'a> {
    left: u32,
    head: &'a [u8],
    record: &'a [u8],
    names: &'a [String],
}

impl<'a> RecordTensors<'a> {
    /// Of a record and its head, which are the same bytes where it begins with that.
    pub(crate) fn of(mut head: &'a [u8], record: &'a [u8], names: &'a [String]) -> Self {
        // Of a record without even a number of tensors, the first tensor is what is missing.
        let left = take(&mut head).map_or(1, u32::from_le_bytes);
        Self { left, head, record, names }
    }
}

impl<'a> Iterator for RecordTensors<'a> {
    type Item = Result<Tensor<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let tensor = parse_tensor(&mut self.head, self.record, self.names);
        if tensor.is_err() {
            self.left = 0;
        }
        Some(tensor)
    }
}

fn parse_tensor<'a>(head: &mut &[u8], record: &'a [u8], names: &'a [String]) -> Result<Tensor<'a>, &'static str> {
    const SHORT: &str = "the head of a record is too short";
    let name = u32::from_le_bytes(take(head).ok_or(SHORT)?);
    let [kind, rank] = take(head).ok_or(SHORT)?;
    let start = u64::from_le_bytes(take(head).ok_or(SHORT)?);
    let shape: Option<Vec<u64>> = (0..rank).map(|_| take(head).map(u64::from_le_bytes)).collect();
    let shape = shape.ok_or(SHORT)?;
    let name = names.get(name as usize).ok_or("a tensor has no name")?;
    let kind = FieldKind::from_number(kind).ok_or("a tensor has an unknown type")?;
    let end = kind.bytes_of(&shape).and_then(|bytes| start.checked_add(bytes)).ok_or("a tensor is too large")?;
    if !start.is_multiple_of(ALIGNMENT) {
        return Err("a tensor is not aligned");
    }
    let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    let bytes = range.and_then(|(start, end)| record.get(start..end)).ok_or("a tensor reaches out of its record")?;
    Ok(Tensor { name, kind, shape: Cow::Owned(shape), bytes })
}

/// The next place at which a record or a tensor may begin.
pub(crate) fn align(bytes: u64) -> u64 {
    aligned(bytes).expect("a sample in memory is smaller than 2^64")
}

/// Where the tensors of a record begin, and how long it is, given the bytes and dimensions of each tensor.
#[derive(Debug)]
pub(crate) struct Places {
    next: u64,
    end: u64,
}

impl Places {
    pub(crate) fn new(dimensions: impl Iterator<Item = usize>) -> Self {
        let head = head_bytes(dimensions);
        Self { next: align(head), end: head }
    }

    /// The same for a record whose head is elsewhere.
    fn apart() -> Self {
        Self { next: 0, end: 0 }
    }

    /// Where the next tensor begins.
    pub(crate) fn add(&mut self, bytes: u64) -> u64 {
        let start = self.next;
        self.end = start.saturating_add(bytes);
        self.next = align(self.end);
        start
    }

    /// The length of the record.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }
}

fn head_bytes(dimensions: impl Iterator<Item = usize>) -> u64 {
    4 + dimensions.map(|dimensions| HEAD + 8 * dimensions).sum::<usize>() as u64
}

/// Bytes of a tensor's head besides its shape.
const HEAD: usize = 14;

/// What the head of a record says about a tensor.
pub(crate) struct Head<'a> {
    pub(crate) name: u32,
    /// That of its [kind](FieldKind::number).
    pub(crate) kind: u8,
    pub(crate) shape: &'a [u64],
    pub(crate) start: u64,
}

/// Writes the head of a record to its beginning.
pub(crate) fn write_heads<'a>(record: &mut [u8], heads: impl ExactSizeIterator<Item = Head<'a>>) {
    let (count, mut rest) = record.split_at_mut(4);
    count.copy_from_slice(&(heads.len() as u32).to_le_bytes());
    for head in heads {
        let (fixed, behind) = rest.split_at_mut(HEAD);
        fixed[..4].copy_from_slice(&head.name.to_le_bytes());
        fixed[4] = head.kind;
        fixed[5] = head.shape.len() as u8;
        fixed[6..].copy_from_slice(&head.start.to_le_bytes());
        let (shape, behind) = behind.split_at_mut(8 * head.shape.len());
        for (into, size) in shape.chunks_exact_mut(8).zip(head.shape) {
            into.copy_from_slice(&size.to_le_bytes());
        }
        rest = behind;
    }
}

/// Writes a record over `record`; `name_of` gives the number of each name.
pub(crate) fn encode(tensors: &[Tensor<'_>], name_of: impl FnMut(&str) -> u32, record: &mut Vec<u8>) {
    let mut places = Places::new(tensors.iter().map(|tensor| tensor.shape.len()));
    let starts = starts_of(tensors, &mut places);
    record.clear();
    record.resize(places.end() as usize, 0);
    write_heads(record, heads_of(tensors, &starts, name_of));
    write_tensors(tensors, &starts, record);
}

/// The length of a record of these tensors whose head is elsewhere.
pub(crate) fn bytes_apart(tensors: &[Tensor<'_>]) -> u64 {
    let mut places = Places::apart();
    starts_of(tensors, &mut places);
    places.end()
}

/// Writes a record over `record`, and its head over `head`.
pub(crate) fn encode_apart(
    tensors: &[Tensor<'_>],
    name_of: impl FnMut(&str) -> u32,
    head: &mut Vec<u8>,
    record: &mut Vec<u8>,
) {
    let mut places = Places::apart();
    let starts = starts_of(tensors, &mut places);
    head.clear();
    head.resize(head_bytes(tensors.iter().map(|tensor| tensor.shape.len())) as usize, 0);
    write_heads(head, heads_of(tensors, &starts, name_of));
    record.clear();
    record.resize(places.end() as usize, 0);
    write_tensors(tensors, &starts, record);
}

fn starts_of(tensors: &[Tensor<'_>], places: &mut Places) -> Vec<u64> {
    tensors.iter().map(|tensor| places.add(tensor.bytes.len() as u64)).collect()
}

fn heads_of<'a>(
    tensors: &'a [Tensor<'_>],
    starts: &'a [u64],
    mut name_of: impl FnMut(&str) -> u32,
) -> impl ExactSizeIterator<Item = Head<'a>> {
    tensors.iter().zip(starts).map(move |(tensor, start)| {
        let kind = tensor.kind.number().expect("what a shard does not hold was refused before");
        Head { name: name_of(tensor.name), kind, shape: &tensor.shape, start: *start }
    })
}

fn write_tensors(tensors: &[Tensor<'_>], starts: &[u64], record: &mut [u8]) {
    for (tensor, start) in tensors.iter().zip(starts) {
        let start = *start as usize;
        record[start..start + tensor.bytes.len()].copy_from_slice(tensor.bytes);
    }
}
