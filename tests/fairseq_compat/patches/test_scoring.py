"""BLEU of ``fairseq-generate`` and ``fairseq-score``: which words count."""

from __future__ import annotations

import pytest
from fairseq.data import Dictionary
from fairseq.scoring.bleu import BleuConfig, Scorer
from sacrebleu.metrics import BLEU


@pytest.mark.parametrize(
    "lines",
    [
        [("", ""), ("a b c d e", "a b c d e")],
        [("a b c d f e", "a b c d e"), ("", "a b c d")],
        [("a b c d f e", "a b c d e"), ("a b c d", "")],
        [("a b c d </s>", "a b c d e"), ("<pad> a b c d <pad> </s>", "<pad> a b c d <pad> </s>")],
    ],
    ids=["both empty", "hypothesis", "reference", "special"],
)
def test_bleu_is_that_of_the_words(lines: list[tuple[str, str]]) -> None:
    dictionary = Dictionary()
    scorer = Scorer(BleuConfig(pad=dictionary.pad(), eos=dictionary.eos(), unk=dictionary.unk()))
    for hypothesis, reference in lines:
        scorer.add(dictionary.encode_line(reference), dictionary.encode_line(hypothesis))
    hypotheses, references = zip(*lines, strict=True)
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    assert scorer.score() == pytest.approx(metric.corpus_score(hypotheses, [references]).score)
