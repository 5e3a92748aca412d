"""A checkpoint of everything that a guarded loop needs to go on exactly."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ._errors import BadState, LowtideError
from ._undo import RandomState

if TYPE_CHECKING:
    from ._guard import Guard

# Grows when a reader of the old form would misread the new one.
_FORM = 1


def save(guard: Guard, path: Path) -> None:
    """Written beside its place and moved there, so that a kill leaves the old file or the new one."""
    with _waiting(guard, "guard.save"):
        if _is_sharded(guard):
            _save_shards(guard, path)
        else:
            _save_whole(guard, path)


def load(guard: Guard, path: Path) -> None:
    """Puts everything back as ``save`` found it."""
    state: dict[str, Any] = {}
    with _waiting(guard, "guard.load"):
        guard._recovery.on_all("guard.load", lambda: state.update(_read(path)))
        work = _load_shards if "shards" in state else _load_whole
        guard._recovery.on_all("guard.load", lambda: work(guard, path, state))


# Where every rank has all weights: the first one writes them.


def _save_whole(guard: Guard, path: Path) -> None:
    rank = _rank(guard)

    def write() -> None:
        if rank > 0:
            _write({"step": guard.steps, **_own(guard)}, _of_rank(path, rank))
            return
        state = {"model": _inner(guard.model).state_dict(), "optimizer": guard.optimizer.state_dict()}
        _write({**state, **_common(guard), "random": _random()}, path)

    guard._recovery.on_all("guard.save", write)


def _load_whole(guard: Guard, path: Path, state: dict[str, Any]) -> None:
    if _is_sharded(guard):
        raise BadState(
            f"{path} has whole weights, and those of this model are sharded",
            "load them before fully_shard: model.load_state_dict(torch.load(path)['model'])",
        )
    _inner(guard.model).load_state_dict(state["model"])
    guard.optimizer.load_state_dict(state["optimizer"])
    _put_back(guard, state)
    rank = _rank(guard)
    if rank == 0:
        _restore(state["random"])
        return
    beside = _of_rank(path, rank)
    own = _read(beside) if beside.exists() else {}
    if own.get("step") == guard.steps:
        _put_back_own(guard, own)
    else:
        # Of another moment, or of a run with fewer ranks: this one goes on with random numbers of its own.
        guard._recovery.story.lines.append(f"note: {beside} is not there, or of another step than {path}")


# Where each rank has a part: all write into a folder beside the file, which is written last and names it.


def _save_shards(guard: Guard, path: Path) -> None:
    from . import _shards

    recovery, ranks, rank = guard._recovery, guard._recovery.ranks, _rank(guard)
    model = _inner(guard.model)
    chosen = [""]

    def choose() -> None:
        if rank == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            chosen[0] = _shards.folder_of(path, guard.steps).name

    recovery.on_all("guard.save", choose)
    folder = path.with_name(ranks.first_says(chosen[0]) if ranks is not None else chosen[0])

    def write() -> None:
        with ranks.walk.together() if ranks is not None else contextlib.nullcontext():
            _shards.write(folder, model, guard.optimizer)
        _write({**_own(guard), "optimizer": _shards.own_state(model, guard.optimizer)}, _of_rank(folder / "own", rank))

    try:
        recovery.on_all("guard.save", write)
    except LowtideError:
        if rank == 0:
            shutil.rmtree(folder, ignore_errors=True)  # the disk may be full of it
        raise

    def finish() -> None:
        if rank == 0:
            world = ranks.world if ranks is not None else 1
            _write({"shards": folder.name, "world": world, **_common(guard)}, path)
            _shards.forget_others(path, folder)

    recovery.on_all("guard.save", finish)


def _load_shards(guard: Guard, path: Path, state: dict[str, Any]) -> None:
    from . import _shards

    ranks, rank = guard._recovery.ranks, _rank(guard)
    folder = path.with_name(state["shards"])
    has_own = state["world"] == (ranks.world if ranks is not None else 1)
    own = _read(_of_rank(folder / "own", rank if has_own else 0))
    if not has_own and not _shards.is_for_any_rank(own["optimizer"]):
        raise BadState(
            f"{path} was saved on {state['world']} ranks, each with optimizer state of its own",
            "load it on as many ranks",
        )
    _shards.read(folder, _inner(guard.model), guard.optimizer, own["optimizer"])
    _put_back(guard, state)
    if has_own:
        _put_back_own(guard, own)
    else:
        guard._recovery.story.lines.append(
            f"note: {path} was saved on {state['world']} ranks: random numbers are other ones"
        )


# Both.


def _common(guard: Guard) -> dict[str, Any]:
    """What all ranks have in common, besides weights."""
    state: dict[str, Any] = {"guard": guard.state_dict()}
    for name in ("scaler", "scheduler"):
        part = getattr(guard, name)
        if part is not None:
            state[name] = part.state_dict()
    return state


def _put_back(guard: Guard, state: dict[str, Any]) -> None:
    guard.load_state_dict(state["guard"])
    for name in ("scaler", "scheduler"):
        part = getattr(guard, name)
        if part is not None and name in state:
            part.load_state_dict(state[name])


def _own(guard: Guard) -> dict[str, Any]:
    """What each rank has of its own: averages of normalisation layers may differ, too."""
    model = _inner(guard.model)
    names = {name for name, _ in model.named_buffers(remove_duplicate=False)}
    buffers = {name: value for name, value in model.state_dict().items() if name in names}
    return {"random": _random(), "buffers": buffers}


def _put_back_own(guard: Guard, own: dict[str, Any]) -> None:
    _inner(guard.model).load_state_dict(own.get("buffers", {}), strict=False)
    _restore(own["random"])


def _waiting(guard: Guard, call: str) -> contextlib.AbstractContextManager[None]:
    ranks = guard._recovery.ranks
    return ranks.waiting(f"{call} after step {guard.steps}") if ranks is not None else contextlib.nullcontext()


def _is_sharded(guard: Guard) -> bool:
    if not torch.distributed.is_available():
        return False
    from torch.distributed.tensor import DTensor

    return any(isinstance(one, DTensor) for one in guard.model.parameters())


def _rank(guard: Guard) -> int:
    ranks = guard._recovery.ranks
    return ranks.rank if ranks is not None else 0


def _of_rank(path: Path, rank: int) -> Path:
    return path.with_name(f"{path.name}.rank{rank}")


def _inner(model: torch.nn.Module) -> torch.nn.Module:
    """The model without DDP around it, whose names are those of the same model on one rank."""
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        inner: torch.nn.Module = model.module
        return inner
    return model


def _write(state: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save({"lowtide": _FORM, **state}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def _read(path: Path) -> dict[str, Any]:
    state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict) or state.get("lowtide") != _FORM:
        raise LowtideError(
            f"{path} is no checkpoint of this version of lowtide", "load your own checkpoints as you saved them"
        )
    return state


def _random() -> dict[str, Any]:
    numbers = RandomState()
    random: dict[str, Any] = {"cpu": numbers.cpu, "cuda": numbers.cuda, "python": numbers.python}
    if numbers.numpy is not None:
        kind, keys, *rest = numbers.numpy
        random["numpy"] = [kind, keys.tolist(), *rest]
    return random


def _restore(kept: dict[str, Any]) -> None:
    numbers = RandomState()
    numbers.cpu, numbers.cuda = kept["cpu"], kept["cuda"]
    version, values, gauss = kept["python"]
    numbers.python = (version, tuple(values), gauss)
    if numbers.numpy is not None and "numpy" in kept:
        import numpy

        kind, keys, *rest = kept["numpy"]
        numbers.numpy = (kind, numpy.array(keys, dtype=numpy.uint32), *rest)
    numbers.restore()
