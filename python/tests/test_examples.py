"""The examples run as they stand, and survive errors on purpose."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/python"
NEEDS = {"finetune": "transformers", "module": "lightning"}


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "errors"))
def test_runs(name: str, tmp_path: Path) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    environment = {**os.environ, "LOWTIDE_EXAMPLE_ERRORS": "2"}
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 out-of-memory errors, 2 recovered" in done.stdout
    assert "split" in done.stdout
