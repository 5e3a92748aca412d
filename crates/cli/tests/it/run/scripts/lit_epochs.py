"""Lightning's own command line: an epoch is one step, and the third one has wide samples, for which the limit is too low at
first. Every epoch ends with a checkpoint."""

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI
from limit import leave


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(16, 16384), torch.nn.GELU(), torch.nn.Linear(16384, 8))
        self.seen = 0

    def on_train_start(self):
        print("begins at step", self.trainer.global_step, flush=True)
        leave(300)

    def training_step(self, batch):
        self.seen += len(batch)
        times = 16 if self.trainer.global_step == 2 else 1
        return self.net(batch.repeat(times, 1)).pow(2).mean()

    def on_train_end(self):
        print("seen", self.seen, "until step", self.trainer.global_step, flush=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Data(LightningDataModule):
    def __init__(self, batch_size: int = 8):
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.randn(128, 16), batch_size=self.batch_size)


torch.set_num_threads(1)
LightningCLI(Net, Data)
