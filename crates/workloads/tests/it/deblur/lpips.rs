//! LPIPS against the Python package's own network, and as a figure of a run.

use std::fs;
use std::path::Path;

use lowtide_core::{Event, Metrics};
use lowtide_testkit::alone;
use lowtide_torch::tch::{Device, Tensor};
use lowtide_train::Summary;
use lowtide_workloads::CATALOGUE;
use lowtide_workloads::deblur::Lpips;
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};

use super::kit::{image, train};
use crate::kit::{open, shipped};

/// Name, channels out and in, pixels along each side.
const SHAPES: [(&str, usize, usize, usize); 5] = [
    ("net.slice1.0", 64, 3, 11),
    ("net.slice2.3", 192, 64, 5),
    ("net.slice3.6", 384, 192, 3),
    ("net.slice4.8", 256, 384, 3),
    ("net.slice5.10", 256, 256, 3),
];

/// Numbers from -bound to bound.
fn numbers(tag: usize, count: usize, bound: f64) -> impl Iterator<Item = f64> {
    (0..count).map(move |index| (((index * 7919 + 31 * tag) % 2003) as f64 / 1001.0 - 1.0) * bound)
}

/// Writes made-up weights, those of `lpips_reference.py`, without the tensor named `without`.
fn write_weights(path: &Path, without: &str) {
    let bytes = |values: &mut dyn Iterator<Item = f64>| -> Vec<u8> {
        values.flat_map(|value| (value as f32).to_le_bytes()).collect()
    };
    let mut tensors = Vec::new();
    for (layer, (name, output, input, side)) in SHAPES.into_iter().enumerate() {
        let fan = input * side * side;
        let weight = bytes(&mut numbers(layer, output * fan, (6.0 / fan as f64).sqrt()));
        tensors.push((format!("{name}.weight"), vec![output, input, side, side], weight));
        tensors.push((format!("{name}.bias"), vec![output], bytes(&mut numbers(10 + layer, output, 0.1))));
        let linear = bytes(&mut numbers(20 + layer, output, 1.0).map(f64::abs));
        tensors.push((format!("lin{layer}.model.1.weight"), vec![1, output, 1, 1], linear));
    }
    let views = tensors
        .iter()
        .filter(|(name, ..)| name != without)
        .map(|(name, shape, bytes)| (name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    serialize_to_file(views, None, path).unwrap();
}

/// The figures are what `lpips_reference.py` prints with lpips 0.1.4 and torch 2.15.0.
#[test]
fn figures_are_those_of_the_python_package() {
    open();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    write_weights(&path, "");
    let lpips = Lpips::open(&path).unwrap();
    for (height, width, expect_near, expect_far) in [
        (31, 31, 0.038803331553936005, 2.6942076683044434),
        (40, 64, 0.10464286059141159, 1.9600841999053955),
        (75, 50, 0.09291770309209824, 2.669239044189453),
    ] {
        let (a, far) = (image(height, width, 1), image(height, width, 3));
        let near = &a * 0.9 + &far * 0.1;
        let check = |frame: &Tensor, expect: f64| {
            let value = lpips.distance(frame, &a, Device::Cpu);
            assert!((value - expect).abs() < 1e-4 * expect, "{value}, not {expect}");
        };
        check(&near, expect_near);
        check(&far, expect_far);
        assert_eq!(lpips.distance(&a, &a, Device::Cpu), 0.0);
    }
}

#[test]
fn a_run_with_weights_tells_of_it_and_tiles_give_the_same() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    write_weights(&path, "");
    let weights = format!("eval.lpips={}", path.display());
    let short = ["train.steps=1", "train.batch=1", "eval.crop=null", "eval.at_start=false", &weights];
    let small = ["model.channels=8", "model.blocks=1"];
    let figures = |more: &[&str]| train(&[&short[..], &small, more].concat()).unwrap();
    let (whole, _) = figures(&["eval.tile=null"]);
    let names: Vec<&str> = whole.metrics.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["psnr", "ssim", "lpips"]);
    let (tiled, _) = figures(&["eval.tile=40"]);
    let of = |metrics: &Metrics| metrics.get("lpips").unwrap();
    assert!(of(&whole.metrics) > 0.0);
    assert!((of(&tiled.metrics) - of(&whole.metrics)).abs() < 1e-4 * of(&whole.metrics));
    let (without, _) = figures(&["eval.tile=40", "eval.metrics=[psnr, loss]"]);
    assert_eq!(without.metrics.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["psnr"]);

    // Its largest layer alone takes 3.5 MB, far more than a small tile.
    let peak = |of: &Summary| of.eval.as_ref().unwrap().peak_bytes;
    let line = format!("memory.limit={}", (peak(&without) + peak(&tiled)) / 2);
    let (squeezed, events) = figures(&["eval.tile=40", &line]);
    let eval = squeezed.eval.unwrap();
    assert_eq!(eval.metrics.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["psnr", "ssim"]);
    assert_eq!(eval.metrics.get("psnr"), tiled.metrics.get("psnr"));
    assert!(eval.missing["lpips"].starts_with("memory ran out: "), "{:?}", eval.missing);
    assert_eq!(squeezed.weights_sha256, tiled.weights_sha256);
    assert!(events.iter().any(|event| matches!(event, Event::MetricMissing { metric, .. } if metric == "lpips")));
}

#[test]
fn a_wrong_file_is_refused_before_training() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let refusal = |more: &[&str]| {
        let weights = format!("eval.lpips={}", path.display());
        let all = [&[&*weights][..], more].concat();
        CATALOGUE.build(&shipped("deblur-tiny", &all), &open()).err().unwrap().to_string()
    };
    assert!(refusal(&[]).contains("weights.safetensors: No such file or directory"));
    fs::write(&path, "a text").unwrap();
    assert!(refusal(&[]).contains("these are not the weights of LPIPS with AlexNet: it is not a safetensors file"));
    write_weights(&path, "lin2.model.1.weight");
    assert!(
        refusal(&[]).contains("these are not the weights of LPIPS with AlexNet: `lin2.model.1.weight` is not there")
    );
    write_weights(&path, "");
    let small = refusal(&["eval.crop=30", "eval.tile=null"]);
    assert!(small.contains("it takes at least 31 x 31 pixels, and 30 x 30 are evaluated of a frame"), "{small}");
    let gpt = refusal(&["workload=gpt"]);
    assert!(gpt.contains("eval.lpips: `gpt` has no frames to compare"), "{gpt}");
    let asked = CATALOGUE.build(&shipped("deblur-tiny", &["eval.metrics=[lpips]"]), &open()).err().unwrap().to_string();
    assert!(asked.contains("eval.metrics: `lpips` needs a file of weights: set eval.lpips"), "{asked}");
}
