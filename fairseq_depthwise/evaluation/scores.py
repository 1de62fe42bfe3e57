r"""BLEU as each paper computes it, and chrF: all through sacreBLEU, which counts the n-grams.

``tokenized`` and ``tokenized-lc`` equal ``multi-bleu.perl`` of Moses without and with ``-lc``. The script reads bytes:
its words end at ASCII white space only, and it lowers ASCII letters only. Python's ``split`` and ``lower`` do more.

``compound-split`` does first what ``perl -ple 's{(\S)-(\S)}{$1 ##AT##-##AT## $2}g'`` does, by which the papers' scores
are made: a match takes both neighbours with it, bytes as perl reads them, and so the second hyphen of ``a-b-c`` stays
as it is. ``split_all`` splits that one too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.bleu import BLEUScore

from fairseq_compat import UserError

METRICS = ("sacrebleu", "tokenized", "tokenized-lc", "compound-split", "chrf")

#: Those that take text as it is: it must be tokenised, hypotheses and references alike.
TOKENISED = ("tokenized", "tokenized-lc", "compound-split")

#: White space for Python but not for a program that reads bytes, each to a character that nobody uses.
_INNER_SPACE = {
    code: 0xF0000 + code
    for code in (*range(0x1C, 0x20), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
}
_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}

#: Of bytes, where white space is that of ASCII.
_COMPOUND = re.compile(rb"(\S)-(\S)")
_COMPOUND_HYPHEN = re.compile(rb"(?<=\S)-(?=\S)")


@dataclass(frozen=True)
class NgramCounts:
    """What a BLEU is made of.

    Attributes:
        counts, totals: matching and all n-grams of the translations, for n = 1 to 4.
        precisions: their ratios in per cent, smoothed for the metric ``sacrebleu``.
        brevity_penalty: from 0 to 1.
        hypothesis_length, reference_length: in words.
    """

    counts: list[int]
    totals: list[int]
    precisions: list[float]
    brevity_penalty: float
    hypothesis_length: int
    reference_length: int


@dataclass(frozen=True)
class Score:
    """A system's score.

    Attributes:
        name: BLEU, chrF2 or chrF2++.
        score: from 0 to 100.
        signature: sacreBLEU's, so that others can compute the same.
        sentences: how many were scored.
        ngrams: None for chrF.
    """

    name: str
    score: float
    signature: str
    sentences: int
    ngrams: NgramCounts | None


class TranslationMetric:
    """One of :data:`METRICS` with its options.

    Args:
        name: the metric.
        tokenize: sacreBLEU's tokenizer, for the metric ``sacrebleu``.
        chrf_word_order: n-grams of words in chrF; 2 makes it chrF++.
        split_all: for the metric ``compound-split``, split at every hyphen.

    Raises:
        UserError: sacreBLEU has no such tokenizer, or it lacks a package.
    """

    def __init__(
        self,
        name: str = "sacrebleu",
        *,
        tokenize: str = "13a",
        chrf_word_order: int = 0,
        split_all: bool = False,
    ) -> None:
        self.name = name
        self.split_all = split_all
        self.tokenised = name in TOKENISED
        #: sacreBLEU's own object. It counts; sentences must be prepared first.
        self.scorer: BLEU | CHRF
        if name == "chrf":
            self.scorer = CHRF(word_order=chrf_word_order)
        elif self.tokenised:
            self.scorer = BLEU(tokenize="none", force=True, smooth_method="none")
        else:
            self.scorer = _sacrebleu(tokenize)

    def prepare(self, sentences: Sequence[str]) -> list[str]:
        """What sacreBLEU is given in place of sentences."""
        if not self.tokenised:
            return list(sentences)
        prepared = list(sentences)
        if self.name == "compound-split":
            prepared = [_split_compounds(sentence, self.split_all) for sentence in prepared]
        if self.name == "tokenized-lc":
            prepared = [sentence.translate(_ASCII_LOWER) for sentence in prepared]
        return [sentence.translate(_INNER_SPACE) for sentence in prepared]

    def score(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        """Score a system.

        Args:
            hypotheses: its translations.
            references: one or several references, each as long as the hypotheses.
        """
        found = self.scorer.corpus_score(self.prepare(hypotheses), [self.prepare(one) for one in references])
        ngrams = None
        if isinstance(found, BLEUScore):
            ngrams = NgramCounts(found.counts, found.totals, found.precisions, found.bp, found.sys_len, found.ref_len)
        return Score(found.name, found.score, self.signature(), len(hypotheses), ngrams)

    def signature(self) -> str:
        """sacreBLEU's signature of what was scored last, with what was done to the text before."""
        signature = self.scorer.get_signature()
        if self.name == "tokenized-lc":
            signature.update("case", "lc-ascii")
        if self.name == "compound-split":
            signature.update("tok", "compound-split-all" if self.split_all else "compound-split")
        return str(signature)


def _split_compounds(sentence: str, split_all: bool) -> str:
    text = sentence.encode("utf-8", "surrogatepass")
    if split_all:
        text = _COMPOUND_HYPHEN.sub(b" ##AT##-##AT## ", text)
    else:
        text = _COMPOUND.sub(rb"\1 ##AT##-##AT## \2", text)
    return text.decode("utf-8", "surrogatepass")


def require_same_length(path: str, sentences: Sequence[str], reference: str, others: Sequence[str]) -> None:
    """Raise UserError unless a file has as many sentences as its reference."""
    if len(sentences) != len(others):
        raise UserError(
            f"{path} has {len(sentences):,} sentences and the reference {reference} {len(others):,}; "
            "give the whole translation of the same test set"
        )


def looks_tokenised(hypotheses: Sequence[str], reference: Sequence[str]) -> bool:
    """Whether many translations end in a full stop that stands alone, and not so the reference."""
    alone, expected = (sum(line.rstrip().endswith(" .") for line in text) for text in (hypotheses, reference))
    return alone > len(hypotheses) / 10 and alone > 2 * expected


def detokenise(sentences: Sequence[str], language: str) -> list[str]:
    """Undo the tokenisation of Moses.

    Args:
        sentences: tokens with spaces between them.
        language: the code of their language, as ``en``.
    """
    from sacremoses import MosesDetokenizer

    detokenizer = MosesDetokenizer(lang=language)
    return [detokenizer.detokenize(sentence.split()) for sentence in sentences]


def _sacrebleu(tokenizer: str) -> BLEU:
    if tokenizer not in BLEU.TOKENIZERS:
        names = ", ".join(BLEU.TOKENIZERS)
        raise UserError(f"--tokenize {tokenizer} is no tokenizer of sacreBLEU; it must be one of {names}")
    try:
        return BLEU(tokenize=tokenizer, force=True)  # force: its warning of tokenised text is looks_tokenised here
    except (ImportError, RuntimeError) as error:
        raise UserError(f"--tokenize {tokenizer}: {' '.join(str(error).split())}") from error
