"""A training loop on PyTorch alone: 2 steps of 512 samples."""

import sys

import torch
from limit import leave

settings = dict(word.lstrip("-").split("=") for word in sys.argv[1:])
micro, accum = int(settings["batch_size"]), int(settings.get("gradient_accumulation_steps", 1))
torch.manual_seed(1)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 65536), torch.nn.GELU(), torch.nn.Linear(65536, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(512, 32)
leave(300)
seen = 0
for step in range(2):
    print("step", step, flush=True)
    for piece in data.split(micro)[:accum]:
        (model(piece).pow(2).mean() / accum).backward()
        seen += len(piece)
    optimizer.step()
    optimizer.zero_grad()
print("seen", seen, flush=True)
