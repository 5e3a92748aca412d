"""Builds the wheel: maturin's extension module and package, and the program beside it.

maturin builds a program or an extension module, not both. So the program is built by cargo first and laid where maturin takes
the scripts of a wheel from. Nothing of it needs LibTorch. ``LOWTIDE_PROGRAM`` names one that is built already; the extension
module is then built in the profile of the tests, which have built most of it. ``LOWTIDE_GLIBC`` names the oldest glibc that both
must run with; then zig links them, in the profile that takes longer and makes a smaller wheel: it is built once and fetched often.
"""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import (  # noqa: F401  the hooks of PEP 517 that need no program
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

ROOT = Path(__file__).resolve().parents[2]
# As pyproject.toml has it; maturin asks for it even where nothing of it is needed.
SCRIPTS = ROOT / "target" / "wheel" / "lowtide.data" / "scripts"
GLIBC = os.environ.get("LOWTIDE_GLIBC")
PROFILE = "release" if GLIBC or os.environ.get("LOWTIDE_PROGRAM") else "front"
MACHINE = f"{platform.machine()}-unknown-linux-gnu"
LINKED = f" --zig --target {MACHINE} --compatibility manylinux_{GLIBC.replace('.', '_')}" if GLIBC else ""
os.environ.setdefault("MATURIN_PEP517_ARGS", f"--profile {PROFILE}{LINKED}")


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def prepare_metadata_for_build_editable(metadata_directory, config_settings=None):
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    return maturin.prepare_metadata_for_build_editable(metadata_directory, config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    lay_program()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    lay_program()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def lay_program():
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    given = os.environ.get("LOWTIDE_PROGRAM")
    laid = SCRIPTS / "lowtide"
    laid.unlink(missing_ok=True)
    shutil.copy2(Path(given) if given else build_program(), laid)
    strip = shutil.which("strip")
    if strip:
        subprocess.run([strip, laid], check=True)


def build_program():
    cargo = os.environ.get("CARGO", "cargo")
    how = ["zigbuild", "--target", f"{MACHINE}.{GLIBC}"] if GLIBC else ["build"]
    subprocess.run([cargo, *how, "--profile", PROFILE, "--locked", "-p", "lowtide-cli"], cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return (target / MACHINE if GLIBC else target) / PROFILE / "lowtide"
