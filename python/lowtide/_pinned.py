"""Pinned memory of the host, and what stands in the way of a reserve in it."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import threading

import torch

from . import _native
from ._errors import BadLimit, Unsupported

_PAGE = 2 << 20
# The least that torch asks a pool for at a time when a tensor is large.
_LEAST = 20 << 20
# What is left for the machine: a share of its memory.
_LEFT = 0.05
# For all contexts of the process, and mapped for the device.
_PORTABLE_AND_MAPPED = 3


class Pinned:
    """Pages of the host that stay where they are, so that a GPU can use them."""

    def __init__(self, size: int, device: torch.device) -> None:
        shown = _native.shown_bytes
        with torch.cuda.device(device):
            # There must be a context to pin memory for.
            torch.zeros(1, device=device)
        try:
            self._driver = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise Unsupported(f"CUDA's driver cannot be opened: {error}", "check nvidia-smi") from None
        self._pages = mmap.mmap(-1, size + _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # After a fork, a page that both have would be copied for whoever writes first, and the GPU would keep the other one.
        self._pages.madvise(mmap.MADV_DONTFORK)
        with contextlib.suppress(AttributeError, OSError):
            self._pages.madvise(mmap.MADV_HUGEPAGE)
        first = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        self.address: int = -(-first // _PAGE) * _PAGE
        _touch(self.address, size)
        code = self._driver.cuMemHostRegister_v2(
            ctypes.c_void_p(self.address), ctypes.c_size_t(size), _PORTABLE_AND_MAPPED
        )
        if code != 0:
            raise BadLimit(
                f"{shown(size)} of host memory could not be pinned: CUDA's error {code}", "take a smaller reserve"
            )

    def free(self) -> None:
        self._driver.cuMemHostUnregister(ctypes.c_void_p(self.address))
        self._pages.close()


def _touch(address: int, size: int) -> None:
    """Has the system give the pages, by several threads: one after the other takes the driver six times as long."""
    count = max(1, min(8, os.cpu_count() or 1))
    part = -(-size // count // _PAGE) * _PAGE
    spans = [(start, min(part, size - start)) for start in range(0, size, part)]
    threads = [
        threading.Thread(target=ctypes.memset, args=(address + start, 0, length), daemon=True)
        for start, length in spans
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def size_of(size: str | int, total: int) -> int:
    """The bytes of a reserve, in whole pages."""
    try:
        # A share is one of the device; a size may be more than the device has.
        bytes_ = size if isinstance(size, int) else _native.limit_bytes(size, total if "%" in size else 1 << 60)
    except ValueError as error:
        raise BadLimit(str(error)) from None
    if bytes_ is None or bytes_ < _LEAST:
        raise BadLimit(f"a reserve of {size}", f"take at least {_native.shown_bytes(_LEAST)}, as 4GiB")
    return -(-bytes_ // _PAGE) * _PAGE


def pieces_of(size: int) -> list[int]:
    """The segments in which torch gets it: one, unless ``max_split_size_mb`` forbids to cut one as large as that."""
    most = _settings().get("max_split_size", -1)
    if most <= 0 or size < most:
        return [size]
    piece = (most - 1) // _PAGE * _PAGE
    count, rest = divmod(size, piece)
    return [piece] * count + ([rest] if rest >= _LEAST else [])


def refuse_too_much(size: int) -> None:
    """Says how much host memory there is, where there is too little."""
    room = _native.host_room()
    if room is None:
        return
    shown = _native.shown_bytes
    most = max(room[0] - int(room[1] * _LEFT), 0)
    if size > most:
        raise BadLimit(
            f"a reserve of {shown(size)} does not fit: {shown(room[0])} of {shown(room[1])} of host memory are free",
            f"take one of at most {shown(most)}; each process has its own",
        )


def refuse_here() -> tuple[int, ...]:
    """Says why there can be no reserve, where there can be none; else the version of torch."""
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2] if part.isdigit())
    if version < (2, 8):
        raise Unsupported(f"torch {torch.__version__} falls back on no pool", "a reserve needs torch 2.8 or newer")
    if not torch.cuda.is_available():
        raise Unsupported(
            "a reserve needs a CUDA device, and torch sees none", "check nvidia-smi and torch.cuda.is_available()"
        )
    if torch.version.cuda is None:
        raise Unsupported("a reserve needs CUDA, and this is a build of torch for another kind of device", "")
    backend = torch.cuda.get_allocator_backend()
    if backend != "native" or os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        raise Unsupported(
            "a reserve needs torch's own caching allocator",
            "leave out backend:cudaMallocAsync and PYTORCH_NO_CUDA_MEMORY_CACHING",
        )
    if version < (2, 10) and _settings().get("expandable_segments"):
        raise Unsupported(
            f"torch {torch.__version__} has no pools of other memory beside expandable_segments:True",
            "leave that out, or use torch 2.10",
        )
    return version


def _settings() -> dict[str, int]:
    settings: dict[str, int] = torch.cuda.memory._snapshot()["allocator_settings"]
    return settings
