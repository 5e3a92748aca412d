"""Modules that are computed again in the backward pass instead of being kept (``torch.utils.checkpoint``)."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from ._errors import Unsupported

# Containers of blocks that models repeat.
_LISTS = (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)
_AVERAGES = torch.nn.modules.batchnorm._NormBase


def blocks(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The repeated blocks of a model: the largest group of modules of one class, side by side in a list.

    Blocks with running averages are left alone: computed twice, they would count every batch twice.
    """
    best: list[torch.nn.Module] = []
    best_size = 0
    for container in model.modules():
        if not isinstance(container, _LISTS):
            continue
        children = list(container.children())
        if len(children) < 2:
            continue
        kind, _ = Counter(type(child) for child in children).most_common(1)[0]
        alike = [child for child in children if type(child) is kind]
        size = sum(one.numel() for child in alike for one in child.parameters())
        if len(alike) >= 2 and size > best_size and not any(map(_has_averages, alike)):
            best, best_size = alike, size
    return best


def _has_averages(module: torch.nn.Module) -> bool:
    return any(isinstance(one, _AVERAGES) and one.track_running_stats for one in module.modules())


class Recompute:
    """Blocks that can be computed again, and whether they are."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        self._modules = list(modules)
        self._is_on = False
        for module in self._modules:
            if not isinstance(module, torch.nn.Module):
                raise Unsupported(
                    f"recompute names a {type(module).__name__}", "give it modules of the model, or False"
                )

    @property
    def levels(self) -> int:
        return 1 if self._modules else 0

    def set(self, level: int) -> None:
        """Puts a level in force."""
        if bool(level) == self._is_on:
            return
        self._is_on = bool(level)
        for module in self._modules:
            if self._is_on:
                module.forward = _again(module.forward)
            else:
                del module.forward


def _again(forward: Any) -> Any:
    @functools.wraps(forward)
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return recomputed
