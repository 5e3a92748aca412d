"""Tensors that came to lie where they should not stay, moved in place."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch

# Left free on the device when tensors are moved there.
_MARGIN = 64 << 20


def move_to_device(device: torch.device, is_there: Callable[[int], bool]) -> int:
    """Moves the memory of tensors whose address ``is_there`` to fresh memory of the device, where there is room. Gives the bytes.

    A storage keeps its identity and gets other memory, so all tensors and views of it see the same values. What only C++ holds
    is not found.
    """
    storages: dict[int, torch.UntypedStorage] = {}
    for one in gc.get_objects():
        try:
            if not issubclass(type(one), torch.Tensor) or one.device != device:
                continue
            for tensor in (one, one.grad if one.is_leaf else None):
                storage = tensor.untyped_storage() if tensor is not None else None
                if storage is not None and is_there(storage.data_ptr()):
                    storages[storage.data_ptr()] = storage
        except (RuntimeError, ReferenceError, NotImplementedError):
            continue  # no tensor with memory of its own
    moved = 0
    for storage in sorted(storages.values(), key=lambda one: -one.nbytes()):
        moved += _move(storage, device)
    return moved


def _move(storage: torch.UntypedStorage, device: torch.device) -> int:
    size = storage.nbytes()
    if torch.cuda.mem_get_info(device)[0] < size + _MARGIN or not storage.resizable():
        return 0
    values = torch.UntypedStorage(size)
    values.copy_(storage)
    storage.resize_(0)
    storage.resize_(size)
    storage.copy_(values)
    return size
