"""The Python lines of README and guides run as they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lowtide
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


def blocks() -> Iterator[Any]:
    """Those with a guard and a loop, for which nothing has to be there but a model, an optimizer and data."""
    for page in ("README.md", "docs/guide/python.md"):
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)):
            if "lowtide.Guard(model, optimizer" in block and "for x, y in loader" in block:
                yield pytest.param(block, id=f"{page}-{number}")


@pytest.mark.parametrize("block", list(blocks()))
def test_runs_as_it_stands(block: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    before = model.weight.clone()
    names: dict[str, Any] = {
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=0.1),
        "loader": [(torch.randn(6, 4), torch.randint(0, 3, (6,))) for _ in range(3)],
        "cross_entropy": torch.nn.functional.cross_entropy,
    }
    exec(block, names)
    assert isinstance(names["guard"], lowtide.Guard)
    assert names["guard"].steps == 3
    assert not torch.equal(model.weight, before)


def test_both_pages_have_one() -> None:
    pages = {parameter.id.rpartition("-")[0] for parameter in blocks()}
    assert pages == {"README.md", "docs/guide/python.md"}
