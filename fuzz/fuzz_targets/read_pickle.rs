//! Any bytes at all must be read or refused without a panic, within the limits.
//!
//! Run with `cargo +nightly fuzz run read_pickle` from the root of the project; give it real pickles as a start with
//! `python3 -c "import json; [open(f'fuzz/corpus/read_pickle/{i}-{j}', 'wb').write(bytes.fromhex(p)) for i, c in
//! enumerate(json.load(open('crates/pickle/tests/fixtures/pickles.json'))) for j, p in enumerate(c['pickles'])]"`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lowtide_pickle::{AllowList, Call, Limits, read};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits {
        nodes: 5000,
        items: 10_000,
        text_bytes: 100_000,
        memo: 1000,
        walk: 100_000,
        memory: 64 << 10,
        ..Limits::default()
    };
    let mut allow = AllowList::plain().with_unknown_classes_except(&["os"]);
    allow.add(&[("collections", "OrderedDict", Call::Object)]);
    if let Ok(pickle) = read(bytes, &allow, &limits) {
        assert!(pickle.length() <= bytes.len() as u64);
        assert!(pickle.depth() <= limits.depth && pickle.walk() <= limits.walk);
        assert!(pickle.node_count() <= 5003);
        // The three values that every table begins with are not counted.
        assert!(pickle.memory().get() <= limits.memory + 64);
    }
});
