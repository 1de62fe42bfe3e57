"""What the benchmark ``depthwise.py`` measured, as Markdown tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from side_by_side import BEAM, TYPES, quartiles, ratios

TRAINING, DECODING, CELL = "training", "decoding", "cell"

#: (part, device, precision) -> how many times as fast the project wants to be at least.
SPEED_BARS = {
    (TRAINING, "cpu", "fp32"): 0.8,
    (TRAINING, "cpu", "bf16"): 1.0,
    (TRAINING, "cuda", "bf16"): 1.0,
    **{(DECODING, "cpu", precision): 1.3 for precision in TYPES},
    **{(DECODING, "cuda", precision): 1.0 for precision in TYPES},
    **{(CELL, "cuda", precision): 1.5 for precision in TYPES},
}

#: Part of the plain form's peak memory that a kernel of the cell may take at most.
MEMORY_BAR = 0.7

#: The name of the cell's plain form, which its kernels are compared with.
PLAIN = "plain"

NOTHING = "-"


@dataclass
class Result:
    """One line of a table.

    Args:
        part: training, decoding or cell.
        device: ``cpu`` or ``cuda``.
        precision: ``fp32`` or ``bf16``.
        case: decoding: sentences in a batch; cell: the kernel.
        seconds: of each round; the first name is what the second one is compared with.
        amounts: target tokens, sentences or passes of each round.
        memory: name -> bytes at the peak; empty where it was not measured.
        steps: decoding: name -> how often the decoder ran in each round.
    """

    part: str
    device: str
    precision: str
    case: str
    seconds: dict[str, list[float]]
    amounts: list[int]
    memory: dict[str, int] = field(default_factory=dict)
    steps: dict[str, list[int]] = field(default_factory=dict)

    @property
    def speed(self) -> list[float]:
        """How many times as fast as what it is compared with, round by round."""
        return ratios(self.seconds, *self.seconds)

    @property
    def speed_bar(self) -> float | None:
        return SPEED_BARS.get((self.part, self.device, self.precision))

    @property
    def memory_share(self) -> float | None:
        """Peak memory as a share of what it is compared with; None where there is none to compare with."""
        first, second = (self.memory.get(name, 0) for name in self.seconds)
        return second / first if first > 0 else None

    def as_numbers(self) -> dict[str, Any]:
        """Everything, raw and computed, for JSON."""
        low, middle, high = quartiles(self.speed)
        computed = {"median": middle, "lower_quartile": low, "upper_quartile": high, "bar": self.speed_bar}
        return {**asdict(self), "speed": computed, "memory_share": self.memory_share}


def page(setup: dict[str, Any], results: Sequence[Result], notices: Sequence[str]) -> str:
    """The program's section of the page.

    Args:
        setup: what was compared and where, see ``depthwise.setup_of``.
        results: the tables' lines.
        notices: sentences about what ran otherwise than asked for, or not at all.
    """
    lines = [*_head(setup)]
    for part, table in ((TRAINING, _training), (DECODING, _decoding), (CELL, _cell)):
        chosen = [result for result in results if result.part == part]
        if chosen:
            lines += ["", *table(chosen)]
    if notices:
        lines += ["", "Said by the program:", "", *(f"- {sentence}" for sentence in notices)]
    return "\n".join([*lines, ""])


def _head(setup: dict[str, Any]) -> Iterator[str]:
    yield from (
        "# The depth-wise LSTM Transformer beside stock fairseq's Transformer",
        "",
        f"Made by `{setup['command']}`:",
        "both by turns in one process, the same sentences, fairseq's own trainer and beam search. A ratio is stock",
        "fairseq's seconds by ours within one round (above 1: ours is faster); given are",
        f"medians and quartiles of {setup['rounds']} rounds, after at least {setup['warm_up']} to warm up.",
        "Peaks are of each side alone, from before its model is built: on a CPU what a process of its own grew by,",
        "PyTorch's code that is loaded meanwhile included; on a GPU what PyTorch allocated.",
        "",
        f"- Machine: {setup['machine']}; threads of PyTorch: {setup['threads']}.",
        f"- Versions: {setup['versions']}.",
        f"- Sentences: random subwords of a joined dictionary of {setup['vocabulary']}, lengths like newstest's",
        "  (log-normal around 25, from 5 to 80), batches of like lengths, sources padded left.",
        *(f"- {sentence}" for sentence in setup["batches"]),
        "",
        "| side | architecture | options | parameters |",
        "|---|---|---|---|",
    )
    for name, side in setup["sides"].items():
        yield f"| {name} | `{side['arch']}` | `{' '.join(side['options'])}` | {side['parameters']:,} |"
    yield from (
        "",
        "fairseq registers the weights of its own encoder layers twice ([compatibility](compatibility.md)): the copies",
        "are in stock's number of parameters, and in bf16 in its optimizer too.",
    )


def _training(results: Sequence[Result]) -> Iterator[str]:
    yield from (
        "## Training step",
        "",
        "`Trainer.train_step`: forward, backward and Adam's update; label smoothing 0.1, dropout 0.1, tied embeddings.",
        "",
        "| precision | stock tokens/s | our tokens/s | ratio | quartiles | bar | met | stock peak MiB | our peak MiB |",
        "|---|---|---|---|---|---|---|---|---|",
    )
    for one in results:
        yield _row(one.precision, *_rates(one, "{:.0f}"), *_speed(one), *_memory(one))


def _decoding(results: Sequence[Result]) -> Iterator[str]:
    yield from (
        "## Decoding",
        "",
        f"Beam {BEAM} after `prepare_for_inference_`. The models are untrained, so every sentence is made as long as",
        "its batch's padded sources. Steps: how often the decoder ran for a batch, fewest to most.",
        "",
        "| precision | batch | stock sentences/s | our sentences/s | ratio | quartiles | bar | met | steps "
        "| stock peak MiB | our peak MiB |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    )
    for one in results:
        yield _row(one.precision, one.case, *_rates(one, "{:.2f}"), *_speed(one), _steps(one), *_memory(one))


def _cell(results: Sequence[Result]) -> Iterator[str]:
    yield from (
        "## The cell alone",
        "",
        "One pass forward and backward in training, against the cell's plain form; the peak is what a pass needs on",
        "top of weights and inputs.",
        "",
        "| precision | kernel | plain ms | kernel ms | ratio | quartiles | bar | met "
        "| plain peak MiB | kernel peak MiB | share | bar | met |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    )
    for one in results:
        passes = one.amounts[0]
        times = (f"{1000 * statistics.median(seconds) / passes:.2f}" for seconds in one.seconds.values())
        share = one.memory_share
        if share is None:
            memory = (NOTHING, NOTHING, NOTHING)
        else:
            memory = (f"{share:.2f}", f"{MEMORY_BAR:g}", _verdict(share <= MEMORY_BAR))
        yield _row(one.precision, one.case, *times, *_speed(one), *_memory(one), *memory)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _rates(result: Result, form: str) -> Iterator[str]:
    """Tokens or sentences per second of both, medians over the rounds."""
    for seconds in result.seconds.values():
        rates = [amount / taken for amount, taken in zip(result.amounts, seconds, strict=True)]
        yield form.format(statistics.median(rates))


def _speed(result: Result) -> tuple[str, str, str, str]:
    """The columns ratio, quartiles, bar, met."""
    low, middle, high = quartiles(result.speed)
    bar = result.speed_bar
    met = (NOTHING, NOTHING) if bar is None else (f"{bar:g}", _verdict(middle >= bar))
    return f"{middle:.3f}", f"{low:.3f} - {high:.3f}", *met


def _verdict(met: bool) -> str:
    return "yes" if met else "**no**"


def _memory(result: Result) -> Iterator[str]:
    for name in result.seconds:
        yield f"{result.memory[name] / 2**20:.0f}" if name in result.memory else NOTHING


def _steps(result: Result) -> str:
    first, second = (result.steps[name] for name in result.seconds)
    if first == second:
        return f"{min(first)} - {max(first)}"
    return f"**not the same**: {sum(first)} and {sum(second)} in all"
