"""What the guard asks of a way to train on several ranks."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AbstractContextManager
from typing import Protocol


class Walk(Protocol):
    """The collectives of a step, and how a rank that ran out of memory takes part in the rest of them.

    Other ranks wait in a collective until all have come. A rank whose step failed therefore walks on: it sends zeros for
    everything that it has not sent yet, so that the others come to the end of a step that is undone on all of them.
    """

    # How people call it.
    name: str
    # Whether a loss scale works with it.
    scales: bool
    # Whether each rank holds only a part of the weights.
    is_sharded: bool

    def begin(self, pieces: int, way: Hashable = None) -> None:
        """An attempt at a step begins, on all ranks, before anything of it can fail: forgets the count of collectives."""

    def piece(self, index: int, pieces: int) -> AbstractContextManager[None]:
        """Around forward and backward of one piece."""

    def walk(self) -> None:
        """This rank failed and its graph is gone: takes part in all collectives that remain of the attempt, with zeros."""

    def reset(self) -> None:
        """All ranks roll back: puts torch's own state right."""

    def end(self) -> None:
        """All ranks agreed on the outcome: what follows is no longer part of the attempt."""

    def together(self) -> AbstractContextManager[None]:
        """Around work of all ranks outside of pieces, which may hold collectives: all come to its end, or all raise."""

    def evaluating(self) -> AbstractContextManager[None]:
        """Around an evaluation: without collectives where each rank has all weights."""

    @property
    def leaves_out(self) -> bool:
        """Whether a rank may leave out pieces in which nothing is counted, although others run theirs."""

    @property
    def collectives(self) -> int:
        """Collectives that this rank has begun since ``begin``."""

    @property
    def foreign(self) -> int:
        """Collectives of a finished attempt that are not known here: somebody else's, whom nobody would walk for."""

    @property
    def aside(self) -> int:
        """Bytes of the device that this rank keeps for ``walk``."""
