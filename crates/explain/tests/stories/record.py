"""Records stories on a GPU machine with PyTorch: runs every story of this file in a process of its own, and writes what
it says into a folder. The cause of each is known before, because the story makes it; `expected.csv` says which.

    python record.py FOLDER [STORY ...]
"""

import ctypes
import logging
import os
import re
import subprocess
import sys
import time

GIB = 1 << 30


def say(*words):
    print(*words, flush=True)


def hold(gib):
    import torch

    return torch.empty(int(gib * GIB), dtype=torch.uint8, device="cuda")


def total():
    import torch

    return torch.cuda.get_device_properties(0).total_memory / GIB


def holder(gib):
    """Another process that holds so much of the card until this one ends."""
    text = (
        "import sys, torch\n"
        f"held = torch.empty(int({gib} * 2**30), dtype=torch.uint8, device='cuda')\n"
        "print('held', flush=True)\nsys.stdin.read()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()
    return process


def gpt(batch, block, vocabulary, width=256, layers=2):
    """A small language model, whose logits are by far its largest tensor."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = nn.Embedding(vocabulary, width)
            self.h = nn.ModuleList(nn.TransformerEncoderLayer(width, 4, batch_first=True) for _ in range(layers))
            self.lm_head = nn.Linear(width, vocabulary, bias=False)

        def forward(self, idx, targets):
            x = self.wte(idx)
            for block in self.h:
                x = block(x)
            logits = self.lm_head(x)
            return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))

    model = Gpt().cuda()
    data = torch.randint(vocabulary, (batch, block), device="cuda")
    return model, data


def eval_before_step_0():
    import torch

    model, data = gpt(800, 1024, 50304)

    @torch.no_grad()
    def estimate_loss():
        model.eval()
        for _ in range(200):
            model(data, data)

    say("number of parameters: 26.5M")
    say("tokens per iteration will be: 819,200")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        estimate_loss()


def backward_logits():
    import torch

    model, data = gpt(288, 1024, 50304)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(10):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(data, data)
        say(f"iter {step}: loss {loss.item():.4f}")
        loss.backward()
        optimizer.step()


def adam_foreach():
    import torch

    params = [torch.nn.Parameter(torch.zeros(GIB // 4, device="cuda")) for _ in range(30)]
    optimizer = torch.optim.AdamW(params, foreach=True)
    for step in range(3):
        say(f"step {step}")
        for param in params:
            param.grad = torch.ones_like(param)
        optimizer.step()


def building_layers():
    import torch

    say("building the model")
    layers = []
    for _ in range(64):
        layers.append(torch.nn.Linear(32768, 32768, device="cuda"))


def moving_to_the_card():
    import torch

    say("loading checkpoint shards")
    held = [hold(20) for _ in range(int(total() // 20))]
    model = torch.nn.Sequential(*[torch.nn.utils.skip_init(torch.nn.Linear, 16384, 32768) for _ in range(12)])
    model.to("cuda")
    del held


def attention_scores():
    import torch

    query = torch.randn(16, 16, 16384, 64, device="cuda", requires_grad=True)
    say("Epoch 1/10")
    scores = query @ query.transpose(-2, -1) / 8
    scores.softmax(-1).sum().backward()


def two_others():
    import torch

    holders = [holder(45), holder(50)]
    say("epoch 0")
    model = torch.nn.Linear(4096, 4096).cuda()
    try:
        for step in range(5):
            say(f"step {step} loss 2.3")
            model(torch.randn(8 * GIB // 4096, 4096, device="cuda")).sum().backward()
    finally:
        for process in holders:
            process.stdin.close()
            process.wait()


def other_and_small_ask():
    process = holder(total() - 12)
    say("epoch 0")
    try:
        held = [hold(0.25) for _ in range(400)]
        del held
    finally:
        process.stdin.close()
        process.wait()


def raw_cuda_malloc():
    """A library of the process takes memory that PyTorch's allocator knows nothing of."""
    import torch

    torch.zeros(1, device="cuda")
    runtime = next(name for name in re.findall(r"\S+libcudart\S+", open("/proc/self/maps").read()))
    pointer = ctypes.c_void_p()
    taken = ctypes.CDLL(runtime).cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(int(100 * GIB)))
    assert taken == 0, taken
    say("rendering with our own kernels")
    say("step 12 loss 0.4")
    held = [hold(4) for _ in range(12)]
    del held


def limit_by_environment():
    import torch

    say("epoch 3")
    for step in range(100):
        say(f"step {step}")
        torch.nn.Linear(8192, 8192).cuda()(torch.randn(1 << 18, 8192, device="cuda")).relu().sum().backward()


def limit_by_call():
    import torch

    torch.cuda.set_per_process_memory_fraction(0.06)
    model, data = gpt(32, 1024, 50304)
    for step in range(3):
        say(f"iter {step}")
        model(data, data).backward()


def fragments():
    """Blocks of 8 MiB, two to a segment of 20 MiB, of which one is given back."""
    import torch

    blocks = [torch.empty(8 << 20, dtype=torch.uint8, device="cuda") for _ in range(int(total() * 1024 / 20 * 2 * 0.97))]
    del blocks[::2]
    say("step 7 loss 1.1")
    hold(9)


def fragments_by_lengths():
    """Sentences of growing length: cached blocks fit none of the later ones."""
    import torch

    kept = []
    torch.manual_seed(0)
    for step in range(100000):
        size = 1.1 + 0.021 * step
        if step % 40 == 0:
            say(f"step {step}: length {int(size * 1000)}")
        kept.append(torch.empty(int(size * (10 << 20)), dtype=torch.uint8, device="cuda"))
        junk = torch.empty(int(size * (64 << 20)), dtype=torch.uint8, device="cuda")
        tail = torch.empty(int(size * (3 << 20)), dtype=torch.uint8, device="cuda")
        del junk
        kept.append(tail)


def graph_pool():
    import torch

    model = torch.nn.Linear(8192, 8192, bias=False, device="cuda")
    data = torch.randn(1 << 19, 8192, device="cuda")
    with torch.no_grad():
        model(data[:16])
        graph = torch.cuda.CUDAGraph()
        say("capturing the step")
        with torch.cuda.graph(graph):
            outputs = [model(data) for _ in range(20)]
    del outputs


def leak_of_losses():
    """A list that keeps every graph alive: memory grows step by step until a small request fails."""
    import torch

    model = torch.nn.Linear(4096, 4096, device="cuda")
    losses = []
    for step in range(1000):
        loss = model(torch.randn(1 << 17, 4096, device="cuda")).relu().square().mean()
        loss.backward(retain_graph=True)
        losses.append(loss)
        if step % 4 == 0:
            say(f"step {step} loss {loss.item():.3f}")


def caught_and_gone_on():
    import torch

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO, stream=sys.stdout)
    for step in range(4):
        size = 200 if step == 1 else 2
        try:
            held = hold(size)
            logging.info("step %d done", step)
            del held
        except torch.OutOfMemoryError:
            logging.exception("step %d: skipped this batch", step)
            torch.cuda.empty_cache()


def recompute_in_backward():
    import torch
    from torch.utils.checkpoint import checkpoint

    layers = [torch.nn.Linear(4096, 65536, device="cuda") for _ in range(3)]
    held = hold(total() - 60)
    data = torch.randn(1 << 17, 4096, device="cuda", requires_grad=True)

    def wide(layer, x):
        return torch.nn.functional.gelu(layer(x)).mean(1, keepdim=True) + x

    x = data
    for layer in layers:
        x = checkpoint(wide, layer, x, use_reentrant=False)
    say("step 0 forward done")
    x.sum().backward()
    del held


def pinned():
    import torch

    say("pinning the data set")
    torch.empty(12 << 40, dtype=torch.uint8, pin_memory=True)


def compiled():
    import torch

    @torch.compile
    def step(x, w):
        return torch.softmax((x @ w).relu() * 2, -1).square()

    say("compiling")
    x = torch.randn(1 << 20, 8192, device="cuda", requires_grad=True)
    w = torch.randn(8192, 16384, device="cuda", requires_grad=True)
    for number in range(3):
        say(f"step {number}")
        step(x, w).sum().backward()


def convolution_frames():
    import torch

    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 256, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(256, 3, 3, padding=1)
    ).cuda()

    def validate():
        with torch.no_grad():
            for name in ["a", "b"]:
                say(f"validating clip {name}")
                net(torch.randn(64, 3, 1080, 1920, device="cuda"))

    for epoch in range(2):
        net(torch.randn(8, 3, 256, 256, device="cuda")).sum().backward()
        say(f"Epoch [{epoch + 1}/2] train loss 0.02")
        validate()


def siblings():
    """Two processes of one group on one card."""
    text = (
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "rank = dist.get_rank()\n"
        "held = []\n"
        "for step in range(100):\n"
        "    held.append(torch.empty(2 << 30, dtype=torch.uint8, device='cuda'))\n"
        "    dist.barrier()\n"
        "    if rank == 0: print('step', step, flush=True)\n"
    )
    with open("siblings.py", "w") as file:
        file.write(text)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "siblings.py"]
    sys.exit(subprocess.call(command))


def expandable_growing():
    import torch

    kept = []
    for step in range(10000):
        if step % 10 == 0:
            say(f"step {step}")
        kept.append(torch.randn(1 << 28, device="cuda"))


def worker_memory():
    import resource

    import torch

    class Samples(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            status = open("/proc/self/status").read().split()
            held = int(status[status.index("VmSize:") + 1]) << 10
            resource.setrlimit(resource.RLIMIT_AS, (held + (1 << 28), held + (1 << 28)))
            return torch.zeros(1 << 28)

    torch.zeros(1, device="cuda")
    for _ in torch.utils.data.DataLoader(Samples(), batch_size=4, num_workers=2):
        pass


def illegal_access():
    import torch

    table = torch.zeros(4, 4, device="cuda")
    say("step 1")
    table[torch.tensor([1 << 30], device="cuda")].sum().item()


def negative_size():
    import torch

    torch.empty(-5, device="cuda")


def int_overflow():
    """A length that was read wrong: nobody meant 4 EiB."""
    import torch

    torch.empty(1 << 60, dtype=torch.float32, device="cuda")


ENVIRONMENT = {
    "limit_by_environment": {"PYTORCH_CUDA_ALLOC_CONF": "per_process_memory_fraction:0.1"},
    "expandable_growing": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "leak_of_losses": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
}
STORIES = [
    eval_before_step_0, backward_logits, adam_foreach, building_layers, moving_to_the_card, attention_scores, two_others,
    other_and_small_ask, raw_cuda_malloc, limit_by_environment, limit_by_call, fragments, fragments_by_lengths,
    graph_pool, leak_of_losses, caught_and_gone_on, recompute_in_backward, pinned, compiled, convolution_frames, siblings,
    expandable_growing, worker_memory, illegal_access, negative_size, int_overflow,
]  # fmt: skip


def record(folder, names):
    os.makedirs(folder, exist_ok=True)
    for story in STORIES:
        name = story.__name__
        if names and name not in names:
            continue
        began = time.time()
        with open(os.path.join(folder, f"h200_{name}.log"), "wb") as log:
            environment = {**os.environ, **ENVIRONMENT.get(name, {})}
            command = [sys.executable, os.path.abspath(__file__), "--story", name]
            try:
                code = subprocess.call(command, stdout=log, stderr=log, env=environment, timeout=150, cwd=folder)
            except subprocess.TimeoutExpired:
                code = "too long"
        say(f"{name}: {code}, {time.time() - began:.0f} s")


if __name__ == "__main__":
    if sys.argv[1] == "--story":
        globals()[sys.argv[2]]()
    else:
        record(sys.argv[1], sys.argv[2:])
