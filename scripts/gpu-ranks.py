"""Checks of several ranks that need a GPU: gloo ranks that share one card, real out-of-memory errors on one of them, and NCCL with one.

    python3 scripts/gpu-ranks.py [NAME...]      ddp, fsdp, fsdp-mixed, ddp-reserve, fsdp-reserve, nccl-ddp, nccl-fsdp, cost,
                                                engine (the programs lowtide and lowtide-engine and gpt-tiny.yaml are beside this file)

NCCL refuses two ranks on one card, and gloo takes tensors of a GPU. Each rank is a process. Prints one JSON object for each
check; exit code 1 where one does not hold.
"""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import lowtide
import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

# What the last rank may take of the card. The others have all of it.
LIMIT = "7GiB"
RESERVE = "6GiB"
BATCH = 12
STEPS = 7
# The message of a step may cost this part of it.
MOST = 0.005

spec = importlib.util.spec_from_file_location("gpu_python", Path(__file__).with_name("gpu-python.py"))
models = importlib.util.module_from_spec(spec)
spec.loader.exec_module(models)


def wrapped(kind):
    """A GPT of half the depth of GPT-2, as one rank of several."""
    torch.manual_seed(1)
    model = models.Gpt2(depth=6).to("cuda")
    if kind == "ddp":
        return DistributedDataParallel(model)
    policy = {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)} if kind == "fsdp-mixed" else {}
    for block in model.blocks:
        fully_shard(block, **policy)
    return fully_shard(model, **policy)


def trained(kind, limit, schedule, reserve=None):
    models.cleared()
    model = wrapped(kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    torch.manual_seed(10 + dist.get_rank())
    guard = lowtide.Guard(model, optimizer, line=limit, clip=1.0, schedule=schedule, climb_after=2, reserve=reserve, rank_timeout=60)
    losses = []
    for number in range(STEPS):
        batch = models.tokens(BATCH, 2 * number + dist.get_rank())
        losses.append(guard.step(batch, lambda part: models.loss_of(model, part)).item())
    state = [local(value).detach().cpu() for value in model.state_dict().values()]
    moments = [local(value).cpu() for one in optimizer.state.values() for value in one.values()]
    found = guard.errors, guard.schedule(), guard.report(), state + moments, losses
    guard.close()
    model = guard = optimizer = None
    return found


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def hold(kind, reserve=None):
    """With a limit for the last rank, then without on the same schedule: bit for bit the same on every rank."""
    torch.use_deterministic_algorithms(True)
    is_last = dist.get_rank() == dist.get_world_size() - 1
    begun = time.perf_counter()
    errors, schedule, report, held, losses = trained(kind, LIMIT if is_last else None, None, reserve)
    ooms = torch.cuda.memory_stats()["num_ooms"]
    clean_errors, _, _, clean, same = trained(kind, None, schedule)
    return {
        "errors": errors, "clean": clean_errors, "different": sum(not torch.equal(*both) for both in zip(held, clean)),
        "same losses": losses == same, "tensors": len(held), "micro-batches": [[at, way.micro_batch] for at, way in schedule],
        "ran out": ooms, "used the reserve": sum("of the reserve of" in line for line in report.splitlines()),
        "report": report.splitlines()[:8], "seconds": round(time.perf_counter() - begun, 1),
    }


def cost(pairs):
    """A step of the guard against a step of the bare loop, in turn, and the time in the message itself."""
    steps = {}
    for name in ("bare", "guard"):
        model = wrapped("ddp")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        guard = lowtide.Guard(model, optimizer, clip=1.0) if name == "guard" else None
        steps[name] = lambda batch, model=model, optimizer=optimizer, guard=guard: (
            guard.step(batch, lambda part: models.loss_of(model, part)) if guard else bare(model, optimizer, batch)
        )
    talked = timed_message()
    times = {name: [] for name in steps}
    batch = models.tokens(8, dist.get_rank())
    for number in range(int(pairs) + 4):
        for name in sorted(steps, reverse=bool(number % 2)):
            torch.cuda.synchronize()
            dist.barrier()
            begun = time.perf_counter()
            steps[name](batch)
            torch.cuda.synchronize()
            times[name].append(time.perf_counter() - begun)
        if number == 3:
            talked.clear()
            times = {name: [] for name in steps}
    step = middle(times["bare"])
    more = middle([one - other for one, other in zip(times["guard"], times["bare"])])
    said = [sum(several) for several in zip(talked[::2], talked[1::2])]
    return {"step ms": round(1e3 * step, 2), "more": round(more / step, 5), "message ms": round(1e3 * middle(said), 3), "message": round(middle(said) / step, 5)}


def bare(model, optimizer, batch):
    optimizer.zero_grad(set_to_none=True)
    models.loss_of(model, batch).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def timed_message():
    """The seconds that sending and waiting take, in turn."""
    from lowtide._ranks import _agreement

    seconds = []
    for owner, name in ((_agreement.Agreement, "send"), (_agreement.Message, "wait")):

        inner = getattr(owner, name)

        def timed(*arguments, inner=inner):
            begun = time.perf_counter()
            found = inner(*arguments)
            seconds.append(time.perf_counter() - begun)
            return found

        setattr(owner, name, timed)
    return seconds


def middle(values):
    return sorted(values)[len(values) // 2]


def rank(backend, name, *words):
    torch.cuda.set_device(0)
    dist.init_process_group(backend, device_id=torch.device("cuda", 0) if backend == "nccl" else None)
    found = {"hold": hold, "cost": cost}[name](*words)
    print("\n" + json.dumps(found), flush=True)
    dist.destroy_process_group()


def ranks(world, *words, timeout=200):
    """What each of so many ranks found."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    started = []
    for number in range(world):
        own = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = {**os.environ, "OMP_NUM_THREADS": "4", **{name: str(value) for name, value in own.items()}}
        command = [sys.executable, __file__, "rank", *words]
        started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    until, found = time.monotonic() + timeout, []
    for one in started:
        try:
            out, err = one.communicate(timeout=max(until - time.monotonic(), 1))
        except subprocess.TimeoutExpired:
            one.kill()
            out, err = one.communicate()
            err += "\nhung"
        lines = [line for line in out.splitlines() if line.startswith("{")]
        found.append(json.loads(lines[-1]) if one.returncode == 0 and lines else {"failed": err[-1500:]})
    return found


def same(found):
    return all(one.get("different") == 0 and one["clean"] == 0 and one["same losses"] for one in found)


def held(world, backend, kind):
    """Memory runs out on the last rank alone, and all go on."""
    found = ranks(world, backend, "hold", kind)
    good = same(found) and all(one["errors"] > 0 for one in found)
    return {"holds": good and all((one["ran out"] > 0) == (one is found[-1]) for one in found), "ranks": found}


def overflowed(kind):
    """The same with a reserve: no error, and nothing is repeated."""
    found = ranks(2, "gloo", "hold", kind, RESERVE)
    return {"holds": same(found) and all(one["errors"] == one["ran out"] == 0 for one in found) and found[-1]["used the reserve"] > 0, "ranks": found}


def costs():
    found = ranks(2, "gloo", "cost", "24")
    return {"holds": all("failed" not in one and one["message"] <= MOST for one in found), "ranks": found}


def engine():
    """`lowtide train --ranks 2` on one card: errors on demand on the second rank in each phase, and real ones under a limit, with CUDA graphs
    and without."""
    here, runs = Path(__file__).parent, Path(tempfile.mkdtemp())
    common = ["--ranks", "2", "--device", "cuda", "--deterministic", "--set", "train.steps=6", "--set", "model.dropout=0.1", "--set", "eval.every=3"]
    large = ["--set", "train.batch=8192", "--set", "train.micro_batch=4096", "--set", "model.n_embd=256", "--set", "model.block_size=128"]

    def train(name, *words):
        command = ["lowtide", "train", str(here / "gpt-tiny.yaml"), "--out", str(runs / name), *common, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            return {"code": done.returncode, "end": (done.stdout + done.stderr)[-900:]}
        summary = json.loads((runs / name / "summary.json").read_text())
        replays = "steps are replayed from" in (runs / name / "events.jsonl").read_text()
        return {"code": 0, "replays": replays, **{key: summary[key] for key in ("weights_sha256", "oom_errors", "oom_recovered", "samples_seen", "samples_lost", "micro_batch_final")}}

    found = {"whole": train("whole", "--set", "train.graphs=on"), "without": train("without", "--set", "train.graphs=off")}
    for phase in ("forward", "backward", "optimizer"):
        found[phase] = train(phase, "--inject-oom", f"step=3,phase={phase},rank=1")
    found["held"] = train("held", "--limit", "4GiB", *large)
    found["followed"] = train("followed", "--schedule-from", str(runs / "held"), *large)
    good = all(one["code"] == 0 for one in found.values())
    good = good and found["whole"]["replays"] and not found["without"]["replays"] and found["whole"]["weights_sha256"] == found["without"]["weights_sha256"]
    good = good and all(found[phase]["weights_sha256"] == found["whole"]["weights_sha256"] and found[phase]["oom_recovered"] == 1 for phase in ("forward", "backward", "optimizer"))
    good = good and found["held"]["oom_errors"] > 0 and found["followed"]["oom_errors"] == 0 and found["held"]["weights_sha256"] == found["followed"]["weights_sha256"]
    return {"holds": good, "runs": found}


CHECKS = {
    "ddp": lambda: held(2, "gloo", "ddp"),
    "fsdp": lambda: held(2, "gloo", "fsdp"),
    "fsdp-mixed": lambda: held(2, "gloo", "fsdp-mixed"),
    "ddp-reserve": lambda: overflowed("ddp"),
    "fsdp-reserve": lambda: overflowed("fsdp"),
    "nccl-ddp": lambda: held(1, "nccl", "ddp"),
    "nccl-fsdp": lambda: held(1, "nccl", "fsdp"),
    "cost": costs,
    "engine": engine,
}


def main():
    if sys.argv[1:2] == ["rank"]:
        rank(*sys.argv[2:])
        return 0
    bad = 0
    for name in sys.argv[1:] or list(CHECKS):
        result = CHECKS[name]()
        bad += not result["holds"]
        print(json.dumps({"check": name, **result}), flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
