"""The guard inside of Hugging Face's Trainer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lowtide
import pytest
import runs
import torch

transformers = pytest.importorskip("transformers")
from lowtide.integrations.transformers import guarded  # noqa: E402

OOM = "CUDA out of memory. Tried to allocate 2.00 GiB."


class Tokens(torch.utils.data.Dataset):
    """Sequences with different numbers of labelled tokens."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        ids = torch.randint(60, (12,), generator=generator)
        labels = ids.clone()
        labels[: index % 9] = -100
        return {"input_ids": ids, "labels": labels}


class Classes(Tokens):
    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": super().__getitem__(index)["input_ids"], "labels": torch.tensor(index % 3)}


def gpt2(dropout: float = 0.1) -> Any:
    sizes = {
        "vocab_size": 60,
        "n_positions": 16,
        "n_embd": 24,
        "n_layer": 2,
        "n_head": 2,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    config = transformers.GPT2Config(**sizes, attn_pdrop=dropout, resid_pdrop=dropout, embd_pdrop=dropout)
    return transformers.GPT2LMHeadModel(config)


def bert(dropout: float = 0.1) -> Any:
    config = transformers.BertConfig(
        vocab_size=60,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        num_labels=3,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return transformers.BertForSequenceClassification(config)


def trained(
    folder: Path,
    make: Callable[[], Any],
    data: Any,
    fails: set[int] | None = None,
    schedule: Any = None,
    **options: Any,
) -> tuple[Any, dict[str, Any], list[int]]:
    """A Trainer at the end; the calls of its loss with these numbers run out of memory after they have computed."""
    transformers.set_seed(5)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=4, use_cpu=True,
        report_to="none", logging_steps=1, save_strategy="no", disable_tqdm=True, seed=5, learning_rate=1e-2, **options,
    )  # fmt: skip
    calls, seen = [0], []

    class Mine(transformers.Trainer):
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            loss = super().compute_loss(model, inputs, *args, **kwargs)
            calls[0] += 1
            if calls[0] in (fails or ()):
                raise torch.OutOfMemoryError(OOM)
            if torch.is_grad_enabled():
                seen.append(len(inputs["input_ids"]))
            return loss

    trainer = Mine(model=make(), args=arguments, train_dataset=data, eval_dataset=data)
    if fails is not None or schedule is not None:
        trainer = guarded(trainer, schedule=schedule)
    trainer.train()
    state = {**trainer.model.state_dict(), "random": torch.get_rng_state()}
    return trainer, state, seen


@pytest.mark.parametrize(("make", "data"), [(gpt2, Tokens()), (bert, Classes())], ids=["gpt2", "bert"])
def test_errors_end_with_the_weights_of_a_run_on_the_same_schedule(tmp_path: Path, make: Any, data: Any) -> None:
    # Calls 3 and 4 are the second window's; 4 and 5 fail: its second batch, then the first one of the window again.
    trainer, state, _ = trained(tmp_path, make, data, fails={4, 5})
    guard = trainer.lowtide
    assert (guard.errors, guard.steps, trainer.state.global_step) == (2, 4, 4)
    assert guard.schedule() == [(0, lowtide.Way(4)), (1, lowtide.Way(2))]
    clean, same, seen = trained(tmp_path, make, data, schedule=guard.schedule())
    assert clean.lowtide.errors == 0
    assert not runs.differences(state, same)
    assert seen == [4, 4] + [2] * 12, "every sample once"


def test_without_errors_it_is_the_trainer_as_it_is(tmp_path: Path) -> None:
    assert not runs.differences(trained(tmp_path, gpt2, Tokens(), fails=set())[1], trained(tmp_path, gpt2, Tokens())[1])


def test_pieces_weigh_what_they_hold(tmp_path: Path) -> None:
    """Without dropout, a run in pieces has the weights of one in whole batches but for rounding."""

    for make, data in ((gpt2, Tokens()), (bert, Classes())):
        one = trained(tmp_path, lambda make=make: make(dropout=0.0), data, max_grad_norm=0.0)[1]
        two = trained(
            tmp_path, lambda make=make: make(dropout=0.0), data, schedule=[(0, lowtide.Way(3))], max_grad_norm=0.0
        )[1]
        for name, value in one.items():
            if value.is_floating_point():
                torch.testing.assert_close(
                    value, two[name], rtol=2e-3, atol=2e-4, msg=lambda text, name=name: f"{name}: {text}"
                )


def test_evaluation_in_pieces(tmp_path: Path) -> None:
    trainer, _, _ = trained(tmp_path, bert, Classes(), fails=set())
    whole = trainer.predict(Classes())
    real = trainer.model.forward
    failing = [2]

    def forward(*args: Any, **kwargs: Any) -> Any:
        if failing[0]:
            failing[0] -= 1
            raise torch.OutOfMemoryError(OOM)
        return real(*args, **kwargs)

    trainer.model.forward = forward
    pieces = trainer.predict(Classes())
    assert trainer.lowtide.errors == 2
    torch.testing.assert_close(torch.tensor(whole.predictions), torch.tensor(pieces.predictions))
    assert whole.metrics["test_loss"] == pytest.approx(pieces.metrics["test_loss"], rel=1e-4)


def test_refuses_what_is_no_trainer() -> None:
    with pytest.raises(lowtide.Unsupported, match="no Trainer"):
        guarded(object())
