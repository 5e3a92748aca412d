"""A rank of Hugging Face's Trainer or of a loop with accelerate, with errors on it, and the same without them.

trainer_rank.py transformers|accelerate FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parent.parent))
import lowtide  # noqa: E402
import ranks  # noqa: E402
import runs  # noqa: E402

OOM = "CUDA out of memory. Tried to allocate 2.00 GiB."


def transformers_run(folder: Path, fails: dict[int, set[int]], schedule: Any) -> tuple[lowtide.Guard, dict[str, Any]]:
    import transformers
    from lowtide.integrations.transformers import guarded
    from test_transformers import Tokens, gpt2

    transformers.set_seed(5)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=3, use_cpu=True,
        report_to="none", logging_steps=1, save_strategy="no", disable_tqdm=True, seed=5, learning_rate=1e-2,
    )  # fmt: skip
    calls = [0]

    class Mine(transformers.Trainer):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().compute_loss(*args, **kwargs)
            calls[0] += 1
            if calls[0] in fails.get(dist.get_rank(), ()):
                raise torch.OutOfMemoryError(OOM)
            return loss

    trainer = guarded(Mine(model=gpt2(), args=arguments, train_dataset=Tokens()), schedule=schedule)
    trainer.train()
    losses = torch.tensor([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    return trainer.lowtide, {**trainer.model.state_dict(), "random": torch.get_rng_state(), "losses": losses}


def accelerate_run(folder: Path, fails: dict[int, set[int]], schedule: Any) -> tuple[lowtide.Guard, dict[str, Any]]:
    import accelerate
    import models
    from lowtide.integrations.accelerate import guarded

    accelerator = accelerate.Accelerator(cpu=True)
    torch.manual_seed(2)
    model = models.Gpt()
    pairs = [models.tokens(1, number) for number in range(24)]
    data = torch.utils.data.DataLoader([(one.x[0], one.y[0]) for one in pairs], batch_size=6)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2), data)
    guard = guarded(accelerator, model, optimizer, clip=1.0, schedule=schedule)
    calls = [0]

    def closure(part: Any) -> torch.Tensor:
        loss = models.loss_of(model, models.Pair(*part))
        calls[0] += 1
        if calls[0] in fails.get(dist.get_rank(), ()):
            raise torch.OutOfMemoryError(OOM)
        return loss

    for batch in loader:
        guard.step(batch, closure, count=lambda part: (part[1] != -100).sum())
    return guard, {**accelerator.unwrap_model(model).state_dict(), "random": torch.get_rng_state()}


def main() -> None:
    train = transformers_run if sys.argv[1] == "transformers" else accelerate_run
    folder = Path(sys.argv[2])
    torch.set_num_threads(1)
    # The second step fails on rank 1, and when it is tried again on rank 0; then the first batch of the Trainer's third step,
    # in a piece of it, after which that rank has a batch to sit out.
    fails = {1: {3, 10}, 0: {4}} if sys.argv[1] == "transformers" else {1: {2}, 0: {3}}
    guard, state = train(folder, fails, None)
    clean, same = train(folder, {}, guard.schedule())
    print()
    print(
        json.dumps(
            {
                "errors": guard.errors,
                "clean": clean.errors,
                "schedule": [(step, way.micro_batch) for step, way in guard.schedule()],
                "different": runs.differences(state, same),
            }
        )
    )


if __name__ == "__main__":
    main()
    ranks.leave()
