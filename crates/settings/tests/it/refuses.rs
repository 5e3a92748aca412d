//! Bad input: the whole message and the whole hint of each.

use std::path::Path;

use lowtide_settings::{LoadedSettings, Override, RunSettings, SettingsError, typed};

fn load(yaml: &str, sets: &[&str]) -> Result<LoadedSettings, SettingsError> {
    let overrides = sets.iter().map(|text| Override::set(text)).collect::<Result<Vec<_>, _>>()?;
    RunSettings::load(Some((Path::new("a.yaml"), yaml)), &overrides)
}

fn printed(error: &SettingsError) -> String {
    let hint = error.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
    format!("{error}{hint}")
}

#[track_caller]
fn check(yaml: &str, sets: &[&str], expect: &str) {
    let error = load(yaml, sets).expect_err("bad settings are refused");
    assert_eq!(printed(&error), expect);
}

#[test]
fn unknown_keys() {
    check("train:\n  stepz: 5", &[], "a.yaml:2: unknown key `train.stepz`\nhint: did you mean `train.steps`?");
    check("", &["train.stepz=5"], "--set train.stepz=5: unknown key `train.stepz`\nhint: did you mean `train.steps`?");
    check("\nsteps: 5", &[], "a.yaml:2: unknown key `steps`\nhint: did you mean `train.steps`?");
    check("trian:\n  steps: 5", &[], "a.yaml:1: unknown key `trian`\nhint: did you mean `train`?");
    check("", &["trian.steps=5"], "--set trian.steps=5: unknown key `trian`\nhint: did you mean `train`?");
    check(
        "train: {every: 5}",
        &[],
        "a.yaml:1: unknown key `train.every`\nhint: did you mean `eval.every` or `save.every`?",
    );
    check(
        "train: {zebra: 5}",
        &[],
        "a.yaml:1: unknown key `train.zebra`\n\
         hint: the keys at this level are `steps`, `epochs`, `batch`, `micro_batch`, `precision`, `recompute`, `graphs`",
    );
    check("\"se\\ned\": 5", &[], "a.yaml:1: unknown key `se\\ned`\nhint: did you mean `seed`?");
}

#[test]
fn wrong_types() {
    check("train:\n  steps: many", &[], "a.yaml:2: train.steps: expected a whole number, got \"many\"");
    check(
        "train: {steps: \"5\"}",
        &[],
        "a.yaml:1: train.steps: expected a whole number, got \"5\"\nhint: write 5 without quotes",
    );
    check("train: {steps: 5.5}", &[], "a.yaml:1: train.steps: expected a whole number, got 5.5");
    check("train: {steps: -5}", &[], "a.yaml:1: train.steps: expected a whole number of 0 or more, got -5");
    check("train: {steps: [5]}", &[], "a.yaml:1: train.steps: expected a whole number, got a list");
    check("train: {steps: }", &[], "a.yaml:1: train.steps: expected a whole number, got nothing (null)");
    check(
        "train: {batch: 4294967296}",
        &[],
        "a.yaml:1: train.batch: expected a whole number up to 4294967295, got 4294967296",
    );
    check("seed: 18446744073709551616", &[], "a.yaml:1: seed: expected a whole number, got 1.8446744073709552e+19");
    check("seed: {x: 1}", &[], "a.yaml:1: seed: expected a whole number, got a group of keys");
    check("workload: 5", &[], "a.yaml:1: workload: expected text, got 5\nhint: write it in quotes: \"5\"");
    check("train: 5", &[], "a.yaml:1: train: expected a group of keys, got 5");
    check(
        "train: [1]",
        &[],
        "a.yaml:1: train: expected a group of keys, got a list\nhint: write the keys of a group without dashes and brackets",
    );
    check(
        "model: [1]",
        &[],
        "a.yaml:1: model: expected a group of keys, got a list\nhint: write the keys of a group without dashes and brackets",
    );
    check("", &["data=x"], "--set data=x: data: expected a group of keys, got \"x\"");
    check("eval: {at_start: 1}", &[], "a.yaml:1: eval.at_start: expected true or false, got 1");
    check("eval:\n  every: never", &[], "a.yaml:2: eval.every: expected a whole number, got \"never\"");
    check("optimizer: {clip: off}", &[], "a.yaml:1: optimizer.clip: expected a number, got \"off\"");
    let words = "expected one of auto, fp32, bf16, fp16, got";
    check("train: {precision: fp64}", &[], &format!("a.yaml:1: train.precision: {words} \"fp64\""));
    check("train: {precision: 16}", &[], &format!("a.yaml:1: train.precision: {words} 16"));
    check("train: {precision: true}", &[], &format!("a.yaml:1: train.precision: {words} true"));
    check("", &["train.recompute=5"], "--set train.recompute=5: train.recompute: expected one of auto, on, off, got 5");
}

#[test]
fn values_that_make_no_sense() {
    let one = "expected a whole number of 1 or more, got 0";
    check("train:\n\n  steps: 0", &[], &format!("a.yaml:3: train.steps: {one}"));
    check("", &["train.batch=0"], &format!("--set train.batch=0: train.batch: {one}"));
    check("save: {keep: 0}", &[], &format!("a.yaml:1: save.keep: {one}"));
    check("eval: {batches: 0}", &[], &format!("a.yaml:1: eval.batches: {one}"));
    let never = "expected a whole number of 1 or more, or null for never, got 0";
    check("eval: {every: 0}", &[], &format!("a.yaml:1: eval.every: {never}"));
    let pixels = "expected auto, a number of pixels of 1 or more, or null, got";
    check("eval: {crop: 0}", &[], &format!("a.yaml:1: eval.crop: {pixels} 0"));
    check("eval: {tile: large}", &[], &format!("a.yaml:1: eval.tile: {pixels} \"large\""));
    check("eval: {patience: 0}", &[], &format!("a.yaml:1: eval.patience: {never}"));
    check(
        "eval: {every: null, patience: 3}",
        &[],
        "a.yaml:1: eval.patience: expected null, because eval.every is null, got 3",
    );
    check("save: {every: 0}", &[], &format!("a.yaml:1: save.every: {never}"));
    let samples = "train.micro_batch: expected auto or a whole number from 1 to train.batch";
    for wrong in ["0", "-1", "2.5", "5000000000"] {
        check(&format!("train: {{micro_batch: {wrong}}}"), &[], &format!("a.yaml:1: {samples}, got {wrong}"));
    }
    check("train:\n  micro_batch: 8", &["train.batch=4"], &format!("a.yaml:2: {samples} (4), got 8"));
    check("train: {micro_batch: small}", &[], &format!("a.yaml:1: {samples}, got \"small\""));
    let positive = "expected a number of 0 or more, got -1";
    check("optimizer: {learning_rate: -1}", &[], &format!("a.yaml:1: optimizer.learning_rate: {positive}"));
    check("optimizer: {weight_decay: -1}", &[], &format!("a.yaml:1: optimizer.weight_decay: {positive}"));
    check("optimizer: {beta1: 1}", &[], "a.yaml:1: optimizer.beta1: expected a number of 0 or more and below 1, got 1");
    check(
        "optimizer: {beta2: -0.1}",
        &[],
        "a.yaml:1: optimizer.beta2: expected a number of 0 or more and below 1, got -0.1",
    );
    check(
        "optimizer: {clip: 0}",
        &[],
        "a.yaml:1: optimizer.clip: expected a number above 0, or null for no limit, got 0",
    );
    check(
        "",
        &["optimizer.learning_rate=1e-5"],
        "optimizer.min_learning_rate: expected a number up to optimizer.learning_rate (0.00001), got 0.0001\n\
         hint: set `optimizer.min_learning_rate` too",
    );
    check("workload: ' '", &[], "a.yaml:1: workload: expected the name of a workload, got \" \"");
    check(
        "memory: {allocator: \"a\\nb\"}",
        &[],
        "a.yaml:1: memory.allocator: expected one line such as expandable_segments:True, got \"a\\nb\"",
    );
}

/// Finite as they stand, and not in the precision that updates are computed in.
#[test]
fn numbers_beyond_fp32() {
    for key in ["learning_rate", "weight_decay", "clip"] {
        for number in ["1e308", "1e39"] {
            let got = format!("expected a number up to 3.4028235e38, the largest in fp32, got {number}");
            check(
                "",
                &[&format!("optimizer.{key}={number}")],
                &format!("--set optimizer.{key}={number}: optimizer.{key}: {got}"),
            );
        }
    }
    check(
        "",
        &["optimizer.clip=1e-46"],
        "--set optimizer.clip=1e-46: optimizer.clip: expected a number of 1.1754944e-38 or more, the smallest in fp32, or null for no \
         limit, got 1e-46",
    );
    for key in ["beta1", "beta2"] {
        check(
            "",
            &[&format!("optimizer.{key}=0.99999999999")],
            &format!(
                "--set optimizer.{key}=0.99999999999: optimizer.{key}: expected a number that is still below 1 in fp32, such as 0.9999999, \
                 got 0.99999999999"
            ),
        );
    }
    check(
        "",
        &["optimizer.learning_rate=1e30", "optimizer.weight_decay=1e30"],
        "--set optimizer.weight_decay=1e30: optimizer.weight_decay: expected a number whose product with optimizer.learning_rate (1e30) fits \
         fp32, got 1e30",
    );
}

#[test]
fn memory_limits() {
    let mend = "write a size such as 3.5GiB, a percentage such as 90%, or none";
    check(
        "memory:\n  limit: 3.5GiBB",
        &[],
        &format!("a.yaml:2: memory.limit: `3.5GiBB` is not a memory limit: {mend}"),
    );
    check(
        "memory: {host_limit: 0}",
        &[],
        "a.yaml:1: memory.host_limit: a memory limit of 0 bytes leaves room for nothing: write a larger one, or none",
    );
    check(
        "memory: {limit: }",
        &[],
        "a.yaml:1: memory.limit: expected a memory limit: a size such as 3.5GiB, a percentage such as 90%, or none, \
         got nothing (null)",
    );
    check("memory: {limit: \"a\\nb\"}", &[], &format!("a.yaml:1: memory.limit: `a\\nb` is not a memory limit: {mend}"));
    let flag = Override::flag("--limit", "memory.limit", "3.5GiBB").unwrap();
    let error = RunSettings::load(None, &[flag]).unwrap_err();
    assert_eq!(printed(&error), format!("--limit 3.5GiBB: memory.limit: `3.5GiBB` is not a memory limit: {mend}"));
}

#[test]
fn overrides() {
    check("", &["train.steps"], "--set train.steps: there is no `=` and no value\nhint: write --set train.steps=VALUE");
    let example = "hint: write --set KEY=VALUE, such as --set train.steps=500";
    check("", &["=5"], &format!("--set =5: the key is empty\n{example}"));
    let words = "hint: write words with one dot between them, such as train.steps";
    check("", &["train..steps=5"], &format!("--set train..steps=5: `train..steps` is not a key\n{words}"));
    check("", &[".=5"], &format!("--set .=5: `.` is not a key\n{words}"));
    for yaml in ["", "seed: 5"] {
        let through = "--set seed.x=1: `seed` holds a value, not a group of keys\nhint: set `seed` as a whole";
        check(yaml, &["seed.x=1"], through);
    }
    check(
        "model: {widths: [1, 2]}",
        &["model.widths.0=1"],
        "--set model.widths.0=1: `model.widths` holds a value, not a group of keys\nhint: set `model.widths` as a whole",
    );
    check(
        "",
        &["train={steps: 5}"],
        "--set train={steps: 5}: the value is a group of keys\nhint: set its keys one by one, each with its own --set",
    );
    for broken in ["[1, 2", "\"a", "[1] 2", "[*a]"] {
        let hint = "hint: write a list as [1, 2], a text as \"text\"";
        let expect = format!("--set model.a={broken}: the list or quoted text does not end well\n{hint}");
        check("", &[&format!("model.a={broken}")], &expect);
    }
    check(
        "",
        &["optimizer.clip=.inf"],
        "--set optimizer.clip=.inf: `.inf` is not a number that a setting can have\n\
         hint: write a finite number, or null where the setting can be off",
    );
}

#[test]
fn files_that_are_not_settings() {
    let edge = "hint: write keys such as `train:` at the left edge";
    check("- a\n- b", &[], &format!("a.yaml:1: expected a group of keys, got a list\n{edge}"));
    check("\n\nhello", &[], &format!("a.yaml:3: expected a group of keys, got \"hello\"\n{edge}"));
    check(
        "seed: 1\n---\nseed: 2",
        &[],
        "a.yaml:2: a second document starts here, but a file holds the settings of one run\n\
         hint: remove the `---` and what follows it",
    );
    check(
        "train:\n  steps: 1\n\n  steps: 2",
        &[],
        "a.yaml:4: the key `train.steps` is written twice (first at line 2)\nhint: remove one of the two",
    );
    check(
        "memory:\n  line: 1GiB\n  limit: 2GiB",
        &[],
        "a.yaml:3: the key `memory.limit` is written twice (first at line 2)\nhint: remove one of the two",
    );
    let quotes = "hint: write `key: value`, with quotes around the key if it is a number";
    check("seed: 1\n5: 6", &[], &format!("a.yaml:2: 5 is used as a key, but keys are words\n{quotes}"));
    check(
        "? [a]\n: 6",
        &[],
        "a.yaml:1: a list or group is used as a key, but keys are words\nhint: write `key: value`",
    );
    check(
        "train.steps: 5",
        &[],
        "a.yaml:1: the key `train.steps` has a dot in it\nhint: write `train:` and, indented below it, `steps:`",
    );
    check("\"\": 5", &[], "a.yaml:1: a key has between 1 and 200 characters\nhint: write `key: value`");
    let anchors = "anchors (`&name`) and aliases (`*name`) are not read in settings\nhint: write the value out";
    check("model:\n  a: &x [1, 1]\n  b: [*x, *x]", &[], &format!("a.yaml:2: {anchors}"));
    check(
        "workload: !!python/name:os.system x",
        &[],
        "a.yaml:1: tags (`!name`) are not read in settings\nhint: write the value without its tag",
    );
    check(
        "optimizer: {clip: .nan}",
        &[],
        "a.yaml:1: `.nan` is not a number that a setting can have\n\
         hint: write a finite number, or null where the setting can be off",
    );
}

#[test]
fn broken_yaml() {
    let check = |yaml: &str, expect: &str| check(yaml, &[], expect);
    check(
        "train:\n\tsteps: 5",
        "a.yaml:2: this is not YAML: tabs disallowed within this context (block indentation)\n\
         hint: indent with spaces, not with tabs",
    );
    let values = "this is not YAML: mapping values are not allowed in this context\n\
                  hint: write `key: value` with a blank after the colon, and indent the keys of a group alike";
    check("train:\n  steps: 5\n   batch: 3", &format!("a.yaml:3: {values}"));
    check("train:\n  steps 5\n  batch: 3", &format!("a.yaml:3: {values}"));
    check(
        "workload: \"gpt",
        "a.yaml:1: this is not YAML: while scanning a quoted scalar, found unexpected end of stream\n\
         hint: look for a quote that is not closed, or a backslash inside double quotes",
    );
    check(
        "train: {steps: 5",
        "a.yaml:1: this is not YAML: while parsing a flow mapping, did not find expected ',' or '}'\n\
         hint: look for a bracket or comma that is missing",
    );
    check(
        "train:\n  steps:5",
        "a.yaml:1: train: expected a group of keys, got \"steps:5\"\nhint: write a blank after the colon",
    );
    check("memory: {limit:3GiB}", "a.yaml:1: unknown key `memory.limit:3GiB`\nhint: did you mean `memory.limit`?");
}

#[test]
fn hostile_files() {
    let deep = "groups and lists are nested more than 32 levels deep\n\
                hint: no setting lies that deep: look for a bracket or dash too many";
    check(&"- ".repeat(500_000), &[], &format!("a.yaml:1: {deep}"));
    check(&"[".repeat(1 << 20), &[], &format!("a.yaml:1: {deep}"));
    check(&"{a: ".repeat(1 << 18), &[], &format!("a.yaml:1: {deep}"));
    check(
        &format!("model: [{}]", "1,".repeat(500_000)),
        &[],
        "a.yaml:1: more than 10000 keys and values stand before this line, which is too many for settings\n\
         hint: give the path of a data file instead of the data",
    );
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its errors are looked at")]
struct Model {
    width: u32,
    #[serde(default)]
    blocks: Vec<Block>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its errors are looked at")]
struct Block {
    heads: std::num::NonZeroU32,
}

#[track_caller]
fn check_model(yaml: &str, sets: &[&str], expect: &str) {
    let loaded = load(yaml, sets).expect("the run's own settings are right");
    let error = typed::<Model>(&loaded.settings.model, "model", &loaded.origins).expect_err("a bad model is refused");
    assert_eq!(printed(&error), expect);
}

#[test]
fn a_workloads_own_settings() {
    check_model("model:\n  widht: 5", &[], "a.yaml:2: unknown key `model.widht`\nhint: did you mean `model.width`?");
    check_model("model: {steps: 5}", &[], "a.yaml:1: unknown key `model.steps`\nhint: did you mean `train.steps`?");
    check_model("model: {}", &[], "a.yaml:1: `model.width` is missing");
    check_model("", &["model.blocks=[]"], "`model.width` is missing");
    check_model(
        "",
        &["model.width=wide"],
        "--set model.width=wide: model.width: expected a whole number, got \"wide\"",
    );
    let blocks = "model:\n  width: 8\n  blocks:\n    - heads: 2\n    - heads: 0";
    check_model(blocks, &[], "a.yaml:5: model.blocks[1].heads: expected a whole number of 1 or more, got 0");
    let blocks = "model:\n  width: 8\n  blocks:\n    - heads: 2\n    - 7";
    check_model(blocks, &[], "a.yaml:5: model.blocks[1]: expected a group of keys, got 7");
    check_model(
        "model:\n  blocks: [{head: 1}]",
        &[],
        "a.yaml:2: unknown key `model.blocks[0].head`\nhint: did you mean `model.blocks[0].heads`?",
    );
}
