"""The guard on several ranks of FSDP2."""

from __future__ import annotations

from pathlib import Path

import lowtide
import models
import pytest
import ranks
import runs
import torch

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")


@pytest.mark.parametrize(("world", "cases"), [(2, 4), (4, 6)])
def test_errors_of_ranks_end_with_the_bits_of_a_clean_run(world: int, cases: int) -> None:
    """``scripts/rank-errors.py --all`` runs hundreds of these."""
    answers = [one.answer() for one in ranks.run("fsdp_errors.py", world, str(cases), seconds=600)]
    ranks.check_recovered(answers, cases)
    if world == 4:
        failed = [tuple(one) for answer in answers[0].values() for one in answer["ranks"]]
        assert {(0,), (1,), (2,), (3,), (1, 2)} <= set(failed)


@pytest.mark.parametrize(("world", "cases", "variants"), [(2, 4, ["plain", "foreign"]), (4, 4, ["hsdp"])])
def test_an_evaluation_with_errors_has_the_bits_of_one_without(world: int, cases: int, variants: list[str]) -> None:
    """``scripts/rank-errors.py --all`` runs hundreds of these."""
    answers = [one.answer() for one in ranks.run("fsdp_evaluated.py", world, str(cases), *variants, seconds=600)]
    ranks.check_recovered(answers, cases)


@pytest.mark.parametrize(("world", "cases", "variant"), [(2, 6, "buffers"), (4, 8, "hsdp")])
def test_checkpoints_with_errors_change_no_bit(world: int, cases: int, variant: str) -> None:
    """``scripts/rank-errors.py --all`` runs hundreds of these."""
    ended = ranks.run("fsdp_saved.py", world, str(cases), variant, seconds=600)
    found = [one.answer()[variant] for one in ended]
    assert not any(one["different"] for one in found), found
    assert sum(one["errors"] for one in found) >= cases, found


def test_a_checkpoint_is_read_on_any_number_of_ranks_and_on_none(tmp_path: Path) -> None:
    written = [one.answer() for one in ranks.run("fsdp_saved.py", 2, "write", str(tmp_path))]
    assert written[0] == written[1]
    for one in ranks.run("fsdp_saved.py", 4, "read", str(tmp_path)):
        assert one.answer() == written[0]
    model = models.Gpt(width=16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    guard = lowtide.Guard(model, optimizer)
    guard.load(tmp_path / "saved.pt")
    assert guard.steps == 2
    assert runs.fingerprints(model, optimizer) == written[0]


def test_a_checkpoint_that_fails_on_one_rank_fails_on_all_and_names_it(tmp_path: Path) -> None:
    for one in ranks.run("fsdp_saved.py", 2, "fails", str(tmp_path)):
        saving, loading, steps = one.answer()
        assert saving.startswith("guard.save failed on rank 1: OSError: [Errno 28] No space left on device\nhint: ")
        assert loading.startswith("guard.load failed on rank 0: FileNotFoundError: ") and "other.pt" in loading
        assert steps == 1, "the file of the step before is still whole"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["fails.pt", "fails.pt.00000001"]


def test_only_the_first_step_is_checked_and_what_is_kept_aside_is_said() -> None:
    for found in (one.answer() for one in ranks.run("fsdp_facts.py", 2)):
        # One before each collective (three gathered forwards, two again backwards, three reduced), and one after the last.
        assert found["flags"] == [9, 0, 0, 0]
        # A reduce-scatter has its output beside its input.
        assert found["largest"] * 1.5 <= found["aside"] <= found["largest"] * 1.5 + 2048
        assert "2 ranks of FSDP2, " in found["report"]
        assert found["bare"] == (
            "LowtideError: rank 1 has no batch to evaluate, and under FSDP2 all ranks compute together\n"
            "hint: give every rank at least one batch"
        )
        assert found["scaler"].startswith("Unsupported: a loss scale (fp16) under FSDP2\nhint: use bfloat16")
        assert found["fsdp1"].startswith(
            "Unsupported: the model is in FullyShardedDataParallel (FSDP1)\nhint: use torch"
        )


def test_a_rank_that_fails_in_its_walk_ends_all_of_them() -> None:
    first, second = ranks.run("fsdp_facts.py", 2, "silent")
    assert "went on" not in first.output + second.output
    assert second.code == 1
    assert "CUDA out of memory, in the walk" in second.errors
    assert first.code == 75
    assert "rank 1 ended first: OutOfMemoryError: CUDA out of memory, in the walk" in first.errors
