"""``compare``: systems against a base, with tests of significance, or in many languages."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fairseq_compat import UserError
from fairseq_depthwise import tables
from fairseq_depthwise.commands.compare_languages import compare_languages
from fairseq_depthwise.commands.parsers import add_forms, add_parser, positive_int
from fairseq_depthwise.commands.progress import Progress
from fairseq_depthwise.commands.score import (
    add_metric_options,
    chosen_metric,
    read_system,
    require_one_stdin,
    score_system,
)
from fairseq_depthwise.evaluation.scores import Score
from fairseq_depthwise.evaluation.significance import DEFAULT_SAMPLES, TESTS, Spread, paired_test, spread
from fairseq_depthwise.evaluation.translations import Translations, read_reference


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "compare",
        run=run,
        help="compare systems with a base: paired tests of significance, several seeds, many languages",
        example="fairseq-depthwise compare --ref test.de base.de deep.de\n"
        "  fairseq-depthwise compare --ref test.de base1.de,base2.de,base3.de deep1.de,deep2.de,deep3.de\n"
        "  fairseq-depthwise compare --languages --ref references base deep\n\n"
        "With --languages BASE and SYSTEM are folders with a file for each language: LANG.hyp or LANG.txt with\n"
        "translations as `score` takes them, or LANG.json with what `score --json` printed. --ref is a folder of\n"
        "LANG.ref or LANG.txt, not needed where all are LANG.json. BLEU94 is the mean over the 94 languages of\n"
        "OPUS-100 that have a test set, BLEU4 that over de, zh, br and te, WR the share of languages in which a\n"
        "system scores higher than the base.",
    )
    parser.add_argument("base", metavar="BASE", help="translations of the base; files of several seeds with commas")
    parser.add_argument("systems", nargs="+", metavar="SYSTEM", help="those of the systems that are compared with it")
    parser.add_argument("--ref", action="append", metavar="REF", help="the reference; once for each of several")
    parser.add_argument("--languages", action="store_true", help="compare in many languages; see below")
    add_metric_options(parser)
    parser.add_argument(
        "--test", choices=tuple(TESTS), help="paired test of the i-th files of two systems (default: bootstrap)"
    )
    parser.add_argument(
        "--samples",
        type=positive_int,
        metavar="N",
        help="of the test (default: 1000; approximate-randomisation: 10000)",
    )
    parser.add_argument("--seed", type=positive_int, metavar="N", help="of the test's random numbers (default: 12345)")
    add_forms(parser, "markdown")


def run(options: argparse.Namespace) -> int:
    if options.languages:
        compare_languages(options)
    else:
        _compare_systems(options)
    return 0


@dataclass
class _System:
    name: str
    files: list[Translations]
    scores: list[Score]
    spread: Spread
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
        systems.append(_System(name, outputs, scores, spread([one.score for one in scores])))

    base, *others = systems
    test = options.test or "bootstrap"
    samples, seed = options.samples or DEFAULT_SAMPLES[test], options.seed or 12345
    pairs = [
        (system, one.sentences, two.sentences)
        for system in others
        if len(system.files) == len(base.files)
        for one, two in zip(base.files, system.files, strict=True)
    ]
    progress = Progress("pairs", test)
    for number, (system, one, two) in enumerate(pairs):
        p_value = paired_test(one, two, references, metric, test=test, samples=samples, seed=seed)
        system.p_values.append(p_value)
        progress(number + 1, len(pairs))

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
    spread = ["files", "st. dev.", "lowest", "highest"] if several else []
    rows = [["system", base.scores[0].name, *spread, "difference", "p"]]
    for system in (base, *others):
        one = system.spread
        row = [system.name, f"{one.mean:.2f}"]
        if several:
            deviation = "-" if one.deviation is None else f"{one.deviation:.2f}"
            row += [str(len(system.files)), deviation, f"{one.lowest:.2f}", f"{one.highest:.2f}"]
        if system is base:
            row += ["", ""]
        else:
            p_values = ", ".join(f"{p_value:.4f}" for p_value in system.p_values)
            row += [f"{one.mean - base.spread.mean:+.2f}", p_values or "-"]
        rows.append(row)
    return rows


def _as_json(system: _System, base: _System) -> dict[str, Any]:
    one = system.spread
    document: dict[str, Any] = {
        "name": system.name,
        "files": [file.path for file in system.files],
        "scores": one.scores,
        "mean": one.mean,
        "standard_deviation": one.deviation,
        "lowest": one.lowest,
        "highest": one.highest,
    }
    if system is not base:
        document["difference"] = one.mean - base.spread.mean
        document["p_values"] = system.p_values
        document["why_untested"] = _why_untested(system, base)
    return document
