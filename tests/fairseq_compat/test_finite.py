"""What a training that diverged leaves: reports that work, and sentences instead of assertions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.nan_detector import NanDetector
from torch import Tensor, nn

from fairseq_compat import UserError
from fairseq_compat.explanations import explain
from fairseq_compat.finite import require_finite


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_first_parameter_and_their_number_are_named(value: float, dtype: torch.dtype) -> None:
    values = {name: torch.ones(3, 2, dtype=dtype) for name in ("first", "second", "third")}
    require_finite(values.items(), "model.pt")
    values["second"][1, 1] = values["third"][0, 0] = value
    with pytest.raises(UserError, match=r"^model\.pt holds NaN or infinite values in 2 of its 3 parameters.* second"):
        require_finite(values.items(), "model.pt")


def test_counters_and_a_buffer_that_nobody_reads_may_be_anything() -> None:
    unread = torch.tensor([float("nan")])
    require_finite({"version": torch.tensor([3]), "encoder.embed_positions._float_tensor": unread}.items(), "x")


def test_fairseq_refuses_a_model_that_diverged(stock_state: Callable[[str], dict[str, Any]], tmp_path: Path) -> None:
    from fairseq import checkpoint_utils

    state, path = stock_state("cfg"), tmp_path / "checkpoint.pt"
    torch.save(state, path)
    checkpoint_utils.load_model_ensemble([str(path)])
    state["model"]["decoder.layers.1.fc1.weight"][0, 0] = float("nan")
    torch.save(state, path)
    with pytest.raises(UserError, match=rf"{path} holds NaN .* in 1 of its \d+ .* decoder\.layers\.1\.fc1\.weight"):
        checkpoint_utils.load_model_ensemble([str(path)])


class Part(nn.Module):
    """A linear layer whose output is ``shape`` of its result."""

    def __init__(self, shape: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.shape = shape

    def forward(self, given: Tensor) -> Any:
        return self.shape(self.linear(given))


SHAPES: dict[str, Callable[[Tensor], Any]] = {
    "nothing in a dictionary": lambda result: {"mask": None, "name": "x", "nested": [result]},
    "none first": lambda result: (None, result),
    "an empty tuple first": lambda result: ((), [result]),
    "a tensor": lambda result: result,
    "a dictionary of lists": lambda result: {"out": [result], "empty": []},
}


def tensor_in(found: Any) -> Tensor | None:
    if isinstance(found, Tensor):
        return found
    parts = found.values() if isinstance(found, dict) else found if isinstance(found, (list, tuple)) else ()
    return next((one for part in parts if (one := tensor_in(part)) is not None), None)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_the_report_names_the_module(shape: str, where: str, caplog: pytest.LogCaptureFixture) -> None:
    model = nn.ModuleDict({"good": Part(SHAPES["none first"]), "bad": Part(SHAPES[shape])})
    caplog.set_level(logging.INFO, logger="fairseq.nan_detector")
    with NanDetector(model):
        good = tensor_in(model["good"](torch.ones(2, 3)))
        assert good is not None
        if where == "forward":
            with torch.no_grad():
                model["bad"].linear.weight[0, 0] = float("nan")
        result = tensor_in(model["bad"](good))
        assert result is not None
        (result.sum() * (float("nan") if where == "backward" else 1)).backward()
    reports = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert f"NaN detected in output of bad.linear, shape: torch.Size([2, 3]), {where}" in reports[0] + reports[-1]
    assert any(record.getMessage().startswith("norms:") for record in caplog.records)


def test_gradients_are_what_they_are_without_the_report() -> None:
    model, given = Part(SHAPES["nothing in a dictionary"]), torch.ones(2, 3)
    gradients = []
    for watched in (False, True):
        model.zero_grad()
        detector = NanDetector(model) if watched else None
        result = tensor_in(model(given))
        assert result is not None
        result.square().sum().backward()
        gradients.append(model.linear.weight.grad.clone())
        if detector is not None:
            detector.close()
    assert torch.equal(*gradients)


def test_what_divergence_raises_is_explained() -> None:
    assert "gradients are Nan/Inf" in (explain(FloatingPointError("gradients are Nan/Inf")) or "")
    assert "NaN" in (explain(AssertionError("10 < 10")) or "")
    assert explain(AssertionError("10 < 11")) is None
