"""Scores a trained system of a recipe, beside what was published for it.

    python evaluate.py RECIPE SYSTEM
    python evaluate.py RECIPE SYSTEM --speed      how fast it decodes, instead

Averages the checkpoints that the paper averages, or as many as ``AVERAGE`` says (0: the best on the validation set),
translates the test sets with the paper's beam and length penalty, and prints every score that the paper reports, with
its signature; where its baseline, or that one's own, has been evaluated, the difference from it with a paired
bootstrap. All seeds of a system that were trained are scored, or those of ``SEEDS``. Below are means over test sets,
if there are several, and the hours of training with the share saved against the baseline's.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from made_of import digests, digests_in, is_made_of, making
from mean_scores import mean_scores, means_table
from recipe_step import languages_of, run_command_line, run_folder, run_step, say, seeds_of, whole_number
from result_tables import filled_table
from systems import System, Training
from training_times import times_table, training_times

from fairseq_compat import UserError, checkpoints
from fairseq_compat.belonging import file_digest
from fairseq_compat.files import atomic_write
from fairseq_depthwise import tables
from fairseq_depthwise.checkpoints import averaging
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.checkpoints.sizes import depths_in
from fairseq_depthwise.evaluation.scores import TranslationMetric, detokenize, join_compounds
from fairseq_depthwise.evaluation.significance import paired_test
from fairseq_depthwise.evaluation.translations import read_lines, read_translations
from recipes import RECIPES, Recipe, system_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument("system")
    parser.add_argument("--speed", action="store_true", help="measure how fast the system decodes, instead of scoring")
    options = parser.parse_args()
    recipe, system = RECIPES[options.recipe], with_average(system_of(options.recipe, options.system))
    work = Path(os.environ["WORK"])
    if options.speed:
        from decoding_speed import measure_speed

        measure_speed(options.recipe, options.system)
        return
    baselines = list(baselines_of(options.recipe, system))
    if recipe.many:
        from evaluate_languages import evaluate_languages

        evaluate_languages(options.recipe, options.system, system, work)
        print()
        print(times_table(training_times(options.system, baselines, [os.environ.get("SEED") or "1"])))
        return
    seeds = (os.environ.get("SEEDS") or os.environ.get("SEED") or "").split() or seeds_of(work, options.system)
    if not seeds:
        raise UserError(f"{work / 'systems'} has no {options.system}; train it first")
    if len({run_folder(os.environ, options.system, seed) for seed in seeds}) < len(seeds):
        raise UserError(f"SEEDS={' '.join(seeds)} has a seed twice, which would count twice in means; give it once")
    tests = read_lines(str(work / "data-bin" / "tests.txt"))
    for seed in seeds:
        folder = run_folder(os.environ, options.system, seed)
        checkpoint = checkpoint_of(system, folder)
        digest = file_digest(str(checkpoint))
        for number, test in enumerate(tests):
            subset = "test" if number == 0 else f"test{number}"
            translate(recipe, checkpoint, digest, results_of(folder), work / "data-bin", test, subset)
    name = f"{options.system}{averaged_name()}"
    published = system.published.get(options.recipe, ())
    documents = {}
    for test in tests:
        documents[test] = score_seeds(options.recipe, options.system, system, work, test, seeds)
        settings = f"{test}, beam {recipe.beam}, lenpen {recipe.length_penalty}"
        print(f"{options.recipe}, {name}: {system.about}; {settings}\n")
        print(report(documents[test], [score for score in published if score.test in ("", test)]))
    further: dict[str, Any] = {"training": training_times(options.system, baselines, seeds)}
    if len(tests) > 1:
        further["over_tests"] = mean_scores(documents)
        of_baselines = {base: system_of(options.recipe, base).published.get(options.recipe, ()) for base in baselines}
        print(means_table(further["over_tests"], tests, published, of_baselines))
    print(times_table(further["training"]))
    for test, document in documents.items():
        write_json(work / "systems" / f"{name}.{test}.scores.json", document | further)


def with_average(system: System) -> System:
    """Return the system with as many averaged checkpoints as ``AVERAGE`` says."""
    average = whole_number(os.environ, "AVERAGE", system.training.average, lowest=0)
    return replace(system, training=replace(system.training, average=average))


def averaged_name() -> str:
    """Return what the names of results have in addition where ``AVERAGE`` is given."""
    return f"-average{int(average)}" if (average := os.environ.get("AVERAGE")) else ""


def results_of(folder: Path) -> Path:
    """Return where a run's translations are."""
    return folder / f"evaluation{averaged_name()}"


def write_json(path: Path, document: object) -> None:
    with atomic_write(path) as file:
        file.write((json.dumps(document, indent=2) + "\n").encode())


def translate(
    recipe: Recipe, checkpoint: Path, digest: str, output: Path, data: Path, test: str, subset: str
) -> None:  # fmt: skip
    """Translate with a checkpoint, which has this digest, unless that was done with this one and these data.

    Raises:
        UserError: a command fails.
    """
    output.mkdir(exist_ok=True)
    source, target = languages_of(data)
    options: list[Any] = [*recipe.text_options(data), "--source-lang", source, "--target-lang", target]
    options += ["--beam", recipe.beam, "--lenpen", recipe.length_penalty]
    options += ["--post-process", "sentencepiece" if "sentencepiece" in recipe.text else "subword_nmt"]
    inputs = {
        "checkpoint": digest,
        "options": digests_in(options),
        "data": digests([*sorted(data.glob("dict.*")), *sorted(data.glob(f"{subset}.*"))]),
    }
    done = output / f"{test}.txt"
    if is_made_of(done, inputs):
        return
    options += ["--max-tokens", whole_number(os.environ, "MAX_TOKENS", 4096)]
    options += [] if torch.cuda.is_available() else ["--cpu"]
    say(f"translating {test} with {checkpoint}")
    with making(done, inputs):
        generated = output / f"{test}.generated"
        with atomic_write(generated) as log:
            run_command_line("generate", data, "--path", checkpoint, "--gen-subset", subset, *options, stdout=log)
        _write_text(recipe, generated, output, test, target)


def _write_text(recipe: Recipe, generated: Path, output: Path, test: str, target: str) -> None:
    """Write tokens and text of the output of fairseq-generate."""
    sentences = read_translations(str(generated), tokenized=True).sentences
    tokens = [join_compounds(sentence) for sentence in sentences]  # as prepare.sh does with the reference
    text = detokenize(tokens, target) if "--tokenizer" in recipe.text else tokens
    for path, lines in ((output / f"{test}.tok", tokens), (output / f"{test}.txt", text)):
        with atomic_write(path) as written:
            written.writelines(f"{line}\n".encode() for line in lines)


def checkpoint_of(system: System, folder: Path) -> Path:
    """Return what evaluation translates with: the mean of the last checkpoints, or the best."""
    saved = folder / "checkpoints"
    best = saved / "checkpoint_best.pt"
    if not saved.is_dir() or not (system.training.average or best.exists()):
        raise UserError(f"{best} does not exist; train the system first")
    return average_of(system.training, folder, best) if system.training.average else best


def average_of(training: Training, folder: Path, best: Path) -> Path:
    """Average a training's last checkpoints of one depth, unless their mean is there.

    With ``up_to_best`` what was trained after the best on the validation set is left out.

    Raises:
        UserError: there is none.
    """
    saved = averaging.saved_checkpoints(str(best.parent))
    states = {file: checkpoints.load_checkpoint(file, mapped=True) for file in saved}
    if training.up_to_best and best.exists():
        most = checkpoints.updates_in(checkpoints.load_checkpoint(best, mapped=True))
        states = {file: state for file, state in states.items() if checkpoints.updates_in(state) <= most}
    depths = {file: depths_in(states[file]["model"]) for file in list(states)[-training.average :]}
    files = [file for file, depth in depths.items() if depth == list(depths.values())[-1]]
    if not files:
        raise UserError(f"{best.parent} has no checkpoint of an epoch or of a number of updates yet; train longer")
    if len(files) < training.average:
        say(f"{best.parent} has {len(files)} checkpoints of the last depth, and the mean is of {training.average}")
    average = folder / f"average{averaged_name().removeprefix('-average')}.pt"
    inputs = digests(files)
    if not is_made_of(average, inputs):
        with making(average, inputs):
            averaging.average(list(map(Checkpoint.open, files))).write(average)
    return average


def score_seeds(recipe: str, name: str, system: System, work: Path, test: str, seeds: Sequence[str]) -> dict[str, Any]:
    """Return every metric of every seed, beside those of its baselines that have been evaluated with the same seed.

    ``baseline`` is the nearest of them.
    """
    _, target = languages_of(work / "data-bin")
    document: dict[str, Any] = {"recipe": recipe, "system": name, "test": test, "seeds": list(seeds), "metrics": {}}
    for metric_name in RECIPES[recipe].metrics:
        metric = TranslationMetric(metric_name)
        suffix, references = forms(work, test, target, metric)
        runs = []
        for seed in seeds:
            sentences = read_lines(str(results_of(run_folder(os.environ, name, seed)) / f"{test}{suffix}"))
            scored = metric.score(sentences, references)
            run: dict[str, Any] = {"seed": seed, "score": scored.score, "signature": scored.signature}
            others = {}
            for baseline in baselines_of(recipe, system):
                base = results_of(run_folder(os.environ, baseline, seed)) / f"{test}{suffix}"
                if base.exists():
                    others[baseline] = read_lines(str(base))
            run["baseline_scores"] = {base: metric.score(lines, references).score for base, lines in others.items()}
            if others:
                nearest = next(iter(others))
                run["baseline"] = nearest
                run["baseline_score"] = run["baseline_scores"][nearest]
                run["p"] = paired_test(others[nearest], sentences, references, metric)
            runs.append(run)
        document["metrics"][metric_name] = runs
    return document


def baselines_of(recipe: str, system: System) -> Iterator[str]:
    """Yield the system's baseline, that one's own baseline, and so on."""
    while system.baseline is not None:
        yield system.baseline
        system = system_of(recipe, system.baseline)


def forms(work: Path, test: str, target: str, metric: TranslationMetric) -> tuple[str, list[list[str]]]:
    """Return the ending of the translations in the form that a metric takes, and the references in that form."""
    raw = "" if metric.tokenized else ".raw"
    text = work / "text"
    others = sorted(text.glob(f"test.{test}.ref*{raw}.{target}"))
    others = [path for path in others if raw or not path.name.endswith(f".raw.{target}")]
    references = [read_lines(str(path)) for path in (text / f"test.{test}{raw}.{target}", *others)]
    return (".tok" if metric.tokenized else ".txt"), references


def report(scores: Mapping[str, Any], published: Sequence[Any]) -> str:
    """Return the scores as a table, and what the columns mean."""
    rows = [["metric", "seed", "score", "published", "baseline", "p", "signature"]]
    for name, runs in scores["metrics"].items():
        numbers = "; ".join(score.text for score in published if score.metric == name)
        for run in runs:
            base = f"{run['baseline']} {run['baseline_score']:.2f}" if "baseline" in run else "-"
            chance = f"{run['p']:.3f}" if "p" in run else "-"
            rows.append([name, run["seed"], f"{run['score']:.2f}", numbers or "-", base, chance, run["signature"]])
        if len(runs) > 1:
            mean = tables.spread([run["score"] for run in runs], 2)
            rows.append([name, "mean", mean, numbers or "-"] + ["-"] * 3)
    # Columns that say nothing here: no paper has a number, or there is no baseline.
    return filled_table(rows) + (
        "\np: how often chance alone gives a difference from the baseline as large as this one (paired bootstrap)\n"
        if any("p" in run for runs in scores["metrics"].values() for run in runs)
        else ""
    )


if __name__ == "__main__":
    run_step(main)
