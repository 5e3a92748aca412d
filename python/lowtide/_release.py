"""Whether cached blocks are released after a step that used the reserve."""

from __future__ import annotations

from statistics import median

# Steps of each way that are timed before one is taken.
TRIES = 3
# Steps after which both are timed anew: batches and models change.
AGAIN = 500
# Where nothing is to be released, one step in so many is looked at: the look waits for the GPU and asks the allocator.
EVERY = 8


class Release:
    """Times steps after a release and steps without one, and takes what is faster.

    Blocks that a step has left are in the way of the next one, which then lies in host memory where it need not: on an H200 a step that
    needed 1.5 times the card took half as long after a release. A step that needs little more than the card finds its blocks again, and
    loses a tenth by asking the driver for new ones.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._seconds: dict[bool, list[float]] = {True: [], False: []}
        self._steps = 0
        self._is_releasing = True
        self._since: float | None = None
        self._not_looked = 0

    def is_due(self) -> bool:
        """Whether to look after this step."""
        self._not_looked += 1
        if self._is_decided() and not self._is_releasing and self._not_looked < EVERY:
            return False
        self._not_looked = 0
        return True

    def after_overflow(self, now: float) -> bool:
        """Whether to release after a step that used the reserve and ended ``now``."""
        if self._since is not None and len(self._seconds[self._is_releasing]) < TRIES:
            self._seconds[self._is_releasing].append(now - self._since)
        self._steps += 1
        if self._steps > AGAIN:
            self._begin()
        self._since = now
        self._is_releasing = self._choice()
        return self._is_releasing

    def after_other(self) -> None:
        """A step did not use the reserve: what it took says nothing."""
        self._since = None
        # It costs nothing as long as nothing is found, and then the first time is found at once.
        self._not_looked = EVERY

    def _is_decided(self) -> bool:
        return all(len(seconds) >= TRIES for seconds in self._seconds.values())

    def _choice(self) -> bool:
        for choice, seconds in self._seconds.items():
            if len(seconds) < TRIES:
                return choice
        return median(self._seconds[True]) <= median(self._seconds[False])
