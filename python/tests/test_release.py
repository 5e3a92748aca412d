"""Whether cached blocks are released is tried out. No GPU is needed: steps are only times here."""

from __future__ import annotations

from lowtide._release import AGAIN, EVERY, TRIES, Release


def choices(release: Release, steps: int, seconds: dict[bool, float], start: float = 0.0) -> list[bool]:
    made, now = [], start
    for _ in range(steps):
        made.append(release.after_overflow(now))
        now += seconds[made[-1]]
    return made


def test_what_is_faster_is_taken() -> None:
    both = [True] * TRIES + [False] * TRIES
    assert choices(Release(), 10, {True: 1.0, False: 2.0}) == [*both, *[True] * 4]
    assert choices(Release(), 10, {True: 2.0, False: 1.0}) == [*both, *[False] * 4]


def test_one_slow_step_does_not_decide() -> None:
    release, now = Release(), 0.0
    for number in range(2 * TRIES):
        release.after_overflow(now)
        now += 50.0 if number == 0 else 1.0 if number < TRIES else 2.0
    assert release.after_overflow(now)


def test_steps_that_did_not_overflow_are_not_timed() -> None:
    release = Release()
    assert release.after_overflow(0.0)
    release.after_other()
    assert release.after_overflow(1000.0)
    assert choices(release, 2 * TRIES + 1, {True: 2.0, False: 1.0}, start=1002.0)[-1] is False


def test_it_is_tried_again_after_a_while() -> None:
    release = Release()
    made = choices(release, AGAIN, {True: 2.0, False: 1.0})
    assert made[-1] is False
    assert choices(release, 2 * TRIES + 2, {True: 1.0, False: 2.0}, start=1e6)[-1] is True


def test_where_nothing_is_released_few_steps_are_looked_at() -> None:
    release = Release()
    assert all(release.is_due() for _ in range(20)), "while nothing is decided, every step is"
    choices(release, 2 * TRIES + 1, {True: 2.0, False: 1.0})
    assert [release.is_due() for _ in range(2 * EVERY)] == ([False] * (EVERY - 1) + [True]) * 2
    release.after_other()
    assert release.is_due(), "a step that does not overflow costs nothing to look at"


def test_where_blocks_are_released_every_step_is_looked_at() -> None:
    release = Release()
    choices(release, 2 * TRIES + 1, {True: 1.0, False: 2.0})
    assert all(release.is_due() for _ in range(20))
