"""Out-of-memory errors on demand, for tests of loops that have to survive them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ._quiet import is_quiet

MESSAGE = "CUDA out of memory. Tried to allocate 2.00 MiB. (an error that lowtide.inject was asked for)"


class Injector:
    """Counts operations, and fails some."""

    def __init__(self, at: Iterable[int]) -> None:
        self.at = frozenset(at)
        # Operations seen so far.
        self.count = 0
        # Where errors were raised: the number and the name of the operation.
        self.raised: list[tuple[int, str]] = []

    def see(self, name: str) -> None:
        if is_quiet():
            return
        self.count += 1
        if self.count in self.at:
            self.raised.append((self.count, name))
            raise torch.OutOfMemoryError(MESSAGE)


class _Mode(TorchDispatchMode):
    def __init__(self, injector: Injector) -> None:
        super().__init__()
        self._injector = injector

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._injector.see(str(func))
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def inject(at: int | Iterable[int] = ()) -> Iterator[Injector]:
    """Makes the ``at``-th operation of torch in a ``with`` block fail as if memory had run out, or several of them.

    Without a number it only counts. What runs again after an error counts on.

    ::

        with lowtide.inject() as seen:
            train_one_step()
        with lowtide.inject(at=seen.count // 2):
            train_one_step()          # must survive it

    Every operation is seen, in forward, backward and update. Compiled code is not made of operations that can be seen one by
    one: under a block like this it runs eagerly.
    """
    injector = Injector([at] if isinstance(at, int) else at)
    with _Mode(injector):
        yield injector
