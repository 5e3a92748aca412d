"""Compiled models: pieces of other sizes must not be compiled one by one."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import torch


class Compiled:
    """Says for each piece whether it runs compiled, so that nothing is compiled for every size that comes up.

    The first size is compiled as the user has it. All others of at least two samples share one program with a dynamic first
    dimension. A single sample runs eagerly: compilers treat a dimension of 1 as a case of its own.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._first: int | None = None

    @property
    def is_compiled(self) -> bool:
        if "torch._dynamo" not in sys.modules:
            return False
        from torch._dynamo.eval_frame import OptimizedModule

        return isinstance(self._model, OptimizedModule) or any(
            isinstance(one, OptimizedModule) or getattr(one, "_compiled_call_impl", None) is not None
            for one in self._model.modules()
        )

    def runs_eager(self, samples: int) -> bool:
        """Whether a piece of this size runs eagerly by our choice."""
        return self.is_compiled and self._first not in (None, samples) and samples == 1

    def piece(self, part: Any, samples: int, *, eager: bool) -> contextlib.AbstractContextManager[Any]:
        """Around the computation of a piece."""
        if "torch._dynamo" not in sys.modules or not self.is_compiled:
            return contextlib.nullcontext()
        if self._first is None:
            self._first = samples
        if eager or self.runs_eager(samples):
            stance: contextlib.AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
            return stance
        if samples != self._first:
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
