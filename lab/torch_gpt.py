"""GPT-2 124M training speed in PyTorch: tokens/s and peak memory, bf16 autocast, eager and compiled, or one of them if told which."""
import sys
import time

import torch
import torch.nn.functional as F
from models import GPT

torch.set_float32_matmul_precision("high")
ways = sys.argv[1:] or ["eager", "compiled"]
cases = [(batch, way == "compiled") for batch in (4, 16) for way in ways]
for batch, compiled in cases:
    torch.manual_seed(0)
    model = GPT(50304, 1024, 768, 12, 12).cuda()
    forward = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(30):
        ids = torch.randint(50304, (batch, 1024), device="cuda")
        torch.cuda.synchronize()
        begun = time.time()
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(forward(ids).view(-1, 50304), ids.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        times.append(time.time() - begun)
    times.sort()
    median = times[len(times) // 2]
    name = "compiled" if compiled else "eager"
    print(
        f"pytorch {name} batch {batch}: {median * 1e3:.2f} ms, {batch * 1024 / median:.0f} tokens/s, "
        f"allocated {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB, "
        f"reserved {torch.cuda.max_memory_reserved() / 2**30:.2f} GiB, last loss {value:.3f}",
        flush=True,
    )
    del model, forward, optimizer, loss
    torch.cuda.empty_cache()
