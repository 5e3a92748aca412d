//! What a run has turned on already is not advised again, and what is advised instead fits what the log shows.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use lowtide_explain::{Advice, Cause, Context, Lever, Verdict, explain};

/// A card of 39 GiB that is full, with twice the request idle.
const IN_PIECES: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.12 GiB. GPU 0 has a total capacity of \
    39.39 GiB of which 512.44 MiB is free. Including non-PyTorch memory, this process has 38.88 GiB memory in use. Of the \
    allocated memory 36.01 GiB is allocated by PyTorch, and 2.30 GiB is reserved by PyTorch but unallocated. If reserved but \
    unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n";

/// A card of 24 GiB that is this process's own and full.
const FULL: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of \
    23.65 GiB of which 120.00 MiB is free. Including non-PyTorch memory, this process has 23.50 GiB memory in use. Of the \
    allocated memory 22.90 GiB is allocated by PyTorch, and 60.00 MiB is reserved by PyTorch but unallocated.\n";

fn verdict(log: &str) -> Verdict {
    explain(log.as_bytes(), &Context::default()).into_iter().next().unwrap()
}

fn names(advice: &Advice, lever: Lever) -> bool {
    advice.lever == lever || advice.also.contains(&lever)
}

#[test]
fn segments_that_grow_already_are_not_made_to() {
    let set = verdict(&format!("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py\n{IN_PIECES}"));
    assert!(set.advice.iter().all(|advice| !names(advice, Lever::ExpandableSegments)), "{:?}", set.advice);
    assert_eq!([set.advice[0].lever, set.advice[1].lever], [Lever::MicroBatch, Lever::EmptyCache]);
    assert!(set.certainty < 0.6 && set.contributing.contains(&Cause::Need), "{set:?}");
    // The message's own advice is none that somebody followed.
    let unset = verdict(&format!("python train.py\n{IN_PIECES}"));
    assert_eq!(unset.advice[0].lever, Lever::ExpandableSegments);
}

#[test]
fn blocks_that_are_kept_whole_already_are_not_kept_so_again() {
    let old = "RuntimeError: CUDA out of memory. Tried to allocate 1.12 GiB (GPU 0; 23.65 GiB total capacity; 18.01 GiB already \
        allocated; 512.44 MiB free; 22.30 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting \
        max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF\n";
    let unset = verdict(old);
    assert_eq!(unset.advice[0].lever, Lever::ExpandableSegments);
    assert!(unset.advice[0].text.contains("max_split_size_mb:512"), "{}", unset.advice[0].text);
    let set = verdict(&format!("export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128\n{old}"));
    let text = &set.advice[0].text;
    assert!(text.contains("Update PyTorch") && text.contains("128 MiB") && !text.contains(":512"), "{text}");
}

#[test]
fn small_moments_are_counted_as_they_are() {
    let log = |optimizer: &str| {
        let head = format!("optim={optimizer},\n  Instantaneous batch size per device = 1\n");
        verdict(&format!("{head}  Number of trainable parameters = 6,738,415,616\nloss.backward()\n{FULL}"))
    };
    let small = log("OptimizerNames.ADAMW_8BIT");
    assert!(small.advice.iter().all(|advice| !names(advice, Lever::SmallerOptimizer)), "{:?}", small.advice);
    assert!(small.advice[0].text.contains("saves 6 bytes"), "{}", small.advice[0].text);
    assert!(names(&small.advice[1], Lever::Spill), "{:?}", small.advice[1]);
    let large = log("OptimizerNames.ADAMW_TORCH");
    assert!(large.advice[0].text.contains("saves 12 bytes"), "{}", large.advice[0].text);
    let moments = large.advice.iter().find(|advice| names(advice, Lever::SmallerOptimizer)).unwrap();
    assert!(moments.text.ends_with("(not enough alone)"), "{}", moments.text);
}

#[test]
fn weights_in_half_precision_are_told_what_fewer_bits_take() {
    let code = "from_pretrained(\"meta-llama/Llama-2-70b-chat-hf\", torch_dtype=torch.float16, device_map={\"\": 0})";
    let log = |code: &str| {
        let frame = format!("  File \"/w/gen.py\", line 7, in <module>\n    model = AutoModelForCausalLM.{code}\n");
        verdict(&format!("Loading checkpoint shards:  13%\nTraceback (most recent call last):\n{frame}{FULL}"))
    };
    let half = log(code);
    assert!(half.advice[..2].iter().all(|advice| !names(advice, Lever::Precision)), "{:?}", half.advice);
    let figures = "130.39 GiB in 16 bits, 65.19 GiB in 8 and 32.60 GiB in 4, and the card has 23.65 GiB";
    assert!(half.advice[0].text.contains(figures), "{}", half.advice[0].text);
    let whole = log(&code.replace("torch_dtype=torch.float16, ", ""));
    assert!(names(&whole.advice[0], Lever::Precision), "{:?}", whole.advice[0]);
}

#[test]
fn activations_that_are_recomputed_are_not_recomputed_again() {
    for told in [
        "I already use batch size 1 and gradient checkpointing, still:",
        "accelerate launch train.py --gradient_checkpointing --bf16",
        "Training fails even with gradient checkpointing enabled.",
    ] {
        let verdict = verdict(&format!("python train.py\n{told}\nloss 2.1\n{FULL}"));
        assert!(verdict.advice.iter().all(|advice| !names(advice, Lever::Recompute)), "{told}: {:?}", verdict.advice);
    }
    for told in ["Should I try gradient checkpointing with it?", "gradient_checkpointing=False"] {
        let verdict = verdict(&format!("python train.py\n{told}\nloss 2.1\n{FULL}"));
        assert!(verdict.advice.iter().any(|advice| names(advice, Lever::Recompute)), "{told}: {:?}", verdict.advice);
    }
}
