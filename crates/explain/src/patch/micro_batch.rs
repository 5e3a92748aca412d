//! A smaller micro-batch with as much accumulation as keeps the product.

use lowtide_config::{Config, Setting, Syntax};
use lowtide_trainers::{Answer, is_deepspeed};

use super::change::{Edit, Patch};
use super::edit::{add_after, replace};
use crate::facts::{Facts, Key};

/// Both keys in one file, or none.
const TWO_PLACES: &str = "batch size and accumulation are set in two different places: change both by hand";

/// A batch of another size with as much accumulation as keeps the product; the reason where that cannot be written.
pub(crate) fn micro_batch(facts: &Facts<'_>, micro: u64, accumulation: u64) -> Result<Patch, String> {
    let refused = || "the settings stand where they cannot be written".to_owned();
    let steps = match facts.answer(Key::Accumulation) {
        Answer::Number { config, setting, .. } => Some((config, setting)),
        Answer::Unknown(why) => return Err(why),
        Answer::Absent => None,
    };
    if let Some((config, whole)) = facts.whole_batch() {
        let edit = match steps {
            Some((other, setting)) if other.name == config.name => replace(config, setting, accumulation),
            Some(_) => return Err(TWO_PLACES.to_owned()),
            None => add_after(config, whole, "gradient_accumulation_steps", accumulation).ok_or_else(refused)?,
        };
        return Patch::new(config, vec![edit]).ok_or_else(refused);
    }
    let (config, batch) = match facts.answer(Key::Batch) {
        Answer::Number { config, setting, .. } => (config, setting),
        Answer::Unknown(why) => return Err(why),
        Answer::Absent => return Err("no configuration given sets the batch size".to_owned()),
    };
    for (key, name) in [(Key::Batch, "the batch size"), (Key::Accumulation, "accumulation")] {
        if facts.rival(key).is_some() {
            return Err(format!("{name} is set in several places: change the one that was in use by hand"));
        }
    }
    let mut edits = vec![replace(config, batch, micro)];
    // Where nothing is updated there is nothing to gather, and a fixed update gathers what it needs by itself.
    if facts.is_on(Key::EvalOnly) == Some(true) || facts.fixed_update().is_some() {
        return Patch::new(config, edits).ok_or_else(refused);
    }
    match steps {
        Some((other, setting)) if other.name == config.name => edits.push(replace(config, setting, accumulation)),
        Some(_) if config.syntax != Syntax::Command => return Err(TWO_PLACES.to_owned()),
        _ => edits.push(added_steps(facts, config, batch, accumulation)?.ok_or_else(refused)?),
    }
    Patch::new(config, edits).ok_or_else(refused)
}

/// Accumulation where the configuration has none, in the words of whoever reads it.
fn added_steps(facts: &Facts<'_>, config: &Config, batch: &Setting, accumulation: u64) -> Result<Option<Edit>, String> {
    let is_lightning = facts
        .configs
        .iter()
        .any(|config| config.settings.iter().any(|setting| setting.path.len() > 1 && setting.path[0] == "trainer"));
    match (facts.is_nanogpt() || facts.is_hugging_face() || is_deepspeed(config), is_lightning, config.syntax) {
        (true, _, _) => Ok(add_after(config, batch, "gradient_accumulation_steps", accumulation)),
        (false, true, Syntax::Command) => Ok(add_after(config, batch, "trainer.accumulate_grad_batches", accumulation)),
        (false, true, Syntax::Yaml | Syntax::Json) => {
            let beside = config.settings.iter().find(|setting| setting.path.len() == 2 && setting.path[0] == "trainer");
            let beside = beside.ok_or("the trainer's settings stand in another file")?;
            Ok(add_after(config, beside, "accumulate_grad_batches", accumulation))
        }
        _ => {
            Err("the configuration has no key for accumulation, and a smaller batch alone would change training"
                .to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::PatchError;
    use super::*;

    #[track_caller]
    fn check(name: &str, text: &str, expected: &str) -> String {
        let configs = [Config::parse(name, text).unwrap()];
        let facts = Facts::of(&configs);
        let patch = micro_batch(&facts, 4, 16).unwrap();
        assert_eq!(patch.apply(text).unwrap(), expected);
        assert_eq!(patch.apply(&format!("{text} ")), Err(PatchError::Changed));
        patch.diff
    }

    #[test]
    fn nanogpt_keeps_comments_and_order() {
        let text = "# mine\nout_dir = 'x'\nbatch_size = 64 # big\nblock_size = 1024\n\neval_iters = \
            200\ngradient_accumulation_steps = 1 # none\n";
        let diff = check(
            "config/train_owt.py",
            text,
            "# mine\nout_dir = 'x'\nbatch_size = 4 # big\nblock_size = 1024\n\neval_iters = \
             200\ngradient_accumulation_steps = 16 # none\n",
        );
        assert_eq!(
            diff,
            "--- a/config/train_owt.py\n+++ b/config/train_owt.py\n@@ -1,7 +1,7 @@\n # mine\n out_dir = \
             'x'\n-batch_size = 64 # big\n\
             +batch_size = 4 # big\n block_size = 1024\n \n eval_iters = 200\n-gradient_accumulation_steps = 1 # none\n\
             +gradient_accumulation_steps = 16 # none\n"
        );
        let diff = check(
            "a.py",
            "batch_size = 64\nblock_size = 8",
            "batch_size = 4\ngradient_accumulation_steps = 16\nblock_size = 8",
        );
        assert_eq!(
            diff,
            "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,3 @@\n-batch_size = 64\n+batch_size = 4\n+gradient_accumulation_steps \
             = 16\n \
             block_size = 8\n\\ No newline at end of file\n"
        );
    }

    #[test]
    fn every_syntax() {
        check(
            "run.yaml",
            "train:\n  batch_size: 64  # b\n  accum_steps: 1\n",
            "train:\n  batch_size: 4  # b\n  accum_steps: 16\n",
        );
        check(
            "args.yaml",
            "per_device_train_batch_size: 64  # b\nlr: 1\n",
            "per_device_train_batch_size: 4  # b\ngradient_accumulation_steps: 16\nlr: 1\n",
        );
        check(
            "args.json",
            "{\n  \"per_device_train_batch_size\": 64,\n  \"lr\": 1\n}\n",
            "{\n  \"per_device_train_batch_size\": 4,\n  \"gradient_accumulation_steps\": 16,\n  \"lr\": 1\n}\n",
        );
        check(
            "run.sh",
            "python run.py --per_device_train_batch_size 64 \\\n  --bf16\n",
            "python run.py --per_device_train_batch_size 4 --gradient_accumulation_steps 16 \\\n  --bf16\n",
        );
        check(
            "fit.sh",
            "python main.py fit --data.batch_size=64 --trainer.max_epochs=3\n",
            "python main.py fit --data.batch_size=4 --trainer.accumulate_grad_batches=16 --trainer.max_epochs=3\n",
        );
        check(
            "hydra.sh",
            "python main.py data.batch_size=64 trainer.max_epochs=3\n",
            "python main.py data.batch_size=4 trainer.accumulate_grad_batches=16 trainer.max_epochs=3\n",
        );
        check(
            "args.py",
            "args = TrainingArguments(\"o\", per_device_train_batch_size=64, gradient_accumulation_steps=1)  # x\n",
            "args = TrainingArguments(\"o\", per_device_train_batch_size=4, gradient_accumulation_steps=16)  # x\n",
        );
        check(
            "args.py",
            "args = TrainingArguments(per_device_train_batch_size=64)\n",
            "args = TrainingArguments(per_device_train_batch_size=4, gradient_accumulation_steps=16)\n",
        );
        check(
            "train.py",
            "p.add_argument('--batch-size', type=int, default=64)\np.add_argument('--accum_iter', default=1)\n",
            "p.add_argument('--batch-size', type=int, default=4)\np.add_argument('--accum_iter', default=16)\n",
        );
        check(
            "w.yaml",
            "a: {per_device_train_batch_size: 64, b: 1}\r\n",
            "a: {per_device_train_batch_size: 4, gradient_accumulation_steps: 16, b: 1}\r\n",
        );
    }

    #[test]
    fn groups_and_arguments() {
        check(
            "lightning.yaml",
            "trainer:\n  max_epochs: 3  # few\n  devices: 1\ndata:\n  batch_size: 64\n",
            "trainer:\n  max_epochs: 3  # few\n  accumulate_grad_batches: 16\n  devices: 1\ndata:\n  batch_size: 4\n",
        );
        check(
            "finetune.py",
            "args = TrainingArguments(\n    per_device_train_batch_size=64,  # big\n    lr=1e-4,\n)\n",
            "args = TrainingArguments(\n    per_device_train_batch_size=4,  # big\n    \
             gradient_accumulation_steps=16,\n    lr=1e-4,\n)\n",
        );
        check(
            "finetune.py",
            "args = TrainingArguments(\n    per_device_train_batch_size=64, lr=1e-4\n)\n",
            "args = TrainingArguments(\n    per_device_train_batch_size=4, gradient_accumulation_steps=16, lr=1e-4\n)\n",
        );
    }

    #[test]
    fn what_is_not_the_value_stays() {
        check(
            "a.yaml",
            "\u{feff}train:\n  batch_size: &b 64 # x\n  accum_steps: !!int 1\nlogged: *b\n",
            "\u{feff}train:\n  batch_size: &b 4 # x\n  accum_steps: !!int 16\nlogged: *b\n",
        );
    }

    #[test]
    fn groups_of_evaluation_are_left_alone() {
        check(
            "a.yaml",
            "val:\n  batch_size: 8\ntrain:\n  batch_size: 64\n  accum_steps: 1\n",
            "val:\n  batch_size: 8\ntrain:\n  batch_size: 4\n  accum_steps: 16\n",
        );
    }

    #[test]
    fn the_batch_of_a_whole_update_stays() {
        check(
            "ds.json",
            "{\n\t\"train_batch_size\": 64,\n\t\"gradient_accumulation_steps\": 1,\n\t\"steps_per_print\": 9\n}",
            "{\n\t\"train_batch_size\": 64,\n\t\"gradient_accumulation_steps\": 16,\n\t\"steps_per_print\": 9\n}",
        );
        check(
            "ds.json",
            "{\"train_micro_batch_size_per_gpu\": 64, \"gradient_accumulation_steps\": 1, \"train_batch_size\": 64}",
            "{\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 16, \"train_batch_size\": 64}",
        );
    }

    #[test]
    fn deepspeed_has_a_key_for_accumulation() {
        check(
            "ds.json",
            "{\n  \"train_micro_batch_size_per_gpu\": 64,\n  \"zero_optimization\": {\"stage\": 2}\n}\n",
            "{\n  \"train_micro_batch_size_per_gpu\": 4,\n  \"gradient_accumulation_steps\": 16,\n  \"zero_optimization\": \
             {\"stage\": 2}\n}\n",
        );
    }

    #[test]
    fn what_deepspeed_and_the_trainer_both_say_has_to_agree() {
        let besides = |json: &str| {
            let command = "deepspeed train.py --per_device_train_batch_size 64 --gradient_accumulation_steps 1 --deepspeed ds.json\n";
            let configs = [Config::parse("ds.json", json).unwrap(), Config::parse("run.sh", command).unwrap()];
            let facts = Facts::of(&configs);
            let patch = micro_batch(&facts, 4, 16).unwrap();
            assert_eq!(patch.file, "run.sh");
            facts.change_besides(&patch.file, 4, 16)
        };
        let set =
            "{\"train_micro_batch_size_per_gpu\": 64, \"gradient_accumulation_steps\": 1, \"train_batch_size\": 64}";
        let note = besides(set).unwrap();
        let words = "train_micro_batch_size_per_gpu to 4 in ds.json and gradient_accumulation_steps to 16 in ds.json";
        assert!(note.contains(words), "{note}");
        let auto = "{\"train_micro_batch_size_per_gpu\": \"auto\", \"gradient_accumulation_steps\": \"auto\", \"zero_optimization\": {}}";
        assert_eq!(besides(auto), None);
    }

    #[test]
    fn a_fixed_update_takes_a_smaller_micro_batch_alone() {
        check(
            "mega.sh",
            "python pretrain_gpt.py --micro-batch-size 64 --global-batch-size 256 --seq-length 8\n",
            "python pretrain_gpt.py --micro-batch-size 4 --global-batch-size 256 --seq-length 8\n",
        );
        check(
            "litgpt.yaml",
            "train:\n  global_batch_size: 64\n  micro_batch_size: 16\n",
            "train:\n  global_batch_size: 64\n  micro_batch_size: 4\n",
        );
        check(
            "ds.json",
            "{\"train_batch_size\": 128, \"train_micro_batch_size_per_gpu\": 64}",
            "{\"train_batch_size\": 128, \"train_micro_batch_size_per_gpu\": 4}",
        );
        check(
            "all.json",
            "{\"global_batch_size\": 64, \"micro_batch_size\": 16, \"gradient_accumulation_steps\": 4}",
            "{\"global_batch_size\": 64, \"micro_batch_size\": 4, \"gradient_accumulation_steps\": 16}",
        );
    }

    #[test]
    fn where_nothing_is_updated_nothing_is_gathered() {
        check("eval_gpt2.py", "batch_size = 64\neval_only = True\n", "batch_size = 4\neval_only = True\n");
    }

    #[test]
    fn no_patch_that_would_change_training() {
        let text = "p.add_argument('--per_device_train_batch_size', default=64)\n";
        let configs = [Config::parse("a.py", text).unwrap()];
        let facts = Facts::of(&configs);
        assert!(micro_batch(&facts, 4, 16).is_err());
        let text = "stages:\n  - {batch_size: 8, accum_steps: 1}\n  - {batch_size: 4, accum_steps: 2}\n";
        let configs = [Config::parse("a.yaml", text).unwrap()];
        let facts = Facts::of(&configs);
        assert!(micro_batch(&facts, 4, 2).unwrap_err().contains("several places"));
        let text = "stages:\n  - {batch_size: 8, accum_steps: 1}\n  - {batch_size: 8, accum_steps: 2}\n";
        let configs = [Config::parse("a.yaml", text).unwrap()];
        let facts = Facts::of(&configs);
        assert!(micro_batch(&facts, 4, 2).unwrap_err().contains("several places"));
        let configs = [Config::parse("a.yaml", "TRAIN:\n  BATCH_SIZE: 8\n").unwrap()];
        let facts = Facts::of(&configs);
        assert!(micro_batch(&facts, 4, 2).unwrap_err().contains("would change training"));
    }
}
