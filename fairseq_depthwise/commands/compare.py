"""``compare``: systems against a base, with tests of significance, or in many languages.

example:
  fairseq-depthwise compare --ref test.de base.de deep.de
  fairseq-depthwise compare --ref test.de base1.de,base2.de,base3.de deep1.de,deep2.de,deep3.de
  fairseq-depthwise compare --languages --ref references base deep

With --languages, BASE and SYSTEM are folders with a file for each language: translations as for `score`
in LANG.hyp or LANG.txt, or the output of `score --json` in LANG.json. --ref is a folder of LANG.ref or
LANG.txt, not needed if all are LANG.json. BLEU94 is the mean over the 94 languages of OPUS-100 that have a
test set, BLEU4 that over de, zh, br and te, WR the share of languages in which a system scores higher than
the base.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tqdm import tqdm

from fairseq_compat import UserError
from fairseq_depthwise.commands.parsers import positive_int
from fairseq_depthwise.commands.score import add_metric_options, chosen_metric, read_system, score_system
from fairseq_depthwise.evaluation import languages
from fairseq_depthwise.evaluation.scores import Score
from fairseq_depthwise.evaluation.significance import DEFAULT_SAMPLES, TESTS, paired_test, spread
from fairseq_depthwise.evaluation.translations import Translations, read_reference
from fairseq_depthwise.tables import aligned


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "base", metavar="BASE", help="translations of the base; files of several seeds separated by commas"
    )
    parser.add_argument("systems", nargs="+", metavar="SYSTEM", help="translations of a system to compare with it")
    parser.add_argument("--ref", action="append", metavar="REF", help="the reference; once for each of several")
    parser.add_argument("--languages", action="store_true", help="compare in many languages; see below")
    add_metric_options(parser)
    parser.add_argument(
        "--test", choices=tuple(TESTS), default="bootstrap",
        help="paired test of the i-th files of two systems (default: bootstrap)",
    )  # fmt: skip
    parser.add_argument(
        "--samples", type=positive_int, metavar="N",
        help="resamples or trials of the test (default: 1000; approximate-randomization: 10000)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=positive_int, default=12345, metavar="N", help="random seed of the test (default: 12345)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> None:
    (_compare_languages if options.languages else _compare_systems)(options)


@dataclass
class _System:
    name: str
    files: list[Translations]
    scores: list[Score]
    seeds: dict[str, Any]
    p_values: list[float] = field(default_factory=list)
    why_untested: str | None = None


def _compare_systems(options: argparse.Namespace) -> None:
    metric = chosen_metric(options)
    if not options.ref:
        raise UserError("--ref is missing; give the reference that all systems are scored against")
    references = [read_reference(path) for path in options.ref]
    systems = []
    for name in (options.base, *options.systems):
        paths = [name] if os.path.exists(name) else name.split(",")
        if len({*map(os.path.realpath, paths)}) < len(paths):
            raise UserError(f"{name} has a file twice, which would count as two seeds; give it once")
        files = [read_system(path, metric, options.detokenize) for path in paths]
        scores = [score_system(file, options.ref, references, metric) for file in files]
        systems.append(_System(name, files, scores, spread([score.score for score in scores])))

    base, *others = systems
    samples = options.samples or DEFAULT_SAMPLES[options.test]
    test = f"paired {options.test.replace('-', ' ')}, {samples:,} samples, seed {options.seed}"
    if metric.name == "accuracy":
        test = "exact sign test"
    for system in others:
        counts = len(system.files), len(base.files)
        if counts[0] != counts[1]:
            system.why_untested = (
                f"no paired test of {system.name}: numbers of files differ, {counts[0]} and {counts[1]}"
            )
            continue
        pairs = zip(base.files, system.files, strict=True)
        for first, second in tqdm(pairs, f"{options.test}, {system.name}", counts[0], leave=False, disable=None):
            texts = first.sentences, second.sentences, references
            system.p_values.append(paired_test(*texts, metric, test=options.test, samples=samples, seed=options.seed))

    signature = base.scores[0].signature
    if options.json:
        document = {"metric": metric.name, "signature": signature, "references": options.ref, "samples": samples}
        document |= {"sentences": base.scores[0].sentences, "test": options.test, "seed": options.seed}
        if metric.name == "accuracy":
            document |= {"test": "sign", "samples": None, "seed": None}
        print(json.dumps({**document, "systems": [_as_json(system, base) for system in systems]}, indent=2))
        return
    print(aligned(_rows(base, others)), end="")
    print(f"\n{base.scores[0].name}: {signature}")
    print(f"p: {test}, against {base.name}")
    for system in others:
        if system.why_untested:
            print(system.why_untested)


def _rows(base: _System, others: Sequence[_System]) -> list[list[str]]:
    several = any(len(system.files) > 1 for system in (base, *others))
    columns = ["files", "st. dev.", "lowest", "highest"] if several else []
    rows = [["system", base.scores[0].name, *columns, "difference", "p"]]
    for system in (base, *others):
        seeds = system.seeds
        row = [system.name, _number(seeds["mean"])]
        if several:
            row.append(str(len(system.files)))
            row += [_number(seeds[name]) for name in ("standard_deviation", "lowest", "highest")]
        if system is not base:
            p_values = ", ".join(f"{p_value:.4f}" for p_value in system.p_values)
            row += [f"{seeds['mean'] - base.seeds['mean']:+.2f}", p_values or "-"]
        rows.append(row)
    return rows


def _as_json(system: _System, base: _System) -> dict[str, Any]:
    document = {"name": system.name, "files": [file.path for file in system.files], **system.seeds}
    if system is not base:
        document["difference"] = system.seeds["mean"] - base.seeds["mean"]
        document["p_values"] = system.p_values
        document["why_untested"] = system.why_untested
    return document


def _compare_languages(options: argparse.Namespace) -> None:
    """Print the scores of every language and their means; ``options`` are those of ``compare``."""
    folders = [options.base, *options.systems]
    systems = [(folder, _scores_in(folder, options)) for folder in folders]
    languages.require_comparable(systems)
    base = systems[0][1]
    summaries = [
        languages.summarize(scores, None if number == 0 else base) for number, (_, scores) in enumerate(systems)
    ]
    reasons = languages.why_missing(base)

    if options.json:
        documents = [
            {"folder": folder, **summary, "scores": {language: score.score for language, score in scores.items()}}
            for (folder, scores), summary in zip(systems, summaries, strict=True)
        ]
        metric = next(iter(base.values())).metric
        signatures = {language: score.signature for language, score in base.items()}
        document = {"metric": metric, "languages": len(base), "signatures": signatures, "missing": reasons}
        print(json.dumps({**document, "systems": documents}, indent=2))
        return
    rows = [["language", *folders]]
    rows += [[language, *(f"{scores[language].score:.2f}" for _, scores in systems)] for language in base]
    shown = {"mean": f"mean over {len(base)}", "bleu94": "BLEU94", "bleu4": "BLEU4", "win_ratio": "WR, %"}
    for name, title in shown.items():
        digits = 1 if name == "win_ratio" else 2
        rows.append([title, *(_number(summary[name], digits) for summary in summaries)])
    print(aligned(rows), end="")
    if notes := [f"no {name.upper()}: {reason}" for name, reason in reasons.items() if reason]:
        print("\n" + "\n".join(notes))


def _scores_in(folder: str, options: argparse.Namespace) -> dict[str, languages.LanguageScore]:
    """Read or compute the scores of a folder by language."""
    files = languages.files_by_language(folder, languages.RESULT_ENDINGS)
    references: dict[str, str] = {}
    if any(not path.endswith(".json") for path in files.values()):
        if not options.ref or len(options.ref) > 1:
            raise UserError(f"{folder} has translations, which need one folder of references; give it with --ref")
        references = languages.files_by_language(options.ref[0], languages.REFERENCE_ENDINGS)
    metric = chosen_metric(options)
    scores = {}
    for language, path in tqdm(files.items(), folder, unit=" languages", leave=False, disable=None):
        if path.endswith(".json"):
            scores[language] = score = languages.read_score(path)
            if options.metric not in (None, score.metric):
                raise UserError(f"--metric is {options.metric}, and {path} has a score of {score.metric}")
            continue
        if language not in references:
            raise UserError(f"--ref {options.ref[0]} has no reference for {language}, which {folder} translates")
        system = read_system(path, metric, options.detokenize)
        result = score_system(system, [references[language]], [read_reference(references[language])], metric)
        scores[language] = languages.LanguageScore(result.score, metric.name, result.signature)
    return scores


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
