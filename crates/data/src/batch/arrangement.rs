//! How the samples of a file lie in its tree.

use std::borrow::Cow;
use std::path::Path;

use lowtide_tensorfile::{Format, Tree};

use crate::DataError;
use crate::samples::ID_NAMES;

/// Where the samples are.
#[derive(Debug)]
pub(crate) enum Arrangement {
    /// Element or row i of each of these children of the root is sample i's.
    Columns(Vec<usize>),
    /// Element i of the root is sample i.
    Items,
    /// Row i of the root is sample i.
    Rows,
    /// The root is the one sample.
    One,
}

impl Arrangement {
    /// Finds the samples, and how many there are.
    pub(crate) fn find(tree: &Tree, format: Format, path: &Path) -> Result<(Self, u64), DataError> {
        match tree {
            Tree::Tensor(tensor) => Ok(tensor.shape().first().map_or((Self::One, 1), |rows| (Self::Rows, *rows))),
            Tree::Tuple(items) | Tree::NamedTuple { items, .. } if items.len() > 1 && shared_rows(items).is_some() => {
                Ok((Self::Columns((0..items.len()).collect()), shared_rows(items).unwrap_or(0)))
            }
            Tree::List(items) | Tree::Tuple(items) => Ok((Self::Items, items.len() as u64)),
            Tree::Dict(_) | Tree::OrderedDict(_) if !is_one_sample(tree, format) => of_columns(tree, path),
            _ => Ok((Self::One, 1)),
        }
    }

    /// How many rows of tensors a sample is made of, at the most.
    pub(crate) fn columns(&self) -> u64 {
        match self {
            Self::Columns(columns) => columns.len() as u64,
            Self::Items | Self::Rows | Self::One => 1,
        }
    }

    /// The children of the root that belong to no sample.
    pub(crate) fn left_out<'t>(&self, tree: &'t Tree) -> Vec<Cow<'t, str>> {
        let Self::Columns(columns) = self else { return Vec::new() };
        let children = tree.children().enumerate();
        children.filter(|(index, _)| !columns.contains(index)).map(|(_, (name, _))| name).collect()
    }
}

/// A child of the root, by its index.
pub(crate) fn child(tree: &Tree, index: usize) -> Option<(Cow<'_, str>, &Tree)> {
    match tree {
        Tree::Dict(fields) | Tree::OrderedDict(fields) => fields.get(index).map(|(key, value)| (key.name(), value)),
        Tree::Tuple(items) | Tree::NamedTuple { items, .. } => {
            items.get(index).map(|item| (Cow::Owned(index.to_string()), item))
        }
        _ => None,
    }
}

/// The child of a dict or an object that holds its id or ids.
pub(crate) fn id_of(tree: &Tree) -> Option<&Tree> {
    tree.children().find(|(name, _)| ID_NAMES.contains(&&**name)).map(|(_, value)| value)
}

/// A dict with one id is one sample; so is every dict of `pickle.dump`, unless it has a list of ids.
fn is_one_sample(tree: &Tree, format: Format) -> bool {
    match id_of(tree) {
        Some(Tree::Str(_) | Tree::Int(_) | Tree::BigInt(_)) => true,
        Some(Tree::List(_)) => false,
        _ => matches!(format, Format::Pickle | Format::PickleGzip),
    }
}

fn of_columns(tree: &Tree, path: &Path) -> Result<(Arrangement, u64), DataError> {
    let lists: Vec<(Cow<'_, str>, usize)> =
        tree.children().filter_map(|(name, child)| Some((name, list(child)?.len()))).collect();
    let samples = match lists.first() {
        None => {
            let tensors = tree.children().map(|(_, child)| child).filter(|child| rows_of(child).is_some());
            shared_rows(tensors)
        }
        Some((_, length)) if lists.iter().all(|(_, other)| other == length) => Some(*length as u64),
        Some(_) => {
            let listed: Vec<String> = lists.iter().map(|(name, length)| format!("`{name:.80}` {length}")).collect();
            let problem = format!("lists of a batch differ in length: {}", some_of(&listed));
            return Err(DataError::Columns { file: path.to_owned(), problem });
        }
    };
    let Some(samples) = samples else { return Ok((Arrangement::One, 1)) };
    let is_column = |child: &Tree| list(child).is_some() || rows_of(child) == Some(samples);
    let columns = tree.children().enumerate().filter(|(_, (_, child))| is_column(child)).map(|(index, _)| index);
    Ok((Arrangement::Columns(columns.collect()), samples))
}

fn list(tree: &Tree) -> Option<&[Tree]> {
    match tree {
        Tree::List(items) => Some(items),
        _ => None,
    }
}

fn rows_of(tree: &Tree) -> Option<u64> {
    tree.tensor().and_then(|tensor| tensor.shape().first().copied())
}

/// The first dimension, where all are tensors that have the same.
fn shared_rows<'t>(trees: impl IntoIterator<Item = &'t Tree>) -> Option<u64> {
    let mut rows = trees.into_iter().map(rows_of);
    let first = rows.next()??;
    rows.all(|other| other == Some(first)).then_some(first)
}

fn some_of(texts: &[String]) -> String {
    const MOST: usize = 12;
    let more = if texts.len() > MOST { format!(" and {} more", texts.len() - MOST) } else { String::new() };
    format!("{}{more}", texts[..texts.len().min(MOST)].join(", "))
}
