"""What can go wrong, one exception for each kind. Every message ends with what to do."""

from __future__ import annotations


class LowtideError(Exception):
    """Something that lowtide cannot do. ``hint`` says what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}\nhint: {hint}" if hint else message)
        self.hint = hint


class OutOfMemory(LowtideError, MemoryError):
    """Memory ran out, and nothing more can be tried. The state is that before the step.

    ``tried`` says in words what was tried; ``error`` is what torch said the last time, when ``micro_batch`` samples were
    computed at once; ``checkpoint`` is the file that was saved, where the guard has a run folder.
    """

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        tried: str = "",
        error: str = "",
        micro_batch: int | None = None,
        checkpoint: str | None = None,
    ) -> None:
        super().__init__(message, hint)
        self.tried = tried
        self.error = error
        self.micro_batch = micro_batch
        self.checkpoint = checkpoint


class CannotUndo(LowtideError):
    """An error came half-way through a change that cannot be taken back: go on from the last checkpoint."""


class CannotCut(LowtideError, ValueError):
    """A batch whose samples cannot be told apart."""


class BadClosure(LowtideError, TypeError):
    """A closure or a count that does not give what it has to."""


class BadSetting(LowtideError, ValueError):
    """An argument that nothing can be done with."""


class BadLimit(LowtideError, ValueError):
    """A memory limit that is none, or that cannot be set here."""


class WrongParameters(LowtideError, ValueError):
    """A model and an optimizer that do not belong together."""


class Unsupported(LowtideError, NotImplementedError):
    """Something that this version of lowtide, or of torch, cannot do: better refused than wrong."""


class BadData(LowtideError, ValueError):
    """Data that is broken, cut short, or not what it should be."""


class MissingData(BadData, FileNotFoundError):
    """A file or a folder of data that is not there."""


class BadState(LowtideError, ValueError):
    """A state that cannot be gone on with: it is none, or that of something else."""
