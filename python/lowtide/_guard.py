"""The guard of a training loop."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from . import _batch, _compiled, _native
from ._checks import Count, blocks_of, check_loss, checked_parameters, counted_in, device_of, is_oom
from ._errors import BadClosure, CannotCut, CannotUndo, LowtideError, OutOfMemory
from ._memory import Reading, let_go, memory_of
from ._quiet import quiet
from ._recompute import Recompute
from ._story import Story
from ._undo import RandomState, Undo
from ._update import Clip, Update, clipping

Closure = Callable[[Any], torch.Tensor]

# Seconds between two samples of memory in the file of events.
_MEMORY_EVERY = 10.0
# Steps after which the allocator's counts are read in any case.
_READ_EVERY = 16
# Tries of what is left to do once the weights are updated.
_SCALE_TRIES = 4


class Way(NamedTuple):
    """How a step is computed."""

    micro_batch: int
    recompute: int = 0
    offload: int = 0
    eager: bool = False


class Failure(NamedTuple):
    """Memory ran out."""

    phase: str
    message: str


class Trial:
    """Around what may run out of memory. Then ``failure`` says so, and nothing of the failed work is held any more."""

    failure: Failure | None = None

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> bool:
        if not isinstance(error, Exception) or not is_oom(error):
            return False
        self.failure = Failure(self._guard._phase, str(error))
        let_go(error, self._guard._device)
        return True


class Guard:
    """Runs the steps of a training loop so that an out-of-memory error ends none of them.

    ::

        guard = lowtide.Guard(model, optimizer, line="90%")
        for batch in loader:
            loss = guard.step(batch, lambda part: cross_entropy(model(part.x), part.y), count=lambda part: part.y.numel())

    A step is forward, backward, clip and update of one batch. When memory runs out in it, everything that it changed is put
    back as it was (random state, buffers, gradients, loss scale, a half-done update), and the same batch runs again with
    less memory at once: after cached blocks were released, in smaller pieces whose gradients add up, with blocks computed
    again in the backward pass, with saved tensors in host memory. Weights are then, bit for bit, those of a run that used
    the same pieces from that step's beginning and met no error.

    Args:
        model: the model that is trained.
        optimizer: its optimizer; only one.
        line: a limit for this process on the model's device, as ``"90%"`` or ``"11.5GiB"``; ``None`` leaves it the device.
        micro_batch: samples that are computed at once at first; the whole batch where it is left out.
        clip: the largest norm of all gradients together (0 is no limit), or a function that is given the parameters.
        scaler: a ``torch.amp.GradScaler``, for fp16.
        scheduler: a learning rate scheduler that is stepped after each update.
        autocast: a context that closures run in, as ``torch.autocast("cuda", dtype=torch.bfloat16)``.
        backward: what to call instead of ``loss.backward()``, as ``accelerator.backward``.
        recompute: modules that may be computed again in the backward pass; ``True`` finds the repeated blocks of the model.
        offload: whether saved tensors may go to host memory.
        cut, size: for batches that lowtide cannot cut: ``cut(batch, start, stop)`` gives those samples, ``size(batch)`` says
            how many there are.
        also: things of yours that a failed step must put back too: generators, or what has a ``state_dict``.
        run: the folder of the run, where ``lowtide watch``, ``top`` and ``report`` find its events.
        name: what the run is called there.
        climb_after: steps without an error after which a larger micro-batch is tried again; 0 never does.
        schedule: how to compute each step, as ``guard.schedule()`` of another run gives it.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        line: str | int | None = None,
        *,
        micro_batch: int | None = None,
        clip: float | Clip | None = None,
        scaler: Any = None,
        scheduler: Any = None,
        autocast: contextlib.AbstractContextManager[Any] | None = None,
        backward: Callable[[torch.Tensor], Any] | None = None,
        recompute: bool | Iterable[torch.nn.Module] = True,
        offload: bool = True,
        cut: _batch.Cut | None = None,
        size: _batch.Size | None = None,
        also: Iterable[Any] = (),
        run: str | os.PathLike[str] | None = None,
        name: str | None = None,
        climb_after: int = 50,
        schedule: Iterable[tuple[int, Way]] | None = None,
    ) -> None:
        if scaler is not None and not scaler.is_enabled():
            scaler = None
        self.model, self.optimizer, self.scaler, self.scheduler = model, optimizer, scaler, scheduler
        self._parameters = checked_parameters(model, optimizer)
        if (cut is None) != (size is None):
            raise BadClosure("cut and size go together", "give both, or none")
        self._cut, self._size = cut or _batch.part, size or _batch.samples
        self._device = device_of(self._parameters)
        self._memory = memory_of(self._device)
        if line is not None:
            self._memory.set_limit(str(line))
        self._clip = clipping(clip)
        self._autocast = autocast or contextlib.nullcontext()
        self._backward = backward
        self._recompute = Recompute(blocks_of(model, recompute))
        self._offload = offload
        self._undo = Undo(model, scaler, tuple(also))
        self._update = Update(optimizer, self._memory)
        self._micro_batch = micro_batch
        self._climb_after = climb_after
        self._decider: _native.Decider | None = None
        self._followed = list(schedule) if schedule is not None else None
        self._story = Story(run)
        self._name = name or type(model).__name__
        self._step = 0
        self._phase = "forward"
        self._is_noted = False
        self._last_loss = _NO_LOSS
        self._ways: list[tuple[int, Way]] = []
        self._retries = 0
        self._recovered = 0
        self._sampled = -math.inf
        self._is_begun = False
        # Samples of the largest batch so far.
        self._largest = 0
        warning = self._update.warning()
        if warning is not None:
            self._story.lines.append(f"note: {warning}")

    # Steps.

    def step(self, batch: Any, closure: Closure, count: Count | None = None) -> torch.Tensor:
        """One step on a batch: forward, backward, clip, update. Gives the mean loss, detached, on its device.

        ``closure`` is given a part of the batch and returns the mean loss of what ``count`` counts in that part: samples where
        it is left out, else for instance the tokens that have a target. It must not change anything that it finds, besides
        what the model itself does: after an error it runs again.
        """
        begun = time.perf_counter()
        samples = self._size(batch)
        if samples < 1:
            raise CannotCut("a batch without samples", "leave it out")
        decider = self._ready_to_train(samples)
        self._is_noted = False
        self._memory.reset_peak()
        open_errors = 0
        while True:
            way = self._way(samples)
            failure = self._attempt(batch, samples, way, closure, count)
            if failure is None:
                break
            open_errors += 1
            self._answer(decider, failure)
        if open_errors:
            self._recovered += open_errors
            # What made the allocator empty its cache so far is no warning.
            self._retries = self._memory.reading().retries
        loss, self._last_loss = self._last_loss, _NO_LOSS
        self._commit(decider, way, loss, samples, time.perf_counter() - begun)
        return loss

    def evaluate(self, batches: Iterable[Any], closure: Closure, count: Count | None = None) -> float:
        """The mean loss over batches, without gradients and with the model in evaluation mode, inside the limit.

        When memory runs out, the same batch is evaluated in smaller pieces.
        """
        total, weight = 0.0, 0
        begun, number = time.perf_counter(), 0
        modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        try:
            with torch.no_grad():
                for batch in batches:
                    value, counted = self._evaluate_one(batch, closure, count)
                    total, weight, number = total + value, weight + counted, number + 1
        finally:
            for module, mode in modes:
                module.training = mode
        if self._decider is not None:
            self._decider.evaluated(self._step)
        loss = total / weight if weight else math.nan
        reading = self._memory.reading()
        self._story.tell(
            event="evaluated",
            step=self._step,
            loss=loss if math.isfinite(loss) else None,
            batches=number,
            seconds=time.perf_counter() - begun,
            allocated=reading.allocated,
            reserved=reading.reserved,
        )
        return loss

    # What it has done.

    @property
    def micro_batch(self) -> int | None:
        """Samples that are computed at once at present."""
        return self._decider.micro_batch if self._decider is not None else self._micro_batch

    @property
    def steps(self) -> int:
        """Steps that are done."""
        return self._step

    @property
    def errors(self) -> int:
        """Out-of-memory errors met so far."""
        return self._decider.failures if self._decider is not None else 0

    def schedule(self) -> list[tuple[int, Way]]:
        """How each step was computed: the first step of every way, counted from 0, and the way."""
        return list(self._ways)

    def report(self) -> str:
        """The story so far, in words."""
        self._story.flush()
        errors = self.errors
        lines = [
            f"{_counted(self._step, 'step')}, {_counted(errors, 'out-of-memory error')}, {self._recovered} recovered"
        ]
        if self._decider is not None:
            lines.append(f"now: {self._decider.words()}")
        lines.extend(self._story.lines)
        return "\n".join(lines)

    def close(self, error: BaseException | None = None) -> None:
        """Writes the end of the run. A guard used in a ``with`` block does it by itself."""
        if self._decider is None:
            return
        ending = (
            {"reason": "finished"}
            if error is None
            else {"reason": "error", "message": f"{type(error).__name__}: {error}"}
        )
        if isinstance(error, KeyboardInterrupt):
            ending = {"reason": "interrupted"}
        if not isinstance(error, OutOfMemory):
            self._story.tell(event="stopped", step=self._step, **ending)

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
        self.close(error)

    def _repr_html_(self) -> str:
        from ._html import preformatted

        return preformatted("lowtide.Guard", self.report())

    # State.

    def state_dict(self) -> dict[str, Any]:
        """What the guard knows, for a checkpoint of yours: a resumed run then decides like an unbroken one."""
        decider = self._decider.dump() if self._decider is not None else None
        return {"step": self._step, "decider": decider, "ways": [(at, tuple(way)) for at, way in self._ways]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from there."""
        self._step = state["step"]
        self._decider = _native.Decider.load(state["decider"]) if state["decider"] is not None else None
        self._ways = [(at, Way(*way)) for at, way in state["ways"]]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes model, optimizer, scaler, scheduler, random state and the guard itself to a file, whole or not at all."""
        from ._checkpoint import save

        save(self, Path(path))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Reads back what ``save`` wrote."""
        from ._checkpoint import load

        load(self, Path(path))

    # One step.

    def _ready(self, samples: int) -> _native.Decider:
        """The one who decides, made when the first batch shows how large batches are."""
        if self._decider is None:
            first = min(self._micro_batch or samples, samples)
            self._decider = _native.Decider(
                first,
                samples,
                ceiling=self._micro_batch or samples,
                split=True,
                recompute_levels=self._recompute.levels,
                spill_levels=int(self._offload),
                climb_after=self._climb_after,
            )
        if not self._is_begun:
            self._is_begun = True
            self._begin(samples, self._decider.micro_batch)
        return self._decider

    def _ready_to_train(self, samples: int) -> _native.Decider:
        decider = self._ready(samples)
        self._largest = max(self._largest, samples)
        if self._micro_batch is None:
            decider.raise_ceiling(samples)
        if self._followed is not None:
            ways = [way for at, way in self._followed if at <= self._step]
            if not ways:
                raise LowtideError(
                    f"the schedule says nothing of step {self._step}", "its first entry must be for the first step"
                )
            way = ways[-1]
            decider.follow(way.micro_batch, way.recompute, way.offload)
        return decider

    def _begin(self, samples: int, micro_batch: int) -> None:
        parameters = sum(one.numel() for one in self._parameters if one.requires_grad)
        self._story.begin(
            workload=self._name,
            device=str(self._device),
            seed=torch.initial_seed() % 2**63,
            batch=samples,
            micro_batch=micro_batch,
            line=self._memory.limit,
            host_line=None,
            parameters=parameters,
            resumed_at=self._step or None,
        )

    def _way(self, samples: int) -> Way:
        decider = self._decider
        assert decider is not None
        way = Way(decider.micro_batch, decider.recompute, decider.spill)
        # Blocks that are wrapped anew would be compiled anew.
        is_eager = way.recompute or way.offload or way.micro_batch <= _compiled.EAGER < samples
        return way._replace(eager=True) if is_eager and _compiled.is_compiled() else way

    def _attempt(self, batch: Any, samples: int, way: Way, closure: Closure, count: Count | None) -> Failure | None:
        """The whole step once. Its loss is kept, for an update that is interrupted goes on without it."""
        with Trial(self) as trial:
            self._note()
            if not self._update.is_under_way:
                self._last_loss = self._compute(batch, samples, way, closure, count)
            self._apply()
        return trial.failure

    def _note(self) -> None:
        """Notes what the step may change, once."""
        if not self._is_noted:
            self._phase = "forward"
            self._undo.note()
            self._is_noted = True

    def _compute(self, batch: Any, samples: int, way: Way, closure: Closure, count: Count | None) -> torch.Tensor:
        """Forward and backward of all pieces; the gradients are those of the mean over the whole batch."""
        self._phase = "forward"
        self._drop_gradients()
        self._recompute.set(way.recompute)
        if samples <= way.micro_batch:
            return self._piece(batch, samples, way, closure, None)
        spans = [(start, min(start + way.micro_batch, samples)) for start in range(0, samples, way.micro_batch)]
        parts = [self._cut(batch, start, stop) for start, stop in spans]
        counts = [counted_in(part, count, stop - start) for part, (start, stop) in zip(parts, spans)]
        total = sum(counts)
        if total <= 0:
            raise BadClosure(f"count found nothing in a batch of {samples} samples", "leave such batches out")
        sum_of_losses: torch.Tensor | None = None
        for index, (part, (start, stop), counted) in enumerate(zip(parts, spans, counts)):
            parts[index] = None
            if counted == 0:
                continue  # nothing in it has a loss, and the mean over nothing is not a number
            loss = self._piece(part, stop - start, way, closure, counted / total)
            sum_of_losses = loss if sum_of_losses is None else sum_of_losses + loss
        assert sum_of_losses is not None
        return sum_of_losses

    def _piece(self, part: Any, samples: int, way: Way, closure: Closure, weight: float | None) -> torch.Tensor:
        self._phase = "forward"
        with self._saving(way), _compiled.piece(part, samples, is_whole=weight is None, eager=way.eager):
            with self._autocast:
                loss = closure(part)
            check_loss(loss)
            if weight is not None:
                loss = loss * weight
        self._phase = "backward"
        scaled = self.scaler.scale(loss) if self.scaler is not None else loss
        if self._backward is not None:
            self._backward(scaled)
        else:
            scaled.backward()
        return loss.detach()

    def _saving(self, way: Way) -> contextlib.AbstractContextManager[Any]:
        """Where the tensors that backward needs are kept."""
        if not way.offload:
            return contextlib.nullcontext()
        return torch.autograd.graph.save_on_cpu(pin_memory=self._device.type == "cuda")

    def _apply(self) -> None:
        """Clips and updates. An update that was interrupted goes on where it was."""
        self._phase = "optimizer"
        scaler = self.scaler
        if not self._update.is_under_way:
            if scaler is not None:
                scaler.unscale_(self.optimizer)
            if self._clip is not None:
                self._clip(self._parameters)
        if scaler is None:
            self._update.run()
            return
        overflowed = sum(value.item() for value in scaler._found_inf_per_device(self.optimizer).values())
        before = scaler._scale.clone(), scaler._growth_tracker.clone()
        if not overflowed:
            self._update.run()
        # What `scaler.step` notes of an update, which could not be told to go on half-way.
        scaler._per_optimizer_states[id(self.optimizer)]["stage"] = torch.amp.grad_scaler.OptState.STEPPED
        self._update_scale(*before)
        if overflowed:
            self._story.tell(event="skipped", step=self._step + 1, scale=scaler.get_scale())

    def _update_scale(self, scale: torch.Tensor, growth: torch.Tensor) -> None:
        """The last thing that a step does. The weights are updated, so it must not be the step that is tried again."""
        for _ in range(_SCALE_TRIES):
            try:
                self.scaler.update()
                return
            except Exception as error:
                if not is_oom(error):
                    raise
            self._memory.release()
            with quiet():
                self.scaler._scale.copy_(scale)
                self.scaler._growth_tracker.copy_(growth)
        raise CannotUndo(
            "memory ran out in the update of the loss scale, after the weights", "go on from the last checkpoint"
        )

    def _answer(self, decider: _native.Decider, failure: Failure) -> None:
        reading = self._memory.reading()
        self._story.out_of_memory(self._step + 1, failure.phase, failure.message, reading)
        if self._update.is_under_way:
            self._update.shrink()
        elif self._is_noted:
            self._drop_gradients()
            with quiet():
                self._undo.restore()
        answer = decider.failed(self._step + 1, failure.phase)
        self._release(self._step + 1)
        if answer.event is not None and answer.kind != "stop":
            self._story.write(answer.event)
        if answer.kind == "stop":
            self._stop(answer, failure)
        self._memory.reset_peak()

    def _stop(self, answer: _native.Answer, failure: Failure) -> None:
        if self._update.is_under_way:
            if not self._update.give_up():
                # Nothing was updated yet, so all of it can be undone.
                self._drop_gradients()
                with quiet():
                    self._undo.restore()
                return self._stop(answer, failure)
            raise CannotUndo(
                f"memory ran out in the update, half of the weights are updated: {failure.message}",
                "go on from the last checkpoint; an optimizer with fused=True needs no memory for its update",
            )
        checkpoint = None
        if self._story.folder is not None:
            path = self._story.folder / f"checkpoint-{self._step:08}.pt"
            self.save(path)
            checkpoint = str(path)
        self._story.write(answer.event or "{}")
        saved = f"; saved before it: {checkpoint}" if checkpoint else ""
        raise OutOfMemory(
            f"{answer.words}{saved}",
            "a smaller model or sequence, fewer others on the device, or a larger limit",
            tried=answer.words or "",
            checkpoint=checkpoint,
        )

    def _release(self, step: int) -> None:
        begun = time.perf_counter()
        freed = self._memory.release()
        self._story.tell(event="cleaned", step=step, freed=freed, seconds=time.perf_counter() - begun)

    def _drop_gradients(self) -> None:
        for one in self._parameters:
            one.grad = None

    def _commit(self, decider: _native.Decider, way: Way, loss: torch.Tensor, samples: int, seconds: float) -> None:
        if not self._ways or self._ways[-1][1] != way:
            self._ways.append((self._step, way))
        self._step += 1
        step = self._step
        if self.scheduler is not None:
            self.scheduler.step()
        # Reading what the allocator counts takes as long as some kernels: it is left out where nobody would use it.
        may_climb = way.micro_batch < self._largest
        reading = (
            self._memory.reading() if may_climb or self._story.is_written or step % _READ_EVERY == 0 else Reading()
        )
        rate = float(self.optimizer.param_groups[0].get("lr", 0.0))
        self._story.step(
            loss,
            step=self._step,
            learning_rate=rate,
            samples=samples,
            tokens=None,
            seconds=seconds,
            allocated=reading.allocated,
            peak=reading.peak,
            reserved=reading.reserved_peak,
            micro_batch=decider.micro_batch,
        )
        if reading.retries > self._retries:
            self._retries = reading.retries
            if decider.retries_rose(step).kind == "clean":
                self._release(step)
        if self._followed is None:
            limit = self._memory.limit or self._memory.total
            answer = decider.committed(step, reading.allocated, reading.peak, limit)
            if answer.event is not None:
                self._story.write(answer.event)
        if self._story.is_written and self._story.seconds - self._sampled >= _MEMORY_EVERY:
            self._sampled = self._story.seconds
            self._story.memory(self._step, self._memory, reading)

    # One evaluation.

    def _evaluate_one(self, batch: Any, closure: Closure, count: Count | None) -> tuple[float, int]:
        samples = self._size(batch)
        decider = self._ready(samples)
        decider.raise_eval(samples)
        random_state = RandomState()
        while True:
            size = min(decider.eval_micro_batch, samples)
            self._phase = "eval"
            with Trial(self) as trial:
                total, weight = 0.0, 0
                for start in range(0, samples, size):
                    stop = min(start + size, samples)
                    part = self._cut(batch, start, stop) if size < samples else batch
                    counted = counted_in(part, count, stop - start)
                    if counted == 0:
                        continue
                    with _compiled.piece(part, stop - start, is_whole=size == samples, eager=False), self._autocast:
                        loss = closure(part)
                    check_loss(loss, is_graph=False)
                    total, weight = total + float(loss) * counted, weight + counted
                return total, weight
            assert trial.failure is not None
            self._answer_eval(decider, trial.failure, random_state, "evaluate fewer or shorter samples at once")

    def _answer_eval(self, decider: _native.Decider, failure: Failure, numbers: RandomState, hint: str) -> None:
        """The same batch of an evaluation runs again after it, unless there is nothing more to try."""
        self._story.out_of_memory(self._step, failure.phase, failure.message, self._memory.reading())
        with quiet():
            numbers.restore()
        answer = decider.failed(self._step, failure.phase)
        self._release(self._step)
        if answer.event is not None:
            self._story.write(answer.event)
        if answer.kind in ("give_up", "stop"):
            raise OutOfMemory(answer.words or "", hint, tried=answer.words or "")


_NO_LOSS = torch.zeros(())


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
