"""Binarized data of many languages, every one to and from English, as small as wanted."""

from __future__ import annotations

import random
from pathlib import Path

import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder, best_fitting_int_dtype
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import DictConfig

import fairseq_depthwise  # noqa: F401  # registers the models

#: Words of a language: the k-th of every language mean the same.
WORDS = 6

#: Of encoder and decoder.
SIZES = ("embed-dim=16", "attention-heads=2", "ffn-embed-dim=24")

PARTS = {"train": 40, "valid": 4, "test": 3}


def languages(number: int) -> list[str]:
    """Names of so many languages besides English."""
    return [f"l{index:02d}" for index in range(number)]


def directions(number: int) -> list[str]:
    """English to every language and back."""
    return [pair for language in languages(number) for pair in (f"en-{language}", f"{language}-en")]


def configured(folder: Path, number: int, *more: object, task: str = "translation_multi_simple_epoch") -> DictConfig:
    """What fairseq-train makes of options for that data, with a tiny model."""
    given = [
        str(folder), "--task", task, "--lang-pairs", ",".join(directions(number)), "--encoder-langtok", "tgt",
        "--arch", "sdt_transformer", "--encoder-block-size", "1", "--decoder-layers", "1", "--share-all-embeddings",
        *(f"--{side}-{size}" for side in ("encoder", "decoder") for size in SIZES), "--optimizer", "adam",
        "--lr", "0.01", "--lr-scheduler", "inverse_sqrt_restart", "--warmup-updates", "2", "--max-tokens", "100",
        "--criterion", "cross_entropy", "--cpu", "--num-workers", "0", "--save-dir", "nowhere", *map(str, more),
    ]  # fmt: skip
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), given))


def make_data(folder: Path, number: int, *, parts: dict[str, int] | None = None) -> Path:
    """A data folder with ``en-LANGUAGE`` of every language, all with the same dictionary.

    A sentence is two to five words; its translation has the words of the same meaning in the opposite order.
    """
    folder.mkdir(parents=True)
    dictionary = Dictionary()
    for language in ["en", *languages(number)]:
        for word in range(WORDS):
            dictionary.add_symbol(_word(language, word))
    for language in ["en", *languages(number)]:
        dictionary.save(str(folder / f"dict.{language}.txt"))
    chance = random.Random(1)
    for language in languages(number):
        for part, size in (parts or PARTS).items():
            meanings = [chance.choices(range(WORDS), k=chance.randint(2, 5)) for _ in range(size)]
            prefix = folder / f"{part}.en-{language}"
            _write(f"{prefix}.en", dictionary, [[_word("en", word) for word in words] for words in meanings])
            _write(
                f"{prefix}.{language}",
                dictionary,
                [[_word(language, word) for word in reversed(words)] for words in meanings],
            )
    return folder


def _word(language: str, word: int) -> str:
    return f"{language}_{word}"


def _write(path: str, dictionary: Dictionary, sentences: list[list[str]]) -> None:
    builder = MMapIndexedDatasetBuilder(f"{path}.bin", dtype=best_fitting_int_dtype(len(dictionary)))
    for sentence in sentences:
        builder.add_item(torch.tensor([*(dictionary.index(word) for word in sentence), dictionary.eos()]))
    builder.finalize(f"{path}.idx")
