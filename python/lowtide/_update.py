"""The update of the weights, so that an error in it can be taken back.

Optimizers are not atomic: an error inside ``step()`` leaves some weights updated, some moments half-way, or a state without
one of its tensors. A fused optimizer allocates next to nothing and runs as it is. Others run as they are where there is
certainly room for what they allocate; else their parameters are updated in slices, each with a copy to go back to. What each
parameter becomes does not depend on the slice it is in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ._checks import is_oom
from ._errors import CannotUndo
from ._memory import Memory
from ._quiet import quiet

# Optimizers of torch that treat every parameter by itself.
_BY_PARAMETER = {
    getattr(torch.optim, name)
    for name in (
        "ASGD",
        "Adadelta",
        "Adafactor",
        "Adagrad",
        "Adam",
        "AdamW",
        "Adamax",
        "Muon",
        "NAdam",
        "RAdam",
        "RMSprop",
        "Rprop",
        "SGD",
        "SparseAdam",
    )
    if hasattr(torch.optim, name)
}

# Bytes of parameters in a slice.
SLICE = 64 << 20


class Update:
    """The update of one optimizer."""

    def __init__(self, optimizer: torch.optim.Optimizer, memory: Memory) -> None:
        self.optimizer = optimizer
        self._memory = memory
        self._slice = SLICE
        # The optimizer's own, also where somebody puts this update in its place.
        self.step = optimizer.step
        hooks = getattr(optimizer, "_optimizer_step_pre_hooks", {}) or getattr(
            optimizer, "_optimizer_step_post_hooks", {}
        )
        self._is_sliceable = type(optimizer) in _BY_PARAMETER and not hooks
        # The slices that an interrupted update still has to do.
        self._waiting: list[list[torch.nn.Parameter]] = []
        self._all: list[torch.nn.Parameter] = []
        # Whether all parameters were seen to have a state.
        self._is_complete = False
        # Whether a slice of this update is done.
        self._is_begun = False

    def warning(self) -> str | None:
        """What cannot be undone, in words."""
        if type(self.optimizer) in _BY_PARAMETER:
            return None
        name = type(self.optimizer).__name__
        return f"{name} is not an optimizer of torch's that treats each parameter by itself: its update is copied as a whole"

    def run(self) -> None:
        """Updates all that has a gradient. After an error, ``run`` again does the rest."""
        if not self._waiting:
            self._is_begun = False
            if self._is_safe():
                try:
                    self._run_whole()
                    return
                except Exception as error:
                    if is_oom(error):
                        # Nothing is changed: the next try is more careful.
                        self._waiting = self._slices(self._with_gradient())
                    raise
            self._waiting = self._slices(self._with_gradient())
        interrupt: KeyboardInterrupt | None = None
        while self._waiting:
            try:
                self._run_slice(self._waiting[0])
            except KeyboardInterrupt as error:
                # The slice is undone and done again: Ctrl-C must not leave half of the weights updated.
                interrupt = error
                continue
            except Exception as error:
                if is_oom(error):
                    raise
                if self.give_up():
                    raise CannotUndo(
                        f"the update failed half-way: {type(error).__name__}: {error}", "go on from the last checkpoint"
                    ) from error
                raise
            self._waiting.pop(0)
            self._is_begun = True
        if interrupt is not None:
            raise interrupt

    @property
    def is_under_way(self) -> bool:
        """Whether slices wait to be updated, with gradients that are complete."""
        return bool(self._waiting)

    def give_up(self) -> bool:
        """Forgets what still has to be done; says whether a part of the weights is updated already."""
        self._waiting = []
        return self._is_begun

    def shrink(self) -> None:
        """Smaller slices from now on, and for what still has to be done."""
        if not self._is_sliceable:
            return
        self._slice = max(self._slice // 4, 1)
        rest = [one for slice_ in self._waiting for one in slice_]
        self._waiting = self._slices(rest)

    def _parameters(self) -> list[torch.nn.Parameter]:
        number = sum(len(group["params"]) for group in self.optimizer.param_groups)
        if number != len(self._all):
            self._all = [one for group in self.optimizer.param_groups for one in group["params"]]
        return self._all

    def _with_gradient(self) -> list[torch.nn.Parameter]:
        return [one for one in self._parameters() if one.grad is not None]

    def _is_safe(self) -> bool:
        if self._keeps_state() and not self._has_state():
            return False  # state is made in the first step
        if all(group.get("fused") for group in self.optimizer.param_groups):
            return self._memory.device.type == "cuda"
        room = self._memory.room()
        if room is None:
            return False
        return room >= 3 * sum(local(one).numel() * max(one.element_size(), 4) for one in self._with_gradient())

    def _has_state(self) -> bool:
        state = self.optimizer.state
        # To look each one up takes as long as a kernel: once all were found, their number tells.
        if self._is_complete and len(state) == len(self._parameters()):
            return True
        self._is_complete = all(one in state and state[one] for one in self._parameters())
        return self._is_complete or all(one in state and state[one] for one in self._with_gradient())

    def _keeps_state(self) -> bool:
        if not isinstance(self.optimizer, torch.optim.SGD):
            return True
        return any(group.get("momentum") for group in self.optimizer.param_groups)

    def _run_whole(self) -> None:
        versions = [one._version for one in self._parameters()]
        try:
            self.step()
        except Exception as error:
            if any(one._version != version for one, version in zip(self._parameters(), versions)):
                raise CannotUndo(
                    f"{type(self.optimizer).__name__} failed half-way, and weights are changed: {error}",
                    "go on from the last checkpoint; an optimizer with fused=True needs no memory for its update",
                ) from None
            raise

    def _slices(self, parameters: list[torch.nn.Parameter]) -> list[list[torch.nn.Parameter]]:
        if not self._is_sliceable:
            return [parameters] if parameters else []
        slices: list[list[torch.nn.Parameter]] = []
        size = self._slice
        for one in parameters:
            if size >= self._slice:
                slices.append([])
                size = 0
            slices[-1].append(one)
            size += local(one).numel() * one.element_size()
        return slices

    def _run_slice(self, slice_: list[torch.nn.Parameter]) -> None:
        undo = _SliceUndo(self.optimizer, slice_)
        chosen = set(slice_)
        hidden = [(one, one.grad) for one in self._parameters() if one.grad is not None and one not in chosen]
        try:
            for one, _ in hidden:
                one.grad = None
            self.step()
        except BaseException:
            with quiet():
                undo.restore()
            raise
        finally:
            for one, gradient in hidden:
                one.grad = gradient


class _SliceUndo:
    """Parameters, their gradients and their optimizer state, copied."""

    def __init__(self, optimizer: torch.optim.Optimizer, slice_: list[torch.nn.Parameter]) -> None:
        self._optimizer = optimizer
        # Some optimizers keep numbers of their own beside the learning rate.
        self._groups = [
            {key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups
        ]
        with torch.no_grad():
            # Some optimizers write into gradients (weight decay, maximize).
            self._tensors: list[tuple[torch.Tensor, torch.Tensor]] = [(one, one.detach().clone()) for one in slice_]
            self._tensors += [(one.grad, one.grad.detach().clone()) for one in slice_ if one.grad is not None]
            self._states: list[tuple[torch.nn.Parameter, dict[str, Any] | None]] = []
            for one in slice_:
                state = optimizer.state.get(one)
                if not state:
                    self._states.append((one, None))
                    continue
                self._states.append((one, dict(state)))
                self._tensors += [(value, value.clone()) for value in state.values() if isinstance(value, torch.Tensor)]

    def restore(self) -> None:
        with torch.no_grad():
            for tensor, copy in self._tensors:
                tensor.copy_(copy)
        for one, state in self._states:
            if state is None:
                self._optimizer.state.pop(one, None)
            else:
                self._optimizer.state[one] = state
        for group, kept in zip(self._optimizer.param_groups, self._groups):
            group.update(kept)


Clip = Callable[[list[torch.nn.Parameter]], Any]


class LargestNorm:
    """A clip by the norm of all gradients together."""

    def __init__(self, largest: float) -> None:
        self._largest = largest

    def __call__(self, parameters: list[torch.nn.Parameter]) -> None:
        torch.nn.utils.clip_grad_norm_(parameters, self._largest)

    # The same in two steps.

    @staticmethod
    def norm(gradients: list[torch.Tensor]) -> torch.Tensor:
        """The norm, over all ranks where gradients are in shards: they meet in it."""
        norm = torch.nn.utils.get_total_norm(gradients)
        return norm.full_tensor() if hasattr(norm, "full_tensor") else norm

    def scale(self, gradients: list[torch.Tensor], norm: torch.Tensor) -> None:
        """Makes gradients smaller, where that norm is too large."""
        factor = torch.clamp(self._largest / (norm + 1e-6), max=1.0)
        torch._foreach_mul_(gradients, factor)


def clipping(clip: float | Clip | None) -> Clip | None:
    """A clip of the gradients: a largest norm, or a function of the user's."""
    if callable(clip):
        return clip
    return LargestNorm(float(clip)) if clip else None


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of a tensor."""
    return getattr(tensor, "_local_tensor", tensor)
