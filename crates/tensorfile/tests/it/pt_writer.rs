//! What is written is read back, and torch's own layout is kept.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use lowtide_core::Bytes;
use lowtide_tensorfile::{Dtype, Format, Loader, PtTensor, PtValue, TensorFileError, Tree, open, write_pt};
use proptest::prelude::*;

const DTYPES: [Dtype; 12] = [
    Dtype::Uint8,
    Dtype::Int8,
    Dtype::Int16,
    Dtype::Int32,
    Dtype::Int64,
    Dtype::Bool,
    Dtype::Float16,
    Dtype::Bfloat16,
    Dtype::Float32,
    Dtype::Float64,
    Dtype::Complex64,
    Dtype::Complex128,
];

fn text(text: &str) -> PtValue<'_> {
    PtValue::Str(text.into())
}

fn tensor(dtype: Dtype, shape: &[u64], bytes: &[u8]) -> PtValue<'static> {
    PtValue::Tensor(PtTensor { dtype, shape: shape.to_vec(), bytes: bytes.to_vec().into() })
}

/// What was read, as what could be written.
fn read_back(tree: &Tree, loader: &mut Loader) -> PtValue<'static> {
    let mut all = |items: &[Tree]| items.iter().map(|item| read_back(item, loader)).collect();
    match tree {
        Tree::None => PtValue::None,
        Tree::Bool(value) => PtValue::Bool(*value),
        Tree::Int(value) => PtValue::Int(*value),
        Tree::Float(value) => PtValue::Float(*value),
        Tree::Str(text) => PtValue::Str(Cow::Owned(text.to_string())),
        Tree::List(items) => PtValue::List(all(items)),
        Tree::Tuple(items) => PtValue::Tuple(all(items)),
        Tree::Dict(fields) => PtValue::Dict(
            fields.iter().map(|(key, value)| (read_back(key, loader), read_back(value, loader))).collect(),
        ),
        Tree::Tensor(found) => {
            assert!(found.is_contiguous() && found.storage().offset().is_some_and(|offset| offset % 64 == 0));
            tensor(found.dtype(), found.shape(), &loader.read(found).expect("values"))
        }
        other => panic!("{other:?} was not written"),
    }
}

#[track_caller]
fn check_same(value: &PtValue<'_>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("written.pt");
    write_pt(&path, value).unwrap_or_else(|error| panic!("{error}"));
    let contents = open(&path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(contents.format, Format::Torch);
    let found = read_back(&contents.tree, &mut Loader::new(Bytes::ZERO));
    assert_eq!(format!("{found:?}"), format!("{value:?}"));
    let names: Vec<_> =
        fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("one").path()).collect();
    assert_eq!(names, [path], "nothing else is left");
}

#[test]
fn every_type_and_some_shapes() {
    let fields = DTYPES.iter().map(|dtype| {
        let bytes: Vec<u8> = (0..6 * dtype.size() as u8).collect();
        let bytes = if *dtype == Dtype::Bool { vec![1, 0, 0, 1, 1, 0] } else { bytes };
        let size = dtype.size() as usize;
        let shapes = PtValue::List(vec![
            tensor(*dtype, &[2, 3], &bytes),
            tensor(*dtype, &[], &bytes[..size]),
            tensor(*dtype, &[0, 4], &[]),
            tensor(*dtype, &[1, 1, 1, 6], &bytes),
        ]);
        (text(dtype.name()), shapes)
    });
    check_same(&PtValue::Dict(fields.collect()));
}

#[test]
fn numbers_at_the_edges() {
    let edges = [0, 1, -1, 255, 256, 65_535, 65_536, i64::from(i32::MAX), i64::from(i32::MIN), 1 << 31, i64::MAX];
    let ints = edges.iter().flat_map(|edge| [PtValue::Int(*edge), PtValue::Int(edge.wrapping_neg())]);
    check_same(&PtValue::List(ints.chain([PtValue::Int(i64::MIN)]).collect()));
    let floats = [0.0, -0.0, 1.5, f64::MAX, f64::MIN_POSITIVE, f64::INFINITY, f64::NAN];
    check_same(&PtValue::Tuple(floats.map(PtValue::Float).to_vec()));
}

#[test]
fn more_than_the_small_counts_of_zip_and_pickle() {
    let many = (0..70_000).map(|index| tensor(Dtype::Uint8, &[1], &[index as u8]));
    check_same(&PtValue::List(many.collect()));
}

fn any_value() -> impl Strategy<Value = PtValue<'static>> {
    let tensors =
        (prop::sample::select(&DTYPES[..]), prop::collection::vec(0_u64..4, 0..4)).prop_map(|(dtype, shape)| {
            let bytes = dtype.size() * shape.iter().product::<u64>();
            let limit = if dtype == Dtype::Bool { 2 } else { 251 };
            tensor(dtype, &shape, &(0..bytes).map(|byte| (byte % limit) as u8).collect::<Vec<_>>())
        });
    let plain = prop_oneof![
        Just(PtValue::None),
        any::<bool>().prop_map(PtValue::Bool),
        any::<i64>().prop_map(PtValue::Int),
        any::<f64>().prop_map(PtValue::Float),
        any::<String>().prop_map(|text| PtValue::Str(text.into())),
        tensors,
    ];
    plain.prop_recursive(4, 40, 6, |inner| {
        let items = prop::collection::vec(inner.clone(), 0..6);
        let fields = prop::collection::btree_map(any::<String>(), inner, 0..6);
        prop_oneof![
            items.clone().prop_map(PtValue::List),
            items.prop_map(PtValue::Tuple),
            fields.prop_map(|fields| {
                PtValue::Dict(fields.into_iter().map(|(key, value)| (PtValue::Str(key.into()), value)).collect())
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_value_comes_back(value in any_value()) {
        check_same(&value);
    }
}

/// Entries of an archive as they stand in its directory, with the bytes before each.
fn layout(bytes: &[u8]) -> Vec<(String, usize)> {
    let mut entries = Vec::new();
    let starts = (0..bytes.len() - 4).filter(|at| bytes[*at..].starts_with(b"PK\x03\x04"));
    for at in starts {
        let number = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let (name, extra) = (number(at + 26), number(at + 28));
        let text = String::from_utf8_lossy(&bytes[at + 30..at + 30 + name]).into_owned();
        entries.push((text.split_once('/').expect("a root").1.to_owned(), at + 30 + name + extra));
    }
    entries
}

#[test]
fn the_layout_is_torchs_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("written.pt");
    write_pt(&path, &PtValue::List(vec![tensor(Dtype::Uint8, &[2], &[1, 2]), PtValue::None])).expect("written");
    let ours = layout(&fs::read(path).expect("bytes"));
    let theirs =
        layout(&fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/made/nested.pt")).expect("bytes"));
    let names = |layout: &[(String, usize)]| {
        let names = layout.iter().map(|(name, _)| name.clone());
        names.filter(|name| !name.starts_with("data/") && name != ".data/serialization_id").collect::<Vec<_>>()
    };
    assert_eq!(names(&ours), names(&theirs));
    assert!(ours.iter().chain(&theirs).all(|(_, start)| start % 64 == 0), "{ours:?} {theirs:?}");
}

/// An error's text, with the file by its name alone.
fn text_of(error: &TensorFileError, path: &Path) -> String {
    error.to_string().replace(&format!("{}/", path.parent().expect("a folder").display()), "")
}

#[test]
fn what_cannot_be_written_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("refused.pt");
    let check = |value: PtValue<'_>, expect: &str| {
        let error = write_pt(&path, &value).expect_err("it cannot be written");
        assert_eq!(text_of(&error, &path), expect);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    };
    let inner = PtValue::Dict(vec![(text("x"), tensor(Dtype::Float32, &[2, 2], &[0; 15]))]);
    check(
        PtValue::Dict(vec![(text("graphs"), PtValue::List(vec![PtValue::None, inner]))]),
        "refused.pt: the value `graphs.1.x`: cannot be written: a tensor of shape [2, 2] in float32 is given 15 bytes",
    );
    check(
        tensor(Dtype::Uint64, &[1], &[0; 8]),
        "refused.pt: the root value: cannot be written: tensors of uint64 are not written here",
    );
    check(
        PtValue::Dict(vec![(PtValue::List(vec![]), PtValue::None)]),
        "refused.pt: the root value: cannot be written: a key that Python cannot hash",
    );
}

#[test]
fn a_file_that_cannot_take_its_place_is_an_error_and_the_old_one_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("taken.pt");
    fs::create_dir(&path).expect("a folder of that name");
    fs::write(path.join("old"), "old").expect("a file in it");
    let error = write_pt(&path, &PtValue::None).expect_err("a folder is there");
    assert_eq!(text_of(&error, &path), "taken.pt: the file: Is a directory (os error 21)");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    assert_eq!(fs::read_to_string(path.join("old")).expect("the file"), "old");
}
