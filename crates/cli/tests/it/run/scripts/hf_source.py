"""Hugging Face's own Trainer, with its batch in the source."""

import torch
from limit import leave
from transformers import Trainer, TrainerCallback, TrainingArguments

seen = []


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 128

    def __getitem__(self, index):
        return index


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = torch.nn.Linear(32, 65536)
        self.out = torch.nn.Linear(65536, 1)

    def forward(self, indices, labels=None):
        seen.extend(indices.tolist())
        hidden = torch.ones(len(indices), 16, 32)
        return {"loss": self.out(torch.relu(self.wide(hidden))).mean()}


class Limit(TrainerCallback):
    def on_train_begin(self, args, state, control, **_):
        leave(550)


def main():
    torch.set_num_threads(1)
    arguments = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=64,
        max_steps=2,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=Model(),
        args=arguments,
        train_dataset=Samples(),
        data_collator=lambda indices: {"indices": torch.tensor(indices)},
        callbacks=[Limit()],
    )
    trainer.train()
    print("seen", len(seen), "in", trainer.state.global_step, "steps", flush=True)


if __name__ == "__main__":
    main()
