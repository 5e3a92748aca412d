"""How a step is computed, and how one fails."""

from __future__ import annotations

from typing import NamedTuple


class Way(NamedTuple):
    """How a step is computed."""

    micro_batch: int
    recompute: int = 0
    offload: int = 0
    # Not by a compiled program, although there are some.
    eager: bool = False
    # By a program that is compiled for pieces of this size alone.
    settled: bool = False


class Failure(NamedTuple):
    """Memory ran out."""

    phase: str
    message: str
    # Not here: another rank was seen to run out.
    is_peer: bool = False
    # The rank whose memory ran out, where there are several.
    rank: int | None = None
