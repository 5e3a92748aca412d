"""The memory of a device: what is in use, what may be, and how to give back what is not."""

from __future__ import annotations

import contextlib
import gc
import os
from typing import NamedTuple

import torch

from . import _native
from ._errors import BadLimit, Unsupported

_PAGE = os.sysconf("SC_PAGE_SIZE")


# What a context of CUDA takes at most, with the kernels of a training.
_LARGEST_CONTEXT = 768 << 20
# Bytes of the host that torch counts as memory of a device, by the device's number: those of a reserve.
POOLED: dict[int, int] = {}


class Reading(NamedTuple):
    """Bytes, as the allocator counts them; on a CPU what the process takes at that moment."""

    allocated: int = 0
    reserved: int = 0
    peak: int = 0
    reserved_peak: int = 0
    retries: int = 0


def resident() -> int:
    """Bytes of the host that this process takes."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE


class CpuMemory:
    """The memory of the host, in which torch's allocator counts nothing and keeps nothing: what is told is the process's."""

    limit: int | None = None
    total: int | None = None

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def set_limit(self, line: str) -> None:
        """There is no allocator to give it to. Checked all the same, so that a mistake shows wherever it is made."""
        _limit_bytes(line, 1 << 40)

    def reading(self) -> Reading:
        held = resident()
        return Reading(held, held, held, held)

    def reset_peak(self) -> None:
        pass

    def room(self) -> int | None:
        """Bytes that can be had for certain; none where nobody knows."""
        return None

    def release(self) -> int:
        return 0


class CudaMemory:
    """The memory of a CUDA device, as torch's caching allocator holds it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.total: int = torch.cuda.get_device_properties(device).total_memory
        self.limit: int | None = None

    def set_limit(self, line: str) -> None:
        """Sets the limit of this process. What the CUDA context takes beside the allocator is within it."""
        limit = _limit_bytes(line, self.total)
        if limit is None:
            return
        roof = limit - self._context()
        shown = _native.shown_bytes
        if roof <= self._held():
            held = self._held() + limit - roof
            raise BadLimit(f"{shown(held)} are in use already, and the limit is {shown(limit)}", "set a larger limit")
        if self._pooled and roof + self._pooled >= self.total:
            most = shown(max(self.total - roof - (32 << 20), 0))
            raise BadLimit(
                f"a limit of {shown(limit)} and a reserve of {shown(self._pooled)} are more than the {shown(self.total)} of {self.device}",
                f"torch counts both together: take a reserve of at most {most}, or no limit",
            )
        torch.cuda.set_per_process_memory_fraction(min((roof + self._pooled) / self.total, 1.0), self.device)
        self.limit = roof

    def _context(self) -> int:
        """What the process holds outside of the allocator, where it is alone; else what contexts take at most."""
        if self._pooled:
            # Kernels are loaded when they are first used, and with a reserve the allocator fills all that is left.
            return _LARGEST_CONTEXT
        free, total = torch.cuda.mem_get_info(self.device)
        return min(max(total - free - self._held(), 0), _LARGEST_CONTEXT)

    @property
    def _pooled(self) -> int:
        return POOLED.get(self.device.index or 0, 0)

    def _held(self) -> int:
        """Bytes that the allocator holds from the device, without those of a reserve."""
        return torch.cuda.memory_reserved(self.device) - self._pooled

    def reading(self) -> Reading:
        stats = torch.cuda.memory_stats_as_nested_dict(self.device)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        retries = stats["num_alloc_retries"]
        pooled = self._pooled
        return Reading(
            allocated["current"], reserved["current"] - pooled, allocated["peak"], reserved["peak"] - pooled, retries
        )

    def reset_peak(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.device)

    def room(self) -> int | None:
        free, _ = torch.cuda.mem_get_info(self.device)
        if self.limit is not None:
            free = min(free, self.limit - self._held())
        return max(free, 0)

    def release(self) -> int:
        """Gives cached blocks back; says how many bytes."""
        before = torch.cuda.memory_reserved(self.device)
        torch.cuda.empty_cache()
        return before - torch.cuda.memory_reserved(self.device)


Memory = CpuMemory | CudaMemory


def memory_of(device: torch.device) -> Memory:
    if device.type == "cuda":
        return CudaMemory(device)
    if device.type == "cpu":
        return CpuMemory(device)
    raise Unsupported(f"the guard does not know the memory of a device of type {device.type}", "use cuda or cpu")


def let_go(error: BaseException, device: torch.device) -> None:
    """Drops what a failed computation still holds: the variables of its frames, and what autograd's queues keep."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        _clear_frames(link)
        following = link.__cause__ or link.__context__
        link.__traceback__ = link.__cause__ = link.__context__ = None
        link = following
    gc.collect()
    with contextlib.suppress(RuntimeError):
        # Whatever waits in the queue of this device's thread is dropped when the next backward begins.
        torch.zeros((), device=device, requires_grad=True).backward()


def _clear_frames(error: BaseException) -> None:
    trace = error.__traceback__
    while trace is not None:
        with contextlib.suppress(RuntimeError):  # of those that are still running: ours
            trace.tb_frame.clear()
        trace = trace.tb_next


def _limit_bytes(line: str, total: int) -> int | None:
    try:
        return _native.limit_bytes(line, total)
    except ValueError as error:
        raise BadLimit(str(error)) from None
