"""What stands between a loop and its out-of-memory errors: notes, undoes, asks what to do, and tells the story.

It knows no closures and no loops: ``lowtide.Guard`` and the integrations bring those.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from . import _compiled, _native
from ._checks import is_oom
from ._errors import CannotUndo, LowtideError, OutOfMemory
from ._memory import Reading, let_go, memory_of, resident
from ._pieces import Pieces
from ._quiet import quiet
from ._ranks import Ranks, Verdict
from ._ranks._peer import PeerFailed
from ._ranks._ranks import Overflow, Word, number_of
from ._ranks._silence import is_sign
from ._reserve import Reserve, reserve_of
from ._story import Story
from ._undo import RandomState, Undo
from ._update import Update
from ._way import Failure, Way

# Seconds between two samples of memory in the file of events.
_MEMORY_EVERY = 10.0
# Steps after which the allocator's counts are read in any case.
_READ_EVERY = 16
# Tries of a rank to finish by itself what all others have done. The slices of an update are a fourth as large each time.
_OWN_TRIES = 24
# Tries of all ranks at a checkpoint.
_CALL_TRIES = 8


class Trial:
    """Around what may run out of memory. Then ``failure`` says so, and nothing of the failed work is held any more."""

    failure: Failure | None = None

    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> bool:
        if not isinstance(error, Exception) or not is_oom(error):
            return False
        self.failure = Failure(self._recovery.phase, str(error), isinstance(error, PeerFailed))
        let_go(error, self._recovery.device)
        return True


class Recovery:
    """One loop's way through its errors."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        pieces: Pieces,
        line: str | int | None,
        *,
        micro_batch: int | None,
        scaler: Any,
        scheduler: Any,
        offload: bool,
        also: tuple[Any, ...],
        story: Story,
        name: str | None,
        climb_after: int,
        reserve: str | int | Reserve | None,
        schedule: Iterable[tuple[int, Way]] | None,
        save: Callable[[Path], None],
        ranks: Ranks | None = None,
        folder: Path | None = None,
    ) -> None:
        self.pieces, self.device = pieces, pieces.device
        self.parameters = list(model.parameters())
        self.memory = memory_of(self.device)
        # What is under way: named in the story when it fails.
        self.phase = "forward"
        self.reserve = reserve_of(reserve, self.device, lambda: self.phase)
        if line is not None:
            self._set_limit(str(line))
        self.undo = Undo(model, scaler, also)
        self.update = Update(optimizer, self.memory)
        self.story = story
        self.ranks = ranks
        # Of the run: the story's own, but on ranks that tell none.
        self._folder = folder
        self.decider: _native.Decider | None = None
        self.eval_decider: _native.Decider | None = None
        self.step = 0
        self.recovered = 0
        # Errors that were got over without one who decides: those of this rank alone, and of checkpoints.
        self.own_errors = 0
        self.ways: list[tuple[int, Way]] = []
        self.micro_batch = micro_batch
        self._optimizer, self._scheduler = optimizer, scheduler
        self._offload = offload
        self._climb_after = climb_after
        self._followed = list(schedule) if schedule is not None else None
        self._name = name or type(model).__name__
        self._save = save
        self._is_noted = False
        self._retries = 0
        # What was tried in this step, in words.
        self._tried: list[str] = []
        self._sampled = self._ranks_sampled = -math.inf
        self._is_begun = False
        # Samples of the largest batch so far.
        self._largest = 0
        warning = self.update.warning()
        if warning is not None:
            self.story.lines.append(f"note: {warning}")
        if line is not None and self.memory.limit is None:
            self.story.lines.append(f"note: a limit is checked on {self.device}, and not held there")

    def _set_limit(self, line: str) -> None:
        try:
            self.memory.set_limit(line)
        except LowtideError:
            if self.reserve is not None:
                self.reserve.guard_closed()
            raise

    # Before a step.

    def ready(self, samples: int) -> _native.Decider:
        """The one who decides, made when the first batch shows how large batches are."""
        if self.decider is None:
            self.decider = self._new_decider(samples)
        if not self._is_begun:
            self._is_begun = True
            self._begin(samples, self.decider.micro_batch)
        return self.decider

    def _new_decider(self, samples: int) -> _native.Decider:
        return _native.Decider(
            min(self.micro_batch or samples, samples),
            samples,
            ceiling=self.micro_batch or samples,
            split=True,
            recompute_levels=self.pieces.recompute.levels,
            spill_levels=int(self._offload),
            climb_after=self._climb_after,
            has_net=self.reserve is not None,
        )

    def keep_to_micro_batch(self) -> None:
        """After a checkpoint was loaded: whoever asks for less at once than it was computed with means it, as a restart does."""
        decider = self.decider
        if decider is not None and self.micro_batch is not None and self.micro_batch < decider.micro_batch:
            decider.follow(self.micro_batch, decider.recompute, decider.spill)

    def open(self, samples: int, targets: Callable[[], int]) -> int:
        """Before a step: how many samples its largest batch has, on any rank, as far as that is known."""
        if self.ranks is None:
            return samples
        if not self.ranks.is_open:
            settings = {
                "micro_batch": self.micro_batch or 0,
                "recompute": self.pieces.recompute.levels,
                "offload": int(self._offload),
                "climb_after": self._climb_after,
                "reserve": int(self.reserve is not None),
                "schedule": int(self._followed is not None),
            }
            counted: list[int] = []
            self.persist(lambda: counted.append(targets()))
            self.ranks.open(samples, counted[0], self.step, settings)
        return self.ranks.samples

    def ready_to_train(self, samples: int) -> _native.Decider:
        """The same before a step on a batch."""
        decider = self.ready(samples)
        self._largest = max(self._largest, samples)
        if self.micro_batch is None:
            decider.raise_ceiling(samples)
        if self._followed is not None:
            way = self._followed_way()
            decider.follow(way.micro_batch, way.recompute, way.offload)
        return decider

    def ready_to_evaluate(self, samples: int) -> _native.Decider:
        """The same before a batch of an evaluation, which ranks that have all weights cut as each one's own memory allows."""
        if self.ranks is None:
            decider = self.ready(samples)
        else:
            if self.eval_decider is None:
                self.eval_decider = self._new_decider(samples)
            decider = self.eval_decider
        decider.raise_eval(samples)
        return decider

    def evaluated(self) -> None:
        """An evaluation ran to its end."""
        decider = self.decider if self.ranks is None else self.eval_decider
        if decider is not None:
            decider.evaluated(self.step)

    def begin_step(self) -> None:
        """What the last step changed is no longer to be undone."""
        self._is_noted = False
        self._tried.clear()
        self.memory.reset_peak()

    def note(self) -> None:
        """Notes what the step may change, once."""
        if not self._is_noted:
            self.phase = "forward"
            self.undo.note()
            self._is_noted = True

    def way(self, samples: int) -> Way:
        """How a batch is to be computed at present."""
        decider = self.decider
        assert decider is not None
        way = Way(decider.micro_batch, decider.recompute, decider.spill)
        if not self.pieces.programs.is_compiled():
            return way
        # Blocks that are wrapped anew would be compiled anew.
        if way.recompute or way.offload or way.micro_batch <= _compiled.EAGER < samples:
            return way._replace(eager=True)
        if not _compiled.is_even(way.micro_batch, samples):
            return way
        has_settled = self.pieces.programs.has_settled(way.micro_batch)
        if self._followed is not None:
            has_settled = self._followed_way().settled
        return way._replace(settled=has_settled)

    def drop_gradients(self) -> None:
        for one in self.parameters:
            one.grad = None

    def _followed_way(self) -> Way:
        assert self._followed is not None
        ways = [way for at, way in self._followed if at <= self.step]
        if not ways:
            hint = "its first entry must be for the first step"
            raise LowtideError(f"the schedule says nothing of step {self.step}", hint)
        return ways[-1]

    def _begin(self, samples: int, micro_batch: int) -> None:
        self.story.begin(
            workload=self._name,
            device=str(self.device),
            seed=torch.initial_seed() % 2**63,
            batch=samples,
            micro_batch=micro_batch,
            line=self.memory.limit,
            host_line=None,
            parameters=sum(one.numel() for one in self.parameters if one.requires_grad),
            resumed_at=self.step or None,
        )

    # After an error.

    def answer(self, failure: Failure) -> None:
        """Puts everything back, and decides how the same batch runs again; raises where there is nothing more to try."""
        decider = self.decider
        assert decider is not None
        self._tell_failure(self.step + 1, failure)
        if self.update.is_under_way:
            self.update.shrink()
        elif self._is_noted:
            self._restore()
        answer = decider.failed(self.step + 1, failure.phase)
        self.release(self.step + 1)
        if answer.kind == "stop":
            self._stop(answer, failure)
        elif answer.event is not None:
            self.story.write(answer.event)
        self._tried.append(decider.words() if self._tried else "cached memory released")
        self.memory.reset_peak()

    def answer_eval(self, failure: Failure, numbers: RandomState, hint: str) -> None:
        """The same for a batch of an evaluation."""
        decider = self.decider if self.ranks is None else self.eval_decider
        assert decider is not None
        self._tell_failure(self.step, failure)
        with quiet():
            numbers.restore()
        answer = decider.failed(self.step, failure.phase)
        self.release(self.step)
        if answer.event is not None:
            self.story.write(answer.event)
        if answer.kind in ("give_up", "stop"):
            tried = "smaller pieces of the batch"
            error, micro_batch = failure.message, decider.eval_micro_batch
            raise OutOfMemory(answer.words or "", hint, tried=tried, error=error, micro_batch=micro_batch)

    def persist(self, work: Callable[[], Any], is_undone: Callable[[], bool] = lambda: True) -> None:
        """Does what all other ranks do too and cannot undo any more: after an error, this rank tries it again by itself."""
        message = ""
        for _ in range(_OWN_TRIES):
            with Trial(self) as trial:
                work()
                return
            assert trial.failure is not None
            message = trial.failure.message
            self.own_errors += 1
            self.story.out_of_memory(self.step + 1, trial.failure.phase, message, self.memory.reading())
            if not is_undone():
                break
            if self.update.is_under_way:
                self.update.shrink()
            self.release(self.step + 1)
        raise CannotUndo(
            f"memory ran out after all ranks had agreed on step {self.step + 1}: {message}",
            "start all ranks again from the last checkpoint; an optimizer with fused=True needs no memory for its update",
        )

    def on_all(self, call: str, work: Callable[[], Any]) -> None:
        """Does what every rank does now, outside of a step: on all of them, or all raise. Repeats it where memory ran out on one."""
        ranks = self.ranks
        if ranks is None:
            work()
            return
        phase, message = call.removeprefix("guard."), ""
        for _ in range(_CALL_TRIES):
            error: Exception | None = None
            self.phase = phase
            with Trial(self) as trial:
                try:
                    work()
                except Exception as raised:
                    if is_oom(raised) or is_sign(raised):
                        raise
                    error = raised
            failure = ranks.done(call, trial.failure, error)
            if failure is None:
                return
            message = failure.message
            self.own_errors += 1
            self._tell_failure(self.step, failure)
            self.release(self.step)
        raise OutOfMemory(f"memory ran out in {call}, {_CALL_TRIES} times: {message}", "free memory on that rank")

    def _tell_failure(self, step: int, failure: Failure) -> None:
        # What this rank holds says nothing of another's.
        is_here = self.ranks is None or failure.rank in (None, self.ranks.rank)
        reading = self.memory.reading() if is_here else Reading()
        self.story.out_of_memory(step, failure.phase, failure.message, reading, failure.rank)

    def _restore(self) -> None:
        self.drop_gradients()
        with quiet():
            self.undo.restore()

    def _stop(self, answer: _native.Answer, failure: Failure) -> None:
        if self.update.is_under_way:
            if self.update.give_up():
                raise CannotUndo(
                    f"memory ran out in the update, half of the weights are updated: {failure.message}",
                    "go on from the last checkpoint; an optimizer with fused=True needs no memory for its update",
                )
            self._restore()  # nothing was updated yet, so all of it can be undone
        checkpoint = None
        if self._folder is not None:
            path = self._folder / f"checkpoint-{self.step:08}.pt"
            self._save(path)
            checkpoint = str(path)
        self.story.write(answer.event or "{}")
        saved = f"; saved before it: {checkpoint}" if checkpoint else ""
        tried = "; ".join(self._tried)
        assert self.decider is not None
        raise OutOfMemory(
            f"{answer.words}{f' (tried: {tried})' if tried else ''}{saved}",
            "a smaller model or sequence, fewer others on the device, or a larger limit",
            tried=tried,
            error=failure.message,
            micro_batch=self.decider.micro_batch,
            checkpoint=checkpoint,
        )

    def release(self, step: int) -> None:
        """Gives cached blocks back, and what lies in the reserve."""
        begun = time.perf_counter()
        freed = self.memory.release()
        if self.reserve is not None:
            self.reserve.give_back()
        self.story.tell(event="cleaned", step=step, freed=freed, seconds=time.perf_counter() - begun)

    # After a step.

    def commit(
        self,
        way: Way,
        batch: int,
        loss: torch.Tensor,
        samples: int,
        seconds: float,
        errors: int,
        verdict: Verdict | None = None,
    ) -> None:
        """The step is done: what was learnt of memory in it decides how the next one is computed.

        A step has one batch or, where somebody else accumulates, several; ``batch`` is the samples of one. ``verdict`` is what
        ranks agreed on, who decide by what all of them measured.
        """
        decider = self.decider
        assert decider is not None
        if errors:
            self.recovered += errors
            # What made the allocator empty its cache so far is no warning.
            self._retries = self.memory.reading().retries
        is_too_large = self.has_overflowed(self.step + 1, way)
        if not self.ways or self.ways[-1][1] != way:
            self.ways.append((self.step, way))
        self.step += 1
        if self._scheduler is not None:
            self._scheduler.step()
        is_counted = not way.eager and _compiled.is_even(way.micro_batch, batch)
        if is_counted and self.pieces.programs.committed(way.micro_batch):
            self.release(self.step)  # another program will run, with blocks of other sizes
        # Reading what the allocator counts takes as long as some kernels: it is left out where nobody would use it.
        is_read = self._is_read(way, self.step) or self.story.is_written
        reading = self.memory.reading() if is_read else Reading()
        self._tell_step(way, loss, samples, seconds, reading)
        limit = self.memory.limit or self.memory.total
        has_retried = reading.retries > self._retries
        self._retries = max(self._retries, reading.retries)
        if verdict is not None:
            reading, limit, has_retried = verdict.reading, verdict.limit, verdict.has_retried
            self.hear_overflow(decider, verdict.overflow)
            if self._is_read(way, self.step):
                self._tell_ranks(verdict.words)
        if has_retried and decider.retries_rose(self.step).kind == "clean":
            self.release(self.step)
        if self._followed is None:
            answer = decider.committed(self.step, reading.allocated, reading.peak, limit)
            if answer.event is not None:
                self.story.write(answer.event)
        if is_too_large:
            self.release(self.step)

    def has_overflowed(self, step: int, way: Way | None = None) -> bool:
        """After a step or a batch of an evaluation: where the reserve was used, the next one is computed with less memory."""
        if self.reserve is None:
            return False
        # Tensors that were more than the device holds were somewhere else: that is known before the GPU has come so far.
        reading = self.memory.reading()
        found = self.reserve.look(is_certain=reading.peak > reading.reserved_peak)
        if found is None:
            return False
        self.story.tell(event="overflowed", step=step, reserve=self.reserve.size, **found._asdict())
        ranks, is_eval = self.ranks, found.phase == "eval"
        decider = self.eval_decider if ranks is not None and is_eval else self.decider
        limit = max(found.limit, 1)
        if ranks is not None and (not is_eval or ranks.walk.is_sharded):
            assert decider is not None
            way = Way(decider.eval_micro_batch) if is_eval else way or self.ways[-1][1]
            overflow = Overflow(found.phase, found.resting, found.needed, limit, number_of(way))
            ranks.overflows["guard.evaluate" if is_eval else "guard.step"] = overflow
        elif self._followed is None:
            assert decider is not None
            answer = decider.overflowed(step, found.phase, found.resting, found.needed, limit)
            if answer.event is not None:
                self.story.write(answer.event)
        return True

    def _is_read(self, way: Way, step: int) -> bool:
        """Whether the allocator's counts are read in a step, on all ranks or on none."""
        return way.micro_batch < self._largest or step % _READ_EVERY == 0

    def measured(self, word: Word, way: Way) -> Word:
        """Adds what other ranks need to know of this one's memory."""
        if not self._is_read(way, self.step + 1):
            return word
        reading = self.memory.reading()
        return word._replace(
            allocated=reading.allocated,
            peak=reading.peak,
            limit=self.memory.limit or self.memory.total or 0,
            has_retried=int(reading.retries > self._retries),
            reserved=reading.reserved,
            resident=resident(),
        )

    def hear_overflow(self, decider: _native.Decider | None, found: Overflow | None) -> None:
        """What overflowed on some rank: all of them decide the same."""
        if found is None or decider is None or self._followed is not None:
            return
        answer = decider.overflowed(self.step, found.phase, found.resting, found.needed, found.limit)
        if answer.event is not None:
            self.story.write(answer.event)

    def _tell_step(self, way: Way, loss: torch.Tensor, samples: int, seconds: float, reading: Reading) -> None:
        if not self.story.is_written:
            return
        self.story.step(
            loss,
            step=self.step,
            learning_rate=float(self._optimizer.param_groups[0].get("lr", 0.0)),
            samples=samples,
            tokens=None,
            seconds=seconds,
            allocated=reading.allocated,
            peak=reading.peak,
            reserved=reading.reserved_peak,
            micro_batch=way.micro_batch,
        )
        if self.story.seconds - self._sampled >= _MEMORY_EVERY:
            self._sampled = self.story.seconds
            self.story.memory(self.step, self.memory, reading, 0 if self.ranks is not None else None)

    def _tell_ranks(self, words: tuple[Word, ...]) -> None:
        """The memory of the other ranks, as they said it in a step in which all of them read theirs."""
        if not self.story.is_written or self.story.seconds - self._ranks_sampled < _MEMORY_EVERY:
            return
        self._ranks_sampled = self.story.seconds
        for rank, word in enumerate(words[1:], 1):
            held = {"allocated": word.allocated, "reserved": word.reserved, "resident": word.resident}
            self.story.tell(event="memory", step=self.step, of_rank=rank, **held)
