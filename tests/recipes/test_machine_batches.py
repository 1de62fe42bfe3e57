"""A paper's batch on any machine: never smaller, hardly larger, and within what fits."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary, LanguagePairDataset, indexed_dataset
from machine_batches import MIN_TOKENS, fit_batch, target_share
from train_system import printed_command

from fairseq_compat import UserError
from recipes import all_recipes, system_of


@pytest.mark.parametrize("tokens", [4096, 25_000, 32_768, 65_536, 458_752])
def test_product(tokens: int) -> None:
    chance = random.Random(tokens)
    tried = 0
    for _ in range(2000):
        processes = chance.randint(1, min(130, tokens // MIN_TOKENS + 3))
        most = chance.choice([chance.randint(300, 20_000), 2 ** chance.randint(9, 15)])
        try:
            size = fit_batch(tokens, processes, most)
        except UserError:
            continue
        tried += 1
        product = size.max_tokens * size.update_freq * processes
        assert tokens <= product < tokens + size.update_freq * processes
        assert MIN_TOKENS <= size.max_tokens <= most
        assert size.update_freq == 1 or (size.update_freq - 1) * processes * most < tokens, "fewer steps would do"
    assert tried > 500


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training set of 3,000 pairs of 2 to 60 tokens, whose targets are shorter on the average."""
    folder, chance = tmp_path_factory.mktemp("work") / "data-bin", random.Random(3)
    folder.mkdir()
    lengths = [
        (length, max(2, int(length * chance.uniform(0.5, 1.2)))) for length in chance.choices(range(2, 60), k=3000)
    ]
    for side, language in enumerate(("en", "de")):
        prefix = str(folder / f"train.en-de.{language}")
        builder = indexed_dataset.make_builder(f"{prefix}.bin", impl="mmap", vocab_size=100)
        for pair in lengths:
            builder.add_item(torch.full((pair[side],), 7))
        builder.finalize(f"{prefix}.idx")
    return folder


@pytest.mark.parametrize("max_tokens", [300, 4096])
def test_share(data: Path, max_tokens: int) -> None:
    """As fairseq's own batches have it, but for the last."""
    sides = [indexed_dataset.make_dataset(str(data / f"train.en-de.{language}"), "mmap") for language in ("en", "de")]
    pairs = LanguagePairDataset(sides[0], sides[0].sizes, Dictionary(), sides[1], sides[1].sizes, Dictionary())
    batches = pairs.batch_by_size(pairs.ordered_indices(), max_tokens=max_tokens, required_batch_size_multiple=8)
    tokens = [sum(int(sides[1].sizes[place]) for place in batch) for batch in batches]
    expected = sum(tokens) / len(tokens) / max_tokens
    assert target_share(data, "en", "de", max_tokens) == pytest.approx(expected, rel=0.03)
    assert 0.5 < expected < 1


def test_the_batch_has_the_papers_target_tokens(data: Path) -> None:
    environment = {"WORK": str(data.parent), "GPUS": "1", "MAX_TOKENS": "4096"}
    recipe, name = "wmt14_en_de", "depthwise_lstm_base"
    words = printed_command(all_recipes()[recipe], name, system_of(recipe, name), environment)
    max_tokens, update_freq = (int(words[words.index(option) + 1]) for option in ("--max-tokens", "--update-freq"))
    assert max_tokens * update_freq * target_share(data, "en", "de", 4096) == pytest.approx(25_000, rel=0.001)
