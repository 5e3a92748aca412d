//! Pickles that are written here, read back.

use std::borrow::Cow;

use lowtide_data::{
    BatchFile, DataError, Dtype, FieldValue, Packing, PtTensor, PtValue, Scores, Sums, open, rows, write_pickle,
    write_scores,
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
    let samples = BatchFile::open(&path).unwrap().read_all().unwrap();
    for (sample, length) in samples.iter().zip(lengths) {
        assert_eq!(sample.get("id"), Some(&FieldValue::Text(format!("s{length}"))));
        let expect = FieldValue::Array { dtype: Dtype::Uint8, shape: vec![length], bytes: bytes(length) };
        assert_eq!(sample.get("data"), Some(&expect));
    }
    assert_eq!(samples.len(), lengths.len());
}

#[test]
fn what_cannot_be_written_is_named_and_leaves_nothing() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("a.pkl");
    let check = |value: PtValue<'_>, expect: &str| {
        let value = PtValue::Dict(vec![(text("a"), PtValue::List(vec![value]))]);
        let error = write_pickle(&path, &value, Packing::Plain).unwrap_err();
        assert!(matches!(error, DataError::Unwritable { .. }));
        assert_eq!(error.to_string(), format!("{}: the value `a.0`: cannot be written: {expect}", path.display()));
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    };
    check(array(Dtype::Bfloat16, &[1], vec![0; 2]), "arrays of bfloat16 are not written here");
    check(array(Dtype::Float32, &[2], vec![0; 4]), "a tensor of shape [2] in float32 is given 4 bytes");
}

#[test]
fn scores_come_back_even_with_odd_ids() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("scores.csv");
    let rows = [("plain", 0.1_f32), ("with,comma", -3.5e-20), ("with \"quotes\"", f32::MAX)];
    write_scores(&path, rows.map(|(id, score)| (id.to_owned(), score))).unwrap();
    let scores = Scores::read(&path).unwrap();
    for (id, score) in rows {
        assert_eq!(scores.get(id).map(|there| there as f32), Some(score));
    }
    assert_eq!(scores.len(), 3);
}
