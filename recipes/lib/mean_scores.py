"""Means over a recipe's test sets, and differences from baselines, as in the paper on multi-unit Transformers.

Its Table 5 has means over "all test sets", which are those of Table 1's five columns, the validation set MT06 among
them; so is the difference in Table 1, "over dev set and test sets", from the plain Transformer. All five are test sets
of the recipe ``nist_zh_en``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from result_tables import ResultTable
from systems import Published

from fairseq_depthwise.tables import spread


def mean_scores(documents: Mapping[str, Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the mean of each metric and seed over test sets, and the differences from baselines scored on all of them.

    ``documents`` are the scores of each test set.
    """
    first = next(iter(documents.values()))
    means: dict[str, list[dict[str, Any]]] = {}
    for metric, runs in first["metrics"].items():
        means[metric] = []
        for place, run in enumerate(runs):
            # All test sets have the same seeds in the same order.
            over_tests = [document["metrics"][metric][place] for document in documents.values()]
            mean = fmean(scored["score"] for scored in over_tests)
            # A difference of means needs the baseline's scores on all test sets.
            differences = {}
            for baseline in run["baseline_scores"]:
                scores = [scored["baseline_scores"].get(baseline) for scored in over_tests]
                if None not in scores:
                    differences[baseline] = mean - fmean(scores)
            means[metric].append({"seed": run["seed"], "mean": mean, "differences": differences})
    return means


def published_mean(published: Sequence[Published], metric: str, tests: Sequence[str]) -> float | None:
    """Return the mean of the published scores over test sets; None unless there is a score of each."""
    scores = {score.test: score.score for score in published if score.metric == metric}
    # A mean over some of the sets would be another number.
    if not all(test in scores for test in tests):
        return None
    return fmean(scores[test] for test in tests)


def means_table(
    means: Mapping[str, Sequence[Mapping[str, Any]]],
    tests: Sequence[str],
    published: Sequence[Published],
    published_of_baselines: Mapping[str, Sequence[Published]],
) -> str:
    """Return means and differences as a table; each difference has a row of its own."""
    mean_column = f"mean of {len(tests)} sets"
    table = ResultTable("metric", "seed", mean_column, "published", "difference", "published difference", "from")
    for metric, runs in means.items():
        paper = published_mean(published, metric, tests)
        papers = {name: published_mean(scores, metric, tests) for name, scores in published_of_baselines.items()}
        lines = [(run["seed"], [run]) for run in runs]
        if len(runs) > 1:
            lines.append(("mean", list(runs)))
        for seed, of_seeds in lines:
            row = {"metric": metric, "seed": seed, mean_column: spread([run["mean"] for run in of_seeds], 2)}
            if paper is not None:
                row["published"] = f"{paper:.2f}"
            # A mean over seeds has the baselines that were evaluated with all of them.
            baselines = list(of_seeds[0]["differences"])
            for run in of_seeds:
                baselines = [name for name in baselines if name in run["differences"]]
            for baseline in baselines:
                row["difference"] = _signed_spread([run["differences"][baseline] for run in of_seeds])
                row["from"] = baseline
                paper_of_baseline = papers[baseline]
                row["published difference"] = ""
                if paper is not None and paper_of_baseline is not None:
                    row["published difference"] = f"{paper - paper_of_baseline:+.2f}"
                table.add(row)
            if not baselines:
                table.add(row)
    return table.text()


def _signed_spread(differences: Sequence[float]) -> str:
    sign = "+" if fmean(differences) >= 0 else ""
    return sign + spread(differences, 2)
