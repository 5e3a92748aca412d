"""The weights and the optimizer of ranks that each hold a part: files that any number of ranks can read.

The tensors of all ranks are a folder of ``torch.distributed.checkpoint``. What is each rank's own (random numbers, buffers, and
optimizer state that is not cut as its parameter is) is a file of the rank in that folder.
"""

from __future__ import annotations

import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.tensor import DTensor

from ._checks import is_oom
from ._errors import BadState
from ._ranks._peer import PeerFailed
from ._ranks._side import side_group

_State = dict[str, dict[str, Any]]


def folder_of(path: Path, step: int) -> Path:
    """A folder beside a file that is not there yet."""
    name = f"{path.name}.{step:08}"
    numbers = (f"{name}-{number}" if number > 1 else name for number in range(1, 1 << 30))
    return next(path.with_name(one) for one in numbers if not path.with_name(one).exists())


def forget_others(path: Path, kept: Path) -> None:
    """Removes the folders of earlier files of this name."""
    shape = re.compile(re.escape(path.name) + r"\.\d{8}(-\d+)?")
    for one in path.parent.iterdir():
        if one != kept and shape.fullmatch(one.name) and one.is_dir():
            shutil.rmtree(one, ignore_errors=True)


def write(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Writes the tensors of all ranks."""
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    for name, values in _named_state(model, optimizer).items():
        state |= {f"optimizer.state.{name}.{key}": value for key, value in values.items() if isinstance(value, DTensor)}
    writer = FileSystemWriter(folder, overwrite=True)
    is_alone = not dist.is_initialized() or dist.get_world_size() == 1
    group = None if is_alone else side_group("flags")
    try:
        state_dict_saver.save(state, storage_writer=writer, process_group=group, no_dist=is_alone)
    except CheckpointException as raised:
        raise _own(raised) from None


def read(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, kept: dict[str, Any]) -> None:
    """Reads back what ``write`` wrote, into a model that may be cut otherwise. ``kept`` is what ``own_state`` gave."""
    weights = {f"model.{name}": value for name, value in model.state_dict().items()}
    _load(folder, weights)
    model.load_state_dict({name.removeprefix("model."): value for name, value in weights.items()})
    parameters = dict(model.named_parameters(remove_duplicate=False))
    state: _State = {name: dict(values) for name, values in kept["own"].items()}
    moments: dict[str, torch.Tensor] = {}
    for name, key, dtype in kept["shared"]:
        moment = torch.empty_like(parameters[name], dtype=getattr(torch, dtype), requires_grad=False)
        moments[f"optimizer.state.{name}.{key}"] = state.setdefault(name, {})[key] = moment
    _load(folder, moments)
    numbers = {name: number for number, name in enumerate(_names(model, optimizer))}
    optimizer.load_state_dict(
        {"state": {numbers[name]: values for name, values in state.items()}, "param_groups": kept["groups"]}
    )


def own_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The rest of the optimizer: what ``write`` writes, by name, and what it does not, whole."""
    shared: list[tuple[str, str, str]] = []
    own: _State = {}
    for name, values in _named_state(model, optimizer).items():
        for key, value in values.items():
            if isinstance(value, DTensor):
                shared.append((name, key, str(value.dtype).removeprefix("torch.")))
            else:
                own.setdefault(name, {})[key] = value
    return {"shared": shared, "own": own, "groups": optimizer.state_dict()["param_groups"]}


def is_for_any_rank(kept: dict[str, Any]) -> bool:
    """Whether another rank could go on with it: what it has whole are single numbers, as a count of steps."""
    values = [value for one in kept["own"].values() for value in one.values()]
    return all(not isinstance(value, torch.Tensor) or value.dim() == 0 for value in values)


def _load(folder: Path, state: dict[str, Any]) -> None:
    # Each rank finds its own parts, without the others.
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            state_dict_loader.load(state, storage_reader=FileSystemReader(folder), no_dist=True)
    except CheckpointException as raised:
        raise next(error for error, _ in raised.failures.values()) from None


def _named_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> _State:
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    named = zip(_names(model, optimizer), parameters)
    return {name: dict(optimizer.state[one]) for name, one in named if one in optimizer.state}


def _names(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """The names of the optimizer's parameters, in its order."""
    names: dict[int, str] = {}
    for name, one in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(one), name)
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    if any(id(one) not in names for one in parameters):
        raise BadState("the optimizer has parameters that the model does not", "make it from model.parameters()")
    return [names[id(one)] for one in parameters]


def _own(raised: CheckpointException) -> BaseException:
    """Torch raises all ranks' errors on all of them: gives this rank's."""
    failures = {rank: error for rank, (error, _) in raised.failures.items()}
    mine = failures.get(dist.get_rank() if dist.is_initialized() else 0)
    has_run_out = any(is_oom(error) for error in failures.values())
    if mine is not None and (is_oom(mine) or not has_run_out):
        return mine
    return PeerFailed()
