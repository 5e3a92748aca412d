"""The guard inside of Hugging Face's Trainer.

::

    trainer = lowtide.integrations.transformers.guarded(Trainer(...))
    trainer.train()

The Trainer keeps its loop, its logs, its checkpoints and its callbacks. What changes is what happens when memory runs out in
forward or backward: the window of gradient accumulation that was under way begins anew, its batches in smaller pieces; the
effective batch stays, and so does every sample. A batch of an evaluation is cut likewise, and its predictions put together.
An error in the update is taken back, and the update done in slices.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch

from .. import _batch
from .._errors import Unsupported
from .._guard import Guard
from .._pieces import Piece, spans_of
from .._quiet import quiet
from .._recovery import Recovery, Trial
from .._undo import RandomState
from .._way import Way
from ._window import RankWindow, Window

# Of accelerate's kinds of training: one process, and DDP.
_KINDS = ("NO", "MULTI_CPU", "MULTI_GPU")


def guarded(
    trainer: Any,
    line: str | int | None = None,
    *,
    run: str | os.PathLike[str] | None = None,
    recompute: bool | Iterable[torch.nn.Module] = True,
    offload: bool = True,
    climb_after: int = 50,
    schedule: Iterable[tuple[int, Way]] | None = None,
) -> Any:
    """Puts the guard into a Trainer and gives the same Trainer back; ``trainer.lowtide`` is the guard.

    The arguments are those of ``lowtide.Guard``.
    """
    if not hasattr(trainer, "training_step") or not hasattr(trainer, "accelerator"):
        raise Unsupported(
            f"a {type(trainer).__name__} is no Trainer of Hugging Face's", "give it transformers.Trainer(...)"
        )
    kind = str(trainer.accelerator.distributed_type).rpartition(".")[2]
    if kind not in _KINDS or trainer.args.n_gpu > 1:
        hint = "start it with torchrun, one process a device; keep others alive by: lowtide run"
        raise Unsupported(f"several devices train together ({kind})", hint)
    options = {"line": line, "run": run, "recompute": recompute, "offload": offload, "climb_after": climb_after}
    hold = _Hold(trainer, {**options, "schedule": schedule})
    trainer.training_step = hold.training_step
    trainer.prediction_step = hold.prediction_step
    return trainer


class _Hold:
    """One Trainer and its guard, which is made once there is an optimizer."""

    def __init__(self, trainer: Any, options: dict[str, Any]) -> None:
        self._trainer = trainer
        self._options = options
        self._training_step = trainer.training_step
        self._prediction_step = trainer.prediction_step
        self._recovery: Recovery | None = None
        self._window: Window | None = None
        # The update that the window under way leads to.
        self._at = -1
        # What the loss of the piece under way is multiplied by, where it is a mean.
        self._weight: float | None = None
        # Whether the model divides its loss by the number of items that it is told.
        self._listens: bool | None = None

    def training_step(self, model: torch.nn.Module, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """In the place of the Trainer's own."""
        recovery = self._ready(model)
        assert self._window is not None
        # An update that the loss scale left out ends a window too.
        if not self._window.is_open or self._at != self._trainer.state.global_step:
            self._at = self._trainer.state.global_step
            self._window.begin()
        self._window.is_last = self._trainer.accelerator.sync_gradients
        return self._window.add((model, inputs, num_items_in_batch), recovery.pieces.size(inputs))

    def prediction_step(self, model: Any, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None) -> Any:
        """In the place of the Trainer's own: what does not fit is predicted in pieces."""
        if self._recovery is None and self._trainer.accelerator.num_processes > 1:
            # Ranks are found by the model that is trained, and none is yet.
            return self._prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        recovery = self._ready(self._trainer.model)
        pieces = recovery.pieces
        samples = pieces.size(inputs)
        decider = recovery.ready_to_evaluate(samples)
        numbers = RandomState()
        while True:
            size = min(decider.eval_micro_batch, samples)
            recovery.phase = "eval"
            with Trial(recovery) as trial:
                if size == samples:
                    return self._prediction_step(model, inputs, prediction_loss_only, ignore_keys)
                spans = list(spans_of(samples, size))
                parts = [
                    self._prediction_step(model, pieces.cut(inputs, *span), prediction_loss_only, ignore_keys)
                    for span in spans
                ]
                return _joined(parts, [stop - start for start, stop in spans])
            assert trial.failure is not None
            recovery.answer_eval(trial.failure, numbers, "set a smaller per_device_eval_batch_size")

    def _ready(self, model: torch.nn.Module) -> Recovery:
        if self._recovery is None:
            trainer = self._trainer
            optimizer = trainer.optimizer
            if optimizer is None:
                optimizer = trainer.create_optimizer() or trainer.optimizer
            inner = getattr(optimizer, "optimizer", optimizer)
            name = type(trainer.model).__name__
            scaler = getattr(trainer.accelerator, "scaler", None)
            trainer.lowtide = guard = Guard(model, inner, scaler=scaler, name=name, **self._options)
            self._recovery = recovery = guard._recovery
            ranks = recovery.ranks
            self._window = (
                Window(recovery, self._compute) if ranks is None else RankWindow(recovery, self._compute, ranks)
            )
            self._take_over(optimizer, inner)
            trainer.accelerator.backward = self._backward(trainer.accelerator.backward)
        return self._recovery

    def _compute(self, batch: tuple[torch.nn.Module, Any, Any]) -> torch.Tensor:
        """Forward and backward of one batch, in pieces where the guard says so."""
        model, inputs, items = batch
        recovery = self._recovery
        assert recovery is not None
        samples = recovery.pieces.size(inputs)
        way = recovery.way(recovery.open(samples, lambda: 1))
        recovery.phase = "forward"
        loss: torch.Tensor | None = None
        try:
            for piece, reduces in self._pieces(inputs, samples, way):
                if piece.weight is not None and self._is_mean(model, recovery.pieces.cut(inputs, 0, 1), items):
                    self._weight = piece.weight
                with reduces:
                    one = self._piece(model, piece, items, way)
                one = one if self._weight is None else one * self._weight
                loss = one if loss is None else loss + one
        finally:
            self._weight = None
        return loss if loss is not None else torch.zeros((), device=recovery.device)

    def _pieces(self, inputs: Any, samples: int, way: Way) -> Iterator[tuple[Piece, AbstractContextManager[Any]]]:
        """The pieces of a batch, each with a context in which ranks reduce its gradients or do not."""
        recovery, window = self._recovery, self._window
        assert recovery is not None and window is not None
        pieces = recovery.pieces.of(inputs, samples, way, _counted)
        if recovery.ranks is None:
            for piece in pieces:
                yield piece, contextlib.nullcontext()
            return
        # All ranks reduce, also one in whose batch nothing has a label.
        parts = list(pieces) or [Piece(recovery.pieces.cut(inputs, 0, 1), 1, 0.0)]
        number = len(parts) if window.is_last else len(parts) + 1
        for index, piece in enumerate(parts):
            yield piece, recovery.ranks.piece(index, number)

    def _is_mean(self, model: torch.nn.Module, sample: Any, items: Any) -> bool:
        """Whether the loss of a part is a mean over it, or a sum that is divided by the items of the whole window.

        The Trainer tells every model how many items there are, and not every model listens: so it is tried, once.
        """
        if items is None:
            return True
        if self._listens is None:
            trainer = self._trainer
            numbers = RandomState()
            losses = []
            with torch.no_grad():
                for factor in (1, 2):
                    given = trainer._prepare_inputs(sample)
                    with trainer.compute_loss_context_manager():
                        losses.append(float(trainer.compute_loss(model, given, num_items_in_batch=items * factor)))
                    with quiet():
                        numbers.restore()
            self._listens = losses[0] != losses[1]
        return not self._listens

    def _piece(self, model: torch.nn.Module, piece: Piece, items: Any, way: Way) -> torch.Tensor:
        recovery = self._recovery
        assert recovery is not None
        with recovery.pieces.around(piece, way):
            recovery.phase = "forward"
            loss: torch.Tensor = self._training_step(model, piece.part, items)
        return loss

    def _backward(self, backward: Any) -> Any:
        def weighed(loss: torch.Tensor, **kwargs: Any) -> Any:
            if self._recovery is not None:
                self._recovery.phase = "backward"
            return backward(loss if self._weight is None else loss * self._weight, **kwargs)

        return weighed

    def _take_over(self, optimizer: Any, inner: torch.optim.Optimizer) -> None:
        """Puts our update in the place of the optimizer's; accelerate keeps two more names for it, for its loss scale."""
        updated = self._updating(inner.step)
        inner.step = updated  # type: ignore[method-assign]
        if hasattr(optimizer, "_optimizer_original_step_method"):

            def patched(*args: Any, **kwargs: Any) -> Any:
                optimizer._accelerate_step_called = True
                return updated(*args, **kwargs)

            optimizer._optimizer_original_step_method = updated
            optimizer._optimizer_patched_step_method = patched

    def _updating(self, step: Any) -> Any:
        """The optimizer's step, as the guard does it."""
        recovery, window = self._recovery, self._window
        assert recovery is not None and window is not None
        recovery.update.step = step

        def updated(closure: Any = None) -> Any:
            if closure is not None or not window.is_open:
                return step(closure) if closure is not None else step()
            return window.update()

        return updated


def _counted(part: Any) -> int:
    """What the mean loss of a part is the mean of: its labelled tokens, else its samples."""
    labels = part.get("labels") if hasattr(part, "get") else None
    if isinstance(labels, torch.Tensor) and labels.dim() > 1 and not labels.is_floating_point():
        return int((labels != -100).sum())
    return _batch.samples(part)


def _joined(parts: list[Any], sizes: list[int]) -> tuple[Any, Any, Any]:
    """The loss, predictions and labels of a batch from those of its pieces."""
    from transformers.trainer_pt_utils import nested_concat

    losses = [loss for loss, _, _ in parts]
    loss = None
    if all(one is not None for one in losses):
        loss = sum(one.mean() * size for one, size in zip(losses, sizes)) / sum(sizes)

    def together(values: list[Any]) -> Any:
        if values[0] is None:
            return None
        whole = values[0]
        for value in values[1:]:
            whole = nested_concat(whole, value)
        return whole

    return loss, together([one[1] for one in parts]), together([one[2] for one in parts])
