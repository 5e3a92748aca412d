"""nanoGPT's options, loop, messages and checkpoints, without a model: memory runs out at iteration 6 unless the micro-batch
is small."""

import os
import pickle
import zipfile

out_dir = 'out'
eval_interval = 4
always_save_checkpoint = True
init_from = 'scratch' # 'scratch' or 'resume' or 'gpt2*'
gradient_accumulation_steps = 1
batch_size = 8
block_size = 16
fits = 4
max_iters = 9
exec(open('configurator.py').read()) # overrides from command line or config file

print(f"tokens per iteration will be: {gradient_accumulation_steps * batch_size * block_size:,}")
os.makedirs(out_dir, exist_ok=True)
iter_num = 0
if init_from == 'resume':
    print(f"Resuming training from {out_dir}")
    with zipfile.ZipFile(os.path.join(out_dir, 'ckpt.pt')) as archive:
        iter_num = pickle.loads(archive.read('ckpt/data.pkl'))['iter_num']

while iter_num <= max_iters:
    if iter_num % eval_interval == 0:
        print(f"step {iter_num}: train loss 2.0000, val loss 2.1000")
        if always_save_checkpoint and iter_num > 0:
            print(f"saving checkpoint to {out_dir}")
            # In its place, as torch.save does.
            with zipfile.ZipFile(os.path.join(out_dir, 'ckpt.pt'), 'w') as archive:
                archive.writestr('ckpt/data.pkl', pickle.dumps({'iter_num': iter_num, 'best_val_loss': 2.1}, protocol=2))
                archive.writestr('ckpt/version', '3\n')
    if iter_num == 6 and batch_size > fits:
        raise RuntimeError('CUDA out of memory. Tried to allocate %d.00 MiB. GPU 0 has a total capacity of 11.69 GiB of '
                           'which 2.68 MiB is free.' % (batch_size * 100))
    print(f"iter {iter_num}: loss 2.0000, time 1.00ms, mfu -100.00%", flush=True)
    iter_num += 1
