"""The page that ``results.py`` writes: its head, and what the sections of several parts have in common."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from results_part import Numbers

LINE = 118


def page(sections: Iterable[Iterable[str]]) -> str:
    """The page as Markdown."""
    lines = [
        "## Small models",
        "",
        "Made by `benchmarks/results.py`, which prints and runs the commands below, one after the other. Losses are as",
        "fairseq logs them: bits a token, label smoothing included unless it says otherwise.",
    ]
    for section in sections:
        lines += ["", *section]
    return "\n".join([*lines, ""])


def circumstances(part: Numbers, before: Numbers | None = None) -> Iterator[str]:
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
    if before and lines == list(circumstances(before)):
        lines = ["Text, machine, versions and seed are those above; one run of each."]
    yield from lines


def measured(run: Numbers, scored: Numbers) -> list[str]:
    """The cells of a trained model's last losses and of its scores."""
    last = list(run["valid"].values())[-1]
    scores = (scored[metric]["score"] for metric in ("BLEU", "chrF2"))
    return [f"{last['loss']:.3f}", f"{last['nll_loss']:.3f}", *scores]


def bootstrap(scores: Numbers, names: Mapping[str, str], baseline: str) -> Iterator[str]:
    """What sacreBLEU's paired bootstrap says of each model, and the signatures.

    Args:
        scores: of ``results_training.read_scores``.
        names: what each model is called in the table.
        baseline: what the first is called in the sentence above it.
    """
    yield from (
        f"sacreBLEU's paired bootstrap against {baseline}: the mean of the resampled scores with its 95 % interval, "
        "and the",
        f"probability of a difference from {baseline} at least this large if the two were alike.",
        "",
        "| model | BLEU | p | chrF | p |",
        "|---|---|---|---|---|",
    )
    for name, scored in scores["systems"].items():
        bleu, chrf = (scored[metric] for metric in ("BLEU", "chrF2"))
        yield row(names[name], bleu["interval"], bleu["p"], chrf["interval"], chrf["p"])
    yield from ("", *(f"- {metric}: `{signature}`" for metric, signature in scores["signatures"].items()))


def commands(part: Numbers, before: Numbers | None = None) -> Iterator[str]:
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


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
