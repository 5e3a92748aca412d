"""Work of the guard's own that takes no memory, and that ``inject`` therefore leaves alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_depth = 0


def is_quiet() -> bool:
    return _depth > 0


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    global _depth
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
