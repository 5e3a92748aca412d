# a character model on a laptop
out_dir = 'out-char'
eval_interval = 250
eval_iters = 20
dataset = 'verses_char'
gradient_accumulation_steps = 1
batch_size = 16384
block_size = 64
n_layer = 4
n_head = 4
n_embd = 128
dropout = 0.0
max_iters = 2000
lr_decay_iters = 2000
device = 'cpu'
compile = False
