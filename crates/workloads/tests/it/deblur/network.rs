//! Its figures against another implementation's, what its outputs see, evaluation in tiles, and that it learns.

use lowtide_core::Event;
use lowtide_settings::{CropChoice, RunSettings, TileChoice};
use lowtide_testkit::alone;
use lowtide_torch::rng;
use lowtide_torch::tch::{Device, Kind, Tensor, no_grad};
use lowtide_train::{EvalMode, EvalSummary, Summary, Workload};
use lowtide_workloads::CATALOGUE;
use lowtide_workloads::deblur::{Deblur, psnr, ssim};

use super::kit::{DATA, MODEL, image, train};
use crate::kit::{open, shipped, train_workload};

/// The figures are those of scikit-image 0.26.0 on the same images in 64 bits:
/// `peak_signal_noise_ratio(a, b, data_range=1.0)` and `structural_similarity(a, b, gaussian_weights=True, sigma=1.5,
/// use_sample_covariance=False, data_range=1.0, channel_axis=0)`.
#[test]
fn figures_are_those_of_scikit_image() {
    open();
    for (height, width, [near_psnr, near_ssim, far_psnr, far_ssim]) in [
        (11, 11, [28.260442380625825, 0.9879437996372994, 8.260442380625825, -0.08449668311410237]),
        (24, 40, [27.912813861476778, 0.9892293154076461, 7.912813861476781, 0.018825583481923817]),
        (150, 37, [27.940706128748438, 0.9894073540026199, 7.940706128748436, 0.03358901182305052]),
    ] {
        let (a, far) = (image(height, width, 1), image(height, width, 3));
        let near = &a * 0.9 + &far * 0.1;
        let check = |value: f64, expect: f64| assert!((value - expect).abs() < 2e-5, "{value}, not {expect}");
        check(psnr(&near, &a, Device::Cpu), near_psnr);
        check(ssim(&near, &a, Device::Cpu), near_ssim);
        check(psnr(&far, &a, Device::Cpu), far_psnr);
        check(ssim(&far, &a, Device::Cpu), far_ssim);
        assert_eq!(psnr(&a, &a, Device::Cpu), 100.0);
        check(ssim(&a, &a, Device::Cpu), 1.0);
    }
}

/// A network whose every part has a say: those that start at zero are away from it.
fn awake() -> Deblur {
    let facts = open();
    rng::seed(facts.device, 1).unwrap();
    let deblur = Deblur::new(&MODEL, &DATA, None, 1, facts.device).unwrap();
    for (name, parameter) in deblur.state() {
        if name.ends_with("1.weight") {
            let drawn = Tensor::rand(parameter.size(), (Kind::Float, Device::Cpu)) * 0.4 - 0.2;
            no_grad(|| parameter.shallow_clone().copy_(&drawn));
        }
    }
    deblur
}

fn outputs(deblur: &Deblur, inputs: &[Tensor]) -> Tensor {
    let inputs = inputs.iter().map(Tensor::shallow_clone).collect();
    let outputs: Vec<Tensor> =
        no_grad(|| deblur.segments().iter().fold(inputs, |values: Vec<Tensor>, segment| segment.run(&values)));
    outputs[0].shallow_clone()
}

#[test]
fn parts_have_names_and_a_fresh_network_changes_nothing() {
    let _alone = alone();
    let facts = open();
    let deblur = Deblur::new(&MODEL, &DATA, None, 1, facts.device).unwrap();
    let mut parts: Vec<String> =
        deblur.state().into_keys().map(|name| name.split('.').next().unwrap().to_owned()).collect();
    parts.dedup();
    assert_eq!(parts, ["feature_extraction", "reconstruction", "spike_encoder", "temporal_mutual_attention"]);
    let batch = deblur.eval_batch(0, 2);
    assert_eq!(batch.inputs[0].size(), [2, 2, 3, 61, 90]);
    assert_eq!(batch.inputs[1].size(), [2, 2, 4, 61, 90]);
    assert_eq!(outputs(&deblur, &batch.inputs), batch.inputs[0], "it begins with what it is given");
    assert_ne!(outputs(&awake(), &batch.inputs), batch.inputs[0]);
}

/// The promise that tiles rest on, checked by changing one pixel.
#[test]
fn no_output_sees_beyond_the_receptive_field() {
    let _alone = alone();
    let deblur = awake();
    let batch = deblur.eval_batch(0, 1);
    let reach = i64::from(deblur.tiling().unwrap().receptive_field);
    let before = outputs(&deblur, &batch.inputs);
    let (row, column) = (31, 44);
    let mut farthest = 0;
    for input in 0..2 {
        let inputs: Vec<Tensor> = batch.inputs.iter().map(Tensor::copy).collect();
        let pixel = inputs[input].narrow(3, row, 1).narrow(4, column, 1);
        inputs[input].narrow(3, row, 1).narrow(4, column, 1).copy_(&(1 - pixel));
        let changed = outputs(&deblur, &inputs).ne_tensor(&before).to_kind(Kind::Int64);
        let seen = changed.sum_dim_intlist([0i64, 1, 2].as_slice(), false, Kind::Int64).nonzero();
        let places: Vec<Vec<i64>> = Vec::try_from(seen).unwrap();
        assert!(!places.is_empty());
        farthest = places.iter().map(|at| (at[0] - row).abs().max((at[1] - column).abs())).fold(farthest, i64::max);
    }
    assert!(farthest <= reach, "{farthest} is beyond {reach}");
    assert!(farthest > reach / 2, "a bound of {reach} is loose for {farthest}");

    // Overlap is needed: beside a cut, outputs are other ones.
    let cut: Vec<Tensor> = batch.inputs.iter().map(|input| input.narrow(4, 0, 44)).collect();
    let beside = |frames: &Tensor| frames.narrow(4, 40, 4);
    let difference = (beside(&outputs(&deblur, &cut)) - beside(&before)).abs().max().double_value(&[]);
    assert!(difference > 0.01, "{difference}");
}

/// Two steps, then an evaluation of frames that are no multiple of anything.
const SHORT: [&str; 5] = ["train.steps=2", "train.batch=2", "data.height=141", "data.width=203", "eval.at_start=false"];

fn short(overrides: &[&str]) -> (Summary, Vec<Event>) {
    train(&[&SHORT[..], overrides].concat()).unwrap()
}

fn near(tiled: &EvalSummary, whole: &EvalSummary) {
    for (name, tolerance) in [("psnr", 1e-4), ("ssim", 1e-5)] {
        let (tiled, whole) = (tiled.metrics.get(name).unwrap(), whole.metrics.get(name).unwrap());
        assert!((tiled - whole).abs() < tolerance, "{name}: {tiled}, not {whole}");
    }
}

/// An evaluation of a network whose every part has a say, on frames that are no whole windows.
fn evaluated(tile: TileChoice) -> EvalSummary {
    let mut settings = RunSettings { workload: "deblur".to_owned(), ..RunSettings::default() };
    (settings.train.steps, settings.train.batch) = (1, 2);
    (settings.optimizer.learning_rate, settings.optimizer.min_learning_rate) = (0.0, 0.0);
    (settings.eval.crop, settings.eval.tile, settings.eval.batches) = (CropChoice::Whole, tile, 1);
    let (summary, _) = train_workload(&awake(), &settings, &open()).unwrap();
    summary.eval.unwrap()
}

#[test]
fn tiles_give_the_figures_of_the_whole_frame_in_less_memory() {
    let _alone = alone();
    let whole = evaluated(TileChoice::None);
    assert_eq!((whole.mode, whole.tile), (EvalMode::Whole, None));
    for side in [36, 47, 64, 1000] {
        let tiled = evaluated(TileChoice::Pixels(side));
        assert_eq!((tiled.mode, tiled.tile), (EvalMode::Tile, Some(side)));
        near(&tiled, &whole);
    }
    assert_eq!(evaluated(TileChoice::Auto).tile, Some(92), "without a line the whole frame fits");

    let peak = |tile: &str| short(&["eval.crop=null", &format!("eval.tile={tile}")]).0.eval.unwrap().peak_bytes;
    let (tiled, whole) = (peak("64"), peak("null"));
    assert!(tiled * 2 < whole, "{tiled} of {whole}");
}

#[test]
fn crops_are_in_the_middle_and_those_of_training_by_default() {
    let _alone = alone();
    let load = |overrides: &[&str]| {
        let loaded = shipped("deblur-tiny", &[&SHORT[..], overrides].concat());
        CATALOGUE.build(&loaded, &open()).unwrap()
    };
    let rows = |overrides: &[&str]| load(overrides).workload.eval_batch(0, 1).targets[0].size()[3..].to_vec();
    assert_eq!(rows(&["eval.crop=auto", "eval.tile=null"]), [32, 32]);
    assert_eq!(rows(&["eval.crop=auto", "eval.tile=64"]), [141, 203], "tiles are for whole frames");
    assert_eq!(rows(&["eval.crop=48"]), [48, 48]);
    let whole = load(&["eval.crop=null"]).workload.eval_batch(3, 1);
    let crop = load(&["eval.crop=41"]).workload.eval_batch(3, 1);
    assert_eq!(crop.targets[0], whole.targets[0].narrow(3, 50, 41).narrow(4, 81, 41));
    let (summary, _) = short(&["eval.crop=auto", "eval.tile=null"]);
    assert_eq!(summary.eval.unwrap().mode, EvalMode::Crop);
}

/// What the line leaves: whole frames do not fit, and their figures are missing, while training goes on; tiles fit.
#[test]
fn under_a_line_tiles_give_what_whole_frames_cannot() {
    let _alone = alone();
    let (unlimited, _) = short(&["eval.crop=null", "eval.tile=null"]);
    let whole = unlimited.eval.as_ref().unwrap();
    let line = format!("memory.limit={}", whole.peak_bytes / 2);
    let failures =
        |events: &[Event]| events.iter().filter(|event| matches!(event, Event::EvaluationFailed { .. })).count();

    let (naive, events) = short(&["eval.crop=null", "eval.tile=null", &line]);
    assert_eq!((&naive.eval, naive.eval_loss, naive.steps), (&None, None, 2));
    assert_eq!(failures(&events), 1);
    assert!(naive.oom_errors > 0);

    let (tiled, events) = short(&["eval.crop=null", "eval.tile=64", &line]);
    near(tiled.eval.as_ref().unwrap(), whole);
    assert_eq!((failures(&events), tiled.oom_errors), (0, 0));

    let (auto, events) = short(&["eval.crop=null", "eval.tile=auto", &line]);
    near(auto.eval.as_ref().unwrap(), whole);
    assert_eq!((failures(&events), auto.oom_errors), (0, auto.oom_recovered));
    let tiles: Vec<u32> = events
        .iter()
        .filter_map(|event| match event {
            Event::TileHalved { tile, .. } => Some(*tile),
            _ => None,
        })
        .collect();
    assert_eq!(tiles.last().copied(), auto.eval.as_ref().unwrap().tile);
    assert_eq!(tiles[0], 104, "half of 208, which holds the frame");
    assert!([&naive, &tiled, &auto].iter().all(|run| run.micro_batch_final == unlimited.micro_batch_final));

    let (none, _) = short(&["eval.every=null"]);
    for run in [unlimited, naive, tiled, auto] {
        assert_eq!(run.weights_sha256, none.weights_sha256, "evaluation leaves no trace");
    }
}

#[test]
fn wrong_settings_are_refused_by_name() {
    let _alone = alone();
    for (overrides, expect) in [
        (["eval.tile=48"], "a tile of 48 is too small: its borders reach 24 pixels far, so it takes at least 56"),
        (["eval.crop=73"], "eval.crop: must be from 11 to 72"),
        (["data.crop=73"], "data.crop: a crop of 73 is larger than a frame of 100 x 72"),
        (["model.heads=3"], "model.heads: 16 channels cannot be shared by 3 heads"),
        (["model.layers=3"], "unknown key `model.layers`"),
    ] {
        let problem = train(&overrides).unwrap_err().to_string();
        assert!(problem.contains(expect), "{problem}");
    }
    let gpt = ["workload=gpt", "eval.tile=64", "eval.crop=auto"];
    let loaded = shipped("gpt-tiny", &gpt);
    let facts = open();
    let built = CATALOGUE.build(&loaded, &facts).unwrap();
    let problem = train_workload(&*built.workload, &built.settings, &facts).unwrap_err().to_string();
    assert_eq!(problem, "eval.tile: `gpt` cannot be evaluated in tiles: its samples are not frames");
}

#[test]
fn shipped_configurations_are_understood() {
    let _alone = alone();
    let facts = open();
    for name in ["deblur", "deblur-tiny"] {
        let loaded = shipped(name, &[]);
        let built = CATALOGUE.build(&loaded, &facts).unwrap();
        assert_eq!(built.settings.model, loaded.settings.model, "{name} says all there is to say");
        assert_eq!(built.settings.data, loaded.settings.data, "{name} says all there is to say");
        assert_eq!(built.settings.eval, loaded.settings.eval, "{name} says all there is to say");
    }
}

#[test]
fn training_sharpens() {
    let _alone = alone();
    let (summary, events) = train(&["eval.at_start=true", "train.steps=100"]).unwrap();
    let first = events.iter().find_map(|event| match event {
        Event::Evaluated { metrics, .. } => metrics.get("psnr"),
        _ => None,
    });
    let (before, after) = (first.unwrap(), summary.metrics.get("psnr").unwrap());
    assert!(after > before + 0.5, "{before} dB to {after} dB");
}
