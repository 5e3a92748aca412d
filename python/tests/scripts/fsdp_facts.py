"""A rank under FSDP2 that prints facts about its guard, or falls silent in a walk.

fsdp_facts.py [silent]       in the environment that torchrun gives a rank
"""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

sys.path.insert(0, str(Path(__file__).parent.parent))
import lowtide  # noqa: E402
import models  # noqa: E402
from lowtide._ranks import _fsdp  # noqa: E402
from lowtide._ranks._fsdp_sequence import sent  # noqa: E402
from lowtide._ranks._side import side_group  # noqa: E402


def sharded() -> torch.nn.Module:
    model = models.Gpt(width=16)
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def optimizer_of(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def refusal(model: torch.nn.Module, **options: Any) -> str:
    try:
        lowtide.Guard(model, optimizer_of(model), **options)
    except lowtide.LowtideError as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def step(guard: lowtide.Guard, number: int) -> None:
    batch = models.tokens(4, 10 * number + dist.get_rank())
    guard.step(batch, lambda part: models.loss_of(guard.model, part), count=models.counted)


def flags() -> int:
    return sent(side_group("flags"))


def facts() -> dict[str, Any]:
    found: dict[str, Any] = {
        "scaler": refusal(sharded(), scaler=torch.amp.GradScaler("cpu")),
        "fsdp1": refusal(FullyShardedDataParallel(models.Gpt(width=16), device_id=torch.device("cpu"))),
    }
    model = sharded()
    # What is gathered at once: a block, or all that is outside of blocks.
    sizes = [sum(one.numel() for one in block.parameters()) for block in model.blocks]
    sizes.append(sum(one.numel() for one in model.parameters()) - sum(sizes))
    guard = lowtide.Guard(model, optimizer_of(model))
    counts = [flags()]
    for number in range(4):
        step(guard, number)
        if number == 1:  # leaves parameters of the root gathered
            with torch.no_grad():
                model(models.tokens(4, 99).x)
        counts.append(flags())
    found["flags"] = [after - before for before, after in zip(counts, counts[1:])]
    found["largest"] = 4 * max(sizes)
    found["aside"] = guard._recovery.ranks.walk.aside
    found["report"] = guard.report()
    guard.close()
    found["bare"] = bare()
    return found


def fall_silent() -> None:
    """The second rank runs out of memory, and again where it walks for the others."""

    def walk(_self: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory, in the walk")

    _fsdp.FsdpWalk.walk = walk
    model = sharded()
    guard = lowtide.Guard(model, optimizer_of(model), rank_timeout=20.0)
    step(guard, 0)
    with lowtide.inject(at=[200] if dist.get_rank() == 1 else []):
        step(guard, 1)
    print("went on")


def bare() -> str:
    """The first rank has a batch to evaluate, the second has none."""
    model = sharded()
    guard = lowtide.Guard(model, optimizer_of(model))
    try:
        guard.evaluate([models.tokens(4, 0)][dist.get_rank() :], lambda part: models.loss_of(guard.model, part))
    except lowtide.LowtideError as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    if sys.argv[1:] == ["silent"]:
        fall_silent()
    else:
        print(json.dumps(facts()))


if __name__ == "__main__":
    main()
