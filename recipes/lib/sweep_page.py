"""The tables of a sweep on a page: for each recipe the section between two comments with its name."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from evaluate import baselines_of
from sweep_plan import RATES, SEEDS, SYSTEMS, Record, Run

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_depthwise import tables
from fairseq_depthwise.evaluation.scores import TranslationMetric
from fairseq_depthwise.evaluation.sentence_counts import from_text, paired_bootstrap
from recipes import RECIPES, system_of


def write_tables(page: Path, records: Sequence[Record]) -> None:
    """Put each record's tables between its two comments on a page.

    Raises:
        UserError: the page is missing, or lacks the comments of a recipe.
    """
    if not page.is_file():
        raise UserError(f"--page {page} is not a file; give the page that has the comments of each recipe")
    try:
        text = page.read_bytes().decode("utf-8")  # with its ends of lines as they are
    except UnicodeDecodeError as error:
        raise UserError(f"--page {page} is not text in UTF-8; give a page of Markdown") from error
    for record in records:
        recipe = record.content["recipe"]
        begin, end = f"<!-- sweep {recipe} -->\n", f"<!-- end of sweep {recipe} -->\n"
        head, opened, rest = text.partition(begin)
        _, closed, tail = rest.partition(end)
        if not opened or not closed:
            raise UserError(f"--page {page} lacks the comment {(end if opened else begin).strip()}")
        text = head + begin + "\n" + "\n".join(section(record)).rstrip() + "\n\n" + end + tail
    with atomic_write(page) as file:
        file.write(text.encode())


def section(record: Record) -> Iterator[str]:
    """Yield the lines of a recipe's tables."""
    recipe = record.content["recipe"]
    runs = [result for result in record.content["runs"].values() if "failed" not in result]
    by_system = {system: _seeds(record, system) for system in SYSTEMS}
    by_system = {system: seeds for system, seeds in by_system.items() if seeds}
    if not runs:
        yield "Being made: no training has ended yet."
        return
    if by_system:
        yield tables.markdown(
            [_HEAD + list(RECIPES[recipe].metrics), *(_row(recipe, *item) for item in by_system.items())]
        )
        yield "Mean and standard deviation over seeds; loss: the lowest on the validation set, in bits a token without"
        yield "smoothing; minutes: of one core, which with a GPU is the time that starting its work took."
        yield ""
        yield from _comparisons(record, by_system)
    yield "Peak rates: validation loss at the end of the short trainings with seed 1."
    yield ""
    rows = [["system", *(f"{rate:g}" for rate in RATES), "taken"]]
    for system in SYSTEMS:
        tried = [record.of(Run(recipe, system, 1, rate)) for rate in RATES]
        if any(tried):
            taken = record.rate(system)
            edge = " (edge)" * (taken in (RATES[0], RATES[-1]))
            rows.append([f"`{system}`", *map(_loss, tried), f"{taken:g}{edge}" if taken else "-"])
    yield tables.markdown(rows)
    if any("edge" in row[-1] for row in rows):
        yield "Edge: the lowest or highest of the rates was the best, and one beyond it might be better still."
        yield ""
    missing: dict[str, list[str]] = {}  # which seeds -> of which systems
    for system in SYSTEMS:
        if seeds := [str(seed) for seed in SEEDS if seed not in by_system.get(system, {})]:
            missing.setdefault(", ".join(seeds), []).append(f"`{system}`")
    for seeds_left, systems in missing.items():
        yield f"- Still to be trained, seed {seeds_left}: {', '.join(systems)}."
    if missing:
        yield ""
    for what in ("processor", "commit"):
        yield f"- {what.capitalize()}: {', '.join(sorted({str(result[what]) for result in runs}))}."
    versions = sorted({", ".join(map(" ".join, result["versions"].items())) for result in runs})
    yield f"- Versions: {'; or '.join(versions)}."
    yield from sorted(
        {f"- {name}: `{metric['signature']}`." for result in runs for name, metric in _metrics(result).items()}
    )
    yield f"- All numbers: [records/sweep_{recipe}.json](records/sweep_{recipe}.json)."


_HEAD = ["system", "parameters", "rate", "seeds", "updates", "minutes", "loss"]


def _seeds(record: Record, system: str) -> dict[int, dict[str, Any]]:
    """Return seed -> what came of it, for the seeds that were trained and scored."""
    recipe = record.content["recipe"]
    seeds = range(1, 100)
    results = {seed: record.of(Run(recipe, system, seed)) for seed in seeds}
    return {seed: result for seed, result in results.items() if result and "metrics" in result}


def _row(recipe: str, system: str, seeds: dict[int, dict[str, Any]]) -> list[str]:
    results = list(seeds.values())
    return [
        f"`{system}`",
        f"{results[0]['parameters']:,}",
        f"{results[0]['rate']:g}",
        str(len(seeds)),
        _spread([result["updates"] for result in results], 0),
        _spread([result["cpu_seconds"] / 60 for result in results], 0),
        _spread([result["best_loss"] for result in results], 3),
        *(_spread([result["metrics"][name]["score"] for result in results], 2) for name in RECIPES[recipe].metrics),
    ]


def _comparisons(record: Record, by_system: dict[str, dict[int, dict[str, Any]]]) -> Iterator[str]:
    """Yield the table of differences, each system's from every baseline of it that was trained with the same seed."""
    recipe = record.content["recipe"]
    name = RECIPES[recipe].metrics[0]
    metric = TranslationMetric(name)
    rows = [["system", "baseline", "seeds", f"difference in {name}", "p, of each seed"]]
    for system, seeds in by_system.items():
        for baseline in baselines_of(recipe, system_of(recipe, system)):
            both = [seed for seed in seeds if seed in by_system.get(baseline, {})]
            if not both:
                continue
            differences, chances = [], []
            for seed in both:
                ours, theirs = (by_system[each][seed]["metrics"][name] for each in (system, baseline))
                differences.append(ours["score"] - theirs["score"])
                chances.append(paired_bootstrap(metric, *(from_text(scored["sentences"]) for scored in (theirs, ours))))
            rows.append(
                [
                    f"`{system}`",
                    f"`{baseline}`",
                    str(len(both)),
                    _spread(differences, 2, sign="+"),
                    ", ".join(f"{chance:.3f}" for chance in chances),
                ]
            )
    if len(rows) > 1:
        yield "Differences from baselines of the same seed. p: sacreBLEU's paired bootstrap over the test sentences, of"
        yield "one direction (for either it is about twice as much) and not corrected for the number of rows; what"
        yield "another seed changes is in the deviation."
        yield ""
        yield tables.markdown(rows)


def _metrics(result: dict[str, Any]) -> dict[str, Any]:
    return result.get("metrics", {})


def _loss(result: dict[str, Any] | None) -> str:
    if result is None:
        return "-"
    return "failed" if "failed" in result else f"{result['loss']:.3f}"


def _spread(values: Sequence[float], digits: int, sign: str = "") -> str:
    mean = f"{statistics.fmean(values):{sign},.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):,.{digits}f}"
