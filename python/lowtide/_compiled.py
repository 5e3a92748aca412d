"""Compiled models: pieces of other sizes must not be compiled one by one."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import torch

# Pieces of this size and smaller run eagerly: compilers treat a dimension of 1 as a case of its own.
EAGER = 1
# Steps in pieces of one size after which a program is compiled for that size alone.
_SETTLED_AFTER = 6
# Sizes that get a program of their own in a run: each takes as long to compile as the first.
_SETTLED_SIZES = 3


def is_even(micro_batch: int, samples: int) -> bool:
    """Whether a batch is cut into pieces of one size that compilers treat like any other."""
    return EAGER < micro_batch < samples and samples % micro_batch == 0


class Programs:
    """The compiled programs that pieces run.

    A whole batch runs as the user has it. Parts of one share a program with a dynamic first dimension, whatever their size,
    so that looking for a size compiles once. A compiler can do more where the size is known: when one has held for some
    steps, a program is compiled for it alone. What is chosen stands in the schedule.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._backend = _backend_of(model)
        self._steps: dict[int, int] = {}
        self._fixed: dict[int, _FixedSize] = {}

    def is_compiled(self) -> bool:
        """Whether pieces may run a compiled program: the model's, or any of this process, for a closure calls what it likes."""
        if self._backend is not None:
            return True
        dynamo = sys.modules.get("torch._dynamo")
        return dynamo is not None and bool(dynamo.utils.counters["frames"]["total"])

    def has_settled(self, micro_batch: int) -> bool:
        """Whether pieces of this size have a program of their own."""
        return self._steps.get(micro_batch, 0) >= _SETTLED_AFTER

    def committed(self, micro_batch: int) -> bool:
        """Counts a step in pieces of this size; says whether it has settled now."""
        if self._backend is None:
            return False
        steps = self._steps.get(micro_batch, 0) + 1
        settles = steps == _SETTLED_AFTER
        if settles and sum(map(self.has_settled, self._steps)) >= _SETTLED_SIZES:
            return False
        self._steps[micro_batch] = steps
        return settles

    def around(
        self, part: Any, samples: int, *, is_whole: bool, eager: bool, settled: bool
    ) -> contextlib.AbstractContextManager[Any]:
        """Around the computation of a piece."""
        if is_whole and not eager or not self.is_compiled():
            return contextlib.nullcontext()
        if eager or samples <= EAGER:
            stance: contextlib.AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
            return stance
        if settled and self._backend is not None:
            return self._fixed.setdefault(samples, _FixedSize(self._backend)).around()
        _mark(part)
        return contextlib.nullcontext()

    def state_dict(self) -> dict[int, int]:
        return dict(self._steps)

    def load_state_dict(self, state: dict[int, int]) -> None:
        self._steps = dict(state)


class _FixedSize:
    """The user's backend under a name of its own: what it compiles is found by nobody else."""

    def __init__(self, backend: Callable[..., Any]) -> None:
        self._backend = backend

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._backend(*args, **kwargs)

    @contextlib.contextmanager
    def around(self) -> Any:
        with (
            torch.compiler.set_stance("default", force_backend=self),
            # Else the sizes seen before would make the dimension dynamic.
            torch._dynamo.config.patch(automatic_dynamic_shapes=False),
        ):
            yield


def _backend_of(model: torch.nn.Module) -> Callable[..., Any] | None:
    """What the user compiles the model with; none where they do not, or where this torch hides it."""
    context = getattr(model, "dynamo_ctx", None)
    if context is None:
        return None
    with contextlib.suppress(ImportError, AttributeError):
        from torch._dynamo.eval_frame import innermost_backend

        backend: Callable[..., Any] = innermost_backend(context.callback)
        return backend
    return None


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
