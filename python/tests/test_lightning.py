"""The guard inside of Lightning's Trainer."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import lowtide
import models
import pytest
import ranks
import runs
import torch

lightning = pytest.importorskip("lightning.pytorch")
from lowtide.integrations.lightning import GuardCallback  # noqa: E402

OOM = "CUDA out of memory. Tried to allocate 2.00 GiB."


class Pictures(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        pair = models.pictures(1, index)
        return pair.x[0], pair.y[0]


class Module(lightning.LightningModule):
    """BatchNorm, dropout, and a loss whose calls of these numbers run out of memory after they have computed."""

    def __init__(self, fails: set[int], clip_fails: int = 0) -> None:
        super().__init__()
        self.model = models.Cnn()
        self.fails, self.clip_fails = fails, clip_fails
        self.calls, self.seen = 0, []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        self.calls += 1
        if self.calls in self.fails:
            raise torch.OutOfMemoryError(OOM)
        self.seen.append(len(batch[0]))
        self.log("train_loss", loss)
        return loss

    def configure_gradient_clipping(self, *args: Any, **kwargs: Any) -> None:
        super().configure_gradient_clipping(*args, **kwargs)
        if self.clip_fails:
            self.clip_fails -= 1
            raise torch.OutOfMemoryError(OOM)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def trained(
    folder: Path, fails: set[int], schedule: Any = None, guard: bool = True, clip_fails: int = 0, accumulate: int = 2
) -> tuple[Any, dict[str, Any], Module]:
    lightning.seed_everything(4, verbose=False)
    module = Module(fails, clip_fails)
    callback = GuardCallback(schedule=schedule, run=folder / "run" if fails else None)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accumulate_grad_batches=accumulate, gradient_clip_val=1.0, callbacks=[callback] if guard else [],
        default_root_dir=folder,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(module, torch.utils.data.DataLoader(Pictures(), batch_size=4, shuffle=True))
    state = {name: value.clone() for name, value in module.state_dict().items()}
    return callback.guard, {**state, "random": torch.get_rng_state()}, module


def test_without_errors_it_is_the_trainer_as_it_is(tmp_path: Path) -> None:
    assert not runs.differences(trained(tmp_path, set())[1], trained(tmp_path, set(), guard=False)[1])


@pytest.mark.parametrize("accumulate", [1, 2])
def test_errors_end_with_the_weights_of_a_run_on_the_same_schedule(tmp_path: Path, accumulate: int) -> None:
    guard, state, _ = trained(tmp_path, {4, 5}, accumulate=accumulate)
    assert guard.errors == 2
    assert guard.steps == 6 // accumulate
    assert guard.schedule()[-1][1] == lowtide.Way(2)
    clean, same, module = trained(tmp_path, set(), schedule=guard.schedule(), accumulate=accumulate)
    assert clean.errors == 0
    assert not runs.differences(state, same)
    assert sum(module.seen) == 24, "every sample once"
    assert '"reason":"finished"' in (tmp_path / "run/events.jsonl").read_text()


@pytest.mark.parametrize("accumulate", [1, 2])
def test_an_error_in_clipping_begins_the_window_anew(tmp_path: Path, accumulate: int) -> None:
    guard, state, _ = trained(tmp_path, set(), clip_fails=1, accumulate=accumulate)
    assert guard.errors == 1
    assert not runs.differences(state, trained(tmp_path, set(), schedule=guard.schedule(), accumulate=accumulate)[1])
    guard, state, _ = trained(tmp_path, set(), clip_fails=2, accumulate=accumulate)
    assert not runs.differences(state, trained(tmp_path, set(), schedule=guard.schedule(), accumulate=accumulate)[1])


def test_several_ranks_are_refused_on_all_of_them() -> None:
    for one in ranks.run("lightning_rank.py", 2, NODE_RANK="0"):
        answer = one.answer()
        assert answer["ranks"] == 2
        assert answer["said"].startswith("Lightning on 2 ranks (DDPStrategy)\nhint: ")


class Validated(Module):
    """Its validation runs out of memory for more than so many samples; what it sees and what its hook is given is kept."""

    def __init__(self, most: int) -> None:
        super().__init__(set())
        self.most = most
        self.validated: list[int] = []
        self.labels: list[int] = []
        self.outputs: list[Any] = []

    def validation_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        scores = self.model(batch[0])
        if len(batch[0]) > self.most:
            raise torch.OutOfMemoryError(OOM)
        loss = torch.nn.functional.cross_entropy(scores, batch[1])
        self.validated.append(len(batch[0]))
        self.labels.extend(batch[1].tolist())
        self.log("val_loss", loss)
        return {"loss": loss, "scores": scores, "labels": batch[1].tolist()}

    def on_validation_batch_end(self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.outputs.append(outputs)


def validated(folder: Path, most: int) -> tuple[Validated, GuardCallback, float]:
    lightning.seed_everything(4, verbose=False)
    module, callback = Validated(most), GuardCallback(run=folder / f"run-{most}")
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0, callbacks=[callback], default_root_dir=folder,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = Pictures()
        trainer.fit(
            module, torch.utils.data.DataLoader(data, batch_size=4), torch.utils.data.DataLoader(data, batch_size=7)
        )
    return module, callback, float(trainer.callback_metrics["val_loss"])


def test_a_validation_batch_that_does_not_fit_is_validated_in_pieces(tmp_path: Path) -> None:
    whole, _, wanted = validated(tmp_path, 7)
    module, callback, found = validated(tmp_path, 2)
    assert whole.validated == [7, 7, 7, 3]
    assert max(module.validated) <= 2
    assert sum(module.validated) == 24, "every sample once"
    assert module.labels == whole.labels, "in their order"
    assert found == pytest.approx(wanted, rel=1e-5), "weighed by their samples"
    assert callback.guard is not None
    assert callback.guard.errors >= 2
    assert callback.guard.schedule()[-1][1] == lowtide.Way(4), "training goes on as it was"
    assert not runs.differences(module.state_dict(), whole.state_dict())
    assert len(module.outputs) == len(whole.outputs) == 4
    for one, other in zip(module.outputs, whole.outputs):
        assert one["labels"] == other["labels"]
        torch.testing.assert_close(one["scores"], other["scores"])
        torch.testing.assert_close(one["loss"], other["loss"])


def test_a_validation_that_never_fits_ends_with_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(lowtide.OutOfMemory, match="fewer samples"):
        validated(tmp_path, 0)
