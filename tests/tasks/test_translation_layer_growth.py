"""The growth task before training: what the stages decide, where a run starts, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.tasks.translation import TranslationTask
from growing_trainer import PEAK, WARMUP, train, trainer_of

from fairseq_compat import UserError

pytestmark = pytest.mark.filterwarnings("ignore:.torch.cuda.amp.autocast:FutureWarning")  # fairseq's call


# --- what the stages decide ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stages", "given", "limits"),
    [
        ("1:2u,2:3u", {"max_update": 0}, (5, 0)),
        ("1:2u,2:3u", {"max_update": 9}, (5, 0)),
        ("1:2u,2:3u", {"max_update": 3}, (3, 0)),
        ("1:2,2:3", {"max_update": 0}, (0, 5)),
        ("1:2,2:3", {"max_update": 100, "max_epoch": 4}, (100, 4)),
        ("1:2,2:", {"max_update": 100, "max_epoch": 0}, (100, 0)),
    ],
)
def test_training_ends_with_the_last_stage(stages: str, given: dict[str, int], limits: tuple[int, int]) -> None:
    changes = {f"optimization__{name}": value for name, value in given.items()}
    optimization = trainer_of(task__growth_stages=stages, **changes).cfg.optimization
    assert (optimization.max_update, optimization.max_epoch) == limits


def test_stages_that_are_not_reached(caplog: pytest.LogCaptureFixture) -> None:
    trainer_of(task__growth_stages="1:4u,2:4u,3:", optimization__max_update=8)
    assert "training ends with 2 layers: --max-update 8 is over before the later stages" in caplog.text
    caplog.clear()
    trainer_of(task__growth_stages="1:4u,2:4u,3:", optimization__max_update=9)
    assert "training ends with" not in caplog.text


def test_the_stages_set_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of(task__growth_stages="1:1@50x2,2:2@70x3,3:", optimization__max_epoch=9, common__fp16=False)
    assert list(trainer.cfg.optimization.update_freq) == [2, 3, 3, 1]
    given = []
    monkeypatch.setattr(
        TranslationTask, "get_batch_iterator", lambda self, dataset, **options: given.append(options["max_tokens"])
    )
    trainer.task.datasets = {"train": (dataset := object()), "valid": (other := object())}
    for epoch in range(1, 6):
        trainer.task.get_batch_iterator(dataset, max_tokens=99, epoch=epoch)
    trainer.task.get_batch_iterator(other, max_tokens=99, epoch=1)
    assert given == [50, 70, 70, 99, 99, 99]


# --- what can grow ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task__growth_stages": ""}, "needs --growth-stages"),
        ({"task__growth_stages": "1:2,2:", "optimization__max_update": 0}, "the last stage has no end"),
        ({"task__growth_strategy": "all"}, "--growth-strategy all is not a choice"),
        ({"task__growth_from": "none.pt"}, "--growth-from none.pt does not exist"),
        ({"model___name": "transformer"}, "--arch transformer cannot be grown"),
        ({"model__encoder_layers": 4}, "--encoder-layers 4 contradicts --growth-stages 1:2u,2:2u,3:"),
        (
            {"model__norm_scaling": True, "task__growth_init": "zero", "task__growth_strategy": "middle"}
            | {"task__growth_stages": "2:2u,4:2u,6:"},
            "--norm-scaling",
        ),
    ],
    ids=str,
)
def test_what_cannot_grow(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        trainer_of(**changes)


@pytest.mark.parametrize("layers", [1, 3, 6, 24])
def test_depths_that_do_not_contradict(layers: int) -> None:
    """The first stage's, the last one's, and the architecture's own, of a preset too."""
    arch = "sdt_transformer_wmt_en_de_24l" if layers == 24 else "sdt_transformer"
    trainer = trainer_of(model___name=arch, model__encoder_layers=layers)
    assert len(trainer.get_model().encoder.layers) == 1


# --- starting from a trained model -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("updates", "step"), [(1, 1), (4, WARMUP)])
def test_a_start_from_a_trained_model(tmp_path: Path, updates: int, step: int) -> None:
    """An unfinished warm-up goes on; otherwise the rate begins at its peak."""
    stages = "1:2u,2:"
    first = trainer_of(task__growth_stages=stages)
    train(first, updates)
    first.consolidate_optimizer()
    first.save_checkpoint(str(tmp_path / "trained.pt"), {"train_iterator": {"epoch": 1, "iterations_in_epoch": 1}})
    depth = 1 if updates == 1 else 2
    second = trainer_of(
        task__growth_stages=f"{depth + 1}:3u,{depth + 2}:",
        task__growth_from=str(tmp_path / "trained.pt"),
        task__growth_strategy="top",
    )
    layers = second.get_model().encoder.layers
    assert len(layers) == depth + 1
    trained = first.get_model().state_dict()
    for name, value in layers[depth].state_dict().items():
        assert torch.equal(value, trained[f"encoder.layers.{depth - 1}.{name}"])
    second.begin_epoch(1)
    assert second.get_lr() == pytest.approx(PEAK * step / WARMUP)
    rates = [PEAK * min(1.0, (step + n) / WARMUP, (WARMUP / (step + n)) ** 0.5) for n in (1, 2, 3)]
    found = train(second, 4)
    assert [depth for depth, _ in found] == [depth + 1] * 3 + [depth + 2]
    assert [rate for _, rate in found[:3]] == pytest.approx(rates)


def test_a_resumed_run_does_not_start_from_the_trained_model_again(tmp_path: Path) -> None:
    first = trainer_of(task__growth_stages="1:9u,2:")
    train(first, 1)
    first.consolidate_optimizer()
    iterator = {"train_iterator": {"epoch": 1, "iterations_in_epoch": 1}}
    first.save_checkpoint(str(tmp_path / "checkpoint_last.pt"), iterator)
    again = trainer_of(
        task__growth_stages="1:9u,2:", task__save_dir=str(tmp_path), task__growth_from=str(tmp_path / "none.pt")
    )
    again.load_checkpoint(str(tmp_path / "checkpoint_last.pt"))
    again.begin_epoch(1)
    assert again.get_lr() == first.get_lr() == PEAK / 2
