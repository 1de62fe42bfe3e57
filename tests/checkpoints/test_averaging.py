"""Averaging against a naive float64 computation in NumPy, the choice of checkpoints, and what is refused."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

from fairseq_compat import UserError, checkpoints
from fairseq_depthwise.checkpoints import averaging

NAMES = ("first.pt", "second.pt", "third.pt")


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


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (torch.float16, [60000.0, 60000.0]),  # the sum is beyond the type's range
        (torch.float16, [2048.0, 1.0, 1.0, 2046.0]),  # 2048 + 1 is 2048 in half precision
        (torch.bfloat16, [256.0, 1.0, 1.0, 2.0]),
    ],
)
def test_short_types_are_summed_in_a_wider_one(dtype: torch.dtype, values: list[float]) -> None:
    states = [{"weight": torch.tensor([value]).to(dtype)} for value in values]
    mean = average_of(states, [str(value) for value in values])
    assert mean["weight"].item() == torch.tensor(sum(values) / len(values)).to(dtype).item()


def test_states_are_left_as_they_were() -> None:
    states = random_states(torch.float64)
    before = [{name: tensor.clone() for name, tensor in state.items()} for state in states]
    average_of(states, NAMES)
    for state, copy in zip(states, before, strict=True):
        assert all(torch.equal(state[name], copy[name]) for name in state)


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


# One tensor under two names.


def test_tied_tensors_stay_tied_in_the_file(tmp_path: Path) -> None:
    paths = []
    for number in (1.0, 3.0):
        table = torch.full((4, 2), number)
        model = {"encoder.embed": table, "decoder.embed": table, "output": table, "other": torch.full((4, 2), number)}
        paths.append(save(tmp_path, f"checkpoint{number:.0f}.pt", model))
    averaging.write_average(paths, str(tmp_path / "average.pt"))
    model = checkpoints.load_checkpoint(tmp_path / "average.pt")["model"]
    assert model["encoder.embed"].data_ptr() == model["decoder.embed"].data_ptr() == model["output"].data_ptr()
    assert model["other"].data_ptr() != model["output"].data_ptr()
    for tensor in model.values():
        assert torch.equal(tensor, torch.full((4, 2), 2.0))


def test_tie_that_only_some_have_is_none() -> None:
    table = torch.ones(2)
    states = [{"a": table, "b": table}, {"a": torch.zeros(2), "b": torch.full((2,), 4.0)}]
    for given in (states, states[::-1]):
        mean = average_of(given, NAMES[:2])
        assert mean["a"].tolist() == [0.5, 0.5]
        assert mean["b"].tolist() == [2.5, 2.5]


def test_tie_within_a_larger_tie_is_kept() -> None:
    """a = b = c in the first, only b = c in the second."""
    first, second, third = torch.ones(1), torch.full((1,), 3.0), torch.full((1,), 5.0)
    states = [{"a": first, "b": first, "c": first}, {"a": second, "b": third, "c": third}]
    mean = average_of(states, NAMES[:2])
    assert {name: tensor.item() for name, tensor in mean.items()} == {"a": 2.0, "b": 3.0, "c": 3.0}
    assert mean["b"].data_ptr() == mean["c"].data_ptr()


# What is refused.


def test_first_tensor_of_another_shape_is_named() -> None:
    states = [{"same": torch.ones(1), "wide": torch.ones(2, 3), "deep": torch.ones(1)}] * 2
    states.append({"same": torch.ones(1), "wide": torch.ones(2, 4), "deep": torch.ones(5)})
    with pytest.raises(UserError, match=r"wide has shape 2x4 in third\.pt and 2x3 in first\.pt"):
        average_of(states, NAMES)


def test_missing_and_additional_tensors_are_named() -> None:
    small, large = {"a": torch.ones(1)}, {"a": torch.ones(1), "b": torch.ones(1)}
    with pytest.raises(UserError, match=r"second\.pt has no tensor b, which first\.pt has"):
        average_of([large, small], NAMES[:2])
    with pytest.raises(UserError, match=r"second\.pt has a tensor b, which first\.pt lacks"):
        average_of([small, large], NAMES[:2])


# Models that grew between two checkpoints.


def stacks(encoder: int, decoder: int, *, first_has_norm: bool = True) -> dict[str, Tensor]:
    """A model of that depth; as the depth-wise one, perhaps without a norm in its first layers."""
    model = {"encoder.embed.weight": torch.ones(4, 2), "encoder.connection.rows.0": torch.ones(1)}
    for side, depth in (("encoder", encoder), ("decoder", decoder)):
        for layer in range(depth):
            model[f"{side}.layers.{layer}.linear.weight"] = torch.ones(2, 2)
            if layer or first_has_norm:
                model[f"{side}.layers.{layer}.norm"] = torch.ones(2)
    return model


@pytest.mark.parametrize(
    ("depths", "newest", "said"),
    [
        ([(6, 6), (6, 6), (12, 6)], True, "2.pt has 12 encoder layers and 1.pt 6"),
        ([(6, 6), (12, 6), (12, 6)], True, "2.pt has 12 encoder layers and 0.pt 6"),
        ([(2, 1), (4, 1), (6, 1), (6, 1), (6, 1)], True, "4.pt has 6 encoder layers and 1.pt 4"),
        ([(12, 6), (6, 6)], False, "1.pt has 6 encoder layers and 0.pt 12"),
        ([(6, 1), (6, 2)], False, "1.pt has 2 decoder layers and 0.pt 1"),
    ],
)
@pytest.mark.parametrize("first_has_norm", [True, False])
def test_depths_are_compared_before_anything_is_averaged(
    depths: list[tuple[int, int]], newest: bool, said: str, first_has_norm: bool, tmp_path: Path
) -> None:
    paths = [
        save(tmp_path, f"{number}.pt", stacks(*depth, first_has_norm=first_has_norm))
        for number, depth in enumerate(depths)
    ]
    read: list[str] = []
    with pytest.raises(UserError) as raised:
        averaging.write_average(paths, str(tmp_path / "average.pt"), newest=newest, progress=read.append)
    message = str(raised.value).replace(f"{tmp_path}/", "")
    assert message.startswith(said)
    alike = len(depths) - max(number for number, depth in enumerate(depths) if depth != depths[-1]) - 1
    assert (f"--last {alike} " in message) is (newest and alike > 1)
    assert read == []
    assert not (tmp_path / "average.pt").exists()


def test_other_differences_are_named_as_before(tmp_path: Path) -> None:
    """Models of two families, which differ in depth as well."""
    other = {name.replace("linear", "projection"): tensor for name, tensor in stacks(4, 6).items()}
    paths = [save(tmp_path, "one.pt", stacks(6, 6)), save(tmp_path, "other.pt", other)]
    with pytest.raises(UserError, match=r"other\.pt has no tensor encoder\.layers\.0\.linear\.weight"):
        averaging.write_average(paths, str(tmp_path / "average.pt"))


# The file.


def test_output_is_the_last_input_with_the_mean_and_no_optimizer(tmp_path: Path) -> None:
    states = random_states()
    more: dict[str, Any] = {"extra_state": {"val_loss": 1.5, "ema": {"x": torch.ones(1)}, "ema_fp32_params": {}}}
    paths = [save(tmp_path, name, state) for name, state in zip(NAMES[:2], states, strict=False)]
    paths.append(save(tmp_path, NAMES[2], states[2], **more))
    read: list[str] = []
    averaging.write_average(paths, str(tmp_path / "average.pt"), progress=read.append)
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
    for count in range(1, len(newest_first) + 1):
        expected = [str(tmp_path / name) for name in reversed(newest_first[:count])]
        assert averaging.last_checkpoints(str(tmp_path), count) == expected


@pytest.mark.parametrize(("maximize", "expected"), [(False, [-1.0, 2.5, 3.75]), (True, [10.25, 9.5, 3.75])])
@pytest.mark.parametrize("style", ["cfg", "args"])
def test_best_follow_the_direction_of_the_metric(
    style: str, maximize: bool, expected: list[float], tmp_path: Path
) -> None:
    more: dict[str, Any] = {}
    if style == "args":
        more = {"cfg": None, "args": argparse.Namespace(maximize_best_checkpoint_metric=maximize)}
    for score in (9.5, 10.25, 3.75, 2.5, -1.0):
        name = f"checkpoint.best_my_metric_{score:.3f}0.pt"  # fairseq adds a digit against ties
        save(tmp_path, name, {"weight": torch.ones(1)}, maximize=maximize, **more)
    save(tmp_path, "checkpoint_best.pt", {"weight": torch.ones(1)})
    best = averaging.best_checkpoints(str(tmp_path), 3)
    assert best == [str(tmp_path / f"checkpoint.best_my_metric_{score:.3f}0.pt") for score in expected]


def test_more_than_there_are_is_refused_with_the_number(tmp_path: Path) -> None:
    (tmp_path / "checkpoint1.pt").touch()
    with pytest.raises(UserError, match=r"--last 2: .* holds 1 checkpoints"):
        averaging.last_checkpoints(str(tmp_path), 2)
    with pytest.raises(UserError, match=r"--best 1: .* holds 0 checkpoints"):
        averaging.best_checkpoints(str(tmp_path), 1)
