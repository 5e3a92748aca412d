"""Checks of the reserve that need a GPU, on a card whose other memory is really taken by plain allocations.

    python3 scripts/gpu-reserve.py [NAME...]     hold, speed, cost, begins, evaluation, small, streams, line, nanogpt (NANOGPT names its folder),
                                                 trainer (transformers is there)

Each part runs in a process of its own. Prints one JSON object for each check; exit code 1 where one does not hold.
"""

import ctypes
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import lowtide
import torch
from lowtide._memory import POOLED
from torch.optim.optimizer import register_optimizer_step_post_hook

GIB = 1 << 30
CARD = 12
RESERVE = "10GiB"

# The models beside, in a checkout and in a bundle.
sys.path[:0] = [str(Path(__file__).parent / place) for place in ("lab", "../lab")]
spec = importlib.util.spec_from_file_location("gpu_python", Path(__file__).with_name("gpu-python.py"))
models = importlib.util.module_from_spec(spec)
spec.loader.exec_module(models)


def ballast(card=CARD):
    """Takes all of the card but so many GiB, behind torch's back."""
    torch.zeros(1, device="cuda")
    driver, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    size = int(torch.cuda.mem_get_info()[0] - card * GIB)
    code = driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
    if code:
        raise RuntimeError(f"no ballast of {size} bytes: {code}")


class Loop:
    """GPT-2 124M as scripts train it. ``plain`` has no dropout."""

    def __init__(self, micro_batch, plain=False):
        torch.manual_seed(1)
        self.model = (plain_gpt2() if plain else models.Gpt2()).to("cuda")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.micro_batch, self.number = micro_batch, 0
        # The same in every step, where that is of no matter.
        self.batch = None

    def step(self):
        self.number += 1
        loss = models.loss_of(self.model, self.batch or models.tokens(self.micro_batch, self.number))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def rate(self, steps):
        """Tokens a second."""
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(steps):
            self.step()
        torch.cuda.synchronize()
        return round(steps * self.micro_batch * 1024 / (time.perf_counter() - begun))


def plain_gpt2():
    from models import GPT

    return GPT(50304, 1024, 768, 12, 12)


def losses_of(loop, steps=5):
    torch.use_deterministic_algorithms(True)
    losses = [loop.step().item().hex() for _ in range(steps)]
    torch.use_deterministic_algorithms(False)
    return losses


def references(*micro_batches):
    """Losses and speed on a card that has room."""

    def found(loop):
        losses = losses_of(loop)
        loop.rate(2)
        return losses, loop.rate(6)

    return {micro_batch: found(Loop(int(micro_batch))) for micro_batch in micro_batches}


def train(micro_batch, is_full, size, more=4):
    """Losses of some steps with deterministic algorithms, then the speed without."""
    if is_full:
        ballast()
    reserve = lowtide.reserve(size) if size else None
    loop = Loop(micro_batch)
    losses = losses_of(loop)
    loop.rate(2)
    rates = [loop.rate(more) for _ in range(3)]
    stats = torch.cuda.memory_stats()
    found = {"losses": losses, "rate": sorted(rates)[1], "ooms": stats["num_ooms"], "peak": stats["allocated_bytes.all.peak"]}
    if reserve is not None:
        live = reserve._pool.taken()
        found |= {"report": reserve.report(), "pinned s": round(reserve.pinned_seconds, 2), "count": reserve.count, "live": live}
        reserve.close()
        found["closed"] = not POOLED
    return found


BARE = """
#include <stdlib.h>
#include <sys/types.h>
int cuMemHostAlloc(void **place, size_t size, unsigned flags);
int cuMemFreeHost(void *place);
void *bare_malloc(ssize_t size, int device, void *stream) { void *place = NULL; return cuMemHostAlloc(&place, size, 3) ? NULL : place; }
void bare_free(void *place, ssize_t size, int device, void *stream) { cuMemFreeHost(place); }
"""


def bare_pool(gib):
    """What torch offers by itself: a pool of pinned host memory to fall back on, which nobody looks after."""
    folder = Path(tempfile.mkdtemp())
    (folder / "bare.c").write_text(BARE)
    driver = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libcuda.so" in line)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "bare.so", folder / "bare.c", driver], check=True)
    functions = torch.cuda.memory.CUDAPluggableAllocator(str(folder / "bare.so"), "bare_malloc", "bare_free")
    pool = torch.cuda.MemPool(functions.allocator(), use_on_oom=True)
    with torch.cuda.use_mem_pool(pool):
        whole = torch.empty(gib * GIB, dtype=torch.uint8, device="cuda")
    del whole
    return functions, pool


def raced(micro_batch, kind):
    """Tokens a second on a full card, with our reserve, a bare pool, or none: the middle of the last 20 of 40 steps."""
    ballast()
    kept = {"ours": lambda: lowtide.reserve(RESERVE), "bare": lambda: bare_pool(int(RESERVE.removesuffix("GiB"))), "none": lambda: None}[kind]()
    loop = Loop(micro_batch, plain=True)
    loop.batch = models.tokens(micro_batch, 0)
    times = [timed(loop) for _ in range(40)]
    found = {"rate": round(micro_batch * 1024 / middle(times[20:]))}
    if kind == "ours":
        found |= {"overflows": kept.count, "releases": kept._release._is_releasing}
        kept.close()
    return found


def guarded(micro_batch, size, steps):
    """The guard with a batch of 16."""
    ballast()
    torch.manual_seed(1)
    model = models.Gpt2().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    folder = tempfile.mkdtemp()
    guard = lowtide.Guard(model, optimizer, micro_batch=micro_batch, reserve=size or None, run=folder)
    data = [models.tokens(16, number) for number in range(8)]
    times = []
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for number in range(steps):
        guard.step(data[number % 8], lambda part: models.loss_of(model, part))
        times.append(time.perf_counter() - begun)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begun
    late = (times[-1] - times[steps // 4 - 1]) / (steps - steps // 4) if steps >= 8 else 0.0

    def rate(one):
        return round(16 * 1024 / one) if one else None

    return {"rate": rate(seconds / steps), "rate late": rate(late), "errors": guard.errors, "schedule": [[at, way.micro_batch] for at, way in guard.schedule()],
            "report": guard.report().splitlines()[:8]}


def evaluate(is_full, size):
    if is_full:
        ballast()
    reserve = lowtide.reserve(size) if size else None
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    model = models.Gpt2().to("cuda").eval()
    begun = time.perf_counter()
    with torch.no_grad():
        loss = models.loss_of(model, models.tokens(48, 0)).item()
    seconds = time.perf_counter() - begun
    peak = torch.cuda.max_memory_allocated()
    found = {"loss": loss.hex(), "peak": peak, "seconds": round(seconds, 2)}
    if reserve is not None:
        reserve.settle()
        found |= {"report": reserve.report(), "phases": [one.phase for one in reserve.overflows]}
    return found


def in_turn(rounds=150):
    """What a reserve that is not used adds to a step: by steps in turn with and without its look after the update, and by what requests
    for memory take with and without a reserve, in turn."""
    found = {name: in_turn_with(batch, rounds) for name, batch in {"4": 4, "16": 16}.items()}
    torch.cuda.empty_cache()
    ballast()
    return found | {"8 on a full card": in_turn_with(8, rounds)}


def in_turn_with(batch, rounds):
    """The speed of a process varies by a tenth from second to second, so a step is compared with the one beside it."""
    loop = Loop(batch)
    loop.rate(10)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    loop.step()
    requests = torch.cuda.memory_stats()["allocation.all.allocated"] - before
    plain, beside = [], []
    for _ in range(8):
        plain.append(allocations())
        with lowtide.reserve("256MiB"):
            beside.append(allocations())
    times = {"without": [], "with": []}
    with lowtide.reserve("256MiB") as reserve:
        work = reserve._after_step
        for number in range(rounds):
            for name in ("without", "with") if number % 2 else ("with", "without"):
                reserve._hook.remove()
                if name == "with":
                    reserve._hook = register_optimizer_step_post_hook(work)
                times[name].append(timed(loop))
        assert reserve.count == 0, reserve.report()
    differences = sorted(one - other for one, other in zip(times["with"], times["without"]))
    step, more = middle(times["without"]), middle(differences)
    # Half of the differences lie between these two; the error of their middle is much smaller.
    spread = (differences[3 * rounds // 4] - differences[rounds // 4]) / rounds**0.5
    allocator = requests * (min(beside) - min(plain))
    return {"step ms": round(1e3 * step, 3), "look": round(more / step, 5), "look's error": round(spread / step, 5), "requests": requests,
            "allocator": round(allocator / step, 5), "ratio": round(1 + (more + allocator) / step, 5)}


def allocations(count=2000, times=5):
    """Seconds of a request and its return, the least of several times."""

    def once():
        begun = time.perf_counter()
        for _ in range(count):
            torch.empty(1 << 21, dtype=torch.uint8, device="cuda")
        return (time.perf_counter() - begun) / count

    return min(once() for _ in range(times))


def timed(loop):
    torch.cuda.synchronize()
    begun = time.perf_counter()
    loop.step()
    torch.cuda.synchronize()
    return time.perf_counter() - begun


def middle(values):
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def streams():
    ballast(3)
    # Where a card is full, CUDA has no memory for a new one.
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    found = {}

    def take():
        return torch.empty(GIB, dtype=torch.uint8, device="cuda").fill_(1)

    with lowtide.reserve("2GiB", streams={side: "1GiB"}) as reserve:
        held = [torch.empty(int(0.8 * torch.cuda.mem_get_info()[0]), dtype=torch.uint8, device="cuda")]
        held.append(take())
        with torch.cuda.stream(side):
            held.append(take())
        torch.cuda.synchronize()
        found["both served"] = all(reserve._region.holds(one.data_ptr()) for one in held[1:])
        try:
            with torch.cuda.stream(other):
                take()
            found["third"] = "served"
        except torch.OutOfMemoryError:
            found["third"] = "refused"
        found["named"] = str(other.cuda_stream) in reserve.report() or hex(other.cuda_stream) in reserve.report()
        small = []
        with torch.cuda.stream(torch.cuda.default_stream()):
            small = [torch.empty(1 << 19, dtype=torch.uint8, device="cuda") for _ in range(16)]
        found["small on the device"] = not any(reserve._region.holds(one.data_ptr()) for one in small)
        values = held[1][:100].clone()
        del held[0]
        torch.cuda.empty_cache()
        reserve.settle()
        found["moved"] = not reserve._region.holds(held[0].data_ptr()) and bool((held[0][:100] == values).all())
    return found


def line():
    """The line of a guard with a reserve: the driver's view stays under it."""
    torch.zeros(1, device="cuda")
    total = torch.cuda.get_device_properties(0).total_memory
    before = torch.cuda.mem_get_info()[0]
    model = models.Gpt2().to("cuda")
    guard = lowtide.Guard(model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True), line="12GiB", reserve="8GiB", micro_batch=16)
    most = 0
    for number in range(4):
        guard.step(models.tokens(16, number), lambda part: models.loss_of(model, part))
        free, _ = torch.cuda.mem_get_info()
        most = max(most, total - free)
    found = {"driver": most, "errors": guard.errors, "micro_batch": guard.micro_batch, "report": guard.report().splitlines()[:6], "others": total - before}
    guard.close()
    try:
        other = lowtide.Guard(model, guard.optimizer, line=f"{total // GIB - 2}GiB", reserve="8GiB")
        found["refused"] = str(other.micro_batch)
    except lowtide.BadLimit as error:
        found["refused"] = str(error)
    return found


def nanogpt():
    """The real nanoGPT, which nobody changed, in its first process under `lowtide run --reserve`."""
    folder = Path(tempfile.mkdtemp())
    subprocess.run(["cp", "-r", f"{os.environ['NANOGPT']}/.", folder], check=True)
    data = folder / "data/made"
    data.mkdir(parents=True)
    import numpy

    for name in ("train", "val"):
        numpy.random.default_rng(0).integers(0, 50257, 2_000_000, dtype=numpy.uint16).tofile(data / f"{name}.bin")
    ballast(CARD)
    program = ["lowtide"] if shutil.which("lowtide") else [sys.executable, "-m", "lowtide"]
    command = [*program, "run", "--reserve", RESERVE, "--", sys.executable, "train.py", "--dataset=made", "--max_iters=8", "--eval_interval=4", "--eval_iters=2",
               "--log_interval=1", "--compile=False", "--batch_size=16", "--gradient_accumulation_steps=1"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)
    text = done.stdout + done.stderr
    return {"code": done.returncode, "iterations": len(re.findall(r"iter \d+: loss", text)), "starts": len(re.findall(r"number of parameters", text)), "end": text[-900:]}


TRAINER = """
import torch, transformers


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        ids = torch.randint(50257, (1024,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids}


transformers.set_seed(5)
print("begun", flush=True)
model = transformers.GPT2LMHeadModel(transformers.GPT2Config(bos_token_id=0, eos_token_id=0))
arguments = transformers.TrainingArguments(
    output_dir="out", per_device_train_batch_size=12, per_device_eval_batch_size=16, max_steps=4, bf16=True, report_to="none", save_strategy="no",
    eval_strategy="steps", eval_steps=2, disable_tqdm=True, seed=5, logging_steps=1, prediction_loss_only=True,
)
rows = Rows()
trainer = transformers.Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=torch.utils.data.Subset(rows, range(32)))
trainer.train()
print("ended at step", trainer.state.global_step, flush=True)
"""


def trainer():
    """Hugging Face's Trainer, which nobody changed, without and with the reserve."""
    folder = Path(tempfile.mkdtemp())
    (folder / "train.py").write_text(TRAINER)
    ballast(CARD)

    def run(*words):
        done = subprocess.run([*words, sys.executable, "train.py"], cwd=folder, capture_output=True, text=True, timeout=200)
        text = done.stdout + done.stderr
        return {"code": done.returncode, "starts": text.count("begun\n"), "is at its end": "ended at step 4" in text, "end": text[-900:]}

    return {"without": run(), "with": run("lowtide", "run", "--reserve", RESERVE, "--")}


PARTS = {
    "references": references,
    "train": lambda *words: train(int(words[0]), words[1] == "full", words[2] if len(words) > 2 else ""),
    "raced": lambda micro_batch, kind: raced(int(micro_batch), kind),
    "guarded": lambda micro_batch, size, steps: guarded(int(micro_batch), size if size != "none" else "", int(steps)),
    "evaluate": lambda *words: evaluate(words[0] == "full", words[1] if len(words) > 1 else ""),
    "in-turn": in_turn,
    "streams": streams,
    "line": line,
    "nanogpt": nanogpt,
    "trainer": trainer,
}


def part(*words, timeout=150):
    done = subprocess.run([sys.executable, __file__, "part", *map(str, words)], capture_output=True, text=True, timeout=timeout)
    lines = [one for one in done.stdout.splitlines() if one.startswith("{")]
    if done.returncode or not lines:
        text = done.stdout + done.stderr
        # Of a long message the end of the stack before it, and its beginning.
        cut = text.rfind("Error: ")
        return {"failed": text[max(cut - 1200, 0) : cut + 300] if cut >= 0 else text[-1500:]}
    return json.loads(lines[-1])


def hold():
    """Losses and speed of each micro-batch, against a card that has room, in the same run."""
    rows, good = {}, True
    free = part("references", 8, 12, 16)
    for micro_batch in (16, 12, 8):
        held = part("train", micro_batch, "full", RESERVE)
        losses, rate = free.get(str(micro_batch), ([], 0))
        same = losses == held.get("losses") and "losses" in held
        good = good and same and held.get("ooms") == 0
        rows[micro_batch] = {"same bits": same, "rate of a free card": rate, **{name: held[name] for name in held if name != "losses"}}
    return {"holds": good, "rows": rows, "free": free.get("failed")}


def speed():
    """Our reserve beside a bare pool in the same run. Where the batch fits, two processes differ by more than the reserve costs:
    `cost` compares it with none."""
    rows, good = {}, True
    for micro_batch in (16, 12, 8):
        ours, theirs = part("raced", micro_batch, "ours"), part("raced", micro_batch, "bare")
        ratio = round(ours.get("rate", 0) / theirs["rate"], 3) if theirs.get("rate") else None
        good = good and ratio is not None and ratio >= 0.98
        rows[micro_batch] = {"ratio": ratio, "ours": ours, "theirs": theirs}
    return {"holds": good, "rows": rows}


def cost():
    rows = part("in-turn")
    return {"holds": all(row["ratio"] <= 1.005 for row in rows.values() if isinstance(row, dict)) and "failed" not in rows, "rows": rows}


def begins():
    """Two processes that do the same differ by a tenth and more, so each is measured by its own speed later on: what of its time the
    beginning took."""
    pairs = [{"large": part("guarded", 16, RESERVE, 200), "right": part("guarded", 8, "none", 200)} for _ in range(3)]
    if any("rate" not in one for pair in pairs for one in pair.values()):
        return {"holds": False, "pairs": pairs}
    raw = [round(pair["large"]["rate"] / pair["right"]["rate"], 4) for pair in pairs]
    shares = [(pair["large"]["rate"] / pair["large"]["rate late"]) / (pair["right"]["rate"] / pair["right"]["rate late"]) for pair in pairs]
    errors = sum(pair["large"]["errors"] for pair in pairs)
    return {"holds": middle(shares) >= 0.97 and errors == 0, "ratio": round(middle(shares), 4), "ratios": [round(one, 4) for one in shares], "of raw rates": raw, "one": pairs[0]}


def evaluation():
    free, held = part("evaluate", "free"), part("evaluate", "full", "14GiB")
    good = "loss" in held and held["loss"] == free.get("loss") and free["peak"] >= 1.5 * CARD * GIB
    return {"holds": good, "free": free, "held": held}


def small():
    plain, answered = part("train", 16, "full", "256MiB"), part("guarded", 16, "256MiB", 4)
    good = "OutOfMemoryError" in str(plain.get("failed")) and answered.get("errors", 0) > 0 and answered["schedule"][-1][1] <= 8
    return {"holds": good, "plain": str(plain.get("failed"))[-160:], "guard": answered}


def of_streams():
    found = part("streams")
    good = found.get("both served") and found.get("third") == "refused" and found.get("small on the device") and found.get("moved")
    return {"holds": bool(good), **found}


def of_line():
    found = part("line")
    return {"holds": "driver" in found and found["driver"] <= 12 * GIB and found["errors"] == 0 and "counts both together" in found["refused"], **found}


def of_nanogpt():
    found = part("nanogpt", timeout=240)
    return {"holds": found.get("code") == 0 and found.get("starts") == 1 and found.get("iterations", 0) >= 8, **found}


def of_trainer():
    found = part("trainer", timeout=400)
    good = "with" in found and found["without"]["code"] != 0 and found["with"]["code"] == 0 and found["with"]["starts"] == 1 and found["with"]["is at its end"]
    return {"holds": good, **found}


CHECKS = {"hold": hold, "speed": speed, "cost": cost, "begins": begins, "evaluation": evaluation, "small": small, "streams": of_streams, "line": of_line, "nanogpt": of_nanogpt, "trainer": of_trainer}


def main():
    if sys.argv[1:2] == ["part"]:
        print(json.dumps(PARTS[sys.argv[2]](*sys.argv[3:])))
        return 0
    bad = 0
    for name in sys.argv[1:] or [one for one in CHECKS if one not in ("nanogpt", "trainer")]:
        begun = time.perf_counter()
        try:
            result = CHECKS[name]()
        except Exception as error:
            result = {"holds": False, "error": f"{type(error).__name__}: {error}"[:600]}
        bad += not result["holds"]
        print(json.dumps({"check": name, **result, "seconds": round(time.perf_counter() - begun, 1)}), flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
