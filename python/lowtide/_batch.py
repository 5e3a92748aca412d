"""A batch, cut along its samples.

A batch is a tensor, or a mapping, list, tuple, named tuple or dataclass of such. The first dimension of a tensor counts
samples; numbers, texts, ``None`` and tensors without dimensions belong to every part.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ._errors import CannotCut

_HINT = "give the guard two functions: size=lambda batch: ..., cut=lambda batch, start, stop: ..."
_NONE = object()


def samples(batch: Any) -> int:
    """How many samples a batch has."""
    sizes: dict[int, str] = {}
    _measure(batch, "batch", sizes)
    if not sizes:
        raise CannotCut(f"no samples are found in a batch of type {type(batch).__name__}", _HINT)
    if len(sizes) > 1:
        (one, first), (other, second) = list(sizes.items())[:2]
        raise CannotCut(f"{first} has {one} samples, and {second} has {other}", _HINT)
    return next(iter(sizes))


def part(batch: Any, start: int, stop: int) -> Any:
    """The samples from ``start`` up to ``stop``, as a batch of the same form."""
    if isinstance(batch, torch.Tensor):
        return batch[start:stop] if batch.dim() else batch
    if _is_plain(batch):
        return batch
    if isinstance(batch, Mapping):
        return _like(batch, {key: part(value, start, stop) for key, value in batch.items()})
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        fields = {field.name: part(getattr(batch, field.name), start, stop) for field in dataclasses.fields(batch)}
        return dataclasses.replace(batch, **fields)
    if isinstance(batch, Sequence):
        if _is_list_of_samples(batch):
            return batch[start:stop]
        parts = [part(value, start, stop) for value in batch]
        make: Any = type(batch)
        return make(*parts) if hasattr(batch, "_fields") else make(parts)
    raise CannotCut(f"a batch with a {type(batch).__name__} in it cannot be cut", _HINT)


def _measure(value: Any, name: str, sizes: dict[int, str]) -> None:
    if isinstance(value, torch.Tensor):
        if value.dim():
            sizes.setdefault(value.shape[0], name)
    elif _is_plain(value):
        pass
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            _measure(inner, f"{name}[{key!r}]", sizes)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            _measure(getattr(value, field.name), f"{name}.{field.name}", sizes)
    elif isinstance(value, Sequence):
        if _is_list_of_samples(value):
            sizes.setdefault(len(value), name)
        else:
            for index, inner in enumerate(value):
                _measure(inner, f"{name}[{index}]", sizes)
    else:
        raise CannotCut(f"{name} is a {type(value).__name__}, whose samples lowtide does not know", _HINT)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, complex, str, bytes))


def _is_list_of_samples(value: Sequence[Any]) -> bool:
    """Whether a list holds one thing for each sample, as texts or labels do, and not one thing for each input."""
    return len(value) > 0 and all(_is_plain(inner) for inner in value)


def _like(batch: Mapping[Any, Any], values: dict[Any, Any]) -> Any:
    if type(batch) is dict:
        return values
    data = getattr(batch, "data", _NONE)  # UserDict, and Hugging Face's BatchEncoding
    try:
        make: Any = type(batch)
        return make(values) if data is not _NONE else make(**values)
    except TypeError:
        return values


Cut = Callable[[Any, int, int], Any]
Size = Callable[[Any], int]
