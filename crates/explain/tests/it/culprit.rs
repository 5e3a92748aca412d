//! Of several tensors that are as large as what was asked for, the one is named that the stack and the type of numbers
//! point to.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use lowtide_explain::{Config, Context, explain};

/// A transformer in the words of many repositories: 6 heads and a width of 384 make scores as large as the inner part.
const MODEL: &str = "block_size = 256\nn_head = 6\nn_embd = 384\nn_layer = 6\nbatch_size = 2048\n";
const LINEAR: &str = "  File \"/lib/python3.12/site-packages/torch/nn/modules/module.py\", line 1779, in _wrapped_call_impl\n    \
    return self._call_impl(*args, **kwargs)\n  File \"/lib/python3.12/site-packages/torch/nn/modules/linear.py\", line 134, \
    in forward\n    return F.linear(input, self.weight, self.bias)\n";

fn culprit(config: &str, line: &str, error: &str) -> String {
    culprit_behind(LINEAR, config, line, error)
}

/// The same with the frames behind that line.
fn culprit_behind(frames: &str, config: &str, line: &str, error: &str) -> String {
    let log = format!(
        "Traceback (most recent call last):\n  File \"train.py\", line 300, in <module>\n    logits, loss = model(X, Y)\n  \
         File \"model.py\", line 88, in forward\n    {line}\n{frames}{error}\n"
    );
    let configs = vec![Config::parse("mine.py", config).unwrap()];
    let verdict = explain(log.as_bytes(), &Context { configs, ..Context::default() }).remove(0);
    let culprit = verdict.culprit.unwrap();
    format!("{} {:?} {}", culprit.name, culprit.shape, culprit.dtype.unwrap_or_default())
}

#[test]
fn the_line_that_asked_for_a_product_tells_what_it_is() {
    let error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of \
                 7.79 GiB of which 700.00 MiB is free. Including non-PyTorch memory, this process has 7.10 GiB memory in \
                 use. Of the allocated memory 6.50 GiB is allocated by PyTorch, and 46.00 MiB is reserved by PyTorch but \
                 unallocated.";
    let config = format!("{MODEL}dtype = 'bfloat16'\n");
    let inner = culprit(&config, "x = self.c_fc(x)", error);
    assert_eq!(inner, "activations inside the feed-forward part [2048, 256, 1536] bf16");
    // Who calls the whole model says nothing of the layer in it.
    let whole = culprit("seed = 1\n", "loss = torch.cat([model(x) for x in pieces]).square().mean()", error);
    assert_eq!(whole, "activations of a linear layer [] ");
    let scores = culprit(&config, "att = F.softmax(att, dim=-1)", error);
    assert_eq!(scores, "attention scores [2048, 6, 256, 256] bf16");
}

#[test]
fn the_type_that_is_computed_in_comes_first() {
    // Scores of half the width would be as large.
    let config = "device = 'cpu'\ndtype = 'float32'\nblock_size = 64\nn_head = 4\nn_embd = 128\nn_layer = 4\n\
                  batch_size = 8192\n";
    let error = "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: \
                 you tried to allocate 268435456 bytes. Error code 12 (Cannot allocate memory)";
    let hidden = culprit(config, "y = self.resid_dropout(self.c_proj(y))", error);
    assert_eq!(hidden, "hidden states [8192, 64, 128] fp32");
    let fused = culprit_behind(
        "",
        config,
        "y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)",
        error,
    );
    assert_eq!(fused, "the output of attention [8192, 64, 128] fp32");
}

#[test]
fn a_byte_for_each_score_is_the_mask_of_dropout() {
    // Twice as many numbers in 16 bits, which nothing computes in here, would be as large.
    let config = "device = 'cpu'\ndtype = 'float32'\nblock_size = 512\nn_head = 6\nn_embd = 384\nn_layer = 6\ndropout = 0.2\n\
                  batch_size = 384\n";
    let error = "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: \
                 you tried to allocate 603979776 bytes. Error code 12 (Cannot allocate memory)";
    let line = "y = torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout, is_causal=True)";
    assert_eq!(culprit_behind("", config, line, error), "the mask of attention's dropout [384, 6, 512, 512] bool");
}

/// Two tracebacks of PyTorch, one raised from the other, of a data worker that a signal ended.
fn worker(signal: &str) -> String {
    format!(
        "Traceback (most recent call last):\n  File \"/env/lib/python3.11/site-packages/torch/utils/data/dataloader.py\", line 1251, in \
         _try_get_data\n    data = self._data_queue.get(timeout=timeout)\n  File \
         \"/env/lib/python3.11/site-packages/torch/utils/data/_utils/signal_handling.py\", line 73, in handler\n    \
         _error_if_any_worker_fails()\nRuntimeError: DataLoader worker (pid 817) is killed by signal: {signal}. \n\nThe above exception was \
         the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File \"/home/u/train.py\", line 88, in <module>\n    \
         for images, masks in train_loader:\n  File \"/env/lib/python3.11/site-packages/torch/utils/data/dataloader.py\", line 1264, in \
         _try_get_data\n    raise RuntimeError(f'DataLoader worker (pid(s) {{pids_str}}) exited unexpectedly') from e\nRuntimeError: DataLoader \
         worker (pid(s) 817) exited unexpectedly\n"
    )
}

#[test]
fn the_line_of_the_program_is_in_the_second_of_two_tracebacks() {
    let verdict = explain(worker("Killed").as_bytes(), &Context::default()).remove(0);
    assert_eq!(verdict.message, "RuntimeError: DataLoader worker (pid 817) is killed by signal: Killed.");
    assert_eq!(verdict.code.unwrap().file, "/home/u/train.py");
}

#[test]
fn a_worker_that_crashed_is_no_case_of_memory() {
    for signal in ["Segmentation fault", "Aborted", "Terminated"] {
        assert_eq!(explain(worker(signal).as_bytes(), &Context::default()), [], "{signal}");
    }
}

#[test]
fn a_title_that_would_be_a_full_disk_by_itself_is_read_as_the_error_it_is() {
    let title = "# RuntimeError: unable to write to file </torch_319_95_66>: No space left on device (28)";
    let post = format!("{title}\n\nI get the error of the title. How can it be solved?\n");
    assert_eq!(explain(post.as_bytes(), &Context::default()).len(), 1);
    let disk = "# OSError: [Errno 28] No space left on device: 'out/ckpt.pt'\n\nI get the error of the title.\n";
    assert_eq!(explain(disk.as_bytes(), &Context::default()), []);
}

#[test]
fn the_state_of_an_optimizer_is_not_the_model() {
    let frames = "  File \"/w/train.py\", line 88, in <module>\n    optimizer.load_state_dict(checkpoint['optimizer'])\n  File \
                  \"/lib/python3.10/site-packages/torch/optim/optimizer.py\", line 854, in load_state_dict\n    value = cast(value)\n";
    let error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 50.00 MiB. GPU 0 has a total capacity of 23.69 GiB";
    let verdicts =
        explain(format!("Traceback (most recent call last):\n{frames}{error}\n").as_bytes(), &Context::default());
    assert_eq!(
        verdicts[0].culprit.as_ref().map(|culprit| &*culprit.name),
        Some("the optimizer's state of a checkpoint")
    );
}
