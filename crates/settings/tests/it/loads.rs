//! Good input: what is read, who wins, and that written settings load back.

use std::path::{Path, PathBuf};

use lowtide_core::{Bytes, LineSpec, MicroBatch, Percent};
use lowtide_settings::{
    Backend, Clean, CropChoice, EvalSettings, Graphs, LoadedSettings, MemorySettings, MicroBatchChoice,
    OptimizerSettings, Override, Precision, RanksSettings, Recompute, RunSettings, SaveSettings, Shard, Spill,
    TileChoice, TrainSettings, WatchSettings, to_yaml,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn load(yaml: &str, sets: &[&str]) -> LoadedSettings {
    let overrides: Vec<Override> = sets.iter().map(|text| Override::set(text).expect("good overrides")).collect();
    RunSettings::load(Some((Path::new("a.yaml"), yaml)), &overrides).expect("good settings")
}

#[test]
fn nothing_written_is_all_defaults() {
    for yaml in ["", "\n", "# nothing\n", "---\n", "\u{feff}", "~", "{}", "train:\n  # steps: 5\nmodel:\n"] {
        assert_eq!(load(yaml, &[]).settings, RunSettings::default(), "{yaml:?}");
    }
    assert_eq!(RunSettings::load(None, &[]).unwrap().settings, RunSettings::default());
}

#[test]
fn a_file_is_read() {
    let yaml = "\
workload: gpt
seed: 18446744073709551615
model: {width: 64, names: [a, 'b']}
train:\r
  steps: 10
  micro_batch: 4
  precision: BF16
  recompute: true
optimizer:
  learning_rate: 1e-2
  weight_decay: 0
  clip: null
memory:
  limit: 3.5GiB
  host_limit: 90%
eval:
  every: ~
";
    let settings = load(yaml, &[]).settings;
    assert_eq!(settings.seed, u64::MAX);
    assert_eq!(settings.model, json!({"width": 64, "names": ["a", "b"]}));
    assert_eq!(settings.train.micro_batch, MicroBatchChoice::Samples(MicroBatch::new(4).unwrap()));
    assert_eq!(settings.train.precision, Precision::Bf16);
    assert_eq!(settings.train.recompute, Recompute::On);
    assert_eq!(settings.optimizer.learning_rate, 0.01);
    assert_eq!((settings.optimizer.weight_decay, settings.optimizer.clip), (0.0, None));
    assert_eq!(settings.memory.line, LineSpec::Size(Bytes(7 << 29)));
    assert_eq!(settings.eval, EvalSettings { every: None, ..EvalSettings::default() });
}

#[test]
fn keys_with_the_names_they_had_before() {
    let memory = |yaml, set: &[&str]| load(yaml, set).settings.memory;
    let old = memory("memory: {line: 3GiB, host_line: 90%}", &[]);
    assert_eq!(old, memory("memory: {limit: 3GiB, host_limit: 90%}", &[]));
    // What is typed goes over what the file says, by whichever name.
    assert_eq!(memory("memory: {limit: 3GiB}", &["memory.line=1GiB"]).line, LineSpec::Size(Bytes::from_gib(1)));
    assert_eq!(memory("memory: {line: 3GiB}", &["memory.limit=1GiB"]).line, LineSpec::Size(Bytes::from_gib(1)));
    // The same name in another group is another key.
    assert_eq!(load("model: {line: 3}", &[]).settings.model, json!({"line": 3}));
}

#[test]
fn later_layers_win() {
    let loaded = load(
        "train:\n  steps: 1\n  batch: 2\nmodel:\n  a: {b: 1}",
        &["train.steps=5", "train.steps=6", "model.a=7", "train.recompute=off"],
    );
    assert_eq!((loaded.settings.train.steps, loaded.settings.train.batch), (6, 2));
    assert_eq!(loaded.settings.train.recompute, Recompute::Off);
    assert_eq!(loaded.settings.model, json!({"a": 7}));
    let origin = |path| loaded.origins.of(path).map(ToString::to_string);
    assert_eq!(origin("train.steps").as_deref(), Some("--set train.steps=6"));
    assert_eq!(origin("train.batch").as_deref(), Some("a.yaml:3"));
    assert_eq!(origin("model.a.b").as_deref(), Some("--set model.a=7"));
    assert_eq!(origin("save.keep"), None);
    assert!(loaded.origins.is_set("train") && !loaded.origins.is_set("save"));
}

fn any_line() -> impl Strategy<Value = LineSpec> {
    prop_oneof![
        Just(LineSpec::None),
        (1u64..).prop_map(|bytes| LineSpec::Size(Bytes(bytes))),
        (1u16..=10_000).prop_map(|share| LineSpec::Share(Percent::from_hundredths(share).expect("in range"))),
    ]
}

fn any_group() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::num::f64::NORMAL.prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[-+.0-9a-z:#,\\[\\]{}&*!|>'\"% ]{0,8}".prop_map(Value::from),
    ];
    let tree = leaf.prop_recursive(4, 30, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::hash_map(any_key(), inner, 0..5).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    prop::collection::hash_map(any_key(), tree, 0..5).prop_map(|map| Value::Object(map.into_iter().collect()))
}

fn any_key() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z_]{1,9}", "[^.]{1,9}"]
}

prop_compose! {
    fn any_train()(
        steps in 1u64..,
        epochs in prop::option::of(1u64..),
        batch in 1u32..,
        share in prop::option::of(0u32..1000),
        precision in prop::sample::select(vec![Precision::Auto, Precision::Fp32, Precision::Bf16, Precision::Fp16]),
        recompute in prop::sample::select(vec![Recompute::Auto, Recompute::On, Recompute::Off]),
        graphs in prop::sample::select(vec![Graphs::Auto, Graphs::On, Graphs::Off]),
    ) -> TrainSettings {
        let samples = share.and_then(|share| MicroBatch::new(1 + share % batch));
        let micro_batch = samples.map_or(MicroBatchChoice::Auto, MicroBatchChoice::Samples);
        TrainSettings { steps, epochs, batch, micro_batch, precision, recompute, graphs }
    }
}

prop_compose! {
    fn any_optimizer()(
        learning_rate in 0.0..1e9,
        share in 0.0..=1.0,
        warmup_steps: u64,
        weight_decay in 0.0..1e-9,
        beta1 in 0.0..0.999_999_9,
        beta2 in 0.0..0.999_999_9,
        clip in prop::option::of(1e-37..1e38),
    ) -> OptimizerSettings {
        let min_learning_rate = learning_rate * share;
        OptimizerSettings { learning_rate, min_learning_rate, warmup_steps, weight_decay, beta1, beta2, clip }
    }
}

fn any_crop() -> impl Strategy<Value = CropChoice> {
    prop_oneof![Just(CropChoice::Auto), Just(CropChoice::Whole), (1u32..).prop_map(CropChoice::Pixels)]
}

fn any_tile() -> impl Strategy<Value = TileChoice> {
    prop_oneof![Just(TileChoice::Auto), Just(TileChoice::None), (1u32..).prop_map(TileChoice::Pixels)]
}

prop_compose! {
    fn any_settings()(
        (workload, seed, model, data) in ("\\PC*[a-z]", any::<u64>(), any_group(), any_group()),
        train in any_train(),
        optimizer in any_optimizer(),
        (line, host_line, allocator) in (any_line(), any_line(), "\\PC*"),
        (eval_every, batches, at_start) in (prop::option::of(1u64..), 1u64.., any::<bool>()),
        patience in prop::option::of(1u64..),
        (crop, tile, tile_approximate) in (any_crop(), any_tile(), any::<bool>()),
        (metrics, lpips) in (prop::option::of(prop::collection::vec("\\PC*", 0..3)), prop::option::of("\\PC*[a-z]")),
        (save_every, keep) in (prop::option::of(1u64..), 1u32..),
        (clean_every, seconds, log_every) in
            (prop::option::of(1u64..), prop::option::of(1u64..), prop::option::of(1u64..)),
    ) -> RunSettings {
        let memory = MemorySettings {
            line,
            host_line,
            allocator,
            clean: Clean::Clock,
            spill: Spill::Off,
            narrow: true,
            recover: false,
        };
        let patience = patience.filter(|_| eval_every.is_some());
        let eval = EvalSettings {
            every: eval_every,
            batches,
            clean_every,
            at_start,
            patience,
            metrics,
            crop,
            tile,
            tile_approximate,
            lpips: lpips.map(PathBuf::from),
        };
        let save = SaveSettings { every: save_every, keep };
        let watch = WatchSettings { seconds, log_every, tensorboard: false };
        let ranks = RanksSettings {
            timeout: seconds.map_or(1, |seconds| seconds.clamp(1, 86_400)),
            uneven: seconds.is_none(),
            shard: if seconds.is_some() { Shard::On } else { Shard::Off },
            backend: if seconds.is_some() { Backend::Nccl } else { Backend::Gloo },
        };
        RunSettings { workload, seed, model, data, train, optimizer, memory, eval, save, watch, ranks }
    }
}

/// Files made of the pieces that parsers stumble over.
fn yaml_soup() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "train",
        "steps",
        "seed",
        "model",
        ":",
        ": ",
        "\n",
        "\n  ",
        "- ",
        "? ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "\"",
        "'",
        "|",
        ">",
        "&a",
        "*a",
        "!t ",
        "!!str ",
        "#",
        "\t",
        "---\n",
        "...\n",
        "%TAG ! x\n",
        "5",
        "-1",
        "1e3",
        ".nan",
        "~",
        "é",
        "\r",
        "\u{feff}",
        "\u{0}",
        "\\",
        "<<",
        ".",
        "=",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn written_settings_load_back(settings in any_settings()) {
        let yaml = to_yaml(&settings);
        let loaded = RunSettings::load(Some((Path::new("config.yaml"), &yaml)), &[]);
        prop_assert_eq!(loaded.map_err(|error| error.to_string()).map(|loaded| loaded.settings), Ok(settings), "{}", yaml);
    }

    #[test]
    fn any_text_is_read_or_refused_in_one_line(text in prop_oneof![any::<String>(), yaml_soup()], set in yaml_soup()) {
        let overrides: Vec<Override> = Override::set(&set).into_iter().chain(Override::flag("--limit", "memory.limit", &text)).collect();
        for overrides in [&overrides[..], &[]] {
            match RunSettings::load(Some((Path::new("a.yaml"), &text)), overrides) {
                Ok(loaded) => {
                    let again = RunSettings::load(Some((Path::new("config.yaml"), &to_yaml(&loaded.settings))), &[]);
                    prop_assert_eq!(again.map_err(|error| error.to_string()).map(|again| again.settings), Ok(loaded.settings));
                }
                Err(error) => {
                    prop_assert_eq!(error.to_string().lines().count(), 1);
                    prop_assert!(error.hint().is_none_or(|hint| hint.lines().count() == 1));
                }
            }
        }
    }
}
