"""Errors and logs, read and explained."""

from __future__ import annotations

import dataclasses
import json
import os
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import _native, _program
from ._errors import LowtideError, OutOfMemory

_NOTHING_FOUND = 1
# Longer ones no system opens.
_LONGEST_PATH = 4096


@dataclasses.dataclass(frozen=True)
class Oom:
    """What an out-of-memory error says. Sizes are in bytes; what the text does not tell is ``None``."""

    engine: str
    place: str
    device: int | None = None
    requested: int | None = None
    capacity: int | None = None
    free: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    limit: int | None = None


def is_oom(error: BaseException | str) -> bool:
    """Whether an exception or a text says that memory ran out, whatever engine wrote it.

    Safer than looking for words: a text that only mentions the error is none.
    """
    if isinstance(error, OutOfMemory):
        return True
    if isinstance(error, BaseException):
        return isinstance(error, MemoryError) or _native.is_oom(_text_of(error))
    return _native.is_oom(error)


def read_oom(error: BaseException | str) -> Oom | None:
    """The figures of an out-of-memory error; ``None`` where it is none."""
    if isinstance(error, OutOfMemory) and error.error:
        error = error.error
    found = _native.read_oom_json(_text_of(error) if isinstance(error, BaseException) else error)
    if found is None:
        return None
    values = json.loads(found)
    return Oom(**{field.name: values[field.name] for field in dataclasses.fields(Oom)})


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Why memory ran out, and what to do about it. Printed, it is what ``lowtide explain`` prints."""

    text: str
    verdicts: list[dict[str, Any]] = dataclasses.field(repr=False)

    def __bool__(self) -> bool:
        """Whether there was an out-of-memory error at all."""
        return bool(self.verdicts)

    def __str__(self) -> str:
        return self.text

    @property
    def cause(self) -> str | None:
        """The cause of the last error, in one word."""
        return self.verdicts[0]["cause"] if self.verdicts else None

    @property
    def advice(self) -> list[str]:
        """What to do, the most useful first."""
        return [one["text"] for one in self.verdicts[0]["advice"]] if self.verdicts else []

    def _repr_html_(self) -> str:
        from ._html import preformatted

        return preformatted("lowtide.explain", self.text)


def explain(
    log: str | bytes | BaseException | os.PathLike[str],
    config: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
) -> Explanation:
    """Says why memory ran out: from an exception that was caught, the text of a log, or the path of one.

    A text of one line that is the path of a file is read as that file. ``config`` names files with the configuration of the run. It counts before what the log tells, and gets a patch.
    """
    given = _given(log)
    options = []
    for path in [config] if isinstance(config, (str, os.PathLike)) else config or []:
        options += ["--config", os.fspath(path)]
    told = _program.run("explain", "-", *options, stdin=given)
    if told.returncode not in (0, _NOTHING_FOUND):
        raise LowtideError(told.stderr.decode(errors="replace").strip())
    known = _program.run("explain", "-", "--json", *options, stdin=given)
    return Explanation(told.stdout.decode(), json.loads(known.stdout or "[]"))


def _given(log: str | bytes | BaseException | os.PathLike[str]) -> bytes:
    if isinstance(log, OutOfMemory) and log.error:
        # What the guard did itself is no part of it: that is in its report.
        batch = "" if log.micro_batch is None else f"batch_size = {log.micro_batch}\n"
        return f"{batch}{log.error}\n".encode()
    if isinstance(log, BaseException):
        return "".join(traceback.format_exception(log)).encode()
    if isinstance(log, str):
        is_path = 0 < len(log) < _LONGEST_PATH and "\n" not in log and "\0" not in log and os.path.isfile(log)
        return Path(log).read_bytes() if is_path else log.encode()
    if isinstance(log, os.PathLike):
        return Path(log).read_bytes()
    if isinstance(log, (bytes, bytearray)):
        return bytes(log)
    raise TypeError(f"explain takes an exception, the text of a log or its path, not {type(log).__name__}")


def _text_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
