"""``compare --languages``: systems against a base in many languages."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from tqdm import tqdm

from fairseq_compat import UserError
from fairseq_depthwise import tables
from fairseq_depthwise.commands.score import chosen_metric, read_system, score_system
from fairseq_depthwise.evaluation import languages
from fairseq_depthwise.evaluation.translations import read_reference


def compare_languages(options: argparse.Namespace) -> None:
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
