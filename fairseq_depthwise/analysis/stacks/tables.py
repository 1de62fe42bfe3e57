"""What was measured of the layers of stacks, as tables for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fairseq_depthwise.analysis.stacks.gate_statistics import CellStatistics
from fairseq_depthwise.analysis.stacks.layer_similarity import LayerSimilarity
from fairseq_depthwise.analysis.stacks.report import Row, StackReport
from fairseq_depthwise.tables import aligned


def similarity_table(report: StackReport[LayerSimilarity]) -> str:
    """The similarities of each layer."""

    def cells(row: LayerSimilarity) -> list[str]:
        adjacent = "-" if row.adjacent_similarity is None else f"{row.adjacent_similarity:.3f}"
        return [str(row.layer), f"{row.emb_similarity:.3f}", adjacent, f"{row.inter_similarity:.3f}"]

    return _tables(report, ["layer", "emb-similarity", "adjacent similarity", "inter-similarity"], cells)


def gates_table(report: StackReport[CellStatistics]) -> str:
    """What each cell did."""
    columns = ["layer"]
    for gate in ("input gate", "forget gate", "output gate"):
        columns += [gate, "<0.1", ">0.9"]

    def cells(row: CellStatistics) -> list[str]:
        found = [f"{row.layer}{row.cell or ''}"]
        for gate in (row.input_gate, row.forget_gate, row.output_gate):
            found += [f"{gate.mean:.3f} ±{gate.deviation:.3f}", f"{gate.shut:.0%}", f"{gate.open:.0%}"]
        return [*found, *(f"{norm.mean:.2f} ±{norm.deviation:.2f}" for norm in (row.cell_norm, row.output_norm))]

    legend = "gates: mean, deviation and share of values below 0.1 and above 0.9; norms (L2): mean and deviation\n"
    if any(row.cell for rows in report.rows.values() for row in rows):
        legend += "two cells in a layer: a between its attentions, b above both\n"
    return _tables(report, [*columns, "cell norm", "output norm"], cells, legend)


def _tables(
    report: StackReport[Row], columns: list[str], cells: Callable[[Row], Iterable[str]], legend: str = ""
) -> str:
    """A heading, and a table for each side."""
    text = f"{report.checkpoint}: {report.architecture}\n{report.subset}: {report.sentences:,} sentences\n{legend}"
    for side, rows in report.rows.items():
        text += f"{side}: {report.tokens[side]:,} tokens\n"
        text += aligned([columns, *(list(cells(row)) for row in rows)])
    return text
