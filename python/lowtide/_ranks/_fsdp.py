"""FSDP2 (``fully_shard``): what a rank that ran out of memory still owes the others.

Every piece of a step is a sequence of collectives. The first time a piece of a kind runs, it is *checked*: the ranks exchange a
flag before each collective, and all raise together when one of them failed. That also shows the sequence. From then on a rank
that fails takes part in what is left of the sequence, with zeros, while the others finish an attempt that will be undone. Where
the sequence holds collectives that are not FSDP2's own (tensor parallel, experts on several ranks), or changes, it stays checked.

Gradients are reduced after each piece. To keep them whole until the last one would take the memory of all gradients at once,
which is what a rank that cuts its batch does not have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator

import torch
from torch.distributed.fsdp import FullyShardedDataParallel

from .._errors import Unsupported
from .._quiet import quiet
from ._fsdp_checked import Checked, Flags
from ._fsdp_sequence import Buffer, Call, Recorder
from ._fsdp_torch import Sharded
from ._silence import is_sign


class FsdpWalk:
    """A model under FSDP2."""

    name = "FSDP2"
    # Every rank gathers for every piece.
    leaves_out = False
    # To find what overflowed, torch reduces over ranks in the midst of changing gradients: that cannot be tried again.
    scales = False
    is_sharded = True
    # Those of others are checked, too.
    foreign = 0

    def __init__(self, model: torch.nn.Module) -> None:
        self._sharded = Sharded(model)
        self._flags = Flags()
        self._recorder = Recorder(self._sharded.groups, self._seen)
        self._buffer = Buffer(self._sharded.device, self._sharded.largest())
        # The sequences that all ranks have been through, by the kind of piece.
        self._known: dict[Hashable, tuple[Call, ...]] = {}
        self._varying: set[Hashable] = set()
        self._pieces, self._index = 0, 0
        self.collectives = 0
        self._way: Hashable = None
        # What this rank did in the piece that is under way.
        self._calls: list[Call] = []
        self._is_in_piece = False
        self._expected: tuple[Call, ...] | None = None
        self._has_varied: Hashable | None = None
        self._is_called_off = False

    @property
    def aside(self) -> int:
        """Bytes kept for a walk: the largest group of parameters, gathered."""
        return self._buffer.size

    def begin(self, pieces: int, way: Hashable = None) -> None:
        """An attempt at a step begins."""
        if self._has_varied is not None:
            # The step was committed, so every rank has seen it.
            self._varying.add(self._has_varied)
            self._known.pop(self._has_varied, None)
        self._pieces, self._index, self._way = pieces, 0, way
        self.collectives = 0
        self._start_piece(None)
        self._has_varied, self._is_called_off = None, False
        self._sharded.lazy_init()
        if not self._sharded.is_at_rest():
            # What is gathered already would be missing in the sequence.
            with quiet():
                self._sharded.reset()
        self._buffer.take()

    @contextlib.contextmanager
    def piece(self, index: int, pieces: int) -> Iterator[None]:
        """Around forward and backward of a piece."""
        self._index, self._pieces = index, pieces
        kind = self._kind(index)
        known = self._known.get(kind)
        self._start_piece(known)
        self._is_in_piece = True
        self._sharded.reduce_all(is_last=index == pieces - 1)
        if known is not None:
            yield
            if len(self._calls) != len(known):
                self._has_varied = kind
        else:
            yield from self._checked_piece(kind)
        self._index = index + 1
        self._start_piece(None)

    def walk(self) -> None:
        """Takes part in all that remains of the attempt."""
        if self._is_called_off:
            return
        with quiet(), torch.no_grad():
            done = len(self._calls)
            for index in range(self._index, self._pieces):
                known = self._known.get(self._kind(index))
                if known is None:
                    self._is_called_off = True
                    self._flags.call_off()
                    return
                for call in known[done:]:
                    call.repeat(self._buffer)
                done = 0

    def reset(self) -> None:
        """All ranks agreed to undo the step: FSDP2 is as before it."""
        self._has_varied = None
        with quiet():
            self._sharded.reset()

    def end(self) -> None:
        """What follows belongs to no attempt."""
        self._pieces, self._index = 0, 0
        self._start_piece(None)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Around collectives outside of pieces: all ranks come to the end of it, or all raise."""
        self._flags.begin()
        try:
            with Checked(self._flags):
                yield
            self._flags.end()
        except Exception as error:
            if not self._flags.is_called_off and not is_sign(error):
                self._flags.call_off()
            raise

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        yield
        with quiet():
            self._sharded.reset()  # the last batch leaves parameters gathered

    def _checked_piece(self, kind: Hashable) -> Iterator[None]:
        checked = Checked(self._flags)
        try:
            with checked:
                yield
            calls = tuple(self._calls)
            is_own = checked.number == len(calls) and kind not in self._varying
            if is_own:
                self._buffer.grow(max((call.bytes for call in calls), default=0))
            self._flags.end()
        except BaseException:
            self._is_called_off = self._flags.is_called_off
            raise
        if is_own:
            self._known[kind] = calls

    def _kind(self, index: int) -> Hashable:
        """Pieces of one kind have the same collectives."""
        return index == 0, index == self._pieces - 1, self._way, self._sharded.settings()

    def _start_piece(self, expected: tuple[Call, ...] | None) -> None:
        self._calls, self._expected, self._is_in_piece = [], expected, False
        self._flags.begin()

    def _seen(self, call: Call) -> None:
        if not self._is_in_piece:
            return  # an evaluation, say
        expected, number = self._expected, len(self._calls)
        if expected is not None and (number >= len(expected) or call.shape != expected[number].shape):
            self._has_varied = self._kind(self._index)
        self._calls.append(call)
        self.collectives += 1


def find_fsdp(model: torch.nn.Module) -> FsdpWalk | None:
    """The walk of a model that has parts under ``fully_shard``."""
    if any(isinstance(module, FullyShardedDataParallel) for module in model.modules()):
        raise Unsupported(
            "the model is in FullyShardedDataParallel (FSDP1)",
            "use torch.distributed.fsdp.fully_shard (FSDP2), or keep the command alive: lowtide run -- torchrun ...",
        )
    return FsdpWalk(model) if Sharded.has_parts(model) else None
