"""The guard in a loop that is written with accelerate.

::

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    guard = lowtide.integrations.accelerate.guarded(accelerator, model, optimizer, line="90%")
    for batch in loader:
        loss = guard.step(batch, lambda part: model(**part).loss)

``guard.step`` takes the place of ``accelerator.accumulate``, ``accelerator.backward``, clipping, ``optimizer.step()`` and
``optimizer.zero_grad()``. Give it the whole batch of an update: it accumulates by itself.
"""

from __future__ import annotations

from typing import Any

import torch

from .._errors import Unsupported
from .._guard import Guard

# One process, DDP, and FSDP2, whose older kin the guard refuses by itself.
_KINDS = ("NO", "MULTI_CPU", "MULTI_GPU", "FSDP")


def guarded(
    accelerator: Any, model: torch.nn.Module, optimizer: Any, line: str | int | None = None, **more: Any
) -> Guard:
    """A guard for what ``accelerator.prepare`` gave. Further arguments are those of ``lowtide.Guard``."""
    if not hasattr(accelerator, "prepare") or not hasattr(accelerator, "distributed_type"):
        raise Unsupported(f"a {type(accelerator).__name__} is no Accelerator", "give it accelerate.Accelerator() first")
    kind = str(accelerator.distributed_type).rpartition(".")[2]
    if kind not in _KINDS:
        hint = "keep the command alive: lowtide run -- accelerate launch ..."
        raise Unsupported(f"several processes train together ({kind})", hint)
    if accelerator.gradient_accumulation_steps > 1:
        hint = "make batches of the size of an update: the guard cuts them as memory allows"
        raise Unsupported(f"the accelerator accumulates over {accelerator.gradient_accumulation_steps} batches", hint)
    inner = getattr(optimizer, "optimizer", optimizer)
    return Guard(model, inner, line, scaler=getattr(accelerator, "scaler", None), **more)
