"""Groups on the CPU beside those that train."""

from __future__ import annotations

import atexit
import contextlib
import datetime
from typing import Any

import torch.distributed as dist

# Each has threads and connections of its own, so that guards of one process, one after the other, share them. Nobody else keeps
# one: those that are dropped here are gone, with their threads.
_GROUPS: dict[tuple[str, float | None], Any] = {}


def side_group(purpose: str, seconds: float | None = None) -> Any:
    """The group of all ranks for a purpose. All ranks ask for the same ones in the same order."""
    key = (purpose, seconds)
    group = _GROUPS.get(key)
    if group is None or not _is_known(group):
        if not _GROUPS:
            # Before torch's own end, in which threads that are still there may abort the process.
            atexit.unregister(_leave)
            atexit.register(_leave)
        timeout = datetime.timedelta(seconds=seconds) if seconds is not None else None
        group = _GROUPS[key] = dist.new_group(backend="gloo", timeout=timeout)
    return group


def _leave() -> None:
    """Ends all of them, also where somebody has ended the group of all ranks before."""
    for group in _GROUPS.values():
        with contextlib.suppress(Exception):
            if _is_known(group):
                dist.destroy_process_group(group)
    _GROUPS.clear()


def _is_known(group: Any) -> bool:
    return group in dist.distributed_c10d._world.pg_map
