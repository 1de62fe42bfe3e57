"""Systems from the counts of their sentences as from their text."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_depthwise.evaluation.scores import METRICS, TranslationMetric
from fairseq_depthwise.evaluation.significance import (
    bootstrap_interval,
    corpus_bleu,
    count_sentences,
    from_text,
    paired_test,
    sign_test,
    to_text,
)


def _texts(sentences: int = 80) -> tuple[list[str], list[str], list[str]]:
    """Return a reference and two systems with errors in it, one with more; some sentences are short or empty."""
    draw = random.Random(3)
    words = [f"word{number}" for number in range(40)]
    reference = [" ".join(draw.choices(words, k=draw.randint(1, 14))) for _ in range(sentences)]

    def with_errors(rate: float) -> list[str]:
        return [" ".join(word for word in line.split() if draw.random() > rate) for line in reference]

    return reference, with_errors(0.10), with_errors(0.13)


@pytest.mark.parametrize("name", ["sacrebleu", "tokenized-lc"])
def test_the_score_is_sacrebleus(name: str) -> None:
    metric = TranslationMetric(name)
    reference, *systems = _texts()
    for system in systems:
        count = from_text(to_text(count_sentences(metric, system, reference)))
        assert corpus_bleu(metric, count) == pytest.approx(metric.score(system, [reference]).score, abs=1e-9)


def test_the_interval_holds_the_differences_of_seeds_and_sentences() -> None:
    metric = TranslationMetric("sacrebleu")
    reference, better, worse = _texts()
    good, bad = (count_sentences(metric, system, reference) for system in (better, worse))
    difference = corpus_bleu(metric, good) - corpus_bleu(metric, bad)
    low, high = bootstrap_interval(metric, [good] * 3, [bad] * 3, samples=200)
    assert low < difference < high
    # Seeds that differ make it wider than sentences alone do, and swapped systems turn it around.
    perfect = count_sentences(metric, reference, reference)
    low_of_one, high_of_one = bootstrap_interval(metric, [perfect] * 3, [bad] * 3, samples=200)
    wide = bootstrap_interval(metric, [perfect, bad, perfect], [bad, perfect, bad], samples=200)
    assert wide[1] - wide[0] > 2 * (high_of_one - low_of_one)
    assert bootstrap_interval(metric, [bad] * 3, [good] * 3, samples=200) == pytest.approx((-high, -low))
    assert bootstrap_interval(metric, [good], [good], samples=9) == (0, 0)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_the_sign_test_counts_all_divisions(answers: Sequence[tuple[bool, bool]]) -> None:
    base, system = zip(*answers, strict=True)
    signs = [after - before for before, after in answers if before != after]
    divisions = [abs(sum(division)) >= abs(sum(signs)) for division in product((-1, 1), repeat=len(signs))]
    assert sign_test(base, system) == pytest.approx(sum(divisions) / len(divisions))


def test_right_answers_are_those_of_the_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    without_case = replace(METRICS["accuracy"], prepare=str.lower)
    monkeypatch.setitem(METRICS, "accuracy-lc", without_case)
    base, system, reference = ["x"] * 10, ["A"] * 10, ["a"] * 10
    assert paired_test(base, system, [reference], TranslationMetric("accuracy-lc")) == pytest.approx(2 / 2**10)
    assert paired_test(base, system, [reference], TranslationMetric("accuracy")) == 1


def test_accuracy_of_texts() -> None:
    """One line in a thousand is not significant; white space around an answer is nothing."""
    metric = TranslationMetric("accuracy")
    references = [["a"] * 1000, [*["b"] * 999, " c"]]
    all_right = [*["b "] * 500, *["a"] * 499, "c"]
    one_wrong = [*all_right[:-1], "b"]
    assert metric.score(all_right, references).score == 100
    assert metric.score(one_wrong, references).score == pytest.approx(99.9)
    assert paired_test(one_wrong, all_right, references, metric) == 1
    assert paired_test(["d"] * 10 + all_right[10:], all_right, references, metric) == pytest.approx(2 / 2**10)
