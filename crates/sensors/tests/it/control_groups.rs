//! Limits of control groups, from made-up trees.

use crate::kit::Tree;
use lowtide_sensors::{Cause, Cgroup, CgroupVersion, Host, HostSampler};

const V2_MOUNT: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const V1_MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
const V1_GROUPS: &str = "9:name=systemd:/\n4:memory:/jobs/17\n1:cpu,cpuacct:/\n0::/\n";
const UNLIMITED: &str = "9223372036854771712\n";

fn tree(mounts: &str, groups: &str) -> Tree {
    let tree = Tree::new();
    tree.write("proc/self/mountinfo", mounts).write("proc/self/cgroup", groups);
    tree
}

fn cgroup(tree: &Tree) -> Cgroup {
    tree.sampler(None).fast(0.0).cgroup.known().cloned().expect("a control group")
}

#[track_caller]
fn check(tree: &Tree, limit: Option<u64>, by: Option<&str>, used: Option<u64>, left: Option<u64>) {
    let group = cgroup(tree);
    let seen = (group.limit_bytes, group.limited_by.as_deref(), group.used_bytes, group.left_bytes);
    assert_eq!(seen, (limit, by, used, left));
}

#[test]
fn v2_takes_the_least_limit_of_all_ancestors() {
    let tree = tree(V2_MOUNT, "0::/user/job/step\n");
    tree.write("sys/fs/cgroup/user/job/step/memory.max", "max\n")
        .write("sys/fs/cgroup/user/job/step/memory.current", "100\n")
        .write("sys/fs/cgroup/user/job/memory.max", "4000\n")
        .write("sys/fs/cgroup/user/job/memory.current", "300\n")
        .write("sys/fs/cgroup/user/memory.max", "9000\n")
        .write("sys/fs/cgroup/user/memory.current", "8900\n");
    // The grandparent has the larger limit and less left of it.
    check(&tree, Some(4000), Some("/user/job"), Some(300), Some(100));
    assert_eq!(cgroup(&tree).version, CgroupVersion::V2);
    assert_eq!(cgroup(&tree).path, "/user/job/step");
    tree.write("sys/fs/cgroup/user/job/step/memory.max", "2000\n");
    check(&tree, Some(2000), Some("/user/job/step"), Some(100), Some(100));
}

#[test]
fn v2_without_limits_tells_the_own_use() {
    let tree = tree(V2_MOUNT, "0::/job\n");
    tree.write("sys/fs/cgroup/job/memory.max", "max\n").write("sys/fs/cgroup/job/memory.current", "77\n");
    check(&tree, None, None, Some(77), None);
}

#[test]
fn v2_at_the_root_has_no_files_and_no_limit() {
    check(&tree(V2_MOUNT, "0::/\n"), None, None, None, None);
}

#[test]
fn v1_takes_the_least_limit_of_all_ancestors() {
    let tree = tree(V1_MOUNTS, V1_GROUPS);
    tree.write("sys/fs/cgroup/memory/jobs/17/memory.limit_in_bytes", UNLIMITED)
        .write("sys/fs/cgroup/memory/jobs/17/memory.usage_in_bytes", "100\n")
        .write("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "5000\n")
        .write("sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", "1000\n")
        .write("sys/fs/cgroup/memory/memory.limit_in_bytes", UNLIMITED)
        .write("sys/fs/cgroup/memory/memory.usage_in_bytes", "99999\n");
    check(&tree, Some(5000), Some("/jobs"), Some(1000), Some(4000));
    assert_eq!(cgroup(&tree).version, CgroupVersion::V1);
}

#[test]
fn v1_inside_a_container_sees_limits_that_are_not_mounted() {
    let mounts = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
    let tree = tree(mounts, "4:memory:/docker/abc\n");
    tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", UNLIMITED)
        .write("sys/fs/cgroup/memory/memory.usage_in_bytes", "100\n")
        .write("sys/fs/cgroup/memory/memory.stat", "cache 5\nhierarchical_memory_limit 3000\ntotal_inactive_file 40\n");
    check(&tree, Some(3000), None, Some(100), Some(2900));
    let inactive = tree.sampler(None).slow(0.0).cgroup_inactive_file_bytes;
    assert_eq!(inactive.known(), Some(&40));
    tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "3000\n");
    check(&tree, Some(3000), Some("/"), Some(100), Some(2900));
}

#[test]
fn a_container_sees_its_own_part_of_the_hierarchy() {
    let mounts = "30 23 0:26 /pods/a /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
    // Told from the top, told from the namespace's root, and of a process outside of it.
    for (path, folder) in [("/pods/a/work", "/work"), ("/", ""), ("/pods/abc", ""), ("/../b", ""), ("/pods/a/../b", "")]
    {
        let tree = tree(mounts, &format!("0::{path}\n"));
        // What `/pods/abc` less `/pods/a` would lead to.
        tree.write("sys/fs/cgroup/bc/memory.max", "1\n");
        tree.write(&format!("sys/fs/cgroup{folder}/memory.max"), "800\n")
            .write(&format!("sys/fs/cgroup{folder}/memory.current"), "300\n");
        let name = if folder.is_empty() { "/" } else { folder };
        check(&tree, Some(800), Some(name), Some(300), Some(500));
    }
}

#[test]
fn a_mount_with_a_blank_in_its_name() {
    let tree = tree("30 23 0:26 / /sys/my\\040groups rw - cgroup2 cgroup2 rw\n", "0::/a b\n");
    tree.write("sys/my groups/a b/memory.max", "10\n").write("sys/my groups/a b/memory.current", "4\n");
    check(&tree, Some(10), Some("/a b"), Some(4), Some(6));
}

#[test]
fn the_watched_process_counts_not_this_one() {
    let tree = tree(V2_MOUNT, "0::/watcher\n");
    tree.process(10, 1, "train", 100).write("proc/10/cgroup", "0::/run\n");
    tree.write("sys/fs/cgroup/run/memory.max", "500\n").write("sys/fs/cgroup/run/memory.current", "1\n");
    let sample = tree.sampler(Some(10)).fast(0.0);
    assert_eq!(sample.cgroup.known().and_then(|group| group.limit_bytes), Some(500));
}

#[test]
fn a_use_above_the_limit_leaves_nothing() {
    let tree = tree(V2_MOUNT, "0::/job\n");
    tree.write("sys/fs/cgroup/job/memory.max", "100\n").write("sys/fs/cgroup/job/memory.current", "120\n");
    check(&tree, Some(100), Some("/job"), Some(120), Some(0));
}

#[test]
fn malformed_files_are_no_limits() {
    let tree = tree(V2_MOUNT, "0::/a/b\n");
    tree.write("sys/fs/cgroup/a/b/memory.max", "lots\n")
        .write("sys/fs/cgroup/a/b/memory.current", "-5\n")
        .write("sys/fs/cgroup/a/memory.max", "99999999999999999999999\n");
    check(&tree, None, None, None, None);
}

#[test]
fn no_memory_controller_is_a_value() {
    for (mounts, groups) in
        [("", "0::/\n"), (V2_MOUNT, ""), (V2_MOUNT, "rubbish\n::\n0:\n"), ("rubbish - \n - cgroup2", "0::/\n")]
    {
        let sample = tree(mounts, groups).sampler(None).fast(0.0);
        assert_eq!(sample.cgroup.missing().map(|missing| missing.cause), Some(Cause::Absent), "{mounts:?} {groups:?}");
    }
}

#[test]
fn a_limit_that_changes_is_seen_by_the_next_sample() {
    let tree = tree(V2_MOUNT, "0::/job\n");
    tree.write("sys/fs/cgroup/job/memory.max", "100\n").write("sys/fs/cgroup/job/memory.current", "10\n");
    let mut sampler = tree.sampler(None);
    sampler.fast(0.0);
    tree.write("sys/fs/cgroup/job/memory.max", "50\n");
    assert_eq!(sampler.fast(0.5).cgroup.known().and_then(|group| group.limit_bytes), Some(50));
}

#[track_caller]
fn check_host(tree: &Tree, used_bytes: u64, total_bytes: u64) {
    let host = HostSampler::new(tree.path().to_owned()).read();
    assert_eq!(host, Ok(Host { used_bytes, total_bytes }));
}

#[test]
fn the_host_is_the_group_where_that_has_less() {
    let tree = tree(V2_MOUNT, "0::/job\n");
    check_host(&tree, 32 << 30, 64 << 30);
    tree.write("sys/fs/cgroup/job/memory.max", "max\n").write("sys/fs/cgroup/job/memory.current", "777\n");
    check_host(&tree, 32 << 30, 64 << 30);
    tree.write("sys/fs/cgroup/job/memory.max", "5000\n");
    check_host(&tree, 777, 5000);
    tree.write("sys/fs/cgroup/job/memory.stat", "anon 100\ninactive_file 77\n");
    check_host(&tree, 700, 5000);
    let more_than_there_is = (65u64 << 30).to_string();
    tree.write("sys/fs/cgroup/job/memory.max", &more_than_there_is);
    check_host(&tree, 32 << 30, 64 << 30);
}

#[test]
fn kills_are_counted_by_the_own_group() {
    let tree = tree(V2_MOUNT, "0::/job\n");
    let kills = || HostSampler::new(tree.path().to_owned()).oom_kills();
    assert_eq!(kills().expect_err("nothing counts").cause, Cause::Absent);
    tree.write("sys/fs/cgroup/job/memory.events", "low 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 7\n");
    assert_eq!(kills(), Ok(2));
    tree.write("proc/self/mountinfo", V1_MOUNTS).write("proc/self/cgroup", V1_GROUPS);
    tree.write("sys/fs/cgroup/memory/jobs/17/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
    assert_eq!(kills(), Ok(5));
    tree.write("sys/fs/cgroup/memory/jobs/17/memory.oom_control", "oom_kill_disable 0\n");
    assert_eq!(kills().expect_err("an old kernel").cause, Cause::Malformed);
}
