"""Compiled models: pieces of other sizes must not be compiled one by one."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import torch

# Pieces of this size and smaller run eagerly: compilers treat a dimension of 1 as a case of its own.
EAGER = 1


def is_compiled() -> bool:
    """Whether anything was compiled in this process: a closure may call what it likes."""
    dynamo = sys.modules.get("torch._dynamo")
    return dynamo is not None and bool(dynamo.utils.counters["frames"]["total"])


def piece(part: Any, samples: int, *, is_whole: bool, eager: bool) -> contextlib.AbstractContextManager[Any]:
    """Around the computation of a piece: a whole batch runs as the user has it.

    Parts of one share a program with a dynamic first dimension, whatever their size; so at most one more is compiled.
    What is chosen depends on the sizes alone, and so it is the same for everyone who computes the same pieces.
    """
    if is_whole and not eager or not is_compiled():
        return contextlib.nullcontext()
    if eager or samples <= EAGER:
        stance: contextlib.AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
        return stance
    _mark(part)
    return contextlib.nullcontext()


def _mark(part: Any) -> None:
    if isinstance(part, torch.Tensor):
        if part.dim():
            torch._dynamo.maybe_mark_dynamic(part, 0)
    elif isinstance(part, dict):
        for value in part.values():
            _mark(value)
    elif isinstance(part, (list, tuple)):
        for value in part:
            _mark(value)
    elif hasattr(part, "__dataclass_fields__"):
        for name in part.__dataclass_fields__:
            _mark(getattr(part, name))
