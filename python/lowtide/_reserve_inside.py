"""The reserve in a script that knows nothing of it, as ``lowtide run --reserve`` puts it there.

It is made when the process begins to use CUDA, so helpers and data workers pin nothing. Each use is written down at once: a line of
JSON, in the form of a run's events.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from . import _native
from ._reserve import Overflow, Reserve

# Uses that are written down by each process.
_MOST_USES = 1000


class Inside:
    """What becomes of a reserve in this process."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._steps = 0
        self._uses = 0
        self._is_begun = False
        self.reserve: Reserve | None = None

    def cuda_began(self) -> None:
        if self._is_begun:
            return
        self._is_begun = True
        size = self._settings["bytes"]
        try:
            self.reserve = Reserve(size, _own_device(), told=self._used)
        except Exception as error:  # a script that nobody changed must not end for it
            _say(f"no reserve: {error}")
            return
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        register_optimizer_step_pre_hook(self._stepping)
        _say(f"{_native.shown_bytes(self.reserve.size)} of host memory pinned in {self.reserve.pinned_seconds:.1f} s")

    def _stepping(self, *_: Any) -> None:
        self._steps += 1

    def _used(self, found: Overflow) -> None:
        self._uses += 1
        if self._uses > _MOST_USES:
            return
        assert self.reserve is not None
        event = {"event": "overflowed", "step": self._steps, "reserve": self.reserve.size, **found._asdict()}
        folder = Path(self._settings["folder"])
        try:
            folder.mkdir(exist_ok=True)
            with open(folder / f"start-{self._settings['start']}-{os.getpid()}.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(event) + "\n")
        except OSError:
            pass  # the training is worth more than its story


def begin(settings: dict[str, Any]) -> Inside:
    """Waits until the process uses CUDA."""
    inside = Inside(settings)
    init = torch.cuda._lazy_init

    def lazy_init() -> None:
        init()
        if torch.cuda.is_initialized():
            inside.cuda_began()

    # Torch looks the function up by its name each time, from C++ too.
    torch.cuda._lazy_init = lazy_init
    if torch.cuda.is_initialized():
        inside.cuda_began()
    return inside


def _own_device() -> int:
    """The device that a rank takes, before it says so; else the current one."""
    rank = os.environ.get("LOCAL_RANK", "")
    if rank.isdigit() and int(rank) < torch.cuda.device_count():
        return int(rank)
    return torch.cuda.current_device()


def _say(text: str) -> None:
    sys.stderr.write(f"lowtide: {text}\n")
