"""Lightning's own command line: 2 steps of 512 samples."""

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI
from limit import leave


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(32, 65536), torch.nn.GELU(), torch.nn.Linear(65536, 8))
        self.seen = 0

    def on_train_start(self):
        leave(300)

    def training_step(self, batch):
        self.seen += len(batch)
        return self.net(batch).pow(2).mean()

    def on_train_end(self):
        print("seen", self.seen, "in", self.trainer.global_step, "steps", flush=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Data(LightningDataModule):
    def __init__(self, batch_size: int = 8):
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.randn(1024, 32), batch_size=self.batch_size)


torch.set_num_threads(1)
LightningCLI(Net, Data)
