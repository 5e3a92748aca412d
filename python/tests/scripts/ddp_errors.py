"""A rank that trains in DDP again and again, with errors on some ranks, and compares each run with one that met none.

    ddp_errors.py CASES [VARIANT ...]       in the environment that torchrun gives a rank

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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).parent.parent))
import lowtide  # noqa: E402
import models  # noqa: E402
import ranks  # noqa: E402
import runs  # noqa: E402

STEPS = 3
# Small enough that even these models are sent in several buckets.
BUCKET = 0.001


class TwoHeads(nn.Module):
    """One of the heads has no gradient in a step, and not always the same on all ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm, self.drop = nn.Linear(12, 24), nn.BatchNorm1d(24), nn.Dropout(0.2)
        self.heads = nn.ModuleList(nn.Linear(24, 4) for _ in range(3))
        self.never = nn.Linear(24, 4)

    def forward(self, x: torch.Tensor, chosen: int) -> torch.Tensor:
        return self.heads[chosen](self.drop(self.norm(torch.relu(self.body(x)))))


class Shared(nn.Module):
    """A layer that is used twice, and a parameter that is never used: what static_graph is for."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again, self.last = nn.Linear(12, 24), nn.Linear(24, 24), nn.Linear(24, 4)
        self.norm, self.drop = nn.BatchNorm1d(24), nn.Dropout(0.2)
        self.never = nn.Parameter(torch.zeros(30))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.again(self.drop(self.norm(self.first(x)))))
        return self.last(torch.relu(self.again(x)))


def vectors(samples: int, number: int) -> models.Pair:
    generator = torch.Generator().manual_seed(3000 + number)
    return models.Pair(torch.randn(samples, 12, generator=generator), torch.randint(4, (samples,), generator=generator))


@dataclasses.dataclass(frozen=True)
class Variant:
    model: Callable[[], nn.Module]
    batch: Callable[[int, int], models.Pair]
    ddp: dict[str, Any] = dataclasses.field(default_factory=dict)
    guard: dict[str, Any] = dataclasses.field(default_factory=dict)
    optimizer: str = "adamw"
    has_scaler: bool = False
    hook: Any = None


VARIANTS = {
    "buffers": Variant(models.Cnn, models.pictures),
    "find_unused": Variant(TwoHeads, vectors, {"find_unused_parameters": True}),
    "static_graph": Variant(Shared, vectors, {"static_graph": True}),
    "accumulation": Variant(models.Gpt, models.tokens, guard={"micro_batch": 2}),
    "fp16": Variant(models.Gpt, models.tokens, has_scaler=True),
    "bucket_view": Variant(models.Cnn, models.pictures, {"gradient_as_bucket_view": True}, optimizer="sgd"),
    "hook": Variant(models.Cnn, models.pictures, {"broadcast_buffers": False}, hook=fp16_compress_hook),
}

Case = tuple[int, list[tuple[int, int]]]


class Names(TorchDispatchMode):
    """The operations of a step, as `lowtide.inject` counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from lowtide._quiet import is_quiet

        if not is_quiet():
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


class Rank:
    def __init__(self, name: str) -> None:
        self.name, self.variant = name, VARIANTS[name]
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self._clean: dict[str, dict[str, Any]] = {}

    def train(self, schedule: Any, case: Case | None = None, modes: dict[int, Any] | None = None) -> Any:
        """Some steps. In one of them the operations of these numbers fail, on these ranks."""
        variant = self.variant
        torch.manual_seed(1)
        model = DistributedDataParallel(variant.model(), bucket_cap_mb=BUCKET, **variant.ddp)
        if variant.hook is not None:
            model.register_comm_hook(None, variant.hook)
        torch.manual_seed(10 + self.rank)
        random.seed(10 + self.rank)
        optimizer = runs.optimizers()[variant.optimizer](model.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10) if variant.has_scaler else None
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
        guard = lowtide.Guard(
            model, optimizer, clip=1.0, scaler=scaler, scheduler=scheduler, schedule=schedule, rank_timeout=60,
            climb_after=0, **variant.guard,
        )  # fmt: skip
        losses, raised = [], []
        for step in range(STEPS):
            batch = variant.batch(6, step * self.world + self.rank)
            at = [number for rank, number in case[1] if rank == self.rank] if case and case[0] == step else []
            with (modes or {}).get(step, lowtide.inject(at=at)) as seen:
                losses.append(guard.step(batch, self._closure(model, step), count=models.counted))
            raised += getattr(seen, "raised", [])
        state = runs.everything(model, optimizer, scaler, scheduler, losses)
        return state, guard.schedule(), raised, guard

    def _closure(self, model: Any, step: int) -> Callable[[models.Pair], torch.Tensor]:
        def closure(part: models.Pair) -> torch.Tensor:
            if self.variant.model is TwoHeads:
                logits = model(part.x, (step + self.rank) % 3)
                return nn.functional.cross_entropy(logits, part.y)
            if self.variant.has_scaler:
                with torch.autocast("cpu", dtype=torch.float16):
                    return models.loss_of(model, part)
            return models.loss_of(model, part)

        return closure

    def clean(self, schedule: Any) -> dict[str, Any]:
        key = repr(schedule)
        if key not in self._clean:
            self._clean[key] = self.train(schedule)[0]
        return self._clean[key]

    def cases(self, number: int) -> list[Case]:
        """Every collective of each step on each rank, and operations that are spread evenly over steps and ranks."""
        modes = {step: Names() for step in range(STEPS)}
        self.train(None, modes=modes)
        names: list[Any] = [None] * self.world
        dist.all_gather_object(names, [modes[step].names for step in range(STEPS)])
        collectives = [
            (step, [(rank, at)])
            for step in range(STEPS)
            for rank in range(self.world)
            for at, name in enumerate(names[rank][step], 1)
            if name.startswith("c10d")
        ]
        every = [
            (step, [(rank, at)])
            for step in range(STEPS)
            for rank in range(self.world)
            for at in range(1, len(names[rank][step]) + 1)
        ]
        chance = random.Random(self.name)
        chosen = chance.sample(collectives, min(len(collectives), number // 3))
        singles = number - number // 4 - len(chosen)
        chosen += [every[int((index + chance.random()) * len(every) / singles)] for index in range(singles)]
        pairs = itertools.cycle({2: [(0, 1)], 4: [(1, 2), (0, 3), (0, 1), (2, 3)]}[self.world])
        while len(chosen) < number:
            step, first = chance.choice(every)
            others = [one for at, one in every if at == step and one[0][0] != first[0][0]]
            if len(chosen) % 2:  # on two ranks at once
                of_step = [one[0] for at, one in every if at == step]
                chosen.append(
                    (step, [chance.choice([one for one in of_step if one[0] == rank]) for rank in next(pairs)])
                )
                continue
            # And once more when it is tried again, after which the batch is computed in smaller pieces.
            (rank, at), (_, later) = first[0], chance.choice(others)[0]
            chosen.append((step, [(rank, at), (rank, at + later)]))
        return chosen

    def check(self, case: Case) -> tuple[int, list[str]]:
        """Errors that were raised here, and what is not as in a clean run."""
        state, schedule, raised, _ = self.train(None, case)
        return len(raised), runs.differences(state, self.clean(schedule))


def main() -> None:
    number, variants = int(sys.argv[1]), sys.argv[2:] or list(VARIANTS)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    print(json.dumps({variant: tried(Rank(variant), number) for variant in variants}))


def tried(rank: Rank, number: int) -> dict[str, Any]:
    raised, different = 0, []
    cases = rank.cases(number)
    for case in cases:
        faulthandler.dump_traceback_later(100, exit=True)
        errors, names = rank.check(case)
        raised += errors
        if names:
            different.append([case, sorted(names)[:4]])
    faulthandler.cancel_dump_traceback_later()
    dist.barrier()
    failed = sorted({tuple(sorted({one for one, _ in failing})) for _, failing in cases})
    return {"cases": len(cases), "errors": raised, "different": different, "ranks": failed}


if __name__ == "__main__":
    main()
    ranks.leave()
