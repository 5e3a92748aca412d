"""The guard inside of Lightning's Trainer, for modules with automatic optimization.

::

    trainer = Trainer(callbacks=[lowtide.integrations.lightning.GuardCallback(line="90%")])

The Trainer keeps its loop, its hooks and its loggers. When memory runs out in ``training_step``, backward, clipping or the update,
the window of gradient accumulation begins anew with its batches in smaller pieces. ``training_step`` then sees the pieces one
after the other; it must return the mean loss over what it is given. Validation is not cut.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loops.optimization.automatic import Closure, ClosureResult

from .. import _batch
from .._checks import Count
from .._errors import Unsupported
from .._guard import Guard
from .._pieces import Piece
from .._recovery import Recovery
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
        """Takes the place of the loop's closures and of the optimizer's step."""
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
