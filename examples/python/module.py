"""A Lightning module. The changed line is the callback."""

import lightning
import torch
from errors import sometimes
from lowtide.integrations.lightning import GuardCallback
from torch.nn import functional


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))

    @sometimes
    def training_step(self, batch, _):
        x, y = batch
        return functional.cross_entropy(self.layers(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main():
    lightning.seed_everything(0, verbose=False)
    x = torch.randn(96, 8)
    data = torch.utils.data.TensorDataset(x, x[:, :3].argmax(1))
    callback = GuardCallback(line="90%")
    trainer = lightning.Trainer(
        max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False, callbacks=[callback]
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=16))
    print(callback.guard.report())


if __name__ == "__main__":
    main()
