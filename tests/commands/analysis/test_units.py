"""``fairseq-depthwise units``: both forms of one result, figures, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from figure_files import figure_in
from unit_checkpoints import unit_checkpoint, unit_data, unit_model

from fairseq_depthwise.models.mute.order import penalty

DIVERSITIES = ("attention_positions", "attention_outputs", "feed_forward_outputs")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return unit_data(tmp_path_factory.mktemp("units") / "data-bin")


@pytest.fixture(scope="module")
def mute(tmp_path_factory: pytest.TempPathFactory) -> str:
    return unit_checkpoint(tmp_path_factory.mktemp("models"))


def test_pairs_with_themselves(mute: str, data: str, document: Callable[..., Any]) -> None:
    (whole,), (with_self,) = (
        document("units", mute, "--data", data, *options)["checkpoints"] for options in ([], ["--include-self"])
    )
    for one, other in zip(whole["layers"], with_self["layers"], strict=True):
        for name in DIVERSITIES[:2]:
            assert other[name] == pytest.approx(2.718281828459045**-0.25 * one[name] ** 0.75)
        # With the residual in it, units have more in common.
        assert other[DIVERSITIES[2]] < 0.95 * 2.718281828459045**-0.25 * one[DIVERSITIES[2]] ** 0.75


@pytest.mark.parametrize("at_inference", ["soft", "hard"])
def test_learned_order(
    at_inference: str, tmp_path: Path, data: str, printed: Callable[..., str], document: Callable[..., Any]
) -> None:
    options = {"unit_sequential": True, "permutation_at_inference": at_inference}
    path, model = unit_checkpoint(tmp_path, **options), unit_model(**options)
    (summary,) = document("units", path, "--data", data)["checkpoints"]
    for layer, found in zip(model.encoder.layers, summary["layers"], strict=True):
        assert sorted(found["order"]) == [1, 2, 3, 4]
        assert found["order"] == [unit + 1 for unit in layer.order.order()]
        assert found["distance"] == pytest.approx(layer.order.distance())
        assert found["penalty"] == pytest.approx(penalty(layer.order.matrix()).item())
        assert found["weights"] == layer.unit_weights.tolist()
        # The definition of the weights of places, once more: alpha_j counts 1/j for each unit up to place j.
        of_places = [sum(found["weights"][j] / (j + 1) for j in range(k, 4)) for k in range(4)]
        if at_inference == "hard":
            expected = [of_places[found["order"].index(unit)] for unit in range(1, 5)]
        else:
            expected = (layer.order.matrix() @ torch.tensor(of_places)).tolist()
        assert found["coefficients"] == pytest.approx(expected, rel=1e-5)
    first = summary["layers"][0]
    row = printed("units", path, "--data", data).splitlines()[5].split()
    assert row[4:12] == [f"{weight:.3f}" for weight in (*first["weights"], *first["coefficients"])]
    assert row[12:] == [*map(str, first["order"]), f"{first['distance']:.3f}", f"{first['penalty']:.3f}"]


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_figures(suffix: str, mute: str, tmp_path: Path, data: str, printed: Callable[..., str]) -> None:
    weights, attention = tmp_path / f"weights.{suffix}", tmp_path / f"attention.{suffix}"
    command = ["units", mute, "--data", data, "--output", weights]
    command += ["--sentence-index", 2, "--attention-output", attention]
    printed(*command)
    before = {path: figure_in(path) for path in (weights, attention)}
    if suffix == "svg":
        for text in ("w5", "&lt;/s&gt;", "unit 4"):
            assert f">{text}<" in before[attention].decode()
        # It is the same again.
        weights.write_bytes(b"old")
        printed(*command, "--force")
        assert {path: path.read_bytes() for path in before} == before
