"""DDP: what its reducer sends in a step, and how to send the rest of it with zeros.

How much a rank has sent is read from the group's own count of collectives. A hook of ours would have to take the place of the
reducer's code, and that of the user's hook. What DDP sends before the first forward pass (the order of its buckets, once, and
the buffers of rank 0) is sent in ``begin`` instead, where nothing can fail half-way; from then on until the agreement, a step
of DDP consists of the buckets of its last piece, with the map of used parameters before or behind them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from .._checks import is_oom
from .._errors import Unsupported
from .._quiet import quiet

# Hooks that send each bucket by one collective.
_HOOKS = ("allreduce_hook", "fp16_compress_hook", "bf16_compress_hook")
_BUILTIN_HOOKS = ("BuiltinCommHookType.ALLREDUCE", "BuiltinCommHookType.FP16_COMPRESS")
# Of what is private in torch, this is used.
_NAMES = ("_sync_buffers", "_ddp_init_helper", "_build_params_for_reducer", "_build_debug_param_to_name_mapping")
_REDUCER_NAMES = (
    "_get_local_used_map",
    "_get_zeros_like_grad_buckets",
    "_rebuild_buckets",
    "_reset_state",
    "_run_comm_hook",
    "_set_static_graph",
)


class DdpWalk:
    """The collectives of a model in DDP."""

    name = "DDP"
    scales = True
    is_sharded = False
    # The reducer's zeros take the place of gradients that were dropped before, so that nothing is kept for them.
    aside = 0

    def __init__(self, model: DistributedDataParallel) -> None:
        _check(model)
        self._model = model
        self._group: Any = model.process_group
        self._first = 0
        self._has_begun = False
        self._pieces = 1
        # The reducer learns a static graph in the first backward pass that it reduces, and cannot learn it where one came
        # before that it was not to reduce: so the first piece of the first step is reduced by itself, beside the last one.
        self._is_first_of_static_graph = False
        self._broadcasts = model.broadcast_buffers
        # Buckets of the reducer as it is; none where they were not counted.
        self._buckets: int | None = None

    def begin(self, pieces: int, way: Hashable = None) -> None:
        model = self._model
        with quiet():
            if model.reducer._rebuild_buckets():
                model._has_rebuilt_buckets = True
                self._buckets = None
            if model.will_sync_module_buffers():
                model._sync_buffers()
            if self._buckets is None:
                self._buckets = self._counted_buckets()
        self._has_begun = True
        model.broadcast_buffers = False
        self._is_first_of_static_graph = model.static_graph and not model._static_graph_delay_allreduce_enqueued
        self._pieces = pieces
        self._first = self._sequence

    def piece(self, index: int, pieces: int) -> contextlib.AbstractContextManager[None]:
        if index == pieces - 1 or (self._is_first_of_static_graph and index == 0):
            return contextlib.nullcontext()
        return self._model.no_sync()

    def walk(self) -> None:
        reducer = self._model.reducer
        with quiet(), torch.no_grad():
            buckets = reducer._get_zeros_like_grad_buckets()
            sends: list[Callable[[], Any]] = [functools.partial(reducer._run_comm_hook, bucket) for bucket in buckets]
            waits = [send().wait for send in self._sequence_of(sends)[self.collectives :]]
            for wait in waits:
                wait()

    def reset(self) -> None:
        model = self._model
        if self._is_first_of_static_graph:
            # The first backward pass of a static graph teaches the reducer the graph, and half of it cannot be unlearnt.
            self._renew_reducer()
        else:
            model.reducer._reset_state()
        model._has_rebuilt_buckets = False
        # A rank that failed in a piece that does not reduce would else not broadcast buffers when all others do.
        model.require_forward_param_sync = True
        model.require_backward_grad_sync = True

    def end(self) -> None:
        self._has_begun = False
        self._model.broadcast_buffers = self._broadcasts

    def together(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        model = self._model
        syncs = model.require_forward_param_sync
        model.broadcast_buffers = False
        try:
            yield
        finally:
            model.broadcast_buffers = self._broadcasts and not self._has_begun
            model.require_forward_param_sync = syncs

    @property
    def collectives(self) -> int:
        return self._sequence - self._first

    @property
    def foreign(self) -> int:
        if self._buckets is None:
            return 0
        nothing: list[Callable[[], Any]] = [lambda: None] * self._buckets
        return self.collectives - len(self._sequence_of(nothing))

    @property
    def leaves_out(self) -> bool:
        return not self._is_first_of_static_graph

    @property
    def _sequence(self) -> int:
        return int(self._group._get_sequence_number_for_group())

    def _sequence_of(self, buckets: list[Callable[[], Any]]) -> list[Callable[[], Any]]:
        """All collectives of an attempt, in their order. A map of used parameters goes with those that may be unused."""
        model = self._model
        if self._is_first_of_static_graph:
            return [self._send_used_map, *buckets, *(buckets if self._pieces > 1 else [])]
        if model.find_unused_parameters and not model.static_graph:
            return [*buckets, self._send_used_map]
        return buckets

    def _send_used_map(self) -> Any:
        return self._group.allreduce([torch.zeros_like(self._model.reducer._get_local_used_map())])

    def _counted_buckets(self) -> int | None:
        try:
            return len(self._model.reducer._get_zeros_like_grad_buckets())
        except RuntimeError as error:
            if is_oom(error):
                return None
            raise

    def _renew_reducer(self) -> None:
        model: Any = self._model
        c10d: Any = torch.distributed
        parameters, sparse = model._build_params_for_reducer()
        names = model._build_debug_param_to_name_mapping(parameters)
        model._ddp_init_helper(parameters, sparse, names, True)
        model._static_graph_delay_allreduce_enqueued = False
        model.reducer._set_static_graph()
        model.logger._set_static_graph()
        for hook, state in model._comm_hooks:
            c10d._register_comm_hook(model.reducer, state, hook)
        self._buckets = None


def find_ddp(model: torch.nn.Module) -> DdpWalk | None:
    """The walk of a model that is in DDP, or that has DDP in it."""
    found = [one for one in model.modules() if isinstance(one, DistributedDataParallel)]
    if not found:
        return None
    if len(found) > 1:
        raise Unsupported(f"the model has {len(found)} parts in DDP", "put DDP around the whole model")
    return DdpWalk(found[0])


def _check(model: Any) -> None:
    missing = [name for name in _NAMES if not hasattr(model, name)]
    missing += [name for name in _REDUCER_NAMES if not hasattr(model.reducer, name)]
    if missing:
        hint = "use a version of torch that lowtide knows, or: lowtide run"
        raise Unsupported(f"DDP of torch {torch.__version__} has no {', '.join(missing)}", hint)
    reason = _refusal(model)
    if reason is not None:
        raise Unsupported(f"DDP with {reason}", "leave that out, or keep the command alive: lowtide run")


def _refusal(model: Any) -> str | None:
    """What of DDP runs collectives that nobody would walk."""
    if model.process_group.size() != torch.distributed.get_world_size():
        return f"a group of {model.process_group.size()} of {torch.distributed.get_world_size()} ranks"
    for name, module in model.module.named_modules():
        if isinstance(module, torch.nn.SyncBatchNorm):
            return f"SyncBatchNorm ({name}), whose statistics are collectives of their own"
        if getattr(module, "sparse", False) is True and isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
            return f"sparse gradients ({name})"
    flags = {
        "mixed_precision": "mixed_precision; use autocast",
        "_use_python_reducer": "the reducer in Python",
        "_delay_all_reduce_params": "delay_all_reduce_named_params",
        "buffer_hook": "a hook for its buffers",
        "skip_all_reduce_unused_params": "skip_all_reduce_unused_params",
    }
    for flag, words in flags.items():
        if getattr(model, flag, None):
            return words
    if any(hasattr(one, "_in_backward_optimizers") for one in model.module.parameters()):
        return "an optimizer in the backward pass"
    return _refused_hook(model)


def _refused_hook(model: Any) -> str | None:
    name = str(model._get_ddp_logging_data().get("comm_hook", ""))
    if not name or name in _HOOKS or name in _BUILTIN_HOOKS:
        return None
    return f"the communication hook {name}"
