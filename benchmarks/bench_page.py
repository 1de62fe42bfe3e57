"""The record of ``bench.py`` as Markdown tables.

A record holds ``setup``; ``rows``, name -> family, layers, the stock row ``beside``, parameters; ``meetings``, each
with the ``seconds`` and ``amount`` of every round for the rows that took turns; and lists of ``start_up``, ``memory``
and ``skipped``.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bench_rows import BEAMS, DECODING, TRAINING, Case
from side_by_side import quartiles

from fairseq_depthwise.tables import markdown

NOTHING = "-"
Record = Mapping[str, Any]


def rates(record: Record, row: str, precision: str, case: Case) -> list[float]:
    """Target tokens or sentences per second in each round, of all meetings."""
    return [rate for meeting in _meetings(record, row, precision, case) for rate in _rates(meeting["rows"][row])]


def speeds(record: Record, row: str, precision: str, case: Case) -> list[float]:
    """How many times as fast as stock fairseq, round by round; each round is compared with stock's in that round."""
    stock = record["rows"][row]["beside"]
    return [
        own / other
        for meeting in _meetings(record, row, precision, case)
        if stock in meeting["rows"]
        for own, other in zip(_rates(meeting["rows"][row]), _rates(meeting["rows"][stock]), strict=True)
    ]


def peak(record: Record, row: str, precision: str, part: str) -> float | None:
    """Bytes at the peak, without those that stock fairseq's unused copies take; the median of all processes."""
    found = [
        one["peak"] - one["unused"]
        for one in record["memory"]
        if (one["row"], one["precision"], one["part"]) == (row, precision, part)
    ]
    return statistics.median(found) if found else None


def start_up(record: Record, row: str, precision: str) -> list[float]:
    """Seconds of each start."""
    return [one["seconds"] for one in record["start_up"] if (one["row"], one["precision"]) == (row, precision)]


def _meetings(record: Record, row: str, precision: str, case: Case) -> Iterator[Mapping[str, Any]]:
    for meeting in record["meetings"]:
        if meeting["precision"] == precision and Case(**meeting["case"]) == case and row in meeting["rows"]:
            yield meeting


def _rates(answers: Mapping[str, Sequence[float]]) -> list[float]:
    return [amount / seconds for amount, seconds in zip(answers["amount"], answers["seconds"], strict=True)]


def page(record: Record, figures: Mapping[str, str] | None = None, numbers: str = "") -> str:
    """The program's section of the page.

    Args:
        record: see above.
        figures: what a figure shows -> its file, from the page.
        numbers: the file of the record, from the page.
    """
    setup = record["setup"]
    lines = [*_head(setup, numbers)]
    for precision in setup["precisions"]:
        lines += ["", f"## Speed, {precision}", "", *_speed_notes(), "", _speed_table(record, precision).rstrip()]
        lines += ["", f"## Size, memory and start-up, {precision}", "", *_size_notes(setup), ""]
        lines += [_size_table(record, precision).rstrip()]
    if figures:
        lines += ["", "## Growth in cost", "", *_figure_notes(setup)]
        for what, file in figures.items():
            lines += ["", f"![{what}]({file})"]
    if record["skipped"]:
        lines += ["", "Not measured:", ""]
        lines += [f"- {one['row']}, {one['part']} {one['precision']}: {one['reason']}" for one in record["skipped"]]
    return "\n".join([*lines, ""])


def _head(setup: Mapping[str, Any], numbers: str) -> Iterator[str]:
    size = setup["size"]
    yield from (
        f"# All families beside stock fairseq, {size['name']} models on {setup['device']}",
        "",
        f"Made by `{setup['command']}`.",
        "Each row is a process of its own. Those that are compared work by turns, round by round in rotating order, on",
        "the same sentences and batches, through fairseq's own trainer and beam search. A ratio is taken within one",
        f"round; given are medians, and quartiles in brackets, of {setup['rounds']} rounds.",
        *([f"All numbers: [{numbers}]({numbers})."] if numbers else []),
        "",
        f"- Machine: {setup['machine']}; threads of PyTorch: {setup['threads']}.",
        f"- Versions: {setup['versions']}.",
        f"- Models: width {size['width']}, feed-forward or hidden net {size['hidden']}, {size['heads']} heads, joined",
        f"  dictionary of {size['vocabulary']}, tied embeddings; dropout 0.1 after sub-layers only, in all. Encoders",
        "  have 6 layers, or as many as a row's name says; decoders have 6. With mute, the name says how many units.",
        "- Beside what: depth-wise rows beside fairseq's post-norm `transformer`, mute and sdt beside its pre-norm one",
        "  with as many layers. It has no relative positions; mute and sdt have them in every self-attention.",
        "- Loss: fairseq's `label_smoothed_cross_entropy` for stock, `label_smoothed_cross_entropy_with_auxiliary` for",
        "  ours: the same value, computed from scores.",
        "- Sentences: random subwords, lengths like newstest's (log-normal around 25, from 5 to 80). A turn is",
        f"  {setup['batches']} batches of like lengths, in training of about {setup['train_tokens']} target tokens.",
    )


def _speed_notes() -> Iterator[str]:
    yield from (
        "Training: `Trainer.train_step`, forward, backward and Adam's update, in target tokens/s. Decoding: after",
        "`prepare_for_inference_`, in sentences/s; models are untrained, so each sentence is made as long as the",
        "padded sources of its batch. Each cell: the rate, and in bold how many times as fast as stock.",
    )


def _speed_table(record: Record, precision: str) -> str:
    sentences = record["setup"]["sentences"]
    decoding = [Case(DECODING, beam=beam, sentences=number) for beam in BEAMS for number in sentences]
    titles = [f"beam {case.beam}, {case.sentences} at once" for case in decoding]
    lines = [["row", "beside", "training", *titles]]
    for row in record["rows"]:
        cells = [_speed(record, row, precision, case) for case in (Case(TRAINING), *decoding)]
        if any(cell != NOTHING for cell in cells):
            lines.append([row, _beside(record, row), *cells])
    return markdown(lines)


def _beside(record: Record, row: str) -> str:
    beside = record["rows"][row]["beside"]
    return "" if beside == row else beside


def _speed(record: Record, row: str, precision: str, case: Case) -> str:
    found = rates(record, row, precision, case)
    if not found:
        return NOTHING
    rate = statistics.median(found)
    shown = f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"
    if record["rows"][row]["beside"] == row:
        low, _, high = _spread(found)
        return f"{shown} ({low / rate:.2f} - {high / rate:.2f})"
    ratios = speeds(record, row, precision, case)
    if not ratios:
        return shown
    low, middle, high = _spread(ratios)
    return f"{shown}, **{middle:.2f}** ({low:.2f} - {high:.2f})"


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    return quartiles(values) if len(values) > 1 else (values[0],) * 3


def _size_notes(setup: Mapping[str, Any]) -> Iterator[str]:
    counted = (
        "what its process grew by from before the model was built" if setup["device"] == "cpu" else "what PyTorch held"
    )
    yield from (
        "Every encoder layer of stock fairseq holds a second copy of its weights that is never read",
        "([compatibility](compatibility.md)). These copies are left out of its parameters, and their bytes (with what",
        f"the optimizer keeps for them) of its memory. A peak is {counted};",
        "that of decoding is the highest of all its cases. Start-up: from starting Python to a model that is built and",
        f"prepared for inference, median of {setup['starts']} starts or more. In brackets: by stock's.",
    )


def _figure_notes(setup: Mapping[str, Any]) -> Iterator[str]:
    yield from (
        f"Medians, and quartiles as bars; decoding with beam {BEAMS[0]}, {setup['sentences'][-1]} sentences at once.",
        "By depth: sentences as in the tables. By length: all sentences have as many tokens, and training batches as",
        "many in all as in the tables.",
    )


def _size_table(record: Record, precision: str) -> str:
    rows = record["rows"]

    def parameters(row: str) -> float | None:
        return rows[row]["parameters"] if row in rows else None

    def mebibytes(part: str) -> Callable[[str], float | None]:
        def of(row: str) -> float | None:
            found = peak(record, row, precision, part)
            return None if found is None else found / 2**20

        return of

    def seconds(row: str) -> float | None:
        found = start_up(record, row, precision)
        return statistics.median(found) if found else None

    columns: dict[str, tuple[Callable[[str], float | None], str]] = {
        "parameters": (parameters, "{:,}"),
        "training peak, MiB": (mebibytes(TRAINING), "{:.0f}"),
        "decoding peak, MiB": (mebibytes(DECODING), "{:.0f}"),
        "start-up, s": (seconds, "{:.2f}"),
    }
    lines = [["row", "beside", *columns]]
    for row, about in rows.items():
        cells = []
        for amount_of, form in columns.values():
            own, other = amount_of(row), amount_of(about["beside"])
            share = f" ({own / other:.2f})" if own is not None and other and row != about["beside"] else ""
            cells.append(NOTHING if own is None else form.format(own) + share)
        lines.append([row, _beside(record, row), *cells])
    return markdown(lines)
