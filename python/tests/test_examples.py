"""The examples run as they stand, and survive errors on purpose."""

from __future__ import annotations

import ast
import json
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


# The cells of a notebook, run one after the other; what the last line of a cell gives shows itself as in a notebook.
NOTEBOOK = """
import ast, json, sys
names = {"__name__": "__main__"}
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] != "code":
        continue
    tree = ast.parse("".join(cell["source"]))
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, sys.argv[1], "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), sys.argv[1], "eval"), names)
        print(value._repr_html_() if hasattr(value, "_repr_html_") else value)
"""


def test_the_notebook_runs(tmp_path: Path) -> None:
    notebook = EXAMPLES / "survive.ipynb"
    command = [sys.executable, "-c", NOTEBOOK, str(notebook)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 out-of-memory errors, 2 recovered" in done.stdout
    assert "the same weights, bit for bit" in done.stdout
    assert "<iframe src=" in done.stdout
    assert "do now" in done.stdout, "the explanation"


def test_the_notebook_shows_what_it_gave() -> None:
    """People read it without running it: no cell is left without its output, none failed."""
    cells = [one for one in json.loads((EXAMPLES / "survive.ipynb").read_text())["cells"] if one["cell_type"] == "code"]
    kinds = [output["output_type"] for one in cells for output in one["outputs"]]
    assert all(one["execution_count"] for one in cells)
    assert "error" not in kinds
    shown = [one for one in cells if isinstance(ast.parse("".join(one["source"])).body[-1], ast.Expr)]
    assert sum(bool(one["outputs"]) for one in shown) >= 4
