"""Trains on every process of a group that `torchrun` started; a step's pieces are shared out among them, as nanoGPT
does. Names of settings and the way they are overridden are nanoGPT's too."""

import os

import torch
import torch.distributed as dist
from limit import leave

batch_size = 512
gradient_accumulation_steps = 2
max_iters = 2
exec(open("configurator.py").read())

rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(1)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 65536), torch.nn.GELU(), torch.nn.Linear(65536, 8))
if world > 1:
    dist.init_process_group("gloo")
assert gradient_accumulation_steps % world == 0
seen = torch.zeros(1)
# Every process but the last has room for anything.
if rank == world - 1:
    leave(300)
for step in range(max_iters):
    print("rank", rank, "step", step, flush=True)
    for piece in range(gradient_accumulation_steps // world):
        loss = model(torch.randn(batch_size, 32)).pow(2).mean() / gradient_accumulation_steps
        loss.backward()
        seen += batch_size
if world > 1:
    dist.all_reduce(seen)
if rank == 0:
    print("seen", int(seen), flush=True)
if world > 1:
    dist.destroy_process_group()
