"""``score``: BLEU, chrF and COMET of translations."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from fairseq_compat import UserError
from fairseq_depthwise.commands.parsers import add_parser
from fairseq_depthwise.evaluation.comet import CometMetric, comet_checkpoint
from fairseq_depthwise.evaluation.scores import (
    METRICS,
    Score,
    TranslationMetric,
    detokenize,
    looks_tokenized,
    require_same_length,
)
from fairseq_depthwise.evaluation.translations import (
    Translations,
    read_lines,
    read_reference,
    read_translations,
    subwords_in,
)


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "score",
        run=run,
        help="score translations, plain text or the output of fairseq-generate, with BLEU, chrF or COMET",
        example="fairseq-depthwise score --ref test.de translated.de\n"
        "  fairseq-depthwise score --ref test.tok.de --metric compound-split generate-test.txt\n"
        "  fairseq-depthwise generate data-bin --path best.pt --post-process | fairseq-depthwise score -\n"
        "  fairseq-depthwise score --metric comet --comet-model comet-da --source test.en --ref test.de test.hyp\n\n"
        "Of fairseq's output the D- lines are scored in the order of their numbers, the first of several hypotheses.\n"
        "The tokenized metrics use the H- lines if a --tokenizer has detokenized the D- lines.",
    )
    parser.add_argument(
        "hypotheses", nargs="+", metavar="HYP",
        help="text with one translation per line, or output of fairseq-generate or fairseq-interactive; - is stdin",
    )  # fmt: skip
    parser.add_argument(
        "--ref", action="append", metavar="REF",
        help="the reference as text; once for each of several (default: the T- lines of fairseq-generate's output)",
    )  # fmt: skip
    add_metric_options(parser, *METRICS, "comet")
    parser.add_argument(
        "--comet-model", metavar="PATH",
        help="for comet: the model, a checkpoint or its folder. unbabel-comet, an extra of this package, loads it and "
        "can run code that is in it, so give only a file that you trust; nothing is downloaded",
    )  # fmt: skip
    parser.add_argument("--source", metavar="SRC", help="for comet: the text that was translated")
    parser.add_argument("--json", action="store_true", help="print the result as JSON; a list if there are several HYP")


def add_metric_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the options that choose one of several metrics."""
    parser.add_argument(
        "--metric", choices=names,
        help="sacrebleu (default) and chrf are for detokenized text; tokenized equals multi-bleu.perl of Moses, "
        "tokenized-lc the same with -lc, and compound-split is tokenized with words split at hyphens: these three are "
        "for tokenized text" + ("; comet is a trained model's judgment" if "comet" in names else ""),
    )  # fmt: skip
    parser.add_argument(
        "--compound-split-all", action="store_true",
        help="split at every hyphen, for compound-split; else, as for the papers' scores, not at the second of a-b-c",
    )  # fmt: skip
    parser.add_argument(
        "--tokenize", metavar="NAME", help="tokenizer of sacrebleu, such as zh for Chinese translations (default: 13a)"
    )
    parser.add_argument(
        "--chrf-word-order", type=int, choices=range(3), metavar="N", help="2 makes chrf chrF++ (default: 0)"
    )
    parser.add_argument(
        "--detokenize", metavar="LANG",
        help="first undo the tokenization of Moses in the translations, for sacrebleu and chrf; LANG as in de",
    )  # fmt: skip


def chosen_metric(options: argparse.Namespace) -> TranslationMetric:
    """Return the chosen metric; raise UserError for options that do not go together."""
    metric = options.metric or "sacrebleu"
    if options.tokenize is not None and metric != "sacrebleu":
        raise UserError(f"--tokenize {options.tokenize} is for --metric sacrebleu; {metric} has no tokenizer")
    if options.chrf_word_order is not None and metric != "chrf":
        raise UserError(f"--chrf-word-order {options.chrf_word_order} is for --metric chrf, and the metric is {metric}")
    if options.compound_split_all and metric != "compound-split":
        raise UserError(f"--compound-split-all is for --metric compound-split, and the metric is {metric}")
    chosen = TranslationMetric(
        "sacrebleu" if metric == "comet" else metric,  # COMET reads the same text
        tokenize=options.tokenize or "13a",
        chrf_word_order=options.chrf_word_order or 0,
        split_all=options.compound_split_all,
    )
    if (language := options.detokenize) is not None:
        if chosen.tokenized:
            raise UserError(f"--detokenize {language} is for detokenized metrics, and {metric} needs tokenized text")
        if not re.fullmatch("[a-z]{2,3}", language):
            raise UserError(f"--detokenize {language} is no code of a language; give one as in de")
    return chosen


def require_one_stdin(paths: Sequence[str]) -> None:
    if paths.count("-") > 1:
        raise UserError(f"stdin (-) is given {paths.count('-')} times; it can be read once")


def read_system(path: str, metric: TranslationMetric, language: str | None) -> Translations:
    """Read translations in the form that a metric needs, and warn of subwords."""
    system = read_translations(path, tokenized=metric.tokenized)
    if kind := subwords_in(system.sentences):
        warn(f"{path} is in subwords; add --post-process {kind} (or --remove-bpe {kind}) to fairseq-generate")
    if language is not None:
        targets = None if system.targets is None else detokenize(system.targets, language)
        system = replace(system, sentences=detokenize(system.sentences, language), targets=targets)
    return system


def score_system(
    system: Translations, paths: Sequence[str], references: Sequence[Sequence[str]], metric: TranslationMetric
) -> Score:
    """Score translations, and warn of tokenized text; ``paths`` are the files of the references."""
    _check(system, paths, references, metric)
    return metric.score(system.sentences, references)


def _check(
    system: Translations, paths: Sequence[str], references: Sequence[Sequence[str]], metric: TranslationMetric
) -> None:
    for path, reference in zip(paths, references, strict=True):
        require_same_length(system.path, system.sentences, path, reference)
    if not metric.tokenized and references and looks_tokenized(system.sentences, references[0]):
        warn(f"{system.path} looks tokenized; add --detokenize LANG, or choose --metric tokenized")


def warn(sentence: str) -> None:
    print(f"fairseq-depthwise: warning: {sentence}", file=sys.stderr)


def run(options: argparse.Namespace) -> int:
    metric = chosen_metric(options)
    require_one_stdin([*options.hypotheses, *(options.ref or ()), *filter(None, [options.source])])
    if options.metric == "comet":
        documents, lines = _comet(options, metric)
    else:
        documents, lines = _scores(options, metric)
    if options.json:
        print(json.dumps(documents if len(documents) > 1 else documents[0], indent=2))
    else:
        print("\n".join(lines))
    return 0


def _scores(options: argparse.Namespace, metric: TranslationMetric) -> tuple[list[dict[str, Any]], list[str]]:
    """Return each system's score as JSON and as text."""
    for name in ("comet_model", "source"):
        if (value := getattr(options, name)) is not None:
            raise UserError(
                f"--{name.replace('_', '-')} {value} is for --metric comet, and the metric is {metric.name}"
            )
    references = [read_reference(path) for path in options.ref or ()]
    documents, lines = [], []
    for path in options.hypotheses:
        system = read_system(path, metric, options.detokenize)
        paths, texts = (options.ref, references) if options.ref else _own_reference(system, metric)
        score = score_system(system, paths, texts, metric)
        documents.append(
            {
                "hypothesis": path,
                "lines": system.lines,
                "references": paths,
                "metric": metric.name,
                "score": score.score,
                "signature": score.signature,
                "sentences": score.sentences,
                **(asdict(score.ngrams) if score.ngrams else {}),
            }
        )
        lines.append((f"{path}: " if len(options.hypotheses) > 1 else "") + _as_text(score))
    return documents, lines


def _comet(options: argparse.Namespace, metric: TranslationMetric) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the same of COMET."""
    for option, value in (("--comet-model", options.comet_model), ("--source", options.source)):
        if value is None:
            raise UserError(f"{option} is missing; --metric comet needs a model and the text that was translated")
    if len(options.ref or ()) > 1:
        raise UserError(f"--ref is given {len(options.ref)} times; COMET compares with one reference")
    checkpoint = comet_checkpoint(options.comet_model)
    sources = read_lines(options.source)
    given = [read_reference(path) for path in options.ref or ()]
    systems, references = [], []
    for path in options.hypotheses:
        system = read_system(path, metric, options.detokenize)
        paths, texts = (options.ref or [], given)
        if not paths and system.targets is not None:
            paths, texts = _own_reference(system, metric)
        _check(system, [*paths, options.source], [*texts, sources], metric)
        systems.append(system)
        references.append((paths, texts))
    print(f"loading {checkpoint} with unbabel-comet, which can run code that is in it", file=sys.stderr)
    model = CometMetric(options.comet_model)
    documents, lines = [], []
    for system, (paths, texts) in zip(systems, references, strict=True):
        if model.needs_reference and not texts:
            raise UserError(f"--ref is missing; --comet-model {options.comet_model} compares with a reference")
        score = model.score(sources, system.sentences, texts[0] if texts else None)
        documents.append(
            {
                "hypothesis": system.path,
                "lines": system.lines,
                "source": options.source,
                "references": paths,
                "metric": "comet",
                "score": score.score,
                "signature": score.signature,
                "sentences": len(system.sentences),
                "sentence_scores": score.sentence_scores,
            }
        )
        start = f"{system.path}: " if len(systems) > 1 else ""
        lines.append(f"{start}COMET = {score.score:.4f}  {score.signature}")
    return documents, lines


def _own_reference(system: Translations, metric: TranslationMetric) -> tuple[list[str], list[list[str]]]:
    """Return the T- lines of fairseq's output as the reference."""
    if system.targets is None:
        raise UserError(f"--ref is missing, and {system.path} has no T- lines in the form of its translations")
    sentence = f"the reference is the T- lines of {system.path}"
    if unknown := sum(line.split().count("<<unk>>") for line in system.targets):
        sentence += f", where {unknown:,} words are <<unk>>"
    if not metric.tokenized:
        sentence += "; for a score that can be compared with others give the original text with --ref"
    warn(sentence)
    return [f"T- lines of {system.path}"], [system.targets]


def _as_text(score: Score) -> str:
    start = f"{score.name} = {score.score:.2f}"
    if (parts := score.ngrams) is not None:
        ratio = parts.hypothesis_length / parts.reference_length if parts.reference_length else 0
        start += (
            f" {'/'.join(f'{precision:.1f}' for precision in parts.precisions)} (BP = {parts.brevity_penalty:.3f} "
            f"ratio = {ratio:.3f} hyp_len = {parts.hypothesis_length} ref_len = {parts.reference_length})"
        )
    return f"{start}  {score.signature}"
