"""The loss over batches, without gradients: what does not fit is computed in pieces."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from ._checks import Count, check_loss, counted_in
from ._errors import CannotCut
from ._pieces import Piece, spans_of
from ._ranks import Ranks, word_of
from ._ranks._ranks import Word, number_of
from ._recovery import Recovery, Trial
from ._undo import RandomState
from ._way import Way

_HINT = "evaluate fewer or shorter samples at once"
_NONE = object()


class Sum(NamedTuple):
    """Losses, each times what it is the mean of."""

    total: float = 0.0
    weight: int = 0
    batches: int = 0

    def plus(self, total: float, weight: int, batches: int = 1) -> Sum:
        return Sum(self.total + total, self.weight + weight, self.batches + batches)


class Evaluation:
    """One evaluation."""

    def __init__(
        self,
        recovery: Recovery,
        closure: Callable[[Any], torch.Tensor],
        count: Count | None,
        autocast: contextlib.AbstractContextManager[Any],
    ) -> None:
        self._recovery, self._closure, self._count, self._autocast = recovery, closure, count, autocast

    def of(self, batches: Iterable[Any]) -> Sum:
        """The losses of this rank's batches. Ranks compute alone, unless each has only a part of the weights."""
        ranks = self._recovery.ranks
        if ranks is None:
            return self._alone(batches)
        with ranks.walk.evaluating():
            if not ranks.walk.is_sharded:
                return self._alone(batches)
            with ranks.held():
                return self._together(ranks, batches)

    # By itself.

    def _alone(self, batches: Iterable[Any]) -> Sum:
        found = Sum()
        for batch in batches:
            found = found.plus(*self._one(batch))
        return found

    def _one(self, batch: Any) -> tuple[float, int]:
        recovery = self._recovery
        samples = recovery.pieces.size(batch)
        decider = recovery.ready_to_evaluate(samples)
        numbers = RandomState()
        while True:
            size = min(decider.eval_micro_batch, samples)
            recovery.phase = "eval"
            with Trial(recovery) as trial:
                found = self._in_pieces(batch, samples, size)
                self._look_for_overflow()
                return found
            assert trial.failure is not None
            recovery.answer_eval(trial.failure, numbers, _HINT)

    def _in_pieces(self, batch: Any, samples: int, size: int) -> tuple[float, int]:
        pieces = self._recovery.pieces
        total, weight = 0.0, 0
        for start, stop in spans_of(samples, size):
            is_whole = size == samples
            part = batch if is_whole else pieces.cut(batch, start, stop)
            counted = counted_in(part, self._count, stop - start)
            if counted == 0:
                continue
            total += self._loss(Piece(part, stop - start, None, is_whole), size) * counted
            weight += counted
        return total, weight

    # With all other ranks.

    def _together(self, ranks: Ranks, batches: Iterable[Any]) -> Sum:
        """A rank with fewer batches than others runs its last one again, which then counts for nothing."""
        recovery = self._recovery
        found, batch = Sum(), _NONE
        waiting = iter(batches)
        while True:
            following = next(waiting, _NONE)
            samples = self._samples(following)
            size = recovery.eval_decider.eval_micro_batch if recovery.eval_decider is not None else 0
            word = Word(recovery.step, number_of(Way(size)), samples=samples, targets=int(batch is not _NONE))
            largest, overflow = ranks.next_batch(word)
            recovery.hear_overflow(recovery.eval_decider, overflow)
            if largest == 0:
                return found
            if following is not _NONE:
                batch = following
            total, weight = self._one_together(ranks, batch, samples, largest)
            if following is not _NONE:
                found = found.plus(total, weight)

    def _samples(self, batch: Any) -> int:
        if batch is _NONE:
            return 0
        samples = self._recovery.pieces.size(batch)
        if samples < 1:
            raise CannotCut("a batch without samples", "leave it out")
        return samples

    def _one_together(self, ranks: Ranks, batch: Any, samples: int, largest: int) -> tuple[float, int]:
        recovery = self._recovery
        decider = recovery.ready_to_evaluate(largest)
        numbers = RandomState()
        while True:
            size = min(decider.eval_micro_batch, largest)
            recovery.phase = "eval"
            found = 0.0, 0
            with Trial(recovery) as trial:
                number = -(-largest // size)
                ranks.begin_evaluation(recovery.step, number)
                found = self._of_rank(ranks, batch, samples, size, number)
            if trial.failure is not None:
                ranks.walk_on()
            failure = ranks.evaluated(word_of(recovery.step, Way(size), trial.failure), trial.failure)
            if failure is None:
                self._look_for_overflow()
                if not samples:
                    numbers.restore()
                return found
            recovery.answer_eval(failure, numbers, _HINT)

    def _of_rank(self, ranks: Ranks, batch: Any, samples: int, size: int, number: int) -> tuple[float, int]:
        """As many pieces as on every rank: where this one has too few samples, some are computed again and count for nothing."""
        total, weight = 0.0, 0
        cut = self._recovery.pieces
        if not samples:
            batch, samples = cut.cut(batch, 0, 1), 1
        # Parts of 1: weights are what is counted.
        _, pieces = cut.of_rank(batch, samples, Way(size), self._count, number, 1.0, leaves_out=False)
        for index, made in enumerate(pieces):
            with ranks.piece(index, number):
                piece = made()
                loss = self._loss(piece, size)
            counted = 1 if piece.weight is None else int(piece.weight)
            if counted:  # the mean over nothing is not a number
                total, weight = total + loss * counted, weight + counted
        return total, weight

    # Both.

    def _loss(self, piece: Piece, size: int) -> float:
        with self._recovery.pieces.around(piece, Way(size)), self._autocast:
            loss = self._closure(piece.part)
        check_loss(loss, is_graph=False)
        return float(loss)

    def _look_for_overflow(self) -> None:
        recovery = self._recovery
        if recovery.has_overflowed(recovery.step):
            recovery.release(recovery.step)
