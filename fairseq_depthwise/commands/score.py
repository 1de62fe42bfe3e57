"""``score``: BLEU and chrF of translations.

example:
  fairseq-depthwise score --ref test.de translated.de
  fairseq-depthwise score --ref test.tok.de --metric compound-split generate-test.txt
  fairseq-depthwise generate data-bin --path best.pt --post-process | fairseq-depthwise score -

Of fairseq's output the D- lines are scored in the order of their numbers, the first of several hypotheses.
The tokenized metrics use the H- lines if a --tokenizer has detokenized the D- lines.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace

from sacrebleu.metrics import BLEU

from fairseq_compat import UserError
from fairseq_depthwise.evaluation.scores import (
    METRICS,
    Score,
    TranslationMetric,
    detokenize,
    looks_tokenized,
)
from fairseq_depthwise.evaluation.translations import Translations, read_reference, read_translations, subwords_in


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "hypotheses", nargs="+", metavar="HYP",
        help="text with one translation per line, or output of fairseq-generate or fairseq-interactive; - is stdin",
    )  # fmt: skip
    parser.add_argument(
        "--ref", action="append", metavar="REF",
        help="the reference as text; once for each of several (default: the T- lines of fairseq-generate's output)",
    )  # fmt: skip
    add_metric_options(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON; a list if there are several HYP")


def add_metric_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose a metric."""
    parser.add_argument(
        "--metric", choices=METRICS,
        help="sacrebleu (default) and chrf are for detokenized text; tokenized equals multi-bleu.perl of Moses, "
        "tokenized-lc the same with -lc, and compound-split is tokenized with words split at hyphens: these three are "
        "for tokenized text; accuracy is the share of lines that are equal to the reference",
    )  # fmt: skip
    parser.add_argument(
        "--tokenize", choices=list(BLEU.TOKENIZERS), metavar="NAME",
        help="tokenizer of sacrebleu, such as zh for Chinese translations (default: 13a)",
    )  # fmt: skip
    parser.add_argument(
        "--chrf-word-order", type=int, choices=range(3), metavar="N", help="2 makes chrf chrF++ (default: 0)"
    )
    parser.add_argument(
        "--detokenize", metavar="LANG",
        help="first undo the tokenization of Moses in the translations, for sacrebleu and chrf; LANG as in de",
    )  # fmt: skip


def chosen_metric(options: argparse.Namespace) -> TranslationMetric:
    """Return the chosen metric; raise UserError for options that do not go together."""
    name = options.metric or "sacrebleu"
    for option, metric in {"tokenize": "sacrebleu", "chrf_word_order": "chrf"}.items():
        if getattr(options, option) is not None and name != metric:
            raise UserError(f"--{option.replace('_', '-')} is for --metric {metric}, and the metric is {name}")
    words = options.chrf_word_order or 0
    chosen = TranslationMetric(name, tokenize=options.tokenize or "13a", chrf_word_order=words)
    if (language := options.detokenize) is not None:
        if chosen.tokenized:
            raise UserError(f"--detokenize {language} is for detokenized metrics, and {name} needs tokenized text")
        if name == "accuracy":
            raise UserError(
                f"--detokenize {language} is for sacrebleu and chrf, and accuracy compares lines as they are"
            )
        if not re.fullmatch("[a-z]{2,3}", language):
            raise UserError(f"--detokenize {language} is no code of a language; give one as in de")
    return chosen


def read_system(path: str, metric: TranslationMetric, language: str | None) -> Translations:
    """Read translations in the form that a metric needs, and warn of subwords."""
    system = read_translations(path, tokenized=metric.tokenized)
    if kind := subwords_in(system.sentences):
        _warn(f"{path} is in subwords; add --post-process {kind} (or --remove-bpe {kind}) to fairseq-generate")
    if language is not None:
        targets = None if system.targets is None else detokenize(system.targets, language)
        system = replace(system, sentences=detokenize(system.sentences, language), targets=targets)
    return system


def score_system(
    system: Translations, paths: Sequence[str], references: Sequence[Sequence[str]], metric: TranslationMetric
) -> Score:
    """Score translations, and warn of tokenized text; ``paths`` are the files of the references."""
    for path, reference in zip(paths, references, strict=True):
        if len(system.sentences) != len(reference):
            raise UserError(
                f"{system.path} has {len(system.sentences):,} sentences and the reference {path} {len(reference):,}; "
                "give the whole translation of the same test set"
            )
    if not metric.tokenized and looks_tokenized(system.sentences, references[0]):
        _warn(f"{system.path} looks tokenized; add --detokenize LANG, or choose --metric tokenized")
    return metric.score(system.sentences, references)


def _warn(sentence: str) -> None:
    print(f"fairseq-depthwise: warning: {sentence}", file=sys.stderr)


def run(options: argparse.Namespace) -> None:
    metric = chosen_metric(options)
    references = [read_reference(path) for path in options.ref or ()]
    documents, lines = [], []
    for path in options.hypotheses:
        system = read_system(path, metric, options.detokenize)
        paths, texts = (options.ref, references) if options.ref else _own_reference(system, metric)
        score = score_system(system, paths, texts, metric)
        found = {"hypothesis": path, "lines": system.lines, "references": paths, "metric": metric.name}
        found |= {name: getattr(score, name) for name in ("score", "signature", "sentences")}
        documents.append(found | score.ngrams)
        lines.append((f"{path}: " if len(options.hypotheses) > 1 else "") + f"{score.line}  {score.signature}")
    if options.json:
        print(json.dumps(documents if len(documents) > 1 else documents[0], indent=2))
    else:
        print("\n".join(lines))


def _own_reference(system: Translations, metric: TranslationMetric) -> tuple[list[str], list[list[str]]]:
    """Return the T- lines of fairseq's output as the reference."""
    if system.targets is None:
        raise UserError(f"--ref is missing, and {system.path} has no T- lines in the form of its translations")
    sentence = f"the reference is the T- lines of {system.path}"
    if unknown := sum(line.split().count("<<unk>>") for line in system.targets):
        sentence += f", where {unknown:,} words are <<unk>>"
    if not metric.tokenized:
        sentence += "; for a score that can be compared with others give the original text with --ref"
    _warn(sentence)
    return [f"T- lines of {system.path}"], [system.targets]
