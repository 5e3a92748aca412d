"""A guarded run that meets errors, and the same run without them, compared bit for bit."""

from __future__ import annotations

import dataclasses
import hashlib
import random
from collections.abc import Callable, Sequence
from typing import Any

import lowtide
import models
import torch

BATCH = 6
STEPS = 3


@dataclasses.dataclass(frozen=True)
class Setup:
    """A model and an optimizer."""

    name: str
    model: Callable[[], torch.nn.Module]
    optimizer: Callable[[Any], torch.optim.Optimizer]
    batch: Callable[[int, int], models.Pair]
    has_scaler: bool = False
    autocast: torch.dtype | None = None
    clip: float | None = 1.0

    def run(self, schedule: Any = None, inject_in: int | None = None, at: Sequence[int] = ()) -> Outcome:
        """Three steps. In one of them the operations of these numbers fail."""
        torch.manual_seed(7)
        random.seed(7)
        model = self.model()
        optimizer = self.optimizer(model.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10) if self.has_scaler else None
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
        guard = lowtide.Guard(model, optimizer, clip=self.clip, scaler=scaler, scheduler=scheduler, schedule=schedule)
        losses, operations, raised = [], 0, []
        for number in range(STEPS):
            batch = self.batch(BATCH, number)
            if number == inject_in:
                with lowtide.inject(at=at) as seen:
                    losses.append(self._step(guard, model, batch))
                operations, raised = seen.count, seen.raised
            else:
                losses.append(self._step(guard, model, batch))
        return Outcome(
            everything(model, optimizer, scaler, scheduler, losses), guard.schedule(), operations, raised, guard
        )

    def _step(self, guard: lowtide.Guard, model: torch.nn.Module, batch: models.Pair) -> torch.Tensor:
        def closure(part: models.Pair) -> torch.Tensor:
            with torch.autocast("cpu", dtype=self.autocast or torch.bfloat16, enabled=self.autocast is not None):
                return models.loss_of(model, part)

        return guard.step(batch, closure, count=models.counted)


@dataclasses.dataclass
class Outcome:
    state: dict[str, Any]
    schedule: Any
    operations: int
    raised: list[tuple[int, str]]
    guard: lowtide.Guard


def everything(model: Any, optimizer: Any, scaler: Any, scheduler: Any, losses: Any) -> dict[str, Any]:
    """All that a later step depends on."""
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    for number, values in optimizer.state_dict()["state"].items():
        state |= {f"optimizer.{number}.{name}": value for name, value in values.items()}
    state |= {f"loss.{number}": loss for number, loss in enumerate(losses)}
    state["random"] = torch.get_rng_state()
    state["python"] = random.getstate()
    state["scaler"] = scaler.state_dict() if scaler is not None else None
    state["rate"] = scheduler.get_last_lr()
    return state


def fingerprints(model: Any, optimizer: Any) -> dict[str, str]:
    """Of all weights and moments, whole."""
    state = dict(model.state_dict())
    for number, values in optimizer.state_dict()["state"].items():
        state |= {f"{number}.{key}": value for key, value in values.items()}
    whole = {name: one.full_tensor() if hasattr(one, "full_tensor") else one for name, one in state.items()}
    return {name: hashlib.sha256(one.contiguous().numpy().tobytes()).hexdigest() for name, one in whole.items()}


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The names of what is not the same, bit for bit."""

    def is_same(a: Any, b: Any) -> bool:
        if isinstance(a, torch.Tensor):
            return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
        return bool(a == b)

    return [
        name for name in {*one, *other} if name not in one or name not in other or not is_same(one[name], other[name])
    ]


def optimizers() -> dict[str, Callable[[Any], torch.optim.Optimizer]]:
    from torch.optim import SGD, AdamW

    return {
        "adamw": lambda parameters: AdamW(parameters, lr=1e-2, foreach=False, fused=False),
        "adamw-foreach": lambda parameters: AdamW(parameters, lr=1e-2, foreach=True),
        "adamw-fused": lambda parameters: AdamW(parameters, lr=1e-2, fused=True),
        "sgd": lambda parameters: SGD(parameters, lr=1e-2, momentum=0.9, weight_decay=0.01),
    }


def setups() -> list[Setup]:
    made = []
    for name, optimizer in optimizers().items():
        made.append(Setup(f"gpt-{name}", models.Gpt, optimizer, models.tokens))
        made.append(Setup(f"cnn-{name}", models.Cnn, optimizer, models.pictures))
        made.append(
            Setup(f"fp16-{name}", models.Gpt, optimizer, models.tokens, has_scaler=True, autocast=torch.float16)
        )
    return made
