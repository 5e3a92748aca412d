//! Reads each file and writes what is in it into a folder: what `tests/written_files.py` holds against torch.

use std::borrow::Cow;
use std::error::Error;
use std::path::Path;

use lowtide_core::Bytes;
use lowtide_tensorfile::{Fields, Loader, PtTensor, PtValue, TensorFileError, Tree, open, write_pt};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("usage: rewrite_pt FOLDER FILE...")?;
    for path in arguments {
        let path = Path::new(&path);
        let contents = open(path)?;
        let value = value(&contents.tree, &mut Loader::new(Bytes::from_mib(64)))?;
        write_pt(&Path::new(&folder).join(path.file_name().ok_or("a file has a name")?), &value)?;
    }
    Ok(())
}

fn value<'a>(tree: &Tree, loader: &mut Loader) -> Result<PtValue<'a>, TensorFileError> {
    Ok(match tree {
        Tree::None => PtValue::None,
        Tree::Bool(value) => PtValue::Bool(*value),
        Tree::Int(value) => PtValue::Int(*value),
        Tree::Float(value) => PtValue::Float(*value),
        Tree::List(items) => PtValue::List(values(items, loader)?),
        Tree::Tuple(items) => PtValue::Tuple(values(items, loader)?),
        Tree::Dict(fields) => PtValue::Dict(pairs(fields, loader)?),
        Tree::Tensor(tensor) => PtValue::Tensor(PtTensor {
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
            bytes: Cow::Owned(loader.read(tensor)?),
        }),
        other => PtValue::Str(Cow::Owned(other.name().into_owned())),
    })
}

fn values<'a>(items: &[Tree], loader: &mut Loader) -> Result<Vec<PtValue<'a>>, TensorFileError> {
    items.iter().map(|item| value(item, loader)).collect()
}

fn pairs<'a>(fields: &Fields, loader: &mut Loader) -> Result<Vec<(PtValue<'a>, PtValue<'a>)>, TensorFileError> {
    fields.iter().map(|(key, item)| Ok((value(key, loader)?, value(item, loader)?))).collect()
}
