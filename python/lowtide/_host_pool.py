"""A pool of pinned host memory that torch's allocator falls back on when a device is full."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from . import _native
from ._errors import Unsupported
from ._pinned import Pinned, pieces_of

# Bytes on the device for requests of up to 1 MiB, which a pool keeps apart from larger ones.
_SMALL = 16 << 20
_SMALL_BLOCK = 1 << 20


class HostPool:
    """Pinned memory in a pool of torch's, so much for each stream, and the marks in what of it is free."""

    def __init__(self, device: torch.device, sizes: Mapping[torch.cuda.Stream, int], version: tuple[int, ...]) -> None:
        self._device = device
        self._version = version
        self._streams = {stream.cuda_stream: stream for stream in sizes}
        self._pinned = Pinned(sum(sizes.values()), device)
        try:
            self._fill({stream: pieces_of(size) for stream, size in sizes.items()})
        except BaseException:
            self._pinned.free()
            raise

    def serves(self, stream: int) -> bool:
        """Whether there is memory for a stream."""
        return stream in self._streams

    def taken(self) -> int:
        """Bytes of it that tensors hold."""
        return sum(block["size"] for block in self._blocks() if block["state"] != "inactive")

    def mark(self) -> None:
        """Sets new marks in all of it that is free, once the GPU is done with what was there."""
        with self._free_blocks() as blocks:
            torch.cuda.synchronize(self._device)
            self.region.mark([(one.data_ptr(), one.nbytes) for one in blocks if self.region.holds(one.data_ptr())])

    def close(self) -> bool:
        """Gives the memory back, unless tensors hold some of it. Gives whether it did."""
        is_free = self.taken() == 0
        if is_free:
            # Its segments are given back when it is gone.
            del self._pool, self._small_pool
        self.region.close()
        if not is_free or self.region.is_taken:
            return False
        self._pinned.free()
        return True

    def _fill(self, pieces: Mapping[torch.cuda.Stream, list[int]]) -> None:
        flat = [one for several in pieces.values() for one in several]
        self.region = _native.HostRegion(self._pinned.address, flat, self._device.index)
        self._functions = torch.cuda.memory.CUDAPluggableAllocator(
            _native.__file__, "lowtide_reserve_take", "lowtide_reserve_give_back"
        )
        self._pool = torch.cuda.MemPool(self._functions.allocator(), use_on_oom=True)
        self._small_pool = torch.cuda.MemPool(use_on_oom=True)
        small = [_SMALL_BLOCK] * (_SMALL // _SMALL_BLOCK // len(pieces))
        held: list[torch.Tensor] = []
        try:
            for stream, several in pieces.items():
                held += self._made(self._pool, stream, several)
                held += self._made(self._small_pool, stream, small)
        except torch.OutOfMemoryError as error:
            held.clear()
            self.region.close()
            raise Unsupported(
                f"torch did not take the reserve: {error}",
                "a limit or roundup_power2_divisions of the allocator may be in the way",
            ) from None
        torch.cuda.synchronize(self._device)
        self.region.mark([(one.data_ptr(), one.nbytes) for one in held if self.region.holds(one.data_ptr())])

    def _made(self, pool: torch.cuda.MemPool, stream: torch.cuda.Stream, sizes: list[int]) -> list[torch.Tensor]:
        device = self._device
        with torch.cuda.device(device), torch.cuda.stream(stream), torch.cuda.use_mem_pool(pool, device):
            return [torch.empty(size, dtype=torch.uint8, device=device) for size in sizes]

    def _blocks(self) -> list[dict[str, Any]]:
        # Since 2.11 the history of allocations, which can be long, can be left out.
        more = {"include_traces": False} if self._version >= (2, 11) else {}
        segments = torch.cuda.memory_snapshot(self._pool.id, **more)
        own = [one for one in segments if one["device"] == self._device.index]
        return [block | {"stream": one["stream"]} for one in own for block in one["blocks"]]

    @contextlib.contextmanager
    def _free_blocks(self) -> Iterator[list[torch.Tensor]]:
        """The free blocks as tensors, so that nobody gets them meanwhile."""
        free = [block for block in self._blocks() if block["state"] == "inactive" and block["size"] > _SMALL_BLOCK]
        held: list[torch.Tensor] = []
        for block in sorted(free, key=lambda one: -int(one["size"])):
            # One that somebody else got meanwhile stays without marks.
            with contextlib.suppress(torch.OutOfMemoryError):
                held += self._made(self._pool, self._streams[block["stream"]], [block["size"]])
        yield held
        held.clear()
