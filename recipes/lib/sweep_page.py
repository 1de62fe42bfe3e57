"""Tables of a sweep on pages: each stands between two comments with the recipe's name and its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import sweep_claims
from evaluate import baselines_of
from sweep_numbers import chances, difference, score_of, seeds_of, spread
from sweep_plan import RATES, SEEDS, SYSTEMS, Record, Run

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_depthwise import tables
from recipes import RECIPES, system_of


def write_tables(pages: Sequence[Path], records: Sequence[Record]) -> None:
    """Put the tables of the records between their comments on pages.

    Raises:
        UserError: a page is missing, has none of the comments, or one without its end; no page is written then.
    """
    texts = {page: _with_tables(page, records) for page in pages}
    for page, text in texts.items():
        with atomic_write(page) as file:
            file.write(text.encode())


def _with_tables(page: Path, records: Sequence[Record]) -> str:
    if not page.is_file():
        raise UserError(f"--page {page} is not a file; give a page that has comments for tables")
    try:
        text = page.read_bytes().decode("utf-8")  # with its ends of lines as they are
    except UnicodeDecodeError as error:
        raise UserError(f"--page {page} is not text in UTF-8; give a page of Markdown") from error
    found = False
    for record in records:
        for part, lines in PARTS.items():
            name = " ".join(filter(None, ("sweep", record.content["recipe"], part)))
            begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
            if begin not in text:
                continue
            found = True
            head, _, rest = text.partition(begin)
            _, closed, tail = rest.partition(end)
            if not closed:
                raise UserError(f"--page {page} lacks the comment {end.strip()}")
            text = head + begin + "\n" + "\n".join(lines(record)).rstrip() + "\n\n" + end + tail
    if not found:
        recipes = ", ".join(record.content["recipe"] for record in records)
        raise UserError(f"--page {page} lacks a comment such as <!-- sweep RECIPE -->, RECIPE being one of {recipes}")
    return text


def _scored(record: Record) -> dict[str, dict[int, dict[str, Any]]]:
    """Return system -> seed -> what came of it, for those that have been scored."""
    found = {system: seeds_of(record, system) for system in SYSTEMS}
    return {system: seeds for system, seeds in found.items() if seeds}


def section(record: Record) -> Iterator[str]:
    """Yield the lines of a recipe's tables."""
    recipe = record.content["recipe"]
    runs = [result for result in record.content["runs"].values() if "failed" not in result]
    by_system = _scored(record)
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
    yield f"- Failed or diverged: {_failed(record) or 'none'}."
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


def _row(recipe: str, system: str, seeds: dict[int, dict[str, Any]]) -> list[str]:
    results = list(seeds.values())
    return [
        f"`{system}`",
        f"{results[0]['parameters']:,}",
        f"{results[0]['rate']:g}",
        str(len(seeds)),
        spread([result["updates"] for result in results], 0),
        spread([result["cpu_seconds"] / 60 for result in results], 0),
        spread([result["best_loss"] for result in results], 3),
        *(spread([result["metrics"][name]["score"] for result in results], 2) for name in RECIPES[recipe].metrics),
    ]


def _comparisons(record: Record, systems: Iterable[str]) -> Iterator[str]:
    """Yield the table of differences, each system's from every baseline of it that was trained with the same seed."""
    recipe = record.content["recipe"]
    rows = [["system", "baseline", "seeds", f"difference in {RECIPES[recipe].metrics[0]}", "p, of each seed"]]
    for system in systems:
        for baseline in baselines_of(recipe, system_of(recipe, system)):
            if found := difference(record, system, baseline):
                seeds, scores = str(len(found.scores)), spread(found.scores, 2, "+")
                rows.append([f"`{system}`", f"`{baseline}`", seeds, scores, chances(found)])
    if len(rows) > 1:
        yield "Differences from baselines of the same seed. p: sacreBLEU's paired bootstrap over the test sentences, of"
        yield "one direction (for either it is about twice as much) and not corrected for the number of rows; what"
        yield "another seed changes is in the deviation."
        yield ""
        yield tables.markdown(rows)


def summary(record: Record) -> Iterator[str]:
    """Yield the lines of a short table, for readers who do not know the systems' names."""
    recipe = record.content["recipe"]
    rows = [["system", "parameters", "seeds", RECIPES[recipe].metrics[0], "difference", "p", "minutes"]]
    scored = _scored(record)
    first = SYSTEMS[0]
    for system in RECIPES[recipe].systems:
        if not (seeds := scored.get(system)):
            continue
        results = list(seeds.values())
        found = difference(record, system, first) if system != first else None
        rows.append(
            [
                system_of(recipe, system).about,
                f"{results[0]['parameters'] / 1e6:.2f} M",
                str(len(seeds)),
                spread([score_of(record, result) for result in results], 2),
                spread(found.scores, 2, "+") if found else "",
                chances(found) if found else "",
                spread([result["cpu_seconds"] / 60 for result in results], 0).split(" ")[0],
            ]
        )
    yield tables.markdown(rows)


def claims(record: Record) -> Iterator[str]:
    """Yield the lines of the table of claims."""
    yield tables.markdown(list(sweep_claims.rows(record)))
    yield from sweep_claims.RULE


#: The second name of the comments -> what stands between them.
PARTS: dict[str, Callable[[Record], Iterator[str]]] = {"": section, "summary": summary, "claims": claims}


def _failed(record: Record) -> str:
    """Return the trainings that ended with an error, or whose loss is not finite or no better than at first."""
    failed = []
    for name, result in record.content["runs"].items():
        if "failed" in result:
            failed.append(f"`{name}` ({result['failed']})")
        elif not math.isfinite(result["loss"]) or result["loss"] >= result["curve"][0][1]:
            failed.append(f"`{name}` (loss {result['loss']})")
    return ", ".join(failed)


def _metrics(result: dict[str, Any]) -> dict[str, Any]:
    return result.get("metrics", {})


def _loss(result: dict[str, Any] | None) -> str:
    if result is None:
        return "-"
    return "failed" if "failed" in result else f"{result['loss']:.3f}"
