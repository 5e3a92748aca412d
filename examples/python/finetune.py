"""Hugging Face's Trainer. The changed line is the one with `guarded`."""

import tempfile

import lowtide.integrations.transformers
import torch
from errors import sometimes
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Texts(torch.utils.data.Dataset):
    """Made up; a tokenized data set of yours looks the same."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        ids = (torch.arange(32) * (index + 1)) % 100
        return {"input_ids": ids, "labels": ids}


def main():
    config = GPT2Config(vocab_size=100, n_positions=32, n_embd=48, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    model.forward = sometimes(model.forward)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder, per_device_train_batch_size=8, gradient_accumulation_steps=2, max_steps=6, logging_steps=2,
            report_to="none", save_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        trainer = Trainer(model=model, args=args, train_dataset=Texts(), eval_dataset=Texts())
        trainer = lowtide.integrations.transformers.guarded(trainer, line="90%")
        trainer.train()
        print(trainer.evaluate())
        print(trainer.lowtide.report())


if __name__ == "__main__":
    main()
