"""The collectives of FSDP2: seen as they happen, and repeated with zeros."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter
from torch.distributed.fsdp._fully_shard._fsdp_collectives import _get_gradient_divide_factors

# Tensors in the buffer begin at multiples of it, as those of torch's allocators do.
_ALIGNMENT = 512


class Buffer:
    """Memory that is kept for the collectives of a rank that has none left."""

    def __init__(self, device: torch.device, size: int) -> None:
        self._device = device
        self.size = size
        self._bytes: torch.Tensor | None = None

    def take(self) -> None:
        if self._bytes is None or self._bytes.numel() < self.size:
            self._bytes = None
            self._bytes = torch.empty(self.size, dtype=torch.uint8, device=self._device)

    def grow(self, size: int) -> None:
        if size > self.size:
            self.size = size
            self.take()

    def zeros(self, start: int, numel: int, dtype: torch.dtype) -> torch.Tensor:
        self.take()
        assert self._bytes is not None
        return self._bytes[start : start + numel * dtype.itemsize].view(dtype).zero_()


@dataclasses.dataclass(frozen=True)
class Call:
    """One collective."""

    what: str
    of: str
    numel_out: int
    numel_in: int
    dtype: torch.dtype
    # Does it again, on an output and an input.
    again: Callable[[torch.Tensor, torch.Tensor], Any]

    @property
    def shape(self) -> tuple[Any, ...]:
        """What is the same whenever it is the same collective."""
        return self.what, self.of, self.numel_out, self.numel_in, self.dtype

    @property
    def bytes(self) -> int:
        """What ``repeat`` takes of a buffer."""
        if self.what == "reduce-scatter":
            return self._input_bytes + self.numel_out * self.dtype.itemsize
        return self.numel_out * self.dtype.itemsize

    def repeat(self, buffer: Buffer) -> None:
        if self.what == "reduce-scatter":
            given = buffer.zeros(0, self.numel_in, self.dtype)
            self.again(buffer.zeros(self._input_bytes, self.numel_out, self.dtype), given)
            return
        # Gathered and reduced in place.
        result = buffer.zeros(0, self.numel_out, self.dtype)
        self.again(result, result[: self.numel_in])

    @property
    def _input_bytes(self) -> int:
        size = self.numel_in * self.dtype.itemsize
        return -(-size // _ALIGNMENT) * _ALIGNMENT


Seen = Callable[[Call], None]


class Recorder:
    """Stands in for the collectives of all groups, and tells of each one that was sent.

    One that raised was sent or not: by how far it came, the others wait for it or are past it.
    """

    def __init__(self, groups: list[Any], seen: Seen) -> None:
        for group in groups:
            group._all_gather_comm = _AllGather(group._all_gather_comm, group, seen)
            group._reduce_scatter_comm = _ReduceScatter(group._reduce_scatter_comm, group, seen)
            if group._is_hsdp:
                group._all_reduce_hook = _after_all_reduce(group._all_reduce_hook, group, seen)


def sent(group: Any) -> int:
    """Collectives that were sent on a group so far, by its own count."""
    return int(group._get_sequence_number_for_group())


@contextlib.contextmanager
def sending(group: dist.ProcessGroup, done: Callable[[], None]) -> Iterator[None]:
    """Around a collective: calls ``done`` where it was sent, whether or not it then failed on this rank."""
    before = sent(group)
    try:
        yield
    except BaseException:
        if sent(group) != before:
            done()
        raise
    done()


def _call(kind: str, group: Any, result: torch.Tensor, given: torch.Tensor, again: Callable[..., Any]) -> Call:
    """A collective of one of FSDP2's groups of parameters."""
    return Call(kind, group._module_fqn or "", result.numel(), given.numel(), result.dtype, again)


class _AllGather(AllGather):
    def __init__(self, inner: AllGather, group: Any, seen: Seen) -> None:
        self._inner, self._group, self._seen = inner, group, seen

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return self._inner.allocate(size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, async_op: bool = False
    ) -> Any:
        inner = self._inner

        def again(result: torch.Tensor, given: torch.Tensor) -> None:
            inner(output_tensor=result, input_tensor=given, group=group, async_op=False)

        call = _call("all-gather", self._group, output_tensor, input_tensor, again)
        with sending(group, lambda: self._seen(call)):
            return inner(output_tensor=output_tensor, input_tensor=input_tensor, group=group, async_op=async_op)


class _ReduceScatter(ReduceScatter):
    def __init__(self, inner: ReduceScatter, group: Any, seen: Seen) -> None:
        self._inner, self._group, self._seen = inner, group, seen

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return self._inner.allocate(size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any, async_op: bool = False
    ) -> Any:
        inner = self._inner

        def again(result: torch.Tensor, given: torch.Tensor) -> None:
            inner(output_tensor=result, input_tensor=given, group=group, op=op, async_op=False)

        call = _call("reduce-scatter", self._group, output_tensor, input_tensor, again)
        with sending(group, lambda: self._seen(call)):
            return inner(output_tensor=output_tensor, input_tensor=input_tensor, group=group, op=op, async_op=async_op)


def _after_all_reduce(inner: Any, group: Any, seen: Seen) -> Callable[[torch.Tensor], None]:
    """A hook that FSDP2 calls when the all-reduce over replicas is done."""
    replicas = group._all_reduce_process_group

    def again(result: torch.Tensor, _given: torch.Tensor) -> None:
        *_, op = _get_gradient_divide_factors(
            group._reduce_scatter_process_group,
            replicas,
            result.dtype,
            result.device.type,
            group.gradient_divide_factor,
            group.force_sum_reduction_for_comms,
        )
        dist.all_reduce(result, op=op, group=replicas)

    def hook(reduced: torch.Tensor) -> None:
        seen(_call("all-reduce", group, reduced, reduced, again))
        if inner is not None:
            inner(reduced)

    return hook
