"""Several ranks that train one model: they commit a step together, or undo it together."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch

from .._errors import Unsupported
from ._ranks import Ranks, Verdict, word_of
from ._silence import LOST, RankLost
from ._walk import Walk

__all__ = ["LOST", "RankLost", "Ranks", "Verdict", "Walk", "find", "ranks_of", "word_of"]

# Versions of torch whose private names were tried, each by the tests here.
KNOWN = ("2.11",)


def find(model: torch.nn.Module) -> Walk | None:
    """How a model trains on several ranks; none where it does not."""
    from ._ddp import find_ddp

    walk: Walk | None = find_ddp(model)
    if walk is None and importlib.util.find_spec(f"{__name__}._fsdp") is not None:
        walk = importlib.import_module(f"{__name__}._fsdp").find_fsdp(model)
    return walk


def ranks_of(model: torch.nn.Module, optimizer: Any, scaler: Any, timeout: float, folder: Path | None) -> Ranks | None:
    """The ranks that train a model; none where this process trains alone."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    if torch.distributed.get_world_size() == 1:
        return None
    version = ".".join(torch.__version__.split(".")[:2])
    if version not in KNOWN:
        raise Unsupported(
            f"torch {torch.__version__} is not known on several ranks, {' and '.join(KNOWN)} is",
            "use that one, or keep the command alive: lowtide run -- torchrun ...",
        )
    if type(optimizer).__name__ in ("ZeroRedundancyOptimizer", "PostLocalSGDOptimizer"):
        raise Unsupported(f"{type(optimizer).__name__} runs collectives of its own", "use the optimizer inside of it")
    walk = find(model)
    if walk is None:
        raise Unsupported(
            f"{torch.distributed.get_world_size()} ranks train together, and the model is neither in DDP nor in FSDP2",
            "put it into torch.nn.parallel.DistributedDataParallel, and give the guard that",
        )
    if scaler is not None and not walk.scales:
        raise Unsupported(
            f"a loss scale (fp16) under {walk.name}", "use bfloat16, which needs none, and leave out scaler"
        )
    return Ranks(walk, timeout, folder)
