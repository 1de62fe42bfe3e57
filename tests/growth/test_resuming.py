"""Which checkpoint fairseq will restore, and whether its depth is the one that the stages have there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fairseq import checkpoint_utils
from growth_checkpoints import save
from omegaconf import OmegaConf

from fairseq_compat import UserError
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.growth.resuming import Restored, depth_to_resume
from fairseq_depthwise.growth.stages import parse_stages


def options_of(save_dir: Path, **given: Any) -> SimpleNamespace:
    """fairseq's, as the task has them."""
    options: dict[str, Any] = dict.fromkeys(("continue_once", "finetune_from_model"))
    options |= {"restore_file": "checkpoint_last.pt", "reset_dataloader": False, "reset_optimizer": False}
    return SimpleNamespace(save_dir=str(save_dir), **(options | given))


# --- which checkpoint ------------------------------------------------------------------------------------------------

RUN, A, B, C = "run/checkpoint_last.pt", "a.pt", "b.pt", "c.pt"

#: Which files are there, the options -> what is restored, and whether the plan begins anew.
CASES: list[tuple[tuple[str, ...], dict[str, str], str | None, bool]] = [
    ((), {}, None, False),
    ((RUN,), {}, RUN, False),
    ((A, RUN), {"restore_file": A}, A, False),
    ((A, B, RUN), {"restore_file": A, "continue_once": B}, A, False),
    ((B,), {"continue_once": B}, B, False),
    ((B, RUN), {"continue_once": B}, RUN, False),
    ((C,), {"finetune_from_model": C}, C, True),
    ((C, RUN), {"finetune_from_model": C}, RUN, False),
    ((B, C), {"continue_once": B, "finetune_from_model": C}, B, False),
]


class LoadedError(Exception):
    """What fairseq asks its trainer to load."""


@pytest.mark.parametrize(("files", "options", "path", "anew"), CASES, ids=str)
def test_the_checkpoint_that_is_restored_is_fairseqs(
    tmp_path: Path, files: tuple[str, ...], options: dict[str, str], path: str | None, anew: bool
) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    given = {option: str(tmp_path / file) for option, file in options.items()}
    assert Restored.by(options_of(tmp_path / "run", **given)) == (path and str(tmp_path / path), anew)

    def load_checkpoint(filename: str, reset_optimizer: bool, *_: Any, **__: Any) -> None:
        raise LoadedError(filename, reset_optimizer)

    cfg = OmegaConf.create(
        {
            "save_dir": str(tmp_path / "run"),
            "restore_file": "checkpoint_last.pt",
            "continue_once": None,
            "finetune_from_model": None,
            "optimizer_overrides": "{}",
            **{f"reset_{part}": False for part in ("optimizer", "lr_scheduler", "meters", "dataloader")},
            **given,
        }
    )
    trainer = SimpleNamespace(checkpoint_suffix="", is_data_parallel_master=True, load_checkpoint=load_checkpoint)
    with pytest.raises(LoadedError) as loaded:
        checkpoint_utils.load_checkpoint(cfg, trainer)
    assert loaded.value.args == (str(tmp_path / (path or "run/checkpoint_last.pt")), anew)


def checkpoint(path: Path, layers: int, *, epoch: int = 1, iterations: int = 0, updates: int = 0) -> str:
    """``epoch`` and ``iterations`` as fairseq writes them: at an epoch's end the next one's number, and 0."""
    state = {
        "args": None,
        "cfg": {"model": {"encoder_layers": layers, "decoder_layers": 2}},
        "model": {},
        "optimizer_history": [{"num_updates": updates}],
        "extra_state": {"train_iterator": {"epoch": epoch, "iterations_in_epoch": iterations}},
    }
    return save(path / "checkpoint.pt", state)


def resumed(path: str, text: str, side: str = "encoder", **options: Any) -> int:
    plan = parse_stages(text, strategy="top")
    given = options_of(Path(path).parent / "run", **{"restore_file": path, **options})
    counts_anew = Restored.by(given).counts_anew
    return depth_to_resume(Checkpoint.open(path), side, plan, given, counts_anew=counts_anew)


#: ``2:2,4:1,6:``: epoch and batches in it as fairseq writes them -> depths that agree.
EPOCHS: dict[tuple[int, int], set[int]] = {
    (1, 0): {2},  # before the first update
    (1, 5): {2},  # within the first epoch
    (2, 0): {2},  # between the first and the second
    (2, 5): {2},
    (3, 0): {2, 4},  # a border: as it was trained, or grown in the file
    (3, 5): {4},
    (4, 0): {4, 6},
    (4, 5): {6},
    (5, 0): {6},
    (90, 3): {6},
}

#: The same for ``2:20u,4:10u,6:``, by updates.
UPDATES: dict[int, set[int]] = {0: {2}, 1: {2}, 19: {2}, 20: {2, 4}, 21: {4}, 29: {4}, 30: {4, 6}, 31: {6}, 999: {6}}


@pytest.mark.parametrize("layers", [2, 3, 4, 6])
def test_the_depth_of_every_place(tmp_path: Path, layers: int) -> None:
    """Stages in epochs do not count updates, nor those in updates epochs."""
    places = [("2:2,4:1,6:", {"epoch": e, "iterations": n, "updates": 25}, d) for (e, n), d in EPOCHS.items()]
    places += [("2:20u,4:10u,6:", {"epoch": 7, "iterations": 3, "updates": n}, d) for n, d in UPDATES.items()]
    for text, place, depths in places:
        path = checkpoint(tmp_path, layers, **place)
        if layers in depths:
            assert resumed(path, text) == layers
        else:
            named = f"has {layers} encoder layers .* --growth-stages {text} has {min(depths)}"
            with pytest.raises(UserError, match=named):
                resumed(path, text)


@pytest.mark.parametrize(
    ("text", "options", "layers"),
    [
        ("2:2,4:", {}, 4),
        ("2:2,4:", {"reset_optimizer": True}, 4),  # epochs go on
        ("2:2,4:", {"reset_dataloader": True}, 2),
        ("2:20u,4:", {}, 4),
        ("2:20u,4:", {"reset_dataloader": True}, 4),  # updates go on
        ("2:20u,4:", {"reset_optimizer": True}, 2),
    ],
)
def test_what_is_counted_anew(tmp_path: Path, text: str, options: dict[str, bool], layers: int) -> None:
    for depth in (2, 4):
        path = checkpoint(tmp_path, depth, epoch=5, iterations=2, updates=50)
        if depth == layers:
            assert resumed(path, text, **options) == depth
        else:
            with pytest.raises(UserError, match=f"has {depth} encoder layers"):
                resumed(path, text, **options)


@pytest.mark.parametrize("text", ["4:2,6:", "4:20u,6:"])
def test_fine_tuning_begins_with_the_first_stage(tmp_path: Path, text: str) -> None:
    path = checkpoint(tmp_path, 4, epoch=50, iterations=3, updates=9999)
    assert resumed(path, text, restore_file="checkpoint_last.pt", finetune_from_model=path) == 4
    with pytest.raises(UserError, match="has 4 encoder layers"):
        resumed(path, text)
