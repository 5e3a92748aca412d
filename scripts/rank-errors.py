#!/usr/bin/env python3
"""Errors on ranks, each recovered from and compared with a clean run bit for bit, on every rank.

    scripts/rank-errors.py [--all]       with a Python that has torch and lowtide

Prints a line a variant; the exit code is 1 where a run ended with other bits, or a rank hung. Without `--all` it is the share
of these cases that every run of the tests has.
"""

import argparse
import sys
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "python/tests"
sys.path.insert(0, str(TESTS))

import ranks  # noqa: E402

# Script, ranks, cases of each variant in every run of the tests, and with --all; seconds until it counts as hung.
TABLE = [
    ("ddp_errors.py", 2, 8, 80, 3600),
    ("ddp_errors.py", 4, 4, 40, 3600),
    ("fsdp_errors.py", 2, 7, 96, 3600),
    ("fsdp_errors.py", 4, 6, 96, 3600),
    ("fsdp_evaluated.py", 2, 4, 36, 3600),
    ("fsdp_evaluated.py", 4, 4, 48, 3600),
    ("fsdp_saved.py", 2, 6, 36, 3600),
    ("fsdp_saved.py", 4, 8, 48, 3600),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="over a thousand errors")
    every = parser.parse_args().all
    begun, cases, errors, bad = time.monotonic(), 0, 0, 0
    for script, world, share, full, seconds in TABLE:
        answers = [one.answer() for one in ranks.run(script, world, str(full if every else share), seconds=seconds)]
        for variant in answers[0]:
            found = [answer[variant] for answer in answers]
            different = max(len(one["different"]) for one in found)
            raised = sum(one["errors"] for one in found)
            print(f"{script} {variant}, {world} ranks: {found[0]['cases']} cases, {raised} errors, {different} different", flush=True)
            cases, errors, bad = cases + found[0]["cases"], errors + raised, bad + different
    print(f"{cases} cases, {errors} errors, {bad} different, 0 hung, {time.monotonic() - begun:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
