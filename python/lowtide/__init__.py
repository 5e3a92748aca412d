"""Lowtide: PyTorch training that survives running out of memory.

``lowtide.Guard`` holds a training loop, ``lowtide.Feed`` gives it data larger than memory, ``lowtide.explain`` says why one
crashed. ``import lowtide`` does not import torch.
"""

from __future__ import annotations

import importlib

from ._errors import (
    BadClosure,
    BadData,
    BadLimit,
    BadSetting,
    BadState,
    CannotCut,
    CannotUndo,
    LowtideError,
    MissingData,
    OutOfMemory,
    Unsupported,
    WrongParameters,
)
from ._native import __version__

# As `typing` has it, which takes longer to import than all of this.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._data import Packed, open, pack
    from ._explain import Explanation, Oom, explain, is_oom, read_oom
    from ._feed import Feed
    from ._guard import Guard
    from ._inject import inject
    from ._reserve import Overflow, Reserve, reserve
    from ._watch import Watch, watch
    from ._way import Way

# What needs torch, or is rarely needed, and where it is.
_LATER = {
    "Explanation": "_explain",
    "Feed": "_feed",
    "Guard": "_guard",
    "Oom": "_explain",
    "Overflow": "_reserve",
    "Packed": "_data",
    "Reserve": "_reserve",
    "Watch": "_watch",
    "Way": "_way",
    "explain": "_explain",
    "inject": "_inject",
    "is_oom": "_explain",
    "open": "_data",
    "pack": "_data",
    "read_oom": "_explain",
    "reserve": "_reserve",
    "watch": "_watch",
}

# The modules among these that need no torch.
_WITHOUT_TORCH = {"_explain", "_watch"}

__all__ = [
    "BadClosure",
    "BadData",
    "BadLimit",
    "BadSetting",
    "BadState",
    "CannotCut",
    "CannotUndo",
    "Explanation",
    "Feed",
    "Guard",
    "LowtideError",
    "MissingData",
    "Oom",
    "OutOfMemory",
    "Overflow",
    "Packed",
    "Reserve",
    "Unsupported",
    "Watch",
    "Way",
    "WrongParameters",
    "__version__",
    "explain",
    "inject",
    "is_oom",
    "open",
    "pack",
    "read_oom",
    "reserve",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'lowtide' has no attribute {name!r}")
    if _LATER[name] not in _WITHOUT_TORCH:
        importlib.import_module("._versions", __name__).need_torch(f"lowtide.{name}")
    value = getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
