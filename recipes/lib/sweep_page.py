"""Tables of a sweep's record, by the names that pages have for them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import sweep_claims
from evaluate import baselines_of
from sweep_numbers import chances, difference, score_of, seeds_of, spread
from sweep_plan import SEEDS, SYSTEMS, Record, Run

from fairseq_depthwise import tables
from recipes import RECIPES, system_of

Rows = list[list[str]]


def tables_of(record: Record) -> dict[str, str]:
    """Return the tables of a record by name."""
    scored = {system: seeds for system in SYSTEMS if (seeds := seeds_of(record, system))}
    made: dict[str, Rows] = {
        "scores": _scores(record, scored),
        "differences": _differences(record, list(scored)),
        "rates": _rates(record),
        "dropouts": _dropouts(record),
        "claims": list(sweep_claims.rows(record)),
        "summary": _summary(record, scored),
    }
    found = {name: tables.markdown(rows) for name, rows in made.items()}
    return found | {"facts": "".join(f"- {line}.\n" for line in _facts(record, scored))}


Scored = dict[str, dict[int, dict[str, Any]]]


def _scores(record: Record, scored: Scored) -> Rows:
    metrics = RECIPES[record.content["recipe"]].metrics
    rows = [["system", "parameters", "rate", "seeds", "updates", "minutes", "loss", *metrics]]
    for system, seeds in scored.items():
        results = list(seeds.values())
        rows.append(
            [
                f"`{system}`",
                f"{results[0]['parameters']:,}",
                f"{results[0]['rate']:g}",
                str(len(seeds)),
                spread([result["updates"] for result in results], 0),
                spread([result["cpu_seconds"] / 60 for result in results], 0),
                spread([result["best_loss"] for result in results], 3),
                *(spread([result["metrics"][name]["score"] for result in results], 2) for name in metrics),
            ]
        )
    return rows


def _differences(record: Record, systems: list[str]) -> Rows:
    """Each system's from every baseline of it that was trained with the same seed."""
    recipe = record.content["recipe"]
    rows = [["system", "baseline", "seeds", f"difference in {RECIPES[recipe].metrics[0]}", "p, of each seed"]]
    for system in systems:
        for baseline in baselines_of(recipe, system_of(recipe, system)):
            if found := difference(record, system, baseline):
                seeds, scores = str(len(found.scores)), spread(found.scores, 2, "+")
                rows.append([f"`{system}`", f"`{baseline}`", seeds, scores, chances(found)])
    return rows


def _rates(record: Record) -> Rows:
    rows = [["system", *(f"{rate:g}" for rate in record.rates), "taken"]]
    for system in SYSTEMS:
        tried = [record.of(Run(record.content["recipe"], system, 1, rate)) for rate in record.rates]
        if any(tried):
            taken = record.rate(system)
            edge = " (edge)" * (taken in (record.rates[0], record.rates[-1]))
            rows.append([f"`{system}`", *map(_loss, tried), f"{taken:g}{edge}" if taken else "-"])
    return rows


def _dropouts(record: Record) -> Rows:
    """Losses by update of short trainings: systems with another dropout, and their baselines at the same rate."""
    recipe, rows = record.content["recipe"], [["system", "rate", "dropout"]]
    for system in (name for name in SYSTEMS if "dropout" in system_of(recipe, name).differs):
        for rate in record.rates:
            names = [name for name in (system_of(recipe, system).baseline, system) if name]
            found = [record.of(Run(recipe, name, 1, rate)) for name in names]
            if not all(result is not None and "curve" in result for result in found):
                continue
            for name, result in zip(names, found, strict=True):
                assert result is not None
                rows[0] = [*rows[0][:3], *(str(update) for update, _ in result["curve"])]
                dropout = system_of(recipe, name).training.dropout.residual
                losses = [f"{loss:.3f}" for _, loss in result["curve"]]
                rows.append([f"`{name}`", f"{rate:g}", f"{dropout:g}", *losses])
    return rows


def _summary(record: Record, scored: Scored) -> Rows:
    """For readers who do not know the systems' names."""
    recipe, first = record.content["recipe"], SYSTEMS[0]
    rows = [["system", "parameters", "seeds", RECIPES[recipe].metrics[0], "difference", "p"]]
    for system in (name for name in RECIPES[recipe].systems if name in scored):
        results = list(scored[system].values())
        found = difference(record, system, first) if system != first else None
        size, scores = f"{results[0]['parameters'] / 1e6:.2f} M", [score_of(record, result) for result in results]
        compared = [spread(found.scores, 2, "+"), chances(found)] if found else ["", ""]
        rows.append([system_of(recipe, system).about, size, str(len(results)), spread(scores, 2), *compared])
    return rows


def _facts(record: Record, scored: Scored) -> Iterator[str]:
    """Yield what is missing, what failed, and what it was measured with and by."""
    recipe, failed = record.content["recipe"], dict(_failed(record))
    missing: dict[str, list[str]] = {}  # which seeds -> of which systems
    for system in SYSTEMS:
        names = {seed: Run(recipe, system, seed).name for seed in SEEDS if seed not in scored.get(system, {})}
        if not record.has_failed(system) and (left := [seed for seed, name in names.items() if name not in failed]):
            missing.setdefault(", ".join(map(str, left)), []).append(f"`{system}`")
    for seeds, systems in missing.items():
        yield f"Still to be trained, seed {seeds}: {', '.join(systems)}"
    reasons = ", ".join(f"`{name}` (`{reason}`)" for name, reason in failed.items())
    yield f"Failed or diverged: {reasons or 'none'}"
    runs = [result for result in record.content["runs"].values() if "failed" not in result]
    for what in ("processor", "commit"):
        yield f"{what.capitalize()}: {', '.join(sorted({str(result[what]) for result in runs})) or '-'}"
    options = sorted({" ".join(result.get("options", [])) for result in runs} - {""})
    yield f"Further options of every training: {', '.join(f'`{given}`' for given in options) or 'none'}"
    yield f"Versions: {'; or '.join(sorted({', '.join(map(' '.join, result['versions'].items())) for result in runs}))}"
    metrics = {(name, metric["signature"]) for result in runs for name, metric in result.get("metrics", {}).items()}
    yield from (f"{name}: `{signature}`" for name, signature in sorted(metrics))
    yield f"All numbers: [records/sweep_{recipe}.json](records/sweep_{recipe}.json)"


def _failed(record: Record) -> Iterator[tuple[str, str]]:
    """Yield the trainings that ended with an error, or whose loss is not finite or no better than at first, and why."""
    for name, result in record.content["runs"].items():
        if "failed" in result:
            words = " ".join(str(result["failed"]).split())
            yield name, words.replace("`", "'").replace("<!--", "<! --").replace("-->", "-- >")
        elif not math.isfinite(result["loss"]) or result["loss"] >= result["curve"][0][1]:
            yield name, f"loss {result['loss']:g}"


def _loss(result: dict[str, Any] | None) -> str:
    if result is None:
        return "-"
    return "failed" if "failed" in result else f"{result['loss']:.3f}"
