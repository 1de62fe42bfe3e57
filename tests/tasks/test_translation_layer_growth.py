"""The growth task before training: what the stages decide, where a run starts, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from growing_trainer import PEAK, WARMUP, save, train, trainer_of

from fairseq_compat import UserError

pytestmark = pytest.mark.filterwarnings("ignore:.torch.cuda.amp.autocast:FutureWarning")  # fairseq's call


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task__growth_stages": ""}, "needs --growth-stages"),
        ({"task__growth_stages": "1:2,2:", "optimization__max_update": 0}, "the last stage has no end"),
        ({"task__growth_strategy": "all"}, "--growth-strategy all is not a choice"),
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


@pytest.mark.parametrize(("updates", "step"), [(1, 1), (4, WARMUP)])
def test_a_start_from_a_trained_model(tmp_path: Path, updates: int, step: int) -> None:
    """An unfinished warm-up goes on; otherwise the rate begins at its peak."""
    stages = "1:2u,2:"
    first = trainer_of(task__growth_stages=stages)
    train(first, updates)
    save(first, tmp_path / "trained.pt")
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
    save(first, tmp_path / "checkpoint_last.pt")
    again = trainer_of(
        task__growth_stages="1:9u,2:", task__save_dir=str(tmp_path), task__growth_from=str(tmp_path / "none.pt")
    )
    again.load_checkpoint(str(tmp_path / "checkpoint_last.pt"))
    again.begin_epoch(1)
    assert again.get_lr() == first.get_lr() == PEAK / 2
