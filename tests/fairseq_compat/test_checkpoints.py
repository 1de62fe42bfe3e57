"""Reading checkpoints: those of three ages of fairseq load, nothing in a file is run, and every refusal says why."""

from __future__ import annotations

import argparse
import io
import os
import pickle
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_compat import UserError, checkpoints

State = Callable[[str], dict[str, Any]]

NEW_FORMAT, OLD_FORMAT = (pytest.param(new, id=name) for new, name in ((True, "zip"), (False, "before-1.6")))


class RunsCode:
    """Its pickle calls ``os.system`` when it is loaded."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def saved(path: Path, state: Any, new_format: bool = True, **options: Any) -> Path:
    torch.save(state, path, _use_new_zipfile_serialization=new_format, **options)
    return path


# Loading what fairseq wrote.


@pytest.mark.parametrize("new_format", [NEW_FORMAT, OLD_FORMAT])
@pytest.mark.parametrize("style", ["cfg", "args", "oldest"])
def test_fairseq_loads_its_checkpoints_of_all_ages(
    style: str, new_format: bool, stock_state: State, tmp_path: Path
) -> None:
    from fairseq import checkpoint_utils

    written = stock_state(style)
    path = saved(tmp_path / "checkpoint.pt", written, new_format)
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    assert state["cfg"].model._name == "transformer"
    assert state["cfg"].model.encoder_layers == 2
    epoch = state["extra_state"]["train_iterator"]["epoch"]
    assert epoch == 2
    assert list(state["model"]) == list(written["model"])
    for name, tensor in written["model"].items():
        # fairseq leaves a buffer of its positions uninitialized: by chance it is not a number.
        assert torch.allclose(state["model"][name], tensor, rtol=0, atol=0, equal_nan=True), name


@pytest.mark.parametrize("style", ["cfg", "args", "oldest"])
def test_stock_model_comes_back_with_the_same_weights(
    style: str, stock_state: State, stock_model: Any, tmp_path: Path
) -> None:
    from fairseq import checkpoint_utils

    path = saved(tmp_path / "checkpoint.pt", stock_state(style))
    (model,), cfg = checkpoint_utils.load_model_ensemble([str(path)])
    tokens, lengths = torch.tensor([[4, 5, 2], [1, 6, 2]]), torch.tensor([3, 2])
    previous = torch.tensor([[2, 4, 5], [2, 6, 6]])
    with torch.no_grad():
        expected = stock_model(tokens, lengths, previous)[0]
        found = model.eval()(tokens, lengths, previous)[0]
    assert torch.equal(found, expected)
    assert cfg.model.encoder_embed_dim == 16


def test_options_can_be_overridden_while_loading(stock_state: State, tmp_path: Path) -> None:
    from fairseq import checkpoint_utils

    for style in ("cfg", "args"):
        path = saved(tmp_path / f"{style}.pt", stock_state(style))
        state = checkpoint_utils.load_checkpoint_to_cpu(str(path), arg_overrides={"data": "elsewhere"})
        assert state["cfg"].task.data == "elsewhere"


def test_half_precision_and_counters_keep_their_types(tmp_path: Path) -> None:
    types = (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool)
    tensors = OrderedDict((str(one), torch.ones(2).to(one)) for one in types)
    path = saved(tmp_path / "checkpoint.pt", {"model": tensors, "cfg": {"model": {}}})
    state = checkpoints.load_checkpoint(path)
    assert {name: tensor.dtype for name, tensor in state["model"].items()} == {str(one): one for one in types}


def test_open_file_is_read_as_a_path_is(tmp_path: Path) -> None:
    path = saved(tmp_path / "checkpoint.pt", {"weight": torch.ones(2)})
    with path.open("rb") as file:
        assert torch.equal(checkpoints.load(file)["weight"], torch.ones(2))
    memory = io.BytesIO(path.read_bytes())
    assert torch.equal(checkpoints.load(memory)["weight"], torch.ones(2))


def test_missing_file_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        checkpoints.load(tmp_path / "nowhere.pt")


# Refusing what could run code.


@pytest.mark.parametrize("place", ["state", "state of the older format", "options", "bare pickle"])
def test_hostile_checkpoint_is_refused_by_name_and_does_not_run(place: str, stock_state: State, tmp_path: Path) -> None:
    """The options are the one object that is allowed; what hangs on them is looked at as well."""
    from fairseq import checkpoint_utils

    witness, path = tmp_path / "it-ran", tmp_path / "checkpoint.pt"
    payload, state = RunsCode(f"touch {witness}"), stock_state("args")
    if place == "bare pickle":
        path.write_bytes(pickle.dumps({"model": payload}, protocol=2))
    else:
        if place == "options":
            state["args"].payload = payload
        else:
            state["payload"] = payload
        saved(path, state, "older" not in place)
    for load in (checkpoints.load, checkpoints.load_checkpoint, checkpoint_utils.load_checkpoint_to_cpu):
        with pytest.raises(UserError, match=rf"{path} is refused: .* \w+\.system") as raised:
            load(str(path))
        assert len(str(raised.value).splitlines()) == 1
    assert not witness.exists()


# Files that are no checkpoint.


@pytest.mark.parametrize("kept", [0.02, 0.3, 0.7, 0.99])
@pytest.mark.parametrize("new_format", [NEW_FORMAT, OLD_FORMAT])
def test_truncated_checkpoint_is_called_truncated(
    new_format: bool, kept: float, stock_state: State, tmp_path: Path
) -> None:
    from fairseq import checkpoint_utils

    path = saved(tmp_path / "checkpoint.pt", stock_state("cfg"), new_format)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept)])
    for load in (checkpoints.load_checkpoint, checkpoint_utils.load_checkpoint_to_cpu):
        with pytest.raises(UserError, match=f"{path} is .*truncated") as raised:
            load(str(path))
        assert len(str(raised.value).splitlines()) == 1


def test_damage_inside_the_archive_is_noticed(stock_state: State, tmp_path: Path) -> None:
    path = saved(tmp_path / "checkpoint.pt", stock_state("cfg"))
    whole = bytearray(path.read_bytes())
    whole[-2000:] = bytes(2000)
    path.write_bytes(whole)
    with pytest.raises(UserError, match="damaged"):
        checkpoints.load_checkpoint(path)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("", "empty"), ("just some text\nof two lines\n", ""), ("{}", ""), ("(", ""), ("a", ""),
        ("\N{GREEK SMALL LETTER ALPHA}" * 50, ""), ("PK\x03\x04 no archive", ""),
    ],
)  # fmt: skip
def test_text_file_is_called_no_pytorch_file(content: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=f"{path} is {named}") as raised:
        checkpoints.load_checkpoint(path)
    assert len(str(raised.value).splitlines()) == 1
    with pytest.raises((UserError, IsADirectoryError), match=str(tmp_path)):
        checkpoints.load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ({"state_dict": {}, "epoch": 3}, "state_dict, epoch"),
        ({}, "nothing"),
        ({"model": {}}, "it has model"),
        ({"model": {}, "args": None, "cfg": None}, "model, args, cfg"),
        ({"args": argparse.Namespace(), "cfg": None}, "args, cfg"),
        ([1, 2], "a list"),
        (torch.ones(3), "a Tensor"),
        (OrderedDict(weight=torch.ones(1)), "weight"),
        (None, "a NoneType"),
    ],
)
def test_foreign_content_is_named(state: Any, found: str, tmp_path: Path) -> None:
    from fairseq import checkpoint_utils

    path = saved(tmp_path / "checkpoint.pt", state)
    for load in (checkpoints.load_checkpoint, checkpoint_utils.load_checkpoint_to_cpu):
        with pytest.raises(UserError, match="is not a fairseq checkpoint") as raised:
            load(str(path))
        assert found in str(raised.value)
        assert str(path) in str(raised.value)


def test_torch_load_itself_is_not_replaced() -> None:
    from fairseq import checkpoint_utils

    assert torch.load.__module__ == "torch.serialization"
    assert checkpoint_utils.torch.load is not torch.load
    assert checkpoint_utils.torch.save is torch.save


def test_options_and_updates() -> None:
    assert checkpoints.options_in({"cfg": {"model": argparse.Namespace(a=1)}, "args": None}) == {"a": 1}
    assert checkpoints.options_in({"cfg": {"model": {"a": 1}}}) == {"a": 1}
    assert checkpoints.options_in({"cfg": None, "args": argparse.Namespace(a=1)}) == {"a": 1}
    assert checkpoints.options_in({"args": argparse.Namespace(a=1)}) == {"a": 1}
    for untrained in ({}, {"optimizer_history": []}, {"optimizer_history": [{}]}):
        assert checkpoints.updates_in(untrained) == 0
    assert checkpoints.updates_in({"optimizer_history": [{"num_updates": 5}, {"num_updates": 9}]}) == 9


@pytest.mark.parametrize(
    "entry",
    [
        {"extra_state": [1]},
        {"task_state": "x"},
        {"optimizer_history": "x"},
        {"optimizer_history": [{"num_updates": "many"}]},
        {"optimizer_history": [{"num_updates": 1, "lr_scheduler_state": "x"}]},
        {"optimizer_history": [{"num_updates": 1, "lr_scheduler_state": {"restarts": [3, "x"]}}]},
        {"optimizer_history": []},
        {"last_optimizer_state": {"param_groups": [{}]}},
        {"last_optimizer_state": {"param_groups": [1]}},
        {"cfg": {"common": {"seed": "x"}}},
        {"cfg": {"model": {"_name": ["x"]}}},
        {"args": argparse.Namespace(seed="x")},
        {"task_state": {"last_growth": [1]}},
        {"task_state": {"last_growth": {"new": "x"}}},
        {"extra_state": {"ema": [1]}},
        {"extra_state": {"ema": {"x": 1}}},
        {"extra_state": {"train_iterator": {"epoch": "x"}}},
        {"extra_state": {"train_iterator": {"epoch": None}}},
        {"extra_state": {"train_iterator": {"epoch": 2, "iterations_in_epoch": None}}},
        {"model": None},
        {"extra_state": {"best": "x"}},
    ],
    ids=str,
)
def test_entries_of_another_type(entry: dict[str, object]) -> None:
    state = {"cfg": {}, "model": {}}
    checkpoints.require_checkpoint(state, "a.pt")
    with pytest.raises(UserError, match=f"a.pt .*{next(iter(entry))}"):
        checkpoints.require_checkpoint({**state, **entry}, "a.pt")


def test_a_record_of_the_training_that_cannot_be_brought_up_to_date(stock_state: State, tmp_path: Path) -> None:
    from fairseq import checkpoint_utils

    state = stock_state("cfg")
    del state["optimizer_history"]
    path = saved(tmp_path / "checkpoint.pt", state)
    with pytest.raises(UserError, match=f"{path} .*best_loss"):
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
