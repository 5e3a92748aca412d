"""Checks on a GPU of what `lowtide run` puts into a command's Python: real errors, what is written down, and what it costs.

    python3 scripts/gpu-inside.py [NAME...]      report, caught, history; the program `lowtide` is in PATH

Prints one JSON object for each check; exit code 1 where one does not hold.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# The history may cost this part of a step.
MOST = 0.005

MODEL = '''
import argparse, os, sys, time
import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        rows, length, width = x.shape
        parts = self.qkv(self.first(x)).view(rows, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], dropout_p=0.1, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, length, width))
        hidden = functional.gelu(self.up(self.second(x)))
        return x + functional.dropout(self.down(hidden), 0.1, self.training)


class Gpt2(nn.Module):
    def __init__(self, vocabulary=50304, length=1024, width=768, depth=12, heads=12):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, x):
        h = self.tokens(x) + self.places.weight[: x.shape[1]]
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


def step(model, optimizer, rows):
    x = torch.randint(0, 50304, (rows, 1025), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        logits = model(x[:, :-1])
        loss = functional.cross_entropy(logits.view(-1, 50304), x[:, 1:].reshape(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def made():
    torch.manual_seed(0)
    model = Gpt2().cuda()
    return model, torch.optim.AdamW(model.parameters(), fused=True)
'''

TRAIN = """
from model import *

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
args = parser.parse_args()
total = torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_per_process_memory_fraction((9 << 30) / total)
model, optimizer = made()
for number in range(2):
    for part in range(args.gradient_accumulation_steps):
        step(model, optimizer, args.batch_size)
    print("step", number, flush=True)
"""

CAUGHT = """
from model import *

torch.cuda.init()
torch.cuda.set_per_process_memory_fraction(0.05)
begun, caught = time.time(), 0
for _ in range(50):
    try:
        torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        caught += 1
print(caught, time.time() - begun)
"""

HISTORY = """
import json, statistics
from model import *

model, optimizer = made()
memory = torch.cuda.memory
costs = {}
for rows, rounds in [(4, 40), (32, 20)]:
    for _ in range(5):
        step(model, optimizer, rows)
    differences, plain = [], []
    for number in range(rounds):
        times = {}
        for kind in sorted(["off", "on"], reverse=bool(number % 2)):
            if kind == "on":
                memory._record_memory_history("state", context="state", stacks="python")
            else:
                memory._record_memory_history(None)
            step(model, optimizer, rows)
            torch.cuda.synchronize()
            begun = time.perf_counter()
            for _ in range(3):
                step(model, optimizer, rows)
            torch.cuda.synchronize()
            times[kind] = (time.perf_counter() - begun) / 3
        differences.append(times["on"] - times["off"])
        plain.append(times["off"])
    costs[rows] = [statistics.median(differences) / statistics.median(plain), statistics.median(plain)]
print(json.dumps(costs))
"""


def run(folder, *words, **variables):
    environment = {**os.environ, "PYTHONPATH": str(folder), **variables}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=400)


def report(folder):
    """A step under 9 GiB: errors name their line, from the second start on also the lines of those who hold most."""
    (folder / "train.py").write_text(TRAIN)
    retry = ["--retry-with", "--batch_size={micro} --gradient_accumulation_steps={accum}"]
    done = run(folder, "lowtide", "run", *retry, "--", sys.executable, "train.py", "--batch_size=64")
    reports = {path.name: json.loads(path.read_text()) for path in sorted((folder / "runs/train-1/memory").glob("*.json"))}
    snapshots = {path.name: path.stat().st_size for path in sorted((folder / "runs/train-1/memory").glob("*.pickle"))}
    explained = {}
    for start in (1, 2):
        log = folder / f"runs/train-1/start-{start}.log"
        explained[start] = run(folder, "lowtide", "explain", "--all", str(log)).stdout if log.exists() else ""
    out = os.environ.get("OUT")
    if out:
        for path in sorted((folder / "runs/train-1/memory").iterdir())[:4]:
            shutil.copy(path, out)
        for start, text in explained.items():
            Path(out, f"explained-{start}.txt").write_text(text)
        Path(out, "run.txt").write_text(done.stderr)
    holds = done.returncode == 0 and "model.py, line" in explained[1] and "made in" in explained[2]
    named = [line for text in explained.values() for line in text.splitlines() if "model.py, line" in line or "GiB" in line][:24]
    seconds = {name: round(one.get("time", 0), 2) for name, one in reports.items()}
    return {"holds": holds, "code": done.returncode, "reports": seconds, "snapshots": snapshots, "named": named, "end": done.stderr[-1500:]}


def caught(folder):
    """A script that catches the error again and again."""
    (folder / "train.py").write_text(CAUGHT)
    # As `lowtide run` sets the allocator: with segments that grow it maps what there is, piece by piece, before it gives up.
    plain = run(folder, sys.executable, "train.py", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    watched = run(folder, "lowtide", "run", "--quiet", "--watch-memory=always", "--", sys.executable, "train.py")
    seconds = [float(one.stdout.split()[-1]) for one in (plain, watched)]
    files = sorted((folder / "runs/train-1/memory").iterdir())
    size = sum(path.stat().st_size for path in files)
    return {"holds": seconds[1] < seconds[0] * 1.1 + 3 and len(files) <= 4, "seconds": seconds, "files": len(files), "bytes": size}


def history(folder):
    """A step of GPT-2 124M with and without the history of who allocated what: where the card is busy it must not be seen."""
    (folder / "train.py").write_text(HISTORY)
    done = run(folder, sys.executable, "train.py")
    costs = json.loads(done.stdout.splitlines()[-1])
    found = {rows: {"cost": round(cost, 5), "step_ms": round(1e3 * step, 2)} for rows, (cost, step) in costs.items()}
    return {"holds": costs["32"][0] <= MOST, "batches": found}


CHECKS = {"report": report, "caught": caught, "history": history}


def main():
    bad = 0
    for name in sys.argv[1:] or list(CHECKS):
        begun = time.time()
        with tempfile.TemporaryDirectory() as place:
            (Path(place) / "model.py").write_text(MODEL)
            try:
                result = CHECKS[name](Path(place))
            except Exception as error:
                result = {"holds": False, "error": f"{type(error).__name__}: {error}"[:600]}
        bad += not result["holds"]
        print(json.dumps({"check": name, **result, "took_s": round(time.time() - begun, 1)}), flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
