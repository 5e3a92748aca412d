"""A rank that trains under FSDP2 again and again, with errors on some ranks, and compares each run with one that met none.

    fsdp_errors.py CASES [VARIANT ...]      in the environment that torchrun gives a rank

All ranks run the same cases, so many of each variant. A rank prints for each variant how many there were, how many errors were
raised on it, and which cases ended with other bits than a clean run on the same schedule.
"""

from __future__ import annotations

import dataclasses
import datetime
import faulthandler
import itertools
import json
import random
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import lowtide
import models
import runs
import torch
import torch.distributed as dist
from lowtide import _inject
from ranks import leave
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_param
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

BATCH = 4
VARIANTS = {2: ["plain", "pieces", "mixed", "whole", "recompute", "offload", "foreign"], 4: ["hsdp", "tensor"]}
# Seconds after which a case is a hang.
PATIENCE = 300


class Names(_inject.Injector):
    """An injector that keeps the names of what it saw."""

    def __init__(self, at: Any) -> None:
        super().__init__(at)
        self.names: list[str] = []

    def see(self, name: str) -> None:
        before = self.count
        try:
            super().see(name)
        finally:
            if self.count > before:
                self.names.append(name)


class Storage:
    """FSDP2 takes the memory of gathered parameters without an operation of torch's: it is made one that can fail."""

    injector: Names | None = None

    @classmethod
    def install(cls) -> None:
        inner = _fsdp_param.alloc_storage

        def alloc_storage(tensor: torch.Tensor) -> None:
            if cls.injector is not None and tensor.untyped_storage().size() == 0:
                cls.injector.see("fsdp.alloc_storage")
            inner(tensor)

        _fsdp_param.alloc_storage = alloc_storage


@dataclasses.dataclass(frozen=True)
class Outcome:
    state: dict[str, Any]
    schedule: Any
    names: list[str]
    raised: list[tuple[int, str]]


def sharded(variant: str) -> torch.nn.Module:
    """A small model under ``fully_shard``."""
    options: dict[str, Any] = {}
    if variant == "hsdp":
        options["mesh"] = mesh_of("replicas", "shards")
    if variant == "mixed":
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    if variant == "whole":
        options["reshard_after_forward"] = False
    if variant == "offload":
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    model = models.Gpt(width=16)
    if variant == "tensor":
        mesh = mesh_of("data", "tensor")
        for block in model.blocks:
            parallelize_module(block, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        options["mesh"] = mesh["data"]
    for index, block in enumerate(model.blocks):
        if variant == "recompute":
            model.blocks[index] = checkpoint_wrapper(block)
        fully_shard(model.blocks[index], **options)
    return fully_shard(model, **options)


# Each has groups with threads of their own, which nobody ends: one for all cases.
MESHES: dict[tuple[str, ...], Any] = {}


def mesh_of(*names: str) -> Any:
    """All ranks in two dimensions of these names, the first of two."""
    if names not in MESHES:
        MESHES[names] = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=names)
    return MESHES[names]


def run(variant: str, steps: int, schedule: Any = None, at: tuple[int, ...] | None = None) -> Outcome:
    """Some steps. In the last but one, operations of these numbers fail on this rank; none where there are no numbers."""
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    torch.manual_seed(7)
    random.seed(7)
    model = sharded(variant)
    torch.manual_seed(7 + dist.get_rank())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
    # Of parameters on several meshes torch has no norm.
    clip = None if variant == "tensor" else 1.0
    # Replicas are reduced after the last of several pieces alone.
    size = BATCH // 2 if variant in ("pieces", "hsdp") else None
    guard = lowtide.Guard(model, optimizer, clip=clip, micro_batch=size, scheduler=scheduler, schedule=schedule)
    injector = Names(at or ())

    def closure(part: models.Pair) -> torch.Tensor:
        loss = models.loss_of(model, part)
        if variant == "foreign":  # a collective that is not FSDP2's, and that changes nothing
            shared = loss.detach().clone()
            dist.all_reduce(shared)
            loss = loss + 0.0 * shared
        return loss

    losses = []
    for number in range(steps):
        batch = models.tokens(BATCH, 10 * number + dist.get_rank())
        if number == steps - 2 and at is not None:
            Storage.injector = injector
            with _inject._Mode(injector):
                losses.append(guard.step(batch, closure, count=models.counted))
            Storage.injector = None
        else:
            losses.append(guard.step(batch, closure, count=models.counted))
    guard.close()
    state = runs.everything(model, optimizer, None, scheduler, losses)
    local = {name: one.to_local() if isinstance(one, DTensor) else one for name, one in state.items()}
    return Outcome(local, guard.schedule(), injector.names, injector.raised)


class Cases:
    """The errors of one variant, and what came of them."""

    def __init__(self, variant: str) -> None:
        self._variant = variant
        self._clean: dict[str, dict[str, Any]] = {}
        self.errors = 0
        self.different: list[str] = []

    def check(self, step: int, ranks: tuple[int, ...], at: tuple[int, ...], name: str) -> None:
        steps, is_failing = step + 2, dist.get_rank() in ranks
        outcome = run(self._variant, steps, at=at if is_failing else ())
        key = f"{steps} {outcome.schedule}"
        if key not in self._clean:
            self._clean[key] = run(self._variant, steps, schedule=outcome.schedule).state
        self.errors += len(outcome.raised)
        case = f"{name} {at} in step {step} on ranks {ranks}"
        if is_failing and not outcome.raised:
            self.different.append(f"{case} was not reached")
        wrong = runs.differences(outcome.state, self._clean[key])
        if wrong:
            self.different.append(f"after {case}: {sorted(wrong)[:4]}")


def chosen(names: list[str], number: int, seed: str, turn: int) -> list[tuple[int, str]]:
    """So many operations: half of them collectives, a quarter FSDP2's own copies and allocations, a quarter all others."""
    kinds: dict[str, list[tuple[int, str]]] = {"c10d": [], "fsdp": [], "": []}
    for one in enumerate(names, 1):
        kinds[next(kind for kind in kinds if one[1].startswith(kind))].append(one)
    for kind in kinds.values():
        random.Random(seed).shuffle(kind)
    turns = itertools.islice(itertools.cycle(["c10d", "", "c10d", "fsdp"]), turn, None)
    taken: list[tuple[int, str]] = []
    while len(taken) < number and any(kinds.values()):
        kind = kinds[next(turns)]
        if kind:
            taken.append(kind.pop())
    return sorted(taken)


def places() -> list[tuple[int, ...]]:
    """The ranks that fail: each one, and two at once. Where there are four, the two in the middle come first."""
    pairs = {2: [(0, 1)], 4: [(1, 2), (0, 3), (2, 3), (0, 1)]}[dist.get_world_size()]
    alone = [(rank,) for rank in range(dist.get_world_size())]
    return [*alone, *pairs]


def plan(variant: str, number: int) -> list[tuple[int, tuple[int, ...], tuple[int, ...], str]]:
    """In the first step and in a later one."""
    both = [(step, ranks) for ranks in places() for step in (0, 1)]
    # Where there are fewer cases than places, other variants have the others.
    start = VARIANTS[dist.get_world_size()].index(variant) * number % len(both)
    cases = []
    run(variant, 2, at=())  # DTensor learns its operations by others, the first time
    names = {step: run(variant, step + 2, at=()).names for step in (0, 1)}
    for index, (step, ranks) in enumerate(both[start:] + both[:start]):
        each = (number + len(both) - 1 - index) // len(both)
        for at, name in chosen(names[step], each, f"{variant}-{step}-{ranks}", index):
            # The first error is answered by cleaning, one in the retry by smaller pieces.
            numbers = (at,) if (at + index) % 2 else (at, 2 * at)
            cases.append((step, ranks, numbers, name))
    # Ranks do not run quite the same operations, and must agree on the cases.
    shared = [cases]
    dist.broadcast_object_list(shared)
    return shared[0]


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=PATIENCE))
    number = int(sys.argv[1])
    variants = sys.argv[2:] or VARIANTS[dist.get_world_size()]
    Storage.install()
    found = {}
    for variant in variants:
        cases = Cases(variant)
        planned = plan(variant, number)
        for case in planned:
            print(f"{variant} {case}", flush=True)  # what a hang was in
            cases.check(*case)
        failed = sorted({case[1] for case in planned})
        found[variant] = {"cases": len(planned), "errors": cases.errors, "different": cases.different, "ranks": failed}
    dist.barrier()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
    leave()
