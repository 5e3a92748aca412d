"""Builds the wheel: maturin's extension module and package, and the program beside it.

maturin builds a program or an extension module, not both. So the program is built by cargo first and laid where maturin takes
the scripts of a wheel from. Nothing of it needs LibTorch.
"""

import os
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import (  # noqa: F401  the other hooks of PEP 517, as they are
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

ROOT = Path(__file__).resolve().parents[2]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _lay_program()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _lay_program()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def _lay_program():
    scripts = ROOT / "target" / "wheel" / "lowtide.data" / "scripts"
    scripts.mkdir(parents=True, exist_ok=True)
    given = os.environ.get("LOWTIDE_PROGRAM")
    program = Path(given) if given else _build()
    laid = scripts / "lowtide"
    laid.unlink(missing_ok=True)
    shutil.copy2(program, laid)
    strip = shutil.which("strip")
    if strip:
        subprocess.run([strip, laid], check=True)


def _build():
    cargo = os.environ.get("CARGO", "cargo")
    subprocess.run([cargo, "build", "--release", "--locked", "-p", "lowtide-cli"], cwd=ROOT, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "lowtide"
