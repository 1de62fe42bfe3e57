"""BLEU94 and BLEU4 are not claimed of other metrics; by hand they are in the tests of ``compare``."""

from __future__ import annotations

import pytest

from fairseq_depthwise.evaluation.languages import (
    TESTED,
    LanguageScore,
    summarize,
    why_no_bleu4,
    why_no_bleu94,
)

DEFAULT = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


def scores(signature: str = DEFAULT, metric: str = "sacrebleu", **values: float) -> dict[str, LanguageScore]:
    return {language: LanguageScore(value, metric, signature) for language, value in values.items()}


@pytest.mark.parametrize(
    ("metric", "signature"),
    [("chrf", "nrefs:1|case:mixed|eff:yes|nc:6"), ("sacrebleu", DEFAULT.replace("13a", "intl"))],
)
def test_other_metrics_are_not_called_bleu(metric: str, signature: str) -> None:
    others = scores(**dict.fromkeys(TESTED, 1.0)) | scores(signature, metric, te=1.0)
    for reason in (why_no_bleu94(others), why_no_bleu4(others)):
        assert f"{metric} {signature}" in (reason or "")
    summary = summarize(others)
    assert (summary.mean, summary.bleu94, summary.bleu4) == (1, None, None)
