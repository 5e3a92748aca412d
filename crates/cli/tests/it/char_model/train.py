"""A character model with the options, the prints and the loop of small language models, in plain Python.

It takes the memory that such a step takes, without computing anything.
"""
import os
import resource

from model import Model, tensor

out_dir = 'out'
eval_iters = 200
gradient_accumulation_steps = 5 * 8
batch_size = 12
block_size = 1024
n_layer = 12
n_head = 12
n_embd = 768
dropout = 0.0
max_iters = 2
lr_decay_iters = 2
device = 'cuda'
dtype = 'bfloat16'
exec(open('configurator.py').read())

taken = int(open('/proc/self/statm').read().split()[0]) * os.sysconf('SC_PAGE_SIZE')
most = taken + int(os.environ['MEMORY_LIMIT'])
resource.setrlimit(resource.RLIMIT_AS, (most, most))
print(f"tokens per iteration will be: {gradient_accumulation_steps * batch_size * block_size:,}")
print("found vocab_size = 96 (inside data/verses_char/meta.pkl)")
print("Initializing a new model from scratch")
model = Model(n_layer, n_embd, 96, block_size)
print("number of parameters: %.2fM" % (model.parameters / 1e6))
optimizer = [tensor(8 * model.parameters), tensor(4 * model.parameters)]
print("using fused AdamW: False", flush=True)
for step in range(max_iters):
    for micro_step in range(gradient_accumulation_steps):
        loss = model(batch_size)
        loss.backward()
    print(f"iter {step}: loss {4.5 - step / 10:.4f}, time 1.00ms")
