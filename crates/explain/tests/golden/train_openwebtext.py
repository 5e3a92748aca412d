# openwebtext on one small card
out_dir = 'out-owt'
eval_interval = 500
eval_iters = 200
log_interval = 100
dataset = 'openwebtext_local'
batch_size = 64
block_size = 1024
gradient_accumulation_steps = 1
max_iters = 20000
dtype = 'bfloat16'
compile = True
