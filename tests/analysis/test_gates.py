"""What cells do: golden numbers, and a second reading of gates and states, one sentence after the other."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from probe_checkpoints import checkpoint_of
from torch import Tensor, nn

from fairseq_depthwise.analysis.analysis import SIDES, MeanAndDeviation, RunningMoments, StackReport, prepare_batches
from fairseq_depthwise.analysis.gates import CellStatistics, CellSums, find_gated_cells, format_report, measure_gates
from fairseq_depthwise.analysis.loaded_model import LoadedModel, load_model
from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseLSTMCell, DepthwiseState

FAMILY = "depthwise_lstm_transformer"

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "two cells, one set of gates": {"decoder_merge": "two-cells", "depthwise_gate_scope": "model"},
    "concat, nothing shared": {"decoder_merge": "concat", "depthwise_sharing": "none"},
}


# --- the sums --------------------------------------------------------------------------------------------------------


def test_golden_numbers() -> None:
    """Two sentences of one and two positions, in two dimensions; worked out by hand."""
    nan = math.nan
    padding = torch.tensor([[True, False], [False, False]])
    # T x B x d
    input_gate = torch.tensor([[[nan, nan], [0.05, 0.95]], [[0.5, 0.5], [0.95, 0.05]]])
    forget_gate = torch.full((2, 2, 2), 0.25)
    output_gate = torch.tensor([[[nan, nan], [0.95, 0.95]], [[0.95, 0.95], [0.2, 0.2]]])
    cell = torch.tensor([[[nan, nan], [3.0, 4.0]], [[0.0, 2.0], [8.0, 0.0]]])
    sums = CellSums(3, "a", DepthwiseLSTMCell.gate_names)
    sums.add((input_gate, forget_gate, output_gate), DepthwiseState(output=cell / 2, cell=cell), padding)
    found = sums.compute()
    assert (found.layer, found.cell) == (3, "a")
    first, forget, last = found.gates.values()
    assert (first.mean, first.deviation) == pytest.approx((0.5, 0.45 * math.sqrt(2 / 3)))
    assert (first.shut, first.open) == (1 / 3, 1 / 3)
    assert (forget.mean, forget.deviation, forget.shut, forget.open) == (0.25, 0, 0, 0)
    assert (last.mean, last.deviation) == pytest.approx((0.7, 0.75 * math.sqrt(2) / 3))
    assert (last.shut, last.open) == (0, 2 / 3)
    # Norms 5, 2 and 8: mean 5, squares 0 + 9 + 9.
    assert found.norms == {
        "cell_norm": MeanAndDeviation(5.0, math.sqrt(6)),
        "output_norm": MeanAndDeviation(2.5, math.sqrt(6) / 2),
    }


@pytest.mark.parametrize("sizes", [(1,) * 60, (60,), (7, 0, 3, 49, 1)])
def test_a_small_deviation_of_large_values(sizes: tuple[int, ...]) -> None:
    """Of float64's 16 digits the squares of these take all, so that the difference of sums would be noise."""
    values = 1e8 + torch.randn(60, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    moments = RunningMoments()
    for part in values.split(sizes):
        moments.add(part)
    mean = math.fsum(values.tolist()) / 60
    assert moments.count == 60
    assert moments.mean == pytest.approx(mean, rel=1e-15)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values.tolist()) / 60)
    assert moments.compute().deviation == pytest.approx(deviation, rel=1e-7)


# --- models ----------------------------------------------------------------------------------------------------------


def read_spread(values: list[float]) -> tuple[float, float]:
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


@torch.no_grad()
def read_cells(loaded: LoadedModel) -> list[tuple[tuple[float, ...], ...]]:
    """Return for each cell mean, deviation and shares of the gates, mean and deviation of norms."""
    rows: dict[int, tuple[list[float], ...]] = {}

    def keep(cell: Any, inputs: Any, above: DepthwiseState) -> None:
        *gates, cells, outputs = rows.setdefault(id(cell), ([], [], [], [], []))
        for values, gate in zip(gates, cell.gate_values(*inputs), strict=True):
            values.extend(gate.flatten().tolist())
        for lengths, vectors in ((cells, above.cell), (outputs, above.output)):
            lengths.extend(math.sqrt(sum(x * x for x in vector)) for vector in vectors.flatten(0, 1).tolist())

    cells = [module for module in loaded.model.modules() if isinstance(module, DepthwiseLSTMCell)]
    hooks = [cell.register_forward_hook(keep) for cell in cells]
    for sentence in loaded.dataset("valid"):
        target = sentence["target"]
        loaded.model(sentence["source"][None], None, torch.cat([target[-1:], target[:-1]])[None])
    for hook in hooks:
        hook.remove()
    return [
        (
            *(
                (*read_spread(gate), sum(x < 0.1 for x in gate) / len(gate), sum(x > 0.9 for x in gate) / len(gate))
                for gate in one[:3]
            ),
            *map(read_spread, one[3:]),
        )
        for one in rows.values()
    ]


def numbers(row: CellStatistics) -> list[tuple[float, ...]]:
    return [
        *((gate.mean, gate.deviation, gate.shut, gate.open) for gate in row.gates.values()),
        *((norm.mean, norm.deviation) for norm in row.norms.values()),
    ]


def measured(loaded: LoadedModel, max_tokens: int, sides: tuple[str, ...] = SIDES) -> dict[str, Any]:
    batches = loaded.batches("valid", max_sentences=1000, max_tokens=max_tokens)
    return measure_gates(loaded.model, sides, prepare_batches(loaded, batches, sides))


@pytest.mark.parametrize("name", VARIANTS)
def test_is_the_second_reading_whatever_the_batches(name: str, tmp_path: Path, data: str) -> None:
    loaded = load_model(checkpoint_of(tmp_path, FAMILY, **VARIANTS[name]), data)
    expected = read_cells(loaded)
    for max_tokens in (1, 15, 1000):
        found = measured(loaded, max_tokens)
        rows = [*found["encoder"], *found["decoder"]]
        for row, read in zip(rows, expected, strict=True):
            for values, others in zip(numbers(row), read, strict=True):
                assert values == pytest.approx(others, abs=2e-5)
    labels = [f"{row.layer}{row.cell or ''}" for row in found["decoder"]]
    assert labels == (["1a", "1b", "2a", "2b", "3a", "3b"] if "two cells" in name else ["1", "2", "3"])
    assert [(row.layer, row.cell) for row in found["encoder"]] == [(1, None), (2, None), (3, None)]


class HighwayCell(nn.Module):
    """Of another paper than ours: two gates, one of which is open at every position."""

    gate_names = ("transform_gate", "carry_gate")

    def gate_values(self, attended: Tensor, state: DepthwiseState) -> tuple[Tensor, ...]:
        return torch.full_like(attended, 0.25), torch.full_like(attended, 0.95)

    def forward(self, attended: Tensor, state: DepthwiseState) -> DepthwiseState:
        return DepthwiseState(output=attended, cell=state.cell)


def test_a_cell_that_names_its_gates_is_measured() -> None:
    cell = HighwayCell()
    model: Any = SimpleNamespace(encoder=SimpleNamespace(layers=[SimpleNamespace(cell=cell), SimpleNamespace()]))
    inputs = torch.ones(3, 2, 4)
    state = DepthwiseState(output=inputs, cell=inputs)
    padding = {"encoder": torch.zeros(2, 3, dtype=torch.bool)}
    batch: Any = SimpleNamespace(padding=padding, run=lambda: cell(inputs, state))
    assert find_gated_cells(model.encoder) == [(1, None, cell)]
    rows = measure_gates(model, ["encoder"], [batch])
    (row,) = rows["encoder"]
    assert {name: (gate.mean, gate.open) for name, gate in row.gates.items()} == {
        "transform_gate": (0.25, 0),
        "carry_gate": (pytest.approx(0.95), 1),
    }
    assert list(row.to_json()) == ["layer", "cell", "transform_gate", "carry_gate", "cell_norm", "output_norm"]
    assert "carry gate" in format_report(StackReport("highway.pt", "highway", "valid", 2, {"encoder": 6}, rows))
