"""A data set that is larger than its limit: read ahead by threads of Rust, stopped in the middle, and gone on with exactly there."""

import tempfile
from pathlib import Path

import lowtide
import torch
from errors import sometimes
from torch.nn import functional

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def made(folder):
    """Files as people have them: each a dict of tensors with a sample in every row."""
    folder.mkdir()
    for number in range(60):
        x = torch.randn(500, 256, generator=torch.Generator().manual_seed(number))
        torch.save({"x": x, "y": x[:, :4].argmax(1)}, folder / f"part-{number}.pt")


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made(folder / "files")
        lowtide.pack(folder / "files", folder / "packed")
        size = sum(path.stat().st_size for path in (folder / "packed").iterdir())
        model = torch.nn.Sequential(torch.nn.Linear(256, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).to(DEVICE)
        guard = lowtide.Guard(model, torch.optim.AdamW(model.parameters(), lr=1e-2))

        @sometimes
        def loss_of(part):
            return functional.cross_entropy(model(part["x"].to(DEVICE)), part["y"].to(DEVICE))

        feed = lowtide.Feed(folder / "packed", batch_size=100, limit="12MiB", seed=1)
        print(f"{size / 2**20:.1f} MiB of data under 12 MiB, {len(feed)} batches")
        for number, batch in enumerate(feed):
            loss = guard.step(batch, loss_of)
            if number == 24:
                break  # as if it had been stopped here
        state = feed.state_dict()
        again = lowtide.Feed(folder / "packed", batch_size=100, limit="12MiB", seed=1)
        again.load_state_dict(state)
        for batch in again:
            loss = guard.step(batch, loss_of)
        print(f"{guard.steps} steps, loss {loss.item():.3f}")
        assert guard.steps == len(feed), "every sample once"
        print(guard.report())


if __name__ == "__main__":
    main()
