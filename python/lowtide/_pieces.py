"""A batch, computed in pieces whose gradients add up to those of the whole."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch

from . import _batch, _compiled
from ._checks import Count, blocks_of, counted_in
from ._errors import BadClosure
from ._recompute import Recompute
from ._way import Way


class Piece(NamedTuple):
    """A part of a batch. The mean loss of the batch is the sum of its pieces' mean losses times their weights."""

    part: Any
    samples: int
    # None where it is 1.
    weight: float | None
    is_whole: bool = False


class Pieces:
    """How batches are cut, and what a piece is computed in."""

    def __init__(
        self,
        model: torch.nn.Module,
        device: torch.device,
        cut: _batch.Cut | None,
        size: _batch.Size | None,
        recompute: bool | Iterable[torch.nn.Module],
    ) -> None:
        if (cut is None) != (size is None):
            raise BadClosure("cut and size go together", "give both, or none")
        self.cut, self.size = cut or _batch.part, size or _batch.samples
        self.recompute = Recompute(blocks_of(model, recompute))
        self.programs = _compiled.Programs(model)
        self.device = device

    def of(self, batch: Any, samples: int, way: Way, count: Count | None) -> Iterator[Piece]:
        """The pieces of a batch, one after the other; those in which nothing has a loss are left out."""
        self.recompute.set(way.recompute)
        if samples <= way.micro_batch:
            yield Piece(batch, samples, None, is_whole=True)
            return
        spans = list(spans_of(samples, way.micro_batch))
        parts = [self.cut(batch, *span) for span in spans]
        counts = [counted_in(part, count, stop - start) for part, (start, stop) in zip(parts, spans)]
        total = sum(counts)
        for index, ((start, stop), counted) in enumerate(zip(spans, counts)):
            part, parts[index] = parts[index], None
            if counted:  # the mean over nothing is not a number
                yield Piece(part, stop - start, counted / total)

    def of_rank(
        self, batch: Any, samples: int, way: Way, count: Count | None, number: int, base: float, leaves_out: bool
    ) -> tuple[int, list[Callable[[], Piece]]]:
        """The pieces of a rank's batch, of which there are as many on every rank, and what is counted in all of them.

        Weights are parts of ``base``, which all ranks divide by.
        """
        self.recompute.set(way.recompute)
        if number == 1:
            counted = counted_in(batch, count, samples)
            return counted, [lambda: Piece(batch, samples, _weight(counted, base), is_whole=True)]
        spans = list(spans_of(samples, way.micro_batch))
        if len(spans) != number:
            spans = [(index * samples // number, (index + 1) * samples // number) for index in range(number)]
        counts = [
            counted_in(self.cut(batch, start, stop), count, stop - start) if start < stop else 0
            for start, stop in spans
        ]
        chosen = [index for index in range(number) if counts[index] or not leaves_out] or [0]

        def made(index: int) -> Piece:
            # Where there are fewer samples than pieces, or none with a target, others are computed again and count for nothing.
            full = next((one for one in [index, *chosen] if counts[one]), index)
            start, stop = spans[full] if spans[full][0] < spans[full][1] else (0, 1)
            return Piece(self.cut(batch, start, stop), stop - start, _weight(counts[index], base))

        return sum(counts), [functools.partial(made, index) for index in chosen]

    @contextlib.contextmanager
    def around(self, piece: Piece, way: Way) -> Iterator[None]:
        """Around the forward pass of a piece: where saved tensors are kept, and which program runs."""
        with (
            self._saving(way),
            self.programs.around(
                piece.part,
                piece.samples,
                is_whole=piece.is_whole,
                eager=way.eager,
                settled=way.settled and not piece.is_whole,
            ),
        ):
            yield

    def _saving(self, way: Way) -> contextlib.AbstractContextManager[Any]:
        """Where the tensors that backward needs are kept."""
        if not way.offload:
            return contextlib.nullcontext()
        return torch.autograd.graph.save_on_cpu(pin_memory=self.device.type == "cuda")


def _weight(counted: int, base: float) -> float | None:
    return None if counted == base else counted / base


def spans_of(samples: int, size: int) -> Iterator[tuple[int, int]]:
    """Where pieces of at most a size begin and end: as few as can be, as equal as can be, the larger first."""
    number = -(-samples // size)
    start = 0
    for index in range(number):
        stop = start + samples // number + (index < samples % number)
        yield start, stop
        start = stop
