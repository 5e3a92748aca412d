"""The guard of a training loop."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from . import _batch, _native
from ._checks import Count, check_loss, check_settings, checked_parameters, counted_in, device_of, is_oom
from ._errors import BadClosure, BadState, CannotCut, CannotUndo, OutOfMemory
from ._evaluation import Evaluation
from ._pieces import Piece, Pieces
from ._quiet import quiet
from ._ranks import Verdict, ranks_of, word_of
from ._recovery import Recovery, Trial
from ._reserve import Reserve
from ._story import Story
from ._update import Clip, LargestNorm, clipping, local
from ._way import Failure, Way

Closure = Callable[[Any], torch.Tensor]

# Tries of what is left to do once the weights are updated.
_SCALE_TRIES = 4


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
        micro_batch: samples that are computed at once, at first and at most; the whole batch where it is left out. A checkpoint
            that was computed with more goes on with so many.
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
        reserve: host memory that torch falls back on when the device is full, as ``"4GiB"``, or one of ``lowtide.reserve``: a step
            that is too large is then slow instead of undone, and the next one is smaller.
        schedule: how to compute each step, as ``guard.schedule()`` of another run gives it.
        rank_timeout: seconds after which a rank that does not answer is taken for lost, where several train together.

    A model in DDP or FSDP2 trains on all ranks alike: an error on one of them is undone on all, and all run the same batch again.
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
        reserve: str | int | Reserve | None = None,
        schedule: Iterable[tuple[int, Way]] | None = None,
        rank_timeout: float = 600.0,
    ) -> None:
        also = tuple(also)
        check_settings(micro_batch, clip, scaler, autocast, also)
        if scaler is not None and not scaler.is_enabled():
            scaler = None
        self.model, self.optimizer, self.scaler, self.scheduler = model, optimizer, scaler, scheduler
        device = device_of(checked_parameters(model, optimizer))
        folder = Path(run) if run is not None else None
        ranks = ranks_of(model, optimizer, scaler, rank_timeout, folder)
        self._recovery = Recovery(
            model,
            optimizer,
            Pieces(model, device, cut, size, recompute),
            line,
            micro_batch=micro_batch,
            scaler=scaler,
            scheduler=scheduler,
            offload=offload,
            also=also,
            # One run, one folder: the first rank tells of all.
            story=Story(run if ranks is None or ranks.rank == 0 else None),
            name=name,
            climb_after=climb_after,
            reserve=reserve,
            schedule=schedule,
            save=self.save,
            ranks=ranks,
            folder=folder,
        )
        self._clip = clipping(clip)
        self._autocast = autocast or contextlib.nullcontext()
        self._backward = backward
        # An update that is interrupted goes on without the loss of its step being computed again.
        self._last_loss = _NO_LOSS
        self._has_counted = False

    # Steps.

    def step(self, batch: Any, closure: Closure, count: Count | None = None) -> torch.Tensor:
        """One step on a batch: forward, backward, clip, update. Gives the mean loss, detached, on its device.

        ``closure`` is given a part of the batch and returns the mean loss of what ``count`` counts in that part: samples where
        it is left out, else for instance the tokens that have a target. It must not change anything that it finds, besides
        what the model itself does: after an error it runs again.

        A batch is a tensor, or a mapping, list, tuple or dataclass of tensors, one for each input: the first dimension of each
        counts samples. A list with one tensor for each sample is none: ``cut`` and ``size`` of the guard tell how to cut it.
        """
        begun = time.perf_counter()
        recovery = self._recovery
        samples = recovery.pieces.size(batch)
        if samples < 1:
            raise CannotCut("a batch without samples", "leave it out")
        if recovery.ranks is not None:
            return self._step_together(batch, samples, closure, count, begun)
        recovery.ready_to_train(samples)
        recovery.begin_step()
        errors = 0
        while True:
            way = recovery.way(samples)
            failure = self._attempt(batch, samples, way, closure, count)
            if failure is None:
                break
            errors += 1
            recovery.answer(failure)
        loss, self._last_loss = self._last_loss, _NO_LOSS
        recovery.commit(way, samples, loss, samples, time.perf_counter() - begun, errors)
        return loss

    def evaluate(self, batches: Iterable[Any], closure: Closure, count: Count | None = None) -> float:
        """The mean loss over batches, without gradients and with the model in evaluation mode, inside the limit.

        When memory runs out, the same batch is evaluated in smaller pieces. Each rank evaluates what it is given, and gives the
        mean loss of that: by itself, or under FSDP2 together with all others, which then all call it.
        """
        begun = time.perf_counter()
        modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        recovery = self._recovery
        try:
            with torch.no_grad():
                found = Evaluation(recovery, closure, count, self._autocast).of(batches)
        finally:
            for module, mode in modes:
                module.training = mode
        recovery.evaluated()
        loss = found.total / found.weight if found.weight else math.nan
        reading = recovery.memory.reading()
        recovery.story.tell(
            event="evaluated",
            step=recovery.step,
            loss=loss if math.isfinite(loss) else None,
            batches=found.batches,
            seconds=time.perf_counter() - begun,
            allocated=reading.allocated,
            reserved=reading.reserved,
        )
        return loss

    # What it has done.

    @property
    def micro_batch(self) -> int | None:
        """Samples that are computed at once at present."""
        return self._recovery.decider.micro_batch if self._recovery.decider is not None else self._recovery.micro_batch

    @property
    def steps(self) -> int:
        """Steps that are done."""
        return self._recovery.step

    @property
    def errors(self) -> int:
        """Out-of-memory errors met so far."""
        recovery = self._recovery
        deciders = (recovery.decider, recovery.eval_decider)
        return recovery.own_errors + sum(one.failures for one in deciders if one is not None)

    def schedule(self) -> list[tuple[int, Way]]:
        """How each step was computed: the first step of every way, counted from 0, and the way."""
        return list(self._recovery.ways)

    def report(self) -> str:
        """The story so far, in words."""
        self._recovery.story.flush()
        errors = self.errors
        lines = [
            f"{_counted(self._recovery.step, 'step')}, {_counted(errors, 'out-of-memory error')}, {self._recovery.recovered} recovered"
        ]
        if self._recovery.decider is not None:
            lines.append(f"now: {self._recovery.decider.words()}")
        if self._recovery.ranks is not None:
            lines.append(self._recovery.ranks.report())
        if self._recovery.reserve is not None:
            lines.append(self._recovery.reserve.report())
        lines.extend(self._recovery.story.lines)
        return "\n".join(lines)

    def close(self, error: BaseException | None = None) -> None:
        """Writes the end of the run. A guard used in a ``with`` block does it by itself."""
        if self._recovery.reserve is not None:
            self._recovery.reserve.guard_closed()
        if self._recovery.ranks is not None:
            self._recovery.ranks.close()
        if self._recovery.decider is None:
            return
        ending: dict[str, Any] = (
            {"reason": "finished"}
            if error is None
            else {"reason": "error", "message": f"{type(error).__name__}: {error}"}
        )
        if isinstance(error, KeyboardInterrupt):
            ending = {"reason": "interrupted"}
        if not isinstance(error, OutOfMemory):
            self._recovery.story.tell(event="stopped", step=self._recovery.step, **ending)

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
        recovery = self._recovery
        return {
            "step": recovery.step,
            "decider": recovery.decider.dump() if recovery.decider is not None else None,
            "eval_decider": recovery.eval_decider.dump() if recovery.eval_decider is not None else None,
            "ways": [(at, tuple(way)) for at, way in recovery.ways],
            "programs": recovery.pieces.programs.state_dict(),
            "ranks": recovery.ranks.state_dict() if recovery.ranks is not None else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from there."""
        recovery = self._recovery
        if not isinstance(state, dict) or not {"step", "decider", "ways"} <= state.keys():
            raise BadState("this is no state of a guard", "give what guard.state_dict() returned")
        recovery.step = state["step"]
        recovery.decider = _native.Decider.load(state["decider"]) if state["decider"] is not None else None
        recovery.keep_to_micro_batch()
        evaluation = state.get("eval_decider")
        recovery.eval_decider = _native.Decider.load(evaluation) if evaluation and recovery.ranks is not None else None
        recovery.ways = [(at, Way(*way)) for at, way in state["ways"]]
        recovery.pieces.programs.load_state_dict(state.get("programs", {}))
        if recovery.ranks is not None and state.get("ranks"):
            recovery.ranks.load_state_dict(state["ranks"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes model, optimizer, scaler, scheduler, random state and the guard itself to a file, whole or not at all.

        On several ranks all of them call it: the first one writes the file, and each other one its random state beside it; under
        FSDP2 all write their parts into a folder beside it. It succeeds on all ranks, or raises on all.
        """
        from ._checkpoint import save

        save(self, Path(path))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Reads back what ``save`` wrote."""
        from ._checkpoint import load

        load(self, Path(path))

    # One step.

    def _attempt(self, batch: Any, samples: int, way: Way, closure: Closure, count: Count | None) -> Failure | None:
        """The whole step once."""
        recovery = self._recovery
        with Trial(recovery) as trial:
            recovery.note()
            if not recovery.update.is_under_way:
                self._last_loss = self._compute(batch, samples, way, closure, count)
            self._apply()
        return trial.failure

    def _compute(self, batch: Any, samples: int, way: Way, closure: Closure, count: Count | None) -> torch.Tensor:
        """Forward and backward of all pieces; the gradients are those of the mean over the whole batch."""
        recovery = self._recovery
        recovery.phase = "forward"
        recovery.drop_gradients()
        if count is not None and not self._has_counted:
            # What would fail when a batch is cut for the first time is told at once.
            counted_in(batch, count, samples)
            self._has_counted = True
        sum_of_losses = _NO_LOSS
        for piece in recovery.pieces.of(batch, samples, way, count):
            loss = self._piece(piece, way, closure)
            sum_of_losses = loss if sum_of_losses is _NO_LOSS else sum_of_losses + loss
        if sum_of_losses is _NO_LOSS:
            raise BadClosure(f"count found nothing in a batch of {samples} samples", "leave such batches out")
        return sum_of_losses

    def _piece(self, piece: Piece, way: Way, closure: Closure) -> torch.Tensor:
        recovery = self._recovery
        recovery.phase = "forward"
        with recovery.pieces.around(piece, way):
            with self._autocast:
                loss = closure(piece.part)
            check_loss(loss)
            if piece.weight == 0.0:
                loss = loss.nan_to_num()  # the mean over nothing is not a number
            if piece.weight is not None:
                loss = loss * piece.weight
        recovery.phase = "backward"
        scaled = self.scaler.scale(loss) if self.scaler is not None else loss
        if self._backward is not None:
            self._backward(scaled)
        else:
            scaled.backward()
        return loss.detach()

    def _apply(self) -> None:
        """Clips and updates. An update that was interrupted goes on where it was."""
        recovery, scaler = self._recovery, self.scaler
        recovery.phase = "optimizer"
        if not recovery.update.is_under_way:
            if scaler is not None:
                scaler.unscale_(self.optimizer)
            if self._clip is not None:
                self._clip(recovery.parameters)
        self._update()

    def _update(self) -> None:
        recovery, scaler = self._recovery, self.scaler
        if scaler is None:
            recovery.update.run()
            return
        overflowed = sum(value.item() for value in scaler._found_inf_per_device(self.optimizer).values())
        before = scaler._scale.clone(), scaler._growth_tracker.clone()
        if not overflowed:
            recovery.update.run()
        # What `scaler.step` notes of an update, which could not be told to go on half-way.
        scaler._per_optimizer_states[id(self.optimizer)]["stage"] = torch.amp.grad_scaler.OptState.STEPPED
        self._update_scale(*before)
        if overflowed:
            with quiet():
                recovery.story.tell(event="skipped", step=recovery.step + 1, scale=scaler.get_scale())

    def _update_scale(self, scale: torch.Tensor, growth: torch.Tensor) -> None:
        """The last thing that a step does. The weights are updated, so it must not be the step that is tried again."""
        for _ in range(_SCALE_TRIES):
            try:
                self.scaler.update()
                return
            except Exception as error:
                if not is_oom(error):
                    raise
            self._recovery.memory.release()
            with quiet():
                self.scaler._scale.copy_(scale)
                self.scaler._growth_tracker.copy_(growth)
        raise CannotUndo(
            "memory ran out in the update of the loss scale, after the weights", "go on from the last checkpoint"
        )

    # One step on several ranks.

    def _step_together(
        self, batch: Any, samples: int, closure: Closure, count: Count | None, begun: float
    ) -> torch.Tensor:
        recovery, ranks = self._recovery, self._recovery.ranks
        assert ranks is not None
        with ranks.held():
            largest = recovery.open(samples, lambda: counted_in(batch, count, samples))
            recovery.ready_to_train(largest)
            recovery.begin_step()
            errors = 0
            while True:
                way = recovery.way(largest)
                verdict = self._attempt_together(batch, samples, way, closure, count)
                if verdict.failure is None:
                    break
                errors += 1
                recovery.answer(verdict.failure)
            self._apply_together(verdict)
        loss, self._last_loss = self._last_loss, _NO_LOSS
        recovery.commit(way, largest, loss, samples, time.perf_counter() - begun, errors, verdict)
        return loss

    def _attempt_together(self, batch: Any, samples: int, way: Way, closure: Closure, count: Count | None) -> Verdict:
        """Forward and backward once, and the agreement of all ranks on how it went: sent while the device still computes."""
        recovery, ranks = self._recovery, self._recovery.ranks
        assert ranks is not None
        targets = 0
        number = ranks.number_of_pieces(way.micro_batch)
        recovery.drop_gradients()
        with Trial(recovery) as trial:
            ranks.begin(recovery.step, number, way)
            recovery.note()
            recovery.phase = "forward"
            targets, pieces = recovery.pieces.of_rank(
                batch, samples, way, count, number, ranks.base, ranks.walk.leaves_out
            )
            self._last_loss = self._compute_together(pieces, way, closure, ranks.base / (targets or ranks.base))
            if self.scaler is not None:
                recovery.phase = "optimizer"
                self.scaler.unscale_(self.optimizer)
        word = word_of(recovery.step, way, trial.failure)
        if trial.failure is None:
            word = recovery.measured(word._replace(samples=samples, targets=targets, foreign=ranks.walk.foreign), way)
        else:
            recovery.drop_gradients()
            ranks.walk_on()
        return ranks.verdict(ranks.send(word), trial.failure)

    def _compute_together(
        self, pieces: list[Callable[[], Piece]], way: Way, closure: Closure, part: float
    ) -> torch.Tensor:
        """Forward and backward of a rank's pieces; gives the mean loss of its batch."""
        recovery, ranks = self._recovery, self._recovery.ranks
        assert ranks is not None
        sum_of_losses = _NO_LOSS
        for index, piece in enumerate(pieces):
            recovery.phase = "forward"
            with ranks.piece(index, len(pieces)):
                loss = self._piece(piece(), way, closure)
            sum_of_losses = loss if sum_of_losses is _NO_LOSS else sum_of_losses + loss
        return sum_of_losses if part == 1.0 else sum_of_losses * part

    def _apply_together(self, verdict: Verdict) -> None:
        """Clips and updates, as all other ranks do now: an error is this rank's own, which it must get over."""
        recovery = self._recovery
        recovery.phase = "optimizer"
        gradients = [one.grad for one in recovery.parameters if one.grad is not None]
        if verdict.factor != 1.0:
            with quiet(), torch.no_grad():
                torch._foreach_mul_(gradients, verdict.factor)
        if self._clip is not None:
            self._clip_together(self._clip, gradients)
        recovery.persist(self._update)

    def _clip_together(self, clip: Clip, gradients: list[torch.Tensor]) -> None:
        recovery, ranks = self._recovery, self._recovery.ranks
        assert ranks is not None
        held = [local(one) for one in gradients]
        versions = [one._version for one in held]

        def is_undone() -> bool:
            return all(one._version == version for one, version in zip(held, versions))

        if not isinstance(clip, LargestNorm):
            recovery.persist(lambda: ranks.together(lambda: clip(recovery.parameters)), is_undone)
            return
        norms: list[torch.Tensor] = []
        # Once the ranks have met in the norm, the rest is each one's own.
        recovery.persist(lambda: norms.append(ranks.together(lambda: clip.norm(gradients))))
        recovery.persist(lambda: clip.scale(held, norms[0]), is_undone)


_NO_LOSS = torch.zeros(())


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
