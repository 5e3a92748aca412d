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

#[test]
fn a_node_that_evicts_is_short_itself() {
    let found = verdict(
        "Warning  Evicted  2m  kubelet  The node was low on resource: memory. Container trainer was using 31Gi, request is 8Gi, has larger \
         consumption of memory.\n",
    );
    assert_eq!((&*found.contributing, found.advice[0].lever), (&[][..], Lever::MoreMemory));
    assert!(found.advice[0].text.contains("resources.requests.memory"), "{}", found.advice[0].text);
    says(&found, "evicted the pod because its node");
    says(&found, "the process held 31.00 GiB");
    says(&found, "its request was 8Gi");
    let whole = verdict(
        "Reason: Evicted\nMessage: The node was low on resource: memory. Container a was using 900Mi, request is 0\n",
    );
    assert!(whole.evidence.iter().all(|text| !text.contains("its request")), "{:?}", whole.evidence);
}

#[test]
fn a_heap_with_a_limit_of_its_own_is_named() {
    for (log, words, option) in [
        ("Exception in thread \"main\" java.lang.OutOfMemoryError: Java heap space\n", "Java heap", "-Xmx"),
        ("java.lang.OutOfMemoryError: Metaspace\n", "Java's memory for classes", "MaxMetaspaceSize"),
        (
            "ERROR Executor: Exception in task 3.0\njava.lang.OutOfMemoryError: GC overhead limit exceeded\n\tat \
             org.apache.spark.sql.UnsafeRow.copy(UnsafeRow.java:500)\n",
            "Spark heap",
            "spark.executor.memory",
        ),
        (
            "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory\n",
            "Node's heap",
            "--max-old-space-size",
        ),
        ("Error: vector memory limit of 16.0 Gb reached, see mem.maxVSize()\n", "R's own", "R_MAX_VSIZE"),
        (
            "Requested 100000x100000 (74.5GB) array exceeds maximum array size preference (16.0GB).\n",
            "MATLAB's limit",
            "Maximum array size",
        ),
    ] {
        let found = verdict(log);
        assert!(found.cause_words().contains(words), "{log}: {}", found.cause_words());
        assert_eq!(found.advice[0].lever, Lever::RaiseLimit, "{log}");
        assert!(found.advice[0].text.contains(option), "{log}: {}", found.advice[0].text);
        assert!(found.evidence.iter().all(|text| !text.contains("ulimit")), "{log}: {:?}", found.evidence);
    }
    // What the system refused to the JVM is the machine's.
    let system = verdict("java.lang.OutOfMemoryError: unable to create new native thread\n");
    assert_eq!(system.heap, None);
    let julia = verdict("ERROR: LoadError: OutOfMemoryError()\nStacktrace:\n [1] Array\n");
    says(&julia, "Julia was refused memory for its heap");
    // R says the same of its limit and of the machine.
    let both = verdict("Error: cannot allocate vector of size 3.4 Gb\n");
    assert!(both.cause_words().contains("or the machine"), "{}", both.cause_words());
}

#[test]
fn a_unit_that_lost_a_process_may_have_been_at_its_own_limit() {
    for log in [
        "systemd[1]: train.service: A process of this unit has been killed by the OOM killer.\nsystemd[1]: train.service: Failed with \
         result 'oom-kill'.\n",
        "systemd[1]: train.service: Failed with result 'oom-kill'.\n",
        "systemd-oomd[812]: Killed /user.slice/a.scope due to memory pressure for /user.slice being 72.10% > 50.00% for > 20s\n",
    ] {
        let found = verdict(log);
        assert!(found.certainty <= 0.6, "{log}: {}", found.certainty);
        let causes: Vec<Cause> = found.possibilities.iter().map(|it| it.cause).collect();
        assert_eq!(causes, [Cause::HostMemory, Cause::Limit], "{log}");
    }
    // The kernel's own line tells whose it was.
    let told = verdict(&format!("systemd[1]: train.service: Failed with result 'oom-kill'.\n{END}"));
    assert_eq!((told.source, told.possibilities.len()), (Source::Cgroup, 0));
    assert!(told.certainty > 0.9, "{}", told.certainty);
}

#[test]
fn a_container_of_yarn_has_its_figures() {
    let found = verdict(
        "Container [pid=7,containerID=container_1] is running 107374182B beyond the 'PHYSICAL' memory limit. Current usage: 8.1 GB of 8 GB \
         physical memory used; 10.2 GB of 16.8 GB virtual memory used. Killing container.\n",
    );
    says(&found, "8.10 GiB in use, 8.00 GiB allowed");
    says(&found, "YARN ended the container");
    assert!(found.contributing.contains(&Cause::Limit) && found.advice[0].lever == Lever::RaiseLimit);
}

#[test]
fn one_block_above_what_the_platform_allows_is_that_limit() {
    for figures in [
        "Tried to allocate 4.50 GiB (GPU 0; 15.56 GiB total capacity; 6.02 GiB already allocated; 6.10 GiB reserved in total by PyTorch)",
        "Tried to allocate 8.00 GiB",
        "Tried to allocate 4.50 GiB. GPU 0 has a total capacity of 15.56 GiB of which 1.00 GiB is free. Of the allocated memory 6.00 GiB is \
         allocated by PyTorch, and 5.00 GiB is reserved by PyTorch but unallocated.",
        "Tried to allocate 4.50 GiB. GPU 0 has a total capacity of 3.80 GiB of which 1.00 GiB is free.",
    ] {
        let log = format!(
            "RuntimeError: Current platform can NOT allocate memory block with size larger than 4GB! {figures}\n"
        );
        let found = verdict(&log);
        assert_eq!((found.cause, found.advice[0].lever), (Cause::Limit, Lever::RaiseLimit), "{log}");
        assert!(found.advice[0].text.contains("RELAXED_ALLOCATION"), "{log}");
        assert!(
            found.evidence[0].contains("GiB in one block, and the platform allows 4.00 GiB"),
            "{:?}",
            found.evidence
        );
    }
}

#[test]
fn memory_that_tensorflow_pins_has_a_limit() {
    let found = verdict(
        "Limit:                 34359738368\nInUse:                 34359738368\n\
         2026-03-01 10:00:00.0: W tensorflow/core/common_runtime/bfc_allocator.cc:273] Allocator (cuda_host_bfc) ran out of memory trying to allocate \
         3.72GiB.  Current allocation summary follows.\n",
    );
    assert_eq!((found.cause, found.advice[0].lever), (Cause::HostMemory, Lever::RaiseLimit));
    assert!(found.contributing.contains(&Cause::Limit));
    says(&found, "32.00 GiB allowed");
    assert!(found.advice[0].text.contains("TF_GPU_HOST_MEM_LIMIT_IN_MB"), "{}", found.advice[0].text);
}
