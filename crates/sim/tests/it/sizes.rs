//! Real training runs on an H200 at six sizes each: the peak at a larger size, predicted from two smaller ones.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use lowtide_sim::{
    Action, AllocatorSettings, DeviceHistory, Fit, SimError, SizedRecording, Snapshot, TorchVersion, Verdict,
};
use serde_json::Value;

struct Sample {
    recorded: SizedRecording,
    settings: AllocatorSettings,
    peak: u64,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sizes")
}

fn snapshot(name: &str, size: u64) -> Snapshot {
    let file = File::open(folder().join(format!("{name}__{size}.pickle.gz"))).unwrap();
    Snapshot::read(BufReader::new(GzDecoder::new(file))).unwrap()
}

fn sized(size: u64, snapshot: &Snapshot) -> Result<SizedRecording, SimError> {
    let settings = snapshot.settings(TorchVersion::VERIFIED)?;
    SizedRecording::new(size, snapshot, &snapshot.devices[0], &settings)
}

fn sample(name: &str, size: u64) -> Sample {
    let facts: Value =
        serde_json::from_slice(&fs::read(folder().join(format!("{name}__{size}.json"))).unwrap()).unwrap();
    let snapshot = snapshot(name, size);
    Sample {
        recorded: sized(size, &snapshot).unwrap(),
        settings: snapshot.settings(TorchVersion::VERIFIED).unwrap(),
        peak: facts["stats"]["reserved_bytes.all.peak"].as_u64().unwrap(),
    }
}

/// All of one kind of run, by size.
fn samples() -> BTreeMap<String, BTreeMap<u64, Sample>> {
    let mut all: BTreeMap<String, BTreeMap<u64, Sample>> = BTreeMap::new();
    for entry in fs::read_dir(folder()).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let Some((name, size)) = file.strip_suffix(".pickle.gz").and_then(|name| name.rsplit_once("__")) else {
            continue;
        };
        let size = size.parse().unwrap();
        all.entry(name.to_owned()).or_default().insert(size, sample(name, size));
    }
    all
}

fn fit(name: &str, sizes: &[u64]) -> (Fit, AllocatorSettings) {
    let samples: Vec<Sample> = sizes.iter().map(|size| sample(name, *size)).collect();
    let settings = samples[0].settings.clone();
    (Fit::new(samples.into_iter().map(|sample| sample.recorded).collect()).unwrap(), settings)
}

/// From every two neighbouring sizes to two and four times the larger one.
#[test]
fn peaks_at_larger_sizes() {
    let (mut count, mut close, mut outside) = (0, 0, 0);
    for (name, samples) in samples() {
        assert_eq!(samples.len(), 6, "{name}");
        let sizes: Vec<u64> = samples.keys().copied().collect();
        for pair in sizes.windows(2) {
            let fit = Fit::new(pair.iter().map(|size| samples[size].recorded.clone()).collect()).unwrap();
            for (size, sample) in samples.range(pair[1] + 1..=pair[1] * 4) {
                let prediction = fit.predict(*size, &sample.settings).unwrap();
                let off = |bytes: u64| (bytes as f64 / sample.peak as f64 - 1.0) * 100.0;
                let error = off(prediction.reserved_peak);
                let is_close = (-1.0..=3.0).contains(&error);
                let is_inside = (prediction.low..=prediction.high).contains(&sample.peak);
                count += 1;
                close += usize::from(is_close);
                outside += usize::from(!is_inside);
                println!(
                    "{name:24} {:>2},{:<2} -> {size:<3} {:>5} MiB {error:+6.2} % (bar {:+6.2} to {:+6.2}){}{}",
                    pair[0],
                    pair[1],
                    sample.peak >> 20,
                    off(prediction.low),
                    off(prediction.high),
                    if is_close { "" } else { " not close" },
                    if is_inside { "" } else { " outside" },
                );
            }
        }
    }
    println!("{close} of {count} between 1 % below and 3 % above, {outside} outside of their bar");
    assert_eq!((count, outside), (70, 0));
    assert!(close * 10 >= count * 9, "{close} of {count}");
}

/// A size that was recorded is no prediction: it is what was there.
#[test]
fn a_recorded_size_is_exact() {
    for name in ["encoder__default", "unet__expandable"] {
        let (fit, settings) = fit(name, &[4, 8, 16]);
        for size in [4, 8, 16] {
            let prediction = fit.predict(size, &settings).unwrap();
            assert_eq!(prediction.reserved_peak, sample(name, size).peak, "{name} {size}");
        }
    }
}

/// Between two recordings, and below the smallest.
#[test]
fn sizes_between_and_below() {
    for (name, recorded, size) in
        [("encoder__default", [4, 16], 8), ("llama__default", [8, 32], 16), ("lstm__expandable", [8, 16], 4)]
    {
        let (fit, settings) = fit(name, &recorded);
        let prediction = fit.predict(size, &settings).unwrap();
        let peak = sample(name, size).peak;
        assert!((prediction.low..=prediction.high).contains(&peak), "{name} {size}: {prediction:?}, not {peak}");
    }
}

/// A third recording decides what two leave open.
#[test]
fn a_third_recording_narrows() {
    let width = |sizes: &[u64]| {
        let (fit, settings) = fit("lstm__default", sizes);
        let prediction = fit.predict(64, &settings).unwrap();
        assert_eq!(prediction.reserved_peak, sample("lstm__default", 64).peak);
        (prediction.high - prediction.low, fit.pairing(64).undecided)
    };
    let (two, three) = (width(&[4, 8]), width(&[4, 8, 16]));
    assert!(three.0 < two.0 / 4 && three.1 == 0 && two.1 > 0, "{two:?} {three:?}");
}

/// The largest size that fits does, and the next one does not.
#[test]
fn the_largest_size_that_fits() {
    let (fit, settings) = fit("llama__default", &[4, 8]);
    let limit = 2 << 30;
    let largest = fit.largest(&settings, limit).unwrap();
    assert!((8..32).contains(&largest), "{largest}");
    assert!(fit.verdict(largest, &settings, limit).unwrap().is_likely());
    assert!(!fit.verdict(largest + 1, &settings, limit).unwrap().is_likely());
    assert_eq!(fit.verdict(8, &settings, limit).unwrap(), Verdict::Fits);
    assert_eq!(fit.verdict(64, &settings, limit).unwrap(), Verdict::DoesNotFit);
    assert_eq!(fit.largest(&settings, 10 << 20), None);
    assert!(matches!(fit.predict(1 << 30, &settings), Err(SimError::Sizes { .. })));
}

/// A history without its first part: what was held is asked for first.
#[test]
fn a_recording_that_was_cut() {
    let cut = |size: u64| {
        let mut snapshot = snapshot("llama__default", size);
        let history = &mut snapshot.devices[0];
        let middle = history.entries.len() / 2;
        std::sync::Arc::make_mut(&mut history.entries).drain(..middle);
        history.times.clear();
        history.stacks.clear();
        sized(size, &snapshot).unwrap()
    };
    let fit = Fit::new(vec![cut(4), cut(8)]).unwrap();
    let sample = sample("llama__default", 16);
    assert!(fit.is_reconstructed(16));
    let prediction = fit.predict(16, &sample.settings).unwrap();
    assert!((prediction.low..=prediction.high).contains(&sample.peak), "{prediction:?}, not {}", sample.peak);
}

#[test]
fn what_tells_nothing_of_another_size_is_refused() {
    let one = |name: &str, size: u64| sample(name, size).recorded;
    let refused = |recorded: Vec<SizedRecording>| Fit::new(recorded).unwrap_err().to_string();
    assert_eq!(refused(vec![one("lstm__default", 2)]), "recordings at two sizes or more are needed");
    assert_eq!(refused(vec![one("lstm__default", 2), one("lstm__expandable", 2)]), "two recordings are at size 2");
    let other = refused(vec![one("lstm__default", 4), one("llama__default", 8)]);
    assert!(other.starts_with("the recordings at 8 and 4 are not of the same program"), "{other}");
    let mut history: DeviceHistory = snapshot("lstm__default", 4).devices[0].clone();
    std::sync::Arc::make_mut(&mut history.entries)[40].action = Action::Oom;
    let snapshot = snapshot("lstm__default", 4);
    let settings = snapshot.settings(TorchVersion::VERIFIED).unwrap();
    let oom = SizedRecording::new(4, &snapshot, &history, &settings).unwrap_err().to_string();
    assert!(oom.starts_with("size 4: memory ran out in this recording"), "{oom}");
}
