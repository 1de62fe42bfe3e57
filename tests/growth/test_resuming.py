"""Which checkpoint fairseq will restore, and whether its depth is the one that the stages have there."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from growth_checkpoints import save
from omegaconf import OmegaConf

from fairseq_compat import UserError
from fairseq_compat.checkpoints import load_checkpoint
from fairseq_depthwise.growth.resuming import Restoring, depth_to_resume, last_epoch, stages_in
from fairseq_depthwise.growth.stages import parse_stages


def restoring(save_dir: Path, **options: Any) -> Restoring:
    given: dict[str, Any] = {
        "restore_file": "checkpoint_last.pt",
        "continue_once": None,
        "finetune_from_model": None,
        "reset_dataloader": False,
        "reset_optimizer": False,
    }
    return Restoring(SimpleNamespace(save_dir=str(save_dir), **(given | options)))


# --- which checkpoint ------------------------------------------------------------------------------------------------

#: Which files are there, the options -> what is restored, and whether the plan begins anew.
CASES: dict[str, tuple[tuple[str, ...], dict[str, str], str | None, bool]] = {
    "a new run": ((), {}, None, False),
    "a run goes on": (("run/checkpoint_last.pt",), {}, "run/checkpoint_last.pt", False),
    "another checkpoint": (("a.pt",), {"restore_file": "a.pt"}, "a.pt", False),
    "another checkpoint, over its own": (
        ("a.pt", "run/checkpoint_last.pt"),
        {"restore_file": "a.pt"},
        "a.pt",
        False,
    ),
    "another one over all": (
        ("a.pt", "b.pt", "run/checkpoint_last.pt"),
        {"restore_file": "a.pt", "continue_once": "b.pt"},
        "a.pt",
        False,
    ),
    "continued once": (("b.pt",), {"continue_once": "b.pt"}, "b.pt", False),
    "its own before continuing": (
        ("b.pt", "run/checkpoint_last.pt"),
        {"continue_once": "b.pt"},
        "run/checkpoint_last.pt",
        False,
    ),
    "fine-tuned": (("c.pt",), {"finetune_from_model": "c.pt"}, "c.pt", True),
    "its own before fine-tuning": (
        ("c.pt", "run/checkpoint_last.pt"),
        {"finetune_from_model": "c.pt"},
        "run/checkpoint_last.pt",
        False,
    ),
    "continuing before fine-tuning": (
        ("b.pt", "c.pt"),
        {"continue_once": "b.pt", "finetune_from_model": "c.pt"},
        "b.pt",
        False,
    ),
    "the last name, elsewhere": (("checkpoint_last.pt",), {}, None, False),
}


class LoadedError(Exception):
    """What fairseq asks its trainer to load."""


@pytest.mark.parametrize(("files", "options", "path", "anew"), CASES.values(), ids=CASES)
def test_the_checkpoint_that_is_restored_is_fairseqs(
    tmp_path: Path, files: tuple[str, ...], options: dict[str, str], path: str | None, anew: bool
) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    given = {option: str(tmp_path / file) for option, file in options.items()}
    found = restoring(tmp_path / "run", **given)
    assert found.path == (None if path is None else str(tmp_path / path))
    assert found.counts_anew == anew

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


@pytest.mark.parametrize("option", ["restore_file", "continue_once", "finetune_from_model"])
def test_a_file_that_is_not_there(tmp_path: Path, option: str) -> None:
    path = str(tmp_path / "none.pt")
    with pytest.raises(UserError, match=f"--{option.replace('_', '-')} {path}"):
        restoring(tmp_path, **{option: path}).path  # noqa: B018  # the access is the test


# --- depth -----------------------------------------------------------------------------------------------------------


def checkpoint(
    path: Path, layers: int, *, epoch: int = 1, iterations: int = 0, updates: int = 0, stages: str | None = None
) -> str:
    """``epoch`` and ``iterations`` as fairseq writes them: at an epoch's end the next one's number, and 0."""
    task = {"growth_stages": stages, "growth_side": "encoder", "growth_strategy": "top-most"} if stages else {}
    state = {
        "args": None,
        "cfg": {"model": {"encoder_layers": layers, "decoder_layers": 2}, "task": task},
        "model": {},
        "optimizer_history": [{"num_updates": updates}],
        "extra_state": {"train_iterator": {"epoch": epoch, "iterations_in_epoch": iterations}},
    }
    return save(path / "checkpoint.pt", state)


def resumed(path: str, text: str, **options: Any) -> int:
    plan = parse_stages(text, strategy="top")
    return depth_to_resume(
        path, load_checkpoint(path), "encoder", plan, restoring(Path(path).parent, restore_file=path, **options)
    )


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
    ("stages", "trained", "grown", "named"),
    [
        ("2:5,4:", "2:1,4:9", None, "after 2 epochs, .* --growth-stages 2:5,4: has 2 .* --growth-stages 2:1,4:9"),
        ("2:80u,4:", None, None, "after 77 updates, .* --growth-stages 2:80u,4: has 2 .* not trained in stages"),
        ("2:5,4:9", "2:5,4:9", "2 encoder layers, top-most", "grown as a file from 2 encoder layers"),
    ],
)
def test_the_message_says_where_and_why(
    tmp_path: Path, stages: str, trained: str | None, grown: str | None, named: str
) -> None:
    path = checkpoint(tmp_path, 4, epoch=3, updates=77, stages=trained)
    state = torch.load(path, weights_only=False)
    state["extra_state"] |= {"grown_from": grown} if grown else {}
    torch.save(state, path)
    with pytest.raises(UserError, match=f"{path} has 4 encoder layers .*{named}"):
        resumed(path, stages)


def test_the_side_that_grows(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, 6, epoch=1)
    plan = parse_stages("2:1,4:", strategy="top")
    given = restoring(tmp_path, restore_file=path)
    assert depth_to_resume(path, load_checkpoint(path), "decoder", plan, given) == 2
    with pytest.raises(UserError, match="has 6 encoder layers"):
        depth_to_resume(path, load_checkpoint(path), "encoder", plan, given)


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
    plan = parse_stages(text, strategy="top")
    assert (
        depth_to_resume(path, load_checkpoint(path), "encoder", plan, restoring(tmp_path, finetune_from_model=path))
        == 4
    )
    with pytest.raises(UserError, match="has 4 encoder layers"):
        depth_to_resume(path, load_checkpoint(path), "encoder", plan, restoring(tmp_path, restore_file=path))


def test_a_checkpoint_without_a_place_in_the_data_is_at_the_start(tmp_path: Path) -> None:
    state = {"args": Namespace(encoder_layers=2), "cfg": None, "model": {}, "extra_state": None}
    path = save(tmp_path / "old.pt", state)
    assert resumed(path, "2:2,4:") == resumed(path, "2:20u,4:") == 2


# --- parts of a checkpoint -------------------------------------------------------------------------------------------


def test_the_last_epoch() -> None:
    def of(**iterator: int) -> int:
        return last_epoch({"extra_state": {"train_iterator": iterator}})

    assert [of(epoch=1, iterations_in_epoch=0), of(epoch=1, iterations_in_epoch=1)] == [0, 1]
    assert [of(epoch=4, iterations_in_epoch=0), of(epoch=4, iterations_in_epoch=9)] == [3, 4]
    assert of(epoch=4) == 3
    assert last_epoch({}) == last_epoch({"extra_state": {}}) == 0


def test_the_stages_of_the_run_that_wrote_it() -> None:
    given = {"growth_stages": "2:1,4:", "growth_side": "both", "growth_strategy": "top", "data": "x"}
    for task in (given, Namespace(**given)):
        assert stages_in({"cfg": {"task": task}}) == ("2:1,4:", "both", "top")
    for state in ({}, {"cfg": None}, {"cfg": {}}, {"cfg": {"task": None}}, {"cfg": {"task": {"data": "x"}}}):
        assert stages_in(state) is None
    assert stages_in({"cfg": {"task": {**given, "growth_stages": ""}}}) is None
