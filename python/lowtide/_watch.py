"""The page of ``lowtide watch``, from Python: in a notebook it shows itself."""

from __future__ import annotations

import atexit
import html
import json
import os
import subprocess
from pathlib import Path

from . import _program
from ._errors import LowtideError

_HEIGHT = 640


class Watch:
    """A page that shows runs live, served until ``close`` or the end of Python. See ``lowtide.watch``."""

    def __init__(self, folders: list[str], port: int | None) -> None:
        command = [_program.find(), "watch", "--json", *folders]
        if port is not None:
            command += ["--port", str(port)]
        self._process: subprocess.Popen[str] | None = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if not said:
            _, error = self._process.communicate()
            self._process = None
            message, _, hint = error.strip().removeprefix("error: ").partition("\nhint: ")
            raise LowtideError(message or "the page could not be served", hint)
        self.url: str = json.loads(said)["url"]
        atexit.register(self.close)

    def close(self) -> None:
        """Ends the page. Runs do not notice."""
        process, self._process = self._process, None
        if process is None:
            return
        atexit.unregister(self.close)
        process.terminate()
        process.communicate()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<lowtide.Watch {self.url if self._process is not None else 'closed'}>"

    def _repr_html_(self) -> str:
        if self._process is None:
            return html.escape(repr(self))
        url = html.escape(self.url, quote=True)
        return (
            f'<iframe src="{url}" width="100%" height="{_HEIGHT}" style="border:0"></iframe>'
            f'<div>or in a window of its own: <a href="{url}" target="_blank">{url}</a></div>'
        )


def watch(*runs: str | os.PathLike[str], port: int | None = None) -> Watch:
    """Shows runs live on a page of this machine: memory against its limit, every error and its answer, the loss.

    ::

        guard = lowtide.Guard(model, optimizer, run="runs/mine")
        lowtide.watch("runs/mine")

    In a notebook the page shows itself; elsewhere ``url`` says where it is. It is served until ``close``, or until Python ends.

    Args:
        runs: folders of runs, or of several; the newest in ``runs/`` where none is given.
        port: the port; the first free one where it is left out.
    """
    for one in runs:
        if not Path(one).is_dir():
            raise LowtideError(
                f"there is no folder {os.fspath(one)}", "give it the folder that the guard was given as run="
            )
    return Watch([os.fspath(one) for one in runs], port)
