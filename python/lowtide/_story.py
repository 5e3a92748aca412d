"""What happens in a run, told as the events that ``lowtide watch``, ``top`` and ``report`` read."""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from pathlib import Path
from typing import Any

import torch

from . import _native
from ._errors import LowtideError
from ._memory import POOLED, Memory, Reading, resident

log = logging.getLogger("lowtide")


class Story:
    """The events of a run, in its folder where it has one, and as lines of the log ``lowtide``."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self.folder = Path(folder) if folder is not None else None
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._file = _native.EventFile(str(self.folder) if self.folder is not None else None)
        except OSError as error:
            if "another process writes" not in str(error):
                raise
            hint = "give another folder, or close what writes to it: guard.close() ends a guard of this process"
            raise LowtideError(f"{self.folder}: somebody writes to this run already", hint) from None
        self._batch = 1
        # Lines for people, the last ones.
        self.lines: deque[str] = deque(maxlen=1000)
        # Steps whose loss is not known yet: asking for it would make the device wait.
        self._waiting: deque[tuple[dict[str, Any], torch.Tensor, Any]] = deque()

    @property
    def is_written(self) -> bool:
        return self.folder is not None

    @property
    def seconds(self) -> float:
        return self._file.seconds

    def begin(self, **event: Any) -> None:
        self._batch = event["batch"]
        self.tell(event="run_started", **event)

    def tell(self, *, of_rank: int | None = None, **event: Any) -> None:
        self.write(json.dumps(event), of_rank)

    def write(self, event: str, of_rank: int | None = None) -> None:
        """An event as JSON, behind the steps before it."""
        self.flush()
        self._write(event, of_rank)

    def _write(self, event: str, of_rank: int | None = None) -> None:
        line = self._file.write(event, self._batch, of_rank)
        if line is not None:
            self.lines.append(line)
            log.info(line)

    def out_of_memory(self, step: int, phase: str, message: str, reading: Reading, rank: int | None = None) -> None:
        said = json.loads(_native.read_oom_json(message) or "{}")
        self.tell(
            event="out_of_memory",
            step=step,
            phase=phase,
            requested=said.get("requested"),
            limit=said.get("limit"),
            allocated=said.get("allocated"),
            peak=reading.peak or None,
            reserved=reading.reserved_peak or None,
            message=message,
            of_rank=rank,
        )

    def step(self, loss: torch.Tensor, **event: Any) -> None:
        """A committed step. It is written once its loss is there."""
        if not self.is_written:
            return
        ready = None
        if loss.is_cuda:
            # Through page-locked memory, where the copy makes nobody wait.
            loss = torch.empty((), dtype=loss.dtype, pin_memory=True).copy_(loss, non_blocking=True)
            ready = torch.cuda.Event()
            ready.record()
        self._waiting.append((event, loss, ready))
        while self._waiting and (self._waiting[0][2] is None or self._waiting[0][2].query()):
            self._write_step()

    def flush(self) -> None:
        """Writes the steps whose loss was waited for."""
        while self._waiting:
            if self._waiting[0][2] is not None:
                self._waiting[0][2].synchronize()
            self._write_step()

    def _write_step(self) -> None:
        event, loss, _ = self._waiting.popleft()
        value = loss.item()
        event["loss"] = value if value - value == 0 else None
        self._write(json.dumps({"event": "step", **event}))

    def memory(self, step: int, memory: Memory, reading: Reading, rank: int | None = None) -> None:
        """Memory as it is now, on this rank where there are several."""
        event = {"step": step, "allocated": reading.allocated, "reserved": reading.reserved, "retries": reading.retries}
        if memory.device.type == "cuda":
            free, total = torch.cuda.mem_get_info(memory.device)
            event |= {"device_used": total - free, "device_total": total}
            pooled = POOLED.get(memory.device.index or 0)
            event |= {"reserve": pooled} if pooled else {}
        self.tell(event="memory", resident=resident(), of_rank=rank, **event)
