# characters on a processor
dataset = 'verses_char'
gradient_accumulation_steps = 1
batch_size = 4096
block_size = 64
n_layer = 4
n_head = 4
n_embd = 128
device = 'cpu'  # no card here
