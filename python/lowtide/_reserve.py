"""Host memory that torch falls back on when a device is full: a step that is too large is slow instead of out of memory.

torch can fall back on a memory pool when a device is full (``MemPool(use_on_oom=True)``), and the memory of the pool can come from two
functions of C: here it is pinned host memory, which the GPU reads and writes over the bus. Torch tells nobody that it did so;
marks in the memory show it (``HostRegion``). What torch's order has wrong is put right between two steps: it falls back before
it releases cached blocks, so an overflow is followed by their release where that makes steps faster; and what came to lie in the reserve for longer, as the state of an
optimizer, is moved to the device.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from . import _native
from ._errors import BadLimit, Unsupported
from ._host_pool import HostPool
from ._memory import POOLED, CudaMemory
from ._phase import phase_of_main_thread
from ._pinned import refuse_here, refuse_too_much, size_of
from ._release import Release
from ._stay import move_to_device

log = logging.getLogger("lowtide")

# How long the thread that looks at the marks waits before it asks whether it is still needed.
_WATCH_SECONDS = 3600.0
# Overflows that are kept for the report.
_KEPT = 1000

_open: dict[int, Reserve] = {}


def _forked() -> None:
    """The memory stays with the parent, and so does the device."""
    for one in _open.values():
        one._is_closed = True


os.register_at_fork(after_in_child=_forked)


class Overflow(NamedTuple):
    """A time in which memory would have run out."""

    phase: str
    bytes: int
    seconds: float
    needed: int
    limit: int
    resting: int

    def smaller(self) -> float | None:
        """By which share a smaller batch would have needed no reserve: what is above rest grows with the batch."""
        above_rest, too_much = self.needed - self.resting, self.needed - self.limit
        return too_much / above_rest if 0 < too_much < above_rest else None


def reserve(
    size: str | int,
    device: torch.device | str | int | None = None,
    *,
    streams: Mapping[torch.cuda.Stream, str | int] | None = None,
) -> Reserve:
    """Pins host memory that torch falls back on when the device is full, until ``close``.

    ::

        with lowtide.reserve("4GiB") as reserve:
            train()
        print(reserve.report())

    A step that needs more than the device has is slow then, and not out of memory. After each step of an optimizer the reserve is
    looked at: where it was used, cached blocks are released, as long as that makes steps faster, and what stayed in it is moved to the
    device.

    Args:
        size: bytes, as ``"4GiB"``, or a share of the device's memory, as ``"25%"``.
        device: the CUDA device; the current one where it is left out.
        streams: for work on other streams than the current one: how much more to pin for each. Torch falls back only on memory of
            the stream that asks.
    """
    return Reserve(size, device, streams=streams)


class Reserve:
    """Pinned host memory that torch falls back on. See ``lowtide.reserve``."""

    def __init__(
        self,
        size: str | int,
        device: torch.device | str | int | None = None,
        *,
        streams: Mapping[torch.cuda.Stream, str | int] | None = None,
        phase: Callable[[], str] | None = None,
        is_settled_by_steps: bool = True,
        told: Callable[[Overflow], None] | None = None,
    ) -> None:
        version = refuse_here()
        index = torch.device("cuda", device).index if isinstance(device, int) else torch.device(device or "cuda").index
        self._index: int = torch.cuda.current_device() if index is None else index
        self.device = torch.device("cuda", self._index)
        if self._index in _open:
            raise Unsupported(
                f"{self.device} has a reserve already", "close that one first, or make one that is large enough"
            )
        self._memory = CudaMemory(self.device)
        sizes = {torch.cuda.current_stream(self.device): size_of(size, self._memory.total)}
        for stream, more in (streams or {}).items():
            sizes[stream] = sizes.get(stream, 0) + size_of(more, self._memory.total)
        self.size = sum(sizes.values())
        refuse_too_much(self.size)
        begun = time.perf_counter()
        with contextlib.ExitStack() as undo:
            self._raise_limit()
            undo.callback(self._lower_limit)
            self._pool = HostPool(self.device, sizes, version)
            undo.pop_all()
        self._region = self._pool.region
        self._memory.reset_peak()
        self.pinned_seconds = time.perf_counter() - begun
        POOLED[self._index] = self.size
        _open[self._index] = self
        self._phase = phase or phase_of_main_thread
        self._told = told
        self._began = time.monotonic()
        self._first: tuple[float, str] | None = None
        self._overflows: list[Overflow] = []
        self.count = 0
        self.seconds = 0.0
        self._most = 0
        self._release = Release()
        # Requests that found nothing in it: their sizes by the number of their stream.
        self._unserved: dict[int, int] = {}
        _observe()
        self._is_closed = False
        self._is_armed = threading.Event()
        self._is_armed.set()
        self._lock = threading.Lock()
        # How often marks were set.
        self._marked = 1
        self._is_of_guard = not is_settled_by_steps
        self._watcher = threading.Thread(target=self._watch, name="lowtide-reserve", daemon=True)
        self._watcher.start()
        self._hook: Any = None
        if is_settled_by_steps:
            from torch.optim.optimizer import register_optimizer_step_post_hook

            self._hook = register_optimizer_step_post_hook(self._after_step)
        atexit.register(self._close_at_exit)

    # What it has done.

    @property
    def used(self) -> int:
        """The most bytes of it that were used at a time, so far."""
        return max(self._most, self._region.touched() if not self._is_closed else 0)

    @property
    def overflows(self) -> list[Overflow]:
        """The times in which memory would have run out, the last ones."""
        return list(self._overflows)

    def report(self) -> str:
        """The story so far, in words."""
        shown = _native.shown_bytes
        if not self.count:
            return "\n".join([f"a reserve of {shown(self.size)} of host memory, not used", *self._refusals()])
        times = "once" if self.count == 1 else f"{self.count} times"
        lines = [
            f"a reserve of {shown(self.size)} of host memory, used {times}: at most {shown(self._most)}, {self.seconds:.1f} s in all"
        ]
        worst = max(self._overflows, key=lambda one: one.needed)
        share = worst.smaller()
        if share is not None:
            lines.append(
                f"{shown(worst.needed)} were needed in {worst.phase}, and the device had {shown(worst.limit)}: "
                f"a batch {math.ceil(100 * share)} % smaller needs no reserve"
            )
        elif worst.needed <= worst.limit:
            lines.append("only cached blocks were in the way; expandable_segments:True leaves fewer of them")
        return "\n".join([*lines, *self._refusals()])

    def _refusals(self) -> list[str]:
        shown = _native.shown_bytes
        lines = []
        for stream, size in self._unserved.items():
            if self._pool.serves(stream):
                lines.append(f"it was too small for a request of {shown(size)}")
            else:
                lines.append(
                    f"a request of {shown(size)} on stream {stream:#x} found none of it: name the stream in streams="
                )
        return lines

    # Between two steps.

    def adopt(self, phase: Callable[[], str]) -> None:
        """Lets a guard settle it, which knows what it is doing."""
        self._phase = phase
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def look(self, *, is_certain: bool = False) -> Overflow | None:
        """What came to lie in it since it was last given back; none where nothing did, which takes a read of host memory.

        The GPU may be far behind: what it has not written yet is seen the next time, unless ``is_certain`` says that it will be.
        """
        if self._is_closed or not (is_certain or self._region.is_touched()):
            return None
        # What is captured for a CUDA graph must not be waited for.
        if torch.cuda.is_current_stream_capturing():
            return None
        torch.cuda.synchronize(self.device)
        if not self._region.is_touched():
            return None
        since, phase = self._first or (time.monotonic(), self._phase())
        free, _ = torch.cuda.mem_get_info(self.device)
        reading = self._memory.reading()
        limit = free + reading.reserved
        fraction = self._limit()
        if fraction < 1.0:
            limit = min(limit, int(fraction * self._memory.total) - self.size)
        found = Overflow(
            phase, self._region.touched(), time.monotonic() - since, reading.peak, limit, min(reading.allocated, limit)
        )
        self.count += 1
        self.seconds += found.seconds
        self._most = max(self._most, found.bytes)
        self._overflows.append(found)
        del self._overflows[:-_KEPT]
        return found

    def give_back(self) -> int:
        """Moves what stayed in it to the device, where there is room, and sets new marks. Gives the bytes that could not be moved."""
        if self._is_closed or not self._region.is_touched():
            return 0
        if self._pool.taken():
            move_to_device(self.device, self._region.holds)
        self._pool.mark()
        with self._lock:
            self._first = None
            self._marked += 1
            self._is_armed.set()
        # The blocks that were held count as allocated.
        self._memory.reset_peak()
        return self._pool.taken()

    def settle(self) -> Overflow | None:
        """Looks, and where it was used, releases cached blocks if that pays and gives it back: what a loop without a guard needs after a step."""
        found = self.look()
        if found is None:
            self._release.after_other()
            return None
        if self._told is not None:
            self._told(found)
        elif self.count == 1:
            log.warning("%s", self.report())
        if self._release.after_overflow(time.monotonic()):
            torch.cuda.empty_cache()
        self.give_back()
        return found

    def _after_step(self, *_: Any) -> None:
        # While a step is compiled nothing is computed.
        if not torch.compiler.is_compiling() and self._release.is_due():
            self.settle()

    def close(self) -> None:
        """Gives the memory back. What still lies in it is moved to the device first; where there is no room for it, it stays."""
        if self._is_closed:
            return
        atexit.unregister(self._close_at_exit)
        if self._hook is not None:
            self._hook.remove()
        self.settle()
        self._is_closed = True
        is_free = self._pool.close()
        self._is_armed.set()
        self._watcher.join(1.0)
        if is_free:
            POOLED.pop(self._index, None)
            _open.pop(self._index, None)
            self._lower_limit()

    def guard_closed(self) -> None:
        """Closes what a guard made for itself."""
        if self._is_of_guard:
            self.close()

    def _close_at_exit(self) -> None:
        # A device that is in error says so in every call, and the process ends anyway.
        with contextlib.suppress(Exception):
            self.close()

    def __enter__(self) -> Reserve:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # The pool.

    def _limit(self) -> float:
        """The share of the device that torch may take; 1 is no limit. Before 2.9 it cannot be asked."""
        return float(getattr(torch.cuda, "get_per_process_memory_fraction", lambda _: 1.0)(self.device))

    def _raise_limit(self) -> None:
        """Torch counts the pool as memory of the device, so a limit that was set has to grow by it."""
        fraction = self._limit()
        if fraction >= 1.0:
            return
        more = fraction + self.size / self._memory.total
        if more >= 1.0:
            shown = _native.shown_bytes
            most = shown(max(int((1.0 - fraction) * self._memory.total) - (2 << 20), 0))
            raise BadLimit(
                f"a limit of {fraction:.1%} of {self.device} and a reserve of {shown(self.size)} are more than it has",
                f"torch counts both together: take a reserve of at most {most}, or no limit",
            )
        torch.cuda.set_per_process_memory_fraction(more, self.device)

    def _lower_limit(self) -> None:
        fraction = self._limit()
        if fraction < 1.0:
            torch.cuda.set_per_process_memory_fraction(max(fraction - self.size / self._memory.total, 0.0), self.device)

    # The thread that looks at the marks.

    def _watch(self) -> None:
        while not self._is_closed:
            self._is_armed.wait()
            marked = self._marked
            if not self._region.wait(_WATCH_SECONDS) or self._is_closed:
                continue
            found = (time.monotonic(), self._phase())
            with self._lock:
                # Else it was given back meanwhile.
                if marked == self._marked:
                    self._is_armed.clear()
                    self._first = found


def reserve_of(wanted: str | int | Reserve | None, device: torch.device, phase: Callable[[], str]) -> Reserve | None:
    """The reserve of a guard: one of its own, or one that is there, which is settled by the guard from now on."""
    if wanted is None:
        return None
    if not isinstance(wanted, (str, int)):
        wanted.adopt(phase)
        return wanted
    if device.type != "cuda":
        raise Unsupported(f"a reserve is for a CUDA device, and the model is on {device}", "leave reserve out")
    return Reserve(wanted, device, phase=phase, is_settled_by_steps=False)


_is_observed = False


def _observe() -> None:
    """Has torch say which requests found no memory, not even here."""
    global _is_observed
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if attach is not None and not _is_observed:
        _is_observed = True
        attach(_asked_in_vain)


def _asked_in_vain(device: int, asked: int, _total: int, _free: int) -> None:
    reserve = _open.get(device)
    if reserve is not None and not reserve._is_closed:
        reserve._unserved[torch.cuda.current_stream(device).cuda_stream] = asked
