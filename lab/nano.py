"""GPT-2 training with settings as nanoGPT has them: names with defaults, then files, then `--key=value` words.

    python nano.py config.py --cap=11.69

The cap in GiB is the allocator's. An evaluation comes before the first step. Prints the peak of allocated memory.
"""

import sys

import torch
import torch.nn.functional as F
from models import GPT

batch_size = 12
gradient_accumulation_steps = 5
block_size = 1024
vocab_size = 50304
n_layer, n_head, n_embd = 12, 12, 768
eval_iters = 2
max_iters = 2
cap = 0.0
for word in sys.argv[1:]:
    if word.startswith("--"):
        key, value = word[2:].split("=")
        globals()[key] = type(globals()[key])(value)
    else:
        exec(open(word).read())

if cap:
    torch.cuda.set_per_process_memory_fraction(cap * 2**30 / torch.cuda.get_device_properties(0).total_memory)
torch.manual_seed(1)
print(f"tokens per iteration will be: {gradient_accumulation_steps * batch_size * block_size:,}", flush=True)
model = GPT(vocab_size, block_size, n_embd, n_layer, n_head).cuda()
print(f"number of parameters: {sum(p.numel() for p in model.parameters()) / 1e6:.2f}M", flush=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def loss_of_a_batch():
    idx = torch.randint(vocab_size, (batch_size, block_size), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        logits = model(idx)
        return F.cross_entropy(logits.view(-1, vocab_size), idx.view(-1))


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = [loss_of_a_batch().item() for _ in range(eval_iters)]
    model.train()
    return sum(losses) / len(losses)


for iter_num in range(max_iters):
    if iter_num == 0:
        print(f"step {iter_num}: val loss {estimate_loss():.4f}", flush=True)
    for _ in range(gradient_accumulation_steps):
        loss = loss_of_a_batch() / gradient_accumulation_steps
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(f"iter {iter_num}: loss {loss.item() * gradient_accumulation_steps:.4f}", flush=True)
print(f"peak {torch.cuda.max_memory_allocated()}", flush=True)
