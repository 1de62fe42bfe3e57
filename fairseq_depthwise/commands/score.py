"""``score``: BLEU, chrF and other metrics of translations, each with its 95 % interval.

example:
  fairseq-depthwise score --ref test.de translated.de
  fairseq-depthwise score --ref test.de --metric sacrebleu --metric ter translated.de
  fairseq-depthwise score --ref test.tok.de --metric compound-split generate-test.txt
  fairseq-depthwise generate data-bin --path best.pt --post-process | fairseq-depthwise score -

Of fairseq's output the D- lines are scored in the order of their numbers, the first of several hypotheses.
The tokenized metrics use the H- lines if a --tokenizer has detokenized the D- lines. The interval is that of
1,000 bootstrap samples of the sentences.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import replace

from sacrebleu.metrics import BLEU

from fairseq_compat import UserError
from fairseq_depthwise.commands.parsers import refuse_unread
from fairseq_depthwise.evaluation.scores import METRICS, Score, TranslationMetric, detokenize, looks_tokenized
from fairseq_depthwise.evaluation.translations import Translations, read_reference, read_translations, subwords_in
from fairseq_depthwise.tables import json_text

#: The metrics without ``--metric``.
DEFAULT_METRICS = ("sacrebleu", "chrf")

#: How a metric scores text: the options of :func:`add_metric_options`, except ``--metric``.
SCORING_OPTIONS = ("tokenize", "chrf_word_order", "detokenize")


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "hypotheses",
        nargs="+",
        metavar="HYP",
        help="text with one translation per line, or output of fairseq-generate or fairseq-interactive; - is stdin",
    )
    parser.add_argument(
        "--ref",
        action="append",
        metavar="REF",
        help="the reference as text; once for each of several (default: the T- lines of fairseq-generate's output)",
    )
    add_metric_options(parser, several=True)
    parser.add_argument("--json", action="store_true", help="print the result as JSON; a list if there are several HYP")


def add_metric_options(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Add the options that choose a metric, or several."""
    metrics = "; ".join(f"{name}: {spec.help}" for name, spec in METRICS.items())
    if several:
        usage = f"once for each of several; default: {' and '.join(DEFAULT_METRICS)}. {metrics}"
        parser.add_argument("--metric", action="append", choices=METRICS, dest="metrics", help=usage)
    else:
        usage = f"default: {DEFAULT_METRICS[0]}. {metrics}"
        parser.add_argument("--metric", choices=METRICS, default=None, help=usage)
    parser.add_argument(
        "--tokenize",
        choices=list(BLEU.TOKENIZERS),
        metavar="NAME",
        help="tokenizer of sacrebleu, such as zh for Chinese translations (default: 13a)",
    )
    parser.add_argument(
        "--chrf-word-order", type=int, choices=range(3), metavar="N", help="2 makes chrf chrF++ (default: 0)"
    )
    parser.add_argument(
        "--detokenize",
        metavar="LANG",
        help="first undo the tokenization of Moses in the translations, for sacrebleu and chrf; LANG as in de",
    )


def chosen_metrics(names: Sequence[str], options: argparse.Namespace) -> list[TranslationMetric]:
    """Return metrics with the values of their options; raise UserError for options that none of them reads."""
    specs = [METRICS[name] for name in names]
    for name, spec in zip(names, specs, strict=True):
        if (spec.text == "tokenized") != (specs[0].text == "tokenized"):
            raise UserError(
                f"--metric {names[0]} scores {specs[0].text}, and --metric {name} {spec.text}; score them one by one"
            )
    effective = {option for spec in specs for option in spec.options}
    if specs[0].text == "detokenized":
        effective.add("detokenize")
    unread = [option for option in SCORING_OPTIONS if option not in effective]
    refuse_unread(options, unread, f"with --metric {names[0]}, which scores {specs[0].text}")

    language = options.detokenize
    if language is not None and not re.fullmatch("[a-z]{2,3}", language):
        raise UserError(f"--detokenize {language} is not a language code; give one such as de")
    metrics = []
    for name, spec in zip(names, specs, strict=True):
        # Each scorer has its own defaults for options that are not on the command line.
        values = {option: getattr(options, option) for option in spec.options}
        on_command_line = {option: value for option, value in values.items() if value is not None}
        metrics.append(TranslationMetric(name, **on_command_line))
    return metrics


def run(options: argparse.Namespace) -> None:
    from fairseq_depthwise.evaluation.significance import score_interval

    names = list(dict.fromkeys(options.metrics or DEFAULT_METRICS))
    metrics = chosen_metrics(names, options)
    references = [read_reference(path) for path in options.ref or ()]
    documents, lines = [], []
    for path in options.hypotheses:
        system = read_system(path, metrics[0], options.detokenize)
        # Without --ref, the T- lines of each system are its reference.
        paths, texts = options.ref, references
        if not options.ref:
            paths, texts = _reference_within(system, metrics[0])
        require_same_sentences(system, paths, texts, metrics[0])

        scores = {}
        for metric in metrics:
            score = metric.score(system.sentences, texts)
            low, high = score_interval(metric, score)
            scores[metric.name] = {
                "score": score.score,
                "interval": [low, high],
                "signature": score.signature,
                "sentences": score.sentences,
                **score.ngrams,
            }
            # With several systems each line begins with the file.
            line = f"{score.line}  95 % interval {low:.2f} to {high:.2f}  {score.signature}"
            lines.append(f"{path}: {line}" if len(options.hypotheses) > 1 else line)
        document = {
            "hypothesis": path,
            "lines": system.lines,
            "references": paths,
            "metric": names[0],
            **scores[names[0]],
            "scores": scores,
        }
        documents.append(document)

    if options.json:
        print(json_text(documents if len(documents) > 1 else documents[0]))
    else:
        print("\n".join(lines))


def read_system(path: str, metric: TranslationMetric, language: str | None) -> Translations:
    """Read translations in the form that a metric needs, detokenized if a language is given; warn about subwords."""
    # fairseq's output may have both forms: D- lines are detokenized, H- lines are not.
    system = read_translations(path, tokenized=metric.tokenized)
    subwords = subwords_in(system.sentences)
    if subwords is not None:
        _warn(f"{path} is in subwords; add --post-process {subwords} (or --remove-bpe {subwords}) to fairseq-generate")
    if language is None:
        return system
    targets = None if system.targets is None else detokenize(system.targets, language)
    return replace(system, sentences=detokenize(system.sentences, language), targets=targets)


def require_same_sentences(
    system: Translations, paths: Sequence[str], references: Sequence[Sequence[str]], metric: TranslationMetric
) -> None:
    """Raise UserError unless references have a line for each translation; warn about tokenized text.

    ``paths`` are the files of the references.
    """
    for path, reference in zip(paths, references, strict=True):
        if len(system.sentences) != len(reference):
            raise UserError(
                f"{system.path} has {len(system.sentences):,} sentences and the reference {path} {len(reference):,}; "
                "give the whole translation of the same test set"
            )
    # Tokenized text has a higher BLEU, which cannot be compared with that of detokenized text.
    if not metric.tokenized and looks_tokenized(system.sentences, references[0]):
        _warn(f"{system.path} looks tokenized; add --detokenize LANG, or choose --metric tokenized")


def score_system(
    system: Translations, paths: Sequence[str], references: Sequence[Sequence[str]], metric: TranslationMetric
) -> Score:
    """Score translations that :func:`require_same_sentences` accepts."""
    require_same_sentences(system, paths, references, metric)
    return metric.score(system.sentences, references)


def _reference_within(system: Translations, metric: TranslationMetric) -> tuple[list[str], list[list[str]]]:
    """Return a name for the T- lines of fairseq's output, and these lines as the reference."""
    if system.targets is None:
        raise UserError(f"--ref is missing, and {system.path} has no T- lines decoded like its translations")
    sentence = f"the reference is the T- lines of {system.path}"
    unknown = sum(line.split().count("<<unk>>") for line in system.targets)
    if unknown:
        sentence += f", where {unknown:,} words are <<unk>>"
    if not metric.tokenized:
        sentence += "; for a score that can be compared with others give the original text with --ref"
    _warn(sentence)
    return [f"T- lines of {system.path}"], [system.targets]


def _warn(sentence: str) -> None:
    print(f"fairseq-depthwise: warning: {sentence}", file=sys.stderr)
