"""Checks of the Python package that need a GPU: real out-of-memory errors, what the guard costs, and the real nanoGPT.

    python3 scripts/gpu-python.py [NAME...]      hold-gpt, hold-resnet, hold-compiled, cost, nanogpt (NANOGPT names its folder),
                                                 hold-trainer and hold-accelerate (transformers and accelerate are there)

Prints one JSON object for each check; exit code 1 where one does not hold.
"""

import contextlib
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import lowtide
import torch
from torch import nn
from torch.nn import functional

DEVICE = "cuda"
LIMIT = "12GiB"
NANO_LIMIT = "11.69GiB"


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
        attended = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], dropout_p=0.1 * self.training, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, length, width))
        return x + functional.dropout(self.down(functional.gelu(self.up(self.second(x)))), 0.1, self.training)


class Gpt2(nn.Module):
    """As large as GPT-2 124M."""

    def __init__(self, vocabulary=50304, length=1024, width=768, depth=12, heads=12):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for one in self.parameters():
            if one.dim() > 1:
                nn.init.normal_(one, std=0.02)

    def forward(self, x):
        x = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        out = 4 * width
        self.layers = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out),
        )
        self.short = nn.Identity() if stride == 1 and inside == out else nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return functional.relu(self.layers(x) + self.short(x))


class Mean(nn.Module):
    """Of all pixels; torch's own pooling has no deterministic backward."""

    def forward(self, x):
        return x.mean((2, 3))


def resnet50():
    layers, inside = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(count):
            layers.append(Bottleneck(inside, width, stride if number == 0 else 1))
            inside = 4 * width
    return nn.Sequential(*layers, Mean(), nn.Linear(inside, 1000))


def tokens(samples, number, length=1024):
    generator = torch.Generator().manual_seed(number)
    x = torch.randint(50257, (samples, length + 1), generator=generator).to(DEVICE)
    return x[:, :-1].contiguous(), x[:, 1:].contiguous()


def pictures(samples, number):
    generator = torch.Generator().manual_seed(number)
    return torch.randn(samples, 3, 224, 224, generator=generator).to(DEVICE), torch.randint(1000, (samples,), generator=generator).to(DEVICE)


def loss_of(model, part, dtype=torch.bfloat16):
    with torch.autocast(DEVICE, dtype=dtype):
        logits = model(part[0])
        return functional.cross_entropy(logits.flatten(0, -2), part[1].flatten())


def cleared():
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1.0)


def hold(model, batch, samples, steps, *, compiled=False, scaler=False, fused=True, limit=LIMIT):
    """Under a limit that the batch does not fit under; then on the same schedule without one, bit for bit the same."""
    torch.use_deterministic_algorithms(True)

    def run(line, schedule):
        torch.manual_seed(1)
        made = model().to(DEVICE)
        used = torch.compile(made) if compiled else made
        optimizer = torch.optim.AdamW(made.parameters(), lr=1e-4, fused=fused, foreach=not fused)
        scale = torch.amp.GradScaler(DEVICE) if scaler else None
        guard = lowtide.Guard(used, optimizer, line=line, clip=1.0, scaler=scale, schedule=schedule)
        dtype = torch.float16 if scaler else torch.bfloat16
        losses = [guard.step(batch(samples, number), lambda part: loss_of(used, part, dtype)) for number in range(steps)]
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_reserved()
        return guard, [value.detach().cpu() for value in made.state_dict().values()], [loss.item() for loss in losses], peak

    cleared()
    begun = time.perf_counter()
    guard, held, losses, peak = run(limit, None)
    schedule, errors, report = guard.schedule(), guard.errors, guard.report()
    del guard
    torch._dynamo.reset()
    cleared()
    guard, clean, same, _ = run(None, schedule)
    clean_errors = guard.errors
    del guard
    cleared()
    torch.use_deterministic_algorithms(False)
    different = sum(not torch.equal(one, two) for one, two in zip(held, clean))
    return {
        "holds": errors > 0 and clean_errors == 0 and different == 0 and losses == same,
        "errors": errors, "schedule": [[at, list(way)] for at, way in schedule], "tensors that differ": different,
        "losses": [round(loss, 4) for loss in losses], "reserved peak": peak, "seconds": round(time.perf_counter() - begun, 1),
        "report": report.splitlines()[-6:],
    }


def hugging_face_gpt2():
    import transformers

    torch.manual_seed(1)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=50304, bos_token_id=0, eos_token_id=0))


def trainer_run(line, schedule):
    """Hugging Face's Trainer in fp16 with a loss scale."""
    import transformers
    from lowtide.integrations.transformers import guarded

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 256

        def __getitem__(self, index):
            ids = torch.randint(50257, (1024,), generator=torch.Generator().manual_seed(index))
            return {"input_ids": ids, "labels": ids}

    transformers.set_seed(5)
    arguments = transformers.TrainingArguments(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=16, gradient_accumulation_steps=2, max_steps=4, fp16=True, report_to="none",
        save_strategy="no", disable_tqdm=True, seed=5, logging_steps=1, optim="adamw_torch_fused",
    )
    trainer = guarded(transformers.Trainer(model=hugging_face_gpt2(), args=arguments, train_dataset=Rows()), line=line, schedule=schedule)
    trainer.train()
    return trainer.lowtide, trainer.model, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def accelerate_run(line, schedule):
    """A loop with accelerate in fp16."""
    import accelerate
    from lowtide.integrations.accelerate import guarded

    accelerator = accelerate.Accelerator(mixed_precision="fp16")
    torch.manual_seed(1)
    made = Gpt2()
    model, optimizer = accelerator.prepare(made, torch.optim.AdamW(made.parameters(), lr=1e-4, fused=True))
    guard = guarded(accelerator, model, optimizer, line=line, clip=1.0, schedule=schedule)

    def closure(part):
        return functional.cross_entropy(model(part[0]).flatten(0, -2), part[1].flatten())

    losses = [guard.step(tokens(32, number), closure).item() for number in range(4)]
    return guard, accelerator.unwrap_model(model), losses


def hold_library(run, limit=LIMIT):
    """Under a limit that the batch does not fit under; then on the same schedule without one, bit for bit the same."""
    torch.use_deterministic_algorithms(True)
    found = []
    for line in (limit, None):
        cleared()
        guard, model, losses = run(line, found[0]["schedule"] if found else None)
        state = [value.detach().cpu() for value in model.state_dict().values()]
        found.append({"errors": guard.errors, "schedule": guard.schedule(), "losses": losses, "state": state, "report": guard.report().splitlines()[:6]})
        del guard, model
    torch.use_deterministic_algorithms(False)
    held, clean = found
    different = sum(not torch.equal(one, two) for one, two in zip(held["state"], clean["state"]))
    return {
        "holds": held["errors"] > 0 and clean["errors"] == 0 and different == 0 and held["losses"] == clean["losses"],
        "errors": held["errors"], "clean": clean["errors"], "tensors that differ": different, "losses": held["losses"], "report": held["report"],
    }


def cost(batch=4, steps=400):
    """The guard against the bare loop: the same model and optimizer, one step of each in turn, each waited for."""
    cleared()
    torch.manual_seed(1)
    model = Gpt2().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    part = tokens(batch, 0)
    guards = [lowtide.Guard(model, optimizer, clip=1.0), lowtide.Guard(model, optimizer, clip=1.0, run=tempfile.mkdtemp())]

    def bare():
        optimizer.zero_grad(set_to_none=True)
        loss_of(model, part).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    ways = {"bare": bare, "bare again": bare}
    for name, guard in zip(("guard", "written"), guards):
        ways[name] = lambda guard=guard: guard.step(part, lambda one: loss_of(model, one))
    names, times = list(ways), {name: [] for name in ways}
    for number in range(steps):
        for name in names[number % 4 :] + names[: number % 4]:
            torch.cuda.synchronize()
            begun = time.perf_counter()
            ways[name]()
            torch.cuda.synchronize()
            times[name].append(time.perf_counter() - begun)

    def middle(values):
        return sorted(values)[len(values) // 2]

    median = {name: middle(values[steps // 10 :]) for name, values in times.items()}
    # Each step against the bare one of its round.
    more = {name: middle([one - other for one, other in zip(times[name][steps // 10 :], times["bare"][steps // 10 :])]) for name in names}
    ratio = {name: round(1 + more[name] / median["bare"], 4) for name in names}
    return {"holds": max(ratio.values()) <= 1.005, "batch": batch, "milliseconds": {name: round(1e3 * one, 3) for name, one in median.items()}, "ratio": ratio}


MADE = "guard = lowtide.Guard(model, optimizer, line=os.environ['LINE'], clip=grad_clip, scaler=scaler, autocast=ctx)\n"
STEP = "    loss = guard.step((X, Y), lambda part: model(*part)[1]); X, Y = get_batch('train')\n"
EVALUATE = "        out[split] = guard.evaluate((get_batch(split) for _ in range(eval_iters)), lambda part: model(*part)[1])\n"


def changed(script):
    """The real train.py with three lines of the guard, in the place of its inner loops."""

    def replaced(text, begin, end, line):
        at = text.index(begin)
        return text[:at] + line + text[text.index(end, at) :]

    script = replaced(script, "    for micro_step in range(gradient_accumulation_steps):", "    # timing and logging", STEP)
    script = replaced(script, "        losses = torch.zeros(eval_iters)", "    model.train()", EVALUATE)
    return "import lowtide\n" + script.replace("# training loop\n", MADE + "\n# training loop\n")


def nanogpt(steps=24, compiled=False):
    """The real nanoGPT at an effective batch of 64: guarded and begun too large, against each fixed micro-batch."""
    source = Path(os.environ["NANOGPT"])
    folder = Path(tempfile.mkdtemp())
    subprocess.run(["cp", "-r", f"{source}/.", folder], check=True)
    data = folder / "data/made"
    data.mkdir(parents=True)
    import numpy

    for name in ("train", "val"):
        numpy.random.default_rng(0).integers(0, 50257, 4_000_000, dtype=numpy.uint16).tofile(data / f"{name}.bin")
    (folder / "guarded.py").write_text(changed((folder / "train.py").read_text()))
    # The limit for the script as it is.
    limited = f"import torch\nfrom lowtide._memory import CudaMemory\ntorch.zeros(1, device='cuda')\nCudaMemory(torch.device('cuda', 0)).set_limit('{NANO_LIMIT}')\n"
    (folder / "fixed.py").write_text(limited + (folder / "train.py").read_text())
    common = ["--dataset=made", f"--max_iters={steps}", "--eval_interval=100000", "--eval_iters=1", "--log_interval=1",
              f"--compile={compiled}", "--always_save_checkpoint=False"]

    def run(script, micro_batch, accumulation):
        command = [sys.executable, script, *common, f"--batch_size={micro_batch}", f"--gradient_accumulation_steps={accumulation}"]
        done = subprocess.run(command, cwd=folder, env={**os.environ, "LINE": NANO_LIMIT}, capture_output=True, text=True)
        times = [float(one) for one in re.findall(r"iter \d+: loss [\d.]+, time ([\d.]+)ms", done.stdout)][6:]
        last = re.findall(r"iter \d+: loss ([\d.]+)", done.stdout)
        text = (done.stdout + done.stderr)[-400:] if done.returncode else ""
        return {"code": done.returncode, "ms": round(sorted(times)[len(times) // 2], 1) if times else None, "loss": last[-1] if last else None, "end": text}

    results = {f"{micro} x {64 // micro}": run("fixed.py", micro, 64 // micro) for micro in (4, 8, 16)}
    guarded = run("guarded.py", 64, 1)
    fitting = [one["ms"] for one in results.values() if one["code"] == 0 and one["ms"]]
    speed = round(min(fitting) / guarded["ms"], 4) if guarded["ms"] and fitting else None
    return {"holds": guarded["code"] == 0 and speed is not None and speed >= 0.97, "guarded": guarded, "speed of the best": speed, "fixed": results}


CHECKS = {
    "hold-gpt": lambda: hold(Gpt2, tokens, 32, 6),
    "hold-gpt-foreach": lambda: hold(Gpt2, tokens, 32, 4, fused=False),
    "hold-gpt-fp16": lambda: hold(Gpt2, tokens, 32, 4, scaler=True),
    "hold-resnet": lambda: hold(resnet50, pictures, 256, 4, limit="8GiB"),
    "hold-compiled": lambda: hold(Gpt2, tokens, 32, 9, compiled=True),
    "hold-trainer": lambda: hold_library(trainer_run),
    "hold-accelerate": lambda: hold_library(accelerate_run),
    "cost": cost,
    "cost-16": lambda: cost(batch=16, steps=120),
    "nanogpt": nanogpt,
    "nanogpt-compiled": lambda: nanogpt(compiled=True),
}


def main():
    names = sys.argv[1:] or list(CHECKS)
    bad = 0
    for name in names:
        try:
            result = CHECKS[name]()
        except Exception as error:
            import traceback

            traceback.print_exc()
            result = {"holds": False, "error": f"{type(error).__name__}: {error}"[:600]}
        bad += not result["holds"]
        print(json.dumps({"check": name, **result}), flush=True)
        with contextlib.suppress(Exception):
            cleared()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
