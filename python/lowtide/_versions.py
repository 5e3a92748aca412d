"""What of torch is needed, said before anything of it fails."""

from __future__ import annotations

from ._errors import Unsupported

# The first version with `torch.OutOfMemoryError`.
_OLDEST = "2.5"


def need_torch(what: str) -> None:
    """Refuses where there is no torch, or one that is too old."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise Unsupported(f"{what} needs torch, which this Python does not have", "pip install torch") from None
    if not hasattr(torch, "OutOfMemoryError"):
        raise Unsupported(
            f"{what} needs torch {_OLDEST} or newer, and this is {torch.__version__}", "pip install -U torch"
        )
