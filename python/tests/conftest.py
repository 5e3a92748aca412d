"""What tests share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
# Sums in another order would be other bits; with one thread there is one order.
torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failures", type=int, default=144, help="failures that the tests of the contract inject, about")


@pytest.fixture
def failures(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--failures")


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    """What another test compiled is not this one's."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        dynamo.utils.counters.clear()
