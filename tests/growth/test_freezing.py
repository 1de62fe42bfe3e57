"""``--growth-freeze``: what no longer changes, through stages, precisions, files and resumes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fairseq.trainer import Trainer
from growing_trainer import save, train, trainer_of
from growth_by_hand import grow, trained

from fairseq_depthwise.growth.freezing import FREEZES, LastGrowth

pytestmark = pytest.mark.filterwarnings("ignore:.torch.cuda.amp.autocast:FutureWarning")  # fairseq's call

#: Weight decay moves a parameter without a gradient too.
DECAY = {"optimizer__weight_decay": 0.1}


def changed_by_an_update(trainer: Trainer) -> set[str]:
    """Names of the parameters that two more updates change."""
    before = {name: value.clone() for name, value in trainer.get_model().named_parameters()}
    train(trainer, 2)
    return {name for name, value in trainer.get_model().named_parameters() if not torch.equal(value, before[name])}


def layers_of(names: set[str]) -> set[str]:
    return {name.split(".")[2] for name in names if name.startswith("encoder.layers.")}


@pytest.mark.parametrize(
    ("what", "common", "state"),
    [
        *((what, {}, "reset") for what in FREEZES),
        ("copied", {}, "keep"),
        ("trained", {"common__bf16": True}, "keep"),
        ("copied", {"common__fp16": True}, "keep"),
        ("trained", {"common__fp16": True}, "reset"),
    ],
    ids=str,
)
def test_what_changes_after_each_growth(
    what: str, common: dict[str, bool], state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 1 to 2 to 3 layers: layer 2 learns in its own stage, and is an old one in the next."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)  # of fairseq's flat vector
    options = {"task__growth_freeze": what, "task__growth_optimizer_state": state, **DECAY, **common}
    trainer = trainer_of(task__growth_stages="1:2u,2:3u,3:", **options, common__fp16_init_scale=4, model__dropout=0.1)
    train(trainer, 3)
    for new, number in (("1", 2), ("2", 5)):
        assert trainer.get_num_updates() == number + 1
        changed = changed_by_an_update(trainer)
        assert layers_of(changed) == ({str(layer) for layer in range(int(new) + 1)} if what == "none" else {new})
        rest = {name for name in changed if not name.startswith("encoder.layers.")}
        row = f"encoder.connection.rows.{int(new) + 1}"
        if what == "trained":
            norms = {f"encoder.connection.norms.{new}.{part}" for part in ("weight", "bias")}
            assert rest <= {row, *norms}
        else:
            assert {"encoder.embedding.tokens.weight", "decoder.layers.0.feed_forward.first.weight"} <= rest
        if number == 2:
            train(trainer, 1)


@pytest.mark.parametrize("sharing", ["gates", "none", "all"])
def test_what_old_and_new_layers_share_counts_as_old(sharing: str) -> None:
    deep = trained("depthwise_lstm_transformer", depthwise_sharing=sharing)
    growth = grow(deep, "depthwise_lstm_transformer", {"encoder": [0, 1, 2, 2]}, depthwise_sharing=sharing)
    LastGrowth(growth.new, "copied").freeze(deep)
    learning = {name for name, value in deep.named_parameters() if value.requires_grad and "encoder.layers" in name}
    assert layers_of(learning) == {"3"}
    assert any("gates" in name for name in learning) == (sharing == "none")
    assert any("hidden_net" in name for name in learning) == (sharing != "all")
    assert all(value.requires_grad for name, value in deep.named_parameters() if name.startswith("decoder."))


def test_growing_from_a_trained_model_freezes_it_also_after_a_resume(tmp_path: Path) -> None:
    """The paper's Stack-12L: a trained model, fixed, with a copy of its layers on top."""
    first = trainer_of(task__growth_stages="2:")
    train(first, 1)
    path = save(first, tmp_path / "shallow.pt")
    changes = {
        "task__growth_stages": "4:", "task__growth_from": str(path), "task__growth_strategy": "stack",
        "task__growth_freeze": "trained", "optimization__max_update": 8, "model__dropout": 0.1,
    }  # fmt: skip
    trainer = trainer_of(**changes, task__save_dir=str(tmp_path / "none"))
    train(trainer, 2)
    saved = save(trainer, tmp_path / "deep" / "checkpoint_last.pt")
    again = trainer_of(**changes, task__save_dir=str(saved.parent))
    again.load_checkpoint(str(saved))
    for one in (trainer, again):
        changed = changed_by_an_update(one)
        assert layers_of(changed) == {"2", "3"}
        assert not any(name.startswith("decoder.") for name in changed)
    for name, value in again.get_model().state_dict().items():
        assert torch.equal(value, trainer.get_model().state_dict()[name])
