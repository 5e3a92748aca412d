"""A rank that does one of several things, by its first argument; prints what the test compares, as JSON."""

from __future__ import annotations

import atexit
import contextlib
import datetime
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parent.parent))
import lowtide  # noqa: E402
import models  # noqa: E402
import ranks  # noqa: E402
from lowtide import _ranks  # noqa: E402

STEPS = 6


def made(**more: Any) -> tuple[Any, lowtide.Guard]:
    torch.manual_seed(3)
    model = DistributedDataParallel(more.pop("model", None) or models.Gpt())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(20 + dist.get_rank())
    return model, lowtide.Guard(model, optimizer, rank_timeout=more.pop("rank_timeout", 30), **more)


def stepped(model: Any, guard: lowtide.Guard, batch: models.Pair) -> torch.Tensor:
    return guard.step(batch, lambda part: models.loss_of(model, part), count=models.counted)


def total(model: Any) -> float:
    return sum(one.detach().double().abs().sum().item() for one in model.parameters())


def uneven(micro_batch: str) -> Any:
    """Ranks with batches and targets of different numbers, and one with fewer samples than others have pieces."""
    model, guard = made(micro_batch=int(micro_batch))
    model.eval()  # no dropout, so that it is the same on any number of ranks
    sizes = [[6, 6, 2, 7], [6, 5, 6, 1]]
    for step in range(4):
        whole = models.tokens(sum(size[step] for size in sizes), step)
        start = sum(size[step] for size in sizes[: dist.get_rank()])
        stop = start + sizes[dist.get_rank()][step]
        stepped(model, guard, models.Pair(whole.x[start:stop], whole.y[start:stop]))
    return [one.flatten()[:8].tolist() for one in model.parameters()]


def checkpointed(folder: str, killed: str) -> Any:
    """Saves after every step; at the first start rank 1 kills itself in the fourth."""
    model, guard = made()
    path = Path(folder) / "checkpoint.pt"
    if path.exists():
        guard.load(path)
    for step in range(guard.steps, STEPS):
        if step == 3 and killed == "kill" and dist.get_rank() == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        stepped(model, guard, models.tokens(6, step * 2 + dist.get_rank()))
        guard.save(path)
        dist.barrier()
    end = {"steps": guard.steps, "total": total(model), "random": torch.rand(1).item()}
    (Path(folder) / f"end-{dist.get_rank()}.json").write_text(json.dumps(end))
    return None


def silent(how: str) -> Any:
    """Rank 1 ends in the second step, or stops."""
    model, guard = made(rank_timeout=4)
    stepped(model, guard, models.tokens(6, dist.get_rank()))
    if dist.get_rank() == 1:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)

        def fail() -> None:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

        guard._recovery.ranks.walk.walk = fail  # type: ignore[union-attr, method-assign]
        with lowtide.inject(at=40):
            stepped(model, guard, models.tokens(6, 2))
    stepped(model, guard, models.tokens(6, 3))
    return None


def told(folder: str) -> Any:
    """Memory runs out on rank 1; in every sixteenth step all ranks say what they hold."""
    model, guard = made(run=folder)
    with lowtide.inject(at=40) if dist.get_rank() == 1 else contextlib.nullcontext():
        stepped(model, guard, models.tokens(4, dist.get_rank()))
    for _ in range(15):
        stepped(model, guard, models.tokens(4, dist.get_rank()))
    return guard.report()


def overflowed() -> Any:
    """The reserve of rank 1 is used in both steps of the first size: the second is told when the answer to the first is given."""
    from test_reserve import Fake, too_large

    found = [too_large(), too_large(), None, None] if dist.get_rank() == 1 else []
    model, guard = made(micro_batch=4, reserve=Fake(found))
    for step in range(4):
        stepped(model, guard, models.tokens(4, step * 2 + dist.get_rank()))
    return [(at, way.micro_batch) for at, way in guard.schedule()]


def refused(folder: str, *things: str) -> Any:
    """What the guard says of things that it cannot hold."""
    return {what: refusal(what, Path(folder)) for what in things}


def refusal(what: str, folder: Path) -> Any:
    known = _ranks.KNOWN
    try:
        if what == "version":
            _ranks.KNOWN = ("1.0",)
            made()
        if what == "plain":
            model = models.Gpt()
            lowtide.Guard(model, torch.optim.SGD(model.parameters(), lr=1.0))
        if what == "hook":
            ddp = DistributedDataParallel(models.Gpt())
            ddp.register_comm_hook(None, odd_hook)
            lowtide.Guard(ddp, torch.optim.SGD(ddp.parameters(), lr=1.0))
        if what == "arguments":
            model, guard = made(micro_batch=2 + dist.get_rank())
            stepped(model, guard, models.tokens(6, 0))
        if what == "collective":
            model, guard = made()

            def closure(part: models.Pair) -> torch.Tensor:
                loss = models.loss_of(model, part)
                dist.all_reduce(loss.detach())
                return loss

            guard.step(models.tokens(6, 0), closure)
        if what == "order":
            model, guard = made()
            guard.save(folder / "order.pt") if dist.get_rank() == 0 else stepped(model, guard, models.tokens(6, 0))
        if what == "save":  # where the second rank's is to be, there is a folder
            (folder / "save.pt.rank1").mkdir(exist_ok=True)
            made()[1].save(folder / "save.pt")
        if what == "load":
            guard = made()[1]
            guard.save(folder / "load.pt")
            guard.load(folder / ("load.pt" if dist.get_rank() else "other.pt"))
    except lowtide.LowtideError as error:
        return str(error)
    finally:
        _ranks.KNOWN = known
    return None


def saved(folder: str) -> Any:
    """The second rank runs out of memory in saving, the first one in loading."""
    model, guard = made(model=models.Cnn())
    path = Path(folder) / "saved.pt"
    guard.step(models.pictures(6, dist.get_rank()), lambda part: models.loss_of(model, part))
    with lowtide.inject(at=1) if dist.get_rank() == 1 else contextlib.nullcontext():
        guard.save(path)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    numbers = torch.rand(2)
    guard.step(models.pictures(6, 7 + dist.get_rank()), lambda part: models.loss_of(model, part))
    with lowtide.inject(at=1) if dist.get_rank() == 0 else contextlib.nullcontext():
        guard.load(path)
    is_same = all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    is_random_same = torch.equal(torch.rand(2), numbers)
    return {"errors": guard.errors, "steps": guard.steps, "is_same": is_same, "is_random_same": is_random_same}


def odd_hook(state, bucket):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 (DDP reads annotations, and wants no texts)
    raise NotImplementedError


def evaluated() -> Any:
    """Each rank evaluates what it is given, and cuts it where its own memory runs out; training goes on as before."""
    model, guard = made(model=models.Cnn())
    losses = []
    for step in range(3):
        guard.step(models.pictures(6, step * 2 + dist.get_rank()), lambda part: models.loss_of(model, part))
        batches = [models.pictures(4, 90 + number) for number in range(1 + dist.get_rank())]
        failing = lowtide.inject(at=(5, 30)) if dist.get_rank() == 0 and step == 1 else contextlib.nullcontext()
        with failing:
            losses.append(guard.evaluate(batches, lambda part: models.loss_of(model, part)))
    return {"losses": losses, "total": total(model), "schedule": [way for _, way in guard.schedule()]}


def threads() -> int:
    """Threads of this process, besides those that compute."""
    names = [Path(f"/proc/self/task/{one}/comm").read_text().strip() for one in os.listdir("/proc/self/task")]
    return sum("gloo" in name for name in names) + sum(one.name == "lowtide-ranks" for one in threading.enumerate())


def ending(kind: str, how: str) -> None:
    """A script that ends as people's do. What is printed is what is left of the guard when torch's own end begins."""
    dist.barrier()
    while threads() < 2:  # those of the group of all ranks, which have no name at first
        time.sleep(0.01)
    before = threads()
    # Those that were registered first are called last.
    atexit.register(lambda: print(json.dumps({"before": before, "during": during, "after": threads()}), flush=True))
    torch.manual_seed(3)
    model: Any = models.Gpt(width=16)
    model = DistributedDataParallel(model) if kind == "ddp" else fully_shard(model)
    globals()["guard"] = guard = lowtide.Guard(model, torch.optim.SGD(model.parameters(), lr=0.1), rank_timeout=30)
    stepped(model, guard, models.tokens(4, dist.get_rank()))
    during = threads()
    if how == "closes":
        guard.close()
    if how != "ends":
        dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    if sys.argv[1] == "ending":
        sys.exit(ending(*sys.argv[2:]))
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
    ranks.leave()
