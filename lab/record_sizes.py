"""Records the memory of a training at several sizes of its batch, for `lowtide replay --at` to be held against.

    record_sizes.py FOLDER [WORKLOAD...]      every workload at its six sizes, with and without expandable segments

Each recording is a process of its own: what a library keeps from one size must not be in the next.
"""

import gzip
import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

STEPS = 3


def llama(size):
    """Grouped queries, gated feed-forward, no biases; bf16, fused AdamW, clipping."""
    import torch
    from torch import nn
    from torch.nn import functional as f

    class Block(nn.Module):
        def __init__(self, width, heads, shared):
            super().__init__()
            self.heads, self.shared, inner = heads, shared, width // heads
            self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
            self.q, self.kv = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * shared * inner, bias=False)
            self.out, self.down = nn.Linear(width, width, bias=False), nn.Linear(1376, width, bias=False)
            self.gate, self.up = nn.Linear(width, 1376, bias=False), nn.Linear(width, 1376, bias=False)

        def forward(self, x):
            rows, length, width = x.shape
            normed = self.first(x)
            q = self.q(normed).view(rows, length, self.heads, -1).transpose(1, 2)
            k, v = self.kv(normed).view(rows, length, 2, self.shared, -1).permute(2, 0, 3, 1, 4)
            k, v = (one.repeat_interleave(self.heads // self.shared, 1) for one in (k, v))
            x = x + self.out(f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(rows, length, width))
            normed = self.second(x)
            return x + self.down(f.silu(self.gate(normed)) * self.up(normed))

    body = nn.ModuleList(Block(512, 8, 2) for _ in range(6)).cuda()
    tokens, head = nn.Embedding(12000, 512).cuda(), nn.Linear(512, 12000, bias=False).cuda()
    parameters = [*body.parameters(), *tokens.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, fused=True)
    for _ in range(STEPS):
        ids = torch.randint(12000, (size, 385), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            x = tokens(ids[:, :-1])
            for block in body:
                x = block(x)
            loss = f.cross_entropy(head(x).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def unet(size):
    """Skips, transposed convolutions, group norm; fp16 with a loss scale, Adam."""
    import torch
    from models import UNet
    from torch.nn import functional as f

    model = UNet(3, 32).cuda()
    optimizer, scaler = torch.optim.Adam(model.parameters()), torch.amp.GradScaler("cuda")
    for _ in range(STEPS):
        x = torch.randn(size, 3, 128, 128, device="cuda")
        with torch.autocast("cuda", torch.float16):
            loss = f.mse_loss(model(x).float(), x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)


def bottlenecks(size):
    """A residual net of bottlenecks, fp32, channels last, SGD, and an evaluation after each step."""
    import torch
    from torch import nn
    from torch.nn import functional as f

    class Bottleneck(nn.Module):
        def __init__(self, width, inner, stride):
            super().__init__()
            self.one, self.two, self.three = nn.Conv2d(width, inner, 1), nn.Conv2d(inner, inner, 3, stride, 1), nn.Conv2d(inner, 2 * width, 1)
            self.short = nn.Conv2d(width, 2 * width, 1, stride)
            self.norms = nn.ModuleList(nn.BatchNorm2d(one) for one in (inner, inner, 2 * width))

        def forward(self, x):
            y = f.relu(self.norms[0](self.one(x)))
            y = f.relu(self.norms[1](self.two(y)))
            return f.relu(self.norms[2](self.three(y)) + self.short(x))

    layers = [nn.Conv2d(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, 1), Bottleneck(64, 64, 1), Bottleneck(128, 96, 2), Bottleneck(256, 128, 2)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 200)).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True)
    for _ in range(STEPS):
        x = torch.randn(size, 3, 160, 160, device="cuda").to(memory_format=torch.channels_last)
        f.cross_entropy(model(x), torch.randint(200, (size,), device="cuda")).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        model.eval()
        with torch.no_grad():
            model(torch.randn(2 * size, 3, 160, 160, device="cuda")).argmax(1).sum().item()
        model.train()


WORKLOADS = {"llama": (llama, (2, 4, 8, 16, 32, 64)), "unet": (unet, (2, 4, 8, 16, 32, 64)), "bottlenecks": (bottlenecks, (3, 6, 12, 24, 48, 96))}


def record(folder, workload, size, conf):
    import torch

    torch.manual_seed(0)
    torch.cuda.memory._record_memory_history(context=None, max_entries=1_000_000)
    WORKLOADS[workload][0](size)
    torch.cuda.synchronize()
    snapshot, stats = torch.cuda.memory._snapshot(), dict(torch.cuda.memory_stats())
    name = Path(folder) / f"{workload}__{'expandable' if conf else 'default'}__{size}"
    with gzip.open(f"{name}.pickle.gz", "wb") as file:
        pickle.dump(snapshot, file)
    about = {"workload": workload, "size": size, "conf": conf, "torch": torch.__version__, "stats": stats}
    Path(f"{name}.json").write_text(json.dumps(about))


def main():
    folder, *names = sys.argv[1:]
    if names[:1] == ["one"]:
        record(folder, names[1], int(names[2]), os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""))
        return
    Path(folder).mkdir(parents=True, exist_ok=True)

    def start(job):
        workload, size, conf = job
        environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": conf}
        if not conf:
            del environment["PYTORCH_CUDA_ALLOC_CONF"]
        done = subprocess.run([sys.executable, __file__, folder, "one", workload, str(size)], env=environment, capture_output=True, text=True)
        print(workload, size, conf or "default", done.returncode, done.stderr[-300:] if done.returncode else "", flush=True)

    jobs = [(name, size, conf) for name in names or WORKLOADS for size in WORKLOADS[name][1] for conf in ("", "expandable_segments:True")]
    with ThreadPoolExecutor(8) as several:
        list(several.map(start, jobs))


if __name__ == "__main__":
    main()
