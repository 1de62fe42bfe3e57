"""Tables of trainings: of ``results.py`` and of ``proxy.py``, and losses by update of any program."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from record import Record

from fairseq_depthwise.tables import spread

NOTHING = "-"

Lines = Sequence[Sequence[str]]
Tables = Iterator[tuple[str, Lines | str]]


def whole(numbers: Mapping[Any, Any]) -> dict[int, Any]:
    """Return the numbers with whole numbers as keys, of which JSON makes texts."""
    return {int(key): value for key, value in numbers.items()}


def losses_by_update(curves: Mapping[str, Mapping[int, float]]) -> Lines:
    """Return validation losses by update, at most seven columns."""
    updates = sorted({update for curve in curves.values() for update in curve})
    updates = updates[::-1][:: -(-len(updates) // 7)][::-1]
    lines = [["model", *map(str, updates)]]
    for name, curve in curves.items():
        lines.append([name, *(f"{curve[update]:.3f}" if update in curve else NOTHING for update in updates)])
    return lines


def forms(record: Record) -> Tables:
    """Make a table of each size of ``proxy.py``, and one of its search: losses and the difference from a base."""
    runs = {tuple(name.split(":")): run for name, run in record["runs"].items()}
    for size, title, base in (("long", "long", "stock"), ("short", "short", "stock"), ("long", "search", "open")):
        chosen = [key for key in runs if key[0] == size and (title == "search") == key[1].startswith("open-")]
        updates = [update for update, _ in runs[chosen[0]]["valid"]] if chosen else []
        lines = [["form", "seed", *map(str, updates), "training sentences", f"from `{base}`", "options"]]
        for key in sorted(chosen, key=lambda key: (list(record["runs"]).index(":".join((*key[:2], "1"))), key[2])):
            losses, last = [loss for _, loss in runs[key]["valid"]], runs[key]["seen"][-1][1]
            other = runs.get((size, base, key[2]))
            difference = NOTHING if other is None or key[1] == base else f"{losses[-1] - other['valid'][-1][1]:+.3f}"
            cells = [f"{loss:.3f}" for loss in (*losses, last)]
            lines.append([f"`{key[1]}`", key[2], *cells, difference, f"`{runs[key]['options']}`"])
        yield title, lines


def results(record: Record) -> Tables:
    if "outputs" in record:
        yield "trainings", "".join(["```sh\n", *(f"{command}\n" for command in record["trainings"].values()), "```\n"])
        for name, output in record["outputs"].items():
            printed = "\n".join(line.rstrip() for line in output["printed"].strip("\n").split("\n"))
            shown = f"\n```text\n{printed}\n```\n" if printed else ""
            yield name.removesuffix(".txt"), f"```sh\n{output['command']}\n```\n{shown}"
        return
    runs = record["runs"]
    bleu, chrf = record["scores"]["sacrebleu"], record["scores"]["chrf"]
    lines = [["model", "parameters", "seeds", "validation loss", "without smoothing", "BLEU", "p", "chrF", "p",
              "length", "training s", "tokens/s"]]  # fmt: skip
    for name in runs:
        found = list(_of_seeds(record, name))
        final = [list(run["valid"].values())[-1] for run, *_ in found]
        seeds = str(len(found)) if "repeated" in record else NOTHING
        cells = [f"{runs[name]['parameters']:,}", seeds, *(spread([state[key] for state in final], 3) for key in
                 ("loss", "nll_loss"))]  # fmt: skip
        for metric in (1, 2):
            chances = [f"{p:.4f}" for scored in found for p in scored[metric].get("p_values", [])]
            cells += [spread([scored[metric]["mean"] for scored in found], 1), ", ".join(chances)]
        speed = [f"{statistics.fmean(run[key] for run, *_ in found):.0f}" for key in ("seconds", "tokens_per_second")]
        lengths = [run["length"] for run, *_ in found if "length" in run]  # which older records do not have
        lines.append([f"`{name}`", *cells, spread(lengths, 3) if lengths else NOTHING, *speed])
    yield "scores", lines
    curves = {name: {update: state["loss"] for update, state in whole(run["valid"]).items()}
              for name, run in runs.items()}  # fmt: skip
    yield "losses", losses_by_update({f"`{name}`": curve for name, curve in curves.items()})
    yield "signatures", "".join(f"- {metric['metric']}: `{metric['signature']}`\n" for metric in (bleu, chrf))


def _of_seeds(record: Record, name: str) -> Iterator[tuple[Any, Any, Any]]:
    """Yield what each seed of a run logged, and its BLEU and chrF beside the first run's of the same seed."""
    for seed, part in {"": record, **record.get("repeated", {})}.items():
        folders = list(part["runs"])
        if (folder := f"{name}-seed{seed}" if seed else name) in folders:
            place = folders.index(folder)
            scored = (part["scores"][metric]["systems"][place] for metric in ("sacrebleu", "chrf"))
            yield part["runs"][folder], *scored
