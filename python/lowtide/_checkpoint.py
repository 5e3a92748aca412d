"""A checkpoint of everything that a guarded loop needs to go on exactly."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ._errors import LowtideError
from ._undo import RandomState

if TYPE_CHECKING:
    from ._guard import Guard

# Grows when a reader of the old form would misread the new one.
_FORM = 1


def save(guard: Guard, path: Path) -> None:
    """Written beside its place and moved there, so that a kill leaves the old file or the new one."""
    numbers = RandomState()
    state: dict[str, Any] = {
        "lowtide": _FORM,
        "model": guard.model.state_dict(),
        "optimizer": guard.optimizer.state_dict(),
        "guard": guard.state_dict(),
        "random": {"cpu": numbers.cpu, "cuda": numbers.cuda, "python": numbers.python},
    }
    for name in ("scaler", "scheduler"):
        part = getattr(guard, name)
        if part is not None:
            state[name] = part.state_dict()
    if numbers.numpy is not None:
        kind, keys, *rest = numbers.numpy
        state["random"]["numpy"] = [kind, keys.tolist(), *rest]
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def load(guard: Guard, path: Path) -> None:
    """Puts everything back as ``save`` found it."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict) or state.get("lowtide") != _FORM:
        raise LowtideError(
            f"{path} is no checkpoint of this version of lowtide", "load your own checkpoints as you saved them"
        )
    guard.model.load_state_dict(state["model"])
    guard.optimizer.load_state_dict(state["optimizer"])
    guard.load_state_dict(state["guard"])
    for name in ("scaler", "scheduler"):
        part = getattr(guard, name)
        if part is not None and name in state:
            part.load_state_dict(state[name])
    numbers = RandomState()
    kept = state["random"]
    numbers.cpu, numbers.cuda = kept["cpu"], kept["cuda"]
    version, values, gauss = kept["python"]
    numbers.python = (version, tuple(values), gauss)
    if numbers.numpy is not None and "numpy" in kept:
        import numpy

        kind, keys, *rest = kept["numpy"]
        numbers.numpy = (kind, numpy.array(keys, dtype=numpy.uint32), *rest)
    numbers.restore()
