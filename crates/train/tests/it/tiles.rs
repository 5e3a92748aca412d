//! Evaluation of frames: in tiles that fit or do not, that change the figures or do not, and in pieces.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

use lowtide_core::{Event, MicroBatch};
use lowtide_settings::{CropChoice, MicroBatchChoice, RunSettings, TileChoice};
use lowtide_torch::tch::{Kind, Reduction, Tensor};
use lowtide_torch::{Segment, Shared};
use lowtide_train::{Batch, EvalMode, EvalSummary, Metric, Mode, Start, Summary, Tiling, Workload};

use crate::kit::{FLOATS, alone, curve, settings, train};

/// Pixels along each side of the frames that are evaluated, and of those that are trained on.
const FRAME: i64 = 64;
const CROP: i64 = 8;
/// What is held while a pixel is computed: 4 bytes of each.
const COPIES: i64 = 64;

/// Learns the brightness of frames; what it does not do at every pixel by itself, it does with the mean of the frame.
struct Frames {
    mode: Mode,
    weight: Tensor,
    segments: Vec<Segment>,
    global: Option<&'static str>,
    /// Samples in each batch for evaluation.
    asked: RefCell<Vec<u32>>,
}

impl Frames {
    fn new(global: Option<&'static str>) -> Frames {
        // Opens the engine, without a line.
        drop(curve(1));
        let weight = Tensor::ones([1], FLOATS).set_requires_grad(true);
        let shared = Shared::new(weight.shallow_clone());
        let segment = Segment::new(move |inputs| {
            let wide = inputs[0].repeat([1, COPIES, 1, 1]);
            let pixels = wide.mean_dim([1i64].as_slice(), true, Kind::Float) * &*shared;
            let seen = if global.is_some() {
                inputs[0].mean_dim([1i64, 2, 3].as_slice(), true, Kind::Float)
            } else {
                Tensor::from(0f32)
            };
            vec![pixels + seen * 0.1]
        });
        Frames { mode: Mode::default(), weight, segments: vec![segment], global, asked: RefCell::default() }
    }

    fn batch(first: u64, count: u32, side: i64) -> Batch {
        let clips: Vec<Tensor> = (first..first + u64::from(count))
            .map(|number| {
                (Tensor::arange(side * side, FLOATS) * 0.01 + (number % 97) as f64).sin().view([1, 1, side, side])
            })
            .collect();
        let frames = Tensor::cat(&clips, 0);
        let targets = vec![&frames * 0.5];
        Batch { inputs: vec![frames], targets, targets_per_sample: (side * side) as u64 }
    }
}

impl Workload for Frames {
    fn name(&self) -> &str {
        "frames"
    }
    fn state(&self) -> BTreeMap<String, Tensor> {
        [("weight".to_owned(), self.weight.shallow_clone())].into()
    }
    fn mode(&self) -> &Mode {
        &self.mode
    }
    fn segments(&self) -> &[Segment] {
        &self.segments
    }
    fn loss_sum(&self, outputs: &[Tensor], batch: &Batch, _chunks: NonZeroU32) -> Tensor {
        outputs[0].mse_loss(&batch.targets[0], Reduction::Sum)
    }
    fn metrics(&self) -> Vec<Metric<'_>> {
        vec![Metric::mean("power", |outputs, _| outputs[0].square().mean(Kind::Float) * outputs[0].size()[0])]
    }
    fn train_batch(&self, first: u64, count: u32) -> Batch {
        Frames::batch(first, count, CROP)
    }
    fn eval_batch(&self, first: u64, count: u32) -> Batch {
        self.asked.borrow_mut().push(count);
        Frames::batch((1 << 40) + first, count, FRAME)
    }
    fn tiling(&self) -> Result<Tiling, &'static str> {
        let frame = [FRAME as u32; 2];
        Ok(Tiling { receptive_field: 2, alignment: 4, frame, global: self.global })
    }
    fn targets_per_sample(&self) -> u64 {
        (CROP * CROP) as u64
    }
}

fn in_tiles(tile: TileChoice) -> RunSettings {
    let mut settings = settings();
    (settings.eval.crop, settings.eval.tile) = (CropChoice::Whole, tile);
    settings
}

fn run(frames: &Frames, settings: &RunSettings) -> (Summary, Vec<Event>) {
    let folder = tempfile::tempdir().unwrap();
    let (outcome, events) = train(frames, settings, folder.path(), Start::New, || {});
    (outcome.unwrap().summary, events)
}

fn figure(eval: &EvalSummary) -> f64 {
    eval.metrics.get("power").unwrap()
}

fn count(events: &[Event], is_one: fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| is_one(event)).count()
}

const GLOBAL: Option<&str> = Some("it adds the mean of the frame");

#[test]
fn a_model_that_sees_the_whole_frame_is_not_cut_unless_that_is_allowed() {
    let _alone = alone();
    let mut settings = in_tiles(TileChoice::Pixels(32));
    let folder = tempfile::tempdir().unwrap();
    let (refused, _) = train(&Frames::new(GLOBAL), &settings, folder.path(), Start::New, || {});
    assert_eq!(
        refused.unwrap_err().to_string(),
        "eval.tile: in tiles `frames` has other outputs than on whole frames: it adds the mean of the frame. \
         eval.tile_approximate=true allows figures that are approximate"
    );

    settings.eval.tile_approximate = true;
    let (summary, events) = run(&Frames::new(GLOBAL), &settings);
    let approximate = summary.eval.unwrap();
    assert_eq!((approximate.mode, approximate.approximate), (EvalMode::Tile, true));
    assert_eq!(count(&events, |event| matches!(event, Event::Evaluated { approximate: true, .. })), 2);

    let whole = run(&Frames::new(GLOBAL), &in_tiles(TileChoice::None)).0.eval.unwrap();
    assert_eq!((whole.mode, whole.approximate), (EvalMode::Whole, false));
    assert!((figure(&approximate) - figure(&whole)).abs() > 1e-6, "the label says what is so");

    // One tile that holds the frame changes nothing.
    settings.eval.tile = TileChoice::Auto;
    let one = run(&Frames::new(GLOBAL), &settings).0.eval.unwrap();
    assert_eq!((one.mode, one.tile, one.approximate), (EvalMode::Tile, Some(64), false));
    assert!((figure(&one) - figure(&whole)).abs() < 1e-7);

    // A model that sees little is exact, whatever is allowed.
    settings.eval.tile = TileChoice::Pixels(32);
    let exact = run(&Frames::new(None), &settings).0.eval.unwrap();
    assert!(!exact.approximate);
    let whole = run(&Frames::new(None), &in_tiles(TileChoice::None)).0.eval.unwrap();
    assert!((figure(&exact) - figure(&whole)).abs() < 1e-6);
}

/// A frame at once takes 1 MiB and more, a tile of 32 a quarter.
fn under_a_line(tile: TileChoice) -> RunSettings {
    let mut settings = in_tiles(tile);
    settings.memory.line = "900KiB".parse().unwrap();
    settings
}

#[test]
fn a_fixed_tile_that_does_not_fit_is_tried_twice_and_named() {
    let _alone = alone();
    let (summary, events) = run(&Frames::new(None), &under_a_line(TileChoice::Pixels(64)));
    assert_eq!((summary.steps, summary.eval_loss, summary.eval), (4, None, None));
    assert_eq!((summary.oom_errors, summary.oom_recovered), (4, 0), "two evaluations, each tried twice");
    assert_eq!(count(&events, |event| matches!(event, Event::RungTaken { .. })), 0);
    let problem = "memory ran out in eval of step 4, and a tile of 64 x 64 pixels does not fit: the next smaller is \
                   eval.tile=32, and eval.tile=auto finds the largest that fits";
    let mut failed = events.iter().filter_map(|event| match event {
        Event::EvaluationFailed { stop, .. } => Some(stop.to_string()),
        _ => None,
    });
    assert_eq!(failed.next_back().as_deref(), Some(problem));
    let missing: Vec<(&str, &str)> =
        summary.metrics_missing.iter().map(|(name, reason)| (name.as_str(), reason.as_str())).collect();
    assert_eq!(missing, [("loss", problem), ("power", problem)]);

    let (summary, _) = run(&Frames::new(None), &under_a_line(TileChoice::Pixels(32)));
    assert_eq!((summary.oom_errors, summary.metrics_missing.len()), (0, 0));
}

#[test]
fn the_tile_that_was_found_is_not_looked_for_again() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let mut settings = under_a_line(TileChoice::Auto);
    let go_on = |settings: &RunSettings, start| {
        let (outcome, events) = train(&Frames::new(None), settings, folder.path(), start, || {});
        (
            outcome.unwrap().summary.eval.unwrap().tile,
            count(&events, |event| matches!(event, Event::OutOfMemory { .. })),
        )
    };
    assert_eq!(go_on(&settings, Start::New), (Some(32), 1));
    settings.train.steps = 6;
    assert_eq!(go_on(&settings, Start::Resume), (Some(32), 0));
    // Another line, another tile.
    settings.train.steps = 8;
    settings.memory.line = "none".parse().unwrap();
    assert_eq!(go_on(&settings, Start::Resume), (Some(64), 0));
}

#[test]
fn no_more_frames_are_made_than_are_computed_at_once() {
    let _alone = alone();
    let asked = |samples: u32, tile: TileChoice| {
        let mut settings = in_tiles(tile);
        settings.train.micro_batch = MicroBatchChoice::Samples(MicroBatch::new(samples).unwrap());
        settings.eval.every = None;
        settings.eval.at_start = true;
        let frames = Frames::new(None);
        run(&frames, &settings);
        frames.asked.take()
    };
    assert_eq!(asked(8, TileChoice::None), [8]);
    assert_eq!(asked(3, TileChoice::None), [3, 3, 2]);
    assert_eq!(asked(8, TileChoice::Auto), [1; 8]);
}
