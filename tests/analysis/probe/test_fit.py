"""Fitting linear layers to a model: which sentences are used, and what their moments are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from probe_checkpoints import KINDS, SIZES, checkpoint_of

from fairseq_compat import UserError
from fairseq_depthwise.analysis.loaded_model import load_model
from fairseq_depthwise.analysis.probe.probe import collect_moments
from fairseq_depthwise.models.linearized.model import LinearizedTransformer

DEPTHWISE = "depthwise_lstm_transformer"


def numbers_of(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in batch]


def test_sentences_are_chosen_by_a_budget_always_the_same(tmp_path: Path, data: str) -> None:
    path = checkpoint_of(tmp_path, DEPTHWISE)
    sizes: Any = load_model(path, data).dataset("train").tgt_sizes

    def choose(tokens: int) -> list[list[int]]:
        chosen = load_model(path, data).batches("train", target_token_budget=tokens or None, max_tokens=20)
        return [list(map(int, batch)) for batch in chosen.batch_sampler]

    few, more, whole = choose(60), choose(150), choose(0)
    assert choose(60) == few
    assert sorted(numbers_of(whole)) == list(range(SIZES["train"]))
    for budget, batches in ((60, few), (150, more)):
        numbers = numbers_of(batches)
        assert len(set(numbers)) == len(numbers)
        assert budget - 7 < sum(sizes[number] for number in numbers) <= budget
        assert all(len(batch) * max(sizes[number] for number in batch) <= 20 for batch in batches)
    assert set(numbers_of(few)) < set(numbers_of(more))
    assert set(numbers_of(few)) != set(range(len(numbers_of(few))))  # not the first ones


def test_sentences_that_are_too_long(tmp_path: Path, data: str) -> None:
    loaded = load_model(checkpoint_of(tmp_path, DEPTHWISE, max_source_positions=20, max_target_positions=20), data)
    assert sorted(numbers_of(loaded.batches("long", max_tokens=10).batch_sampler)) == [1, 2]
    short = load_model(checkpoint_of(tmp_path, DEPTHWISE, max_source_positions=1, max_target_positions=1), data)
    with pytest.raises(UserError, match="no sentence is left"):
        short.batches("long", max_tokens=10)


@pytest.mark.parametrize("kind", KINDS)
def test_moments_are_those_of_each_sentence_alone(kind: str, tmp_path: Path, data: str) -> None:
    loaded = load_model(checkpoint_of(tmp_path, kind), data)
    model = LinearizedTransformer(loaded.model, ["encoder.2", "decoder.1"])
    dataset: Any = loaded.dataset("test")
    cpu = torch.device("cpu")
    whole = collect_moments(model, loaded.batches("test", max_tokens=1000), cpu)
    alone = collect_moments(model, loaded.batches("test", max_tokens=1), cpu)
    assert whole["decoder.1"].count == sum(dataset.tgt_sizes)
    for name, one in whole.items():
        for part in ("mean", "products", "squares"):
            torch.testing.assert_close(getattr(one, part), getattr(alone[name], part), rtol=1e-4, atol=1e-4)
