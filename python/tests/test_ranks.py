"""The guard on several ranks of DDP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import lowtide
import models
import pytest
import ranks
import torch
from lowtide import _program

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")


@pytest.mark.parametrize(("world", "cases"), [(2, 5), (4, 4)])
def test_errors_of_ranks_end_with_the_bits_of_a_clean_run(world: int, cases: int) -> None:
    """``scripts/rank-errors.py --all`` runs over a thousand of these."""
    answers = [one.answer() for one in ranks.run("ddp_errors.py", world, str(cases))]
    ranks.check_recovered(answers, cases)
    if world == 4:
        failed = [tuple(one) for answer in answers[0].values() for one in answer["ranks"]]
        assert {(0,), (1,), (2,), (3,), (1, 2)} <= set(failed)


@pytest.mark.parametrize(
    ("library", "errors", "schedule"), [("transformers", 3, [[0, 4], [1, 2]]), ("accelerate", 2, [[0, 6], [1, 3]])]
)
def test_trainers_recover_together(tmp_path: Path, library: str, errors: int, schedule: list[list[int]]) -> None:
    pytest.importorskip(library)
    for one in ranks.run("trainer_rank.py", 2, library, str(tmp_path), ACCELERATE_USE_CPU="true"):
        assert one.answer() == {"errors": errors, "clean": 0, "schedule": schedule, "different": []}


def test_ranks_weigh_what_they_hold() -> None:
    """Weights are those of one process that has the targets of all ranks, up to rounding."""
    model = models.Gpt()
    torch.manual_seed(3)
    for one, other in zip(model.parameters(), models.Gpt().parameters()):
        one.data = other.data
    model.eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step, samples in enumerate((12, 11, 8, 8)):
        optimizer.zero_grad()
        models.loss_of(model, models.tokens(samples, step)).backward()
        optimizer.step()
    alone = [one.flatten()[:8].tolist() for one in model.parameters()]
    for micro_batch in ("6", "2"):
        first, second = (one.answer() for one in ranks.run("rank_cases.py", 2, "uneven", micro_batch))
        assert first == second
        for one, other in zip(alone, first):
            assert one == pytest.approx(other, rel=2e-3, abs=2e-5)


@pytest.mark.parametrize(("kind", "how"), [("ddp", "ends"), ("ddp", "destroys"), ("fsdp", "closes")])
def test_a_script_that_ends_takes_the_guards_groups_with_it(kind: str, how: str) -> None:
    for one in ranks.run("rank_cases.py", 2, "ending", kind, how):
        found = one.answer()
        assert found["before"] < found["during"]
        assert found["after"] <= found["before"]
        assert "terminate" not in one.errors and "lowtide" not in one.errors, one.errors


def test_a_rank_that_falls_silent_is_named() -> None:
    first, second = ranks.run("rank_cases.py", 2, "silent", "killed")
    assert (first.code, second.code) == (75, -9)
    assert "rank 0 ends in step 2" in first.errors
    assert "rank 1 fell silent, last heard of before step 2" in first.errors


def test_a_rank_that_stops_is_named_after_the_timeout() -> None:
    started = ranks.start("rank_cases.py", 2, "silent", "stopped")
    with started:
        assert started.wait(0, 120) == 75
        errors = started.errors(0)
    assert "no answer for 4 s" in errors or "the agreement failed" in errors
    assert "rank 1 fell silent" in errors


def test_an_error_inside_of_the_walk_ends_all_and_is_told() -> None:
    first, second = ranks.run("rank_cases.py", 2, "silent", "walking")
    assert (first.code, second.code) == (75, 1)
    assert "rank 1 ended first: OutOfMemoryError: CUDA out of memory" in first.errors
    assert lowtide.is_oom(second.errors)


def test_refusals_are_the_same_on_all_ranks(tmp_path: Path) -> None:
    expected = {
        "version": "is not known on several ranks, 1.0 is",
        "plain": "the model is neither in DDP nor in FSDP2",
        "hook": "DDP with the communication hook odd_hook",
        "arguments": "rank 0 has micro_batch=2, and rank 1 has micro_batch=3",
        "collective": "ran +1 collectives in a step that are not DDP's",
        "order": "rank 0 is in guard.save, and rank 1 in the first guard.step",
        "save": "guard.save failed on rank 1: ",
        "load": "guard.load failed on rank 0: FileNotFoundError: ",
    }
    for one in ranks.run("rank_cases.py", 2, "refused", str(tmp_path), *expected):
        answers = one.answer()
        for what, words in expected.items():
            assert words in answers[what] and "\nhint: " in answers[what]


def test_memory_that_runs_out_in_a_checkpoint_is_tried_again(tmp_path: Path) -> None:
    for one in ranks.run("rank_cases.py", 2, "saved", str(tmp_path)):
        answer = one.answer()
        assert answer == {"errors": 2, "steps": 1, "is_same": True, "is_random_same": True}


def test_the_rank_that_ran_out_is_named(tmp_path: Path) -> None:
    for one in ranks.run("rank_cases.py", 2, "told", str(tmp_path / "run")):
        assert "[step 1] rank 1: out of memory in " in one.answer()
    events = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    (event,) = [one for one in events if one["event"] == "out_of_memory"]
    assert event["rank"] == 1
    assert not {"peak", "reserved"} & event.keys(), "rank 0 writes, and knows only its own"
    # Memory is told of every rank, by what each of them counted.
    memory = {one["rank"]: one for one in events if one["event"] == "memory"}
    assert memory.keys() == {0, 1}
    assert memory[1]["resident"] != memory[0]["resident"] and min(one["resident"] for one in memory.values()) > 0


def test_an_overflow_on_one_rank_is_answered_once() -> None:
    for one in ranks.run("rank_cases.py", 2, "overflowed"):
        assert one.answer() == [[0, 4], [2, 2]]


def test_each_rank_evaluates_by_itself() -> None:
    first, second = (one.answer() for one in ranks.run("rank_cases.py", 2, "evaluated"))
    assert (first["total"], first["schedule"]) == (second["total"], second["schedule"])
    assert first["losses"] != second["losses"]


def test_a_killed_rank_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    """kill -9 of a rank under torchrun, which starts the group again."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--max_restarts=1", "--standalone"]
    # Else ranks that start again may find each other's old addresses in torchrun's store.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    ends = []
    for killed in ("kill", "no"):
        (tmp_path / killed).mkdir()
        arguments = [ranks.SCRIPTS / "rank_cases.py", "checkpointed", tmp_path / killed, killed]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=240, env=environment)
        assert done.returncode == 0, done.stderr[-4000:]
        # From files: under torchrun both ranks print into one pipe, where lines can run together.
        ends.append([(tmp_path / killed / f"end-{rank}.json").read_text() for rank in range(2)])
        assert ("exitcode: -9" in done.stderr) == (killed == "kill"), done.stderr[-4000:]
    assert ends[0] == ends[1], "with the same weights and random numbers as without the kill"


def test_a_group_that_lost_a_rank_is_started_again_from_its_checkpoint_with_less_at_once(tmp_path: Path) -> None:
    """Memory runs out in the walk of a rank: `lowtide run` starts the group again with half the micro-batch."""
    out = tmp_path / "out"
    out.mkdir()
    script = str(ranks.SCRIPTS / "restarted_rank.py")
    group = [str(Path(sys.executable).with_name("torchrun")), "--standalone", "--nproc_per_node=2", script]
    flags = ["--batch_size", "8", "--gradient_accumulation_steps", "1", "--out"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    command = [_program.find(), "run", "--", *group, *flags, str(out), "--fails"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "rank 1 ended first: OutOfMemoryError: CUDA out of memory" in done.stderr
    assert "finished after 1 restart, effective batch 8 throughout" in done.stderr
    ends = [json.loads((out / f"end-{rank}.json").read_text()) for rank in range(2)]
    for end in ends:
        assert end["begun"] == 2, "two steps were saved"
        assert [(step, way[0]) for step, way in end["schedule"]] == [(0, 8), (2, 4)]
    clean = tmp_path / "clean"
    clean.mkdir()
    for one in ranks.run("restarted_rank.py", 2, *flags, str(clean), "--schedule", json.dumps(ends[0]["schedule"])):
        assert one.code == 0, one.errors[-4000:]
    for rank, end in enumerate(ends):
        assert json.loads((clean / f"end-{rank}.json").read_text())["bits"] == end["bits"]
