"""FSDP2's own state, by torch's private names: what a failed forward or backward leaves behind, and what sizes there are."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, TrainingState
from torch.distributed.fsdp._fully_shard._fsdp_param import ShardedState


class Sharded:
    """The parts of a model that are under ``fully_shard``."""

    def __init__(self, model: torch.nn.Module) -> None:
        modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
        # Several modules may share a state.
        self._states = list(dict.fromkeys(module._get_fsdp_state() for module in modules))
        inner = {id(one) for module in modules for one in module.modules() if one is not module}
        self._roots = [module._get_fsdp_state() for module in modules if id(module) not in inner]
        self.groups = [state._fsdp_param_group for state in self._states if state._fsdp_param_group is not None]
        self.device: torch.device = self.groups[0].device

    @staticmethod
    def has_parts(model: torch.nn.Module) -> bool:
        return any(isinstance(module, FSDPModule) for module in model.modules())

    def largest(self) -> int:
        """Bytes of the largest collective."""
        return max(map(_largest_of, self.groups))

    def settings(self) -> Hashable:
        """What decides which collectives there are, as far as users may change it between steps."""
        return tuple(
            (group._reshard_after_forward, group.reshard_after_backward, group.unshard_in_backward)
            for group in self.groups
        )

    def reduce_all(self, *, is_last: bool) -> None:
        """Gradients are reduced over shards after each piece, over replicas after the last."""
        for group in self.groups:
            group.reduce_grads, group.all_reduce_grads = True, is_last
        for state in self._roots:
            state._state_ctx.is_last_backward = True

    def lazy_init(self) -> None:
        """What FSDP2 does at its first forward, where an error would leave it half done for good."""
        for root in self._roots:
            if root._is_root is not None:
                continue
            try:
                root._lazy_init()
            except BaseException:
                root._state_ctx.all_states.clear()
                for state in self._states:
                    state._is_root = None
                raise

    def is_at_rest(self) -> bool:
        """Whether it is as between two steps: an evaluation leaves parameters gathered, and a failed one more than that."""
        return all(group.is_sharded and group._all_gather_result is None for group in self.groups) and all(
            state._training_state == TrainingState.IDLE and state._state_ctx.iter_forward_root is None
            for state in self._states
        )

    def reset(self) -> None:
        """As between two steps."""
        for state in self._states:
            state._training_state = TrainingState.IDLE
            state._modules_to_run_forward.clear()
            context, comm = state._state_ctx, state._comm_ctx
            context.iter_forward_root = None
            context.post_backward_final_callback_queued = False
            context.is_last_backward = True
            if hasattr(comm, "post_forward_order"):
                comm.post_forward_order.clear()
        for group in self.groups:
            _reset_group(group)
        for state in self._states:
            state._comm_ctx.all_gather_state = state._comm_ctx.reduce_scatter_state = None


def _reset_group(group: Any) -> None:
    result = group._all_gather_result
    if result is not None and result.all_gather_work is not None:
        result.all_gather_work.wait()
    group._all_gather_result = None
    group._post_forward_indices.clear()
    group._post_reduce_event = group._reshard_after_forward_event = None
    group._all_reduce_state = group._partial_reduce_output = None
    group._training_state = TrainingState.IDLE
    for one in group.fsdp_params:
        one.unsharded_accumulated_grad = one.grad_offload_event = None
        if hasattr(one, "_unsharded_param"):
            one._unsharded_param.grad = None
        one._sharded_post_forward_param = one._sharded_post_forward_param_data = None
        if hasattr(one, "_extensions_data"):
            one._extensions_data.clear()
        if hasattr(one, "_unsharded_inner_tensors"):
            # Also where the group did not get as far as calling itself gathered.
            one.to_sharded()
    group._sharded_state = ShardedState.SHARDED


def _largest_of(group: Any) -> int:
    ranks = group.mesh_info.shard_mesh_size if isinstance(group.mesh_info, FSDPMeshInfo) else 1
    policy = group.mp_policy
    gathered = reduced = 0
    for one in group.fsdp_params:
        numel = one.padded_sharded_param_size.numel()
        parameter = policy.param_dtype or one.sharded_param.dtype
        gathered += numel * ranks * parameter.itemsize
        reduced += numel * (ranks + 1) * (policy.reduce_dtype or parameter).itemsize
    # Room for the output of a reduce-scatter to begin at a round place.
    return max(gathered, reduced + 512)
