"""A loop on PyTorch alone, with its batch in constants and data from a worker that is spawned."""

import os

import torch
from limit import leave

BATCH_SIZE = 512
ACCUMULATION_STEPS = 1


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 1024

    def __getitem__(self, index):
        # A worker that had read another script would tell of another batch.
        return torch.randn(32), BATCH_SIZE


def main():
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(32, 65536), torch.nn.GELU(), torch.nn.Linear(65536, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(
        Samples(), batch_size=BATCH_SIZE, num_workers=1, multiprocessing_context="spawn"
    )
    seen = steps = 0
    for piece, (samples, told) in enumerate(loader, 1):
        if piece == 1:
            leave(300)
        assert set(told.tolist()) == {BATCH_SIZE}
        loss = model(samples).pow(2).mean()
        (loss / ACCUMULATION_STEPS).backward()
        seen += len(samples)
        if piece % ACCUMULATION_STEPS == 0:
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
    if os.environ.get("RANK", "0") == "0":
        print("seen", seen, "in", steps, "steps by", os.path.basename(__file__), flush=True)


if __name__ == "__main__":
    main()
