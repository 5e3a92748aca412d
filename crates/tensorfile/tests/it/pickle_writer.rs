//! Pickles that are written here, read back.

use std::borrow::Cow;

use lowtide_core::Bytes;
use lowtide_tensorfile::{
    Dtype, Loader, Packing, PtTensor, PtValue, Sums, TensorFileError, Tree, open, rows, write_pickle,
};
use tempfile::tempdir;

fn text(text: &str) -> PtValue<'_> {
    PtValue::Str(text.into())
}

fn array(dtype: Dtype, shape: &[u64], bytes: Vec<u8>) -> PtValue<'static> {
    PtValue::Tensor(PtTensor { dtype, shape: shape.to_vec(), bytes: Cow::Owned(bytes) })
}

#[test]
fn arrays_of_every_type_come_back() {
    let folder = tempdir().unwrap();
    let types = [
        (Dtype::Bool, "bool"),
        (Dtype::Int8, "int8"),
        (Dtype::Int16, "int16"),
        (Dtype::Int32, "int32"),
        (Dtype::Int64, "int64"),
        (Dtype::Uint8, "uint8"),
        (Dtype::Uint16, "uint16"),
        (Dtype::Uint32, "uint32"),
        (Dtype::Uint64, "uint64"),
        (Dtype::Float16, "float16"),
        (Dtype::Float32, "float32"),
        (Dtype::Float64, "float64"),
        (Dtype::Complex64, "complex64"),
        (Dtype::Complex128, "complex128"),
    ];
    let fields = types.iter().map(|(dtype, name)| {
        let bytes = (0..6 * dtype.bytes_of(1).unwrap()).map(|byte| (byte % 2) as u8).collect();
        (text(name), array(*dtype, &[2, 3], bytes))
    });
    let value = PtValue::Dict(fields.collect());
    for (name, packing) in [("a.pkl", Packing::Plain), ("a.pkl.gz", Packing::Gzip)] {
        let path = folder.path().join(name);
        write_pickle(&path, &value, packing).unwrap();
        let contents = open(&path).unwrap();
        let read = rows(&contents.tree, Sums::Skip).unwrap();
        let read: Vec<_> =
            read.iter().map(|row| (row.path.to_string(), row.dtype.to_string(), row.shape.clone())).collect();
        let expect: Vec<_> =
            types.iter().map(|(_, name)| ((*name).to_owned(), (*name).to_owned(), vec![2, 3])).collect();
        assert_eq!(read, expect);
    }
}

#[test]
fn values_of_large_and_small_arrays_come_back() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("list.pkl");
    let bytes = |length: u64| (0..length).map(|byte| (byte % 251) as u8).collect::<Vec<u8>>();
    let lengths = [0, 1, 300, 5000, 70_000];
    let items = lengths.map(|length| {
        PtValue::Dict(vec![
            (text("id"), PtValue::Str(format!("s{length}").into())),
            (text("data"), array(Dtype::Uint8, &[length], bytes(length))),
            (text("flag"), PtValue::Bool(length == 1)),
        ])
    });
    write_pickle(&path, &PtValue::List(items.into()), Packing::Plain).unwrap();
    let tree = open(&path).unwrap().tree;
    let mut loader = Loader::new(Bytes::ZERO);
    for (index, length) in lengths.into_iter().enumerate() {
        let id = tree.at(&format!("{index}.id")).and_then(Tree::str);
        assert_eq!(id, Some(&*format!("s{length}")));
        let array = tree.at(&format!("{index}.data")).and_then(Tree::tensor).unwrap();
        assert_eq!((array.dtype(), array.shape()), (Dtype::Uint8, &[length][..]));
        assert_eq!(loader.read(array).unwrap(), bytes(length));
    }
    assert_eq!(tree.children().count(), lengths.len());
}

#[test]
fn what_cannot_be_written_is_named_and_leaves_nothing() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("a.pkl");
    let check = |value: PtValue<'_>, expect: &str| {
        let value = PtValue::Dict(vec![(text("a"), PtValue::List(vec![value]))]);
        let error = write_pickle(&path, &value, Packing::Plain).unwrap_err();
        assert!(matches!(error, TensorFileError::Unwritable { .. }));
        assert_eq!(error.to_string(), format!("{}: the value `a.0`: cannot be written: {expect}", path.display()));
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    };
    check(array(Dtype::Bfloat16, &[1], vec![0; 2]), "arrays of bfloat16 are not written here");
    check(array(Dtype::Float32, &[2], vec![0; 4]), "a tensor of shape [2] in float32 is given 4 bytes");
}
