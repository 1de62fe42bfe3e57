"""Results of a recipe that runs on a CPU: trains and scores its systems with several seeds, and writes the section.

    python benchmarks/recipe_results.py multi30k --seeds 1 2 3
    python benchmarks/recipe_results.py multi30k --systems transformer depthwise_lstm --no-training

Everything is done by the recipe's own scripts; what is finished is not repeated, and a training that was stopped goes
on. ``--no-training`` writes the section of what has been trained so far. The numbers are kept in ``docs/records``, so
that seeds can be trained at different times and on different machines.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from option_types import file_to_write
from page_sections import write_section
from results import about

from fairseq_compat import UserError, checkpoints
from fairseq_compat.files import written_whole
from fairseq_depthwise import tables
from fairseq_depthwise.evaluation.checkpoint_summary import summarise
from fairseq_depthwise.evaluation.significance import spread
from fairseq_depthwise.reports.training_log import parse_log

RECIPES = Path(__file__).resolve().parent.parent / "recipes"
sys.path.append(str(RECIPES / "lib"))
from run_folder import FINISHED, run_folder, seeds_of  # noqa: E402  # found by the line above

#: Those that finish on a CPU.
SMALL = ("multi30k", "tatoeba_de_en")
TITLES = {"multi30k": "Multi30k", "tatoeba_de_en": "Tatoeba, German to English"}
SYSTEMS = ("transformer", "depthwise_lstm", "mute", "mute_sequential", "deep", "sdt")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", choices=SMALL)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], metavar="N")
    parser.add_argument("--work", type=Path, help="the recipe's WORK (default: runs/RECIPE)")
    parser.add_argument("--no-training", action="store_true", help="only what is there")
    parser.add_argument("--records", type=Path, default=Path("docs/records"), help="folder of the numbers as JSON")
    parser.add_argument("--output", type=file_to_write, default=Path("docs/results.md"))
    options = parser.parse_args(arguments)
    work = options.work or Path("runs") / options.recipe
    path = options.records / f"{options.recipe}.json"
    try:
        record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if not options.no_training:
            train(options.recipe, options.systems, options.seeds, work)
        record = with_runs(record, options.recipe, evaluate(options.recipe, options.systems, work), work)
        if not record["systems"]:
            raise UserError(f"{work}/systems has no trained system; leave --no-training out")
        path.parent.mkdir(exist_ok=True)
        with written_whole(path) as file:
            file.write((json.dumps(record, indent=1, sort_keys=True) + "\n").encode())
        write_section(options.output, f"recipe-{options.recipe}", section(record))
    except (UserError, OSError) as error:
        print(f"recipe_results: error: {error}", file=sys.stderr)
        return 1
    return 0


def train(recipe: str, systems: Sequence[str], seeds: Sequence[int], work: Path) -> None:
    """Prepare the text and train every system with every seed, one after the other."""
    _script(recipe, "prepare.sh", work)
    for seed in seeds:
        for system in systems:
            _script(recipe, "train.sh", work, system, SEED=str(seed))


def evaluate(recipe: str, systems: Sequence[str], work: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """System -> seed -> what came of it, of all trainings that came to their end."""
    found = {}
    for system in systems:
        folders = {seed: run_folder({"WORK": str(work)}, system, seed) for seed in seeds_of(work, system)}
        finished = {seed: folder for seed, folder in folders.items() if (folder / FINISHED).exists()}
        if not finished:
            continue
        _script(recipe, "evaluate.sh", work, system, SEEDS=" ".join(finished))
        (path,) = work.glob(f"systems/{system}.*.scores.json")
        scores = json.loads(path.read_text(encoding="utf-8"))
        found[system] = {seed: read_training(folder) | about() for seed, folder in finished.items()}
        for metric, runs in scores["metrics"].items():
            for run in runs:
                found[system][run.pop("seed")].setdefault("metrics", {})[metric] = run
        for one in found[system].values():
            one["test"] = scores["test"]
    return found


def with_runs(
    record: Mapping[str, Any], recipe: str, found: Mapping[str, Mapping[str, Any]], work: Path
) -> dict[str, Any]:
    """What was known before, and the new runs; a run with the seed of an older one takes its place.

    Raises:
        UserError: the older runs had another training text, so nothing can be compared.
    """
    report = work / "text" / "train.report.txt"
    text = report.read_text(encoding="utf-8").splitlines() if report.exists() else record.get("text", [])
    if record and record["text"] != text:
        raise UserError(f"{report} says {'; '.join(text)}, and the record {'; '.join(record['text'])}; give --records")
    systems = {name: dict(runs) for name, runs in record.get("systems", {}).items()}
    for name, runs in found.items():
        systems.setdefault(name, {}).update(runs)
    return {"recipe": recipe, "text": text, "systems": systems}


def _script(recipe: str, name: str, work: Path, *arguments: str, **environment: str) -> None:
    command = ["bash", str(RECIPES / recipe / name), *arguments]
    variables = {key: value for key, value in os.environ.items() if key != "SEED"}
    variables |= {"WORK": str(work), "PYTHON": sys.executable, **environment}
    if status := subprocess.run(command, env=variables, stdout=sys.stderr).returncode:
        raise UserError(f"{' '.join(command)} ended with status {status}; what it printed above says why")


def read_training(folder: Path) -> dict[str, float]:
    """Parameters, updates and the last validation loss of a training."""
    last = str(folder / "checkpoints" / "checkpoint_last.pt")
    summary = summarise(checkpoints.load_checkpoint(last, mapped=True), last)
    log = (folder / "train.log").read_text(encoding="utf-8", errors="replace")
    losses = [
        reading.values["nll_loss"]
        for process in parse_log(log.splitlines(keepends=True))
        for reading in process.readings
        if reading.split == "valid"
    ]
    return {"parameters": summary.parameters, "updates": summary.updates or 0, "nll_loss": losses[-1]}


def section(record: Mapping[str, Any]) -> str:
    """The section of the page."""
    return "\n".join(_lines(record)) + "\n"


def _lines(record: Mapping[str, Any]) -> Iterator[str]:
    recipe = record["recipe"]
    systems = {name: record["systems"][name] for name in SYSTEMS if name in record["systems"]}
    runs = [run for seeds in systems.values() for run in seeds.values()]
    metrics = list(runs[0]["metrics"])
    yield f"## Recipe: {TITLES[recipe]}"
    yield ""
    yield f"Systems of [recipes/{recipe}](../recipes/{recipe}/README.md), trained and scored by its scripts; test set"
    yield f"`{runs[0]['test']}`, beam 4, length penalty 0.6, the mean of the last 5 epochs' checkpoints. All have the"
    yield "same data, batches, updates, peak rate and dropout, which were chosen beforehand and tuned for none of them."
    yield ""
    yield from (f"- Training text: {line}." for line in record["text"])
    for name in ("machine", "versions"):
        yield f"- {name.capitalize()}: {'; or '.join(sorted({run[name] for run in runs}))}."
    yield ""
    rows = [["system", "parameters", "updates", "seeds", "validation loss", *metrics]]
    for name, seeds in systems.items():
        ordered = [seeds[seed] for seed in sorted(seeds, key=int)]
        rows.append(
            [
                f"`{name}`",
                f"{ordered[-1]['parameters']:,.0f}",
                f"{ordered[-1]['updates']:,.0f}",
                str(len(seeds)),
                _with_spread([run["nll_loss"] for run in ordered], 3),
                *(_with_spread([run["metrics"][metric]["score"] for run in ordered], 2) for metric in metrics),
            ]
        )
    yield tables.markdown(rows)
    yield "Validation loss is in bits a token, without smoothing, after the last epoch. With several seeds a cell has"
    yield "mean and standard deviation, and all values behind them."
    yield ""
    yield f"Against the baseline of the same seed, by {metrics[0]}:"
    yield ""
    rows = [["system", "seed", "baseline", "its score", "score", "difference", "p"]]
    for name, seeds in systems.items():
        for seed in sorted(seeds, key=int):
            run = seeds[seed]["metrics"][metrics[0]]
            if "p" in run:
                difference = run["score"] - run["baseline_score"]
                numbers = [f"{run['baseline_score']:.2f}", f"{run['score']:.2f}", f"{difference:+.2f}"]
                rows.append([f"`{name}`", seed, f"`{run['baseline']}`", *numbers, f"{run['p']:.3f}"])
    yield tables.markdown(rows)
    yield "p: how often chance alone gives a difference as large, in either direction (paired bootstrap over the test"
    yield "sentences); what another seed would change is not in it."
    yield ""
    yield from (f"- {metric}: `{runs[0]['metrics'][metric]['signature']}`" for metric in metrics)
    yield ""
    yield f"All numbers: [records/{recipe}.json](records/{recipe}.json). Made by"
    yield ""
    yield "```sh"
    every = sorted({seed for seeds in systems.values() for seed in seeds}, key=int)
    yield f"python benchmarks/recipe_results.py {recipe} --systems {' '.join(systems)} --seeds {' '.join(every)}"
    yield "```"


def _with_spread(values: Sequence[float], digits: int) -> str:
    numbers = spread(values)
    if numbers.deviation is None:
        return f"{numbers.mean:.{digits}f}"
    behind = ", ".join(f"{value:.{digits}f}" for value in values)
    return f"{numbers.mean:.{digits}f} ± {numbers.deviation:.{digits}f} ({behind})"


if __name__ == "__main__":
    sys.exit(main())
