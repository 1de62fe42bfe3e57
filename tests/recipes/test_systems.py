"""The systems of every recipe: their numbers are those that the papers print."""

from __future__ import annotations

from pathlib import Path

import pytest
from language_report import PUBLISHED_BASE, published_scores
from trained_runs import results_of, with_average

from fairseq_compat import UserError
from fairseq_depthwise.evaluation.languages import summarize
from recipes import system_of

#: Of each paper's tables some rows, read a second time: recipe, system, metric, number.
PUBLISHED = [
    ("wmt14_en_de", "transformer_base", "tokenized", 27.55),
    ("wmt14_en_fr", "depthwise_lstm_big", "tokenized", 43.11),
    ("wmt15_cs_en", "depthwise_lstm_24l", "tokenized", 30.02),
    ("wmt14_en_de", "depthwise_lstm_big_12l_6l_1layer", "tokenized", 30.83),
    ("wmt14_en_fr", "depthwise_lstm_big_gelu", "tokenized", 43.04),
    ("wmt15_cs_en", "depthwise_lstm_gelu_18l", "tokenized", 30.08),
    ("wmt14_en_de", "sdt_rpr_48l", "compound-split", 30.21),
    ("wmt14_en_de", "sdt_rpr_48l", "sacrebleu", 29.0),
    ("wmt14_en_fr", "deep_rpr_48l", "tokenized", 43.08),
    ("wmt14_en_fr", "sdt_rpr_48l", "sacrebleu", 41.5),
    ("wmt14_en_de", "sdt_rpr_48l_doubling", "compound-split", 29.78),
    ("wmt14_en_de", "mute_sequential", "tokenized", 29.3),
    ("wmt18_zh_en", "mute_baseline", "sacrebleu", 23.4),
    ("nist_zh_en", "mute_sequential", "mt08 tokenized-lc", 38.70),
    ("nist_zh_en", "mute_sequential_no_bias", "mt06 tokenized-lc", 47.28),
    ("opus100", "transformer_base", "en-xx bleu94", 18.75),
    ("opus100", "depthwise_lstm_base", "xx-en win_ratio", 79.79),
]


#: Systems that a paper and its first version trained: both numbers.
TWICE = [("wmt14_en_de", "transformer_big", [28.83, 28.63]), ("wmt14_en_fr", "transformer_big", [41.92, 41.52])]


@pytest.mark.parametrize(("recipe", "name", "numbers"), TWICE)
def test_numbers_of_both_versions(recipe: str, name: str, numbers: list[float]) -> None:
    published = system_of(recipe, name).published[recipe]
    assert [result.score for result in published if result.name == "tokenized"] == numbers
    assert ["v1" in result.where for result in published] == [False, True]


@pytest.mark.parametrize(("recipe", "name", "metric", "number"), PUBLISHED)
def test_published_numbers(recipe: str, name: str, metric: str, number: float) -> None:
    published = system_of(recipe, name).published[recipe]
    assert [result.score for result in published if result.name == metric] == [number]


def test_another_average(monkeypatch: pytest.MonkeyPatch) -> None:
    """``AVERAGE`` chooses the checkpoints, and its results have a place of their own."""
    monkeypatch.setenv("AVERAGE", "03")
    assert with_average(system_of("nist_zh_en", "mute")).training.average == 3
    assert results_of(Path("run")) == Path("run/evaluation-average3")
    monkeypatch.setenv("AVERAGE", "")
    assert with_average(system_of("nist_zh_en", "mute")).training.average == 0
    assert results_of(Path("run")) == Path("run/evaluation")
    monkeypatch.setenv("AVERAGE", "best")
    with pytest.raises(UserError, match="AVERAGE=best"):
        with_average(system_of("nist_zh_en", "mute"))


def test_published_scores_by_language() -> None:
    """The means of the published scores of each language are those of Table 7, but for rounding."""
    for column, numbers in (
        ("transformer", (18.75, 14.73, 27.02, 22.50)),
        (PUBLISHED_BASE, (20.81, 17.45, 27.22, 23.30)),
    ):
        scores = published_scores(column)
        assert set(scores) == {"en-xx", "xx-en"}
        found = []
        for group in ("en-xx", "xx-en"):
            assert len(scores[group]) == 94
            found += [summarize(scores[group])["mean"]]
            found += [sum(scores[group][language].score for language in ("de", "zh", "br", "te")) / 4]
        assert found == pytest.approx(numbers, abs=0.011)
    # 93 of 94 wins is what the paper prints.
    better = {
        language: score._replace(score=score.score + (language != "de")) for language, score in scores["en-xx"].items()
    }
    assert f"{summarize(better, scores['en-xx'])['win_ratio']:.2f}" == "98.94"


#: Hours of the paper's Table 1 for 24 and 48 layers with relative positions, and savings of Table 4.
HOURS = {24: 9.80, 48: 19.58}
SAVED = {"sdt_rpr_48l": 39.9, "sdt_rpr_48l_interval1": 36.7, "sdt_rpr_48l_interval4": 42.1}


def test_plans_save_what_the_paper_saves() -> None:
    """With epochs whose time is linear in the layers, as the hours say: a few points less, in the same order."""

    def saved(name: str) -> float:
        plan = system_of("wmt14_en_de", name).stages
        slope = (HOURS[48] - HOURS[24]) / 24
        times = {stage: (HOURS[24] + slope * (stage.layers - 24)) * (stage.epochs or 0) for stage in plan}
        return 100 * (1 - sum(times.values()) / (HOURS[48] * sum(stage.epochs or 0 for stage in plan)))

    found = {name: saved(name) for name in SAVED}
    assert sorted(found, key=found.__getitem__) == sorted(SAVED, key=SAVED.__getitem__)
    assert all(0 < SAVED[name] - found[name] < 6 for name in SAVED)
    assert saved("sdt_rpr_48l_doubling") == pytest.approx(40.5, abs=0.1)  # 51.8 is published; the page says so
