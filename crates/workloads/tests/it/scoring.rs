//! The models of scores: that padding does not matter, that recompute does not, that bad data is refused, and that
//! seeing the graph pays.

use std::num::NonZeroU32;
use std::time::Instant;

use lowtide_settings::RunSettings;
use lowtide_testkit::alone;
use lowtide_torch::tch::{Device, Kind, Tensor, no_grad};
use lowtide_torch::{Keep, TorchError, attempt, recompute, rng};
use lowtide_train::{Batch, Summary, TrainError, Workload};
use lowtide_workloads::scoring::{Item, Items, ModelName, ModelSettings, Scoring, SyntheticItems};

use crate::kit::{self, open, overrides};

const MODELS: [ModelName; 3] = [ModelName::Lstm, ModelName::GnnDet, ModelName::Gvae];
const ITEMS: SyntheticItems = SyntheticItems { seed: 1, count: 100 };
const WHOLE: NonZeroU32 = NonZeroU32::MIN;

fn fresh(name: ModelName, settings: &ModelSettings, items: impl Items) -> Result<Scoring, TrainError> {
    let facts = open();
    rng::seed(facts.device, 1).unwrap();
    let model = ModelSettings { run: vec![name], ..settings.clone() };
    Scoring::on(&model, Box::new(items), &RunSettings::default(), &facts)
}

fn small() -> ModelSettings {
    ModelSettings { lstm_layers: 2, ..ModelSettings::default() }
}

/// The mean loss over a batch in evaluation.
fn loss(scoring: &Scoring, batch: &Batch) -> f64 {
    let _evaluating = scoring.mode().evaluate();
    no_grad(|| {
        let inputs = batch.inputs.iter().map(Tensor::shallow_clone).collect();
        let outputs = scoring.segments().iter().fold(inputs, |values: Vec<Tensor>, segment| segment.run(&values));
        scoring.loss_sum(&outputs, batch, WHOLE).double_value(&[]) / f64::from(batch.samples())
    })
}

#[test]
fn padding_changes_nothing() {
    let _alone = alone();
    for name in MODELS {
        let scoring = fresh(name, &small(), ITEMS).unwrap();
        let whole = scoring.eval_batch(0, 12);
        let alone: Vec<f64> = (0..12).map(|sample| loss(&scoring, &scoring.eval_batch(sample, 1))).collect();
        let sizes: Vec<i64> = (0..12).map(|sample| scoring.eval_batch(sample, 1).inputs[0].size()[1]).collect();
        assert!(sizes.iter().any(|size| *size < whole.inputs[0].size()[1]), "something is padded: {sizes:?}");
        let mean = alone.iter().sum::<f64>() / 12.0;
        let together = loss(&scoring, &whole);
        assert!((together - mean).abs() < 1e-6 * mean.abs().max(1.0), "{name}: {together}, not {mean}");
        // Pieces keep the padding of the batch they are cut from.
        let pieces = [whole.piece(0, 5), whole.piece(5, 7)];
        let weighted: f64 = pieces.iter().map(|piece| loss(&scoring, piece) * f64::from(piece.samples())).sum();
        assert!((together - weighted / 12.0).abs() < 1e-6 * mean.abs().max(1.0), "{name}");
    }
}

#[test]
fn a_graph_in_which_all_nodes_are_joined_has_a_finite_loss() {
    let _alone = alone();
    let joined = |number: u64| {
        let item = ITEMS.item(number);
        let nodes = item.node_count as u32;
        Item { edges: (0..nodes).flat_map(|a| (0..nodes).map(move |b| [a, b])).collect(), ..item }
    };
    let scoring = fresh(ModelName::Gvae, &small(), Changed(joined)).unwrap();
    assert!(loss(&scoring, &scoring.eval_batch(0, 4)).is_finite());
}

/// The gradients of a batch in training, with all segments but the last recomputed or none.
fn gradients(scoring: &Scoring, recomputed: bool) -> Vec<Vec<f32>> {
    rng::seed(Device::Cpu, 5).unwrap();
    let batch = scoring.train_batch(0, 6);
    let mut values: Vec<Tensor> = batch.inputs.iter().map(Tensor::shallow_clone).collect();
    let (last, encoders) = scoring.segments().split_last().unwrap();
    for segment in encoders {
        values = if recomputed { recompute(segment, &values, Keep::OnDevice) } else { segment.run(&values) };
    }
    scoring.loss_sum(&last.run(&values), &batch, WHOLE).backward();
    let gradient = |parameter: Tensor| {
        let mut gradient = parameter.grad();
        let values = Vec::try_from(gradient.flatten(0, -1)).unwrap();
        let _ = gradient.zero_();
        values
    };
    scoring.state().into_values().map(gradient).collect()
}

#[test]
fn recompute_gives_the_same_gradients() {
    let _alone = alone();
    let settings = ModelSettings { dropout: 0.2, ..small() };
    for name in MODELS {
        let scoring = fresh(name, &settings, ITEMS).unwrap();
        let plain = gradients(&scoring, false);
        assert!(plain.iter().all(|gradient| gradient.iter().any(|value| *value != 0.0)), "{name}: all are trained");
        for (plain, again) in plain.iter().zip(gradients(&scoring, true)) {
            // Without gradients LibTorch's LSTM takes another kernel, which rounds in another order.
            let off = plain.iter().zip(again).map(|(plain, again)| (plain - again).abs()).fold(0.0, f32::max);
            assert!(off < 1e-6, "{name}: {off}");
        }
    }
}

#[test]
fn only_gvae_draws_and_only_in_training() {
    let _alone = alone();
    for name in MODELS {
        let scoring = fresh(name, &small(), ITEMS).unwrap();
        let batch = scoring.train_batch(0, 2);
        let run = || {
            let inputs = batch.inputs.iter().map(Tensor::shallow_clone).collect();
            let outputs = scoring.segments().iter().fold(inputs, |values: Vec<Tensor>, segment| segment.run(&values));
            Vec::<f32>::try_from(outputs[0].detach()).unwrap()
        };
        assert_eq!(run() != run(), name == ModelName::Gvae);
        let _evaluating = scoring.mode().evaluate();
        assert_eq!(run(), run());
    }
}

/// The generated items, changed.
struct Changed<F>(F);

impl<F: Fn(u64) -> Item + Send + Sync + 'static> Items for Changed<F> {
    fn count(&self) -> u64 {
        ITEMS.count
    }

    fn item(&self, number: u64) -> Item {
        (self.0)(number)
    }
}

#[track_caller]
fn check_refusal(change: impl Fn(u64, &mut Item) + Send + Sync + 'static, expect: &str) {
    let changed = move |number| {
        let mut item = ITEMS.item(number);
        change(number, &mut item);
        item
    };
    let error = match fresh(ModelName::GnnDet, &small(), Changed(changed)) {
        Err(TrainError::Engine(error)) => error,
        Err(other) => panic!("{other}"),
        Ok(scoring) => attempt(|| scoring.train_batch(0, 80)).unwrap_err(),
    };
    assert!(matches!(&error, TorchError::Input(problem) if problem == expect), "{error:?}");
}

#[test]
fn batches_that_were_prepared_are_those_that_were_not() {
    let _alone = alone();
    let same = |a: &Batch, b: &Batch| {
        let pairs = a.inputs.iter().chain(&a.targets).zip(b.inputs.iter().chain(&b.targets));
        a.targets.len() == b.targets.len() && pairs.into_iter().all(|(a, b)| a == b)
    };
    for name in MODELS {
        let (plain, ahead) = (fresh(name, &small(), ITEMS).unwrap(), fresh(name, &small(), ITEMS).unwrap());
        for step in 0..30 {
            let (first, expect) = (8 * step, plain.train_batch(8 * step, 8));
            assert!(same(&ahead.train_batch(first, 8), &expect), "{name}, step {step}");
            ahead.prepare(first + 8, 8);
            if step % 3 == 0 {
                assert!(same(&ahead.train_batch(first, 8), &expect), "{name}, step {step}, tried again");
                ahead.prepare(first + 8, 8);
            }
        }
    }
}

#[test]
fn bad_items_are_refused_by_name() {
    let _alone = alone();
    let edge = "item `generated-0`: an edge joins 0 and 99, and there are 10 nodes";
    check_refusal(
        |number, item| {
            if number == 0 {
                item.edges.push([0, 99]);
            }
        },
        edge,
    );
    let narrow = |number, item: &mut Item| {
        if number == 1 {
            item.sequence.truncate(23 * item.steps);
        }
    };
    let expect = "item `generated-1`: it has 23 features a step and 12 a node, and the first item has 24 features a \
                  step and 12 a node";
    check_refusal(narrow, expect);
}

#[test]
fn data_without_items_to_evaluate_on_is_refused() {
    let _alone = alone();
    let error = fresh(ModelName::Lstm, &small(), SyntheticItems { seed: 1, count: 1 }).err().unwrap().to_string();
    assert!(error.contains("both must have some"), "{error}");
}

/// Trains one model on generated items, on one thread of the CPU.
fn train(name: ModelName, changes: &[&str]) -> Summary {
    let model = format!("model.run=[{name}]");
    let changes = overrides(&[&["workload=scoring", &*model], changes].concat());
    kit::train(&RunSettings::load(None, &changes).unwrap()).unwrap().0
}

#[test]
fn models_that_see_the_graph_win() {
    let _alone = alone();
    let short = ["train.steps=300", "optimizer.learning_rate=0.01", "eval.every=300", "eval.batches=100", "seed=3"];
    let figures = MODELS.map(|name| {
        let begun = Instant::now();
        let summary = train(name, &short);
        println!("{name}: {} in {:.1} s", summary.metrics, begun.elapsed().as_secs_f64());
        summary.metrics
    });
    let [lstm, gnn_det, gvae] = figures.each_ref().map(|metrics| metrics.get("r2").unwrap());
    assert!((0.25..0.6).contains(&lstm), "{lstm}");
    assert!(gnn_det > lstm + 0.25 && gvae > lstm + 0.25, "{lstm}, {gnn_det} and {gvae}");
    for metrics in &figures {
        assert!(metrics.get("mae") < metrics.get("rmse") && metrics.get("spearman") > Some(0.4), "{metrics}");
    }
}

#[test]
fn a_loss_is_a_mean_over_samples_in_32_bits() {
    let _alone = alone();
    let scoring = fresh(ModelName::Gvae, &small(), ITEMS).unwrap();
    let batch = scoring.train_batch(0, 2);
    assert_eq!((batch.targets_per_sample, batch.target_count(), scoring.targets_per_sample()), (1, 2, 1));
    let inputs = batch.inputs.iter().map(Tensor::shallow_clone).collect();
    let outputs = scoring.segments().iter().fold(inputs, |values: Vec<Tensor>, segment| segment.run(&values));
    assert_eq!(scoring.loss_sum(&outputs, &batch, WHOLE).kind(), Kind::Float);
}
