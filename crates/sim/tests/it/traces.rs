//! Real training runs on an H200 under five settings and two limits: simulated peaks and errors are those of the card.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use lowtide_sim::{AddressOrder, AllocatorSettings, Conditions, Placement, Recording, Snapshot, TorchVersion};
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces")
}

fn snapshot(name: &str) -> Snapshot {
    let file = File::open(folder().join(format!("{name}.pickle.gz"))).unwrap();
    Snapshot::read(BufReader::new(GzDecoder::new(file))).unwrap()
}

fn facts(name: &str) -> Value {
    serde_json::from_slice(&fs::read(folder().join(format!("{name}.json"))).unwrap()).unwrap()
}

/// The limit that was set, as torch computes it.
fn limit(facts: &Value) -> Option<u64> {
    let cap = facts["cap_mib"].as_u64().unwrap() << 20;
    let total = facts["total"].as_u64().unwrap() as f64;
    (cap > 0).then(|| (cap as f64 / total * total) as u64)
}

fn names() -> Vec<String> {
    let names = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter_map(|name| name.strip_suffix(".json").map(str::to_owned)).collect();
    names.sort();
    assert_eq!(names.len(), 33);
    names
}

#[test]
fn under_their_own_settings() {
    let mut wrong = Vec::new();
    for name in names() {
        let (snapshot, facts) = (snapshot(&name), facts(&name));
        let settings = snapshot.settings(TorchVersion::VERIFIED).unwrap();
        let recording = Recording::of(&snapshot.devices[0], &settings).unwrap();
        assert!(!recording.is_reconstructed(), "{name}");
        let conditions = Conditions {
            settings,
            limit: limit(&facts),
            capacity: facts["total"].as_u64(),
            placement: Placement::Recorded,
        };
        let replay = recording.replay(&conditions);
        let told = |name: &str| facts["stats"][name].as_u64().unwrap();
        let counted = replay.statistics;
        let pairs = [
            (counted.reserved.peak, told("reserved_bytes.all.peak")),
            (counted.allocated.peak, told("allocated_bytes.all.peak")),
            (counted.active.peak, told("active_bytes.all.peak")),
            (counted.ooms, told("num_ooms")),
            (counted.retries, told("num_alloc_retries")),
            (replay.differing.unwrap() as u64, 0),
        ];
        if pairs.iter().any(|(simulated, told)| simulated != told) {
            wrong.push(format!("{name}: {pairs:?} first {:?} of {}", replay.first_difference, recording.len()));
        }
    }
    assert_eq!(wrong, [""; 0], "{wrong:#?}");
}

#[test]
fn from_the_default_to_other_settings() {
    let mut wrong = Vec::new();
    for workload in ["deblur", "gpt", "qca"] {
        let recording =
            Recording::new(snapshot(&format!("{workload}__default")).devices.remove(0).entries.to_vec()).unwrap();
        for setting in ["default", "expandable", "split128", "round4", "gc60"] {
            let facts = facts(&format!("{workload}__{setting}"));
            let settings = AllocatorSettings::parse(facts["conf"].as_str().unwrap(), TorchVersion::VERIFIED).unwrap();
            let conditions = Conditions {
                limit: settings.limit(facts["total"].as_u64().unwrap()),
                settings,
                capacity: facts["total"].as_u64(),
                placement: Placement::Ordered(AddressOrder::Descending),
            };
            let peak = recording.replay(&conditions).statistics.reserved.peak as f64;
            let told = facts["stats"]["reserved_bytes.all.peak"].as_u64().unwrap() as f64;
            if (peak / told - 1.0).abs() > 0.005 {
                wrong.push(format!(
                    "{workload} {setting}: {peak} instead of {told}: {:+.2} %",
                    (peak / told - 1.0) * 100.0
                ));
            }
        }
    }
    assert_eq!(wrong, [""; 0], "{wrong:#?}");
}
