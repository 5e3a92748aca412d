"""What the guard asks of what it is given, and refuses by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from . import _native
from ._errors import BadClosure, LowtideError, Unsupported, WrongParameters
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
    try:
        return int(count(part))
    except (TypeError, ValueError) as error:
        raise BadClosure(
            f"count gave no number: {error}", "count(part) must return how much the loss is the mean of"
        ) from None


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
