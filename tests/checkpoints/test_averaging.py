"""Averaging against a naive float64 computation in NumPy, the choice of checkpoints, and what is refused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

from fairseq_compat import UserError, checkpoints
from fairseq_depthwise.checkpoints import averaging
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint

NAMES = ("first.pt", "second.pt", "third.pt")


def write_average(paths: Sequence[str], output: str, **options: Any) -> None:
    averaging.average(list(map(Checkpoint.open, paths)), **options).write(output)


def average_of(states: Sequence[Mapping[str, Tensor]], names: Sequence[str]) -> dict[str, Tensor]:
    averager = averaging.RunningAverage()
    for state, name in zip(states, names, strict=True):
        averager.add(state, name)
    return averager.result()


def random_states(dtype: torch.dtype = torch.float32, count: int = 3, scale: float = 1.0) -> list[dict[str, Tensor]]:
    chance = torch.Generator().manual_seed(7)
    return [
        {
            name: (scale * torch.randn(shape, generator=chance, dtype=torch.float64)).to(dtype)
            for name, shape in (("encoder.weight", (5, 3)), ("encoder.bias", (3,)), ("scale", ()))
        }
        for _ in range(count)
    ]


def naive_mean(states: list[dict[str, Tensor]], name: str) -> numpy.ndarray:
    total = numpy.zeros(tuple(states[0][name].shape), dtype=numpy.float64)
    for state in states:
        total = total + numpy.array(state[name].double().tolist(), dtype=numpy.float64)
    return numpy.asarray(total / len(states))


def save(folder: Path, name: str, model: dict[str, Tensor], *, maximize: bool = False, **more: Any) -> str:
    state = {
        "args": None,
        "cfg": {"model": {"_name": "transformer"}, "checkpoint": {"maximize_best_checkpoint_metric": maximize}},
        "model": model,
        "optimizer_history": [{"num_updates": 9}],
        "last_optimizer_state": {"state": {}},
        "extra_state": {"train_iterator": {"epoch": 3}, "val_loss": 4.5},
        **more,
    }
    torch.save(state, folder / name)
    return str(folder / name)


# The mean.


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_mean_is_the_naive_one_rounded_once(dtype: torch.dtype, count: int) -> None:
    states = random_states(dtype, count)
    mean = average_of(states, [str(number) for number in range(count)])
    assert list(mean) == list(states[0])
    for name, tensor in mean.items():
        expected = torch.from_numpy(naive_mean(states, name)).to(dtype)
        assert tensor.dtype == dtype
        assert tensor.shape == states[0][name].shape
        if dtype == torch.float64:
            torch.testing.assert_close(tensor, expected, rtol=1e-15, atol=1e-15)
        else:
            assert torch.equal(tensor, expected), name


def test_counters_and_masks_are_those_of_the_last() -> None:
    states = [
        {"weight": torch.tensor([value]), "version": torch.tensor([int(value)]), "mask": torch.tensor([value > 1])}
        for value in (1.0, 2.0, 6.0)
    ]
    mean = average_of(states, NAMES)
    assert mean["weight"].item() == 3.0
    assert mean["version"].tolist() == [6]
    assert mean["version"].dtype == torch.int64
    assert mean["mask"].tolist() == [True]


def test_one_precision_only() -> None:
    with pytest.raises(UserError, match="precision"):
        average_of([*random_states(count=1), *random_states(torch.float16, 1)], NAMES[:2])


# One tensor under two names.


def test_tied_tensors_stay_tied_in_the_file(tmp_path: Path) -> None:
    paths = []
    for number in (1.0, 3.0):
        table = torch.full((4, 2), number)
        model = {"encoder.embed": table, "decoder.embed": table, "output": table, "other": torch.full((4, 2), number)}
        paths.append(save(tmp_path, f"checkpoint{number:.0f}.pt", model))
    write_average(paths, str(tmp_path / "average.pt"))
    model = checkpoints.load_checkpoint(tmp_path / "average.pt")["model"]
    assert model["encoder.embed"].data_ptr() == model["decoder.embed"].data_ptr() == model["output"].data_ptr()
    assert model["other"].data_ptr() != model["output"].data_ptr()
    for tensor in model.values():
        assert torch.equal(tensor, torch.full((4, 2), 2.0))


# Models that grew between two checkpoints.


@pytest.mark.parametrize(
    ("depths", "said"),
    [
        ([(6, 6), (12, 6), (12, 6)], "2.pt has 12 encoder layers .*0.pt 6 encoder layers .* the last 2 of these"),
        ([(12, 6), (6, 6)], "1.pt has 6 encoder layers .*0.pt 12 encoder layers"),
        ([(6, 1), (6, 2)], "1.pt has .* 2 decoder layers and .*0.pt .* 1 decoder layers"),
    ],
)
def test_depths_are_compared_before_anything_is_averaged(
    depths: list[tuple[int, int]], said: str, tmp_path: Path
) -> None:
    paths = []
    for number, (encoder, decoder) in enumerate(depths):
        layers = [f"encoder.layers.{layer}" for layer in range(encoder)]
        layers += [f"decoder.layers.{layer}" for layer in range(decoder)]
        paths.append(save(tmp_path, f"{number}.pt", {f"{layer}.weight": torch.ones(2) for layer in layers}))
    read: list[str] = []
    with pytest.raises(UserError, match=said):
        write_average(paths, str(tmp_path / "average.pt"), progress=read.append)
    assert read == []
    assert not (tmp_path / "average.pt").exists()


def test_a_copy_does_not_count_twice(tmp_path: Path) -> None:
    """As ``*.pt`` names them: fairseq's best and last checkpoints are copies."""
    first, other = (save(tmp_path, f"{n}.pt", {"encoder.layers.0.weight": torch.full((2,), n)}) for n in (1.0, 2.0))
    shutil.copy(first, copy := str(tmp_path / "checkpoint_last.pt"))
    os.link(first, link := str(tmp_path / "link.pt"))
    for again in (first, copy, link):
        with pytest.raises(UserError, match=f"{again} is the same as {first}"):
            write_average([first, other, again], str(tmp_path / "average.pt"))


def test_nothing_is_averaged_of_nothing() -> None:
    with pytest.raises(UserError, match="no checkpoints"):
        averaging.average([])


# The file.


def test_output_is_the_last_input_with_the_mean_and_no_optimizer(tmp_path: Path) -> None:
    states = random_states()
    more: dict[str, Any] = {"extra_state": {"val_loss": 1.5, "ema": {"x": torch.ones(1)}, "ema_fp32_params": {}}}
    paths = [save(tmp_path, name, state) for name, state in zip(NAMES[:2], states, strict=False)]
    paths.append(save(tmp_path, NAMES[2], states[2], **more))
    read: list[str] = []
    write_average(paths, str(tmp_path / "average.pt"), progress=read.append)
    assert read == paths
    state = checkpoints.load_checkpoint(tmp_path / "average.pt")
    for name in states[0]:
        assert torch.equal(state["model"][name], torch.from_numpy(naive_mean(states, name)).float())
    assert state["last_optimizer_state"] is None
    assert state["extra_state"] == {"val_loss": 1.5, "averaged_from": list(NAMES)}
    assert state["cfg"]["model"]["_name"] == "transformer"


# Which checkpoints.


def test_last_are_the_newest_in_the_order_of_training(tmp_path: Path) -> None:
    newest_first = [
        "checkpoint_11_5200.pt", "checkpoint10.pt", "checkpoint_10_5000.pt", "checkpoint_10_4800.pt", "checkpoint9.pt",
        "checkpoint_9_900.pt", "checkpoint2.pt", "checkpoint_2_1000.pt", "checkpoint_2_999.pt", "checkpoint1.pt",
    ]  # fmt: skip
    others = ["checkpoint_last.pt", "checkpoint_best.pt", "checkpoint.best_loss_2.500.pt", "checkpoint12.pt.7.tmp"]
    for name in [*sorted(newest_first), *others, "average.pt", "checkpoint_12.pt", "xcheckpoint13.pt"]:
        (tmp_path / name).touch()
    for epoch, updates in ((10, 5100), (9, 960), (2, 1000)):
        save(tmp_path, f"checkpoint{epoch}.pt", {}, optimizer_history=[{"num_updates": updates}])
    newest_first.remove("checkpoint_2_1000.pt")  # which is the one of the epoch's end
    for count in range(1, len(newest_first) + 1):
        expected = [str(tmp_path / name) for name in reversed(newest_first[:count])]
        assert averaging.last_checkpoints(str(tmp_path), count) == expected
    assert averaging.last_checkpoints(str(tmp_path), 30) == averaging.last_checkpoints(str(tmp_path), len(newest_first))
    with pytest.raises(UserError, match="--last 0"):
        averaging.last_checkpoints(str(tmp_path), 0)


@pytest.mark.parametrize(("maximize", "expected"), [(False, [-1.0, 2.5, 3.75]), (True, [10.25, 9.5, 3.75])])
def test_best_follow_the_direction_of_the_metric(maximize: bool, expected: list[float], tmp_path: Path) -> None:
    for score in (9.5, 10.25, 3.75, 2.5, -1.0):
        name = f"checkpoint.best_my_metric_{score:.3f}0.pt"  # fairseq adds a digit against ties
        save(tmp_path, name, {"weight": torch.ones(1)}, maximize=maximize)
    save(tmp_path, "checkpoint_best.pt", {"weight": torch.ones(1)})
    best = averaging.best_checkpoints(str(tmp_path), 3)
    assert best == [str(tmp_path / f"checkpoint.best_my_metric_{score:.3f}0.pt") for score in expected]


def test_best_are_by_one_metric(tmp_path: Path) -> None:
    for name in ("loss_2.1000", "loss_2.2000", "bleu_29.0000", "bleu_30.0000"):
        save(tmp_path, f"checkpoint.best_{name}.pt", {"weight": torch.ones(1)}, maximize=name.startswith("bleu"))
    best = averaging.best_checkpoints(str(tmp_path), 2, "bleu")
    assert best == [str(tmp_path / f"checkpoint.best_bleu_{score}.0000.pt") for score in (30, 29)]
    for count, metric, said in (
        (2, None, "bleu and loss.*--metric"),
        (1, "ter", "--metric ter"),
        (0, "loss", "--best 0"),
        (-1, "loss", "--best -1"),
    ):
        with pytest.raises(UserError, match=said):
            averaging.best_checkpoints(str(tmp_path), count, metric)
