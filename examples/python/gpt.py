"""A loop like nanoGPT's. What is lowtide's are three lines: the guard, the step, the evaluation."""

import lowtide
import torch
from errors import sometimes
from torch import nn
from torch.nn import functional

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VOCABULARY, LENGTH, WIDTH, BATCH = 65, 64, 64, 16


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        block = {"d_model": WIDTH, "nhead": 4, "dim_feedforward": 4 * WIDTH, "batch_first": True, "norm_first": True}
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(**block) for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        x = self.tokens(x) + self.places.weight[: x.shape[1]]
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return self.head(x)


def get_batch(data):
    starts = torch.randint(len(data) - LENGTH - 1, (BATCH,))
    x = torch.stack([data[start : start + LENGTH] for start in starts])
    y = torch.stack([data[start + 1 : start + LENGTH + 1] for start in starts])
    return x.to(DEVICE), y.to(DEVICE)


def main():
    torch.manual_seed(1337)
    data = torch.arange(20_000) % 61 % VOCABULARY
    model = Gpt().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    @sometimes
    def loss_of(part):
        x, y = part
        return functional.cross_entropy(model(x).flatten(0, 1), y.flatten())

    guard = lowtide.Guard(model, optimizer, line="90%", clip=1.0)
    for step in range(30):
        loss = guard.step(get_batch(data), loss_of)
        if step % 10 == 9:
            held = guard.evaluate((get_batch(data) for _ in range(4)), loss_of)
            print(f"step {step + 1}: loss {loss.item():.3f}, evaluation {held:.3f}")
    print(guard.report())


if __name__ == "__main__":
    main()
