"""The made corpus: its answers are right, its sentences are new, and a system is trained and scored by steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from recipe_runs import Work, files_of, lines, small

TESTS = [f"k{steps}" for steps in range(1, 9)]
CORPUS = {"SENTENCES": "1200", "HELD_OUT": "40"}


@pytest.fixture(scope="module")
def work(new_work: Callable[..., Work]) -> Work:
    made = new_work("hops", **CORPUS)
    made.run("prepare")
    return made


def follow(source: str) -> tuple[str, int]:
    """Return the answer to a source sentence, and the number of steps, from what it says of its own form."""
    *words, symbol, query = source.split()
    following = dict(zip(words[::2], words[1::2], strict=True))
    assert len(words) == 32
    assert len(following) == len({*following.values()}) == 16
    steps = int(query.removeprefix("k"))
    for _ in range(steps):
        symbol = following[symbol]
    return symbol, steps


def pairs_of(folder: Path, name: str) -> list[tuple[str, str]]:
    sources, targets = (lines(folder / "text" / f"{name}.{side}") for side in ("pairs", "answer"))
    return list(zip(sources, targets, strict=True))


def test_names_of_folders_are_no_words_of_a_shell(work: Work, tmp_path: Path) -> None:
    other = Work("hops", tmp_path / "R&D $(touch mine) 'a' *", work.environment)
    other.run("prepare")
    data, others = (files_of(one.folder / "data-bin") for one in (work, other))
    assert data.pop("preprocess.log") != others.pop("preprocess.log")  # which has the names
    assert others == data
    assert [path.name for path in tmp_path.iterdir()] == [other.folder.name]


def test_answers_are_right_and_sentences_new(work: Work) -> None:
    seen = set()
    for name in ("train", "valid", *(f"test.{test}" for test in TESTS)):
        pairs = pairs_of(work.folder, name)
        steps_of_sentences: Counter[int] = Counter()
        for source, target in pairs:
            answer, steps = follow(source)
            assert target == answer
            assert source not in seen
            seen.add(source)
            steps_of_sentences[steps] += 1
        if name.startswith("test."):
            assert steps_of_sentences == {int(name.removeprefix("test.k")): 40}
        else:
            assert sorted(steps_of_sentences) == list(range(1, 9))
    assert len(seen) == 1200 + 9 * 40


def test_no_symbol_and_no_step_stands_out(work: Work) -> None:
    training = pairs_of(work.folder, "train")
    answers = Counter(target for _, target in training)
    assert len(answers) == 64
    assert max(answers.values()) < 3 * len(training) / 64
    steps = Counter(follow(source)[1] for source, _ in training)
    assert min(steps.values()) > len(training) / 8 / 2
    for source, target in training:
        # The answer is in two pairs, as every other symbol, and never the query's own symbol.
        *words, symbol, _ = source.split()
        assert set(Counter(words).values()) == {2}
        assert target != symbol


def test_the_seed_decides(work: Work, new_work: Callable[..., Work]) -> None:
    again, other = (new_work("hops", **CORPUS, CORPUS_SEED=seed) for seed in ("1", "2"))
    again.run("prepare")
    other.run("prepare")
    assert pairs_of(again.folder, "train") == pairs_of(work.folder, "train")
    assert pairs_of(other.folder, "train") != pairs_of(work.folder, "train")


@pytest.mark.long
def test_accuracy_by_steps(work: Work) -> None:
    work.train("depthwise_lstm", *small(16), "--depthwise-hidden-dim=16", "--max-update=4", "--save-interval-updates=2")
    printed = work.run("evaluate", "depthwise_lstm").stdout
    evaluation = work.folder / "systems/depthwise_lstm/evaluation"
    for test in TESTS:
        right = sum(
            translation == target
            for translation, (_, target) in zip(
                lines(evaluation / f"{test}.txt"), pairs_of(work.folder, f"test.{test}"), strict=True
            )
        )
        assert f"{100 * right / 40:.2f}" in printed


@pytest.mark.parametrize("environment", [{"SENTENCES": "0"}, {"HELD_OUT": "1e3"}, {"CORPUS_SEED": "-1"}])
def test_settings_that_are_no_numbers(new_work: Callable[..., Work], environment: dict[str, str]) -> None:
    """They are refused before anything of the folder belongs to them."""
    refused = new_work("hops", **CORPUS | environment)
    ((name, value),) = environment.items()
    assert f"{name}={value}" in refused.run("prepare", status=1).stderr
    assert not refused.folder.exists()
