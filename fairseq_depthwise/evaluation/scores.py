r"""BLEU as each paper computes it, chrF, and accuracy, all with sacreBLEU.

``tokenized`` and ``tokenized-lc`` equal ``multi-bleu.perl`` of Moses without and with ``-lc``. The script
splits words at ASCII white space and lowers ASCII letters only. Python's ``split`` and ``lower`` do more.

``compound-split`` first applies ``perl -ple 's{(\S)-(\S)}{$1 ##AT##-##AT## $2}g'``, as for the papers' scores: a match
includes both neighboring bytes, and so the second hyphen of ``a-b-c`` is not split.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.bleu import BLEUScore

from fairseq_depthwise.evaluation.accuracy import Accuracy

METRICS = ("sacrebleu", "tokenized", "tokenized-lc", "compound-split", "chrf", "accuracy")

#: Metrics that do not tokenize: hypotheses and references must be tokenized.
TOKENIZED = ("tokenized", "tokenized-lc", "compound-split")

#: White space for Python but not for a program that reads bytes -> private-use characters.
_INNER_SPACE = {
    code: 0xF0000 + code
    for code in (*range(0x1C, 0x20), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
}
_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}

#: Of bytes, whose white space is that of ASCII.
_COMPOUND = re.compile(rb"(\S)-(\S)")

#: What is told of a BLEU -> its name in sacreBLEU's result.
_NGRAMS = {
    "counts": "counts",
    "totals": "totals",
    "precisions": "precisions",
    "brevity_penalty": "bp",
    "hypothesis_length": "sys_len",
    "reference_length": "ref_len",
}


@dataclass(frozen=True)
class Score:
    """A system's score, from 0 to 100, with sacreBLEU's name, line and signature.

    ``ngrams`` of BLEU: matching and all n-grams for n = 1 to 4, precisions in per cent (smoothed for ``sacrebleu``),
    brevity penalty, lengths in words; empty for chrF.
    """

    name: str
    score: float
    line: str
    signature: str
    sentences: int
    ngrams: dict[str, Any]


class TranslationMetric:
    """One of :data:`METRICS` with its options: sacreBLEU's tokenizer for ``sacrebleu``, word n-grams for ``chrf``."""

    def __init__(self, name: str = "sacrebleu", *, tokenize: str = "13a", chrf_word_order: int = 0) -> None:
        self.name = name
        self.tokenized = name in TOKENIZED
        #: sacreBLEU's own object, for prepared sentences.
        self.scorer: BLEU | CHRF | Accuracy
        if name == "chrf":
            self.scorer = CHRF(word_order=chrf_word_order)
        elif name == "accuracy":
            self.scorer = Accuracy()
        elif self.tokenized:
            self.scorer = BLEU(tokenize="none", force=True, smooth_method="none")
        else:
            self.scorer = BLEU(tokenize=tokenize, force=True)  # its warning of tokenized text is looks_tokenized here

    def prepare(self, sentences: Sequence[str]) -> list[str]:
        """Return sentences as they are passed to sacreBLEU."""
        prepared = list(sentences)
        if self.name == "compound-split":
            prepared = [_split_compounds(sentence) for sentence in prepared]
        if self.name == "tokenized-lc":
            prepared = [sentence.translate(_ASCII_LOWER) for sentence in prepared]
        return [sentence.translate(_INNER_SPACE) for sentence in prepared] if self.tokenized else prepared

    def score(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        """Score a system; each of the references is as long as the hypotheses."""
        result = self.scorer.corpus_score(self.prepare(hypotheses), list(map(self.prepare, references)))
        ngrams = {name: getattr(result, of) for name, of in _NGRAMS.items()} if isinstance(result, BLEUScore) else {}
        return Score(result.name, result.score, str(result), self.signature(), len(hypotheses), ngrams)

    def signature(self) -> str:
        """Return sacreBLEU's signature of the last score, with the preprocessing of the text."""
        signature = self.scorer.get_signature()
        if self.name == "tokenized-lc":
            signature.update("case", "lc-ascii")
        if self.name == "compound-split":
            signature.update("tok", "compound-split")
        return str(signature)


def _split_compounds(sentence: str) -> str:
    text = sentence.encode("utf-8", "surrogatepass")
    return _COMPOUND.sub(rb"\1 ##AT##-##AT## \2", text).decode("utf-8", "surrogatepass")


def join_compounds(sentence: str) -> str:
    """Return a sentence with hyphens as they are written, where preprocessed text has ``a ##AT##-##AT## b``."""
    return sentence.replace(" ##AT##-##AT## ", "-")


def looks_tokenized(hypotheses: Sequence[str], reference: Sequence[str]) -> bool:
    """Return whether many translations end in a separate full stop, unlike the reference."""
    alone, expected = (sum(line.rstrip().endswith(" .") for line in text) for text in (hypotheses, reference))
    return alone > len(hypotheses) / 10 and alone > 2 * expected


def detokenize(sentences: Sequence[str], language: str) -> list[str]:
    """Undo the tokenization of Moses."""
    from sacremoses import MosesDetokenizer

    detokenizer = MosesDetokenizer(lang=language)
    return [detokenizer.detokenize(sentence.split()) for sentence in sentences]
