"""The ranks of a guard: one step on all of them or on none."""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, TypeVar

from .. import _native
from .._errors import BadClosure, LowtideError, OutOfMemory, Unsupported
from .._memory import Reading
from .._way import Failure, Way
from ._agreement import Agreement, Message
from ._silence import Silence, is_sign
from ._walk import Walk

Said = TypeVar("Said")

_PHASES = ("load", "forward", "backward", "optimizer", "eval", "save")
# What ranks do together. Each of their messages says of which it is.
_CALLS = ("the first guard.step", "guard.step", "guard.evaluate", "guard.save", "guard.load")

_HINTS = {
    "guard.save": "a file that was there before is still there; call it again on all ranks",
    "guard.load": "call it again on all ranks, with a file that each of them can read",
}


class Overflow(NamedTuple):
    """The use of a reserve in a step that was computed this way, as the one who decides is told of it."""

    phase: str
    resting: int
    needed: int
    limit: int
    way: int


class Word(NamedTuple):
    """What a rank says of an attempt at a step. A number each, so that it is one message."""

    # What must be the same everywhere.
    step: int
    way: int
    # 0 where all is well, 1 where memory ran out, 2 where another rank was seen to fail.
    failed: int = 0
    phase: int = 0
    samples: int = 0
    targets: int = 0
    foreign: int = 0
    allocated: int = 0
    peak: int = 0
    limit: int = 0
    # Whether the allocator had to empty its cache.
    has_retried: int = 0
    overflow_phase: int = 0
    overflow_resting: int = 0
    overflow_needed: int = 0
    overflow_limit: int = 0
    overflow_way: int = 0
    # For those who watch: what is held from the device, and what the process takes of the host.
    reserved: int = 0
    resident: int = 0


class Verdict(NamedTuple):
    """What all ranks agreed on."""

    failure: Failure | None
    # By which the gradients are to be multiplied, so that they are those of the mean over all targets.
    factor: float = 1.0
    # What came nearest to its limit.
    reading: Reading = Reading()
    limit: int | None = None
    has_retried: bool = False
    overflow: Overflow | None = None
    # What each rank said, in their order.
    words: tuple[Word, ...] = ()


class Ranks:
    """The other ranks, as the guard of one sees them.

    Losses are divided by ``base``, which all ranks know beforehand: the targets of the step before, a rank. The targets of the
    step itself come with the message that ends it, and the gradients are multiplied by what was missing: nothing where every
    step has as many.
    """

    def __init__(self, walk: Walk, timeout: float, folder: Path | None) -> None:
        self.walk = walk
        self._agreement = Agreement(timeout)
        self.rank, self.world = self._agreement.rank, self._agreement.world
        self._silence = Silence(self.rank, self.world, timeout, folder)
        # Also where a guard is dropped without it being closed.
        self._end = weakref.finalize(self, self._silence.close)
        # Samples of the largest batch of any rank.
        self.samples = 0
        # Targets that a rank's loss is divided by.
        self.base = 0.0
        self.is_open = False
        # An error that nobody needs to be told of.
        self._known: LowtideError | None = None
        # What is told with the next message of a step, or of an evaluation.
        self.overflows: dict[str, Overflow] = {}

    def close(self) -> None:
        """There will be no more steps."""
        self._end()

    def report(self) -> str:
        """Who they are, and what that takes."""
        kept = f", {_native.shown_bytes(self.walk.aside)} of each kept for errors" if self.walk.aside else ""
        return f"{self.world} ranks of {self.walk.name}{kept}"

    # A step.

    def open(self, samples: int, targets: int, step: int, settings: dict[str, int]) -> None:
        """Before the first step: compares what the guards were given, and learns how large batches are."""
        settings = {"step": step, **settings}
        self._silence.begin("its first step")
        rows = self._received(self._sent("the first guard.step", [samples, targets, *settings.values()]))
        for index, name in enumerate(settings, 2):
            values = [row[index] for row in rows]
            other = next((rank for rank, value in enumerate(values) if value != values[0]), None)
            if other is not None:
                self._silence.end()
                raise LowtideError(
                    f"rank 0 has {name}={values[0]}, and rank {other} has {name}={values[other]}",
                    "give the guards of all ranks the same arguments",
                )
        self.samples = max(self.samples, *(row[0] for row in rows))
        # A checkpoint has what an unbroken run would know by now.
        self.base = self.base or sum(row[1] for row in rows) / self.world or 1.0
        self.is_open = True
        self._silence.end()

    def number_of_pieces(self, micro_batch: int) -> int:
        """The same on all ranks."""
        return math.ceil(self.samples / micro_batch)

    def begin(self, step: int, pieces: int, way: Hashable) -> None:
        """An attempt begins."""
        self._silence.begin(f"step {step + 1}")
        self.walk.begin(pieces, way)

    def piece(self, index: int, pieces: int) -> AbstractContextManager[None]:
        return self.walk.piece(index, pieces)

    def together(self, work: Callable[[], Said]) -> Said:
        """Does what all ranks do now, outside of pieces: it succeeds on all of them, or raises on all."""
        with self.walk.together():
            return work()

    def walk_on(self) -> None:
        """This rank failed: the others must not wait for it."""
        self._silence.place += f" (walking, collective {self.walk.collectives})"
        self.walk.walk()

    def send(self, word: Word, call: str = "guard.step") -> Message:
        """Says how it went, without waiting."""
        overflow = self.overflows.get(call)
        if overflow is not None:
            word = word._replace(
                overflow_phase=_PHASES.index(overflow.phase),
                overflow_resting=overflow.resting,
                overflow_needed=overflow.needed,
                overflow_limit=overflow.limit,
                overflow_way=overflow.way,
            )
        return self._sent(call, list(word))

    def verdict(self, message: Message, failure: Failure | None) -> Verdict:
        """Waits for the others' words. After a failure of any rank, all have rolled back what torch itself holds."""
        words = self._words(message)
        self.overflows.pop("guard.step", None)
        told = self._outcome(words, failure)
        if told is not None:
            return Verdict(told)
        foreign = next((rank for rank, word in enumerate(words) if word.foreign), None)
        if foreign is not None:
            raise Unsupported(
                f"rank {foreign} ran {words[foreign].foreign:+} collectives in a step that are not {self.walk.name}'s",
                "call no collectives in the closure; keep models with their own alive by: lowtide run",
            )
        return self._committed(words)

    # An evaluation.

    def next_batch(self, word: Word) -> tuple[int, Overflow | None]:
        """Before a batch: samples of the largest one that a rank has, 0 where none has any; and what overflowed before.

        A rank without one tells in ``targets`` whether it has an old one to run once more, for the others' sake.
        """
        self._silence.begin(f"an evaluation after step {word.step}")
        words = self._words(self.send(word, "guard.evaluate"))
        self.overflows.pop("guard.evaluate", None)
        self._silence.end()
        largest = max(one.samples for one in words)
        bare = next((rank for rank, one in enumerate(words) if not one.samples and not one.targets), None)
        if largest and bare is not None:
            raise self._agreed(
                f"rank {bare} has no batch to evaluate, and under {self.walk.name} all ranks compute together",
                "give every rank at least one batch",
            )
        return largest, _overflow(words)

    def begin_evaluation(self, step: int, pieces: int) -> None:
        """An attempt at a batch begins."""
        self._silence.begin(f"an evaluation after step {step}")
        self.walk.begin(pieces, "evaluation")

    def evaluated(self, word: Word, failure: Failure | None) -> Failure | None:
        """The failure of an attempt at a batch, on any rank."""
        return self._outcome(self._words(self.send(word, "guard.evaluate")), failure)

    # Checkpoints.

    def done(self, call: str, failure: Failure | None, error: Exception | None) -> Failure | None:
        """After work of all ranks: the failure of one whose memory ran out. An error of another kind is raised on all of them."""
        status = 2 if error is not None else 1 if failure is not None and not failure.is_peer else 0
        self._silence.begin(self._silence.place)
        rows = self._received(self._sent(call, [status, int(failure is not None)]))
        self._silence.end()
        if not any(row[0] or row[1] for row in rows):
            return None
        text = _words_of(error) if error is not None else failure.message if failure is not None else ""
        texts = self._talk(lambda: self._agreement.texts(text))
        wrong = next((rank for rank, row in enumerate(rows) if row[0] == 2), None)
        if wrong is not None:
            raise self._agreed(f"{call} failed on rank {wrong}: {texts[wrong]}", _HINTS[call]) from error
        first = next((rank for rank, row in enumerate(rows) if row[0] == 1), 0)
        return Failure("save" if call == "guard.save" else "load", f"rank {first}: {texts[first]}", rank=first)

    @contextlib.contextmanager
    def waiting(self, place: str) -> Iterator[None]:
        """Around work of all ranks: one that is lost is named. A large file may take longer than a rank may be silent, so that time
        counts only where a rank is through with its part."""
        with self.held():
            self._silence.place = place
            yield

    def first_says(self, text: str) -> str:
        """A short text of the first rank, on all."""
        return self._talk(lambda: self._agreement.texts(text))[0]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Around a step: an error that ends it is told to the others, and one of theirs names the rank that is lost."""
        try:
            yield
        except BaseException as error:
            if is_sign(error):
                raise self._silence.lost(f"{type(error).__name__}: {error}") from None
            if isinstance(error, OutOfMemory) or error is self._known:
                self._silence.end()
            else:
                self._silence.announce(error)
            raise

    def _agreed(self, message: str, hint: str) -> LowtideError:
        """An error that all ranks raise, and after which they may go on: to be raised."""
        self._known = LowtideError(message, hint)
        return self._known

    def _committed(self, words: list[Word]) -> Verdict:
        targets = sum(word.targets for word in words)
        if targets <= 0:
            raise BadClosure("count found nothing in the batches of all ranks", "leave such batches out")
        self.samples = max(self.samples, *(word.samples for word in words))
        base, self.base = self.base, targets / self.world
        tightest = max(words, key=lambda word: word.peak / word.limit if word.limit else 0.0)
        return Verdict(
            None,
            1.0 if base == self.base else base / self.base,
            Reading(allocated=tightest.allocated, peak=tightest.peak),
            tightest.limit or None,
            any(word.has_retried for word in words),
            _overflow(words),
            tuple(words),
        )

    def _words(self, message: Message) -> list[Word]:
        words = [Word(*row[: len(Word._fields)]) for row in self._received(message)]
        self._compare(words)
        return words

    def _outcome(self, words: list[Word], failure: Failure | None) -> Failure | None:
        """The failure of an attempt. After one, what torch itself holds is rolled back."""
        failed = [rank for rank, word in enumerate(words) if word.failed]
        told = self._failure(words, failed, failure) if failed else None
        if failed:
            self.walk.reset()
        self._finish()
        return told

    def _failure(self, words: list[Word], failed: list[int], failure: Failure | None) -> Failure:
        """The failure as all ranks tell it: that of the first rank whose memory ran out."""
        texts = self._talk(lambda: self._agreement.texts(failure.message if failure is not None else ""))
        first = next((rank for rank in failed if words[rank].failed == 1), failed[0])
        others = "".join(f"; rank {rank} too" for rank in failed if rank != first and words[rank].failed == 1)
        return Failure(_PHASES[words[first].phase], f"rank {first}: {texts[first]}{others}", rank=first)

    def _compare(self, words: list[Word]) -> None:
        for rank, word in enumerate(words):
            if (word.step, word.way) != (words[0].step, words[0].way):
                self._silence.end()
                raise LowtideError(
                    f"rank 0 is in step {words[0].step + 1}, and rank {rank} in step {word.step + 1}, or computes it otherwise",
                    "all ranks must call guard.step equally often, and load the same checkpoint",
                )

    def _finish(self) -> None:
        self.walk.end()
        self._silence.end()

    # State.

    def state_dict(self) -> dict[str, float]:
        return {"samples": self.samples, "base": self.base}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.samples, self.base = int(state["samples"]), state["base"]

    # Messages.

    def _sent(self, call: str, numbers: list[int]) -> Message:
        return self._talk(lambda: self._agreement.send([_CALLS.index(call), *numbers]))

    def _received(self, message: Message) -> list[list[int]]:
        """What each rank says, where all of them do the same."""
        rows = self._talk(message.wait)
        for rank, row in enumerate(rows):
            if row[0] != rows[0][0]:
                self._silence.end()
                raise LowtideError(
                    f"rank 0 is in {_CALLS[rows[0][0]]}, and rank {rank} in {_CALLS[row[0]]}",
                    "all ranks must call the guard's methods equally often, in the same order",
                )
        return [row[1:] for row in rows]

    def _talk(self, speak: Callable[[], Said]) -> Said:
        try:
            return speak()
        except RuntimeError as error:
            raise self._silence.lost(f"the agreement failed: {error}") from None


def _overflow(words: list[Word]) -> Overflow | None:
    """What overflowed. It is told with the step that follows: where that one is computed otherwise, it has been answered."""
    word = next((word for word in words if word.overflow_limit and word.overflow_way == word.way), None)
    if word is None:
        return None
    return Overflow(
        _PHASES[word.overflow_phase],
        word.overflow_resting,
        word.overflow_needed,
        word.overflow_limit,
        word.overflow_way,
    )


def _words_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\nhint:")[0]


def word_of(step: int, way: Way, failure: Failure | None) -> Word:
    """How an attempt went, without what was counted in it."""
    failed = 0 if failure is None else 2 if failure.is_peer else 1
    phase = _PHASES.index(failure.phase) if failure is not None else 0
    return Word(step, number_of(way), failed, phase)


def number_of(way: Way) -> int:
    """A number that two ways share only where they are the same."""
    bits = way.micro_batch
    for part in way[1:]:
        bits = bits * 64 + int(part)
    return bits
