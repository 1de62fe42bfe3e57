"""BLEU94, BLEU4 and the win ratio by hand, and when none of them can be claimed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fairseq_compat import UserError
from fairseq_depthwise.evaluation.languages import (
    TESTED,
    LanguageScore,
    files_by_language,
    require_comparable,
    summarize,
    why_no_bleu4,
    why_no_bleu94,
)

DEFAULT = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


def scores(signature: str = DEFAULT, metric: str = "sacrebleu", **values: float) -> dict[str, LanguageScore]:
    return {language: LanguageScore(value, metric, signature) for language, value in values.items()}


def test_languages_of_opus100() -> None:
    assert len(TESTED) == len(set(TESTED)) == 94
    assert set(TESTED).isdisjoint({"en", "an", "dz", "hy", "mn", "yo"})
    assert {"de", "zh", "br", "te"} <= set(TESTED)


def test_bleu94_is_over_exactly_the_94() -> None:
    all_of_them = scores(**{language: float(number) for number, language in enumerate(TESTED)})
    assert why_no_bleu94(all_of_them) is None
    assert summarize(all_of_them).bleu94 == pytest.approx(46.5)
    fewer = {language: score for language, score in all_of_them.items() if language not in ("af", "zu")}
    assert re.search("2 of the 94 .*af, zu", why_no_bleu94(fewer) or "")
    assert summarize(fewer).bleu94 is None
    more = {**all_of_them, **scores(yo=1, xx=2)}
    assert "xx, yo" in (why_no_bleu94(more) or "")
    assert summarize(more).bleu94 is None
    assert summarize(more).bleu4 is not None


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


def test_one_metric_for_all_languages() -> None:
    mixed = scores(de=1) | scores("nc:6", "chrf", fr=2)
    with pytest.raises(UserError, match=r"base .* chrf and sacrebleu"):
        require_comparable([("base", mixed), ("deep", dict(mixed))])


def test_files_of_a_folder(tmp_path: Path) -> None:
    for name in ("de.hyp", "fr.json", "br.txt", "notes.md", "de.log"):
        (tmp_path / name).write_text("x")
    found = files_by_language(str(tmp_path), (".hyp", ".txt", ".json"))
    assert found == {"br": f"{tmp_path}/br.txt", "de": f"{tmp_path}/de.hyp", "fr": f"{tmp_path}/fr.json"}
    (tmp_path / "de.json").write_text("x")
    with pytest.raises(UserError, match=r"de\.hyp and de\.json"):
        files_by_language(str(tmp_path), (".hyp", ".txt", ".json"))
    with pytest.raises(UserError, match=r"\.ref"):
        files_by_language(str(tmp_path), (".ref",))
