"""Files of samples and tensors: reading them without executing anything, and packing them into shards."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from . import _native
from ._errors import BadLimit, LowtideError

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
Progress = Callable[[str, int, int], Any]

# Seconds after which packing shows how far it is.
_PATIENCE = 1.0


@dataclass(frozen=True)
class Packed:
    """What a packed folder holds."""

    samples: int
    shards: int
    bytes: int
    sources: int
    source_bytes: int
    ids: int
    duplicate_ids: int
    left_out: list[tuple[str, str]]
    verified: int | None


def pack(
    source: Paths,
    out: str | os.PathLike[str],
    *,
    shard_size: str | int = "32MiB",
    compress: bool | int = False,
    scores: str | os.PathLike[str] | None = None,
    allow_missing: bool = False,
    skip_damaged: bool = False,
    decode_limit: str | int | None = None,
    restart: bool = False,
    verify: bool = False,
    progress: bool | Progress | None = None,
) -> Packed:
    """Packs data files into a folder of shards, which ``lowtide.Feed`` reads faster and under any memory limit.

    ::

        lowtide.pack("data/train", "packed")
        lowtide.pack(["one.pt", "two.npz"], "packed", compress=True)

    The same as the command ``lowtide pack``. Interrupted in whatever way, the same call goes on behind the last whole shard and
    ends with the same bytes.

    Args:
        source: a data file, a folder of them, or a list of both, in the order in which their samples shall stand.
        out: the folder for the shards: a new one, an empty one, or one that was begun by the same call.
        shard_size: a shard ends with the sample that brings it to this size.
        compress: whether every sample is compressed with zstd: at level 3, or at the level that is given.
        scores: a table with the columns ``id`` and ``score``; each sample gets its score as the field ``scores``.
        allow_missing: whether samples without a score, and scores without a sample, are let through.
        skip_damaged: whether files that cannot be read are left out; ``left_out`` then names them.
        decode_limit: what a source may decode to; 256 MiB by default, or 64 times its size where that is more.
        restart: whether the shards of an earlier call are deleted.
        verify: whether all samples are read again in the end and compared with their sources.
        progress: a function that is called with what is being done, the bytes that are done, and all bytes; ``False`` for
            none. By default a line on the terminal, where there is one and it takes longer than a second.
    """
    sources = [os.fspath(source)] if isinstance(source, (str, os.PathLike)) else [os.fspath(path) for path in source]
    if not sources:
        raise LowtideError("there is nothing to pack", "give a file, a folder, or a list of them")
    level = 3 if compress is True else compress or None
    if level is not None and not 1 <= level <= 22:
        raise LowtideError(f"there is no level {level} of zstd", "levels are 1 to 22")
    line = _Line() if progress is None and sys.stderr.isatty() else None
    shown = progress if callable(progress) else line
    try:
        facts = _native.pack(
            sources,
            os.fspath(out),
            shard_bytes=_size(shard_size),
            level=level,
            scores=None if scores is None else os.fspath(scores),
            allow_missing=allow_missing,
            skip_damaged=skip_damaged,
            decode_bytes=None if decode_limit is None else _size(decode_limit),
            restart=restart,
            verify=verify,
            progress=shown,
        )
    finally:
        if line is not None:
            line.clear()
    facts["left_out"] = [(os.fspath(path), reason) for path, reason in facts["left_out"]]
    return Packed(**facts)


def open(
    path: str | os.PathLike[str],
    *,
    objects: Literal["refuse", "dict"] = "refuse",
    decode_limit: str | int | None = None,
) -> Any:
    """Reads a ``.pt``, ``.npy``, ``.npz``, ``.safetensors`` or pickle file without executing anything that is in it.

    ::

        state = lowtide.open("checkpoint.pt")
        state["model"]["weight"]                 # a tensor of torch, in host memory

    Gives the dicts, lists, tuples and plain values that were saved, with tensors of torch for tensors and for arrays of
    numpy. An ``OrderedDict`` comes as a dict and a named tuple as a tuple. Tensors that shared memory have their own here.
    What is no data, such as an object of a class, is an exception that names it and its place.

    Args:
        path: the file; its first bytes say what it is, whatever its name.
        objects: ``"dict"`` gives the attributes of objects as dicts instead of refusing them.
        decode_limit: what the file may decode to; 256 MiB by default, or 64 times its size where that is more.
    """
    if objects not in ("refuse", "dict"):
        raise LowtideError(f"objects is {objects!r}", 'give "refuse" or "dict"')
    limit = None if decode_limit is None else _size(decode_limit)
    return _native.open_tree(os.fspath(path), _Make(), objects=objects, decode_bytes=limit)


class _Make:
    """Makes values of torch."""

    def __init__(self) -> None:
        import torch

        from ._feed import tensor_of

        self._torch, self.tensor = torch, tensor_of

    def named(self, kind: str, value: Any) -> Any:
        if kind == "size":
            return self._torch.Size(value)
        return self._torch.device(value) if kind == "device" else getattr(self._torch, value)


class _Line:
    """A line on the terminal."""

    def __init__(self) -> None:
        self._begun, self._is_shown = time.monotonic(), False

    def __call__(self, stage: str, done: int, total: int) -> None:
        if time.monotonic() - self._begun < _PATIENCE:
            return
        self._is_shown = True
        shown = f"{_native.shown_bytes(done)} of {_native.shown_bytes(total)}"
        sys.stderr.write(f"\r\x1b[K{stage}: {shown}")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")


def _size(size: str | int) -> int:
    if isinstance(size, int):
        found: int | None = size
    else:
        try:
            found = _native.limit_bytes(size, 1 << 62) if "%" not in size else None
        except ValueError as error:
            raise BadLimit(str(error), 'give it as "32MiB"') from None
    if found is None or found < 1:
        raise BadLimit(f"{size!r} is no size", 'give it as "32MiB"')
    return found
