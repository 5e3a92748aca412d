//! A command that the kernel ends for want of memory, in a real control group where this user may make one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use lowtide_testkit::Printout;
use serde_json::json;

use super::kit::Place;

const EAT: &str = "import sys\nmicro = int(sys.argv[1].split('=')[1])\n\
                   held = [bytearray(b'x' * (1 << 20)) for _ in range(micro * 32)]\nprint('held', len(held))\n";

/// A group with a limit; removed when this goes.
struct Group(PathBuf);

impl Group {
    /// `None` where none can be made.
    fn with_limit(bytes: &str) -> Option<Group> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let v1 = own.lines().find_map(|line| line.split_once(":memory:"));
        let (parent, file) = match v1 {
            Some((_, path)) => (format!("/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes"),
            None => (format!("/sys/fs/cgroup{}", own.lines().find_map(|line| line.strip_prefix("0::"))?), "memory.max"),
        };
        let group = Group(Path::new(&parent).join(format!("lowtide-test-{}", process::id())));
        fs::create_dir(&group.0).ok()?;
        fs::write(group.0.join(file), bytes).ok()?;
        // Joining may be refused where making is not.
        let joins = format!("echo $$ > {}", group.0.join("cgroup.procs").display());
        Command::new("sh").args(["-c", &joins]).output().ok()?.status.success().then_some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_kill_by_the_kernel_is_told_from_others() {
    let Some(group) = Group::with_limit("209715200") else {
        eprintln!("SKIPPED: no control group with a memory limit can be made here");
        return;
    };
    let place = Place::with("eat.py", EAT);
    let run = "echo $$ > $GROUP/cgroup.procs && exec $LOWTIDE run --retry-with '--bs={micro} --accum={accum}' -- \
               python3 eat.py --bs=16";
    let mut command = Command::new("sh");
    command.args(["-c", run]).current_dir(place.path(""));
    command.env("GROUP", &group.0).env("LOWTIDE", env!("CARGO_BIN_EXE_lowtide"));
    let ran = Printout::of(command.output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let story = place.story("runs/eat-1");
    let first = &story["starts"][0];
    assert_eq!((&first["outcome"], &first["end"]), (&json!("out_of_memory"), &json!({"signal": 9})));
    assert_eq!(first["evidence"], json!({"control_group": {"kills": 1, "limit_bytes": 209_715_200}}));
    let cause = "the kernel killed a process of the command: its control group (container or job) reached its memory limit \
                 of 200.00 MiB";
    assert_eq!(first["cause"], cause);
    // The same log says the same to whoever reads it alone.
    let explained = Command::new(env!("CARGO_BIN_EXE_lowtide"))
        .args(["explain", "runs/eat-1/start-1.log"])
        .current_dir(place.path(""))
        .output();
    let explained = Printout::of(explained.unwrap());
    assert!(explained.stdout.contains("control group"), "{explained:?}");
    assert_eq!((&story["ending"], &story["effective_batch"]), (&json!("finished"), &json!(16)));
}
