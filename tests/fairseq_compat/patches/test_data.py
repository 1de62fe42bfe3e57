"""Patches of data: each fault, and what is there in its place."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from fairseq import tasks
from fairseq.data import Dictionary, LanguagePairDataset, ListDataset, TokenBlockDataset, data_utils
from fairseq.data.data_utils import load_indexed_dataset
from fairseq.data.indexed_dataset import MMapIndexedDataset, make_builder
from fairseq.data.multilingual.sampled_multi_epoch_dataset import SampledMultiEpochDataset
from fairseq.tasks.translation import TranslationConfig, load_langpair_dataset
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask
from many_languages import configured, directions, languages, make_data
from omegaconf import DictConfig, OmegaConf
from probe_checkpoints import data_in
from tiny_models import dictionary_of

from fairseq_compat import UserError

# Damaged data: a length of 26 bytes comes before the sizes of the index, and its places are its end.


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    data_in(tmp_path / "data")
    return str(tmp_path / "data" / "valid.src-tgt.src")


def test_data_that_is_cut_off_or_of_another_dictionary(prefix: str) -> None:
    with pytest.raises(UserError, match=r"\.bin has the token number 11, and its dictionary 8 entries"):
        load_indexed_dataset(prefix, dictionary_of(8))
    path = Path(f"{prefix}.bin")
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(UserError, match=r"valid\.src-tgt\.src\.idx is damaged"):
        load_indexed_dataset(prefix, dictionary_of(12))


def test_a_pipe_is_not_waited_for(prefix: str) -> None:
    Path(f"{prefix}.idx").unlink()
    os.mkfifo(f"{prefix}.idx")
    with pytest.raises(UserError, match="pipe"):
        load_indexed_dataset(prefix, dictionary_of(12))


@pytest.mark.parametrize(("place", "byte"), [(17, 1), (18, 1), (26, 0)], ids=["type", "count", "length"])
def test_an_index_of_other_sentences(prefix: str, place: int, byte: int) -> None:
    path = Path(f"{prefix}.idx")
    index = bytearray(path.read_bytes())
    assert index[place] != byte
    index[place] = byte
    path.write_bytes(index)
    with pytest.raises(UserError, match=r"valid\.src-tgt\.src\.idx is damaged"):
        load_indexed_dataset(prefix, dictionary_of(12))


@pytest.mark.parametrize("impl", ["lazy", "cached"])
def test_an_old_index_of_other_sentences(impl: str, tmp_path: Path) -> None:
    """Each number after the format's own is one that says where sentences lie."""
    builder = make_builder(str(tmp_path / "old.bin"), impl)
    sentences: list[list[int]] = [[4, 5, 2], [7, 2], [], [11, 4, 2]]
    for sentence in sentences:
        builder.add_item(torch.tensor(sentence, dtype=torch.int64))
    index = tmp_path / "old.idx"
    builder.finalize(str(index))
    dataset = load_indexed_dataset(str(tmp_path / "old"), dictionary_of(12), impl)
    assert [dataset[place].tolist() for place in range(4)] == sentences
    if impl == "cached":
        dataset.prefetch([1, 3])
        assert [dataset[place].tolist() for place in range(4)] == sentences
    with pytest.raises(UserError, match="has the token number 11, and its dictionary 8 entries"):
        load_indexed_dataset(str(tmp_path / "old"), dictionary_of(8), impl)
    whole = index.read_bytes()
    for place in range(16, len(whole), 8):
        index.write_bytes(whole[:place] + bytes([whole[place] + 1]) + whole[place + 1 :])
        with pytest.raises(UserError, match=r"old\.idx is damaged"):
            load_indexed_dataset(str(tmp_path / "old"), dictionary_of(12), impl)


def test_fasta_files_reach_no_shell(tmp_path: Path) -> None:
    from fairseq.data.fasta_dataset import FastaDataset

    folder = tmp_path / f"$(touch {tmp_path}%it-ran)".replace("/", "%")
    folder.mkdir()
    (folder / "train.fasta").write_text("> one\nABC\n", encoding="utf-8")
    with pytest.raises(UserError, match="--dataset-impl fasta"):
        FastaDataset(str(folder / "train"))


# What NumPy has removed.


def test_lengths_in_buckets_and_blocks_of_tokens() -> None:
    assert data_utils.get_buckets(numpy.array([1, 2, 3, 4, 9]), 2).tolist() == [3, 9]
    dictionary = Dictionary()
    sentences = ListDataset([torch.full((size,), 4) for size in (1, 2, 3, 4, 9)], [1, 2, 3, 4, 9])
    pairs = LanguagePairDataset(
        sentences, sentences.sizes, dictionary, sentences, sentences.sizes, dictionary, num_buckets=2
    )
    assert [len(pairs[place]["source"]) for place in range(5)] == [3, 3, 3, 9, 9]
    assert [len(batch) for batch in pairs.batch_by_size(pairs.ordered_indices(), max_tokens=9)] == [3, 1, 1]
    blocks = TokenBlockDataset(sentences, sentences.sizes, block_size=None, pad=1, eos=2, break_mode="eos")
    assert [len(blocks[place]) for place in range(2)] == [1, 2]


# Data of several parts.


@pytest.mark.parametrize(("asked", "times"), [({}, 1), ({"upsample_primary": 1}, 1), ({"upsample_primary": 3}, 3)])
def test_the_first_of_several_parts_is_taken_as_often_as_asked(
    asked: dict[str, int], times: int, tmp_path: Path
) -> None:
    folder, dictionary = tmp_path / "data", dictionary_of(12)
    data_in(folder, train1=["w1 w2", "w3"])

    def size(split: str, **options: Any) -> int:
        given = (str(folder), split, "src", dictionary, "tgt", dictionary)
        places = {"left_pad_source": True, "left_pad_target": False}
        limits = {"max_source_positions": 99, "max_target_positions": 99}
        return len(load_langpair_dataset(*given, dataset_impl="mmap", **options, **places, **limits))

    once = size("train", combine=False, **asked)
    assert size("train", combine=True, **asked) == times * once + 2
    with pytest.raises(UserError, match=r"^--upsample-primary 0"):
        size("train", combine=True, upsample_primary=0)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"valid_subset": "valid,valid1"}, None),
        ({"combine_valid_subsets": True}, None),
        ({"ignore_unused_valid_subsets": True}, None),
        ({}, "valid1.*--ignore-unused-valid-subsets"),
    ],
)
def test_every_validation_set_is_named_or_left_out(given: dict[str, Any], named: str | None, tmp_path: Path) -> None:
    data_in(tmp_path / "data", valid1=["w1 w2"])
    options = {"valid_subset": "valid", "combine_valid_subsets": None, "ignore_unused_valid_subsets": False}
    dataset = SimpleNamespace(**{**options, "disable_validation": False, **given})
    cfg = SimpleNamespace(task=SimpleNamespace(data=str(tmp_path / "data")), dataset=dataset)
    with pytest.raises(ValueError, match=named) if named else nullcontext():
        data_utils.raise_if_valid_subsets_unintentionally_ignored(cfg)


def test_alignments_of_a_part_of_the_data_are_refused() -> None:
    texts, dictionary = [torch.tensor([4, 2])] * 2, dictionary_of(8)
    with pytest.raises(UserError, match="--load-alignments"):
        LanguagePairDataset(texts, [2, 2], dictionary, texts, [2, 2], dictionary, align_dataset=[torch.tensor([0, 0])])


# Languages.


def test_a_folder_without_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=str(tmp_path)):
        data_utils.infer_language_pair(str(tmp_path))


def pairs(folder: Path, *names: str) -> Path:
    """Dictionaries, and names of binarized text."""
    for pair in names:
        for language in pair.split("-"):
            Dictionary().save(str(folder / f"dict.{language}.txt"))
            (folder / f"train.{pair}.{language}.idx").touch()
    return folder


def pair_with_hyphens(folder: Path, source: str, target: str) -> Path:
    """The same of one pair, beside which fairseq-preprocess may have put other files."""
    for language in (source, target):
        Dictionary().save(str(folder / f"dict.{language}.txt"))
        (folder / f"train.{source}-{target}.{language}.bin").touch()
    for name in (f"train.align.{source}-{target}.idx", f"alignment.{source}-{target}.txt", "preprocess.log"):
        (folder / name).touch()
    return folder


def options(folder: Path, source: str | None, target: str | None) -> DictConfig:
    given = {"_name": "translation", "data": str(folder), "source_lang": source, "target_lang": target}
    return OmegaConf.merge(OmegaConf.structured(TranslationConfig), OmegaConf.create(given))


@pytest.mark.parametrize(
    ("source", "target", "found"),
    [(None, "fr", ("en", "fr")), ("de", None, ("de", "en")), ("fr", "en", ("fr", "en")), ("de", "fr", ("de", "fr"))],
)
def test_one_language_says_the_direction_which_is_recorded(
    source: str | None, target: str | None, found: tuple[str, str], tmp_path: Path
) -> None:
    cfg = options(pairs(tmp_path, "en-de", "en-fr"), source, target)
    task = tasks.setup_task(cfg)
    assert (task.cfg.source_lang, task.cfg.target_lang) == found
    assert (cfg.source_lang, cfg.target_lang) == found


@pytest.mark.parametrize(
    ("source", "target"), [("zh-cn", "de"), ("de", "zh-cn"), ("zh-cn", "zh"), ("en", "en-gb"), ("pt-br", "pt-pt")]
)
@pytest.mark.parametrize("named", ["source", "target", "none"])
def test_a_language_may_have_a_hyphen(source: str, target: str, named: str, tmp_path: Path) -> None:
    sides = {"source": (source, None), "target": (None, target), "none": (None, None)}
    task = tasks.setup_task(options(pair_with_hyphens(tmp_path, source, target), *sides[named]))
    assert (task.cfg.source_lang, task.cfg.target_lang) == (source, target)


def test_many_languages_have_no_hyphens(tmp_path: Path) -> None:
    cfg = configured(make_data(tmp_path / "data", 2), 2).task
    cfg.lang_pairs = ["en-l00", "en-zh-cn"]
    with pytest.raises(UserError, match="--lang-pairs en-zh-cn"):
        tasks.setup_task(cfg)


def test_all_folders_of_data_have_one_dictionary(tmp_path: Path) -> None:
    for name in ("one", "same", "other"):
        data_in(tmp_path / name)
    (tmp_path / "other" / "dict.tgt.txt").write_text("w1 1\nw0 1\n")
    tasks.setup_task(options(f"{tmp_path}/one:{tmp_path}/same", "src", "tgt"))
    with pytest.raises(UserError, match=r"other/dict\.tgt\.txt differs"):
        tasks.setup_task(options(f"{tmp_path}/one:{tmp_path}/same:{tmp_path}/other", "src", "tgt"))


# Many languages.


def test_directions_without_validation_set_are_trained(tmp_path: Path) -> None:
    make_data(tmp_path / "data", 2)
    for path in (tmp_path / "data").glob("valid.en-l01.*"):
        path.unlink()
    task = tasks.setup_task(configured(tmp_path / "data", 2).task)
    for split, expected in (("train", directions(2)), ("valid", directions(1))):
        task.load_dataset(split)
        assert len(task.datasets[split].datasets) == len(expected)


def test_the_dictionary_of_many_languages_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    load = TranslationMultiSimpleEpochTask.load_dictionary
    monkeypatch.setattr(
        TranslationMultiSimpleEpochTask, "load_dictionary", lambda path: read.append(path) or load(path)
    )
    task = tasks.setup_task(configured(make_data(tmp_path / "data", 4), 4).task)
    assert len(read) == 1
    assert set(task.dicts) == {"en", *languages(4)}
    assert all(dictionary is task.dicts["en"] for dictionary in task.dicts.values())
    assert [task.source_dictionary.index(f"__{language}__") for language in ("en", "l00", "l03")] == [34, 35, 38]
    (tmp_path / "data" / "dict.l01.txt").write_text("other 1\n")
    with pytest.raises(AssertionError, match="Diffrent dictionary are specified"):
        tasks.setup_task(configured(tmp_path / "data", 4).task)


def test_places_of_more_than_2_gib(tmp_path: Path) -> None:
    builder = make_builder(str(tmp_path / "data.bin"), "mmap", vocab_size=100)
    builder._sizes = [10, *[numpy.int32(2**30)] * 4]  # those of a worker's index
    builder.finalize(str(tmp_path / "data.idx"))
    index = MMapIndexedDataset.Index(str(tmp_path / "data.idx"))  # whose end unmaps what it has
    assert index._pointers.tolist() == [0, *(20 + part * 2**31 for part in range(4))]


def test_data_without_sentences(prefix: str) -> None:
    Path(f"{prefix}.bin").write_bytes(b"")
    with pytest.raises(UserError, match="has no sentences"):
        load_indexed_dataset(prefix, dictionary_of(12))


def test_a_virtual_epoch_has_its_sentences_in_a_resumed_run_too() -> None:
    numbers = [torch.tensor([number]) for number in range(10)]

    def begun_in(epoch: int) -> SampledMultiEpochDataset:
        return SampledMultiEpochDataset([ListDataset(numbers, [1] * 10)], epoch=epoch, virtual_epoch_size=4)

    whole = begun_in(1)
    for epoch in range(1, 7):
        whole.set_epoch(epoch)
        resumed = begun_in(epoch)
        assert [whole[place] for place in range(len(whole))] == [resumed[place] for place in range(len(resumed))]
