"""Compiled models: errors in the allocations of the compiled program, and no program for every size."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import lowtide
import models
import pytest
import runs
import torch
from lowtide._inject import MESSAGE

# Sums of several threads have no order: these bits can only be compared where a compiled program has one.
pytestmark = pytest.mark.skipif(os.environ.get("OMP_NUM_THREADS") != "1", reason="needs OMP_NUM_THREADS=1")


@contextlib.contextmanager
def failing_allocation(at: int | None) -> Iterator[list[int]]:
    """Fails one allocation of the programs that inductor has made; gives the number of those it saw."""
    from torch._inductor.codecache import PyCodeCache

    real = torch._C._dynamo.guards._empty_strided_cpu
    seen = [0]

    def allocate(*args: Any) -> torch.Tensor:
        seen[0] += 1
        if seen[0] == at:
            raise torch.OutOfMemoryError(MESSAGE)
        return real(*args)

    modules = [one for one in PyCodeCache.modules if hasattr(one, "empty_strided_cpu")]
    assert modules, "nothing was compiled"
    for module in modules:
        module.empty_strided_cpu = allocate
    try:
        yield seen
    finally:
        for module in modules:
            module.empty_strided_cpu = real


def trained(schedule: Any, at: int | None) -> tuple[lowtide.Guard, dict[str, Any], int]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = models.Gpt()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    guard = lowtide.Guard(compiled, optimizer, schedule=schedule, clip=1.0)

    def step(number: int) -> None:
        guard.step(models.tokens(6, number), lambda part: models.loss_of(compiled, part), count=models.counted)

    step(0)
    with failing_allocation(at) as seen:
        step(1)
    step(2)
    return guard, {**model.state_dict(), "random": torch.get_rng_state()}, seen[0]


def test_every_allocation_of_a_compiled_program_may_fail(failures: int) -> None:
    guard, clean, allocations = trained(None, None)
    assert allocations > 10, "forward and backward allocate"
    for at in range(1, allocations + 1, max(1, 16 * allocations // failures)):
        guard, state, _ = trained(None, at)
        assert guard.errors == 1
        assert guard.schedule() == [(0, lowtide.Way(6))]
        assert not runs.differences(state, clean), f"allocation {at} of {allocations}"


def test_pieces_share_one_program() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    model = models.Gpt()
    compiled = torch.compile(model)
    guard = lowtide.Guard(
        compiled, torch.optim.AdamW(model.parameters()), climb_after=0, recompute=False, offload=False
    )
    fails = [0]

    def closure(part: models.Pair) -> torch.Tensor:
        loss = models.loss_of(compiled, part)
        if fails[0]:
            fails[0] -= 1
            raise torch.OutOfMemoryError(MESSAGE)
        return loss

    for number, times in enumerate((0, 2, 2, 2, 0)):
        fails[0] = times
        guard.step(models.tokens(16, number), closure)
    assert [way.micro_batch for _, way in guard.schedule()] == [16, 8, 4, 2]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2, "one for whole batches, one for all pieces"
    fails[0] = 2
    guard.step(models.tokens(16, 9), closure)
    assert guard.schedule()[-1][1] == lowtide.Way(1, eager=True)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2
