"""The page that ``results.py`` writes, from the numbers of its parts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

#: What the models are called in tables.
NAMES = {
    "stock": "stock fairseq: `transformer`, pre-norm",
    "lstm": "`depthwise_lstm_transformer`",
    "rnn": "`depthwise_lstm_transformer --depthwise-cell rnn`",
}
LINE = 118

Numbers = Mapping[str, Any]


def page(comparison: Numbers | None, stability: Numbers | None) -> str:
    """The page as Markdown; a part that has not been measured is left out."""
    lines = [
        "# Results on real text",
        "",
        "Made by `benchmarks/results.py`, which prints and runs the commands below, one after the other. Losses are as",
        "fairseq logs them: bits a token, label smoothing included unless it says otherwise.",
    ]
    if comparison:
        lines += ["", *_comparison(comparison)]
    if stability:
        lines += ["", *_stability(stability, comparison)]
    return "\n".join([*lines, ""])


def _comparison(part: Numbers) -> Iterator[str]:
    settings, runs, scores = part["settings"], part["runs"], part["scores"]
    yield from (
        "## Beside stock fairseq",
        "",
        f"Each model: {settings['layers']} + {settings['layers']} layers, width {settings['width']}, "
        f"{settings['heads']} heads, hidden width {4 * settings['width']},",
        f"tied embeddings, {settings['updates']} updates of at most {settings['max_tokens']} tokens in fp32, peak "
        f"learning rate {settings['learning_rate']:g}",
        f"after {settings['warm_up']} updates. Data, updates, seed and all other settings are the same; the learning "
        "rate was set beforehand and",
        "tuned for none of them. Scores are of the test set, from the last checkpoint, beam 4.",
        "",
        *_circumstances(part),
        "",
        "| model | parameters | validation loss | without smoothing | BLEU | chrF | training s | tokens/s |",
        "|---|---|---|---|---|---|---|---|",
    )
    for name, run in runs.items():
        last = list(run["valid"].values())[-1]
        scored = scores["systems"][name]
        yield _row(
            NAMES[name], f"{run['parameters']:,}", f"{last['loss']:.3f}", f"{last['nll_loss']:.3f}",
            scored["BLEU"]["score"], scored["chrF2"]["score"], f"{run['seconds']:.0f}",
            f"{run['tokens_per_second']:.0f}",
        )  # fmt: skip
    yield from (
        "",
        "Seconds are those of the updates alone, without start, validation and saving; tokens/s are target tokens, the",
        "median of the log lines. The trainings ran one after the other, so both suffer from whatever else the machine",
        "did meanwhile; `benchmarks/depthwise.py` is what measures speed.",
        "",
        "Validation loss by update:",
        "",
        *_validations(runs),
        "",
        "sacreBLEU's paired bootstrap against stock: the mean of the resampled scores with its 95 % interval, and the",
        "probability of a difference from stock at least this large if the two were alike.",
        "",
        "| model | BLEU | p | chrF | p |",
        "|---|---|---|---|---|",
    )
    for name in runs:
        bleu, chrf = (scores["systems"][name][metric] for metric in ("BLEU", "chrF2"))
        yield _row(NAMES[name], bleu["interval"], bleu["p"], chrf["interval"], chrf["p"])
    yield from (
        "",
        *(f"- {metric}: `{signature}`" for metric, signature in scores["signatures"].items()),
        "",
        "One run of each model with one seed. The bootstrap resamples the test sentences only: what another seed would",
        "change is not in it. One seed and a budget that is a small fraction of what the models need cannot rank them.",
        "",
        *_commands(part),
    )


def _validations(runs: Numbers) -> Iterator[str]:
    """A table with a column for each validation."""
    updates = list(dict.fromkeys(number for run in runs.values() for number in run["valid"]))
    yield _row("model", *updates)
    yield "|---" * (len(updates) + 1) + "|"
    for name, run in runs.items():
        yield _row(NAMES[name], *(f"{run['valid'][number]['loss']:.3f}" for number in updates))


def _stability(part: Numbers, before: Numbers | None) -> Iterator[str]:
    """The section of the deep model; what it shares with the part before is not said again."""
    settings, runs = part["settings"], part["runs"]
    layers = settings["deep_layers"]
    parameters = next(iter(runs.values()))["parameters"]
    yield from (
        f"## {layers} + {layers} layers",
        "",
        f"`depthwise_lstm_transformer` with {layers} + {layers} layers, width {settings['deep_width']}, "
        f"{settings['heads']} heads, hidden width {4 * settings['deep_width']} ({parameters:,} parameters):",
        f"{settings['deep_updates']} updates of at most {settings['deep_max_tokens']} tokens, gradients not clipped. "
        "Adam and the peak learning rate, (512 * 8000)^-0.5 =",
        f"4.94e-4, are the papers'. Their 8000 updates of warm-up are shortened to {settings['deep_warm_up']}, so that "
        "the peak is reached; the",
        "papers' batches are many times larger too.",
        "",
        *_circumstances(part, before),
        "",
        "Each number is the mean of the ten updates up to that one.",
        "",
        _row("update", *(f"{name} {what}" for name in runs for what in ("loss", "gradient norm"))),
        "|---" * (2 * len(runs) + 1) + "|",
    )
    for update in shown_updates(settings["deep_updates"]):
        states = [run["train"].get(str(update)) for run in runs.values()]
        yield _row(str(update), *(f"{one[key]:.3f}" if one else "-" for one in states for key in ("loss", "gnorm")))
    yield ""
    for name, run in runs.items():
        finite = "are finite" if all_finite(run) else "are NOT all finite"
        highest = max((state["gnorm"] for state in run["train"].values()), default=math.nan)
        verdict = "diverged" if diverged(run, settings["deep_updates"], settings["deep_warm_up"]) else "did not diverge"
        yield f"- {name} {verdict}. The logged losses and gradient norms {finite}; the largest norm is {highest:.3f}."
    yield from (
        "",
        "Diverged means: a value is not finite, the training stopped early, or the last loss is above the one at the",
        f"end of warm-up (update {settings['deep_warm_up']}). One run of each, one seed, a narrow model, few updates",
        "and short sentences: this does not tell how a model of the papers' width trains to the end.",
        "",
        *_commands(part, before),
    )


def shown_updates(updates: int) -> list[int]:
    """The rows of the table: 10, every 50, and the last."""
    last = updates - updates % 10
    return sorted({10, *range(50, last + 1, 50), last})


def all_finite(run: Numbers) -> bool:
    """Whether every logged loss and gradient norm is a number."""
    return all(math.isfinite(value) for state in run["train"].values() for value in state.values())


def diverged(run: Numbers, updates: int, warm_up: int) -> bool:
    """Whether a value is not finite, the training stopped early, or it got worse after warm-up."""
    losses = {int(number): state["loss"] for number, state in run["train"].items()}
    if not losses or not all_finite(run) or max(losses) < updates - updates % 10:
        return True
    return losses[max(losses)] > losses[max(number for number in losses if number <= warm_up)]


def _circumstances(part: Numbers, before: Numbers | None = None) -> Iterator[str]:
    """The text, the machine and the versions."""
    settings, text = part["settings"], part["text"]
    lines = [
        f"- Text: `$CORPORA/{settings['corpus']}`, {settings['languages']}; {text['train']:,} pairs to train, "
        f"{text['valid']:,} to validate, {text['test']:,} to test;",
        f"  {settings['merges']} subword merges, joined dictionary of {text['dictionary']:,}.",
        f"- Machine: {part['about']['machine']}; threads of PyTorch: {settings['threads']}.",
        f"- Versions: {part['about']['versions']}.",
        f"- Seed {settings['seed']}; one run of each.",
    ]
    if before and lines == list(_circumstances(before)):
        lines = ["Text, machine, versions and seed are those above; one run of each."]
    yield from lines


def _commands(part: Numbers, before: Numbers | None = None) -> Iterator[str]:
    """What was run as a script, with the preparation of the text unless the part before has the same."""
    prepared = before is not None and before["prepared"] == part["prepared"]
    yield from (
        "<details><summary>Commands</summary>",
        "",
        f"`{part['made_by']}`",
        f"runs these{', after preparing the text as above' if prepared else ''}:",
        "",
        "```sh",
        f"export OMP_NUM_THREADS={part['settings']['threads']}",
    )
    for command in part["commands"] if prepared else [*part["prepared"], *part["commands"]]:
        yield from wrapped(command)
    yield from ("```", "", "</details>")


def wrapped(command: str) -> Iterator[str]:
    """A command on lines of bearable length, which are together the same command."""
    line = ""
    for word in re.findall(r"""(?:'[^']*'|"[^"]*"|\S)+""", command):
        if line and len(line) + len(word) + 1 > LINE:
            yield f"{line} \\"
            line = "  " + word
        else:
            line = f"{line} {word}" if line else word
    yield line


def read_scores(table: str, names: Sequence[str]) -> dict[str, Any]:
    """The scores in the table that ``sacrebleu --paired-bs -f text`` prints for NAME.hyp of each name.

    Its JSON would be easier to read; sacreBLEU 2.6.0 cannot write it for the results of this test.
    """
    systems: dict[str, Any] = {}
    current = ""
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split("\N{BOX DRAWINGS LIGHT VERTICAL}")[1:-1]]
        if len(cells) != 3:
            continue
        name = cells[0].removeprefix("Baseline: ").removesuffix(".hyp")
        if name in names:
            current = name
            systems[name] = {
                metric: {"score": cell.split()[0], "interval": cell.partition("(")[2].rstrip(")"), "p": ""}
                for metric, cell in zip(("BLEU", "chrF2"), cells[1:], strict=True)
            }
        elif not name and current:  # the line below a system that is not the baseline
            for metric, cell in zip(("BLEU", "chrF2"), cells[1:], strict=True):
                systems[current][metric]["p"] = cell.partition("= ")[2].rstrip(")* ")
    return {"systems": systems, "signatures": dict(re.findall(r"^ - (BLEU|chrF2)\s+(\S+)$", table, re.MULTILINE))}


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
