//! What does the guarded loop cost, against the same training written by hand?
//!
//! One guarded run, without evaluations and checkpoints in between. After every few of its steps the bare loops make as
//! many, each with a model of its own from the same seed, so that what disturbs the machine disturbs all of them. A
//! bare loop makes the same batches and does the same forward, backward, clip and update; it catches no error, notes no
//! random state, reads no statistics and writes nothing. It runs twice, to show what the measurement itself is worth.
//!
//! What is added to a step does not grow with the model, so on the CPU a step of next to nothing shows it best; the
//! goal is held against the small default model. Run with `make bench BENCH=what_does_the_guard_cost`.
//! `LOWTIDE_BENCH_DEVICE=cuda` takes GPT-2 124M in bf16 on the GPU, with CUDA graphs and without: the bare loops replay one
//! that they recorded themselves. One more bare loop reads its loss only at the end of a block. It still waits for the device when it
//! copies a batch there, as all bare ones do.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Instant;

use lowtide_core::{Event, NumericsChoice};
use lowtide_settings::{Graphs, LoadedSettings, Override, Precision, RunSettings};
use lowtide_torch::cuda::{Deterministic, set_environment};
use lowtide_torch::tch::{Cuda, Device, Kind, Tensor, set_num_threads};
use lowtide_torch::{
    AdamW, AdamWRule, Autocast, DeviceChoice, DeviceFacts, Graph, GraphPool, MatmulPrecision, NarrowWeights, gradients,
    rng, set_matmul_precision, start,
};
use lowtide_train::{Batch, FolderChoice, Requests, Start, Team, TrainJob, Trainer, Workload};
use lowtide_workloads::CATALOGUE;

const GOAL: f64 = 1.005;
/// Rounds that are not counted: allocators and caches settle in them.
const WARM_UP: usize = 3;

/// What is measured on a device.
struct Case {
    asked: DeviceChoice,
    config: &'static str,
    overrides: &'static [&'static str],
    /// Steps of each loop in a round. On a GPU the work of a step is queued, so a step alone cannot be timed.
    block: usize,
    rounds: usize,
}

const CPU: Case =
    Case { asked: DeviceChoice::Cpu, config: "gpt-tiny", overrides: &["train.micro_batch=32"], block: 1, rounds: 150 };

const NEXT_TO_NOTHING: Case = Case {
    overrides: &[
        "train.batch=2",
        "train.micro_batch=2",
        "model.n_layer=1",
        "model.n_head=2",
        "model.n_embd=16",
        "model.block_size=8",
    ],
    rounds: 5000,
    ..CPU
};

const GPU: Case = Case {
    asked: DeviceChoice::Cuda(0),
    config: "gpt2-124m",
    overrides: &["train.batch=4", "train.micro_batch=4", "train.precision=bf16", "train.graphs=off"],
    block: 10,
    rounds: 80,
};

const GPU_WITH_GRAPHS: Case =
    Case { overrides: &["train.batch=4", "train.micro_batch=4", "train.precision=bf16", "train.graphs=on"], ..GPU };

/// The same in all cases: a plain step, nothing between two steps, and one learning rate.
const COMMON: [&str; 7] = [
    "train.recompute=off",
    "optimizer.learning_rate=0.0005",
    "optimizer.min_learning_rate=0.0005",
    "optimizer.warmup_steps=0",
    "eval.every=null",
    "eval.at_start=false",
    "save.every=null",
];

fn main() {
    match std::env::var("LOWTIDE_BENCH_DEVICE").as_deref() {
        Ok("cuda") => {
            for (case, graphs) in [(&GPU_WITH_GRAPHS, "with graphs"), (&GPU, "without graphs")] {
                let (added, step) = measure(case);
                goal(&format!("guarded / bare {graphs}, by the median of what is added"), 1.0 + added / step);
            }
        }
        Ok("cpu") | Err(_) => {
            let (added, _) = measure(&NEXT_TO_NOTHING);
            let (_, step) = measure(&CPU);
            goal("a step of gpt-tiny with what is added to one of next to nothing / without", 1.0 + added / step);
        }
        Ok(other) => panic!("LOWTIDE_BENCH_DEVICE is cpu or cuda, not {other}"),
    }
}

fn goal(what: &str, ratio: f64) {
    let verdict = if ratio <= GOAL { "ok" } else { "MISSED" };
    println!("{what}: {ratio:.4}   goal {GOAL}   {verdict}");
}

/// Prints a row for each loop; the seconds that the guarded one adds to a step, and those of a bare step.
fn measure(case: &Case) -> (f64, f64) {
    let loaded = case.load();
    let allocator = set_environment(&loaded.settings.memory.allocator, Deterministic::No);
    let facts = start(case.asked).expect("the device opens");
    set_matmul_precision(MatmulPrecision::High).expect("the engine takes it");
    // With more, each parallel loop waits for whoever else has the other core.
    set_num_threads(1);

    let mut bare = vec![
        ("bare", Bare::new(&loaded, &facts, Reads::EachLoss)),
        ("bare, once more", Bare::new(&loaded, &facts, Reads::EachLoss)),
    ];
    if facts.device.is_cuda() {
        bare.push(("bare, loss read at the end", Bare::new(&loaded, &facts, Reads::LastLoss)));
    }
    let guarded = fresh(&loaded, &facts);
    let folder = tempfile::tempdir().expect("a folder for the run");
    let (requests, team) = (Requests::default(), Team::default());
    let job = TrainJob {
        settings: &loaded.settings,
        facts: &facts,
        allocator: &allocator,
        choice: NumericsChoice::default(),
        folder: Some(FolderChoice::look(folder.path(), Start::New).expect("the folder is new")),
        team: &team,
        requests: &requests,
        injections: &[],
        schedule: None,
        profile: None,
    };
    let mut rounds =
        Rounds { device: facts.device, block: case.block, steps: 0, begun: Instant::now(), bare, times: Vec::new() };
    let mut losses = Vec::new();
    let run = Trainer::prepare(job, guarded.as_ref(), |record| {
        if let Event::StepDone { loss, .. } = record.event {
            losses.push(loss);
            rounds.step();
        }
    });
    run.and_then(Trainer::train).expect("the run ends well");
    rounds.report(case, *losses.last().expect("there are steps"))
}

impl Case {
    fn load(&self) -> LoadedSettings {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../configs/{}.yaml", self.config));
        let text = std::fs::read_to_string(&path).expect("the configuration is there");
        let steps = format!("train.steps={}", self.block * (WARM_UP + self.rounds));
        let overrides = COMMON.iter().chain(self.overrides).copied().chain([steps.as_str()]);
        let overrides: Vec<_> = overrides.map(|text| Override::set(text).expect("a key and a value")).collect();
        RunSettings::load(Some((&path, &text)), &overrides).expect("the settings are good")
    }
}

/// The workload from the run's seed: the same parameters each time.
fn fresh(loaded: &LoadedSettings, facts: &DeviceFacts) -> Box<dyn Workload> {
    rng::seed(facts.device, loaded.settings.seed).expect("the generators take a seed");
    CATALOGUE.build(loaded, facts).expect("the workload is built").workload
}

/// When a bare loop reads its loss.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// In every step, before the update.
    EachLoss,
    /// After the last step of a block.
    LastLoss,
}

/// A training loop as one writes it by hand.
struct Bare {
    workload: Box<dyn Workload>,
    parameters: Vec<Tensor>,
    optimizer: AdamW,
    clip: Option<f64>,
    rate: f64,
    device: Device,
    kind: Kind,
    batch: u32,
    next_sample: u64,
    reads: Reads,
    loss: f64,
    narrow: NarrowWeights,
    graph: ByHand,
}

/// A step's gradients as a graph that was recorded by hand.
enum ByHand {
    No,
    /// After so many steps without: kernels are compiled and workspaces there.
    In(u32),
    Recorded {
        batch: Batch,
        loss: Tensor,
        gradients: Vec<Tensor>,
        graph: Graph,
        _pool: GraphPool,
    },
}

impl Bare {
    fn new(loaded: &LoadedSettings, facts: &DeviceFacts, reads: Reads) -> Bare {
        let workload = fresh(loaded, facts);
        let settings = &loaded.settings;
        let rule =
            AdamWRule { beta1: settings.optimizer.beta1, beta2: settings.optimizer.beta2, ..AdamWRule::default() };
        let groups: Vec<(f64, Vec<Tensor>)> = workload
            .parameter_groups()
            .into_iter()
            .map(|(decay, named)| {
                (decay * settings.optimizer.weight_decay, named.into_iter().map(|(_, tensor)| tensor).collect())
            })
            .collect();
        let parameters = groups.iter().flat_map(|(_, tensors)| tensors).map(Tensor::shallow_clone).collect();
        let mut optimizer = AdamW::new(rule, groups);
        optimizer.allocate().expect("room for the moments");
        let mut narrow = NarrowWeights::default();
        narrow.keep(facts.device.is_cuda());
        Bare {
            workload,
            parameters,
            optimizer,
            clip: settings.optimizer.clip,
            rate: settings.optimizer.learning_rate,
            device: facts.device,
            kind: if settings.train.precision == Precision::Bf16 { Kind::BFloat16 } else { Kind::Float },
            batch: settings.train.batch,
            next_sample: 0,
            reads,
            loss: f64::NAN,
            narrow,
            graph: if settings.train.graphs == Graphs::On { ByHand::In(2) } else { ByHand::No },
        }
    }

    fn steps(&mut self, count: usize) {
        for left in (0..count).rev() {
            self.step(self.reads == Reads::EachLoss || left == 0);
        }
    }

    fn step(&mut self, reads: bool) {
        let batch = self.workload.train_batch(self.next_sample, self.batch);
        match self.graph {
            ByHand::In(0) => self.record(&batch),
            ByHand::In(steps) => self.graph = ByHand::In(steps - 1),
            ByHand::No | ByHand::Recorded { .. } => {}
        }
        let loss = match &self.graph {
            ByHand::Recorded { batch: place, loss, gradients, graph, .. } => {
                gradients::begin_in(&self.parameters, gradients).expect("nothing is allocated");
                let places = place.inputs.iter().chain(&place.targets);
                for (place, samples) in places.zip(batch.inputs.iter().chain(&batch.targets)) {
                    place.shallow_clone().copy_(samples);
                }
                graph.replay().expect("it was recorded");
                loss.shallow_clone()
            }
            ByHand::No | ByHand::In(_) => self.backward(&batch),
        };
        if reads {
            self.loss = loss.double_value(&[]);
        }
        let mut factor = None;
        if let Some(limit) = self.clip {
            let all = gradients::of(&self.parameters);
            if self.optimizer.takes_factor() {
                factor = Some(gradients::clip_factor(&all, limit).expect("there is memory"));
            } else {
                gradients::clip(&all, limit).expect("there is memory");
            }
        }
        self.optimizer.step_by(self.rate, factor.as_ref()).expect("an update allocates nothing");
        self.narrow.refresh(&self.parameters).expect("nothing is allocated");
        gradients::release(&self.parameters);
        self.next_sample += u64::from(self.batch);
    }

    /// Forward and backward; the mean loss, on the device.
    fn backward(&self, batch: &Batch) -> Tensor {
        let loss = self.loss_sum(batch) / batch.target_count() as f64;
        loss.backward();
        loss.detach()
    }

    fn loss_sum(&self, batch: &Batch) -> Tensor {
        let _narrow = (self.kind != Kind::Float).then(|| Autocast::enter(self.device, self.kind));
        let inputs = batch.inputs.iter().map(Tensor::shallow_clone).collect();
        let outputs = self.workload.segments().iter().fold(inputs, |values: Vec<Tensor>, segment| segment.run(&values));
        self.workload.loss_sum(&outputs, batch, NonZeroU32::MIN)
    }

    /// Records forward and backward of a batch. The guarded loop, which goes first, has given this thread a stream of its own.
    fn record(&mut self, batch: &Batch) {
        let Device::Cuda(index) = self.device else { unreachable!("graphs are for GPUs") };
        let copies = |tensors: &[Tensor]| tensors.iter().map(Tensor::copy).collect();
        let batch = Batch { inputs: copies(&batch.inputs), targets: copies(&batch.targets), ..*batch };
        let gradients: Vec<Tensor> = self.parameters.iter().map(|tensor| tensor.detach().zeros_like()).collect();
        gradients::begin_in(&self.parameters, &gradients).expect("there is memory");
        let pool = GraphPool::new(index).expect("there are graphs");
        let loss = Tensor::zeros([], (Kind::Float, self.device));
        let work = || loss.shallow_clone().copy_(&self.backward(&batch));
        let graph = pool.record(None, work).expect("the model can be recorded");
        self.graph = ByHand::Recorded { batch, loss, gradients, graph, _pool: pool };
    }
}

/// The loops, in turns: the guarded one goes on by itself, the bare ones are called in between.
struct Rounds {
    device: Device,
    block: usize,
    steps: usize,
    /// When the guarded loop's block began.
    begun: Instant,
    bare: Vec<(&'static str, Bare)>,
    /// Seconds a step in each round: of the guarded loop, then of the bare ones.
    times: Vec<Vec<f64>>,
}

impl Rounds {
    /// The guarded loop has made one more step.
    fn step(&mut self) {
        self.steps += 1;
        if !self.steps.is_multiple_of(self.block) {
            return;
        }
        self.wait();
        let mut times = vec![0.0; 1 + self.bare.len()];
        times[0] = self.begun.elapsed().as_secs_f64() / self.block as f64;
        for turn in 0..self.bare.len() {
            let way = (self.times.len() + turn) % self.bare.len();
            let begun = Instant::now();
            self.bare[way].1.steps(self.block);
            self.wait();
            times[1 + way] = begun.elapsed().as_secs_f64() / self.block as f64;
        }
        self.times.push(times);
        self.begun = Instant::now();
    }

    fn wait(&self) {
        if let Device::Cuda(index) = self.device {
            Cuda::synchronize(index as i64);
        }
    }

    fn report(&self, case: &Case, guarded_loss: f64) -> (f64, f64) {
        let counted = &self.times[WARM_UP..];
        let middle = |way: usize| quantile(counted.iter().map(|times| times[way]), 0.5);
        let added = |way: usize| quantile(counted.iter().map(|times| times[way] - times[1]), 0.5);
        println!(
            "{} with {}; {} rounds, steps a round: {}",
            case.config,
            case.overrides.join(" "),
            counted.len(),
            case.block
        );
        println!("{:<28} {:>12} {:>13} {:>7}   middle half", "", "median step", "added", "ratio");
        let names = ["guarded"].into_iter().chain(self.bare.iter().map(|(name, _)| *name));
        let losses = [guarded_loss].into_iter().chain(self.bare.iter().map(|(_, bare)| bare.loss));
        for (way, (name, loss)) in names.zip(losses).enumerate() {
            let (time, added, ratio) = (1e3 * middle(way), 1e6 * added(way), middle(way) / middle(1));
            let [low, high] =
                [0.25, 0.75].map(|share| quantile(counted.iter().map(|times| times[way] / times[1]), share));
            println!(
                "{name:<28} {time:>9.3} ms {added:>10.1} us {ratio:>7.4}   {low:.4} to {high:.4}   last loss {loss}"
            );
        }
        println!();
        if self.device == Device::Cpu {
            assert_eq!(guarded_loss, self.bare[0].1.loss, "the same work has the same loss");
        }
        (added(0), middle(1))
    }
}

/// The value below which so large a share of the values lies.
fn quantile(values: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}
