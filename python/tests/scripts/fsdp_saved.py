"""A rank that saves and loads under FSDP2 again and again, with errors on some ranks.

    fsdp_saved.py CASES [VARIANT ...]      in the environment that torchrun gives a rank
    fsdp_saved.py write|read|fails FOLDER

All ranks run the same cases, half of them in saving and half in loading, so many of each variant. A run that saves with errors goes on
as one that does not save, and one that loads with errors ends with the same bits. ``write`` saves after two steps, ``read`` loads that on any number of ranks, and ``fails`` saves where a disk is full.
"""

from __future__ import annotations

import datetime
import faulthandler
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import fsdp_errors
import lowtide
import models
import runs
import torch
import torch.distributed as dist
from lowtide import _inject
from ranks import leave
from torch import nn
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

VARIANTS = {2: ["plain", "buffers", "mixed", "offload"], 4: ["plain", "hsdp", "tensor"]}


class Averages(nn.Module):
    """Averages of a normalisation differ on ranks, as each sees other samples."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(12, 24), nn.BatchNorm1d(24), nn.Linear(24, 4)
        self.drop = nn.Dropout(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(self.norm(torch.relu(self.body(x)))))


def sharded(variant: str) -> nn.Module:
    if variant != "buffers":
        return fsdp_errors.sharded(variant)
    model = Averages()
    fully_shard(model.body)
    return fully_shard(model)


def batch_of(variant: str, number: int) -> models.Pair:
    if variant != "buffers":
        return models.tokens(4, number)
    generator = torch.Generator().manual_seed(3000 + number)
    return models.Pair(torch.randn(4, 12, generator=generator), torch.randint(4, (4,), generator=generator))


def share_of(variant: str) -> int:
    """Which samples a rank has. Two ranks that divide tensors have the same: what they do not divide is then equal on both, and a
    checkpoint has it once."""
    return dist.get_rank() // 2 if variant == "tensor" else dist.get_rank()


class Run:
    """A model, its optimizer and its guard."""

    def __init__(self, variant: str) -> None:
        faulthandler.dump_traceback_later(fsdp_errors.PATIENCE, exit=True)
        torch.manual_seed(7)
        random.seed(7)
        self._variant = variant
        self.model = sharded(variant)
        torch.manual_seed(7 + share_of(variant))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, gamma=0.9)
        self.guard = lowtide.Guard(self.model, self.optimizer, scheduler=self.scheduler, rank_timeout=120)

    def step(self) -> None:
        batch = batch_of(self._variant, 10 * self.guard.steps + share_of(self._variant))
        self.guard.step(batch, lambda part: models.loss_of(self.model, part), count=models.counted)

    def state(self) -> dict[str, Any]:
        state = runs.everything(self.model, self.optimizer, None, self.scheduler, [])
        return {name: (one.to_local() if isinstance(one, DTensor) else one) for name, one in state.items()}

    def end(self) -> dict[str, Any]:
        """As it is after one more step."""
        self.step()
        self.guard.close()
        return self.state()


def saved(variant: str, path: Path, injector: Any) -> dict[str, Any]:
    run = Run(variant)
    run.step()
    run.step()
    with _inject._Mode(injector):
        run.guard.save(path)
    return run.end()


def loaded(variant: str, path: Path, injector: Any) -> dict[str, Any]:
    run = Run(variant)
    with _inject._Mode(injector):
        run.guard.load(path)
    assert run.guard.steps == 2
    return run.end()


def unsaved(variant: str) -> dict[str, Any]:
    run = Run(variant)
    run.step()
    run.step()
    return run.end()


def tried(variant: str, number: int, folder: Path) -> dict[str, Any]:
    world, rank = dist.get_world_size(), dist.get_rank()
    clean = unsaved(variant)
    errors, different, planned = 0, [], 0
    for call, work in (("save", saved), ("load", loaded)):
        path = folder / f"{variant}.pt"
        injector = fsdp_errors.Names(())
        work(variant, path, injector)
        names: list[Any] = [None] * world
        dist.all_gather_object(names, injector.names)
        places = fsdp_errors.places()
        for index, ranks in enumerate(places):
            each = (number // 2 + index) // len(places)
            for at, name in fsdp_errors.chosen(names[ranks[0]], each, f"{variant}-{call}-{ranks}", index):
                numbers = (at,) if (at + index) % 2 else (at, at + 3)
                case = f"{name} {numbers} in {call} on ranks {ranks}"
                print(f"{variant} {case}", flush=True)  # what a hang was in
                injector = fsdp_errors.Names(numbers if rank in ranks else ())
                wrong = runs.differences(work(variant, path, injector), clean)
                planned += 1
                errors += len(injector.raised)
                if rank == ranks[0] and not injector.raised:
                    different.append(f"{case} was not reached")
                if wrong:
                    different.append(f"after {case}: {sorted(wrong)[:4]}")
                dist.barrier()
                names_there = sorted(one.name for one in folder.glob(f"{variant}.pt*"))
                if len(names_there) != 2:
                    different.append(f"after {case}: {names_there}")
                dist.barrier()
    return {"cases": planned, "errors": errors, "different": different}


def write(folder: str) -> Any:
    run = Run("plain")
    run.step()
    run.step()
    run.guard.save(Path(folder) / "saved.pt")
    return runs.fingerprints(run.model, run.optimizer)


def read(folder: str) -> Any:
    run = Run("plain")
    run.guard.load(Path(folder) / "saved.pt")
    found = runs.fingerprints(run.model, run.optimizer)
    run.step()
    return found


def fails(folder: str) -> Any:
    """The second rank cannot write; then the first one cannot read; then all can."""
    said = []
    run = Run("plain")
    run.step()
    path = Path(folder) / "fails.pt"
    run.guard.save(path)
    run.step()
    inner = FileSystemWriter.write_data

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    if dist.get_rank() == 1:
        FileSystemWriter.write_data = full  # type: ignore[method-assign]
    try:
        run.guard.save(path)
    except lowtide.LowtideError as error:
        said.append(str(error))
    FileSystemWriter.write_data = inner  # type: ignore[method-assign]
    dist.barrier()
    try:
        run.guard.load(path if dist.get_rank() else path.with_name("other.pt"))
    except lowtide.LowtideError as error:
        said.append(str(error).replace(folder, ""))
    run.guard.load(path)
    said.append(run.guard.steps)
    run.step()
    return said


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=fsdp_errors.PATIENCE))
    if not sys.argv[1].isdigit():
        print(json.dumps(globals()[sys.argv[1]](sys.argv[2])))
        return
    number, variants = int(sys.argv[1]), sys.argv[2:] or VARIANTS[dist.get_world_size()]
    with tempfile.TemporaryDirectory() as own:
        shared = [own]
        dist.broadcast_object_list(shared)
        found = {variant: tried(variant, number, Path(shared[0])) for variant in variants}
        dist.barrier()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
    leave()
