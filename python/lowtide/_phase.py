"""What a script is doing, as far as its own frames tell."""

from __future__ import annotations

import sys
import threading


def phase_of_main_thread() -> str:
    """What the script is doing, by the functions that its main thread is in."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    names: list[tuple[str, str]] = []
    while frame is not None:
        names.append((frame.f_code.co_filename, frame.f_code.co_name))
        frame = frame.f_back
    if any(name == "backward" for _, name in names):
        return "backward"
    if any("/torch/optim/" in file or name == "optimizer_step" for file, name in names):
        return "optimizer"
    if any(word in name.lower() for _, name in names for word in ("eval", "valid", "predict", "generate")):
        return "eval"
    return "forward"
