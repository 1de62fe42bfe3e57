"""Patches of scores: of empty translations, and those of ``fairseq-score``.

Each docstring opens with fairseq's fault, which ``doctor`` lists; the paragraph after it says what the patch does.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from fairseq_compat.errors import UserError
from fairseq_compat.files import require_file
from fairseq_compat.patching import patch, replaces
from fairseq_compat.text import TextFile

#: Larger than the number of any token in a dictionary.
_UNUSED_NUMBER = 2**30


@patch("fairseq.scoring.bleu")
def score_empty_translations(module: Any) -> None:
    """If all translations are empty, or there are none, BLEU divides by zero.

    Here it is 0.
    """

    @replaces(module.Scorer, "brevity")
    def brevity(original: Any, self: Any) -> float:
        return float(original(self)) if self.stat.predlen else 0.0

    @replaces(module.Scorer, "result_string")
    def result_string(original: Any, self: Any, order: int = 4) -> str:
        if self.stat.reflen:
            return str(original(self, order))
        zeros = "/".join(["0.0"] * order)
        return f"BLEU{order} = 0.00, {zeros} (BP=0.000, ratio=0.000, syslen={self.stat.predlen}, reflen=0)"

    @replaces(module.SacrebleuScorer, "_score")
    def _score(original: Any, self: Any, order: int = 4) -> Any:
        if self.pred:
            return original(self, order)
        return self.sacrebleu.metrics.BLEU.compute_bleu([0] * order, [0] * order, 0, 0)


@patch("fairseq.scoring.bleu", function="Scorer.add")
def count_words_of_empty_lines(original: Any, self: Any, ref: Any, pred: Any) -> None:
    """BLEU counts an empty line as one word, and the words ``</s>`` and ``<pad>`` at the end of a line as none.

    fairseq's extension strips end-of-sentence and padding tokens, but always leaves one token. Here the end of each
    sentence is stripped before, and empty lines are counted in Python.
    """
    ref, pred = (_strip_end(tokens, self.eos) for tokens in (ref, pred))
    if len(ref) and len(pred):
        original(self, _replace_special_tokens(ref, self), _replace_special_tokens(pred, self))
        return
    self.stat.reflen += len(ref)
    self.stat.predlen += len(pred)
    for order in range(1, 5):
        name = f"count{order}"
        setattr(self.stat, name, getattr(self.stat, name) + max(0, len(pred) - order + 1))


def _strip_end(tokens: Any, eos: int) -> Any:
    return tokens[:-1] if len(tokens) and tokens[-1] == eos else tokens


def _replace_special_tokens(tokens: Any, scorer: Any) -> Any:
    """Return tokens in which the words ``</s>`` and ``<pad>`` have numbers that the extension treats as words."""
    tokens = tokens.clone()
    for special in (scorer.eos, scorer.pad):
        tokens[tokens == special] = _UNUSED_NUMBER + special
    return tokens


@patch("fairseq_cli.score", function="cli_main")
def score_lines(original: Any) -> None:
    """``fairseq-score`` scores 2 hypotheses and 3 references as if there were 2, and splits lines at carriage returns.

    It stops with ``--sentence-bleu`` and with a current sacrebleu, and with ``--sacrebleu`` it ignores
    ``--ignore-case`` and ``--order``. Here all of these work, texts must have as many lines, and are read as UTF-8.
    """
    parser = sys.modules["fairseq_cli.score"].get_parser()
    options = parser.parse_args()
    print(options)
    if options.order < 1 or (options.order > 4 and not options.sacrebleu):
        raise UserError(f"--order {options.order} is out of range: 1 to 4, and with --sacrebleu more")
    if options.sacrebleu and options.sentence_bleu:
        raise UserError("--sentence-bleu does not go with --sacrebleu; leave one of them out")
    if options.sys == options.ref == "-":
        raise UserError("--ref - is standard input, which --sys is, too; give a file with one of them")
    hypotheses = _read_lines(options.sys, options.ignore_case)
    references = _read_lines(options.ref, options.ignore_case)
    if len(hypotheses) != len(references):
        counts = f"--sys {options.sys} has {len(hypotheses)} lines, and --ref {options.ref} has {len(references)}"
        raise UserError(f"{counts}; line by line they must belong together")
    for score in _compute_scores(options, hypotheses, references):
        print(score)


def _read_lines(path: str, ignore_case: bool) -> list[str]:
    """Return the lines of a text file without their ends; ``-`` is stdin."""
    if path != "-":
        require_file(path)
    with TextFile(path) as file:
        lines = file.readlines()
    texts = []
    for line in lines:
        text = line.removesuffix("\n").removesuffix("\r")
        texts.append(text.lower() if ignore_case else text)
    return texts


def _compute_scores(options: argparse.Namespace, hypotheses: Sequence[str], references: Sequence[str]) -> list[str]:
    """Return the lines to print: the score of the whole text, or of each line."""
    from fairseq.data.dictionary import Dictionary
    from fairseq.scoring import bleu

    if options.sacrebleu:
        from sacrebleu.metrics import BLEU

        metric = BLEU(max_ngram_order=options.order)
        return [str(metric.corpus_score(hypotheses, [references]))]
    dictionary = Dictionary()
    # The dictionary grows: each new word gets the next number.
    scorer = bleu.Scorer(bleu.BleuConfig(pad=dictionary.pad(), eos=dictionary.eos(), unk=dictionary.unk()))
    results = []
    for number, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True)):
        # With one_init, n-gram counts start at 1, so that a line without a common 4-gram has a score above 0.
        if options.sentence_bleu:
            scorer.reset(one_init=True)
        scorer.add(dictionary.encode_line(reference), dictionary.encode_line(hypothesis))
        if options.sentence_bleu:
            results.append(f"{number} {scorer.result_string(options.order)}")
    return results if options.sentence_bleu else [scorer.result_string(options.order)]
