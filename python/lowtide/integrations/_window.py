"""A window of gradient accumulation in somebody else's loop: its batches, kept until the update, so that it can begin anew."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from .._errors import Unsupported
from .._ranks import Ranks, Verdict, word_of
from .._recovery import Recovery, Trial
from .._way import Failure, Way

Compute = Callable[[Any], torch.Tensor]


class Window:
    """The batches since the last update, under recovery. ``compute`` runs forward and backward of one of them."""

    def __init__(self, recovery: Recovery, compute: Compute) -> None:
        self._recovery = recovery
        self._compute = compute
        self._batches: list[Any] = []
        self._loss: torch.Tensor | None = None
        self._begun = 0.0
        self._samples = 0
        # Samples of the largest batch.
        self._largest = 0
        self._errors = 0

    # Whether the batch under way is the last one before the update.
    is_last = True

    @property
    def is_open(self) -> bool:
        """Whether there are batches that wait for an update."""
        return bool(self._batches)

    def begin(self) -> None:
        """Begins a new one."""
        self._batches.clear()
        self._begun, self._samples, self._largest, self._errors = time.perf_counter(), 0, 0, 0
        self._loss = None
        self._recovery.begin_step()

    def add(self, batch: Any, samples: int) -> torch.Tensor:
        """Forward and backward of a batch. After an error all batches of the window run again, with less memory at once."""
        recovery = self._recovery
        recovery.ready_to_train(samples)
        self._batches.append(batch)
        self._samples += samples
        self._largest = max(self._largest, samples)
        is_replay = False
        while True:
            with Trial(recovery) as trial:
                recovery.note()
                if is_replay:
                    self._run(self._batches[:-1])
                loss = self._compute(batch)
                self._loss = loss if self._loss is None else self._loss + loss
                return loss
            self._failed(trial)
            is_replay = True

    def around(self, work: Callable[[bool], Any]) -> Any:
        """Around the last batch and what comes between it and the update, as clipping.

        After an error in what comes after the batch all batches run again, and ``work`` is told that they have.
        """
        recovery = self._recovery
        is_replay = False
        while True:
            with Trial(recovery) as trial:
                if is_replay:
                    self._run(self._batches)
                recovery.phase = "optimizer"
                return work(is_replay)
            self._failed(trial)
            is_replay = True

    def update(self) -> None:
        """Updates the weights, in slices where there may be too little memory for it, and closes the window."""
        recovery = self._recovery
        while True:
            recovery.phase = "optimizer"
            with Trial(recovery) as trial:
                recovery.update.run()
                break
            self._failed(trial)
        self._commit(None)

    def _commit(self, verdict: Verdict | None) -> None:
        recovery = self._recovery
        self._batches.clear()
        loss = self._loss if self._loss is not None else torch.zeros(())
        way = recovery.way(self._largest)
        seconds = time.perf_counter() - self._begun
        recovery.commit(way, self._largest, loss, self._samples, seconds, self._errors, verdict)

    def _failed(self, trial: Trial) -> None:
        """Asks what to do; whoever called tries again, until there is nothing more to try."""
        assert trial.failure is not None
        self._errors += 1
        self._recovery.answer(trial.failure)

    def _run(self, batches: list[Any]) -> None:
        for batch in batches:
            self._compute(batch)


class RankWindow(Window):
    """The same on several ranks, which agree once a window, when its last batch is computed.

    Until then no rank hears of another one's failure: one that failed computes nothing more, and walks through what its last
    batch would have sent. Weights of batches are the loop's own matter.
    """

    def __init__(self, recovery: Recovery, compute: Compute, ranks: Ranks) -> None:
        super().__init__(recovery, compute)
        if ranks.walk.is_sharded:
            hint = "use lowtide.Guard in a loop of your own"
            raise Unsupported(f"a Trainer under {ranks.walk.name}", hint)
        self._ranks = ranks
        self._failure: Failure | None = None
        self._verdict: Verdict | None = None
        # What the loop was given for the batches before.
        self._given: torch.Tensor | None = None

    def begin(self) -> None:
        super().begin()
        self._failure = self._given = None

    def add(self, batch: Any, samples: int) -> torch.Tensor:
        with self._ranks.held():
            return self._add(batch, samples)

    def update(self) -> None:
        """Updates the weights on all ranks; one that runs out of memory in it gets over it by itself."""
        recovery = self._recovery
        recovery.phase = "optimizer"
        with self._ranks.held():
            recovery.persist(recovery.update.run)
        self._commit(self._verdict)

    def around(self, work: Callable[[bool], Any]) -> Any:
        raise Unsupported("clipping in the closure of an update", "use lowtide.Guard in a loop of your own")

    def _add(self, batch: Any, samples: int) -> torch.Tensor:
        recovery, is_last = self._recovery, self.is_last
        largest = recovery.open(samples, lambda: 1)
        self._largest = largest
        if not self._batches:
            recovery.ready_to_train(largest)
            self._begin_attempt()
        self._batches.append(batch)
        self._samples += samples
        loss = self._try([batch], is_last)
        if not is_last:
            return self._hand_out(loss)
        self._verdict = self._vote(samples)
        while self._verdict.failure is not None:
            self._errors += 1
            recovery.answer(self._verdict.failure)
            self._begin_attempt()
            self._loss, self._failure = None, None
            self._try(self._batches, is_last)
            self._verdict = self._vote(samples)
        assert self._loss is not None
        # Where batches were computed again, what was given for them before is not their loss.
        return self._loss - self._given if self._given is not None else self._loss

    def _hand_out(self, loss: torch.Tensor | None) -> torch.Tensor:
        handed = loss if loss is not None else torch.zeros((), device=self._recovery.device)
        self._given = handed if self._given is None else self._given + handed
        return handed

    def _begin_attempt(self) -> None:
        recovery = self._recovery
        self._way = recovery.way(self._largest)
        recovery.drop_gradients()
        with Trial(recovery) as trial:
            self._ranks.begin(recovery.step, self._ranks.number_of_pieces(self._way.micro_batch), self._way)
            recovery.note()
        self._failure = trial.failure

    def _try(self, batches: list[Any], is_last: bool) -> torch.Tensor | None:
        """Computes batches, the last of which may be that of the window; nothing where a batch has failed."""
        if self._failure is not None:
            return None
        with Trial(self._recovery) as trial:
            for number, batch in enumerate(batches, 1):
                self.is_last = is_last and number == len(batches)
                loss = self._compute(batch)
                self._loss = loss if self._loss is None else self._loss + loss
            return loss
        self._failure = trial.failure
        return None

    def _vote(self, samples: int) -> Verdict:
        recovery, ranks = self._recovery, self._ranks
        word = word_of(recovery.step, self._way, self._failure)
        if self._failure is None:
            word = recovery.measured(word._replace(samples=samples, targets=1, foreign=ranks.walk.foreign), self._way)
        else:
            recovery.drop_gradients()
            ranks.walk_on()
        return ranks.verdict(ranks.send(word), self._failure)

    _way: Way
