//! The parts of a tree that become fields of a sample.

use std::borrow::Cow;
use std::sync::Arc;

use lowtide_tensorfile::{Dtype, Tensor, Tree};

use crate::shard::FieldKind;

/// Lists of numbers within lists are one array up to so many dimensions.
const MOST_LISTS: usize = 8;

/// What a field is called that stands under no key.
pub(crate) const NAMELESS: &str = "value";

/// A value that becomes one field.
pub(crate) enum Leaf<'t> {
    Text(Cow<'t, str>),
    /// Values that came with the pickle.
    Array {
        dtype: Dtype,
        shape: Vec<u64>,
        bytes: Vec<u8>,
    },
    /// Values that are still in the file.
    View(Cow<'t, Tensor>),
}

impl Leaf<'_> {
    pub(crate) fn kind(&self) -> FieldKind {
        match self {
            Self::Text(_) => FieldKind::Text,
            Self::Array { dtype, .. } => FieldKind::Array(*dtype),
            Self::View(tensor) => FieldKind::Array(tensor.dtype()),
        }
    }

    pub(crate) fn shape(&self) -> &[u64] {
        match self {
            Self::Text(_) => &[],
            Self::Array { shape, .. } => shape,
            Self::View(tensor) => tensor.shape(),
        }
    }

    /// Bytes of the values once they are read.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Array { bytes, .. } => bytes.len() as u64,
            Self::View(tensor) => tensor.bytes(),
        }
    }
}

/// Hands every leaf of a tree to `take`, each with its name; `name` is that of the tree.
///
/// `None`, empty lists and empty dicts have none.
pub(crate) fn each_leaf<'t, E>(
    tree: &'t Tree,
    name: &mut String,
    take: &mut impl FnMut(&str, Leaf<'t>) -> Result<(), E>,
) -> Result<(), E> {
    if let Some(leaf) = leaf(tree) {
        return take(if name.is_empty() { NAMELESS } else { name }, leaf);
    }
    for (key, child) in tree.children() {
        let length = name.len();
        if length > 0 {
            name.push('.');
        }
        name.push_str(&key);
        each_leaf(child, name, take)?;
        name.truncate(length);
    }
    Ok(())
}

/// The leaf that a value is, unless it is a container of others, or nothing.
fn leaf(tree: &Tree) -> Option<Leaf<'_>> {
    let one = |dtype, bytes: &[u8]| Some(Leaf::Array { dtype, shape: Vec::new(), bytes: bytes.to_vec() });
    match tree {
        Tree::Bool(value) => one(Dtype::Bool, &[u8::from(*value)]),
        Tree::Int(value) => one(Dtype::Int64, &value.to_ne_bytes()),
        Tree::Float(value) => one(Dtype::Float64, &value.to_ne_bytes()),
        Tree::Complex { real, imaginary } => {
            one(Dtype::Complex128, &[real.to_ne_bytes(), imaginary.to_ne_bytes()].concat())
        }
        Tree::Str(text) | Tree::BigInt(text) | Tree::Device(text) | Tree::Class(text) => {
            Some(Leaf::Text(Cow::Borrowed(text)))
        }
        Tree::Dtype(dtype) => Some(Leaf::Text(Cow::Borrowed(dtype.name()))),
        Tree::Bytes(bytes) => {
            Some(Leaf::Array { dtype: Dtype::Uint8, shape: vec![bytes.len() as u64], bytes: bytes.to_vec() })
        }
        Tree::Blob(blob) => Some(Leaf::View(Cow::Owned(Tensor::of_bytes(Arc::clone(blob)).ok()?))),
        Tree::Size(sizes) => {
            let bytes = sizes.iter().flat_map(|size| size.to_ne_bytes()).collect();
            Some(Leaf::Array { dtype: Dtype::Int64, shape: vec![sizes.len() as u64], bytes })
        }
        Tree::Tensor(tensor) => Some(Leaf::View(Cow::Borrowed(tensor))),
        Tree::List(_) | Tree::Tuple(_) => numbers(tree),
        _ => None,
    }
}

/// Lists of numbers, or of such lists of one length, as an array.
fn numbers(tree: &Tree) -> Option<Leaf<'static>> {
    let mut shape = Vec::new();
    let mut inner = tree;
    while let Tree::List(items) | Tree::Tuple(items) = inner {
        shape.push(items.len());
        inner = items.first().filter(|_| shape.len() <= MOST_LISTS)?;
    }
    let mut found = Vec::new();
    gather(tree, &shape, &mut found)?;
    let (dtype, bytes) = if found.iter().all(|number| matches!(number, Tree::Bool(_))) {
        (Dtype::Bool, found.iter().map(|number| u8::from(matches!(number, Tree::Bool(true)))).collect())
    } else if found.iter().all(|number| matches!(number, Tree::Bool(_) | Tree::Int(_))) {
        (Dtype::Int64, found.iter().flat_map(|number| whole(number).to_ne_bytes()).collect())
    } else {
        (Dtype::Float64, found.iter().flat_map(|number| real(number).to_ne_bytes()).collect())
    };
    Some(Leaf::Array { dtype, shape: shape.iter().map(|size| *size as u64).collect(), bytes })
}

fn gather<'t>(tree: &'t Tree, shape: &[usize], found: &mut Vec<&'t Tree>) -> Option<()> {
    match (tree, shape.split_first()) {
        (Tree::Bool(_) | Tree::Int(_) | Tree::Float(_), None) => found.push(tree),
        (Tree::List(items) | Tree::Tuple(items), Some((size, rest))) if items.len() == *size => {
            items.iter().try_for_each(|item| gather(item, rest, found))?;
        }
        _ => return None,
    }
    Some(())
}

fn whole(number: &Tree) -> i64 {
    match number {
        Tree::Int(value) => *value,
        Tree::Bool(value) => i64::from(*value),
        _ => 0,
    }
}

fn real(number: &Tree) -> f64 {
    match number {
        Tree::Float(value) => *value,
        other => whole(other) as f64,
    }
}
