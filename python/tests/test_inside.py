"""``lowtide run --inside``: scripts that know nothing of Lowtide, run by the program, with errors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import runs
import torch
from lowtide import _program

SCRIPTS = Path(__file__).resolve().parent / "scripts"


def run(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Starts a command in a folder."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300)


def weights(path: Path) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(path)
    return state


@pytest.mark.parametrize(
    ("script", "library", "numbers"),
    [("hugging_face.py", "transformers", "700,710"), ("lightning_module.py", "lightning", "60,75")],
)
def test_a_script_that_knows_nothing_of_it_survives(tmp_path: Path, script: str, library: str, numbers: str) -> None:
    pytest.importorskip(library)
    shutil.copy(SCRIPTS / script, tmp_path)
    command = [_program.find(), "run", "--inside", "--", sys.executable, script]
    kept = run(tmp_path, *command, "kept.pt", LOWTIDE_INJECT=numbers)
    assert kept.returncode == 0, kept.stderr
    assert "errors 2\n" in kept.stdout
    assert "out-of-memory errors, 2 recovered" in kept.stderr
    # The same schedule by hand, without an error.
    same = run(tmp_path, sys.executable, script, "same.pt")
    assert same.returncode == 0, same.stderr
    assert "errors 0\n" in same.stdout
    assert not runs.differences(weights(tmp_path / "kept.pt"), weights(tmp_path / "same.pt"))


def test_several_devices_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    script = (
        "import transformers, types\n"
        "trainer = object.__new__(transformers.Trainer)\n"
        "trainer.accelerator = types.SimpleNamespace(distributed_type='DistributedType.DEEPSPEED')\n"
        "trainer.train()\n"
    )
    (tmp_path / "two.py").write_text(script)
    kept = run(tmp_path, _program.find(), "run", "--inside", "--", sys.executable, "two.py")
    assert kept.returncode == 1
    assert "several devices train together" in kept.stderr
    assert "hint: " in kept.stderr or "lowtide run" in kept.stderr


def test_a_python_without_the_package_is_refused(tmp_path: Path) -> None:
    # Without the folders of packages no package is there.
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    (tmp_path / "train.py").write_text("print('trains')\n")
    refused = run(tmp_path, _program.find(), "run", "--inside", "--", "./python", "train.py")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        "error: --inside needs the package lowtide, which ./python has not\n"
        "hint: ./python -m pip install . (in a clone of lowtide)\n"
    )
    assert not (tmp_path / "runs").exists()
    refused = run(tmp_path, _program.find(), "run", "--inside", "--", "sh", "-c", "echo trains")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "is for a command that is Python" in refused.stderr
