"""A small PyTorch training, as other people's scripts are, on a card that is made small.

    python torch_small.py --batch_size=64 --gradient_accumulation_steps=1 [--cap=2.0]

Trains a stack of linear layers for a few steps; the cap in GiB is the allocator's. Prints the samples that were trained on.
"""

import sys

import torch

settings = dict(word.lstrip("-").split("=") for word in sys.argv[1:])
micro, accumulation = int(settings["batch_size"]), int(settings.get("gradient_accumulation_steps", 1))
cap = float(settings.get("cap", 2.0)) * 2**30
torch.cuda.set_per_process_memory_fraction(cap / torch.cuda.get_device_properties(0).total_memory)

torch.manual_seed(1)
layers = [torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.GELU()) for _ in range(16)]
model = torch.nn.Sequential(*layers).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
samples = 0
for step in range(5):
    for _ in range(accumulation):
        inputs = torch.randn(micro, 64, 2048, device="cuda")
        loss = (model(inputs) - inputs).square().mean() / accumulation
        loss.backward()
        samples += micro
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4f}", flush=True)
print(f"samples {samples}", flush=True)
