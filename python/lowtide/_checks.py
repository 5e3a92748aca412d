"""What the guard asks of what it is given, and refuses by name."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch

from . import _native
from ._errors import BadClosure, BadSetting, LowtideError, Unsupported, WrongParameters
from ._recompute import blocks

Count = Callable[[Any], "int | torch.Tensor"]


def is_oom(error: BaseException) -> bool:
    """Whether a failed computation can be tried again with less memory."""
    if isinstance(error, LowtideError):
        return False
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and _native.is_oom(str(error))


def counted_in(part: Any, count: Count | None, samples: int) -> int:
    if count is None:
        return samples
    hint = "count(part) must return how much the loss is the mean of"
    try:
        counted = int(count(part))
    except (TypeError, ValueError) as error:
        raise BadClosure(f"count gave no number: {error}", hint) from None
    if counted < 0:
        raise BadClosure(f"count gave {counted}", hint)
    return counted


def check_settings(micro_batch: Any, clip: Any, scaler: Any, autocast: Any, also: Iterable[Any]) -> None:
    """What would fail late, or train wrongly."""
    if micro_batch is not None and not _is_count(micro_batch):
        raise BadSetting(f"micro_batch={micro_batch!r}", "a number of samples from 1 on, or none for the whole batch")
    if clip is not None and not callable(clip) and not _is_norm(clip):
        hint = "a largest norm such as 1.0 (0 is no limit), or a function of the parameters"
        raise BadSetting(f"clip={clip!r}", hint)
    if scaler is not None and not hasattr(scaler, "unscale_"):
        raise BadSetting(f"scaler={scaler!r}", 'a torch.amp.GradScaler("cuda"), or none')
    if autocast is not None and not hasattr(autocast, "__enter__"):
        raise BadSetting(f"autocast={autocast!r}", 'a context, as torch.autocast("cuda", dtype=torch.bfloat16)')
    for one in also:
        if not hasattr(one, "load_state_dict") and not hasattr(one, "set_state"):
            raise BadSetting(f"also has {one!r}", "name generators, and things with state_dict and load_state_dict")


def _is_count(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and operator.index(value) > 0
    except TypeError:
        return False


def _is_norm(value: Any) -> bool:
    try:
        norm = float(value)
    except (TypeError, ValueError):
        return False
    return math.isfinite(norm) and norm >= 0


def check_loss(loss: Any, is_graph: bool = True) -> None:
    if not isinstance(loss, torch.Tensor):
        hint = "return the mean loss of the part, and nothing else"
        raise BadClosure(f"the closure returned a {type(loss).__name__}, not a tensor", hint)
    if loss.numel() != 1 or loss.dim() > 1:
        shape = "x".join(map(str, loss.shape)) or "no"
        raise BadClosure(f"the closure returned a tensor of shape {shape}, not one number", "return loss.mean()")
    if is_graph and not loss.requires_grad:
        raise BadClosure(
            "the loss that the closure returned has no gradient", "do not detach it, nor compute it under no_grad"
        )


def blocks_of(model: torch.nn.Module, recompute: bool | Iterable[torch.nn.Module]) -> Iterable[torch.nn.Module]:
    if recompute is True:
        return blocks(model)
    return [] if recompute is False else recompute


def device_of(parameters: list[torch.nn.Parameter]) -> torch.device:
    devices = {one.device for one in parameters}
    if len(devices) > 1:
        names = " and ".join(sorted(map(str, devices)))
        raise Unsupported(f"the model is on {names}", "put the whole model on one device")
    device = devices.pop()
    return (
        torch.device("cuda", torch.cuda.current_device()) if device.type == "cuda" and device.index is None else device
    )


def checked_parameters(model: Any, optimizer: Any) -> list[torch.nn.Parameter]:
    if not isinstance(model, torch.nn.Module):
        raise WrongParameters(f"the model is a {type(model).__name__}", "give the guard a torch.nn.Module first")
    if isinstance(optimizer, (list, tuple)):
        raise Unsupported(
            f"{len(optimizer)} optimizers were given", "one guard has one optimizer: put all parameters in its groups"
        )
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise WrongParameters(
            f"the optimizer is a {type(optimizer).__name__}", "give the guard a torch.optim.Optimizer second"
        )
    parameters = list(model.parameters())
    if not parameters:
        raise WrongParameters("the model has no parameters", "give the guard the model that is trained")
    for one in parameters:
        if isinstance(one, torch.nn.parameter.UninitializedParameter):
            raise Unsupported("a lazy module has no weights yet", "run the model once before the guard is made")
        if getattr(one, "_post_accumulate_grad_hooks", None):
            hint = "update in optimizer.step() instead"
            raise Unsupported("a hook changes weights during the backward pass, which cannot be undone", hint)
    if isinstance(optimizer, torch.optim.LBFGS):
        raise Unsupported("LBFGS runs the closure many times in one step", "use another optimizer")
    own = {id(one) for one in parameters}
    foreign = sum(1 for group in optimizer.param_groups for one in group["params"] if id(one) not in own)
    if foreign:
        hint = "make the optimizer from model.parameters(), after the model was moved or wrapped"
        raise WrongParameters(f"{foreign} parameters of the optimizer are not the model's", hint)
    return parameters
