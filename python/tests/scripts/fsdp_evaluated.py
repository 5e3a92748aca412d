"""A rank that evaluates under FSDP2 again and again, with errors on some ranks.

    fsdp_evaluated.py CASES [VARIANT ...]      in the environment that torchrun gives a rank

All ranks run the same cases, so many of each variant. The loss must be, bit for bit, the one that the model gives without a guard in
the pieces that were computed last; and the training that goes on, that of a run without an evaluation.
"""

from __future__ import annotations

import datetime
import faulthandler
import json
import random
import sys
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
from torch.distributed.tensor import DTensor

BATCH = 4
VARIANTS = {2: ["plain", "mixed", "whole", "recompute", "offload", "foreign"], 4: ["plain", "hsdp", "tensor"]}


def batches(variant: str) -> list[models.Pair]:
    """More and larger ones on some ranks than on others. Ranks that compute one model in parts have the same."""
    rank = dist.get_rank() // 2 if variant == "tensor" else dist.get_rank()
    return [models.tokens(BATCH - (rank + number) % 2, 100 + 10 * number + rank) for number in range(2 + rank % 2)]


class Run:
    """Two steps, and between them an evaluation where there is an injector. All operations of it are counted, and some may fail."""

    def __init__(self, variant: str) -> None:
        self._variant = variant
        # The sizes of the parts of each batch that were computed last, by the batch.
        self.parts: list[list[int]] = []

    def train(self, injector: Any = None) -> tuple[dict[str, Any], float | None, float | None]:
        faulthandler.dump_traceback_later(fsdp_errors.PATIENCE, exit=True)
        torch.manual_seed(7)
        random.seed(7)
        model = fsdp_errors.sharded(self._variant)
        torch.manual_seed(7 + dist.get_rank())
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
        guard = lowtide.Guard(model, optimizer, scheduler=scheduler)
        losses = [self._step(guard, model, 0)]
        loss = expected = None
        if injector is not None:
            loss = self._evaluate(guard, model, injector)
            assert model.training
            expected = self._expected(model)
        losses.append(self._step(guard, model, 1))
        guard.close()
        state = runs.everything(model, optimizer, None, scheduler, losses)
        local = {name: one.to_local() if isinstance(one, DTensor) else one for name, one in state.items()}
        return local, loss, expected

    def _step(self, guard: lowtide.Guard, model: Any, number: int) -> torch.Tensor:
        batch = models.tokens(BATCH, 10 * number + dist.get_rank())
        return guard.step(batch, lambda part: self._loss(model, part), count=models.counted)

    def _loss(self, model: Any, part: models.Pair) -> torch.Tensor:
        loss = models.loss_of(model, part)
        if self._variant == "foreign":
            shared = loss.detach().clone()
            dist.all_reduce(shared)
            loss = loss + 0.0 * shared
        return loss

    def _evaluate(self, guard: lowtide.Guard, model: Any, injector: Any) -> float:
        self.parts = []
        mine = batches(self._variant)

        def each() -> Any:
            for batch in mine:
                self.parts.append([])
                yield batch
            self.parts.append([])  # of what is computed for the others' sake

        def closure(part: models.Pair) -> torch.Tensor:
            # Before anything of it can fail: an attempt that failed was not the last.
            sizes = self.parts[-1]
            sizes.append(len(part.x))
            return self._loss(model, part)

        fsdp_errors.Storage.injector = injector
        with _inject._Mode(injector):
            loss = guard.evaluate(each(), closure, count=models.counted)
        fsdp_errors.Storage.injector = None
        return loss

    def _expected(self, model: Any) -> float:
        """The same without a guard, in the pieces of the last attempts."""
        mine = batches(self._variant)
        sizes = [_last(parts, len(batch.x)) for parts, batch in zip(self.parts, mine)]
        every: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(every, [len(one) for one in sizes])
        total, weight = 0.0, 0
        model.eval()
        with torch.no_grad():
            for number in range(max(map(len, every))):
                pieces = max(one[number] if number < len(one) else 0 for one in every)
                for index in range(pieces):
                    if number < len(sizes) and index < len(sizes[number]):
                        start = sum(sizes[number][:index])
                        stop = start + sizes[number][index]
                        part = models.Pair(mine[number].x[start:stop], mine[number].y[start:stop])
                        counted = int(models.counted(part))
                        total, weight = total + float(self._loss(model, part)) * counted, weight + counted
                    else:
                        self._loss(model, models.Pair(mine[0].x[:1], mine[0].y[:1]))
        model.train()
        return total / weight


def _last(parts: list[int], samples: int) -> list[int]:
    """The sizes of the last attempt, as far as they are parts of the batch."""
    found: list[int] = []
    for size in reversed(parts):
        if sum(found) == samples:
            break
        found.insert(0, size)
    return found


def plan(variant: str, number: int) -> list[tuple[tuple[int, ...], tuple[int, ...], str]]:
    """On each rank, and on two at once."""
    world = dist.get_world_size()
    injector = fsdp_errors.Names(())
    Run(variant).train(fsdp_errors.Names(()))
    Run(variant).train(injector)
    names: list[Any] = [None] * world
    dist.all_gather_object(names, injector.names)
    places = fsdp_errors.places()
    cases = []
    for index, ranks in enumerate(places):
        each = (number + index) // len(places)
        for at, name in fsdp_errors.chosen(names[ranks[0]], each, f"{variant}-{ranks}", index):
            # The first error is answered by cleaning, those in the retries by smaller pieces.
            numbers = [(at,), (at, at + 5), (at, at + 5, at + 45)][(at + index) % 3]
            cases.append((ranks, numbers, name))
    return cases


def tried(variant: str, number: int) -> dict[str, Any]:
    clean = Run(variant).train()[0]
    errors, different, sizes = 0, [], set()
    planned = plan(variant, number)
    for ranks, at, name in planned:
        case = f"{name} {at} on ranks {ranks}"
        print(f"{variant} {case}", flush=True)  # what a hang was in
        run, injector = Run(variant), fsdp_errors.Names(at if dist.get_rank() in ranks else ())
        state, loss, expected = run.train(injector)
        errors += len(injector.raised)
        sizes |= {size for parts in run.parts for size in parts}
        if dist.get_rank() == ranks[0] and not injector.raised:
            different.append(f"{case} was not reached")
        if loss != expected:
            different.append(f"after {case}: a loss of {loss!r}, not {expected!r}")
        wrong = runs.differences(state, clean)
        if wrong:
            different.append(f"after {case}: {sorted(wrong)[:4]}")
    return {"cases": len(planned), "errors": errors, "different": different, "sizes": sorted(sizes)}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=fsdp_errors.PATIENCE))
    number, variants = int(sys.argv[1]), sys.argv[2:] or VARIANTS[dist.get_world_size()]
    fsdp_errors.Storage.install()
    found = {variant: tried(variant, number) for variant in variants}
    dist.barrier()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
    leave()
