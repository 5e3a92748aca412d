//! Files of torch are read as torch reads them.

use lowtide_core::Bytes;
use lowtide_tensorfile::{Dtype, Format, Loader, Row, Sums, Tree, open, rows};
use serde_json::Value as Json;

use crate::kit::{TempFile, archive, entry, fixture, small_archive, tensor_pickle, text_of};

fn listed(name: &str) -> Vec<Row> {
    let contents = open(&fixture(name)).unwrap_or_else(|error| panic!("{error}"));
    rows(&contents.tree, Sums::Compute).unwrap_or_else(|error| panic!("{error}"))
}

fn tree(name: &str) -> Tree {
    open(&fixture(name)).unwrap_or_else(|error| panic!("{error}")).tree
}

fn numbers(json: &Json) -> Vec<u64> {
    json.as_array().expect("a list").iter().map(|number| number.as_u64().expect("a number")).collect()
}

#[track_caller]
fn check_close(found: Option<f64>, expect: Option<f64>, context: &str) {
    match (found, expect) {
        (Some(found), Some(expect)) => {
            assert!((found - expect).abs() <= 1e-12 * expect.abs().max(1e-3), "{context}: {found} {expect}");
        }
        (found, expect) => assert_eq!(found.filter(|sum| sum.is_finite()), expect, "{context}"),
    }
}

#[test]
fn every_file_that_torch_and_numpy_made() {
    let made: Json = serde_json::from_str(include_str!("../fixtures/made.json")).expect("JSON");
    let made = made.as_object().expect("a dict");
    assert!(made.len() > 60, "{}", made.len());
    for (name, expect) in made {
        let found = listed(&format!("made/{name}"));
        let expect = expect.as_array().expect("a list");
        assert_eq!(found.len(), expect.len(), "{name}");
        for (row, expect) in found.iter().zip(expect) {
            let context = format!("{name}: {}", row.path);
            assert_eq!(row.path, expect["path"].as_str().expect("a path"), "{context}");
            assert_eq!(row.dtype.name(), expect["dtype"].as_str().expect("a type"), "{context}");
            assert_eq!(row.shape, numbers(&expect["shape"]), "{context}");
            assert_eq!(row.stride, numbers(&expect["stride"]), "{context}");
            assert_eq!(row.bytes.get(), expect["bytes"].as_u64().expect("bytes"), "{context}");
            check_close(row.sum, expect["sum"].as_f64(), &context);
        }
    }
}

fn facts() -> Json {
    serde_json::from_str(include_str!("../fixtures/given/facts.json")).expect("JSON")
}

#[test]
fn batches_of_a_preprocessing_script() {
    for name in ["batch_0000.pt", "batch_0001.pt"] {
        let facts = &facts()[name];
        let tree = tree(&format!("given/{name}"));
        let ids = facts["question_ids"].as_array().expect("ids");
        for (index, id) in ids.iter().enumerate() {
            assert_eq!(tree.at(&format!("question_ids.{index}")).and_then(Tree::str), id.as_str());
        }
        let rows = rows(&tree, Sums::Compute).expect("rows");
        let sum = |path: &str| rows.iter().find(|row| row.path == path).and_then(|row| row.sum);
        for (index, expect) in facts["sums"].as_array().expect("sums").iter().enumerate() {
            check_close(sum(&format!("sequences.{index}")), expect.as_f64(), name);
            let tensor = tree.at(&format!("sequences.{index}")).and_then(Tree::tensor).expect("a tensor");
            assert_eq!(tensor.shape()[0], facts["lengths"][index].as_u64().expect("a length"));
        }
        for (index, expect) in facts["edge_sums"].as_array().expect("sums").iter().enumerate() {
            check_close(sum(&format!("graphs.{index}.edge_index")), expect.as_f64(), name);
        }
        check_close(sum("scores"), facts["scores_sum"].as_f64(), name);
    }
    check_close(listed("given/legacy.pt")[0].sum, facts()["legacy.pt"]["w_sum"].as_f64(), "legacy");
}

/// The values of a tensor, each as a float; those of complex numbers one part after the other.
fn values(dtype: Dtype, bytes: &[u8]) -> Vec<f64> {
    let half = |bits: u16| {
        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
        assert!((1..31).contains(&exponent), "only normal numbers are in the fixture");
        sign * (1.0 + mantissa / 1024.0) * 2_f64.powi(exponent - 15)
    };
    let part = if dtype == Dtype::Complex64 { 4 } else { dtype.size() as usize };
    let value = |part: &[u8]| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        let word = u64::from_le_bytes(word);
        match dtype {
            Dtype::Float32 | Dtype::Complex64 => f64::from(f32::from_bits(word as u32)),
            Dtype::Float64 => f64::from_bits(word),
            Dtype::Bfloat16 => f64::from(f32::from_bits((word as u32) << 16)),
            Dtype::Float16 => half(word as u16),
            _ => word as f64,
        }
    };
    bytes.chunks_exact(part).map(value).collect()
}

#[test]
fn values_of_every_dtype_and_view() {
    let tree = tree("given/dtypes.pt");
    let mut loader = Loader::new(Bytes::from_mib(1));
    for (name, expect) in facts()["dtypes.pt"].as_object().expect("a dict") {
        let tensor = tree.at(name).and_then(Tree::tensor).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(format!("torch.{}", tensor.dtype()), expect["dtype"].as_str().expect("a type"), "{name}");
        assert_eq!(tensor.shape(), numbers(&expect["shape"]), "{name}");
        assert_eq!(tensor.stride(), numbers(&expect["stride"]), "{name}");
        let expect: Vec<f64> =
            expect["values"].as_array().expect("values").iter().map(|value| value.as_f64().expect("a value")).collect();
        // Once as it is, and once where no storage is small enough to be held.
        for loader in [&mut loader, &mut Loader::new(Bytes::ZERO)] {
            let found = values(tensor.dtype(), &loader.read(tensor).expect("values"));
            assert_eq!(found.len(), expect.len(), "{name}");
            // The reader of JSON is not exact to the last bit.
            let same =
                found.iter().zip(&expect).all(|(found, expect)| (found - expect).abs() <= f64::EPSILON * expect.abs());
            assert!(same, "{name}: {found:?} {expect:?}");
        }
    }
}

#[test]
fn containers_and_scalars() {
    let scalars = tree("made/scalars.pt");
    let shown = |path: &str| format!("{:?}", scalars.at(path).unwrap_or_else(|| panic!("no {path}")));
    assert_eq!(shown("none"), "None");
    assert_eq!(shown("big"), r#"BigInt("1180591620717411303424")"#);
    assert_eq!(shown("negative"), "Int(-9223372036854775808)");
    assert_eq!(shown("complex"), "Complex { real: 1.0, imaginary: -2.0 }");
    assert_eq!(shown("text"), r#"Str("é€😀\n")"#);
    assert_eq!(shown("dtype"), "Dtype(Float32)");
    assert_eq!(shown("device"), r#"Device("cuda:1")"#);
    assert_eq!(shown("cpu"), r#"Device("cpu")"#);
    assert_eq!(shown("size"), "Size([2, 3])");
    assert_eq!(shown("path"), r#"Str("a/b")"#);
    let Tree::Blob(bytes) = scalars.at("bytes").expect("bytes") else { panic!("no blob") };
    assert_eq!(bytes.bytes(), 80);

    let tuple = tree("made/named_tuple.pt");
    let Tree::NamedTuple { class, items } = &tuple else { panic!("no named tuple") };
    assert_eq!((&**class, items.len()), ("__main__.Point", 2));
    let Tree::Object { class, fields } = tree("made/graph.pt") else { panic!("no object") };
    assert_eq!(&*class, "torch_geometric.data.data.Data");
    assert_eq!(fields.iter().map(|(key, _)| key.name()).collect::<Vec<_>>(), ["x", "edge_index", "y", "name"]);
    let Some(Tree::Sparse(sparse)) = tree("made/sparse.pt").at("coo").cloned() else { panic!("not sparse") };
    assert_eq!((&*sparse.layout, sparse.shape), ("sparse_coo", vec![2, 3]));
    assert_eq!(format!("{:?}", tree("made/numpy.pt").at("text")), r#"Some(List([Str("ab"), Str("c")]))"#);
    assert_eq!(format!("{:?}", tree("made/numpy.pt").at("scalar")), "Some(Float(1.5))");
    assert!(matches!(tree("made/ordered.pt"), Tree::OrderedDict(_)));
}

#[test]
fn tensors_that_share_a_storage_share_it() {
    let views = tree("made/views.pt");
    let storage = |path: &str| views.at(path).and_then(Tree::tensor).expect("a tensor").storage().clone();
    assert!(std::sync::Arc::ptr_eq(&storage("base"), &storage("transposed")));
    assert!(!std::sync::Arc::ptr_eq(&storage("base"), &storage("windows")));
}

#[test]
fn conjugated_and_negated_views_are_read_as_they_are_meant() {
    let tree = tree("made/conjugate.pt");
    let mut loader = Loader::new(Bytes::ZERO);
    let mut read = |name: &str, dtype| {
        let tensor = tree.at(name).and_then(Tree::tensor).expect("a tensor");
        values(dtype, &loader.read(tensor).expect("values"))
    };
    assert_eq!(read("conj", Dtype::Complex64), [1.0, -3.0, 2.0, 4.0]);
    assert_eq!(read("plain", Dtype::Complex64), [1.0, 3.0, 2.0, -4.0]);
    assert_eq!(read("imag", Dtype::Float32), [-3.0, 4.0]);
    assert_eq!(read("neg", Dtype::Float32), [4.0]);
}

#[test]
fn roots_of_any_length() {
    for length in 1..=64 {
        let file = TempFile::new("x.pt", &small_archive(&"r".repeat(length)));
        let contents = open(&file.path()).unwrap_or_else(|error| panic!("{length}: {error}"));
        assert_eq!(contents.format, Format::Torch);
        assert_eq!(rows(&contents.tree, Sums::Compute).expect("rows")[0].sum, Some(3.5));
    }
}

#[test]
fn the_other_byte_order() {
    let values: Vec<u8> = [1.5_f32, 2.0].iter().flat_map(|value| value.to_be_bytes()).collect();
    let entries = [
        entry("r/data.pkl", &tensor_pickle(&[2], &[1], 0, 2)),
        entry("r/byteorder", b"big"),
        entry("r/data/0", &values),
    ];
    let file = TempFile::new("big.pt", &archive(&entries));
    let contents = open(&file.path()).expect("a file");
    assert_eq!(rows(&contents.tree, Sums::Compute).expect("rows")[0].sum, Some(3.5));
    let tensor = contents.tree.tensor().expect("a tensor");
    let read = Loader::new(Bytes::ZERO).read(tensor).expect("values");
    assert_eq!(self::values(Dtype::Float32, &read), [1.5, 2.0]);
}

#[test]
fn only_what_is_asked_for_is_read() {
    // The storage is gone, and nobody notices before its values are wanted.
    let file = TempFile::new("x.pt", &small_archive("r"));
    let contents = open(&file.path()).expect("a file");
    std::fs::OpenOptions::new().write(true).open(file.path()).expect("the file").set_len(200).expect("a shorter file");
    assert_eq!(rows(&contents.tree, Sums::Skip).expect("rows")[0].bytes, Bytes(8));
    let error = rows(&contents.tree, Sums::Compute).unwrap_err();
    assert_eq!(
        text_of(&error, &file.path()),
        "x.pt: `r/data/0` at byte 320: needs the bytes up to 328, but the file has 200: it was cut short"
    );
}
