"""A small training with Lightning's Trainer, which knows nothing of Lowtide; told to, it repeats a schedule."""

import json
import sys
from pathlib import Path

import torch
from lightning import pytorch as pl


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        layers = torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 4)
        self.layers = torch.nn.Sequential(*layers)

    def training_step(self, batch, _):
        inputs, labels = batch
        return torch.nn.functional.cross_entropy(self.layers(inputs), labels)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


pl.seed_everything(5, verbose=False)
data = torch.utils.data.TensorDataset(torch.randn(24, 16), torch.arange(24) % 4)
module = Net()
callbacks = []
if Path("schedule.json").exists():
    # The same schedule, by hand.
    import lowtide
    from lowtide.integrations.lightning import GuardCallback

    ways = [(step, lowtide.Way(*way)) for step, way in json.loads(Path("schedule.json").read_text())]
    callbacks.append(GuardCallback(schedule=ways))
trainer = pl.Trainer(
    max_steps=3, accumulate_grad_batches=2, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, callbacks=callbacks,
)  # fmt: skip
trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=4))
torch.save(module.state_dict(), sys.argv[1])
guards = [callback.guard for callback in trainer.callbacks if hasattr(callback, "guard")]
for guard in guards:
    print("errors", guard.errors, flush=True)
    Path("schedule.json").write_text(json.dumps(guard.schedule()))
