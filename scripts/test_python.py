"""Tests the Python package as people get it: a wheel is built, installed, and its tests run against that.

    scripts/test_python.py [ARGUMENTS OF PYTEST]     LOWTIDE_TORCH_PYTHON names a Python with torch, maturin and pytest

The program in the wheel is the one that the other tests use. What is checked besides: that the types are right, that the
stubs are those of the extension module, that `import lowtide` imports no torch, and what the wheel takes.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PYTHON = os.environ["LOWTIDE_TORCH_PYTHON"]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", PROJECT / "target"))
MOST_BYTES = 8_500_000


def main() -> int:
    run("-m", "mypy", "--cache-dir", TARGET / "mypy", "python/lowtide", cwd=PROJECT)
    run("-m", "ruff", "check", "--no-cache", "python", "examples/python", "scripts/gpu-python.py", cwd=PROJECT)
    run("-m", "ruff", "format", "--no-cache", "--check", "python", "examples/python", cwd=PROJECT)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = built(folder)
        run("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", "--force-reinstall", wheel)
        check_size(wheel)
        check_import()
        # From elsewhere, so that what is tested is what was installed.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(folder / "compiled")}
        run("-m", "mypy.stubtest", "lowtide._native", cwd=folder)
        tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", os.cpu_count() or 1, "--dist", "worksteal"]
        run(*tests, PROJECT / "python/tests", *sys.argv[1:], cwd=folder, env=environment)
    return 0


def built(folder: Path) -> Path:
    environment = {**os.environ, "PYTHON_WITH_MATURIN": PYTHON, "LOWTIDE_PROGRAM": str(TARGET / "release/lowtide")}
    subprocess.run([sys.executable, "-B", PROJECT / "scripts/wheel", folder], env=environment, check=True)
    return next(folder.glob("*.whl"))


def check_size(wheel: Path) -> None:
    size = wheel.stat().st_size
    assert size <= MOST_BYTES, f"the wheel takes {size} bytes"


def check_import() -> None:
    """The least of several tries: a busy machine makes all but a few of them slow."""
    question = (
        "import sys, time; begun = time.perf_counter(); import lowtide; "
        "print(1e3 * (time.perf_counter() - begun), 'torch' in sys.modules)"
    )
    answers = [run("-c", question, output=subprocess.PIPE).split() for _ in range(7)]
    assert all(has_torch == "False" for _, has_torch in answers), "import lowtide imports torch"
    least = min(float(time) for time, _ in answers)
    # No matter of passing: machines are as fast as they are.
    print(f"import lowtide: {least:.1f} ms")


def run(*args, output=None, cwd=None, env=None) -> str:
    command = [PYTHON, *map(str, args)]
    return subprocess.run(command, check=True, text=True, stdout=output, cwd=cwd, env=env).stdout


if __name__ == "__main__":
    sys.exit(main())
