"""``benchmarks/training_profile.py``: the kinds of operations, and the program with tiny models."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import operation_kinds as kinds
import pytest
import torch
import training_profile
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

TINY = "--encoder-embed-dim=16 --decoder-embed-dim=16 --encoder-attention-heads=2 --decoder-attention-heads=2"


def event(name: str, *above: str, own: float = 1e6) -> SimpleNamespace:
    """An event of so many microseconds, within others."""
    parent = event(above[0], *above[1:]) if above else None
    return SimpleNamespace(name=name, cpu_parent=parent, self_cpu_time_total=own, cpu_time_total=own)


@pytest.mark.parametrize(
    ("chain", "kind"),
    [
        (("aten::addmm", "aten::linear", "forward", "step"), kinds.FORWARD),
        (("aten::mm", "autograd::engine::evaluate_function: AddmmBackward0", "backward", "step"), kinds.BACKWARD),
        (("aten::bmm", "backward"), kinds.BATCHED),
        (("aten::_scaled_dot_product_flash_attention_for_cpu", "forward"), kinds.BATCHED),
        (("aten::native_layer_norm_backward", "backward"), kinds.NORM),
        (("aten::mul", kinds.DROPOUT, "forward"), kinds.DROPOUT),
        (("aten::mul", "aten::dropout", "forward"), kinds.DROPOUT),
        (("aten::mul", "forward"), kinds.ELEMENTWISE),
        (("aten::copy_", "aten::to", "forward"), kinds.COPIES),
        (("aten::copy_", "clip-grads", "step"), kinds.GRADIENTS),
        (("aten::mm", kinds.LOSS, "forward"), kinds.LOSS),
        (("aten::exp_", "_LabelSmoothedLossBackward", "backward"), kinds.LOSS),
        (("aten::mul_", "Optimizer.step#AdamW.step", "optimizer", "step"), kinds.OPTIMIZER),
        (("forward", "step"), kinds.REST),
    ],
    ids=str,
)
def test_the_kind_of_an_operation(chain: tuple[str, ...], kind: str) -> None:
    assert kinds.kind_of(event(*chain)) == kind


def test_shares_are_of_the_whole_step() -> None:
    events = [event("step", own=10e6), event("aten::mm", "step", own=4e6), event("forward", "step", own=5e6)]
    found = kinds.seconds_of_kinds(events, "step")
    assert (found[kinds.FORWARD], found[kinds.REST]) == (4, 6)
    assert sum(found.values()) == 10


def test_marks_are_gone_afterwards() -> None:
    class Criterion:
        def compute_loss(self) -> int:
            return 3

    model, criterion = nn.Sequential(nn.Dropout(0.5)), Criterion()
    with profile(activities=[ProfilerActivity.CPU]) as profiler, record_function("step"):
        with kinds.marked(model, criterion):
            model(torch.ones(3))
            assert criterion.compute_loss() == 3
        model(torch.ones(3))
    names = [one.name for one in profiler.events()]
    assert names.count(kinds.DROPOUT) == names.count(kinds.LOSS) == 1
    assert "compute_loss" not in vars(criterion)


def test_every_family_is_measured_before_and_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(training_profile.SIZES, "narrow", (16, 24, 2, 3, 64))
    page, record = tmp_path / "page.md", tmp_path / "record.json"
    status = training_profile.main(
        ["--precisions=bf16", "--train-tokens=60", "--steps=1", "--rounds=2", f"--output={page}",
         f"--record={record}"]
    )  # fmt: skip
    assert status == 0
    results: list[dict[str, Any]] = json.loads(record.read_text())["results"]
    sides = ["stock", *(side for family in training_profile.FAMILIES for side in (f"{family} before", family))]
    assert [one["side"] for one in results] == sides
    for one in results:
        taken = one["kinds"]
        assert set(taken) == set(kinds.KINDS)
        for kind in (kinds.FORWARD, kinds.BACKWARD, kinds.NORM, kinds.DROPOUT, kinds.LOSS, kinds.OPTIMIZER, kinds.REST):
            assert taken[kind] > 0, (one["side"], kind)
    text = page.read_text()
    assert text in capsys.readouterr().out + "\n"
    assert f"| % of a step | {' | '.join(sides)} |" in text
    assert "%" in text
    for line in text.splitlines():
        if line.startswith("| optimizer"):
            assert len(line.split("|")) == len(sides) + 3
