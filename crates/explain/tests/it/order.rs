//! Which lever a piece of advice begins with, by what the log shows.

use lowtide_explain::{Config, Context, Lever, Syntax, explain};

const BARE: &str = "RuntimeError: CUDA out of memory.\n";
const TENSORFLOW: &str = "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor";

/// The levers that the first two pieces begin with.
#[track_caller]
fn leads(log: &str) -> [Lever; 2] {
    let verdicts = explain(log.as_bytes(), &Context::default());
    let verdict = verdicts.first().unwrap_or_else(|| panic!("nothing in {log}"));
    [verdict.advice[0].lever, verdict.advice[1].lever]
}

#[test]
fn smaller_samples_come_before_what_nothing_asks_for() {
    let trains = format!("python train.py\n{BARE}");
    assert_eq!(leads(&trains), [Lever::MicroBatch, Lever::SmallerInput]);
    assert_eq!(leads(BARE), [Lever::MicroBatch, Lever::SmallerInput]);
    assert_eq!(leads(&format!("{TENSORFLOW}\n")), [Lever::MicroBatch, Lever::SmallerInput]);
    // Something in the log asks for what is second here.
    let grows = format!("python train.py\nThe memory grows with every epoch of the training.\n{BARE}");
    assert_eq!(leads(&grows)[0], Lever::PlainNumbers);
    let gpt = format!("python train_gpt.py with a gpt2 of 124M\n{BARE}");
    assert_eq!(leads(&gpt), [Lever::MicroBatch, Lever::Recompute]);
    let late = format!("python train_gpt.py\nstep 900 loss 2.0\n{BARE}");
    assert_eq!(leads(&late), [Lever::MicroBatch, Lever::ShorterSequence]);
}

#[test]
fn what_comes_round_is_tried_first_where_it_always_fails_then() {
    for told in [
        "It always stops at 5000 iterations, whatever the size.",
        "Five epochs went well, and when the 5th epoch was about finished it failed.",
    ] {
        assert_eq!(leads(&format!("{told}\n{BARE}")), [Lever::EvaluationBatch, Lever::MicroBatch], "{told}");
    }
    let once = format!("It stopped at 5000 iterations of the training.\n{BARE}");
    assert_eq!(leads(&once)[0], Lever::MicroBatch);
}

#[test]
fn who_asks_for_another_card_is_told_how() {
    let asks = format!("My box has 8 cards, how can I use another GPU for it?\n{BARE}");
    assert_eq!(leads(&asks)[0], Lever::OtherCard);
    assert_eq!(leads(&format!("I train it on one GPU of the machine.\n{BARE}"))[0], Lever::MicroBatch);
}

#[test]
fn a_limit_comes_first_where_a_container_was_ended_at_it() {
    let pod = "`ollama-0` gets OOMKilled (exit 137, reason: OOMKilled)\nlimits.memory: 6G\n";
    assert_eq!(leads(pod), [Lever::RaiseLimit, Lever::Quantize]);
    let job = "#SBATCH --mem-per-cpu=4096M\nprocess.sh: line 76:  4663 Killed                  segment -i a.nii.gz\n";
    assert_eq!(leads(job)[0], Lever::RaiseLimit);
}

#[test]
fn an_array_is_made_narrower_or_in_pieces() {
    let array =
        "MemoryError: Unable to allocate 23.6 GiB for an array with shape (146516, 21604) and data type float64\n";
    let verdicts = explain(array.as_bytes(), &Context::default());
    let first = &verdicts[0].advice[0];
    assert_eq!((first.lever, &*first.also), (Lever::SmallerType, &[Lever::LoadInPieces, Lever::SmallerInput][..]));
}

#[test]
fn windows_of_a_volume_are_put_together_on_the_host() {
    let log = format!("It is raised in the call of sliding_window_inference, AMASSS_CLI.py line 976.\n{BARE}");
    assert_eq!(leads(&log)[0], Lever::OutputsToHost);
}

#[test]
fn a_program_that_was_installed_is_its_own() {
    let log = "Traceback (most recent call last):\n  File \"/home/u/.local/bin/demucs\", line 8, in <module>\n    sys.exit(main())\n  \
               File \"/home/u/.local/lib/python3.7/site-packages/demucs/separate.py\", line 120, in main\n    overlap=args.overlap)[0]\n\
               RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 8.00 GiB total capacity; 7.90 GiB already allocated)\n";
    assert_eq!(leads(log)[0], Lever::NoGraph);
}

#[test]
fn the_settings_of_a_command_are_no_progress() {
    let log = format!("python train.py --max_epoch 25 --input film\n{BARE}");
    assert_eq!(leads(&log), [Lever::MicroBatch, Lever::SmallerInput]);
}

#[test]
fn no_batch_has_a_part_in_weights_that_are_made() {
    let node =
        "\n\t [[Node: net/conv5/weights/Initializer/random_uniform/RandomUniform = RandomUniform[T=DT_INT32]]]\n";
    assert_eq!(leads(&format!("{TENSORFLOW}{node}")), [Lever::EndOtherProcess, Lever::SmallerModel]);
    let moment = "\n\t [[node training/Adam/Variable_16/Assign (defined at backend.py:402) ]]\n";
    assert_eq!(leads(&format!("{TENSORFLOW}{moment}")), [Lever::EndOtherProcess, Lever::SmallerModel]);
    let step = "\n\t [[{{node model_2/conv2d_10/convolution}} = Conv2D[T=DT_FLOAT]]]\n";
    assert_eq!(leads(&format!("{TENSORFLOW}{step}"))[0], Lever::MicroBatch);
}

#[test]
fn a_loop_over_models_lets_go_of_them() {
    let log = format!("The memory of the GPU grows with each model of the loop.\n{TENSORFLOW}\n");
    assert_eq!(leads(&log)[0], Lever::EmptyCache);
}

#[test]
fn a_buffer_larger_than_all_weights_is_for_the_context() {
    let log = |model: &str| {
        format!(
            "$ llama-cli -m {model}\nggml_backend_cuda_buffer_type_alloc_buffer: allocating 8849.72 MiB on device 0: cudaMalloc \
             failed: out of memory\n"
        )
    };
    assert_eq!(leads(&log("Llama-3.2-1B-Instruct-IQ3_M.gguf")), [Lever::ShorterSequence, Lever::CacheType]);
    assert_eq!(leads(&log("Llama-3.1-70B-Instruct-Q4_K_M.gguf"))[0], Lever::FewerLayers);
}

#[test]
fn who_shares_out_moments_can_share_out_weights() {
    let log = |stage: u8| format!("微调 llama3-8B，就算 batch 设为1，用 deepspeed zero{stage} 也会报OOM\n{BARE}");
    assert_eq!(leads(&log(2))[0], Lever::Shard);
    assert_ne!(leads(&log(3))[0], Lever::Shard);
    // A batch of 16 is not one of 1.
    let sixteen = format!("训练 resnet，batch size 设为16，报OOM\n{BARE}");
    assert_eq!(leads(&sixteen)[0], Lever::MicroBatch);
}

#[test]
fn the_machine_is_filled_by_what_the_log_names() {
    let shuffle = "Filling up shuffle buffer (this may take a while): 1359 of 2048\nKilled\n";
    assert_eq!(leads(shuffle)[0], Lever::SmallerDataCache);
    assert_eq!(leads("I segment one large image of 225 MB with 20 GB of RAM.\nKilled\n")[0], Lever::SmallerInput);
    let texts = "python -m spacy train xx out train.json dev.json -p ner\nMemoryError\n";
    assert_eq!(leads(texts)[0], Lever::ShorterSequence);
    let container = "app-1  | model.bin: 100%\napp-1 exited with code 137\n";
    assert_eq!(leads(container)[0], Lever::RaiseLimit);
}

#[test]
fn pinned_buffers_can_be_left_out() {
    let log = "!!! Exception during processing !!! HostBuffer.read_file_slice failed\nRuntimeError: HostBuffer.read_file_slice \
               failed\ntorch.AcceleratorError: CUDA error: out of memory\n";
    assert_eq!(leads(log)[0], Lever::NoPinnedMemory);
}

#[test]
fn one_sample_on_a_tiny_card_asks_for_another_card() {
    let log = format!("I train on a GPU which has 2 GB, and a batch size of 1 fails too.\n{BARE}");
    assert_eq!(leads(&log), [Lever::SmallerInput, Lever::MoreMemory]);
}

/// Somebody's own words for an error say nothing of whose memory it was; what they tell of a card does.
#[test]
fn own_words_beside_a_card_leave_the_machine_in_doubt() {
    let certainty = |log: &str| {
        let verdicts = explain(log.as_bytes(), &Context::default());
        verdicts.first().unwrap_or_else(|| panic!("nothing in {log}")).certainty
    };
    let words = "Out of Memory Error: detect.py\nIt takes ";
    assert!(certainty(&format!("{words}more than 12GB of memory on a single GPU, at picture 13500.\n")) <= 0.5);
    assert!(certainty(&format!("{words}more than 12GB of RAM, at picture 13500.\n")) > 0.5);
    // A message that only the machine's memory has stays as sure.
    assert!(certainty("My GPU has 8 GB.\nMemoryError: Unable to allocate 3.2 GiB for an array\n") > 0.9);
}

#[test]
fn what_somebody_tells_of_data_and_cards_counts() {
    let data = "I register clouds with about 40K points each.\nterminate called after throwing an instance of 'std::bad_alloc'\n";
    assert_eq!(leads(data), [Lever::SmallerInput, Lever::MoreMemory]);
    let pip = "Installing it using pip on a small board fails.\n$ pip install it\nMemoryError\n";
    assert_eq!(leads(pip), [Lever::NoInstallCache, Lever::MoreMemory]);
}

#[test]
fn what_is_noted_of_the_batch_is_said_once() {
    let log = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.79 GiB of which 201.44 MiB \
               is free.\n";
    let command = Config::parse_as(Syntax::Command, "the command line", "python t.py --batch-size 32").unwrap();
    let verdict = explain(log.as_bytes(), &Context { configs: vec![command], ..Context::default() }).remove(0);
    let guesses = verdict.notes.iter().filter(|note| note.contains("accumulation is set nowhere"));
    assert_eq!(guesses.count(), 1, "{:#?}", verdict.notes);
}
