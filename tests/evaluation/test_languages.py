"""BLEU94 and BLEU4 are not claimed of other metrics; by hand they are in the tests of ``compare``."""

from __future__ import annotations

import pytest

from fairseq_depthwise.evaluation.languages import TESTED, LanguageScore, summarize, why_missing

DEFAULT = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


def scores(signature: str = DEFAULT, metric: str = "sacrebleu", **values: float) -> dict[str, LanguageScore]:
    return {language: LanguageScore(value, metric, signature) for language, value in values.items()}


@pytest.mark.parametrize(
    ("metric", "signature"),
    [("chrf", "nrefs:1|case:mixed|eff:yes|nc:6"), ("sacrebleu", DEFAULT.replace("13a", "intl"))],
)
def test_other_metrics_are_not_called_bleu(metric: str, signature: str) -> None:
    others = scores(**dict.fromkeys(TESTED, 1.0)) | scores(signature, metric, te=1.0)
    for reason in why_missing(others).values():
        assert f"{metric} {signature}" in (reason or "")
    assert summarize(others) == {"mean": 1, "bleu94": None, "bleu4": None, "win_ratio": None}
