//! Packing: the same samples as in the sources, and the same bytes whatever happens on the way.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use lowtide_core::Bytes;
use lowtide_data::feed::{OnDamage, Store};
use lowtide_data::pack::{Error, Job, OnMissing, Options, PACKED, PACKING, Progress, ScoreGaps, Start};
use lowtide_data::shard::Compression;
use lowtide_data::{BatchFile, DataSet, FieldValue, OpenOptions};
use lowtide_tensorfile::{Dtype, Packing, PtTensor, PtValue, View, write_pickle, write_pt};
use tempfile::TempDir;

/// A folder with sources in `src`, and room for what is packed.
struct Place(TempDir);

impl Place {
    fn with(files: u64) -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        fs::create_dir(place.path("src")).unwrap();
        (0..files).for_each(|file| place.write(file, 5 + file % 4));
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a source: each sample has an id, values of its own and a length of its own.
    fn write(&self, file: u64, samples: u64) {
        let array = |sample: u64| {
            let bytes: Vec<u8> =
                (0..100 + sample * 10).flat_map(|value| (file * 7 + sample + value).to_le_bytes()).collect();
            let shape = vec![bytes.len() as u64 / 8];
            PtValue::Tensor(PtTensor { dtype: Dtype::Int64, shape, bytes: Cow::Owned(bytes) })
        };
        let id = |sample| PtValue::Str(format!("{file}-{sample}").into());
        let column = |name: &'static str, value| (PtValue::Str(name.into()), value);
        let batch = PtValue::Dict(vec![
            column("ids", PtValue::List((0..samples).map(id).collect())),
            column("x", PtValue::List((0..samples).map(array).collect())),
        ]);
        write_pt(&self.source(file), &batch).unwrap();
    }

    fn source(&self, file: u64) -> PathBuf {
        self.path(&format!("src/batch_{file:04}.pt"))
    }

    fn job(&self, out: &str, options: Options) -> Result<Job, Error> {
        Job::begin(&[self.path("src")], &self.path(out), options, Start::GoOn)
    }

    fn pack(&self, out: &str, options: Options) -> Job {
        let mut job = self.job(out, options).unwrap();
        job.run(&mut go_on).unwrap();
        job
    }

    /// All files that a packed folder consists of. Of the index, which has the times of the shards, only that it is
    /// there.
    fn bytes_of(&self, out: &str) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(self.path(out)).unwrap().map(|entry| entry.unwrap());
        let file = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().unwrap();
            let bytes = if name == ".lowtide-index" { Vec::new() } else { fs::read(entry.path()).unwrap() };
            (name, bytes)
        };
        entries.map(file).collect()
    }
}

fn go_on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Stops after so many samples.
fn stop_after(samples: u64) -> impl FnMut(Progress) -> ControlFlow<()> {
    let mut seen = 0;
    move |_| {
        seen += 1;
        if seen >= samples { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn small() -> Options {
    Options { shard_bytes: Bytes::from_kib(8), ..Options::default() }
}

#[track_caller]
fn check_same_as_sources(place: &Place, out: &str, sources: impl IntoIterator<Item = u64>) {
    let set = DataSet::open(&place.path(out), OpenOptions::default()).unwrap().set;
    let shards = 0..set.layout().shards();
    let packed: Vec<_> = shards.flat_map(|shard| set.read_shard(shard).unwrap()).collect();
    let files = sources.into_iter().map(|file| BatchFile::open(&place.source(file)).unwrap());
    let samples: Vec<_> = files.flat_map(|file| file.read_all().unwrap()).collect();
    assert_eq!(packed.len(), samples.len());
    for (packed, sample) in packed.iter().zip(&samples) {
        assert_eq!(packed.fields().count(), sample.fields.len());
        for field in &sample.fields {
            let expect = match &field.value {
                FieldValue::Text(text) => View::Text(text),
                FieldValue::Array { dtype, shape, bytes } => {
                    View::Array { dtype: *dtype, shape: Cow::Borrowed(shape), bytes }
                }
            };
            assert_eq!(packed.get(&field.name), Some(expect), "{}", field.name);
        }
    }
}

#[test]
fn samples_are_those_of_the_sources() {
    let place = Place::with(5);
    let mut job = place.job("out", small()).unwrap();
    assert!(!job.is_finished() && !place.path("out").exists());
    let mut last = Bytes::ZERO;
    job.run(&mut |progress| {
        assert!(last <= progress.done && progress.done <= progress.all);
        last = progress.done;
        ControlFlow::Continue(())
    })
    .unwrap();
    let all = (0..5).map(|file| fs::metadata(place.source(file)).unwrap().len()).sum();
    assert_eq!(last, Bytes(all));
    check_same_as_sources(&place, "out", 0..5);

    let summary = job.summary().unwrap();
    assert_eq!((summary.samples, summary.ids, summary.sources, summary.duplicates.samples), (31, 31, 5, 0));
    assert!(summary.shards > 3, "{summary:?}");
    assert_eq!(job.verify(&mut go_on).unwrap(), 31);
    let again = place.pack("out", small());
    assert!(again.is_finished());
    assert_eq!(again.summary().unwrap(), summary);
}

#[test]
fn compressed_samples_are_the_same() {
    let place = Place::with(3);
    let options = Options { compression: Compression::Zstd { level: 3 }, ..small() };
    let job = place.pack("out", options);
    check_same_as_sources(&place, "out", 0..3);
    let summary = job.summary().unwrap();
    assert!(summary.bytes.get() * 2 < summary.unpacked_bytes.get(), "{summary:?}");
    assert_eq!(job.verify(&mut go_on).unwrap(), summary.samples);
}

#[test]
fn the_order_is_that_of_the_sources_as_they_are_named() {
    let place = Place::with(3);
    let sources = [place.source(2), place.source(0)];
    let mut job = Job::begin(&sources, &place.path("out"), small(), Start::GoOn).unwrap();
    job.run(&mut go_on).unwrap();
    check_same_as_sources(&place, "out", [2, 0]);
    let set = DataSet::open(&place.path("out"), OpenOptions::default()).unwrap().set;
    assert!(set.find("2-0").is_some() && set.find("1-0").is_none());
}

#[test]
fn stopped_after_any_sample_it_ends_with_the_same_bytes() {
    let place = Place::with(4);
    place.pack("whole", small());
    let whole = place.bytes_of("whole");
    for samples in 1..=26 {
        let out = format!("out-{samples}");
        let mut job = place.job(&out, small()).unwrap();
        let stopped = job.run(&mut stop_after(samples));
        let Err(Error::Stopped { shards, .. }) = stopped else { panic!("{stopped:?}") };
        drop(job);
        assert!(DataSet::open(&place.path(&out), OpenOptions::default()).is_err(), "it is not finished");
        assert!(!place.path(&out).join(PACKED).exists());

        let mut job = place.job(&out, small()).unwrap();
        assert_eq!((job.is_finished(), job.found_shards()), (false, shards));
        job.run(&mut go_on).unwrap();
        assert_eq!(place.bytes_of(&out), whole);
    }
}

#[test]
fn what_a_killed_process_leaves_is_gone_on_with() {
    let place = Place::with(4);
    place.pack("whole", small());
    let whole = place.bytes_of("whole");
    let leave = |change: &dyn Fn(&Path)| {
        let _ = fs::remove_dir_all(place.path("out"));
        let mut job = place.job("out", small()).unwrap();
        job.run(&mut stop_after(20)).unwrap_err();
        drop(job);
        change(&place.path("out"));
        place.pack("out", small());
        assert_eq!(place.bytes_of("out"), whole);
    };
    let shards = |out: &Path| fs::read_dir(out).unwrap().count() - 1;
    // A shard that was named and not yet written down, and another of which half was written.
    leave(&|out| {
        let next = format!("{:05}.shard", shards(out));
        fs::write(out.join(&next), whole[&next].clone()).unwrap();
        fs::write(out.join(".00009.shard.partial"), "half").unwrap();
        fs::remove_file(out.join(".00009.shard.partial")).unwrap();
    });
    leave(&|out| fs::write(out.join(format!(".{:05}.shard.partial", shards(out))), "half of it").unwrap());
    // A line that was not written to its end.
    leave(&|out| {
        let notes = fs::read(out.join(PACKING)).unwrap();
        fs::write(out.join(PACKING), &notes[..notes.len() - 5]).unwrap();
    });
    // Shards that are gone or damaged.
    leave(&|out| fs::remove_file(out.join("00000.shard")).unwrap());
    leave(&|out| {
        let shard = out.join("00001.shard");
        let bytes = fs::read(&shard).unwrap();
        fs::write(&shard, &bytes[..bytes.len() - 1]).unwrap();
    });
    // Nothing was written down yet.
    leave(&|out| {
        for entry in fs::read_dir(out).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        fs::write(out.join(PACKING), "{\"version\":1,").unwrap();
    });
}

#[test]
fn a_packed_folder_that_lost_a_shard_is_mended() {
    let place = Place::with(4);
    place.pack("out", small());
    let whole = place.bytes_of("out");
    fs::remove_file(place.path("out/00001.shard")).unwrap();
    let job = place.job("out", small()).unwrap();
    assert_eq!((job.is_finished(), job.found_shards()), (false, 1));
    drop(job);
    assert!(DataSet::open(&place.path("out"), OpenOptions::default()).is_err());
    place.pack("out", small());
    assert_eq!(place.bytes_of("out"), whole);
}

#[test]
fn other_options_and_sources_are_refused() {
    let place = Place::with(3);
    let mut job = place.job("out", small()).unwrap();
    job.run(&mut stop_after(12)).unwrap_err();
    drop(job);
    let refused =
        |options: Options, sources: &[PathBuf]| match Job::begin(sources, &place.path("out"), options, Start::GoOn) {
            Err(Error::Differs { difference, .. }) => {
                difference.to_string().replace(&place.0.path().canonicalize().unwrap().display().to_string(), "")
            }
            other => panic!("{other:?}"),
        };
    let all = [place.path("src")];
    assert_eq!(refused(Options::default(), &all), "--shard-size 8.00 KiB, and 32.00 MiB is asked for");
    let compressed = Options { compression: Compression::Zstd { level: 9 }, ..small() };
    assert_eq!(refused(compressed, &all), "--compress none, and level 9 is asked for");
    let order = [place.source(1), place.source(0), place.source(2)];
    assert_eq!(refused(small(), &order), "the same sources in another order");
    let fewer = [place.source(0), place.source(1)];
    assert_eq!(refused(small(), &fewer), "other sources: /src/batch_0002.pt was among them");
    place.write(3, 5);
    assert_eq!(refused(small(), &all), "other sources: /src/batch_0003.pt was not among them");
    fs::remove_file(place.source(3)).unwrap();
    let bytes = fs::read(place.source(0)).unwrap();
    fs::write(place.source(0), bytes).unwrap();
    assert_eq!(refused(small(), &all), "other sources: /src/batch_0000.pt was written to since");

    // From the beginning, everything is possible.
    let mut job = Job::begin(&fewer, &place.path("out"), Options::default(), Start::Over).unwrap();
    job.run(&mut go_on).unwrap();
    check_same_as_sources(&place, "out", 0..2);
}

#[test]
fn a_source_that_was_put_right_is_gone_on_with() {
    let place = Place::with(3);
    place.pack("whole", small());
    let good = fs::read(place.source(2)).unwrap();
    fs::write(place.source(2), &good[..good.len() / 2]).unwrap();
    let stopped = place.job("out", small()).unwrap().run(&mut go_on);
    assert!(matches!(stopped, Err(Error::Source(_))), "{stopped:?}");
    fs::write(place.source(2), &good).unwrap();
    let mut job = place.job("out", small()).unwrap();
    assert!(job.found_shards() > 0);
    job.run(&mut go_on).unwrap();
    let mut packed = place.bytes_of("out");
    let mut whole = place.bytes_of("whole");
    // The time of the source is another.
    assert!(packed.remove(PACKED).is_some() && whole.remove(PACKED).is_some());
    assert_eq!(packed, whole);
}

#[test]
fn damaged_sources_are_left_out_where_that_is_wanted() {
    let place = Place::with(4);
    let good = fs::read(place.source(1)).unwrap();
    fs::write(place.source(1), &good[..good.len() - 30]).unwrap();
    // A flipped byte in the values, which only a checksum finds.
    let mut flipped = fs::read(place.source(3)).unwrap();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    fs::write(place.source(3), flipped).unwrap();
    let options = Options { on_damage: OnDamage::Skip, ..small() };
    let job = place.pack("whole", options.clone());
    check_same_as_sources(&place, "whole", [0, 2]);
    let summary = job.summary().unwrap();
    let left_out: Vec<_> = summary.left_out.iter().map(|it| it.file.file_name().unwrap().to_owned()).collect();
    assert_eq!((left_out, summary.sources), (vec!["batch_0001.pt".into(), "batch_0003.pt".into()], 2));
    assert_eq!(job.verify(&mut go_on).unwrap(), summary.samples);

    for samples in 1..12 {
        let out = format!("out-{samples}");
        let mut job = place.job(&out, options.clone()).unwrap();
        job.run(&mut stop_after(samples)).unwrap_err();
        drop(job);
        place.pack(&out, options.clone());
        assert_eq!(place.bytes_of(&out), place.bytes_of("whole"));
    }
    let differs = place.job("whole", small());
    assert!(matches!(differs, Err(Error::Differs { .. })), "a source is missing there: {differs:?}");
}

#[test]
fn scores_are_joined_by_id() {
    let place = Place::with(2);
    let scores = |ids: &[&str]| {
        let rows: String = ids.iter().enumerate().map(|(row, id)| format!("{id},{row}.25\n")).collect();
        fs::write(place.path("scores.csv"), format!("id,score\n{rows}")).unwrap();
    };
    let options = Options { scores: Some(place.path("scores.csv")), ..small() };
    let ids = ["0-0", "0-1", "0-2", "0-3", "0-4", "1-0", "1-1", "1-2", "1-3", "1-4", "1-5"];
    scores(&ids);
    let job = place.pack("out", options.clone());
    let set = DataSet::open(&place.path("out"), OpenOptions::default()).unwrap().set;
    for (row, id) in ids.iter().enumerate() {
        let sample = set.find(id).unwrap();
        let packed = set.read_samples(sample.shard, &[sample.index]).unwrap();
        assert_eq!(packed[0].get("scores").unwrap().to_f32(), Some(vec![row as f32 + 0.25]));
    }
    assert_eq!(job.summary().unwrap().scores, Some((11, ScoreGaps::default())));
    assert_eq!(job.verify(&mut go_on).unwrap(), 11);

    scores(&["0-0", "1-5", "9-9"]);
    let refused = place.job("other", options.clone()).unwrap().run(&mut go_on);
    let Err(Error::Unmatched { gaps, .. }) = refused else { panic!("{refused:?}") };
    let expect = ScoreGaps {
        without_score: 9,
        unscored_ids: vec!["0-1".into(), "0-2".into(), "0-3".into()],
        without_sample: 1,
        unused_ids: vec!["9-9".into()],
        ..ScoreGaps::default()
    };
    assert_eq!(*gaps, expect);
    assert!(!place.path("other").exists(), "nothing is written");
    let allowed = Options { missing: OnMissing::Allow, ..options.clone() };
    let job = place.pack("other", allowed);
    assert_eq!(job.summary().unwrap().scores, Some((3, expect)));
    let refused = place.job("other", options).unwrap().run(&mut go_on);
    assert!(matches!(refused, Err(Error::Unmatched { .. })), "{refused:?}");
}

#[test]
fn ids_that_come_twice_are_kept_and_counted() {
    let place = Place::with(2);
    fs::copy(place.source(0), place.source(7)).unwrap();
    let job = place.pack("out", small());
    let summary = job.summary().unwrap();
    assert_eq!((summary.samples, summary.ids, summary.duplicates.samples), (16, 16, 5));
    assert_eq!(summary.duplicates.ids, ["0-0", "0-1", "0-2", "0-3", "0-4"]);
}

#[test]
fn verifying_finds_what_was_changed() {
    let place = Place::with(3);
    let job = place.pack("out", small());
    // Other shards with the right checksums: only the sources can tell.
    place.pack("bytes", small());
    let other = Place::with(0);
    (0..3).for_each(|file| other.write(file, 5 + file % 4));
    other.write(1, 5);
    other.pack("out", small());
    fs::copy(other.path("out/00001.shard"), place.path("out/00001.shard")).unwrap();
    let found = job.verify(&mut go_on);
    assert!(matches!(found, Err(Error::Mismatch { .. })), "{found:?}");

    let mut bytes = fs::read(place.path("bytes/00000.shard")).unwrap();
    bytes[300] ^= 1;
    fs::write(place.path("bytes/00000.shard"), bytes).unwrap();
    let found = place.pack("bytes", small()).verify(&mut go_on);
    assert!(matches!(found, Err(Error::Shard(_))), "{found:?}");
}

#[test]
fn a_large_file_is_packed_sample_by_sample() {
    let place = Place::with(0);
    let row: Vec<u8> = (0..1_u32 << 20).flat_map(u32::to_le_bytes).collect();
    let rows = 17;
    let bytes: Vec<u8> = (0..rows).flat_map(|_| row.clone()).collect();
    let tensor = PtTensor { dtype: Dtype::Int32, shape: vec![rows, 1 << 20], bytes: Cow::Owned(bytes) };
    write_pt(&place.source(0), &PtValue::Dict(vec![(PtValue::Str("x".into()), PtValue::Tensor(tensor))])).unwrap();
    assert!(BatchFile::open(&place.source(0)).unwrap().bytes() > Bytes::from_mib(64));
    let job = place.pack("out", Options::default());
    assert_eq!((job.verify(&mut go_on).unwrap(), job.summary().unwrap().ids), (rows, 0));

    // A flipped byte is found before anything of the file is packed.
    let mut flipped = fs::read(place.source(0)).unwrap();
    flipped[50 << 20] ^= 1;
    fs::write(place.source(0), flipped).unwrap();
    let found = place.job("flipped", Options::default()).unwrap().run(&mut go_on);
    assert!(matches!(found, Err(Error::Source(_))), "{found:?}");
    assert!(!place.path("flipped/00000.shard").exists());
}

/// Every sample of an array in columns is spread over all of its file.
#[test]
fn a_large_array_in_columns_is_packed_in_a_few_passes() {
    let place = Place::with(0);
    let (rows, columns) = (3000_u32, 3000_u32);
    let header = format!("{{'descr': '<f8', 'fortran_order': True, 'shape': ({rows}, {columns}), }}\n");
    let mut file = b"\x93NUMPY\x01\0".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    let value = |row: u32, column: u32| f64::from(row * 10_000 + column);
    file.extend((0..columns).flat_map(|column| (0..rows).flat_map(move |row| value(row, column).to_le_bytes())));
    fs::write(place.source(0), file).unwrap();
    assert!(BatchFile::open(&place.source(0)).unwrap().bytes() > Bytes::from_mib(64));
    let begin = std::time::Instant::now();
    let job = place.pack("out", Options::default());
    assert!(begin.elapsed() < std::time::Duration::from_secs(60), "{:?}", begin.elapsed());
    assert_eq!(job.summary().unwrap().samples, u64::from(rows));
    let set = DataSet::open(&place.path("out"), OpenOptions::default()).unwrap().set;
    let packed: Vec<_> = (0..set.layout().shards()).flat_map(|shard| set.read_shard(shard).unwrap()).collect();
    for row in [0, 1, 777, rows - 1] {
        let View::Array { bytes, .. } = packed[row as usize].get("value").unwrap() else { panic!("no array") };
        let expect: Vec<u8> = (0..columns).flat_map(|column| value(row, column).to_le_bytes()).collect();
        assert!(bytes == expect, "row {row}");
    }
}

/// What each tensor costs does not grow with their number.
#[test]
fn a_sample_of_very_many_tensors_is_packed_in_the_time_of_its_tensors() {
    let place = Place::with(0);
    let time = |file: usize, tensors: usize| {
        let field = |number: usize| {
            let tensor = PtTensor { dtype: Dtype::Uint8, shape: vec![1], bytes: Cow::Owned(vec![1]) };
            (PtValue::Str(format!("t{number}").into()), PtValue::Tensor(tensor))
        };
        let sample = PtValue::List(vec![PtValue::Dict((0..tensors).map(field).collect())]);
        let path = place.path(&format!("many{file}.pkl"));
        write_pickle(&path, &sample, Packing::Plain).unwrap();
        let begin = std::time::Instant::now();
        let out = place.path(&format!("out{file}"));
        let mut job = Job::begin(&[path], &out, Options::default(), Start::GoOn).unwrap();
        job.run(&mut go_on).unwrap();
        begin.elapsed()
    };
    let (few, many) = (time(0, 10_000), time(1, 80_000));
    assert!(many < few * 24 + std::time::Duration::from_secs(1), "{few:?} for 10,000, {many:?} for 80,000");
}

#[test]
fn what_pack_did_not_write_is_left_alone() {
    let place = Place::with(2);
    fs::create_dir(place.path("out")).unwrap();
    fs::write(place.path("out/notes.txt"), "mine").unwrap();
    for start in [Start::GoOn, Start::Over] {
        let refused = Job::begin(&[place.path("src")], &place.path("out"), small(), start);
        assert!(matches!(refused, Err(Error::NotOurs { .. })), "{refused:?}");
    }
    fs::remove_file(place.path("out/notes.txt")).unwrap();
    place.pack("out", small());
    fs::write(place.path("out/notes.txt"), "mine").unwrap();
    Job::begin(&[place.path("src")], &place.path("out"), small(), Start::Over).unwrap().run(&mut go_on).unwrap();
    assert_eq!(fs::read(place.path("out/notes.txt")).unwrap(), b"mine");
    fs::write(place.path("out/mine.shard"), "mine").unwrap();
    let refused = Job::begin(&[place.path("src")], &place.path("out"), small(), Start::Over);
    assert!(matches!(refused, Err(Error::Foreign { .. })), "{refused:?}");
    assert!(place.path("out/00000.shard").exists());
}

#[test]
fn one_at_a_time() {
    let place = Place::with(2);
    let mut job = place.job("out", small()).unwrap();
    let mut refused = None;
    job.run(&mut |_| {
        refused.get_or_insert_with(|| place.job("out", small()).map(|_| ()));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(matches!(refused, Some(Err(Error::Busy { .. }))), "{refused:?}");
    check_same_as_sources(&place, "out", 0..2);
}

#[test]
fn sources_without_samples() {
    let place = Place::with(0);
    write_pt(&place.source(0), &PtValue::List(Vec::new())).unwrap();
    let refused = place.job("out", small()).unwrap().run(&mut go_on);
    assert!(matches!(refused, Err(Error::NoSamples)), "{refused:?}");
    assert!(!place.path("out").exists());
    place.write(1, 5);
    place.pack("out", small());
    check_same_as_sources(&place, "out", [1]);
}
