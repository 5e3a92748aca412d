//! What files of samples mean, against what torch sees in them.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use lowtide_core::Bytes;
use lowtide_data::{BatchFile, DataError, FieldValue, Sample, Scores};
use lowtide_tensorfile::{Dtype, PtTensor, PtValue, Sums, TensorFileError, rows, write_pt};
use serde_json::Value as Json;
use tempfile::TempDir;

use crate::kit::fixture;

fn open(path: &Path) -> BatchFile {
    BatchFile::open(path).unwrap_or_else(|error| panic!("{error}"))
}

/// A file in a folder of its own.
struct Made {
    _folder: TempDir,
    path: PathBuf,
}

fn made(name: &str, write: impl FnOnce(&Path)) -> Made {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    write(&path);
    Made { _folder: folder, path }
}

fn pt(value: &PtValue<'_>) -> Made {
    made("made.pt", |path| write_pt(path, value).expect("written"))
}

fn text(text: &str) -> PtValue<'_> {
    PtValue::Str(text.into())
}

fn texts<'a>(all: &[&'a str]) -> PtValue<'a> {
    PtValue::List(all.iter().map(|one| text(one)).collect())
}

fn dict<'a>(fields: &[(&'a str, PtValue<'a>)]) -> PtValue<'a> {
    PtValue::Dict(fields.iter().map(|(key, value)| (text(key), value.clone())).collect())
}

/// A tensor that counts from zero.
fn counting(shape: &[u64]) -> PtValue<'static> {
    let count = shape.iter().product::<u64>() as u32;
    let bytes: Vec<u8> = (0..count).flat_map(|value| (value as f32).to_ne_bytes()).collect();
    PtValue::Tensor(PtTensor { dtype: Dtype::Float32, shape: shape.to_vec(), bytes: Cow::Owned(bytes) })
}

/// What a file is found to be: its samples, each field with type and shape, what is left out.
fn described(file: &BatchFile) -> String {
    let fields = file.fields().iter().map(|field| {
        let kinds: Vec<_> = field.kinds.iter().map(ToString::to_string).collect();
        format!("{} {} {} in {}", field.name, kinds.join("/"), field.shapes, field.samples)
    });
    let fields = fields.collect::<Vec<_>>().join("; ");
    let left_out = file.left_out();
    let left_out = if left_out.is_empty() { String::new() } else { format!(" | without {}", left_out.join(", ")) };
    format!("{}: {fields}{left_out}", file.samples())
}

/// The two ways of reading agree with each other and with what was foretold.
#[track_caller]
fn check_reads(file: &BatchFile) -> Vec<Sample> {
    let all = file.read_all().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(all.len() as u64, file.samples());
    for (index, sample) in all.iter().enumerate() {
        let index = index as u64;
        assert_eq!(&file.read(index).unwrap_or_else(|error| panic!("{error}")), sample);
        assert_eq!(file.sample_bytes(index), sample.bytes());
    }
    assert_eq!(file.bytes(), all.iter().fold(Bytes::ZERO, |sum, sample| sum.saturating_add(sample.bytes())));
    all
}

#[track_caller]
fn check(value: &PtValue<'_>, expect: &str) {
    let made = pt(value);
    let file = open(&made.path);
    assert_eq!(described(&file), expect);
    check_reads(&file);
}

fn numbers(value: &FieldValue) -> Vec<f64> {
    let FieldValue::Array { dtype, bytes, .. } = value else { panic!("no array: {value:?}") };
    let number = |bytes: &[u8]| match dtype {
        Dtype::Float32 => f64::from(f32::from_ne_bytes(bytes.try_into().expect("4 bytes"))),
        Dtype::Float64 => f64::from_ne_bytes(bytes.try_into().expect("8 bytes")),
        Dtype::Int64 => i64::from_ne_bytes(bytes.try_into().expect("8 bytes")) as f64,
        Dtype::Bool => f64::from(bytes[0]),
        other => panic!("{other}"),
    };
    bytes.chunks_exact(dtype.size() as usize).map(number).collect()
}

fn sum(sample: &Sample, name: &str) -> f64 {
    numbers(sample.get(name).unwrap_or_else(|| panic!("no {name}"))).iter().sum()
}

#[test]
fn batches_of_a_preprocessing_script() {
    let facts: Json =
        serde_json::from_str(include_str!("../../../tensorfile/tests/fixtures/given/facts.json")).expect("JSON");
    for name in ["batch_0000.pt", "batch_0001.pt", "batch_0002.pt"] {
        let facts = &facts[name];
        let file = open(&fixture(&format!("given/{name}")));
        let ids: Vec<&str> = facts["question_ids"].as_array().expect("ids").iter().filter_map(Json::as_str).collect();
        assert_eq!(file.ids().expect("ids"), ids);
        let count = ids.len();
        let expect = format!(
            "{count}: question_ids str scalar in {count}; sequences float32 ? x 24 in {count}; \
             graphs.x float32 ? x 12 in {count}; graphs.edge_index int64 2 x ? in {count}; \
             lengths int64 scalar in {count}; scores float32 scalar in {count} | without meta"
        );
        assert_eq!(described(&file), expect);
        let samples = check_reads(&file);
        let close = |found: f64, expect: &Json, context: &str| {
            let expect = expect.as_f64().expect("a number");
            assert!((found - expect).abs() <= 1e-12 * expect.abs().max(1e-3), "{name} {context}: {found} {expect}");
        };
        for (index, sample) in samples.iter().enumerate() {
            assert_eq!(sample.get("question_ids"), Some(&FieldValue::Text(ids[index].to_owned())));
            close(sum(sample, "sequences"), &facts["sums"][index], "sequences");
            close(sum(sample, "graphs.edge_index"), &facts["edge_sums"][index], "edges");
            close(sum(sample, "lengths"), &facts["lengths"][index], "lengths");
            let FieldValue::Array { shape, .. } = sample.get("sequences").expect("a field") else { panic!("no array") };
            assert_eq!(shape, &[facts["lengths"][index].as_u64().expect("a length"), 24]);
        }
        close(samples.iter().map(|sample| sum(sample, "scores")).sum(), &facts["scores_sum"], "scores");
    }
}

#[test]
fn what_is_a_column() {
    let cases: [(PtValue<'_>, &str); 12] = [
        (
            dict(&[
                ("x", counting(&[3, 2])),
                ("y", counting(&[3])),
                ("rate", PtValue::Float(0.5)),
                ("n", text("name")),
            ]),
            "3: x float32 2 in 3; y float32 scalar in 3 | without rate, n",
        ),
        (
            dict(&[("ids", texts(&["a", "b"])), ("x", counting(&[2, 4])), ("mean", counting(&[4]))]),
            "2: ids str scalar in 2; x float32 4 in 2 | without mean",
        ),
        (
            dict(&[("x", counting(&[3, 2])), ("edges", counting(&[2, 5])), ("y", PtValue::Int(1))]),
            "1: x float32 3 x 2 in 1; edges float32 2 x 5 in 1; y int64 scalar in 1",
        ),
        (
            dict(&[("id", text("q")), ("x", counting(&[3, 2])), ("words", texts(&["a", "b"]))]),
            "1: id str scalar in 1; x float32 3 x 2 in 1; words.0 str scalar in 1; words.1 str scalar in 1",
        ),
        (
            PtValue::List(vec![
                dict(&[("x", counting(&[3])), ("y", PtValue::Bool(true))]),
                dict(&[("x", counting(&[4]))]),
            ]),
            "2: x float32 ? in 2; y bool scalar in 1",
        ),
        (PtValue::Tuple(vec![counting(&[5, 2]), counting(&[5])]), "5: 0 float32 2 in 5; 1 float32 scalar in 5"),
        (PtValue::List(vec![counting(&[5]), counting(&[5])]), "2: value float32 5 in 2"),
        (counting(&[4, 2, 2]), "4: value float32 2 x 2 in 4"),
        (counting(&[]), "1: value float32 scalar in 1"),
        (
            dict(&[
                (
                    "tokens",
                    PtValue::List(vec![
                        PtValue::List(vec![PtValue::Int(3), PtValue::Int(4)]),
                        PtValue::Tuple(vec![PtValue::Int(5)]),
                    ]),
                ),
                ("mixed", PtValue::List(vec![PtValue::Int(1), PtValue::Float(2.5)])),
                ("missing", PtValue::List(vec![PtValue::None, counting(&[1])])),
            ]),
            "2: tokens int64 ? in 2; mixed int64/float64 scalar in 2; missing float32 1 in 1",
        ),
        (dict(&[("x", PtValue::List(vec![])), ("y", PtValue::List(vec![]))]), "0: "),
        (dict(&[("x", counting(&[0, 3]))]), "0: x float32 3 in 0"),
    ];
    for (value, expect) in &cases {
        check(value, expect);
    }
}

#[test]
fn lists_of_numbers_are_arrays() {
    let row = |values: &[f64]| PtValue::List(values.iter().copied().map(PtValue::Float).collect());
    let made = pt(&PtValue::List(vec![dict(&[
        (
            "matrix",
            PtValue::List(vec![
                row(&[1.0, 2.0, 3.0]),
                PtValue::List(vec![PtValue::Int(4), PtValue::Bool(true), PtValue::Int(6)]),
            ]),
        ),
        ("flags", PtValue::List(vec![PtValue::Bool(true), PtValue::Bool(false)])),
        ("ragged", PtValue::List(vec![row(&[1.0]), row(&[2.0, 3.0])])),
        ("big", PtValue::Int(i64::MIN)),
    ])]));
    let samples = check_reads(&open(&made.path));
    let sample = &samples[0];
    assert_eq!(numbers(sample.get("matrix").expect("a field")), [1.0, 2.0, 3.0, 4.0, 1.0, 6.0]);
    assert!(
        matches!(sample.get("matrix"), Some(FieldValue::Array { dtype: Dtype::Float64, shape, .. }) if shape == &[2, 3])
    );
    assert_eq!(numbers(sample.get("flags").expect("a field")), [1.0, 0.0]);
    assert_eq!(numbers(sample.get("ragged.1").expect("a field")), [2.0, 3.0]);
    assert_eq!(numbers(sample.get("big").expect("a field")), [i64::MIN as f64]);
}

#[test]
fn lists_that_disagree_are_named() {
    let made = pt(&dict(&[("ids", texts(&["a", "b", "c"])), ("sequences", texts(&["a", "b"])), ("x", counting(&[3]))]));
    let error = BatchFile::open(&made.path).expect_err("they disagree");
    assert_eq!(text_of(&error, &made.path), "made.pt: lists of a batch differ in length: `ids` 3, `sequences` 2");
    assert_eq!(error.hint(), Some("each list of a batch file holds one element for each sample"));
}

/// An error's text, with the file by its name alone.
fn text_of(error: &DataError, path: &Path) -> String {
    error.to_string().replace(&format!("{}/", path.parent().expect("a folder").display()), "")
}

#[test]
fn files_that_torch_and_numpy_made() {
    let dict = "1: x float64 520 in 1; y.0 int64 5 in 1; y.1.z float64 scalar in 1; \
                names.0 str scalar in 1; names.1 str scalar in 1";
    let cases = [
        ("made/value_2.pkl", dict),
        ("made/value_4.pkl.gz", dict),
        ("made/array_5.npy", "3: value float32 4 in 3"),
        ("given/legacy.pt", "6: w float32 8 in 6; again float32 8 in 6"),
    ];
    for (name, expect) in cases {
        let file = open(&fixture(name));
        assert_eq!(described(&file), expect, "{name}");
        check_reads(&file);
    }
    // Views, shared and foreign storages, other byte orders, packed arrays: both ways of reading agree.
    let folder = fixture("made");
    let mut read = 0;
    for entry in fs::read_dir(folder).expect("fixtures") {
        let path = entry.expect("an entry").path();
        let Ok(file) = BatchFile::open(&path) else { continue };
        match file.read_all() {
            Ok(_) => _ = check_reads(&file),
            Err(error) => assert!(matches!(error, DataError::File(TensorFileError::Unsupported { .. })), "{error}"),
        }
        read += 1;
    }
    assert!(read > 50, "{read}");
}

#[test]
fn a_flipped_byte_is_found_when_samples_are_read() {
    let file = open(&fixture("given/flipped.pt"));
    let error = file.read_all().expect_err("a byte is flipped");
    assert!(matches!(error, DataError::File(TensorFileError::Checksum { .. })), "{error}");
    assert!((0..file.samples()).any(|index| file.read(index).is_err()));
    let error = file.read(file.samples()).expect_err("there is no such sample");
    assert!(error.to_string().ends_with("the file: sample 7 is asked for, and there are 7"), "{error}");
}

#[test]
fn a_flipped_byte_is_found_in_complex_numbers_too() {
    let tensor = PtTensor { dtype: Dtype::Complex64, shape: vec![2], bytes: Cow::Owned(vec![7; 16]) };
    let made = pt(&PtValue::Tensor(tensor));
    let mut bytes = fs::read(&made.path).expect("bytes");
    let at = bytes.windows(16).position(|window| window == [7; 16]).expect("the values");
    assert!(rows(open(&made.path).tree(), Sums::Compute).is_ok_and(|rows| rows[0].sum.is_none()));
    bytes[at] = 8;
    fs::write(&made.path, bytes).expect("written");
    let found = rows(open(&made.path).tree(), Sums::Compute);
    assert!(matches!(found, Err(TensorFileError::Checksum { .. })), "{found:?}");
}

/// A pickle of `[{"id": ..., "x": bytes of 5000}, ...]`, in protocol 3.
fn pickle_of(ids: &[&str]) -> Vec<u8> {
    let mut pickle = b"\x80\x03](".to_vec();
    for (index, id) in ids.iter().enumerate() {
        pickle.extend_from_slice(b"}(X\x02\0\0\0idX");
        pickle.extend_from_slice(&(id.len() as u32).to_le_bytes());
        pickle.extend_from_slice(id.as_bytes());
        pickle.extend_from_slice(b"X\x01\0\0\0xB");
        pickle.extend_from_slice(&5000_u32.to_le_bytes());
        pickle.extend_from_slice(&[index as u8; 5000]);
        pickle.push(b'u');
    }
    pickle.extend_from_slice(b"e.");
    pickle
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).expect("memory");
    out.finish().expect("memory")
}

#[test]
fn pickles_with_a_table_of_scores() {
    for (name, bytes) in [("q.pkl", pickle_of(&["a", "b", "c"])), ("q.pkl.gz", gzipped(&pickle_of(&["a", "b", "c"])))] {
        let made = made(name, |path| fs::write(path, &bytes).expect("written"));
        let file = open(&made.path);
        assert_eq!(described(&file), "3: id str scalar in 3; x uint8 5000 in 3");
        assert_eq!(file.ids().expect("ids"), ["a", "b", "c"]);
        let samples = check_reads(&file);
        assert!(matches!(samples[2].get("x"), Some(FieldValue::Array { bytes, .. }) if bytes[..] == [2; 5000]));
        let table = table("name,score,id\nx, 1.5 ,a\ny,-2e3,c\nz,0,b\n");
        let scores = Scores::read(&table.path).expect("a table");
        assert_eq!(
            (scores.len(), scores.is_empty(), scores.get("c"), scores.get("d")),
            (3, false, Some(-2000.0), None)
        );
        let found: Vec<Option<f64>> = file.ids().expect("ids").iter().map(|id| scores.get(id)).collect();
        assert_eq!(found, [Some(1.5), Some(0.0), Some(-2000.0)]);
    }
}

fn table(text: &str) -> Made {
    made("scores.csv", |path| fs::write(path, text).expect("written"))
}

#[test]
fn tables_with_mistakes() {
    let check = |text: &str, expect: &str| {
        let table = table(text);
        let error = Scores::read(&table.path).expect_err("a mistake");
        assert_eq!(text_of(&error, &table.path), expect);
    };
    check("", "scores.csv: line 1, column `id`: is missing; the header has ``");
    check("id,value\na,1\n", "scores.csv: line 1, column `score`: is missing; the header has `id,value`");
    check("id,score\na,1\nb,high\n", "scores.csv: line 3, column `score`: `high` is no finite number");
    check("id,score\na,nan\n", "scores.csv: line 2, column `score`: `nan` is no finite number");
    check("id,score\na,1\n\n,2\n", "scores.csv: line 4, column `id`: an empty id");
    check("id,score\na,1\nb,2\na,3\n", "scores.csv: line 4, column `id`: `a` is there a second time");
    check("id,score\na\n", "scores.csv: line 2, column `2`: the line has 1 columns, and the header has 2");
    check("id,score\na,1,2\n", "scores.csv: line 2, column `3`: the line has 3 columns, and the header has 2");
    let table_of_windows = table("\u{feff}id,score\r\na,1\r\n\r\nb,2\r\n");
    assert_eq!(Scores::read(&table_of_windows.path).expect("a table").get("b"), Some(2.0));
    let missing = Path::new("/nowhere/scores.csv");
    let error = Scores::read(missing).expect_err("no file");
    assert_eq!(error.to_string(), "/nowhere/scores.csv: the file: No such file or directory (os error 2)");
}
