"""Scores a trained system of a recipe beside the published numbers.

    python evaluate.py RECIPE SYSTEM
    python evaluate.py RECIPE SYSTEM --speed      how fast it decodes, instead

Averages the checkpoints that the paper averages, or as many as ``AVERAGE`` says (0: the best on the validation set),
translates the test sets with the paper's beam and length penalty, and prints every score that the paper reports, with
its signature; where its baseline, or that one's own, has been evaluated, the difference from it with a paired
bootstrap. All seeds of a system that were trained are scored, or those of ``SEEDS``. Below are means over test sets,
if there are several, and the hours of training with the share saved against the baseline's. A many-to-many model is
scored in every direction that has a test set, with means over languages.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from language_report import language_report, language_scores
from mean_scores import mean_scores, means_table
from recipe_step import run_folder, run_step, write_json
from result_tables import ResultTable
from systems import Published
from trained_runs import average_of, average_suffix, checkpoint_of, results_of, seeds_to_evaluate, with_average
from training_times import times_table, training_times
from translated_sets import EvaluationSet, evaluation_sets, translate_sets

from fairseq_compat import checkpoints
from fairseq_depthwise.evaluation.scores import TranslationMetric
from fairseq_depthwise.evaluation.significance import paired_test
from fairseq_depthwise.evaluation.translations import read_lines
from fairseq_depthwise.tables import spread
from recipes import all_recipes, baselines_of, system_of

#: What programs of a user's own take from here: the average that is scored, and the reader and writer of checkpoints.
__all__ = ["average_of", "checkpoints", "evaluate", "report", "score_seeds"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", choices=all_recipes())
    parser.add_argument("system")
    parser.add_argument("--speed", action="store_true", help="measure how fast the system decodes, instead of scoring")
    options = parser.parse_args()
    if options.speed:
        from decoding_speed import measure_speed  # imports fairseq

        measure_speed(options.recipe, options.system)
    else:
        evaluate(options.recipe, options.system)


def evaluate(recipe_name: str, name: str) -> None:
    """Translate and score a system's test sets with all of its seeds, print tables and write JSON."""
    recipe = all_recipes()[recipe_name]
    system = with_average(system_of(recipe_name, name))
    work = Path(os.environ["WORK"])
    seeds = seeds_to_evaluate(work, name)
    sets = evaluation_sets(recipe, work)
    for seed in seeds:
        folder = run_folder(os.environ, name, seed)
        translate_sets(recipe, checkpoint_of(system, folder), work / "data-bin", results_of(folder), sets)

    # The scores of each test set.
    documents = {test.name: score_seeds(recipe_name, name, test, seeds) for test in sets}
    baselines = baselines_of(recipe_name, system)
    times = training_times(name, baselines, seeds)
    published = system.published.get(recipe_name, ())
    title = f"{recipe_name}, {name}{average_suffix()}: {system.about}"
    settings = f"beam {recipe.beam}, lenpen {recipe.length_penalty}"

    # Of directions only the means are compared; a pair has a table for each test set.
    if recipe.many:
        for place, seed in enumerate(seeds):
            print(f"{title}; seed {seed}, {settings}, sacreBLEU\n")
            print(language_report(documents, place, system.baseline, published))
            by_group: dict[str, dict[str, Any]] = {}
            for group, scores in language_scores(documents, place).items():
                by_group[group] = {languages: score._asdict() for languages, score in scores.items()}
            write_json(results_of(run_folder(os.environ, name, seed)) / "scores.json", by_group)
        print(times_table(times))
        return

    for test, document in documents.items():
        print(f"{title}; {test}, {settings}\n")
        print(report(document, [number for number in published if number.test in ("", test)]))
    # What is true of all test sets is in the file of each.
    summary: dict[str, Any] = {"training": times}
    if len(documents) > 1:
        summary["over_tests"] = mean_scores(documents)
        of_baselines = {base: system_of(recipe_name, base).published.get(recipe_name, ()) for base in baselines}
        print(means_table(summary["over_tests"], list(documents), published, of_baselines))
    print(times_table(times))
    for test, document in documents.items():
        write_json(work / "systems" / f"{name}{average_suffix()}.{test}.scores.json", document | summary)


def score_seeds(recipe_name: str, name: str, test: EvaluationSet, seeds: Sequence[str]) -> dict[str, Any]:
    """Return every metric of every seed, beside those of its baselines that have been evaluated with the same seed.

    ``baseline`` is the nearest of them.
    """
    recipe = all_recipes()[recipe_name]
    baselines = baselines_of(recipe_name, system_of(recipe_name, name))
    metrics: dict[str, list[dict[str, Any]]] = {}
    for metric_name in recipe.metrics:
        metric = TranslationMetric(metric_name)
        references = test.references(metric)
        metrics[metric_name] = []
        for seed in seeds:
            sentences = read_lines(str(_translations(name, seed, test, metric)))
            score = metric.score(sentences, references)
            run: dict[str, Any] = {"seed": seed, "score": score.score, "signature": score.signature}
            run["baseline_scores"] = {}
            for baseline in baselines:
                path = _translations(baseline, seed, test, metric)
                # A baseline that has not been evaluated, or not with this seed.
                if not path.exists():
                    continue
                base_sentences = read_lines(str(path))
                base_score = metric.score(base_sentences, references).score
                run["baseline_scores"][baseline] = base_score
                # A bootstrap in each of some 200 directions would take long, and says little of their mean.
                if "baseline" not in run and not recipe.many:
                    p = paired_test(base_sentences, sentences, references, metric)
                    run |= {"baseline": baseline, "baseline_score": base_score, "p": p}
            metrics[metric_name].append(run)
    return {"recipe": recipe_name, "system": name, "test": test.name, "seeds": list(seeds), "metrics": metrics}


def _translations(system: str, seed: str, test: EvaluationSet, metric: TranslationMetric) -> Path:
    return test.translations(results_of(run_folder(os.environ, system, seed)), metric)


def report(document: Mapping[str, Any], published: Sequence[Published]) -> str:
    """Return the scores of a test set as a table, and the meaning of p."""
    table = ResultTable("metric", "seed", "score", "published", "baseline", "p", "signature")
    compared = False
    for name, runs in document["metrics"].items():
        numbers = "; ".join(number.text for number in published if number.metric == name)
        for run in runs:
            row = {"metric": name, "seed": run["seed"], "score": f"{run['score']:.2f}"}
            row |= {"published": numbers, "signature": run["signature"]}
            if "baseline" in run:
                compared = True
                row |= {"baseline": f"{run['baseline']} {run['baseline_score']:.2f}", "p": f"{run['p']:.3f}"}
            table.add(row)
        if len(runs) > 1:
            mean = spread([run["score"] for run in runs], 2)
            table.add({"metric": name, "seed": "mean", "score": mean, "published": numbers})
    text = table.text()
    if compared:
        text += "\np: probability of a difference this large from the baseline by chance (paired bootstrap)\n"
    return text


if __name__ == "__main__":
    run_step(main)
