"""What a step changes besides weights and gradients, kept as it was when the step began."""

from __future__ import annotations

import ctypes
import random
import sys
from typing import Any

import torch


class RandomState:
    """The random numbers to come: those of torch on the CPU and on every CUDA device, of Python, and of NumPy."""

    def __init__(self) -> None:
        self.cpu = torch.default_generator.get_state()
        self.cuda = [one.get_state() for one in torch.cuda.default_generators] if torch.cuda.is_initialized() else []
        self.python = random.getstate()
        self.numpy: Any = _NUMPY.state()

    def restore(self) -> None:
        torch.default_generator.set_state(self.cpu)
        for generator, state in zip(torch.cuda.default_generators, self.cuda):
            generator.set_state(state)
        random.setstate(self.python)
        if self.numpy is not None:
            _NUMPY.set_state(self.numpy)


class _Numpy:
    """NumPy's random numbers. To ask for them takes as long as many kernels, so it is asked where they may have moved."""

    # Of the Mersenne Twister: its words and the position among them.
    _BYTES = 624 * 4 + 4

    def __init__(self) -> None:
        self._known: tuple[bytes, Any] | None = None

    def state(self) -> Any:
        numpy = sys.modules.get("numpy")
        if numpy is None:
            return None
        generator = getattr(numpy.random.mtrand._rand, "_bit_generator", None)
        if generator is None or type(generator).__name__ != "MT19937":
            return numpy.random.get_state()
        words = ctypes.string_at(generator.ctypes.state_address, self._BYTES)
        if self._known is None or self._known[0] != words:
            state = numpy.random.get_state()
            has_normal = state[3]  # a number made with another one, and waiting: handing it out moves nothing
            self._known = None if has_normal else (words, state)
            return state
        return self._known[1]

    def set_state(self, state: Any) -> None:
        sys.modules["numpy"].random.set_state(state)
        self._known = None


_NUMPY = _Numpy()


# The averages of normalisation layers change inside of one operation, which does not count as a change of the tensor.
_AVERAGES = ("running_mean", "running_var")


class _Buffer:
    """A buffer of a module: which tensor it was, and what was in it."""

    __slots__ = ("module", "name", "tensor", "version", "copy", "is_live")

    def __init__(self, module: torch.nn.Module, name: str, tensor: torch.Tensor) -> None:
        self.module, self.name, self.tensor = module, name, tensor
        self.version = tensor._version
        self.is_live = name in _AVERAGES
        # Most buffers never change. Until one does, its copy takes no memory of the device.
        self.copy = tensor.detach().to(tensor.device if self.is_live else "cpu", copy=True)

    def is_replaced(self) -> bool:
        return self.module._buffers.get(self.name) is not self.tensor


class Buffers:
    """The buffers of a model, such as BatchNorm's averages."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._known: list[_Buffer] = []
        self._note_all()

    def note(self) -> None:
        """Takes over what has changed since the last time."""
        if any(buffer.is_replaced() for buffer in self._known):
            self._note_all()
            return
        with torch.no_grad():
            for buffer in self._known:
                if not buffer.is_live and buffer.tensor._version != buffer.version:
                    buffer.copy = torch.empty_like(buffer.tensor)
                    buffer.is_live = True
            live = [buffer for buffer in self._known if buffer.is_live]
            _copy_all([buffer.copy for buffer in live], [buffer.tensor for buffer in live])
            for buffer in live:
                buffer.version = buffer.tensor._version

    def restore(self) -> None:
        with torch.no_grad():
            for buffer in self._known:
                buffer.module._buffers[buffer.name] = buffer.tensor
            changed = [one for one in self._known if one.is_live or one.tensor._version != one.version]
            _copy_all([buffer.tensor for buffer in changed], [buffer.copy for buffer in changed])
            for buffer in changed:
                buffer.version = buffer.tensor._version

    def _note_all(self) -> None:
        self._known = [
            _Buffer(module, name, tensor)
            for module in self._model.modules()
            for name, tensor in module._buffers.items()
            if tensor is not None
        ]


def _copy_all(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, sources)


class Scaler:
    """The loss scale of a ``GradScaler``, and what it remembers of the step under way."""

    def __init__(self, scaler: Any) -> None:
        self._scaler = scaler
        self._kept: tuple[Any, Any] = (None, None)

    def note(self) -> None:
        scale, growth = self._scaler._scale, self._scaler._growth_tracker
        self._kept = tuple(one.clone() if one is not None else None for one in (scale, growth))  # type: ignore[assignment]

    def restore(self) -> None:
        self._scaler._per_optimizer_states.clear()
        for name, kept in zip(("_scale", "_growth_tracker"), self._kept):
            there = getattr(self._scaler, name)
            if there is None:
                continue
            if kept is None:
                setattr(self._scaler, name, None)  # made lazily by the step that failed
            else:
                there.copy_(kept)


class Kept:
    """What the user asks to be put back too."""

    def __init__(self, things: tuple[Any, ...]) -> None:
        self._things = things
        self._states: list[Any] = []

    def note(self) -> None:
        self._states = [_copy(_state(thing)) for thing in self._things]

    def restore(self) -> None:
        for thing, state in zip(self._things, self._states):
            if hasattr(thing, "load_state_dict"):
                thing.load_state_dict(_copy(state))
            else:
                thing.set_state(state)


def _state(thing: Any) -> Any:
    return thing.state_dict() if hasattr(thing, "load_state_dict") else thing.get_state()


def _copy(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_copy(inner) for inner in value)
    return value


class Undo:
    """All of it, noted at the beginning of a step and restored after a failure."""

    def __init__(self, model: torch.nn.Module, scaler: Any, also: tuple[Any, ...]) -> None:
        self._parts: list[Any] = [Buffers(model)]
        if scaler is not None:
            self._parts.append(Scaler(scaler))
        if also:
            self._parts.append(Kept(also))
        self._random: RandomState | None = None

    def note(self) -> None:
        self._random = RandomState()
        for part in self._parts:
            part.note()

    def restore(self) -> None:
        for part in self._parts:
            part.restore()
        torch.clear_autocast_cache()
        if self._random is not None:
            self._random.restore()
