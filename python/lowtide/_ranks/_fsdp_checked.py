"""Collectives that no rank begins before all said that they will."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from .._checks import is_oom
from .._errors import LowtideError
from .._quiet import quiet
from ._fsdp_sequence import sent
from ._peer import PeerFailed
from ._side import side_group

# Operations of torch in which ranks wait for each other.
_NAMESPACES = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "symm_mem"})
_LOCAL = frozenset({"wait_tensor", "_wrap_tensor_autograd"})
# The place of a flag after the last collective of a piece.
_END = -1


class Flags:
    """Small messages between all ranks, on the CPU."""

    def __init__(self) -> None:
        side_group("flags")
        self._place = 0
        self.is_called_off = False

    def begin(self) -> None:
        self._place, self.is_called_off = 0, False

    def before_collective(self) -> None:
        self._place += 1
        self._exchange(self._place)

    def end(self) -> None:
        self._exchange(_END)

    def call_off(self) -> None:
        """This rank failed: whatever flag the others wait for next, they raise there."""
        self.is_called_off = True
        self._largest(1, 0)

    def _exchange(self, place: int) -> None:
        failed, largest, smallest = self._largest(0, place)
        if failed:
            self.is_called_off = True
            raise PeerFailed
        if largest != smallest:
            raise LowtideError(
                "the ranks' collectives are not in the same order",
                "every rank must run the same modules, in the same order, for every part of its batch",
            )

    def _largest(self, failed: int, place: int) -> tuple[int, int, int]:
        """Whether a rank failed, and the largest and the smallest place."""
        with quiet():
            flag = torch.tensor([failed, place, -place])
            dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=side_group("flags"))
            is_failed, largest, smallest = flag.tolist()
        return is_failed, largest, -smallest


class Checked(TorchDispatchMode):
    """Sends a flag before each collective, whoever asks for it."""

    def __init__(self, flags: Flags) -> None:
        super().__init__()
        self._flags = flags
        # Collectives seen.
        self.number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(one, DTensor) for one in types):
            return NotImplemented  # it asks for its collectives itself, and then they come by here
        kwargs = kwargs or {}
        if func.namespace not in _NAMESPACES or func._opname in _LOCAL:
            return func(*args, **kwargs)
        self._flags.before_collective()
        self.number += 1
        before = _sent()
        try:
            return func(*args, **kwargs)
        except Exception as error:
            if is_oom(error) and _sent() == before:
                # The others are in it by now, and do not come out alone.
                with quiet():
                    func(*args, **kwargs)
            raise


def _sent() -> int:
    """Collectives that this rank has sent, over all groups."""
    return sum(map(sent, dist.distributed_c10d._world.pg_map))
