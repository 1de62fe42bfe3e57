r"""BLEU as the papers compute it, chrF, TER and accuracy, all with sacreBLEU.

To add a metric, add an entry to :data:`METRICS`.

``tokenized`` and ``tokenized-lc`` equal ``multi-bleu.perl`` of Moses without and with ``-lc``. The script
splits words at ASCII white space and lowercases ASCII letters only. Python's ``split`` and ``lower`` do more.

``compound-split`` first applies ``perl -ple 's{(\S)-(\S)}{$1 ##AT##-##AT## $2}g'``, as for the papers' scores: a match
includes both neighboring bytes, and so the second hyphen of ``a-b-c`` is not split.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEUScore

from fairseq_compat import UserError
from fairseq_depthwise.evaluation.accuracy import Accuracy

#: White space for Python but not for a program that reads bytes -> private-use characters.
_INNER_SPACE = {
    code: 0xF0000 + code
    for code in (*range(0x1C, 0x20), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
}
_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}

#: Matches bytes, whose white space is that of ASCII.
_COMPOUND = re.compile(rb"(\S)-(\S)")

#: Fields of :attr:`Score.ngrams` -> their names in sacreBLEU's result.
_NGRAMS = {
    "counts": "counts",
    "totals": "totals",
    "precisions": "precisions",
    "brevity_penalty": "bp",
    "hypothesis_length": "sys_len",
    "reference_length": "ref_len",
}


def _keep_unchanged(sentence: str) -> str:
    return sentence


def _split_at_ascii_space(sentence: str) -> str:
    """Return a sentence that Python splits into the same words as a program that reads bytes."""
    return sentence.translate(_INNER_SPACE)


def _lower_ascii(sentence: str) -> str:
    return _split_at_ascii_space(sentence.translate(_ASCII_LOWER))


def _split_compounds(sentence: str) -> str:
    # JSON may contain half of a surrogate pair, which plain UTF-8 cannot encode.
    text = sentence.encode("utf-8", "surrogatepass")
    # Matches do not overlap, which leaves the second hyphen of "a-b-c" as it is.
    split = _COMPOUND.sub(rb"\1 ##AT##-##AT## \2", text)
    return _split_at_ascii_space(split.decode("utf-8", "surrogatepass"))


def _make_sacrebleu(tokenize: str = "13a") -> BLEU:
    return BLEU(tokenize=tokenize, force=True)  # in place of sacreBLEU's warning there is looks_tokenized


def _make_multi_bleu() -> BLEU:
    # multi-bleu.perl does not smooth: without a matching 4-gram, BLEU is 0.
    return BLEU(tokenize="none", force=True, smooth_method="none")


def _make_chrf(chrf_word_order: int = 0) -> CHRF:
    return CHRF(word_order=chrf_word_order)


@dataclass(frozen=True)
class MetricSpec:
    """A value of ``--metric``.

    Attributes:
        help: its description, for the option's help.
        scorer: returns sacreBLEU's object; its arguments are options of ``score``.
        text: type of text: "detokenized", "tokenized", or "answers", each of which is correct or not as a whole.
        prepare: changes a sentence before it is scored.
        signature: entries of sacreBLEU's signature that describe ``prepare``.
        options: the options of ``score`` that ``scorer`` takes.
        lower_is_better: whether it counts errors.
    """

    help: str
    scorer: Callable[..., Metric]
    text: str
    prepare: Callable[[str], str] = _keep_unchanged
    signature: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    lower_is_better: bool = False


#: Value of ``--metric`` -> metric.
METRICS = {
    "sacrebleu": MetricSpec(
        help="BLEU of detokenized text",
        scorer=_make_sacrebleu,
        text="detokenized",
        options=("tokenize",),
    ),
    "tokenized": MetricSpec(
        help="BLEU of tokenized text, as multi-bleu.perl of Moses",
        scorer=_make_multi_bleu,
        text="tokenized",
        prepare=_split_at_ascii_space,
    ),
    "tokenized-lc": MetricSpec(
        help="the same with -lc",
        scorer=_make_multi_bleu,
        text="tokenized",
        prepare=_lower_ascii,
        signature={"case": "lc-ascii"},
    ),
    "compound-split": MetricSpec(
        help="BLEU of tokenized text with words split at hyphens",
        scorer=_make_multi_bleu,
        text="tokenized",
        prepare=_split_compounds,
        signature={"tok": "compound-split"},
    ),
    "chrf": MetricSpec(
        help="chrF of detokenized text",
        scorer=_make_chrf,
        text="detokenized",
        options=("chrf_word_order",),
    ),
    "ter": MetricSpec(
        help="translation edit rate of detokenized text; lower is better",
        scorer=TER,
        text="detokenized",
        lower_is_better=True,
    ),
    "accuracy": MetricSpec(
        help="share of lines that are equal to the reference",
        scorer=Accuracy,
        text="answers",
    ),
}


@dataclass(frozen=True)
class Score:
    """A system's score, from 0 to 100, with sacreBLEU's name, line and signature.

    ``ngrams`` of BLEU: matching and all n-grams for n = 1 to 4, precisions in percent (smoothed for ``sacrebleu``),
    brevity penalty, lengths in words; empty for other metrics. ``statistics`` are sacreBLEU's of each sentence, whose
    sums have the score.
    """

    name: str
    score: float
    line: str
    signature: str
    sentences: int
    ngrams: dict[str, Any]
    statistics: Sequence[Sequence[float]] = field(repr=False)


class TranslationMetric:
    """A metric of :data:`METRICS`; ``options`` are those of its scorer: ``tokenize`` or ``chrf_word_order``."""

    def __init__(self, name: str = "sacrebleu", **options: Any) -> None:
        self.name = name
        self.spec = METRICS[name]
        #: Whether hypotheses and references must be tokenized.
        self.tokenized = self.spec.text == "tokenized"
        #: Whether a line is right or wrong as a whole.
        self.scores_answers = self.spec.text == "answers"
        #: sacreBLEU's object, which takes prepared sentences.
        self.scorer = self.spec.scorer(**options)

    def prepare(self, sentences: Sequence[str]) -> list[str]:
        """Return sentences as they are passed to sacreBLEU."""
        return [self.spec.prepare(sentence) for sentence in sentences]

    def score(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        """Score a system; each of the references is as long as the hypotheses.

        Raises:
            UserError: a text is given in place of its lines, or numbers of lines differ.
        """
        require_lines(hypotheses, references)
        prepared = [self.prepare(reference) for reference in references]
        # As sacreBLEU's corpus_score, which does not return the statistics.
        statistics = self.scorer._extract_corpus_statistics(self.prepare(hypotheses), prepared)
        result = self.scorer._aggregate_and_compute(statistics)
        # Other metrics have no n-grams.
        ngrams = {}
        if isinstance(result, BLEUScore):
            ngrams = {name: getattr(result, name_in_result) for name, name_in_result in _NGRAMS.items()}
        return Score(result.name, result.score, str(result), self.signature(), len(hypotheses), ngrams, statistics)

    def signature(self) -> str:
        """Return sacreBLEU's signature of the last score, with the preparation of the text."""
        # sacreBLEU does not know how sentences were prepared.
        signature = self.scorer.get_signature()
        for key, value in self.spec.signature.items():
            signature.update(key, value)
        return str(signature)


def require_lines(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raise UserError unless each reference has a line for each hypothesis.

    sacreBLEU takes the letters of a text for lines, and ignores the end of what is longer.
    """
    for lines in (hypotheses, references, *references):
        if isinstance(lines, str):
            raise UserError(
                f"{lines[:40]!r} is a text; give a list of lines as hypotheses, and a list of such lists as references"
            )
    for reference in references:
        if len(reference) != len(hypotheses):
            raise UserError(
                f"there are {len(hypotheses):,} hypotheses and {len(reference):,} lines in a reference; give one for "
                "each"
            )


def join_compounds(sentence: str) -> str:
    """Return a preprocessed sentence with ``a-b`` in place of ``a ##AT##-##AT## b``."""
    return sentence.replace(" ##AT##-##AT## ", "-")


def looks_tokenized(hypotheses: Sequence[str], reference: Sequence[str]) -> bool:
    """Return whether many translations end in a separate period, unlike the reference."""
    separate = sum(line.rstrip().endswith(" .") for line in hypotheses)
    expected = sum(line.rstrip().endswith(" .") for line in reference)
    return separate > len(hypotheses) / 10 and separate > 2 * expected


def detokenize(sentences: Sequence[str], language: str) -> list[str]:
    """Undo the tokenization of Moses."""
    from sacremoses import MosesDetokenizer

    detokenizer = MosesDetokenizer(lang=language)
    return [detokenizer.detokenize(sentence.split()) for sentence in sentences]
