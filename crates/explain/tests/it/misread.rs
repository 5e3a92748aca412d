//! Ordinary lines that have a word of something else in them, and are not taken for it.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use lowtide_explain::{Config, Context, Lever, Verdict, explain};

/// A card of 24 GiB that is this process's own and full.
const FULL: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of \
    23.65 GiB of which 120.00 MiB is free. Including non-PyTorch memory, this process has 23.50 GiB memory in use. Of the \
    allocated memory 22.90 GiB is allocated by PyTorch, and 60.00 MiB is reserved by PyTorch but unallocated.\n";

fn verdict(log: &str) -> Verdict {
    explain(log.as_bytes(), &Context::default()).into_iter().next().unwrap()
}

/// The advice of a log, all of it in one text.
fn advice(log: &str) -> String {
    verdict(log).advice.into_iter().map(|advice| advice.text + "\n").collect()
}

fn stack(frames: &[(&str, &str, &str)]) -> String {
    let frames: String = frames
        .iter()
        .map(|(file, function, code)| format!("  File \"{file}\", line 7, in {function}\n    {code}\n"))
        .collect();
    format!("Traceback (most recent call last):\n{frames}")
}

#[test]
fn the_number_of_a_process_is_no_error_of_windows() {
    let killed = "Out of memory: Killed process 14553 (python) total-vm:71455kB, anon-rss:61455kB\n";
    let verdict = verdict(&format!("epoch 1 loss 2.1\n{killed}"));
    assert!(verdict.advice.iter().all(|advice| advice.lever != Lever::PageFile), "{:?}", verdict.advice);
}

#[test]
fn a_lecture_after_nanogpt_has_sizes_of_its_own() {
    let frames = |folder: &str| {
        let file = format!("/home/me/{folder}/gpt.py");
        let calls =
            [(&*file, "<module>", "losses = estimate_loss()"), (&*file, "estimate_loss", "logits = model(X, Y)")];
        advice(&format!("step 0: train loss 4.2221, val loss 4.2306\n{}{FULL}", stack(&calls)))
    };
    let lecture = frames("lectures");
    assert!(!lecture.contains("1024") && !lecture.contains("instead of 200"), "{lecture}");
    assert!(frames("nanoGPT").contains("instead of 200"));
}

#[test]
fn a_folder_that_is_named_after_a_library_is_the_programs_own() {
    let own = "/home/a/faster-rcnn.pytorch/lib/model/resnet.py";
    let conv = "/env/lib/python3.8/site-packages/torch/nn/modules/conv.py";
    let frames = [(own, "forward", "x = self.conv1(x)"), (conv, "forward", "return self._conv_forward(input)")];
    let verdict = verdict(&format!("epoch 1 loss 2.1\n{}{FULL}", stack(&frames)));
    assert_eq!(verdict.code.unwrap().file, own);
}

const OF_TRAINING: [&str; 4] = ["gradient accumulation", "peft", "ZeRO-3", "AdamW8bit"];

#[test]
fn the_name_of_a_file_is_no_training() {
    let node = stack(&[("/w/ComfyUI/comfy/ldm/flux/model.py", "forward", "img = block(img, txt)")]);
    let comfy =
        "got prompt\nRequested to load portrait-epoch-12.safetensors\nconstrain_proportions: true, lossless: false\n";
    let told = advice(&format!("{comfy}!!! Exception during processing !!! out\n{node}{FULL}"));
    assert!(OF_TRAINING.iter().all(|words| !told.contains(words)), "{told}");
}

#[test]
fn a_model_that_was_trained_and_is_used_is_no_training() {
    let forward = stack(&[("/w/use.py", "<module>", "y = net(x)"), ("/w/net.py", "forward", "x = self.conv1(x)")]);
    let said = "The model comes from a run of last year at epoch 40. I want to run inference with it on one picture.\n";
    let told = advice(&format!("{said}{forward}{FULL}"));
    assert!(OF_TRAINING.iter().all(|words| !told.contains(words)), "{told}");
    let trains = advice(&format!("Epoch 40: loss 2.1\n{forward}{FULL}"));
    assert!(trains.contains("gradient accumulation"), "{trains}");
}

#[test]
fn a_name_of_somebody_is_no_language_model() {
    let log = |home: &str| {
        let file = format!("/home/{home}/unet/train.py");
        let calls = [(&*file, "<module>", "loss = f(x)"), (&*file, "forward", "x = self.conv1(x)")];
        advice(&format!("Epoch 1: loss 2.31\nThanks for your attention.\n{}{FULL}", stack(&calls)))
    };
    for home in ["robert", "albert", "bert", "gpt", "a"] {
        let told = log(home);
        assert!(!told.contains("max_length") && !told.contains("LoRA"), "{home}: {told}");
    }
}

#[test]
fn a_switch_that_is_off_is_not_taken_for_on() {
    let head = "TrainingArguments(\ndeepspeed=None,\nfsdp=[],\nfsdp_config={'min_num_params': 0, 'xla': False},\n)\n\
        Namespace(use_lora=False, lora_r=8, load_in_4bit=False, load_in_8bit=False)\n";
    let counted = "  Number of trainable parameters = 6,738,415,616\n";
    let train = stack(&[("/env/lib/python3/site-packages/transformers/trainer.py", "training_step", "loss = f(x)")]);
    let off = verdict(&format!("{head}{counted}***** Running training *****\n{train}{FULL}"));
    let none = verdict(&format!("{counted}***** Running training *****\n{train}{FULL}"));
    assert_eq!(off.advice, none.advice);
    let on = head.replace("use_lora=False", "use_lora=True").replace("fsdp=[]", "fsdp=['full_shard']");
    let on = verdict(&format!("{on}{counted}***** Running training *****\n{train}{FULL}"));
    assert_ne!(on.advice, none.advice);
}

#[test]
fn the_batch_of_a_validation_is_not_that_of_training() {
    let train =
        stack(&[("/w/tools/train.py", "<module>", "loss = f(x)"), ("/w/net.py", "forward", "x = self.conv1(x)")]);
    let yaml = "data:\n  train:\n    batch_size: 32\n  val:\n    batch_size: 1\n";
    let dump = "train_dataloader = dict(\n    batch_size=16,\n    num_workers=2)\nval_dataloader = dict(\n    batch_size=1,\n    num_workers=2)\n";
    let line = "{'train': {'batch_size': 16}, 'val': {'batch_size': 1}}\n";
    let halves = |settings: &str| {
        let verdict = verdict(&format!("{settings}Epoch 1: loss 2.31\n{train}{FULL}"));
        verdict.advice.iter().any(|advice| advice.lever == Lever::MicroBatch)
    };
    for settings in [yaml, dump, line] {
        assert!(halves(settings), "{settings}");
    }
    let log = format!("{yaml}Epoch 1: loss 2.31\n{train}{FULL}");
    let context = Context { configs: vec![Config::parse("a.yaml", yaml).unwrap()], ..Context::default() };
    let verdict = explain(log.as_bytes(), &context).remove(0);
    assert!(verdict.notes.iter().all(|note| !note.contains("no patch for a configuration")), "{:?}", verdict.notes);
    assert!(!halves("batch_size: 1\n"));
}

#[test]
fn jax_is_told_of_in_its_own_words() {
    let pool = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2684354560 bytes.\n";
    let file = "/w/fit.py";
    let calls =
        [(file, "<module>", "state = train_step(state, x)"), (file, "train_step", "grads = jax.grad(f)(params)")];
    let steps = "step 10 loss 2.1\nstep 11 loss 2.0\nstep 12 loss 1.9\nstep 13 loss 1.8\n";
    let log = format!("$ python fit.py --max-tokens 512\nimport jax\n{steps}{}{pool}", stack(&calls));
    let verdict = verdict(&log);
    let all: Vec<&str> =
        verdict.advice.iter().map(|advice| &*advice.text).chain(verdict.evidence.iter().map(|it| &**it)).collect();
    let all = all.join("\n");
    assert!(!all.contains("--update-freq") && !all.contains("loss.item()"), "{all}");
    assert!(all.contains("float(loss)"), "{all}");
}
