"""The guard beside the contract: rungs, weights of pieces, evaluation, checkpoints, the story, and what it refuses."""

from __future__ import annotations

import collections
import contextlib
import gc
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import lowtide
import models
import pytest
import runs
import torch
from torch import nn

OOM = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 11.69 GiB of which 1.00 GiB is free."
)


def made(seed: int = 3) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = models.Gpt()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


class Failing:
    """A closure whose first calls run out of memory, after the model has computed."""

    def __init__(self, model: nn.Module, times: int) -> None:
        self.model, self.times = model, times
        self.seen: list[int] = []

    def __call__(self, part: models.Pair) -> torch.Tensor:
        loss = models.loss_of(self.model, part)
        if self.times:
            self.times -= 1
            raise torch.OutOfMemoryError(OOM)
        self.seen.append(len(part.x))
        return loss


@pytest.mark.parametrize(
    ("times", "way", "pieces"),
    [
        (0, lowtide.Way(6), [6]),
        (1, lowtide.Way(6), [6]),
        (2, lowtide.Way(3), [3, 3]),
        (3, lowtide.Way(1), [1] * 6),
        (4, lowtide.Way(1, recompute=1), [1] * 6),
        (5, lowtide.Way(1, recompute=1, offload=1), [1] * 6),
    ],
)
def test_rungs_one_after_the_other(times: int, way: lowtide.Way, pieces: list[int]) -> None:
    def trained(schedule: Any, times: int) -> tuple[lowtide.Guard, Failing, dict[str, Any]]:
        model, optimizer = made()
        guard = lowtide.Guard(model, optimizer, schedule=schedule)
        closure = Failing(model, times)
        loss = guard.step(models.tokens(6, 0), closure, count=models.counted)
        state = {**model.state_dict(), "loss": loss, "random": torch.get_rng_state()}
        return guard, closure, state

    guard, closure, state = trained(None, times)
    assert guard.schedule() == [(0, way)]
    assert closure.seen == pieces
    assert (guard.errors, guard.steps) == (times, 1)
    assert not runs.differences(state, trained([(0, way)], 0)[2])
    # Computing again and keeping tensors elsewhere change no bit.
    assert not runs.differences(state, trained([(0, lowtide.Way(way.micro_batch))], 0)[2])


def test_when_nothing_helps_the_state_is_that_before_the_step(tmp_path: Path) -> None:
    model, optimizer = made()
    guard = lowtide.Guard(model, optimizer, run=tmp_path / "run")
    guard.step(models.tokens(6, 0), Failing(model, 0))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    numbers = torch.get_rng_state()
    with pytest.raises(lowtide.OutOfMemory) as caught:
        guard.step(models.tokens(6, 1), Failing(model, 100))
    assert "hint:" in str(caught.value)
    expected = ["cached memory released", "micro-batch 3", "micro-batch 1"]
    assert caught.value.tried.split("; ")[:3] == expected and "tried: cached memory" in str(caught.value)
    assert (caught.value.error, caught.value.micro_batch) == (OOM, 1)
    assert not runs.differences(before, dict(model.state_dict()))
    assert torch.equal(numbers, torch.get_rng_state())
    assert all(one.grad is None for one in model.parameters())
    # The checkpoint that it left goes on exactly there.
    again, other = made(seed=4)
    resumed = lowtide.Guard(again, other)
    resumed.load(caught.value.checkpoint)
    assert resumed.steps == 1
    assert not runs.differences(before, dict(again.state_dict()))


def test_pieces_weigh_what_they_hold() -> None:
    """Gradients in pieces are those of the whole batch, though targets are spread unevenly and a piece has none."""
    batch = models.tokens(6, 0)
    batch.y[0:2] = -100
    gradients = []
    for micro_batch in (6, 4, 2, 1):
        model, _ = made()
        model.eval()  # no dropout, so that only the sum differs
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        before = [one.detach().clone() for one in model.parameters()]
        guard = lowtide.Guard(model, optimizer, micro_batch=micro_batch)
        loss = guard.step(batch, lambda part, model=model: models.loss_of(model, part), count=models.counted)
        gradients.append([loss, *(old - new.detach() for old, new in zip(before, model.parameters()))])
    for other in gradients[1:]:
        for one, two in zip(gradients[0], other):
            torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)


def test_climbs_back() -> None:
    model, optimizer = made()
    guard = lowtide.Guard(model, optimizer, climb_after=2)
    guard.step(models.tokens(6, 0), Failing(model, 2))
    for number in range(1, 6):
        guard.step(models.tokens(6, number), Failing(model, 0))
    ways = [way.micro_batch for _, way in guard.schedule()]
    assert ways == [3], "6 failed twice and is not tried again"
    model, optimizer = made()
    guard = lowtide.Guard(model, optimizer, climb_after=2)
    guard.step(models.tokens(6, 0), Failing(model, 3))
    for number in range(1, 8):
        guard.step(models.tokens(6, number), Failing(model, 0))
    assert [way.micro_batch for _, way in guard.schedule()] == [1, 2, 4]


def test_memory_is_back_after_each_error() -> None:
    def held() -> int:
        gc.collect()
        seen = {id(one): one for one in gc.get_objects() if isinstance(one, torch.Tensor)}
        return sum(one.numel() for one in seen.values())

    model, optimizer = made()
    guard = lowtide.Guard(model, optimizer, climb_after=0)
    guard.step(models.tokens(6, 0), Failing(model, 0))
    optimizer.zero_grad()
    level = held()
    for number in range(1, 6):
        guard.step(models.tokens(6, number), Failing(model, 1))
        optimizer.zero_grad()
        assert held() <= level + 6 * 16 * 4


def test_evaluation_stays_inside_too() -> None:
    model, optimizer = made()
    guard = lowtide.Guard(model, optimizer)
    guard.step(models.tokens(6, 0), Failing(model, 0))
    batches = [models.tokens(8, number) for number in range(3)]
    numbers = torch.get_rng_state()
    whole = guard.evaluate(batches, Failing(model, 0), count=models.counted)
    assert torch.equal(numbers, torch.get_rng_state())
    closure = Failing(model, 3)
    assert guard.evaluate(batches, closure, count=models.counted) == pytest.approx(whole, rel=1e-5)
    assert set(closure.seen) == {2}
    assert model.training
    assert guard.micro_batch == 6, "training's micro-batch is its own"
    with pytest.raises(lowtide.OutOfMemory):
        guard.evaluate(batches, Failing(model, 100), count=models.counted)


@pytest.mark.parametrize(("asked", "expected"), [(8, 6), (2, 2)])
def test_a_resumed_run_keeps_to_a_smaller_micro_batch(tmp_path: Path, asked: int, expected: int) -> None:
    def guarded(micro_batch: int) -> lowtide.Guard:
        model = models.Cnn()
        return lowtide.Guard(model, torch.optim.SGD(model.parameters(), lr=0.1), micro_batch=micro_batch)

    first, second = guarded(6), guarded(asked)
    first.step(models.pictures(12, 0), lambda part: models.loss_of(first.model, part))
    first.save(tmp_path / "saved.pt")
    second.load(tmp_path / "saved.pt")
    second.step(models.pictures(12, 1), lambda part: models.loss_of(second.model, part))
    assert [way.micro_batch for _, way in second.schedule()][-1] == expected


def test_a_resumed_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    def steps(guard: lowtide.Guard, numbers: range) -> None:
        for number in numbers:
            guard.step(models.tokens(6, number), Failing(guard.model, 2 if number == 1 else 0), count=models.counted)

    model, optimizer = made()
    whole = lowtide.Guard(model, optimizer, climb_after=2)
    steps(whole, range(6))
    first, its = made()
    guard = lowtide.Guard(first, its, climb_after=2)
    steps(guard, range(3))
    guard.save(tmp_path / "at3.pt")
    random.random()
    second, other = made(seed=9)
    resumed = lowtide.Guard(second, other, climb_after=2, run=tmp_path / "resumed")
    resumed.load(tmp_path / "at3.pt")
    steps(resumed, range(3, 6))
    begun = json.loads((tmp_path / "resumed/events.jsonl").read_text().splitlines()[0])
    assert (begun["event"], begun["resumed_at"]) == ("run_started", 3)
    assert not runs.differences(dict(model.state_dict()), dict(second.state_dict()))
    assert resumed.schedule() == whole.schedule()
    (tmp_path / "other.pt").write_bytes((tmp_path / "at3.pt").read_bytes()[:1000])
    with pytest.raises(Exception):  # noqa: B017  torch's own words
        resumed.load(tmp_path / "other.pt")


def test_the_story_is_read_by_the_program(tmp_path: Path) -> None:
    model, optimizer = made()
    with lowtide.Guard(model, optimizer, run=tmp_path / "run", name="tiny") as guard:
        for number in range(4):
            guard.step(models.tokens(6, number), Failing(model, 2 if number == 2 else 0))
        guard.evaluate([models.tokens(6, 9)], Failing(model, 0))
    told = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    kinds = collections.Counter(one["event"] for one in told)
    assert kinds["step"] == 4
    assert kinds["out_of_memory"] == 2
    assert kinds["rung_taken"] == 2
    assert told[0]["workload"] == "tiny"
    assert told[-1] | {"time": 0, "crc32c": ""} == {
        "schema": 1,
        "event": "stopped",
        "step": 4,
        "reason": "finished",
        "time": 0,
        "crc32c": "",
    }
    assert [one["step"] for one in told if one["event"] == "step"] == [1, 2, 3, 4]
    report = guard.report()
    assert "2 out-of-memory errors, 2 recovered" in report
    assert "split" in report


def test_batches_of_many_forms() -> None:
    Named = collections.namedtuple("Named", ["x", "y"])
    x, y = torch.arange(12).view(4, 3), torch.arange(4)
    for batch in (
        (x, y),
        [x, y],
        {"x": x, "y": y, "name": "a", "scale": 2.0, "none": None, "temperature": torch.tensor(1.0)},
        Named(x, y),
        models.Pair(x, y),
        collections.UserDict(x=x, y=y),
        (x, ["a", "b", "c", "d"]),
        (x, {"nested": [y, y]}),
    ):
        from lowtide import _batch

        assert _batch.samples(batch) == 4
        parts = [_batch.part(batch, 0, 3), _batch.part(batch, 3, 4)]
        assert [_batch.samples(one) for one in parts] == [3, 1]
        assert all(type(one) is type(batch) for one in parts)


def test_refusals_have_a_kind_and_a_hint() -> None:
    model, optimizer = made()
    batch = models.tokens(6, 0)

    def closure(part: Any) -> torch.Tensor:
        return models.loss_of(model, part)

    def guard(**more: Any) -> lowtide.Guard:
        return lowtide.Guard(model, optimizer, **more)

    def refused(kind: type[Exception], words: str, call: Any) -> None:
        with pytest.raises(kind, match=words) as caught:
            call()
        assert isinstance(caught.value, lowtide.LowtideError)

    refused(lowtide.CannotCut, "6 samples, and .* has 5", lambda: guard().step((batch.x, batch.y[:5]), closure))
    refused(
        lowtide.CannotCut, "whose samples lowtide does not know", lambda: guard().step((batch.x, object()), closure)
    )
    refused(lowtide.CannotCut, "no samples", lambda: guard().step({"scale": 1.0}, closure))
    refused(lowtide.CannotCut, "without samples", lambda: guard().step(batch.x[:0], closure))
    refused(lowtide.BadClosure, "a float, not a tensor", lambda: guard().step(batch, lambda part: 1.0))
    refused(lowtide.BadClosure, "shape 6x16", lambda: guard().step(batch, lambda part: part.y.float()))
    refused(lowtide.BadClosure, "no gradient", lambda: guard().step(batch, lambda part: part.y.float().mean()))
    refused(lowtide.BadClosure, "go together", lambda: guard(size=len))
    refused(
        lowtide.BadClosure,
        "count gave no number",
        lambda: guard(micro_batch=2).step(batch, closure, count=lambda part: None),
    )
    refused(
        lowtide.BadClosure, "found nothing", lambda: guard(micro_batch=2).step(batch, closure, count=lambda part: 0)
    )
    refused(lowtide.Unsupported, "2 optimizers", lambda: lowtide.Guard(model, [optimizer, optimizer]))
    refused(lowtide.Unsupported, "LBFGS", lambda: lowtide.Guard(model, torch.optim.LBFGS(model.parameters())))
    refused(lowtide.Unsupported, "lazy module", lambda: lowtide.Guard(nn.LazyLinear(3), optimizer))
    refused(lowtide.Unsupported, "type meta", lambda: lowtide.Guard(*on_meta()))
    refused(lowtide.WrongParameters, "are not the model's", lambda: lowtide.Guard(models.Gpt(), optimizer))
    refused(lowtide.WrongParameters, "the model is a str", lambda: lowtide.Guard("model", optimizer))
    refused(lowtide.WrongParameters, "the optimizer is a float", lambda: lowtide.Guard(model, 1e-3))
    # Before memory runs out for the first time.
    for count in (lambda part: "many", 16, lambda part: -3):
        refused(lowtide.BadClosure, "count gave", lambda given=count: guard().step(batch, closure, count=given))
    settings = [
        ("micro_batch", (0, -1, "8", True)),
        ("clip", (-1, float("nan"), "one")),
        ("scaler", (3,)),
        ("also", ([3],)),
    ]
    for name, values in [*settings, ("autocast", (torch.bfloat16,))]:
        for value in values:
            refused(lowtide.BadSetting, name, lambda given={name: value}: guard(**given))
    refused(lowtide.BadState, "no state of a guard", lambda: guard().load_state_dict({}))
    refused(lowtide.BadLimit, "is not a memory limit", lambda: guard(line="much"))
    refused(lowtide.BadLimit, "leaves room for nothing", lambda: guard(line="0"))


def test_memory_that_runs_out_where_a_count_is_looked_at() -> None:
    model, optimizer = made()
    guard = lowtide.Guard(model, optimizer)
    calls: list[int] = []

    def count(part: models.Pair) -> int:
        calls.append(len(part.x))
        if len(calls) == 1:
            raise torch.OutOfMemoryError(OOM)
        return part.y.numel()

    guard.step(models.tokens(6, 0), Failing(model, 0), count=count)
    assert (guard.steps, guard.errors, calls) == (1, 1, [6, 6])


def test_one_guard_writes_to_a_run(tmp_path: Path) -> None:
    model, optimizer = made()
    with lowtide.Guard(model, optimizer, run=tmp_path / "run") as guard:
        guard.step(models.tokens(6, 0), Failing(model, 0))
        with pytest.raises(lowtide.LowtideError, match="writes to this run already") as caught:
            lowtide.Guard(model, optimizer, run=tmp_path / "run")
    assert "guard.close()" in caught.value.hint


def test_a_limit_that_is_not_held_is_said_to_be_none() -> None:
    assert "not held there" in lowtide.Guard(*made(), line="90%").report()
    assert "not held there" not in lowtide.Guard(*made()).report()


def on_meta() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(2, 2, device="meta")
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def test_other_errors_pass_as_they_are() -> None:
    model, optimizer = made()
    guard = lowtide.Guard(model, optimizer)
    with pytest.raises(ValueError, match="of the user"):
        guard.step(models.tokens(6, 0), raiser(ValueError("of the user")))
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        guard.step(models.tokens(6, 0), raiser(RuntimeError("shapes do not fit; not an out of memory case")))
    assert guard.errors == 0


def raiser(error: Exception) -> Any:
    def closure(part: Any = None) -> torch.Tensor:
        raise error

    return closure


def test_an_interrupt_leaves_no_half_done_update(monkeypatch: pytest.MonkeyPatch) -> None:
    from lowtide import _update

    monkeypatch.setattr(_update, "SLICE", 1)  # a slice for every parameter
    ends = []
    for interrupted in (False, True):
        model, optimizer = made()
        guard = lowtide.Guard(model, optimizer)
        real, calls = optimizer.step, [0]

        def step(real: Any = real, calls: list[int] = calls, interrupted: bool = interrupted) -> Any:
            result = real()
            calls[0] += 1
            if interrupted and calls[0] == 5:
                raise KeyboardInterrupt
            return result

        guard._recovery.update.step = step
        with pytest.raises(KeyboardInterrupt) if interrupted else contextlib.nullcontext():
            guard.step(models.tokens(6, 0), Failing(model, 0))
        assert not guard._recovery.update.is_under_way
        ends.append({name: value.clone() for name, value in model.state_dict().items()})
    assert not runs.differences(*ends)


def failing_update(guard: lowtide.Guard, at: int, error: Exception) -> None:
    """The updates of slices from this one on fail, after they have changed their weights."""
    real, calls = guard.optimizer.step, [0]

    def step() -> None:
        real()
        calls[0] += 1
        if calls[0] >= at:
            raise error

    guard._recovery.update.step = step


def test_errors_in_the_update_are_told_as_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    from lowtide import _update

    monkeypatch.setattr(_update, "SLICE", 1)  # a slice for every parameter
    oom = torch.OutOfMemoryError(OOM)
    for at, error, kind, words in (
        (1, ValueError("mine"), ValueError, "mine"),
        (3, ValueError("mine"), lowtide.CannotUndo, "half-way: .*mine"),
        (1, oom, lowtide.OutOfMemory, "optimizer"),
        (3, oom, lowtide.CannotUndo, "half of the weights"),
    ):
        model, optimizer = made()
        guard = lowtide.Guard(model, optimizer)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        failing_update(guard, at, error)
        with pytest.raises(kind, match=words):
            guard.step(models.tokens(6, 0), Failing(model, 0))
        assert not guard._recovery.update.is_under_way
        assert bool(runs.differences(before, dict(model.state_dict()))) == (at > 1), "the first slice is undone"


def test_a_schedule_begins_at_the_first_step() -> None:
    model, optimizer = made()
    with pytest.raises(lowtide.LowtideError, match="says nothing of step 0"):
        lowtide.Guard(model, optimizer, schedule=[]).step(models.tokens(6, 0), Failing(model, 0))


def test_things_of_the_user_are_put_back_too() -> None:
    model, optimizer = made()
    generator = torch.Generator().manual_seed(5)
    drawn: list[float] = []
    guard = lowtide.Guard(model, optimizer, also=[generator])
    fails = [True, False]

    def closure(part: models.Pair) -> torch.Tensor:
        drawn.append(torch.rand((), generator=generator).item())
        if fails.pop(0):
            raise torch.OutOfMemoryError(OOM)
        return models.loss_of(model, part)

    guard.step(models.tokens(6, 0), closure)
    assert drawn[0] == drawn[1]


def test_is_oom_and_read_oom() -> None:
    assert lowtide.is_oom(torch.OutOfMemoryError(OOM))
    assert lowtide.is_oom(
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000 bytes. Error code 12 (Cannot allocate memory)"
        )
    )
    assert lowtide.is_oom(MemoryError())
    assert not lowtide.is_oom(RuntimeError("we retry on CUDA out of memory errors, see the FAQ"))
    assert not lowtide.is_oom(ValueError("x"))
    found = lowtide.read_oom(torch.OutOfMemoryError(OOM))
    assert found is not None and (found.requested, found.place) == (2 << 30, "device")
    assert lowtide.read_oom("all is well") is None


def test_what_the_guard_raised_is_explained_as_what_torch_said(tmp_path: Path) -> None:
    model, optimizer = made()
    with pytest.raises(lowtide.OutOfMemory) as caught:
        lowtide.Guard(model, optimizer).step(models.tokens(6, 0), Failing(model, 100))
    explanation = lowtide.explain(caught.value)
    assert explanation.verdicts[0]["place"] == "device" and explanation.verdicts[0]["tried_bytes"] == 2 << 30
    assert "half the batch" not in explanation.advice[0]
    found = lowtide.read_oom(caught.value)
    assert found is not None and found.requested == 2 << 30
    log = tmp_path / "train.log"
    log.write_text(OOM)
    assert lowtide.explain(log).cause == lowtide.explain(str(log)).cause == lowtide.explain(OOM).cause
    with pytest.raises(TypeError, match="not NoneType"):
        lowtide.explain(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("torch_there", "words"),
    [
        ("sys.modules['torch'] = None", "needs torch, which this Python does not have"),
        (
            "sys.modules['torch'] = types.SimpleNamespace(__version__='2.1.0')",
            "needs torch 2.5 or newer, and this is 2.1.0",
        ),
    ],
)
def test_without_the_torch_it_needs(torch_there: str, words: str) -> None:
    script = f"""
import sys, types
{torch_there}
import lowtide
assert lowtide.is_oom("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB")
for use in ("lowtide.Guard", "lowtide.inject", "lowtide.Feed"):
    try:
        eval(use)
    except lowtide.Unsupported as error:
        print(error)
try:
    import lowtide.integrations.transformers
except lowtide.Unsupported as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.count(words) == 4, said


def test_watch_serves_a_run_and_ends(tmp_path: Path) -> None:
    import urllib.request

    model, optimizer = made()
    lowtide.Guard(model, optimizer, run=tmp_path / "run")
    with lowtide.watch(tmp_path / "run") as page:
        with urllib.request.urlopen(page.url, timeout=10) as answer:
            assert answer.status == 200
        assert page.url in page._repr_html_()
    assert "closed" in repr(page)
    with pytest.raises(lowtide.LowtideError, match="no folder"):
        lowtide.watch(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(lowtide.LowtideError, match="no run is in this folder"):
        lowtide.watch(tmp_path / "empty")
