//! Every figure of every message in the collection, by hand: what the text gives is read, what it does not give is absent.

use lowtide_oom::{Place, read};
use serde_json::{Map, Value, json};

/// A figure printed with two decimals, to the nearest byte: `14.06 GiB` is `gib(14, 6)`.
fn gib(whole: u64, hundredths: u64) -> u64 {
    (((whole * 100 + hundredths) << 30) + 50) / 100
}

fn mib(whole: u64, hundredths: u64) -> u64 {
    (((whole * 100 + hundredths) << 20) + 50) / 100
}

fn kib(count: u64) -> u64 {
    count << 10
}

/// The message's figures and processes: every field but those that name things, without the absent ones.
fn figures_of(text: &str) -> Value {
    let Some(oom) = read(text) else { return Value::Null };
    let Value::Object(fields) = serde_json::to_value(oom).expect("an Oom is JSON") else {
        unreachable!("an Oom is an object")
    };
    let names = ["engine", "source", "place", "certainty", "device_kind"];
    let given = fields
        .into_iter()
        .filter(|(name, value)| !names.contains(&name.as_str()) && !value.is_null() && *value != json!([]));
    Value::Object(given.collect::<Map<_, _>>())
}

fn process(pid: u32, used: u64) -> Value {
    json!([{ "pid": pid, "name": null, "used": used }])
}

fn expected(id: &str) -> Value {
    match id {
        "pt15_reserved" => json!({
            "device": 0, "requested": mib(20, 0), "capacity": gib(11, 17), "allocated": gib(7, 57), "free": mib(18, 25), "reserved": gib(7, 74),
        }),
        "pt110_split" => json!({
            "device": 0, "requested": mib(20, 0), "capacity": gib(3, 95), "allocated": gib(3, 16), "free": mib(2, 69), "reserved": gib(3, 19),
        }),
        "pt21_capacty" => json!({
            "device": 0, "requested": mib(496, 0), "capacity": gib(14, 75), "free": mib(235, 6), "processes": process(20398, gib(14, 52)),
            "allocated": gib(14, 6), "reserved_unallocated": mib(330, 42),
        }),
        "pt21_wsl_bogus" => json!({
            "device": 0, "requested": gib(30, 0), "capacity": gib(15, 99), "free": 0, "allocated": gib(30, 0), "reserved_unallocated": 0,
        }),
        "pt26_nonpt" => json!({
            "device": 0, "requested": mib(14, 0), "capacity": gib(21, 98), "free": mib(2, 44), "in_use": gib(21, 96), "allocated": gib(21, 67),
            "reserved_unallocated": mib(9, 24),
        }),
        "pt_private_pools" => json!({
            "device": 0, "requested": mib(546, 0), "capacity": gib(15, 77), "free": mib(514, 19), "processes": process(562167, gib(15, 25)),
            "allocated": gib(13, 73), "private_pools": mib(46, 0), "reserved_unallocated": mib(736, 86),
        }),
        "hip_29_allowed" => json!({
            "device": 0, "requested": mib(2, 0), "capacity": gib(255, 98), "free": gib(244, 65), "limit": gib(1, 5), "allocated": mib(1017, 1),
            "private_pools": mib(17, 0), "reserved_unallocated": mib(54, 99),
        }),
        "mps_gb" => json!({
            "requested": mib(768, 0), "allocated": gib(5, 56), "outside_allocator": gib(1, 10), "in_use": gib(5, 56) + gib(1, 10),
            "limit": gib(6, 80),
        }),
        "xpu" => json!({
            "device": 0, "requested": gib(8, 11), "capacity": gib(16, 54), "free": gib(16, 54), "limit": gib(8, 27), "allocated": 0,
            "reserved_unallocated": 0,
        }),
        "npu" => json!({
            "device": 3, "requested": gib(5, 3), "capacity": gib(60, 96), "allocated": gib(49, 47), "free": gib(1, 32), "reserved": gib(57, 55),
        }),
        "cpu_12" => json!({ "requested": 359_661_568_u64 }),
        "cpu_new" => json!({ "requested": 132_426_121_216_u64 }),
        "jax_exec" => json!({ "requested": 4_770_354_232_u64 }),
        "jax_bfc_log" => json!({ "device": 0, "requested": 1_374_521_760_000_u64 }),
        "xla_tpu" => json!({ "requested": gib(6, 48), "free": gib(6, 78) }),
        "tf_stream" => json!({ "requested": 19_104_890_880_u64 }),
        "cupy_new" => json!({ "requested": 25_600_000, "allocated": 3_635_267_072_u64 }),
        "cubecl_cuda" => json!({ "requested": 3_595_479_680_u64 }),
        "dmesg_memcg" => {
            let resident = kib(3_124_824 + 76);
            json!({ "in_use": resident, "processes": [{ "pid": 2_434_089, "name": "python", "used": resident }] })
        }
        "dmesg_old" => {
            let resident = kib(45_563_572);
            json!({ "in_use": resident, "processes": [{ "pid": 18_177, "name": "palo_be", "used": resident }] })
        }
        "slurm_old" => json!({ "in_use": kib(626_359_956), "limit": kib(512_000_000) }),
        "dl_killed" => json!({ "processes": [{ "pid": 19_597, "name": null, "used": null }] }),
        "dl_bus" => json!({ "processes": [{ "pid": 11_011, "name": null, "used": null }] }),
        "vllm_kv_cache" => json!({ "requested": 18_u64 << 30, "free": 4_u64 << 30 }),
        id if id.starts_with("trap_") => Value::Null,
        _ => json!({}),
    }
}

#[test]
fn figures_are_read_exactly() {
    for line in include_str!("../fixtures/messages.jsonl").lines() {
        let message: Value = serde_json::from_str(line).expect("a line of JSON");
        let id = message["id"].as_str().expect("id");
        let text = message["text"].as_str().expect("text");
        assert_eq!(figures_of(text), expected(id), "{id}");
        if id == "pt_async_short" {
            // Told by its class, or by being the whole line.
            continue;
        }
        let wrapped = format!("[rank0]: Error: \u{1b}[31m{text}\u{1b}[0m\n\nEpoch 3: 1.25 GiB free; 7 GiB is free\n");
        assert_eq!(figures_of(&wrapped), expected(id), "{id}, in a log");
    }
}

#[test]
fn lines_wrapped_by_a_terminal_are_read_whole() {
    for line in include_str!("../fixtures/messages.jsonl").lines() {
        let message: Value = serde_json::from_str(line).expect("a line of JSON");
        let text = message["text"].as_str().expect("text");
        if text.starts_with("CUDA out of memory. Tried to allocate") {
            let wrapped = text
                .replace(" has a total ", " has a\ntotal ")
                .replace(" is reserved ", "\n  is reserved ")
                .replace("; ", ";\n");
            assert_eq!(figures_of(&wrapped), figures_of(text), "{wrapped}");
        }
    }
}

#[test]
fn what_the_text_does_not_give_can_be_derived() {
    let text = "CUDA out of memory. Tried to allocate 3.95 GiB (GPU 0; 15.82 GiB total capacity; 6.00 GiB already allocated; 1.00 GiB free; 7.50 GiB reserved in total by PyTorch)";
    let oom = read(text).expect("an OOM");
    assert_eq!(oom.reserved_unallocated, None);
    assert_eq!(oom.reserved_unallocated_or_derived().map(|bytes| bytes.get()), Some(gib(1, 50)));
}

#[test]
fn figures_of_other_lines_are_not_taken() {
    let error = "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 11.17 GiB total capacity; 7.57 GiB already \
                 allocated; 18.25 MiB free)";
    let alone = figures_of(error);
    for below in ["INFO data: 5.00 GiB cached in RAM", "5.00 GiB cached in RAM", "skipping batch (GPU 3; step 12)"] {
        assert_eq!(figures_of(&format!("{error}\n{below}")), alone, "{below}");
    }
    let short = "CUDA out of memory. Tried to allocate 20.00 MiB";
    assert_eq!(figures_of(&format!("{short}\nskipping batch (epoch 3; step 12)")), figures_of(short));
    let xla = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.";
    for below in ["E0501 worker.py:12] task failed on host t1v-n-123", "/data has 512.0 GB free"] {
        let text = format!("{xla}\n{below}");
        assert_eq!(figures_of(&text), figures_of(xla), "{below}");
        assert_eq!(read(&text).map(|oom| oom.place), Some(Place::Device), "{below}");
    }
    let bare = "Error: out of memory";
    assert_eq!(figures_of(&format!("{bare}\nINFO downloader: allocating 3 GiB")), figures_of(bare));
}
