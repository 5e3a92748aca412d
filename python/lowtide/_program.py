"""The program ``lowtide`` that was installed with this package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

from ._errors import LowtideError


def find() -> str:
    """Where it is: beside this Python, else where a shell would find it."""
    for scheme in (None, "posix_user"):
        folder = sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")
        path = Path(folder, "lowtide")
        if os.access(path, os.X_OK):
            return str(path)
    found = os.environ.get("LOWTIDE_PROGRAM") or shutil.which("lowtide")
    if found is None:
        raise LowtideError(
            "the program lowtide is not found", "pip install . in a clone of lowtide puts it beside Python"
        )
    return found


def run(*args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Runs it to its end."""
    return subprocess.run([find(), *args], input=stdin, capture_output=True, check=False)
