"""A training loop on PyTorch alone, whose last batch has fewer samples than others."""

import os

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
data = TensorDataset(torch.randn(102, 4), torch.randn(102, 1))
net = torch.nn.Linear(4, 1)
optim = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.StepLR(optim, 3)
loader = DataLoader(data, batch_size=16, shuffle=True)
for epoch in range(2):
    for imgs, targets in loader:
        optim.zero_grad()
        if "SMALL" in os.environ: raise MemoryError
        err = torch.nn.functional.mse_loss(net(imgs), targets)
        err.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optim.step()
        sched.step()
print(sched.last_epoch, [round(weight, 5) for weight in net.weight[0].tolist()])
