"""A small fine-tune with Hugging Face's Trainer, which knows nothing of Lowtide; told to, it repeats a schedule."""

import json
import sys
from pathlib import Path

import torch
import transformers


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        ids = torch.randint(60, (12,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids.clone()}


transformers.set_seed(5)
sizes = {
    "vocab_size": 60,
    "n_positions": 16,
    "n_embd": 24,
    "n_layer": 2,
    "n_head": 2,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
arguments = transformers.TrainingArguments(
    output_dir="out", per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=3, use_cpu=True, report_to="none",
    save_strategy="no", disable_tqdm=True, seed=5, learning_rate=1e-2,
)  # fmt: skip
trainer = transformers.Trainer(model=model, args=arguments, train_dataset=Tokens())
if Path("schedule.json").exists():
    # The same schedule, by hand.
    import lowtide
    from lowtide.integrations.transformers import guarded

    ways = [(step, lowtide.Way(*way)) for step, way in json.loads(Path("schedule.json").read_text())]
    guarded(trainer, schedule=ways)
trainer.train()
torch.save(model.state_dict(), sys.argv[1])
guard = getattr(trainer, "lowtide", None)
if guard is not None:
    print("errors", guard.errors, flush=True)
    Path("schedule.json").write_text(json.dumps(guard.schedule()))
