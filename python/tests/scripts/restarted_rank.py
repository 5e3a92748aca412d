"""A training script of somebody's, with a guard, which `lowtide run -- torchrun` starts again after a rank was lost.

restarted_rank.py --batch_size N --gradient_accumulation_steps N --out FOLDER [--fails] [--schedule JSON]

With ``--fails`` the second rank runs out of memory in the third step, and again in its walk. With a schedule nothing fails.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parent.parent))
import lowtide  # noqa: E402
import models  # noqa: E402
import ranks  # noqa: E402
import runs  # noqa: E402

STEPS = 4


def fail() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--fails", action="store_true")
    parser.add_argument("--schedule", type=json.loads)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = DistributedDataParallel(models.Gpt())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(20 + rank)
    schedule = [(step, lowtide.Way(*way)) for step, way in args.schedule] if args.schedule else None
    guard = lowtide.Guard(model, optimizer, micro_batch=args.batch_size, schedule=schedule)
    path, failed = args.out / "checkpoint.pt", args.out / "failed"
    if path.exists():
        guard.load(path)
    begun = guard.steps
    for step in range(begun, STEPS):
        batch = models.tokens(args.batch_size * args.gradient_accumulation_steps, 10 * step + rank)
        is_failing = args.fails and rank == 1 and step == 2 and not failed.exists()
        if is_failing:
            failed.touch()
            guard._recovery.ranks.walk.walk = fail  # type: ignore[union-attr, method-assign]
        with lowtide.inject(at=40 if is_failing else ()):
            guard.step(batch, lambda part: models.loss_of(model, part), count=models.counted)
        guard.save(path)
    end = {"begun": begun, "schedule": guard.schedule(), "bits": runs.fingerprints(model.module, optimizer)}
    (args.out / f"end-{rank}.json").write_text(json.dumps(end))


if __name__ == "__main__":
    main()
    ranks.leave()
