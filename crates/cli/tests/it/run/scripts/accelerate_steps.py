"""A loop with accelerate that saves its state every second step and resumes from one: the sixth step has wide samples, for which the
limit is too low at first."""

import argparse
import os

import torch
from accelerate import Accelerator
from limit import leave

parser = argparse.ArgumentParser()
parser.add_argument("--per_device_train_batch_size", type=int, default=8)
parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
parser.add_argument("--resume_from_checkpoint")
parser.add_argument("--output_dir", default="out")
args = parser.parse_args()

torch.set_num_threads(1)
accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps, cpu=True)
net = torch.nn.Sequential(torch.nn.Linear(16, 16384), torch.nn.GELU(), torch.nn.Linear(16384, 8))
optimizer = torch.optim.AdamW(net.parameters())
loader = torch.utils.data.DataLoader(torch.randn(1024, 16), batch_size=args.per_device_train_batch_size)
net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
step, seen = 0, 0
if args.resume_from_checkpoint:
    accelerator.load_state(args.resume_from_checkpoint)
    step = int(args.resume_from_checkpoint.rsplit("_", 1)[1])
    updates = int(next(iter(optimizer.state_dict()["state"].values()))["step"])
    print("resumes at step", step, "after", updates, "updates", flush=True)
    loader = accelerator.skip_first_batches(loader, step * args.gradient_accumulation_steps)
leave(300)
for batch in loader:
    with accelerator.accumulate(net):
        times = 16 if step == 5 else 1
        accelerator.backward(net(batch.repeat(times, 1)).pow(2).mean())
        optimizer.step()
        optimizer.zero_grad()
    seen += len(batch)
    if accelerator.sync_gradients:
        step += 1
        if step % 2 == 0:
            accelerator.save_state(os.path.join(args.output_dir, f"step_{step}"))
print("seen", seen, "until step", step, flush=True)
