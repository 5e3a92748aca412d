//! Files with anything in them give values, never a panic.

use std::fs;

use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};

use crate::kit::Tree;

/// Every kind of file that is read.
const PLACES: [&str; 12] = [
    "proc/meminfo",
    "proc/pressure/memory",
    "proc/self/mountinfo",
    "proc/10/cgroup",
    "proc/10/status",
    "proc/10/stat",
    "proc/10/smaps_rollup",
    "proc/11/statm",
    "proc/10/task/10/children",
    "sys/fs/cgroup/job/memory.max",
    "sys/fs/cgroup/job/memory.current",
    "sys/fs/cgroup/job/memory.stat",
];

fn tree() -> Tree {
    let tree = Tree::new();
    tree.process(10, 1, "train", 1024)
        .process(11, 10, "worker", 1024)
        .write("proc/10/task/10/children", "11")
        .write("proc/pressure/memory", "some avg10=0 avg60=0 total=1\nfull avg10=0 avg60=0 total=1\n")
        .write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        .write("proc/10/cgroup", "0::/job\n")
        .write("sys/fs/cgroup/job/memory.max", "1000\n")
        .write("sys/fs/cgroup/job/memory.current", "10\n")
        .write("sys/fs/cgroup/job/memory.stat", "inactive_file 5\n");
    tree
}

/// Bytes put in place of others, which keeps most of a file's form.
fn damaged(mut text: Vec<u8>, place: u16, bytes: &[u8]) -> Vec<u8> {
    let start = usize::from(place) % (text.len() + 1);
    let end = (start + bytes.len()).min(text.len());
    text.splice(start..end, bytes.iter().copied());
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn damage_in_any_file_is_no_panic(
        which in 0..PLACES.len(),
        place in any::<u16>(),
        bytes in proptest::collection::vec(proptest::prop_oneof![
            any::<u8>(),
            proptest::sample::select(b"0123456789 :/.-)(\n\\,".to_vec()),
        ], 1..40),
    ) {
        let tree = tree();
        let path = tree.path().join(PLACES[which]);
        let text = fs::read(&path).expect("a file of the tree");
        let mut sampler = tree.sampler(Some(10));
        fs::write(&path, damaged(text, place, &bytes)).expect("a file of the tree");
        let (sample, detail) = (sampler.fast(0.0), sampler.slow(0.0));
        prop_assert!(serde_json::to_string(&sample).is_ok() && serde_json::to_string(&detail).is_ok());
    }
}
