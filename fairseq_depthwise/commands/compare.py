"""``compare``: systems against a base, with tests of significance, or in many languages."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tqdm import tqdm

from fairseq_compat import UserError
from fairseq_depthwise import tables
from fairseq_depthwise.commands.parsers import add_forms, add_parser, positive_int
from fairseq_depthwise.commands.score import (
    add_metric_options,
    chosen_metric,
    read_system,
    require_one_stdin,
    score_system,
)
from fairseq_depthwise.evaluation import languages
from fairseq_depthwise.evaluation.scores import METRICS, Score
from fairseq_depthwise.evaluation.significance import DEFAULT_SAMPLES, TESTS, SeedScores, paired_test, spread
from fairseq_depthwise.evaluation.translations import Translations, read_reference


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "compare",
        run=run,
        help="compare systems with a base: paired significance tests, several seeds, many languages",
        example="fairseq-depthwise compare --ref test.de base.de deep.de\n"
        "  fairseq-depthwise compare --ref test.de base1.de,base2.de,base3.de deep1.de,deep2.de,deep3.de\n"
        "  fairseq-depthwise compare --languages --ref references base deep\n\n"
        "With --languages, BASE and SYSTEM are folders with a file for each language: translations as for `score`\n"
        "in LANG.hyp or LANG.txt, or the output of `score --json` in LANG.json. --ref is a folder of LANG.ref or\n"
        "LANG.txt, not needed if all are LANG.json. BLEU94 is the mean over the 94 languages of OPUS-100 that have a\n"
        "test set, BLEU4 that over de, zh, br and te, WR the share of languages in which a system scores higher than\n"
        "the base.",
    )
    parser.add_argument(
        "base", metavar="BASE", help="translations of the base; files of several seeds separated by commas"
    )
    parser.add_argument("systems", nargs="+", metavar="SYSTEM", help="translations of a system to compare with it")
    parser.add_argument("--ref", action="append", metavar="REF", help="the reference; once for each of several")
    parser.add_argument("--languages", action="store_true", help="compare in many languages; see below")
    add_metric_options(parser, *METRICS)
    parser.add_argument(
        "--test", choices=tuple(TESTS), help="paired test of the i-th files of two systems (default: bootstrap)"
    )
    parser.add_argument(
        "--samples", type=positive_int, metavar="N",
        help="resamples or trials of the test (default: 1000; approximate-randomization: 10000)",
    )  # fmt: skip
    parser.add_argument("--seed", type=positive_int, metavar="N", help="random seed of the test (default: 12345)")
    add_forms(parser, "markdown")


def run(options: argparse.Namespace) -> int:
    if options.languages:
        _compare_languages(options)
    else:
        _compare_systems(options)
    return 0


@dataclass
class _System:
    name: str
    files: list[Translations]
    scores: list[Score]
    seeds: SeedScores
    p_values: list[float] = field(default_factory=list)


def _compare_systems(options: argparse.Namespace) -> None:
    metric = chosen_metric(options)
    if not options.ref:
        raise UserError("--ref is missing; give the reference that all systems are scored against")
    names = [options.base, *options.systems]
    paths = [_files_of(name) for name in names]
    require_one_stdin([*options.ref, *(path for files in paths for path in files)])
    references = [read_reference(path) for path in options.ref]
    systems = []
    for name, files in zip(names, paths, strict=True):
        outputs = [read_system(path, metric, options.detokenize) for path in files]
        scores = [score_system(output, options.ref, references, metric) for output in outputs]
        systems.append(_System(name, outputs, scores, spread([score.score for score in scores])))

    base, *others = systems
    test = options.test or "bootstrap"
    samples, seed = options.samples or DEFAULT_SAMPLES[test], options.seed or 12345
    pairs = [
        (system, first.sentences, second.sentences)
        for system in others
        if len(system.files) == len(base.files)
        for first, second in zip(base.files, system.files, strict=True)
    ]
    for system, first, second in tqdm(pairs, test, unit=" pairs", leave=False, disable=None):
        p_value = paired_test(first, second, references, metric, test=test, samples=samples, seed=seed)
        system.p_values.append(p_value)

    signature = base.scores[0].signature
    if options.json:
        document = {
            "metric": metric.name,
            "signature": signature,
            "references": options.ref,
            "sentences": base.scores[0].sentences,
            "test": test,
            "samples": samples,
            "seed": seed,
            "systems": [_as_json(system, base) for system in systems],
        }
        print(json.dumps(document, indent=2))
        return
    print((tables.markdown if options.markdown else tables.aligned)(_rows(base, others)), end="")
    print(f"\n{base.scores[0].name}: {signature}")
    if pairs:
        print(f"p: paired {test.replace('-', ' ')}, {samples:,} samples, seed {seed}, against {base.name}")
    for system in others:
        if reason := _why_untested(system, base):
            print(reason)


def _files_of(name: str) -> list[str]:
    if os.path.exists(name):
        return [name]
    files = name.split(",")
    if "" in files:
        raise UserError(f"{name} names an empty file; give files with one comma between them")
    return files


def _why_untested(system: _System, base: _System) -> str | None:
    if len(system.files) == len(base.files):
        return None
    return f"no paired test of {system.name}: numbers of files differ, {len(system.files)} and {len(base.files)}"


def _rows(base: _System, others: Sequence[_System]) -> list[list[str]]:
    several = any(len(system.files) > 1 for system in (base, *others))
    columns = ["files", "st. dev.", "lowest", "highest"] if several else []
    rows = [["system", base.scores[0].name, *columns, "difference", "p"]]
    for system in (base, *others):
        seeds = system.seeds
        row = [system.name, f"{seeds.mean:.2f}"]
        if several:
            deviation = "-" if seeds.deviation is None else f"{seeds.deviation:.2f}"
            row += [str(len(system.files)), deviation, f"{seeds.lowest:.2f}", f"{seeds.highest:.2f}"]
        if system is base:
            row += ["", ""]
        else:
            p_values = ", ".join(f"{p_value:.4f}" for p_value in system.p_values)
            row += [f"{seeds.mean - base.seeds.mean:+.2f}", p_values or "-"]
        rows.append(row)
    return rows


def _as_json(system: _System, base: _System) -> dict[str, Any]:
    seeds = system.seeds
    document: dict[str, Any] = {
        "name": system.name,
        "files": [file.path for file in system.files],
        "scores": seeds.scores,
        "mean": seeds.mean,
        "standard_deviation": seeds.deviation,
        "lowest": seeds.lowest,
        "highest": seeds.highest,
    }
    if system is not base:
        document["difference"] = seeds.mean - base.seeds.mean
        document["p_values"] = system.p_values
        document["why_untested"] = _why_untested(system, base)
    return document


def _compare_languages(options: argparse.Namespace) -> None:
    """Print the scores of every language and their means; ``options`` are those of ``compare``."""
    for name in ("test", "samples", "seed"):
        if (value := getattr(options, name)) is not None:
            raise UserError(f"--{name} {value} is for the tests of one test set; --languages makes none")
    folders = [options.base, *options.systems]
    systems = [(folder, _scores_in(folder, options)) for folder in folders]
    languages.require_comparable(systems)
    base = systems[0][1]
    summaries = [
        languages.summarize(scores, None if number == 0 else base) for number, (_, scores) in enumerate(systems)
    ]
    reasons = {"bleu94": languages.why_no_bleu94(base), "bleu4": languages.why_no_bleu4(base)}

    if options.json:
        documents = [
            {
                "folder": folder,
                **asdict(summary),
                "scores": {language: score.score for language, score in scores.items()},
            }
            for (folder, scores), summary in zip(systems, summaries, strict=True)
        ]
        metric = next(iter(base.values())).metric
        signatures = {language: score.signature for language, score in base.items()}
        document = {"metric": metric, "languages": len(base), "signatures": signatures, "missing": reasons}
        print(json.dumps({**document, "systems": documents}, indent=2))
        return
    rows = [["language", *folders]]
    rows += [[language, *(f"{scores[language].score:.2f}" for _, scores in systems)] for language in base]
    rows.append([f"mean over {len(base)}", *(f"{summary.mean:.2f}" for summary in summaries)])
    rows.append(["BLEU94", *(_number(summary.bleu94, 2) for summary in summaries)])
    rows.append(["BLEU4", *(_number(summary.bleu4, 2) for summary in summaries)])
    rows.append(["WR, %", *(_number(summary.win_ratio, 1) for summary in summaries)])
    print((tables.markdown if options.markdown else tables.aligned)(rows), end="")
    notes = [f"no {name.upper()}: {reason}" for name, reason in reasons.items() if reason]
    if notes:
        print("\n" + "\n".join(notes))


def _scores_in(folder: str, options: argparse.Namespace) -> dict[str, languages.LanguageScore]:
    """Read or compute the scores of a folder by language."""
    files = languages.files_by_language(folder, languages.RESULT_ENDINGS)
    references = _reference_files(folder, files, options)
    metric = chosen_metric(options)
    scores = {}
    for language, path in tqdm(files.items(), folder, unit=" languages", leave=False, disable=None):
        if path.endswith(".json"):
            score = languages.read_score(path)
            if options.metric not in (None, score.metric):
                raise UserError(f"--metric is {options.metric}, and {path} has a score of {score.metric}")
        else:
            reference = references[language]
            system = read_system(path, metric, options.detokenize)
            result = score_system(system, [reference], [read_reference(reference)], metric)
            score = languages.LanguageScore(result.score, metric.name, result.signature)
        scores[language] = score
    return scores


def _reference_files(folder: str, files: dict[str, str], options: argparse.Namespace) -> dict[str, str]:
    """Return the references of the languages whose translations are to be scored."""
    unscored = [language for language, path in files.items() if not path.endswith(".json")]
    if not unscored:
        return {}
    if not options.ref or len(options.ref) > 1:
        given = "is missing" if not options.ref else f"is given {len(options.ref)} times"
        raise UserError(f"--ref {given}; {folder} has translations, which need one folder of references")
    references = languages.files_by_language(options.ref[0], languages.REFERENCE_ENDINGS)
    if missing := [language for language in unscored if language not in references]:
        raise UserError(f"--ref {options.ref[0]} has no reference for {', '.join(missing)}, which {folder} translates")
    return references


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
