"""Patches of data: texts, data files, dictionaries, languages, and the place in an epoch."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from itertools import islice
from types import SimpleNamespace
from typing import Any

from fairseq_compat.errors import UserError
from fairseq_compat.files import decoded, require_file
from fairseq_compat.patching import Overlay, patch, replaces

#: Of an iterator's state: how many batches all processes took in the epoch.
BATCHES = "batches_in_epoch"


@patch("fairseq.data.indexed_dataset")
def damaged_data(module: Any) -> None:
    """A damaged data file is read beyond its end, or has tokens that the model has no embedding of.

    Here the sentences must lie one after the other from the beginning of the file to its end, and the tokens in the
    dictionary; fairseq reads both files once before it uses them, so this takes little.
    """
    import numpy

    for kind in (module.MMapIndexedDataset, module.MMapIndexedDataset.Index):

        @replaces(kind, "__del__")
        def close(original: Any, self: Any) -> None:
            with suppress(AttributeError):  # of one whose file could not be opened; Python prints a traceback of it
                original(self)

    @replaces(module, "make_dataset")
    def make_dataset(original: Any, path: str, impl: Any, *args: Any, **kwargs: Any) -> Any:
        dataset = original(path, impl, *args, **kwargs)
        if not isinstance(dataset, module.MMapIndexedDataset):
            return dataset
        index, data, dictionary = dataset._index, dataset._bin_buffer, kwargs.get("dictionary")
        starts, lengths, width = index._pointers, index._sizes, index._dtype_size
        ends = numpy.cumsum(lengths, dtype=numpy.int64) * width
        follow = numpy.array_equal(starts, ends - lengths * width) and ends[-1:].sum() == data.nbytes
        if not follow or (lengths < 0).any():
            raise UserError(f"{path}.idx is damaged: its sentences are not those of {path}.bin; make the data anew")
        tokens = numpy.frombuffer(data, dtype=index.dtype, count=data.nbytes // width)
        if dictionary is not None and len(tokens) and not 0 <= tokens.min() <= tokens.max() < len(dictionary):
            raise UserError(
                f"{path}.bin has the token number {tokens.max()}, and its dictionary {len(dictionary)} entries: it is "
                "damaged, or was made with another dictionary"
            )
        return dataset


@patch("fairseq.data.dictionary")
def dictionaries_are_files(module: Any) -> None:
    """A dictionary that is a pipe is waited for without an end, and a device fills the memory."""

    @replaces(module.Dictionary, "add_from_file")
    def add_from_file(original: Any, self: Any, f: Any) -> None:
        if isinstance(f, str):
            require_file(f)
        original(self, f)


@patch("fairseq.data.fasta_dataset")
def fasta_without_shell(module: Any) -> None:
    """``--dataset-impl fasta`` puts the name of a data file into a shell's command line, where it can be a command."""

    def refuse(self: Any, path: str) -> Any:
        raise UserError("--dataset-impl fasta runs a shell with names of files; give another one, such as mmap")

    module.FastaDataset._build_index = refuse


@patch("fairseq.data.data_utils", "fairseq.data.language_pair_dataset", "fairseq.data.token_block_dataset")
def numpy_aliases(module: Any) -> None:
    """``--num-batch-buckets`` and blocks of tokens use what NumPy has removed, and stop with an exception.

    These are ``np.compat``, gone with 2.0, and the argument ``interpolation`` of ``np.percentile``, gone with 2.4.
    """
    numpy = module.np

    def percentile(values: Any, percents: Any, interpolation: str, **options: Any) -> Any:
        return numpy.percentile(values, percents, method=interpolation, **options)

    module.np = Overlay(numpy, compat=SimpleNamespace(long=int), percentile=percentile)


@patch("fairseq.data.iterators")
def position_for_any_processes(module: Any) -> None:
    """A run that goes on with another number of processes repeats or leaves out a part of the epoch, or is refused.

    A checkpoint has the batches that each process took; with twice as many processes that is twice as many batches.
    Here it also has those of all processes, and a run takes its share of them.
    """

    @replaces(module.EpochBatchIterator, "state_dict")
    def state_dict(original: Any, self: Any) -> dict[str, Any]:
        state: dict[str, Any] = original(self)
        return {**state, BATCHES: state["iterations_in_epoch"] * self.num_shards}

    @replaces(module.EpochBatchIterator, "load_state_dict")
    def load_state_dict(original: Any, self: Any, state_dict: dict[str, Any]) -> None:
        if (taken := state_dict.get(BATCHES)) is not None:
            state_dict = {**state_dict, "iterations_in_epoch": taken // self.num_shards}
        original(self, state_dict)


@patch("fairseq_cli.interactive")
def interactive_lines(module: Any) -> None:
    """``fairseq-interactive`` ends lines at carriage returns within them, and reads stdin in the locale's encoding.

    Every translation after such a line then has another number than its source, and outside of UTF-8 locales text is
    misread without a word. Lines end at line feeds only, with or without a carriage return before, and are UTF-8.
    """

    def buffered_read(input: str, buffer_size: int) -> Iterator[list[str]]:
        with nullcontext(sys.stdin.buffer) if input == "-" else open(input, "rb") as file:
            lines = (decoded(line, number, input).strip() for number, line in enumerate(file, start=1))
            while buffer := list(islice(lines, buffer_size)):
                yield buffer

    module.buffered_read = buffered_read


@patch("fairseq.data.encoders.subword_nmt_bpe")
def subword_codes(module: Any) -> None:
    """``--bpe subword_nmt`` reads its codes in the encoding of the locale, and so misreads them outside of UTF-8 ones.

    Words with letters beyond ASCII are then split otherwise than in training, without a word. The codes are read as
    UTF-8, as subword-nmt writes them.
    """

    @replaces(module.SubwordNMTBPE, "__init__")
    def read_codes(original: Any, self: Any, cfg: Any) -> None:
        from subword_nmt.apply_bpe import BPE

        if cfg.bpe_codes is None:
            original(self, cfg)  # it says what is missing
            return

        with open(module.file_utils.cached_path(cfg.bpe_codes), encoding="utf-8") as codes:
            self.bpe = BPE(codes, separator=cfg.bpe_separator)
        self.bpe_symbol = f"{cfg.bpe_separator} "


@patch("fairseq.tasks.translation")
def languages_of_the_data(module: Any) -> None:
    """``-s xx`` or ``-t xx`` alone is ignored: fairseq takes the first pair of languages that the data folder lists.

    A model is then trained, or asked, for another direction than the command says. Here the other language is that of
    the one pair that fits, and a language without data is refused.
    """

    @replaces(module.TranslationTask, "setup_task")
    def setup_task(original: Any, cls: Any, cfg: Any, **given: Any) -> Any:
        if (cfg.source_lang is None) != (cfg.target_lang is None):
            folder = module.utils.split_paths(cfg.data)[0]
            if os.path.isdir(folder) and (pairs := pairs_in(folder)):
                cfg.source_lang, cfg.target_lang = _fitting(pairs, cfg.source_lang, cfg.target_lang, folder)
        return original(cls, cfg, **given)


def pairs_in(folder: str) -> set[tuple[str, str]]:
    """Return the pairs of languages of a data folder, from names such as ``train.en-de.de.idx``."""
    parts = [name.split(".") for name in os.listdir(folder)]
    pairs = [tuple(name[1].split("-")) for name in parts if len(name) >= 3]
    return {(pair[0], pair[1]) for pair in pairs if len(pair) == 2}


def _fitting(pairs: set[tuple[str, str]], source: str | None, target: str | None, folder: str) -> tuple[str, str]:
    """Return the one direction that has the language given; data of a pair serves both."""
    directions = pairs | {(second, first) for first, second in pairs}
    fitting = sorted(pair for pair in directions if source in (None, pair[0]) and target in (None, pair[1]))
    if len(fitting) != 1:
        given = f"--source-lang {source!r}" if target is None else f"--target-lang {target!r}"
        known = ", ".join("-".join(pair) for pair in sorted(fitting or pairs))
        raise UserError(f"{given} fits {len(fitting)} directions of {folder}; it has {known}: give both languages")
    return fitting[0]


@patch("fairseq.tasks")
def recorded_languages(module: Any) -> None:
    """A training that takes its languages from the data folder does not record them, and its model is asked for others.

    Translation in the other direction then runs without a word. Here the languages that the task has found are
    recorded with the options.
    """

    @replaces(module, "setup_task")
    def setup_task(original: Any, cfg: Any, **given: Any) -> Any:
        task = original(cfg, **given)
        for side in ("source_lang", "target_lang"):
            language = getattr(getattr(task, "cfg", None), side, None)
            if isinstance(language, str) and getattr(cfg, side, language) is None:
                setattr(cfg, side, language)
        return task


@patch("fairseq.data.multilingual.multilingual_data_manager")
def data_of_both_directions(module: Any) -> None:
    """With ``--enable-reservsed-directions-shared-datasets`` language tags get into sentences of the other direction.

    That option is to read the files of English-German once for both directions, but keeps the sentences with the tag
    of the first. Here it changes nothing: files are mapped, and two mappings of one take its memory once.
    """

    @replaces(module.MultilingualDatasetManager, "load_langpair_dataset")
    def load_without_sharing(
        original: Any, self: Any, *args: Any, langpairs_sharing_datasets: Any = None, **kwargs: Any
    ) -> Any:
        return original(self, *args, langpairs_sharing_datasets=None, **kwargs)


@patch("fairseq.data.multilingual.multilingual_data_manager")
def equal_dictionaries(module: Any) -> None:
    """With 100 languages, fairseq reads 200 equal dictionaries and keeps 101: 10 s and a gigabyte for 64,000 symbols.

    ``translation_multi_simple_epoch`` wants one dictionary for all languages, yet reads a file for each source and each
    target language. Here files of equal content are one dictionary, read once.
    """

    @replaces(module.MultilingualDatasetManager, "load_all_dictionaries")
    def load_all_dictionaries(
        original: Any, cls: Any, args: Any, language_list: list[str], load: Callable[[str], Any], training: bool
    ) -> Any:
        loaded: dict[bytes, Any] = {}

        def load_once(path: str) -> Any:
            with open(path, "rb") as file:
                content = hashlib.sha256(file.read()).digest()
            if content not in loaded:
                loaded[content] = load(path)
            return loaded[content]

        return original(cls, args, language_list, load_once, training)


@patch("fairseq.data.multilingual.multilingual_data_manager")
def directions_without_validation(module: Any) -> None:
    """A language pair without validation set ends ``translation_multi_simple_epoch`` with a ``KeyError``.

    Five languages of OPUS-100 have none. Here such directions are trained and not validated, as long as others are.
    """

    @replaces(module.MultilingualDatasetManager, "get_data_paths_and_lang_pairs")
    def get_data_paths_and_lang_pairs(original: Any, self: Any, split: str) -> tuple[dict[str, str], dict[str, Any]]:
        paths, pairs = original(self, split)
        if split != getattr(self.args, "train_subset", None):
            there = self._get_shard_num_dict(split, module.utils.split_paths(paths["main"]))
            named = [pair for pair in pairs["main"] if pair in there or "-".join(reversed(pair.split("-"))) in there]
            pairs = {**pairs, "main": named or pairs["main"]}
        return paths, pairs
