"""What ranks tell each other: a row of numbers from each, once a step."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from .._quiet import quiet
from ._side import side_group

# Bytes of a text that ranks hand each other after an error.
_TEXT = 2048
# Numbers of a message: as many in each, so that ranks which disagree on what they do can still say so.
_ROW = 20


class Agreement:
    """Rows of numbers that all ranks have from all ranks, over a group of its own on the CPU: the device is never waited for."""

    def __init__(self, timeout: float) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self._timeout = timeout
        side_group("agreement", timeout)
        # How often ranks have agreed.
        self.count = 0

    def send(self, numbers: list[int]) -> Message:
        """Sends the numbers of this rank, and does not wait for the others'."""
        assert len(numbers) <= _ROW
        with quiet():
            mine = torch.tensor([*numbers, *[0] * (_ROW - len(numbers))], dtype=torch.int64)
            rows = [torch.empty_like(mine) for _ in range(self.world)]
            work = dist.all_gather(rows, mine, group=side_group("agreement", self._timeout), async_op=True)
        self.count += 1
        return Message(rows, work)

    def texts(self, text: str) -> list[str]:
        """A text from each rank, cut where it is long."""
        with quiet():
            mine = torch.zeros(_TEXT, dtype=torch.uint8)
            written = text.encode()[:_TEXT]
            mine[: len(written)] = torch.frombuffer(bytearray(written), dtype=torch.uint8) if written else mine[:0]
            rows = [torch.empty_like(mine) for _ in range(self.world)]
            dist.all_gather(rows, mine, group=side_group("agreement", self._timeout))
            return [bytes(row.tolist()).rstrip(b"\0").decode(errors="ignore") for row in rows]


class Message:
    """Numbers that are under way."""

    def __init__(self, rows: list[torch.Tensor], work: Any) -> None:
        self._rows, self._work = rows, work

    def wait(self) -> list[list[int]]:
        """The numbers of all ranks, in their order."""
        with quiet():
            self._work.wait()
            return [row.tolist() for row in self._rows]
