"""The guard in Trainers of a script that knows nothing of it, as ``lowtide run --inside`` puts it there.

What comes into the command's Python calls ``put_into`` when the script has imported a library with a Trainer. From then on every
training of that Trainer runs under the guard, unless the script has put one there itself. ``LOWTIDE_INJECT=120,340`` makes these
operations of each training fail as if memory had run out, to try it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from .._errors import Unsupported
from .._inject import inject

INJECT = "LOWTIDE_INJECT"


def put_into(name: str, module: Any) -> None:
    """Changes the Trainer of a module that was just imported."""
    trainer = module.Trainer
    if name == "transformers.trainer":
        trainer.train = _under_guard(trainer.train, _hold_transformers)
    elif name == "lightning.pytorch.trainer.trainer":
        trainer.fit = _under_guard(trainer.fit, _hold_lightning)
    else:
        trainer.fit = _under_guard(trainer.fit, _refuse_old_lightning)


def _under_guard(train: Callable[..., Any], hold: Callable[[Any], Callable[[], Any]]) -> Callable[..., Any]:
    @functools.wraps(train)
    def trained(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        guard = hold(trainer)
        try:
            with _errors():
                return train(trainer, *args, **kwargs)
        finally:
            _tell(guard())

    return trained


def _hold_transformers(trainer: Any) -> Callable[[], Any]:
    from .transformers import guarded

    # A script that uses the guard has put its steps there already.
    if "training_step" not in vars(trainer):
        guarded(trainer)
    return lambda: getattr(trainer, "lowtide", None)


def _hold_lightning(trainer: Any) -> Callable[[], Any]:
    from .lightning import GuardCallback

    held = [callback for callback in trainer.callbacks if isinstance(callback, GuardCallback)]
    if not held:
        held = [GuardCallback()]
        trainer.callbacks.extend(held)
    return lambda: held[0].guard


def _refuse_old_lightning(trainer: Any) -> Callable[[], Any]:
    raise Unsupported(
        "this Trainer is that of pytorch_lightning", "the guard is for lightning: import lightning.pytorch instead"
    )


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    numbers = [int(number) for number in os.environ.get(INJECT, "").split(",") if number.strip()]
    with inject(at=numbers) if numbers else contextlib.nullcontext():
        yield


def _tell(guard: Any) -> None:
    """Says what the guard met, where it met anything."""
    if guard is not None and guard.errors:
        for line in guard.report().splitlines():
            print(f"lowtide: {line}", file=sys.stderr, flush=True)
