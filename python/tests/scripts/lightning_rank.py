"""A rank of Lightning's Trainer with the guard, which says that it does not hold those."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from lightning import pytorch as pl

sys.path.insert(0, str(Path(__file__).parent.parent))
import lowtide  # noqa: E402
import ranks  # noqa: E402
from lowtide.integrations.lightning import GuardCallback  # noqa: E402


class Net(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 4)

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        (inputs,) = batch
        return self.layer(inputs).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1e-2)


def main() -> None:
    torch.set_num_threads(1)
    trainer = pl.Trainer(
        max_steps=2, accelerator="cpu", devices=2, strategy="ddp", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[GuardCallback()],
    )  # fmt: skip
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(16, 16)), batch_size=4)
    said = "none"
    try:
        trainer.fit(Net(), data)
    except lowtide.Unsupported as error:
        said = str(error)
    print(json.dumps({"said": said, "ranks": trainer.world_size}))


if __name__ == "__main__":
    main()
    ranks.leave()
