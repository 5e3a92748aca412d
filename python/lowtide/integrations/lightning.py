"""The guard inside of Lightning's Trainer, for modules with automatic optimization.

::

    trainer = Trainer(callbacks=[lowtide.integrations.lightning.GuardCallback(line="90%")])

The Trainer keeps its loop, its hooks and its loggers. When memory runs out in ``training_step``, backward, clipping or the update,
the window of gradient accumulation begins anew with its batches in smaller pieces. ``training_step`` then sees the pieces one
after the other; it must return the mean loss over what it is given. ``validation_step`` sees pieces of a batch likewise where it does
not fit as a whole; what it logs is weighed by their samples.
"""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loops.optimization.automatic import Closure, ClosureResult

from .. import _batch
from .._checks import Count
from .._errors import CannotCut, Unsupported
from .._guard import Guard
from .._pieces import Piece, spans_of
from .._recovery import Recovery, Trial
from .._undo import RandomState
from .._way import Way
from ._window import Window


class GuardCallback(Callback):
    """Puts the guard into the Trainer that it is given to. ``callback.guard`` is the guard, once training has begun.

    The arguments are those of ``lowtide.Guard``; ``count`` says what the loss of a part is the mean of, where it is not its samples.
    """

    def __init__(
        self,
        line: str | int | None = None,
        *,
        count: Count | None = None,
        cut: _batch.Cut | None = None,
        size: _batch.Size | None = None,
        run: str | os.PathLike[str] | None = None,
        recompute: bool | Iterable[torch.nn.Module] = True,
        offload: bool = True,
        climb_after: int = 50,
        schedule: Iterable[tuple[int, Way]] | None = None,
    ) -> None:
        self._options = {
            "line": line, "cut": cut, "size": size, "run": run, "recompute": recompute, "offload": offload,
            "climb_after": climb_after, "schedule": schedule,
        }  # fmt: skip
        self._count = count
        self.guard: Guard | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Takes the place of the loop's closures, of the optimizer's step and of the strategy's validation."""
        if self.guard is not None:
            return
        _check(trainer, pl_module)
        optimizer = trainer.optimizers[0]
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        self.guard = Guard(pl_module, optimizer, scaler=scaler, name=type(pl_module).__name__, **self._options)  # type: ignore[arg-type]
        loop = trainer.fit_loop.epoch_loop.automatic_optimization
        hold = _Hold(self.guard._recovery, loop, self._count)
        loop._make_closure = hold.closure
        optimizer.step = hold.updating(optimizer.step)
        trainer.strategy.validation_step = _Validation(self.guard._recovery, trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """An evaluation that ran to its end may grow again."""
        if self.guard is not None:
            self.guard._recovery.evaluated()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The story ends."""
        if self.guard is not None:
            self.guard.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The story ends."""
        if self.guard is not None:
            self.guard.close(exception)

    def state_dict(self) -> dict[str, Any]:
        """Goes into Lightning's checkpoints."""
        return self.guard.state_dict() if self.guard is not None else {}


def _check(trainer: Any, module: Any) -> None:
    if trainer.world_size > 1:
        strategy = type(trainer.strategy).__name__
        hint = "train by lowtide.Guard in a loop of your own, or keep the command alive: lowtide run -- torchrun ..."
        raise Unsupported(f"Lightning on {trainer.world_size} ranks ({strategy})", hint)
    if not module.automatic_optimization:
        raise Unsupported("the module optimizes by itself", "use lowtide.Guard in its training_step")
    if len(trainer.optimizers) != 1:
        raise Unsupported(f"the module has {len(trainer.optimizers)} optimizers", "one guard has one optimizer")


class _Hold:
    """Lightning's automatic optimization under a guard."""

    def __init__(self, recovery: Recovery, loop: Any, count: Count | None) -> None:
        self._recovery = recovery
        self._loop = loop
        self._count = count
        self._window = Window(recovery, self._compute)
        self._result: ClosureResult | None = None
        self._is_replayed = False

    def closure(self, kwargs: Any, optimizer: Any, batch_idx: int) -> Closure:
        """In the place of the loop's own."""
        if "batch" not in kwargs:
            raise Unsupported("training_step takes an iterator of batches", "let it take a batch")
        loop = self._loop
        zero_grad = loop._make_zero_grad_fn(batch_idx, optimizer)
        return _GuardedClosure(self, kwargs, loop._make_backward_fn(optimizer), zero_grad)

    def run(self, kwargs: Any, backward: Any, zero_grad: Any) -> ClosureResult:
        """Forward and backward of one batch."""
        if zero_grad is not None:
            self._window.begin()
            zero_grad()
        self._window.add((kwargs, backward), self._recovery.pieces.size(kwargs["batch"]))
        assert self._result is not None
        return self._result

    def updating(self, step: Any) -> Callable[..., Any]:
        """The optimizer's step, which Lightning hands the closure of the last batch, clipping included."""
        window = self._window
        self._recovery.update.step = step

        def updated(closure: Any = None) -> Any:
            result = None
            if closure is not None:
                with torch.enable_grad():
                    result = window.around(lambda is_replay: self._closed(closure, is_replay))
            if window.is_open:
                window.update()
            else:
                step()
            return result

        return updated

    def _closed(self, closure: Any, is_replay: bool) -> Any:
        """Runs the closure. Where the window has run all batches again, only what comes after them is missing."""
        self._is_replayed = is_replay
        try:
            return closure()
        finally:
            self._is_replayed = False

    def _compute(self, batch: tuple[Any, Any]) -> torch.Tensor:
        kwargs, backward = batch
        recovery, whole = self._recovery, kwargs["batch"]
        samples = recovery.pieces.size(whole)
        way = recovery.way(samples)
        results = [
            self._piece(kwargs, backward, piece, way) for piece in recovery.pieces.of(whole, samples, way, self._count)
        ]
        losses = [one.loss for one in results if one.loss is not None]
        self._result = (
            results[0] if len(results) == 1 else self._loop.output_result_cls(sum(losses) if losses else None)
        )
        loss = self._result.loss
        return loss if loss is not None else torch.zeros((), device=recovery.device)

    def _piece(self, kwargs: Any, backward: Any, piece: Piece, way: Way) -> ClosureResult:
        recovery = self._recovery
        given = type(kwargs)(kwargs)
        given["batch"] = piece.part
        recovery.phase = "forward"
        with recovery.pieces.around(piece, way):
            result: ClosureResult = self._loop._training_step(given)
        if result.closure_loss is None:
            return result
        recovery.phase = "backward"
        loss = result.closure_loss if piece.weight is None else result.closure_loss * piece.weight
        if backward is not None:
            backward(loss)
        return type(result)(loss.detach(), extra=result.extra)


class _GuardedClosure(Closure):
    def __init__(self, hold: _Hold, kwargs: Any, backward: Any, zero_grad: Any) -> None:
        super().__init__(step_fn=lambda: None, backward_fn=backward, zero_grad_fn=zero_grad)  # type: ignore[arg-type, return-value]
        self._hold, self._kwargs = hold, kwargs

    @torch.enable_grad()
    def closure(self, *args: Any, **kwargs: Any) -> ClosureResult:
        hold = self._hold
        if hold._is_replayed:
            assert hold._result is not None
            return hold._result
        return hold.run(self._kwargs, self._backward_fn, self._zero_grad_fn)


class _Validation:
    """The strategy's validation step, for batches that may not fit.

    A piece that is done stays done: the module has logged it, and its metrics have seen it. Only the one that failed is tried again, in
    smaller pieces.
    """

    def __init__(self, recovery: Recovery, trainer: Any) -> None:
        self._recovery, self._trainer, self._step = recovery, trainer, trainer.strategy.validation_step

    def __call__(self, batch: Any, *more: Any) -> Any:
        samples = self._samples(batch)
        if not samples:
            return self._step(batch, *more)
        recovery = self._recovery
        decider = recovery.ready_to_evaluate(samples)
        found: list[Any] = []
        sizes: list[int] = []
        start = 0
        while start < samples:
            random = RandomState()
            size = min(decider.eval_micro_batch, samples - start)
            _, length = next(spans_of(samples - start, size))
            recovery.phase = "eval"
            with Trial(recovery) as trial:
                found.append(self._piece(batch, start, start + length, samples, more))
            if trial.failure is not None:
                recovery.answer_eval(trial.failure, random, "give validation batches of fewer samples")
                continue
            sizes.append(length)
            start += length
        return found[0] if len(found) == 1 else _together(found, sizes)

    def _samples(self, batch: Any) -> int:
        """How many samples it has; 0 where it cannot be cut, and is validated as before."""
        if isinstance(batch, Iterator):
            return 0
        try:
            return self._recovery.pieces.size(batch)
        except CannotCut:
            return 0

    def _piece(self, batch: Any, start: int, stop: int, samples: int, more: tuple[Any, ...]) -> Any:
        if stop - start == samples:
            return self._step(batch, *more)
        part = self._recovery.pieces.cut(batch, start, stop)
        self._weigh_by(part)
        try:
            return self._step(part, *more)
        finally:
            self._weigh_by(batch)

    def _weigh_by(self, batch: Any) -> None:
        """Means over an epoch are weighed by the samples of the batch that Lightning knows of."""
        results = self._trainer._results
        if results is not None:
            results.batch, results.batch_size = batch, None


def _together(parts: list[Any], sizes: list[int]) -> Any:
    """What a step gave for the pieces of a batch, as it would be of the whole: means of numbers, rows one after the other."""
    first = parts[0]
    if isinstance(first, torch.Tensor):
        if first.dim() == 0:
            return sum(part * size for part, size in zip(parts, sizes)) / sum(sizes)
        is_rows = all(len(part) == size for part, size in zip(parts, sizes))
        return torch.cat(parts) if is_rows else parts[-1]
    if isinstance(first, numbers.Number) and not isinstance(first, bool):
        return sum(part * size for part, size in zip(parts, sizes)) / sum(sizes)
    if isinstance(first, Mapping):
        return {key: _together([part[key] for part in parts], sizes) for key in first}
    if isinstance(first, list) and all(len(part) == size for part, size in zip(parts, sizes)):
        return [one for part in parts for one in part]
    if isinstance(first, (list, tuple)) and all(len(part) == len(first) for part in parts):
        values = [_together(list(one), sizes) for one in zip(*parts)]
        return type(first)(*values) if hasattr(first, "_fields") else type(first)(values)
    return parts[-1]
