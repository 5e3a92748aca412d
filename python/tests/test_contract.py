"""The contract: after an error anywhere in a step, every bit is that of a run on the same schedule without one."""

from __future__ import annotations

import random

import pytest
import runs

SETUPS = {setup.name: setup for setup in runs.setups()}


@pytest.mark.parametrize("name", SETUPS)
@pytest.mark.parametrize("step", [0, 1])
def test_every_operation_may_fail(name: str, step: int, failures: int) -> None:
    setup = SETUPS[name]
    operations = setup.run(inject_in=step).operations
    assert operations > 50
    clean: dict[str, dict] = {}
    # Three failures for each operation that is chosen, in two steps of every setup.
    for at in chosen(operations, max(1, failures // (3 * 2 * len(SETUPS))), f"{name}-{step}"):
        # One failure is answered by cleaning; a second one in the retry by smaller pieces.
        for numbers in ([at], [at, 2 * at]):
            outcome = setup.run(inject_in=step, at=numbers)
            assert outcome.raised, f"operation {at} of {operations} was not reached"
            key = repr(outcome.schedule)
            if key not in clean:
                clean[key] = setup.run(schedule=outcome.schedule).state
            wrong = runs.differences(outcome.state, clean[key])
            assert not wrong, f"after {outcome.raised}: {sorted(wrong)[:5]} differ\n{outcome.guard.report()}"


def chosen(operations: int, number: int, seed: str) -> list[int]:
    """A spread of operations, others on every machine and day only by the seed."""
    if number >= operations:
        return list(range(1, operations + 1))
    return sorted(random.Random(seed).sample(range(1, operations + 1), number))
