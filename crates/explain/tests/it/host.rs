//! The machine's memory: who ended whom, at whose limit, and what is advised for it.

use lowtide_explain::{Cause, Context, Lever, Source, Verdict, explain};

fn verdict(log: &str) -> Verdict {
    let mut verdicts = explain(log.as_bytes(), &Context::default());
    assert_eq!(verdicts.len(), 1, "{log}");
    verdicts.remove(0)
}

#[track_caller]
fn says(verdict: &Verdict, words: &str) {
    assert!(verdict.evidence.iter().any(|text| text.contains(words)), "{words}: {:?}", verdict.evidence);
}

const BEGINNING: &str = "[8.1] python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=979\n";
const USAGE: &str = "[8.1] memory: usage 33554432kB, limit 33554432kB, failcnt 88121\n";
const CONSTRAINT: &str = "[8.2] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/kubepods/y,\
    task_memcg=/kubepods/y,task=python3,pid=77,uid=0\n";
const END: &str =
    "[8.3] Memory cgroup out of memory: Killed process 77 (python3) total-vm:88213120kB, anon-rss:31011224kB\n";

#[test]
fn a_report_of_a_group_is_of_its_limit() {
    let far = "[8.1] [ 77] 0 77 22053280 8328423 73953280 0 979 python3\n".repeat(300);
    for log in [
        format!("{BEGINNING}{USAGE}{END}"),
        format!("{BEGINNING}{CONSTRAINT}"),
        format!("{BEGINNING}{far}{CONSTRAINT}{END}"),
        format!("{BEGINNING}{USAGE}"),
    ] {
        let found = verdict(&log);
        assert_eq!((found.source, found.advice[0].lever), (Source::Cgroup, Lever::RaiseLimit), "{log}");
        assert!(found.contributing.contains(&Cause::Limit), "{log}");
    }
    let whole = verdict(&format!(
        "{BEGINNING}[8.3] Out of memory: Killed process 77 (chrome) total-vm:1kB, anon-rss:3145728kB\n"
    ));
    assert_eq!((whole.source, whole.advice[0].lever), (Source::Kernel, Lever::MoreMemory));
    says(&whole, "it ended process 77 (chrome), which held 3.00 GiB");
}

#[test]
fn who_gives_the_memory_is_asked_for_more() {
    for (log, words, not) in [
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.batch.\n", "--mem-per-cpu", "Kubernetes"),
        ("    Reason:       OOMKilled\n", "resources.limits.memory", "Slurm"),
        (CONSTRAINT, "resources.limits.memory", "Slurm"),
    ] {
        let text = &verdict(log).advice[0].text;
        assert!(text.contains(words) && !text.contains(not), "{text}");
    }
}

#[test]
fn who_else_ends_processes_is_named() {
    for (log, words) in [
        (
            "box systemd-oomd[812]: Killed /user.slice/a.scope due to memory pressure for /user.slice being 72.10% > 50.00%\n",
            "systemd-oomd",
        ),
        ("earlyoom[7]: sending SIGTERM to process 63 uid 1000 \"python3\": badness 748, VmRSS 5384 MiB\n", "earlyoom"),
    ] {
        says(&verdict(log), &format!("{words} ended"));
    }
}

#[test]
fn a_node_that_ray_watches_has_no_limit_of_a_job() {
    let found = verdict(
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node (IP: 10.0.0.5, \
         ID: 0a1b) where the task (task ID: 32d0, name=fit, pid=91, memory used=41.20GB) was running was 59.00GB / 62.00GB (0.95), \
         which exceeds the memory usage threshold of 0.95. Ray killed this worker because it was the most recently scheduled task.\n",
    );
    assert_eq!((found.contributing.len(), found.advice[0].lever), (0, Lever::FewerJobs));
    assert!(found.certainty > 0.9, "{}", found.certainty);
    says(&found, "59.00 GiB of the 62.00 GiB of the machine were in use");
}

#[test]
fn what_nccl_shares_is_of_no_data_worker() {
    let found = verdict("NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Rz3x1q (size 9637888)\n");
    assert_eq!((found.phase, found.advice[0].lever), (None, Lever::SharedMemory));
    assert!(found.advice.iter().all(|advice| advice.lever != Lever::FewerWorkers), "{:?}", found.advice);
}

#[test]
fn processes_that_map_rows_have_settings_of_their_own() {
    let log = "  File \"train.py\", line 33, in main\n    tok = ds.map(tokenize, num_proc=16)\nRuntimeError: One of the subprocesses \
               has abruptly died during map operation.To debug the error, disable multiprocessing.\n";
    let found = verdict(log);
    assert_eq!((found.advice[0].lever, &*found.advice[0].also), (Lever::FewerWorkers, &[Lever::SmallerWriter][..]));
    assert!(found.advice[0].text.contains("num_proc 4 instead of 16"), "{}", found.advice[0].text);
}

#[test]
fn a_reader_is_known_through_what_is_compiled() {
    let log = "Traceback (most recent call last):\n  File \"train.py\", line 21, in <module>\n    df = pd.read_csv(\"a.csv\")\n\
               \x20 File \"pandas/_libs/parsers.pyx\", line 808, in pandas._libs.parsers.TextReader.read_low_memory\n\
               \x20 File \"pandas/_libs/parsers.pyx\", line 866, in pandas._libs.parsers.TextReader._read_rows\n\
               \x20 File \"pandas/_libs/parsers.pyx\", line 1973, in pandas._libs.parsers.raise_parser_error\n\
               pandas.errors.ParserError: Error tokenizing data. C error: out of memory\n";
    assert_eq!(verdict(log).advice[0].lever, Lever::SmallerDataCache);
}

#[test]
fn a_bare_kill_names_what_would_tell() {
    let found = verdict("python train.py\nKilled\n");
    assert!(found.certainty < 0.5 && found.possibilities[0].test.contains("dmesg"), "{found:?}");
}

#[test]
fn windows_has_no_ulimit() {
    let log = "  File \"C:\\Users\\a\\train.py\", line 3, in <module>\n    x = model(y)\nRuntimeError: [enforce fail at \
               ..\\c10\\core\\impl\\alloc_cpu.cpp:72] data. DefaultCPUAllocator: not enough memory: you tried to allocate 1213857792 \
               bytes.\n";
    let found = verdict(log);
    let advice = found.advice.iter().map(|advice| &advice.text);
    assert!(found.evidence.iter().chain(advice).all(|text| !text.contains("ulimit")), "{found:?}");
}
