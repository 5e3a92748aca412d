//! Tensors on their way to the device.

use std::fs;

use lowtide_torch::tch::{Device, Kind, Tensor, no_grad};
use lowtide_torch::{Profiler, ahead, cuda, upload, use_own_stream};
use serde_json::Value;

use super::{GPU, gpu};

/// Numbers that go over while the device has much to do are those that were sent, though their memory is used again and again.
#[test]
#[ignore = "needs a GPU"]
fn what_goes_ahead_arrives_before_it_is_used() {
    let _turn = gpu();
    use_own_stream(0).unwrap();
    let (length, rounds) = (1 << 20, 64);
    let square = Tensor::randn([2048, 2048], (Kind::Float, GPU));
    let sums = Tensor::zeros([rounds], (Kind::Int64, GPU));
    let sent = |round: i64| ahead(|| upload(&Tensor::full([length], round, (Kind::Int64, Device::Cpu)), GPU));
    // The first product takes room to work in, for good.
    let _ = square.matmul(&square);
    let before = cuda::stats(0).unwrap().allocated;
    no_grad(|| {
        let mut now = sent(0);
        for round in 0..rounds {
            let _ = square.matmul(&square);
            sums.get(round).copy_(&now.sum(Kind::Int64));
            now = sent(round + 1);
        }
    });
    let found: Vec<i64> = Vec::try_from(&sums).unwrap();
    let wanted: Vec<i64> = (0..rounds).map(|round| round * length).collect();
    assert_eq!(found, wanted);
    cuda::empty_cache().unwrap();
    assert_eq!(cuda::stats(0).unwrap().allocated, before, "the allocator has all of it back");
}

/// The copy is done while the device is still busy with what was asked of it before.
#[test]
#[ignore = "needs a GPU"]
fn what_goes_ahead_does_not_wait_for_work() {
    let _turn = gpu();
    use_own_stream(0).unwrap();
    let square = Tensor::randn([8192, 8192], (Kind::Float, GPU));
    let numbers = Tensor::ones([1 << 20], (Kind::Float, Device::Cpu));
    let copy_and_work = |is_ahead: bool| {
        let path = std::env::temp_dir().join(format!("lowtide-transfer-{}.json", std::process::id()));
        let profiler = Profiler::begin(GPU).unwrap();
        for _ in 0..8 {
            let _ = square.matmul(&square);
        }
        let there = if is_ahead { ahead(|| upload(&numbers, GPU)) } else { upload(&numbers, GPU) };
        assert_eq!(there.sum(Kind::Double).double_value(&[]), f64::from(1 << 20));
        profiler.end(&path).unwrap();
        let trace: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        fs::remove_file(&path).unwrap();
        let ends = |category: &str, name: &str| {
            let events = trace["traceEvents"].as_array().unwrap().iter();
            let named =
                events.filter(|event| event["cat"] == category && event["name"].as_str().unwrap().contains(name));
            named.map(|event| event["ts"].as_f64().unwrap() + event["dur"].as_f64().unwrap()).reduce(f64::max)
        };
        (ends("gpu_memcpy", "HtoD").expect("a copy"), ends("kernel", "gemm").expect("products"))
    };
    // What is used for the first time takes its time here.
    copy_and_work(true);
    let (copied, worked) = copy_and_work(true);
    assert!(copied < worked, "copied by {copied}, worked until {worked}");
    let (copied, worked) = copy_and_work(false);
    assert!(copied > worked, "in the stream of the work: copied by {copied}, worked until {worked}");
}
