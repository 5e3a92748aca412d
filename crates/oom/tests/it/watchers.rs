//! Whoever ends a process for its memory, with the figures he gives: YARN, Kubernetes, earlyoom, systemd, parts of a card; and languages whose heaps have
//! limits.

use lowtide_oom::{Certainty, Engine, LookAlike, Oom, Place, Source, look_alike, read};

const GIB: f64 = (1_u64 << 30) as f64;

fn found(text: &str) -> Oom {
    read(text).unwrap_or_else(|| panic!("not read: {text}"))
}

fn gib(bytes: Option<lowtide_core::Bytes>) -> Option<f64> {
    bytes.map(|bytes| (bytes.get() as f64 / GIB * 100.0).round() / 100.0)
}

#[test]
fn containers_of_yarn_have_their_figures() {
    let counted = "Current usage: 8.1 GB of 8 GB physical memory used; 10.2 GB of 16.8 GB virtual memory used. Killing container.";
    for text in [
        format!("Container [pid=7,containerID=container_1_01_000002] is running beyond physical memory limits. {counted}"),
        format!("Container [pid=7,containerID=container_1] is running 107374182B beyond the 'PHYSICAL' memory limit. {counted}"),
        format!("Container [pid=7,containerID=container_1] is running 0.1GB beyond the 'PHYSICAL' memory limit. {counted}"),
        "(executor 3 exited caused by one of the running tasks) Reason: Container killed by YARN for exceeding memory limits. 8.1 GB of 8 \
         GB physical memory used. Consider boosting spark.yarn.executor.memoryOverhead."
            .to_owned(),
        "Container killed by YARN for exceeding physical memory limits. 8.1 GB of 8 GB physical memory used.".to_owned(),
    ] {
        let oom = found(&text);
        let all = (oom.engine, oom.source, gib(oom.in_use), gib(oom.limit));
        assert_eq!(all, (Engine::Spark, Source::Scheduler, Some(8.1), Some(8.0)), "{text}");
    }
    let oom = found(
        "Container [pid=7] is running beyond virtual memory limits. Current usage: 1.2 GB of 2 GB physical memory used; 5.2 GB of 4.2 GB \
         virtual memory used. Killing container.",
    );
    assert_eq!((gib(oom.in_use), gib(oom.limit)), (Some(5.2), Some(4.2)));
}

#[test]
fn a_node_evicts_for_memory_and_for_its_disk() {
    let oom = found(
        "The node was low on resource: memory. Container proxy was using 50Mi, request is 0. Container trainer was using 31Gi, request \
         is 8Gi",
    );
    assert_eq!((oom.engine, oom.source, gib(oom.in_use)), (Engine::Kubernetes, Source::Scheduler, Some(31.0)));
    for text in [
        "The node was low on resource: ephemeral-storage. Container trainer was using 31Gi, request is 0",
        "Pod ephemeral local storage usage exceeds the total limit of containers 10Gi.",
        "The node had condition: [DiskPressure].",
    ] {
        assert_eq!((read(text), look_alike(text)), (None, Some(LookAlike::DiskFull)), "{text}");
    }
}

#[test]
fn earlyoom_names_its_victim_in_every_form() {
    for (text, pid, used) in [
        ("sending SIGTERM to process 1234 \"python\": badness 900, VmRSS 20480 MiB", 1234, Some(20.0)),
        ("sending SIGKILL to process 77 uid 1000 \"python3\": badness 748, VmRSS 5120 MiB", 77, Some(5.0)),
        ("Out of memory! Killing pid 1234 python", 1234, None),
    ] {
        let oom = found(text);
        let victim = &oom.processes[0];
        assert!(victim.name.as_ref().is_some_and(|name| name.starts_with("python")), "{text}");
        assert_eq!((oom.source, victim.pid, gib(victim.used)), (Source::Kernel, pid, used), "{text}");
    }
    assert_eq!(found("low memory! at or below SIGTERM limits: mem 10 %, swap 10 %").source, Source::Kernel);
    assert_eq!(read("sending SIGTERM to process 1234"), None);
}

#[test]
fn a_unit_of_systemd_does_not_say_whose_limit_it_was() {
    for text in [
        "systemd[1]: train.service: A process of this unit has been killed by the OOM killer.",
        "systemd[1]: train.service: Failed with result 'oom-kill'.",
    ] {
        assert_eq!(found(text).certainty, Certainty::Likely, "{text}");
    }
}

#[test]
fn heaps_with_limits_name_them() {
    for (text, engine, requested, limit) in [
        ("Error: vector memory exhausted (limit reached?)", Engine::R, None, None),
        ("Error: vector memory limit of 16.0 Gb reached, see mem.maxVSize()", Engine::R, None, Some(16.0)),
        (
            "Requested 100000x100000 (74.5GB) array exceeds maximum array size preference (16.0GB).",
            Engine::Matlab,
            Some(74.5),
            Some(16.0),
        ),
        ("Out of memory. Type \"help memory\" for your options.", Engine::Matlab, None, None),
        ("ERROR: LoadError: OutOfMemoryError()", Engine::Julia, None, None),
    ] {
        let oom = found(text);
        assert_eq!((oom.engine, gib(oom.requested), gib(oom.limit)), (engine, requested, limit), "{text}");
    }
}

#[test]
fn a_container_may_take_a_part_of_a_card() {
    let oom = found("[HAMI-core ERROR (pid:61 thread=14021 allocator.c:60)]: Device 1 OOM 9663676416 / 8589934592");
    assert_eq!((oom.engine, oom.source, oom.device), (Engine::Cuda, Source::Scheduler, Some(1)));
    assert_eq!((oom.place, gib(oom.limit)), (Place::Device, Some(8.0)));
    assert_eq!(read("[HAMI-core ERROR (pid:61 thread=14021 multiprocess.c:12)]: Device 1 is lost"), None);
}

#[test]
fn a_process_is_counted_once() {
    let oom = found(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of which 1.00 GiB \
         is free. Process 1234 has 10.00 GiB memory in use. Process 1234 has 9.00 GiB memory in use. Process 77 has 1.00 GiB memory in use. \
         Including non-PyTorch memory, this process has 1.60 GiB memory in use.",
    );
    let held: Vec<_> = oom.processes.iter().map(|process| (process.pid, gib(process.used))).collect();
    assert_eq!(held, [(1234, Some(10.0)), (77, Some(1.0))]);
}

#[test]
fn pools_of_other_cards_are_read() {
    let ascend = "[ERROR] PRE_ACT(54,ff,python):2024-10-22 [mem_dynamic_allocator.cc:392] AddMemBlock] TotalUsedMemStatistics : 21474836480 plus \
                  TotalUsedByEventMemStatistics : 0 and plus alloc size : 1073741824 is more than total mem size : 21474836480.";
    let oom = found(ascend);
    assert_eq!((oom.engine, oom.place), (Engine::Mindspore, Place::Device));
    assert_eq!((gib(oom.requested), gib(oom.allocated), gib(oom.capacity)), (Some(1.0), Some(20.0), Some(20.0)));
    for gaudi in [
        "RuntimeError: FATAL ERROR :: MODULE:SYNHELPER workspace Allocation of size ::3221225472 failed!",
        "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::3221225472 (3072)MB",
    ] {
        let oom = found(gaudi);
        assert_eq!((oom.place, gib(oom.requested)), (Place::Device, Some(3.0)), "{gaudi}");
    }
    assert_eq!(read("FATAL ERROR :: MODULE:PT_DEVMEM the card is not there"), None);
}

#[test]
fn ray_names_its_node_without_the_line_before() {
    let oom = found(
        "Memory on the node (IP: 10.0.0.7, ID: 70) where the task (actor ID: 0d, name=Worker.__init__, pid=308, memory used=11.15GB) was running was \
         12.49GB / 13.15GB (0.950003), which exceeds the memory usage threshold of 0.95. Ray killed this worker (ID: 79)",
    );
    assert_eq!((oom.engine, gib(oom.used), gib(oom.capacity)), (Engine::Ray, Some(12.49), Some(13.15)));
}

#[test]
fn a_state_of_a_job_is_told_from_a_list_of_them() {
    for text in [
        "12345.batch  python  gpu  acct  8 OUT_OF_ME+  0:125",
        "123,train,gpu,acct,8,OUT_OF_MEMORY,0:125",
        "Slurm Job_id=123 Name=train Failed, Run time 00:01:00, OUT_OF_MEMORY",
        "JobState=OUT_OF_MEMORY Reason=OutOfMemory Dependency=(null)",
    ] {
        let oom = found(text);
        assert_eq!((oom.engine, oom.source), (Engine::Slurm, Source::Cgroup), "{text}");
    }
    let oom = found(
        "job 123 exceeds job hard limit \"h_vmem\" of queue \"all.q@node01\" (34379685888.00000 > limit:34359738368.00000) - sending \
         SIGKILL",
    );
    assert_eq!((oom.source, gib(oom.in_use), gib(oom.limit)), (Source::Scheduler, Some(32.02), Some(32.0)));
}

#[test]
fn a_state_of_a_container_is_told_in_many_forms() {
    for text in [
        "train-n0-0   0/1     OOMKilled   0          126m",
        "task \"train\" state = \"failed\", reason = \"OOMKilled\"",
        "        Reason:       OOMKilled",
        "\"OOMKilled\": true,",
        "2024-05-01T10:00:00.1Z container oom 4f3a (image=train, name=a)",
        "Error R15 (Memory quota vastly exceeded)",
    ] {
        assert_eq!(found(text).source, Source::Cgroup, "{text}");
    }
}

#[test]
fn metal_s_own_status_is_of_whoever_gave_the_work() {
    let status = "(null)\tInsufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)";
    for (above, engine) in [
        ("[METAL] Command buffer execution failed: ", Engine::Mlx),
        ("The Metal Performance Shaders operations encoded on it may not have completed.\n", Engine::PyTorch),
        ("ggml_metal_graph_compute: command buffer 0 failed with status 5\n", Engine::Ggml),
        ("", Engine::Unknown),
    ] {
        let oom = found(&format!("{above}{status}"));
        assert_eq!((oom.engine, oom.place, oom.source), (engine, Place::Device, Source::Runtime), "{above}");
    }
}
