"""The guard in a loop that is written with accelerate."""

from __future__ import annotations

from typing import Any

import lowtide
import models
import pytest
import runs
import torch

accelerate = pytest.importorskip("accelerate")
from lowtide.integrations.accelerate import guarded  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh_state() -> Any:
    """accelerate keeps one state in a process, which others of these tests have too."""
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def trained(fails: int, schedule: Any = None, **more: Any) -> tuple[lowtide.Guard, dict[str, Any]]:
    accelerator = accelerate.Accelerator(cpu=True, mixed_precision="bf16", **more)
    torch.manual_seed(2)
    model = models.Gpt()
    pairs = [models.tokens(1, number) for number in range(12)]
    data = torch.utils.data.DataLoader([(one.x[0], one.y[0]) for one in pairs], batch_size=6)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2), data)
    guard = guarded(accelerator, model, optimizer, clip=1.0, schedule=schedule)
    left = [fails]

    def closure(part: Any) -> torch.Tensor:
        loss = models.loss_of(model, models.Pair(*part))
        if left[0]:
            left[0] -= 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return loss

    for batch in loader:
        guard.step(batch, closure, count=lambda part: (part[1] != -100).sum())
    return guard, {**accelerator.unwrap_model(model).state_dict(), "random": torch.get_rng_state()}


def test_errors_end_with_the_weights_of_a_run_on_the_same_schedule() -> None:
    guard, state = trained(2)
    assert (guard.errors, guard.schedule()) == (2, [(0, lowtide.Way(3))])
    assert not runs.differences(state, trained(0, guard.schedule())[1])


def test_refusals() -> None:
    with pytest.raises(lowtide.Unsupported, match="accumulates over 4"):
        trained(0, gradient_accumulation_steps=4)
    with pytest.raises(lowtide.Unsupported, match="no Accelerator"):
        guarded(object(), models.Gpt(), None)
