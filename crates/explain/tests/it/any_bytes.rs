//! No bytes make it panic, and where a log is cut into pieces changes nothing.

use std::fmt::Write;

use lowtide_explain::{Config, Context, Explanation, Investigation, LookAlike, Syntax};
use proptest::prelude::*;

const NANOGPT: &str = include_str!("../golden/nanogpt.log");
const CONFIGS: [(&str, &str); 3] = [
    ("a.py", include_str!("../golden/train_openwebtext.py")),
    ("a.yaml", include_str!("../golden/frames.yaml")),
    ("a.json", "{\"per_device_train_batch_size\": 8, \"hidden_size\": 64, \"nested\": {\"vocab_size\": 100}}"),
];

fn read(log: &[u8], piece: usize, context: &Context) -> Explanation {
    let mut investigation = Investigation::default();
    log.chunks(piece.max(1)).for_each(|piece| investigation.feed(piece));
    investigation.finish(context)
}

#[test]
fn pieces_of_any_size_give_the_same() {
    let mut log = String::new();
    for step in 0..60_000 {
        writeln!(log, "iter {step}: loss 3.1, time 50ms, memory allocated 1.21 GiB, reserved 2.10 GiB")
            .expect("a string takes it");
        if step % 9_000 == 17 {
            log.push_str(NANOGPT);
        }
    }
    let context = Context::default();
    let whole = read(log.as_bytes(), log.len(), &context);
    assert_eq!(whole.verdicts.len(), 7);
    assert_eq!(whole.verdicts[0].step, Some(54_017));
    let lines: Vec<u64> = whole.verdicts.iter().map(|verdict| verdict.line).collect();
    let expected: Vec<u64> = (1_u64..)
        .zip(log.lines())
        .filter(|(_, line)| line.contains("Tried to allocate"))
        .map(|(number, _)| number)
        .collect();
    assert_eq!(lines.iter().rev().copied().collect::<Vec<_>>(), expected);
    for piece in [977, 65_536, 1 << 20] {
        assert_eq!(read(log.as_bytes(), piece, &context), whole);
    }
}

#[test]
fn of_a_flood_the_last_are_read() {
    let mut log = String::new();
    for index in 0..60_000 {
        writeln!(log, "CUDA out of memory. Tried to allocate {}.00 MiB. GPU 0 has 9.00 GiB free", index + 1)
            .expect("a string takes it");
    }
    for piece in [4096, 1 << 20, log.len()] {
        let explained = read(log.as_bytes(), piece, &Context::default());
        let lines: Vec<u64> = explained.verdicts.iter().map(|verdict| verdict.line).collect();
        assert_eq!(lines, (59_801..=60_000).rev().collect::<Vec<_>>());
        assert_eq!(explained.verdicts[0].tried_bytes.map(|bytes| bytes.get()), Some(60_000 << 20));
        assert!(explained.has_more && explained.events < 60_000);
    }
}

#[test]
fn of_very_many_events_the_last_are_kept() {
    let mut log = String::new();
    for index in 0..1000 {
        writeln!(
            log,
            "CUDA out of memory. Tried to allocate {}.00 MiB. GPU 0 has a total capacity of 9.00 GiB",
            index + 1
        )
        .expect("a string takes it");
    }
    let explained = read(log.as_bytes(), 4096, &Context::default());
    assert_eq!((explained.events, explained.verdicts.len(), explained.verdicts[0].line), (1000, 200, 1000));
}

#[test]
fn what_looks_like_it_is_named() {
    let check = |log: &str, kind, line| {
        let explained = read(log.as_bytes(), 64, &Context::default());
        assert!(explained.verdicts.is_empty());
        let found = explained.not_memory.expect("a look-alike");
        assert_eq!((found.kind, found.line), (kind, line), "{log}");
    };
    check("a\nb\nCUDA out of memory. Tried to allocate more than 1EB memory\nc\n", LookAlike::CorruptedSize, 3);
    check("CUDA out of memory. Tried to allocate 1048576.00 GiB. GPU 0 has a total", LookAlike::CorruptedSize, 1);
    check("x\nOSError: [Errno 28] No space left on device: 'a'\n", LookAlike::DiskFull, 2);
    assert_eq!(read(b"", 1, &Context::default()).not_memory, None);
}

fn exercise(log: &[u8], config: &str) {
    for syntax in [Syntax::Python, Syntax::Yaml, Syntax::Json, Syntax::Command] {
        let configs: Vec<Config> = Config::parse_as(syntax, "c", config).into_iter().collect();
        let explained = read(log, 100, &Context { configs, ..Context::default() });
        for verdict in &explained.verdicts {
            if let Some(patch) = &verdict.patch {
                let patched = patch.apply(config).expect("the text it was made for");
                assert_ne!(patched, config);
                assert!(Config::parse_as(syntax, "c", &patched).is_ok(), "{patched}");
            }
        }
    }
}

/// Settings that are multiplied with each other somewhere.
const SIZES: [&str; 16] = [
    "batch_size",
    "eval_batch_size",
    "gradient_accumulation_steps",
    "block_size",
    "n_positions",
    "vocab_size",
    "n_layer",
    "num_attention_heads",
    "num_key_value_heads",
    "n_embd",
    "intermediate_size",
    "eval_iters",
    "crop_size",
    "num_frames",
    "height",
    "width",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn noise(log in prop::collection::vec(any::<u8>(), 0..4096), config in "\\PC{0,200}") {
        exercise(&log, &config);
    }

    #[test]
    fn mutated(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        which in 0_usize..3,
        at in any::<prop::sample::Index>(),
        inserted in "[-0-9a-z:=#'\"{}\\[\\], \n]{0,8}",
    ) {
        let mut log = NANOGPT.as_bytes().to_vec();
        for (index, byte) in changes {
            let index = index.index(log.len());
            log[index] = byte;
        }
        let mut config = CONFIGS[which].1.to_owned();
        let at = at.index(config.len());
        if config.is_char_boundary(at) {
            config.insert_str(at, &inserted);
        }
        exercise(&log, &config);
    }

    #[test]
    fn figures(figures in any::<[u64; 5]>()) {
        let [tried, capacity, free, own, batch] = figures;
        let log = format!(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried} bytes. GPU 0 has a total capacity \
             of {capacity} bytes of \
             which {free} bytes is free. Including non-PyTorch memory, this process has {own} bytes memory in use. Of \
             the allocated memory \
             {own} bytes is allocated by PyTorch, and {free} bytes is reserved by PyTorch but unallocated.\n"
        );
        exercise(log.as_bytes(), &format!("batch_size = {batch}\nblock_size = {own}\nvocab_size = {free}\nn_layer = \
            {tried}\n"));
    }

    #[test]
    fn sizes(
        sizes in prop::collection::vec(prop_oneof![Just(0), Just(1), Just(u64::MAX), any::<u32>().prop_map(u64::from),
            any::<u64>()], SIZES.len()),
        shape in any::<[u64; 2]>(),
        phase in prop_oneof![Just("validate"), Just("step"), Just("train_step")],
    ) {
        let config: String = SIZES.iter().zip(&sizes).map(|(name, size)| format!("{name} = {size}\n")).collect();
        let [rows, columns] = shape;
        let log = format!(
            "frames 1920x1080\nTraceback (most recent call last):\n  File \"a.py\", line 1, in {phase}\n    \
             torch.empty(({rows}, {columns}), dtype=torch.bfloat16)\n\
             torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 15.82 GiB. GPU 0 has a total capacity of 47.40 \
             GiB of which 6.17 GiB is free.\n"
        );
        exercise(log.as_bytes(), &config);
        let one = log.replace(&format!("({rows}, {columns})"), &format!("({rows},)"));
        exercise(one.as_bytes(), &config);
    }
}
