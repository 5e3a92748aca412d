"""What PyTorch reaches by hand under a memory cap: the figures to hold a run against. Argument: gpt or qca.

A cap is a card: what the allocator may hold plus the context outside it. gpt is GPT-2 124M with an effective batch of
64 x 1024 tokens, bf16 autocast, fused AdamW; qca is UNetUnitary (27.7 M parameters) applied 500 times to a 64 x 64 grid.
"""
import gc
import sys
import time

import torch
import torch.nn.functional as F
from anchor_base import set_cap
from models import GPT, UNetUnitary
from torch.utils.checkpoint import checkpoint

G = 2**30


def head_loss(model, x, ids, chunks):
    x, targets = model.lnf(x).view(-1, x.shape[-1]), ids.view(-1)
    if chunks == 1:
        return F.cross_entropy(model.head(x), targets)
    part = lambda a, b: F.cross_entropy(model.head(a), b, reduction="sum")
    pairs = zip(x.chunk(chunks), targets.chunk(chunks))
    return sum(checkpoint(part, a, b, use_reentrant=False) for a, b in pairs) / targets.numel()


def gpt(micro, recompute, chunks, steps=4, batch=64):
    torch.manual_seed(0)
    model = GPT(50304, 1024, 768, 12, 12).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(steps):
        torch.cuda.synchronize()
        begun = time.time()
        for _ in range(batch // micro):
            ids = torch.randint(50304, (micro, 1024), device="cuda")
            with torch.autocast("cuda", torch.bfloat16):
                x = model.wte(ids) + model.wpe(torch.arange(1024, device="cuda"))
                for block in model.blocks:
                    x = checkpoint(block, x, use_reentrant=False) if recompute else block(x)
                loss = head_loss(model, x, ids, chunks) * micro / batch
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.time() - begun)
    return f"{batch * 1024 / sorted(times)[len(times) // 2]:.0f} tokens/s"


def qca(every, steps=500):
    model = UNetUnitary(14, 128).cuda()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    torch.cuda.reset_peak_memory_stats()

    def stretch(x, count):
        for _ in range(count):
            x = model(x)
        return x

    times = []
    for _ in range(2):
        torch.cuda.synchronize()
        begun = time.time()
        x = torch.randn(1, 28, 64, 64, device="cuda")
        for _ in range(0, steps, every):
            x = checkpoint(stretch, x, every, use_reentrant=False)
        x.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.time() - begun)
    return f"{min(times):.2f} s an episode"


def measure(name, cap, body, *arguments):
    gc.collect()
    torch.cuda.empty_cache()
    set_cap(cap)
    try:
        result = body(*arguments)
        result += f", reserved {torch.cuda.max_memory_reserved() / G:.2f} GiB"
    except torch.cuda.OutOfMemoryError:
        result = "out of memory"
    print(f"pytorch {name}, cap {cap} GiB: {result}", flush=True)


if sys.argv[1] == "gpt":
    measure("eager, micro 4 (the usual advice)", 11.69, gpt, 4, False, 1)
    measure("eager, micro 16, loss in 8 chunks", 11.69, gpt, 16, False, 8)
    measure("eager, micro 64, recompute, loss in 16 chunks", 11.69, gpt, 64, True, 16)
    measure("eager, micro 8, loss in 4 chunks", 8.5, gpt, 8, False, 4)
    measure("eager, micro 64, recompute, loss in 16 chunks", 8.5, gpt, 64, True, 16)
else:
    torch.set_float32_matmul_precision("high")
    for every in (5, 10, 20):
        measure(f"fp32, recompute every {every}", 3.68, qca, every)
