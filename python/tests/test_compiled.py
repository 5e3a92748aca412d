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
from lowtide._compiled import Programs
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


@pytest.fixture(scope="module", autouse=True)
def own_programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Programs that others compiled for several threads would be found, and their sums have no order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


BATCH = 8


class Compiled:
    """One model that is compiled once; what every run changes is put back."""

    def __init__(self) -> None:
        torch._dynamo.reset()
        torch.manual_seed(0)
        self.model = models.Gpt()
        self.compiled = torch.compile(self.model)
        self.state = {name: value.clone() for name, value in self.model.state_dict().items()}

    def guard(self, **more: Any) -> lowtide.Guard:
        torch.manual_seed(1)
        self.model.load_state_dict(self.state)
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        return lowtide.Guard(self.compiled, optimizer, clip=1.0, **more)

    def step(self, guard: lowtide.Guard, number: int, fails: int = 0) -> None:
        left = [fails]

        def closure(part: models.Pair) -> torch.Tensor:
            loss = models.loss_of(self.compiled, part)
            if left[0]:
                left[0] -= 1
                raise torch.OutOfMemoryError(MESSAGE)
            return loss

        guard.step(models.tokens(BATCH, number), closure, count=models.counted)


@pytest.fixture(scope="module")
def made(own_programs: None) -> Compiled:
    return Compiled()


def trained(made: Compiled, at: int | None) -> tuple[lowtide.Guard, dict[str, Any], int]:
    guard = made.guard()
    made.step(guard, 0)
    with failing_allocation(at) as seen:
        made.step(guard, 1)
    made.step(guard, 2)
    state = {name: value.clone() for name, value in made.model.state_dict().items()}
    return guard, {**state, "random": torch.get_rng_state()}, seen[0]


def test_every_allocation_of_a_compiled_program_may_fail(made: Compiled, failures: int) -> None:
    guard, clean, allocations = trained(made, None)
    assert allocations > 10, "forward and backward allocate"
    for at in range(1, allocations + 1, max(1, 12 * allocations // failures)):
        guard, state, _ = trained(made, at)
        assert guard.errors == 1
        assert guard.schedule() == [(0, lowtide.Way(BATCH))]
        assert not runs.differences(state, clean), f"allocation {at} of {allocations}"


def test_pieces_share_one_program(made: Compiled) -> None:
    guard = made.guard(climb_after=0, recompute=False, offload=False)
    made.step(guard, 0)
    compiled = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for number in range(1, 4):
        made.step(guard, number, fails=2)
    made.step(guard, 4)
    assert guard.schedule() == [
        (0, lowtide.Way(BATCH)), (1, lowtide.Way(4)), (2, lowtide.Way(2)), (3, lowtide.Way(1, eager=True)),
    ]  # fmt: skip
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == compiled + 1, "one more for pieces of all sizes"


def test_only_sizes_that_hold_count_against_their_number() -> None:
    programs = Programs(torch.compile(torch.nn.Linear(1, 1)))
    for size in (32, 24, 16, 12):
        assert not programs.committed(size)
    assert [size for size in (2, 4, 6, 8) if any(programs.committed(size) for _ in range(9))] == [2, 4, 6]


def test_a_size_that_holds_gets_a_program_of_its_own(made: Compiled) -> None:
    def trained(fails: int, **more: Any) -> tuple[lowtide.Guard, dict[str, Any]]:
        guard = made.guard(climb_after=0, **more)
        for number in range(8):
            made.step(guard, number, fails=fails if number == 0 else 0)
        return guard, {name: value.clone() for name, value in made.model.state_dict().items()}

    compiled = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    guard, state = trained(2)
    assert guard.schedule() == [(0, lowtide.Way(4)), (6, lowtide.Way(4, settled=True))]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= compiled + 3, "whole, any size, and this one"
    clean, expected = trained(0, schedule=guard.schedule())
    assert clean.errors == 0
    assert not runs.differences(state, expected)
    resumed = made.guard(climb_after=0)
    resumed.load_state_dict(guard.state_dict())
    made.step(resumed, 8)
    assert resumed.schedule()[-1] == (6, lowtide.Way(4, settled=True))
