"""``benchmarks/training_profile.py``: the kinds of operations, and the program with tiny models."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import training_profile
import training_profile as kinds
from bench_rows import Size
from render import tables_of


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


@pytest.mark.long
def test_every_family_is_measured_before_and_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(training_profile.SIZES, "narrow", (Size(16, 24, 2, 64), 3))
    given = ["--precisions=bf16", "--train-tokens=60", "--steps=1", "--rounds=2", f"--records={tmp_path}"]
    assert training_profile.main(given) == 0
    record = json.loads((tmp_path / "training_profile.json").read_text())
    sides = ["stock", *(side for family in kinds.FAMILIES for side in (f"{family} before", family))]
    assert [result["side"] for result in record["results"]] == sides
    for result in record["results"]:
        taken = result["kinds"]
        assert set(taken) == set(kinds.KINDS)
        for kind in (kinds.FORWARD, kinds.BACKWARD, kinds.NORM, kinds.DROPOUT, kinds.LOSS, kinds.OPTIMIZER, kinds.REST):
            assert taken[kind] > 0, (result["side"], kind)
    assert f"| % of a step | {' | '.join(sides)} |" in tables_of(record)["bf16"]
