"""Hugging Face's own Trainer; the third step has wide samples, for which the limit is too low at first.

Every sample that is trained on is written to `seen.txt`, one line for each optimizer step that was completed."""

import torch
from limit import leave
from transformers import HfArgumentParser, Trainer, TrainerCallback, TrainingArguments

STEP_SAMPLES = 64
seen = []


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 4 * STEP_SAMPLES

    def __getitem__(self, index):
        return index


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = torch.nn.Linear(32, 65536)
        self.out = torch.nn.Linear(65536, 1)

    def forward(self, indices, labels=None):
        seen.extend(indices.tolist())
        steps = indices.new_tensor(trainer.state.global_step)
        tokens = 16 if steps == 2 else 1
        hidden = torch.ones(len(indices), tokens, 32)
        return {"loss": self.out(torch.relu(self.wide(hidden))).mean()}


class Tell(TrainerCallback):
    def on_train_begin(self, args, state, control, **_):
        print("begins at step", state.global_step, flush=True)
        leave(550)

    def on_step_end(self, args, state, control, **_):
        with open("seen.txt", "a") as file:
            print(state.global_step, *sorted(seen), file=file)
        seen.clear()


torch.set_num_threads(1)
(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
trainer = Trainer(
    model=Model(),
    args=arguments,
    train_dataset=Samples(),
    data_collator=lambda indices: {"indices": torch.tensor(indices)},
    callbacks=[Tell()],
)
trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)
print("finished at step", trainer.state.global_step, flush=True)
