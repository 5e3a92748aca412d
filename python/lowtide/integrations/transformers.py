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

import os
from collections.abc import Iterable
from typing import Any

import torch

from .. import _compiled
from .._errors import Unsupported
from .._guard import Guard, Trial, Way
from .._quiet import quiet
from .._undo import RandomState
from ._window import Window


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
    if str(trainer.accelerator.distributed_type).rpartition(".")[2] != "NO" or trainer.args.n_gpu > 1:
        raise Unsupported(
            "several devices train together", "until the guard can hold them, keep the command alive: lowtide run"
        )
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
        self._guard: Guard | None = None
        self._window: Window | None = None
        # The update that the window under way leads to.
        self._at = -1
        # What the loss of the piece under way is multiplied by, where it is a mean.
        self._weight: float | None = None
        # Whether the model divides its loss by the number of items that it is told.
        self._listens: bool | None = None

    def training_step(self, model: torch.nn.Module, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """In the place of the Trainer's own."""
        guard = self._ready()
        assert self._window is not None
        # An update that the loss scale left out ends a window too.
        if not self._window.is_open or self._at != self._trainer.state.global_step:
            self._at = self._trainer.state.global_step
            self._window.begin()
        return self._window.add((model, inputs, num_items_in_batch), guard._size(inputs))

    def prediction_step(self, model: Any, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None) -> Any:
        """In the place of the Trainer's own: what does not fit is predicted in pieces."""
        guard = self._ready()
        samples = guard._size(inputs)
        decider = guard._ready(samples)
        decider.raise_eval(samples)
        numbers = RandomState()
        while True:
            size = min(decider.eval_micro_batch, samples)
            guard._phase = "eval"
            with Trial(guard) as trial:
                if size == samples:
                    return self._prediction_step(model, inputs, prediction_loss_only, ignore_keys)
                spans = [(start, min(start + size, samples)) for start in range(0, samples, size)]
                parts = [
                    self._prediction_step(model, guard._cut(inputs, *span), prediction_loss_only, ignore_keys)
                    for span in spans
                ]
                return _joined(parts, [stop - start for start, stop in spans])
            assert trial.failure is not None
            guard._answer_eval(decider, trial.failure, numbers, "set a smaller per_device_eval_batch_size")

    def _ready(self) -> Guard:
        if self._guard is None:
            trainer = self._trainer
            optimizer = trainer.optimizer
            if optimizer is None:
                optimizer = trainer.create_optimizer() or trainer.optimizer
            inner = getattr(optimizer, "optimizer", optimizer)
            name = type(trainer.model).__name__
            scaler = getattr(trainer.accelerator, "scaler", None)
            self._guard = Guard(trainer.model, inner, scaler=scaler, name=name, **self._options)
            self._window = Window(self._guard, self._compute)
            trainer.lowtide = self._guard
            self._take_over(optimizer, inner)
            trainer.accelerator.backward = self._backward(trainer.accelerator.backward)
        return self._guard

    def _compute(self, batch: tuple[torch.nn.Module, Any, Any]) -> torch.Tensor:
        """Forward and backward of one batch, in pieces where the guard says so."""
        model, inputs, items = batch
        guard = self._guard
        assert guard is not None
        samples = guard._size(inputs)
        way = guard._way(samples)
        guard._phase = "forward"
        guard._recompute.set(way.recompute)
        if samples <= way.micro_batch:
            return self._piece(model, inputs, items, way, samples, is_whole=True)
        spans = [(start, min(start + way.micro_batch, samples)) for start in range(0, samples, way.micro_batch)]
        counts = [_counted(guard._cut(inputs, *span), span[1] - span[0]) for span in spans]
        total = sum(counts)
        is_mean = self._is_mean(model, guard._cut(inputs, 0, 1), items)
        loss: torch.Tensor | None = None
        try:
            for span, counted in zip(spans, counts):
                if counted == 0:
                    continue
                self._weight = counted / total if is_mean else None
                part = guard._cut(inputs, *span)
                one = self._piece(model, part, items, way, span[1] - span[0], is_whole=False)
                one = one if self._weight is None else one * self._weight
                loss = one if loss is None else loss + one
        finally:
            self._weight = None
        return loss if loss is not None else torch.zeros((), device=guard._device)

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

    def _piece(
        self, model: torch.nn.Module, part: Any, items: Any, way: Way, samples: int, *, is_whole: bool
    ) -> torch.Tensor:
        guard = self._guard
        assert guard is not None
        with guard._saving(way), _compiled.piece(part, samples, is_whole=is_whole, eager=way.eager):
            guard._phase = "forward"
            loss: torch.Tensor = self._training_step(model, part, items)
        return loss

    def _backward(self, backward: Any) -> Any:
        def weighed(loss: torch.Tensor, **kwargs: Any) -> Any:
            if self._guard is not None:
                self._guard._phase = "backward"
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
        guard, window = self._guard, self._window
        assert guard is not None and window is not None
        guard._update.step = step

        def updated(closure: Any = None) -> Any:
            if closure is not None or not window.is_open:
                return step(closure) if closure is not None else step()
            return window.update()

        return updated


def _counted(part: Any, samples: int) -> int:
    """What the mean loss of a part is the mean of: its labelled tokens, else its samples."""
    labels = part.get("labels") if hasattr(part, "get") else None
    if isinstance(labels, torch.Tensor) and labels.dim() > 1 and not labels.is_floating_point():
        return int((labels != -100).sum())
    return samples


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
