"""A window of gradient accumulation in somebody else's loop: its batches, kept until the update, so that it can begin anew."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from .._guard import Guard, Trial

Compute = Callable[[Any], torch.Tensor]


class Window:
    """The batches since the last update, under a guard. ``compute`` runs forward and backward of one of them."""

    def __init__(self, guard: Guard, compute: Compute) -> None:
        self._guard = guard
        self._compute = compute
        self._batches: list[Any] = []
        self._loss: torch.Tensor | None = None
        self._begun = 0.0
        self._samples = 0
        self._errors = 0

    @property
    def is_open(self) -> bool:
        """Whether there are batches that wait for an update."""
        return bool(self._batches)

    def begin(self) -> None:
        """Begins a new one."""
        self._batches.clear()
        self._begun, self._samples, self._errors, self._loss = time.perf_counter(), 0, 0, None
        self._guard._is_noted = False
        self._guard._memory.reset_peak()

    def add(self, batch: Any, samples: int) -> torch.Tensor:
        """Forward and backward of a batch. After an error all batches of the window run again, with less memory at once."""
        guard = self._guard
        guard._ready_to_train(samples)
        self._batches.append(batch)
        self._samples += samples
        is_replay = False
        while True:
            with Trial(guard) as trial:
                guard._note()
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
        guard = self._guard
        is_replay = False
        while True:
            with Trial(guard) as trial:
                if is_replay:
                    self._run(self._batches)
                guard._phase = "optimizer"
                return work(is_replay)
            self._failed(trial)
            is_replay = True

    def update(self) -> None:
        """Updates the weights, in slices where there may be too little memory for it, and closes the window."""
        guard = self._guard
        decider = guard._decider
        assert decider is not None
        while True:
            guard._phase = "optimizer"
            with Trial(guard) as trial:
                guard._update.run()
                break
            self._failed(trial)
        guard._recovered += self._errors
        if self._errors:
            guard._retries = guard._memory.reading().retries
        self._batches.clear()
        loss = self._loss if self._loss is not None else torch.zeros(())
        guard._commit(decider, guard._way(self._samples), loss, self._samples, time.perf_counter() - self._begun)

    def _failed(self, trial: Trial) -> None:
        """Asks what to do; whoever called tries again, until there is nothing more to try."""
        assert trial.failure is not None and self._guard._decider is not None
        self._errors += 1
        self._guard._answer(self._guard._decider, trial.failure)

    def _run(self, batches: list[Any]) -> None:
        for batch in batches:
            self._compute(batch)
