"""What the benchmark ``units.py`` measured, as Markdown tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from side_by_side import quartiles, ratios

TRAINING, DECODING = "training", "decoding"

#: Names of what is measured; :func:`units_name` makes the others.
STOCK, LOOP, SEQUENTIAL, ENCODER = "stock", "loop ", "biased, sequential ", "encoder"

#: (device, units) -> how many times as fast as the loop training is to be at least.
LOOP_BARS = {("cuda", 4): 1.5, ("cpu", 4): 1.0}

#: Units -> how fast decoding on a GPU is to be beside one unit; the paper has 0.969 and 0.933.
DECODING_BARS = {4: 0.97, 6: 0.93}

#: How fast decoding with one unit is to be beside stock fairseq.
STOCK_BAR = 1.0

NOTHING = "-"
Numbers = Mapping[str, Any]


def units_name(units: int) -> str:
    return f"units {units}"


def page(setup: Numbers, results: Sequence[Numbers]) -> str:
    """The program's section of the page."""
    lines = [*_head(setup)]
    for part, table in ((TRAINING, _training), (DECODING, _decoding)):
        chosen = [result for result in results if result["part"] == part]
        if chosen:
            lines += ["", *table(setup, chosen)]
    return "\n".join([*lines, ""])


def _head(setup: Numbers) -> Iterator[str]:
    yield from (
        "# The Multi-Unit Transformer by the number of units",
        "",
        f"Made by `{setup['command']}`:",
        "all by turns in one process, the same sentences, fairseq's own trainer and beam search. Ratios are taken",
        f"within a round (above 1: the first is faster); given are medians and quartiles of {setup['rounds']} rounds.",
        "Stock is fairseq's pre-norm `transformer`, which has no relative positions; ours has them in every",
        "self-attention, so one unit is the paper's baseline with relative positions.",
        "",
        f"- Machine: {setup['machine']}; device {setup['device']}, threads of PyTorch: {setup['threads']}.",
        f"- Versions: {setup['versions']}.",
        f"- Sentences: random subwords of a joined dictionary of {setup['vocabulary']}, lengths like newstest's",
        "  (log-normal around 25, from 5 to 80), batches of like lengths, sources padded left.",
        f"- Training batches of {', '.join(map(str, setup['tokens']))} target tokens by turns.",
        *([f"- Options of all models: `{setup['options']}`."] if setup["options"] else []),
        "- Parameters, without the second copies that stock never reads: "
        + ", ".join(f"{name} {count:,}" for name, count in setup["parameters"].items())
        + ".",
    )


def _training(setup: Numbers, results: Sequence[Numbers]) -> Iterator[str]:
    yield from (
        "## Training steps of units",
        "",
        "`Trainer.train_step`: forward, backward and Adam's update; label smoothing 0.1, dropout 0.1, tied embeddings.",
        '"Biased, sequential" has noise in every layer of every step. The loop calls an ordinary attention and an',
        "ordinary feed-forward net for one unit after the other; with one unit stock fairseq stands in its place.",
        "",
        "| precision | model | tokens/s | beside | tokens/s | ratio | quartiles | bar | met | time by one unit's "
        "| peak MiB | beside: peak MiB |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    )
    for one in results:
        seconds = one["seconds"]
        other, own = list(seconds)[:2]
        low, middle, high = quartiles(ratios(seconds, other, own))
        bar = None if other == STOCK else LOOP_BARS.get((setup["device"], int(own.rsplit(" ", 1)[-1])))
        relative = statistics.median(ratios(seconds, own, units_name(1)))
        yield _row(
            one["precision"], own, _rate(one, own, "{:.0f}"), other.strip(), _rate(one, other, "{:.0f}"),
            f"{middle:.3f}", f"{low:.3f} - {high:.3f}", *_bar(middle, bar), f"{relative:.2f}",
            _memory(one, own), _memory(one, other),
        )  # fmt: skip


def _decoding(setup: Numbers, results: Sequence[Numbers]) -> Iterator[str]:
    on_cpu = setup["device"] == "cpu"
    yield from (
        "## Decoding with units",
        "",
        f"Beam {setup['beam']} after `prepare_for_inference_`. The models are untrained, so every sentence is made as",
        "long as its batch's padded sources. The bar of one unit is stock fairseq's speed"
        + ("; n units may add at" if on_cpu else "; that of n units is"),
        "most n - 1 times the encoder's share of one unit's time." if on_cpu else "a share of one unit's speed.",
        "",
        "| precision | batch | model | sentences/s | by stock's | by one unit's | quartiles | bar | met | peak MiB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    )
    for one in results:
        seconds = one["seconds"]
        first = units_name(1)
        share = statistics.median(ratios(seconds, ENCODER, first))
        for name in seconds:
            if name == ENCODER:
                continue
            units = 0 if name == STOCK else int(name.rsplit(" ", 1)[-1])
            by_stock, by_one = (ratios(seconds, other, name) for other in (STOCK, first))
            shown = by_stock if units == 1 else by_one
            low, middle, high = quartiles(shown)
            bar = None
            if units == 1:
                bar = STOCK_BAR
            elif units > 1:
                bar = 1 / (1 + (units - 1) * share) if on_cpu else DECODING_BARS.get(units)
            yield _row(
                one["precision"], str(one["batch"]), name, _rate(one, name, "{:.2f}"),
                f"{statistics.median(by_stock):.3f}", f"{statistics.median(by_one):.3f}", f"{low:.3f} - {high:.3f}",
                *_bar(middle, bar), _memory(one, name),
            )  # fmt: skip
        yield _row(
            one["precision"], str(one["batch"]), "the encoder of units 1 alone", "", "", f"{share:.1%} of its time",
            *([""] * 4),
        )  # fmt: skip


def _rate(result: Numbers, name: str, form: str) -> str:
    rates = [amount / taken for amount, taken in zip(result["amounts"], result["seconds"][name], strict=True)]
    return form.format(statistics.median(rates))


def _memory(result: Numbers, name: str) -> str:
    peak = result["memory"].get(name)
    return NOTHING if peak is None else f"{peak / 2**20:.0f}"


def _bar(value: float, bar: float | None) -> tuple[str, str]:
    return (NOTHING, NOTHING) if bar is None else (f"{bar:.3g}", "yes" if value >= bar else "**no**")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
