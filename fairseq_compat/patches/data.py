"""Patches for binarized data, and for its languages.

The first paragraph of each docstring is the fault in fairseq, as ``doctor`` prints it; what follows says what the patch
does ("Here ...").
"""

from __future__ import annotations

import json
import math
import os
import resource
from glob import escape, glob
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import torch

from fairseq_compat.errors import UserError
from fairseq_compat.files import require_file
from fairseq_compat.patches.dictionaries import OVERWRITE
from fairseq_compat.patching import Overlay, patch, replaces
from fairseq_compat.text import TextFile

#: The module with which fairseq loads multilingual data.
MANAGER = "fairseq.data.multilingual.multilingual_data_manager"


@patch("fairseq.data.indexed_dataset")
def refuse_damaged_data(module: Any) -> None:
    """Damaged data files are read at wrong offsets or past their end, and hundreds end in ``Too many open files``.

    Here the sentences must fill the file without gaps, and the tokens must be in the dictionary; fairseq reads most
    files once before it uses them, so this costs little. A process may open as many files as the system's hard limit
    allows.
    """

    @replaces(module, "get_indexed_dataset_to_local")  # called before any file is opened
    def get_indexed_dataset_to_local(original: Any, path: str) -> Any:
        require_file(f"{path}.idx")
        require_file(f"{path}.bin")
        return original(path)

    @replaces(module, "make_dataset")
    def make_dataset(
        original: Any, path: str, impl: Any, fix_lua_indexing: bool = False, dictionary: Any = None
    ) -> Any:
        # Each dataset keeps its files open: thousands for hundreds of directions.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if resource.RLIM_INFINITY not in (soft, hard):  # at most 65,536: some programs cannot cope with more
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2**16)), hard))
        # Alignments are binarized also if the texts are not. fairseq infers None only in some of its callers.
        if impl is None or _is_alignment(path):
            impl = module.infer_dataset_impl(path)
        if os.path.isfile(f"{path}.bin") and os.path.getsize(f"{path}.bin") == 0:  # an empty file cannot be mapped
            raise UserError(f"{path}.bin has no sentences; make it from a text that is not empty, or leave it out")
        dataset = original(path, impl, fix_lua_indexing, dictionary)
        if isinstance(dataset, module.MMapIndexedDataset):
            # The index has the beginning of each sentence; the last one must end at the end of the file.
            offsets = numpy.append(dataset._index._pointers, os.path.getsize(f"{path}.bin"))
            _require_consistent_data(path, dataset._index.dtype, dataset.sizes, offsets, dictionary)
        elif isinstance(dataset, module.IndexedDataset):  # lazy or cached
            # The format has tensors of any number of dimensions; a sentence has one.
            if not numpy.array_equal(dataset.dim_offsets, numpy.arange(len(dataset) + 1)):
                raise _damaged_data_error(path)
            offsets = dataset.data_offsets * dataset.element_size
            # This format counts tokens from 1, as Lua does.
            _require_consistent_data(
                path, dataset.dtype, dataset.sizes, offsets, dictionary, lowest=int(fix_lua_indexing)
            )
        return dataset


def _require_consistent_data(path: str, dtype: Any, sizes: Any, offsets: Any, dictionary: Any, lowest: int = 0) -> None:
    """Raise UserError unless sentences fill a data file, and their tokens are in the dictionary, if there is one.

    Args:
        path: path of the files, without .bin and .idx.
        dtype: type of the token numbers.
        sizes: lengths of the N sentences in tokens (N).
        offsets: the first byte of each sentence, and the end of the last (N + 1).
        dictionary: the dictionary of the tokens, or None.
        lowest: the number of the first token.
    """
    size = os.path.getsize(f"{path}.bin")
    # int64: the sums of 32-bit sizes overflow.
    ends = numpy.cumsum(sizes, dtype=numpy.int64) * numpy.dtype(dtype).itemsize
    # The lengths must give the same offsets as the index has.
    is_whole = numpy.array_equal(offsets, numpy.append(0, ends)) and offsets[-1] == size
    if not is_whole or (sizes < 0).any():
        raise _damaged_data_error(path)
    if dictionary is None or size == 0:
        return
    # Memory-mapped, since the file may be larger than memory.
    tokens: Any = numpy.memmap(f"{path}.bin", dtype, "r")
    if not lowest <= tokens.min() <= tokens.max() < len(dictionary) + lowest:
        raise UserError(
            f"{path}.bin has the token number {tokens.max() - lowest}, and its dictionary {len(dictionary)} "
            "entries: the file is damaged, or was made with another dictionary"
        )


def _damaged_data_error(path: str) -> UserError:
    return UserError(f"{path}.idx is damaged: its sentences are not those of {path}.bin; run fairseq-preprocess again")


@patch("fairseq.data.indexed_dataset")
def read_sentences_by_offset(module: Any) -> None:
    """Data that was made with ``--dataset-impl cached`` or ``lazy`` ends a training in a ``KeyError``.

    The trainer takes a batch before the cache is filled, and processes that load ``lazy`` data share one position in
    the file, so that they may read other sentences. Here each sentence is read at its own offset. Alignments of
    ``raw`` texts, which are binarized, are found, too.
    """

    @replaces(module, "dataset_exists")
    def dataset_exists(original: Any, path: str, impl: Any) -> bool:
        # With None fairseq looks for binarized files.
        exists: bool = original(path, None if _is_alignment(path) else impl)
        return exists

    @replaces(module.IndexedDataset, "__getitem__")
    def of_file(original: Any, self: Any, i: int) -> Any:
        self.check_index(i)
        if not self.data_file:
            self.read_data(self.path)
        # pread does not move the position in the file, which processes share.
        start, end = (int(offset) * self.element_size for offset in self.data_offsets[i : i + 2])
        content = os.pread(self.data_file.fileno(), end - start, start)
        tokens = torch.from_numpy(numpy.frombuffer(content, self.dtype).astype(numpy.int64))
        return tokens - 1 if self.fix_lua_indexing else tokens

    # fairseq fills the cache with the sentences of an epoch; the trainer's first batch comes before.
    @replaces(module.IndexedCachedDataset, "__getitem__")
    def of_cache(original: Any, self: Any, i: int) -> Any:
        return original(self, i) if i in self.cache_index else module.IndexedDataset.__getitem__(self, i)


def _is_alignment(path: str) -> bool:
    """Return whether a data file, such as train.align.en-de, has alignments."""
    return os.path.basename(path).split(".")[1:2] == ["align"]


@patch("fairseq.data.indexed_dataset", function="MMapIndexedDatasetBuilder.finalize")
def write_offsets_beyond_2_gib(original: Any, self: Any, index_file: str) -> None:
    """If several ``--workers`` make more than 2 GiB of data, the index is wrong, and no training can read the data.

    Sizes from a worker's index have 32 bits, and with NumPy 2 so do their sums. Here they are Python integers.
    """
    # fairseq multiplies and adds them up to offsets in bytes.
    self._sizes = [int(size) for size in self._sizes]
    original(self, index_file)


@patch("fairseq.data.fasta_dataset", function="FastaDataset._build_index")
def refuse_fasta(original: Any, self: Any, path: str) -> Any:
    """``--dataset-impl fasta`` puts the name of a data file into a shell command, so that a name can run code.

    Here the option is refused.
    """
    raise UserError("--dataset-impl fasta passes file names to a shell; give another implementation, such as mmap")


@patch(
    "fairseq.data.data_utils",
    "fairseq.data.language_pair_dataset",
    "fairseq.data.token_block_dataset",
    "fairseq.modules.dynamic_crf_layer",
)
def restore_numpy_aliases(module: Any) -> None:
    """``--num-batch-buckets``, ``nacrf_transformer`` and others use names that NumPy has removed, and stop.

    Here they get them back: ``np.int`` and ``np.float``, removed in 1.24, ``np.compat``, removed in 2.0, and the
    argument ``interpolation`` of ``np.percentile``, removed in 2.4.
    """

    def percentile(values: Any, percents: Any, interpolation: Any, **options: Any) -> Any:
        return numpy.percentile(values, percents, method=interpolation, **options)

    module.np = Overlay(numpy, int=int, float=float, compat=SimpleNamespace(long=int), percentile=percentile)


@patch("fairseq.tasks.translation", function="load_langpair_dataset")
def take_primary_data_once(original: Any, *args: Any, upsample_primary: int = -1, **options: Any) -> Any:
    """Data in several parts, train and train1, or valid and valid1, end in ``negative dimensions are not allowed``.

    Unless ``--upsample-primary`` is given, fairseq repeats the first part -1 times; 0 drops it. Here the default is 1,
    and 0 is refused.
    """
    if upsample_primary < 1 and upsample_primary != -1:  # -1 is fairseq's default
        raise UserError(f"--upsample-primary {upsample_primary} is out of range: 1 or more times")
    return original(*args, upsample_primary=max(1, upsample_primary), **options)


@patch("fairseq.data.data_utils", function="_find_extra_valid_paths")
def compare_subset_names(original: Any, dataset_path: str) -> set[str]:
    """``--valid-subset valid,valid1`` is refused as if valid1 were not in it: fairseq compares file names with it.

    Here the names of subsets are compared.
    """
    # fairseq takes off one ending, and leaves valid1.en-de.de of valid1.en-de.de.idx.
    return {path.partition(".")[0] for path in original(dataset_path)}


@patch("fairseq.tasks", function="setup_task")
def infer_missing_language(original: Any, cfg: Any, **kwargs: Any) -> Any:
    """``-s xx`` or ``-t xx`` alone is ignored: fairseq takes the first language pair that it lists in the data folder.

    A model is then trained or used for another direction than the command says. Here the other language comes from the
    only pair that fits, and a language without data is refused. The task's languages are recorded with the options, so
    that the model is not used for others. Of several data folders fairseq reads only the dictionaries of the first;
    here the others must have equal ones. Each of ``--lang-pairs`` must have one hyphen, at which fairseq splits it.
    """
    from fairseq.utils import split_paths

    _require_two_languages(getattr(cfg, "lang_pairs", None))
    data = getattr(cfg, "data", None)
    first, *more_folders = split_paths(data) if isinstance(data, str) else [""]  # some tasks have no data
    source, target = (getattr(cfg, side, None) for side in ("source_lang", "target_lang"))
    if (source is None) != (target is None) and os.path.isdir(first) and (pairs := pairs_in(first)):
        cfg.source_lang, cfg.target_lang = _choose_direction(pairs, source, target, first)
    for folder in more_folders:
        _require_same_dictionaries(folder, first)
    task = original(cfg, **kwargs)
    # With neither language given, the task has inferred both from file names, on its own copy of the options.
    for side in ("source_lang", "target_lang"):
        language = getattr(getattr(task, "cfg", None), side, None)
        if isinstance(language, str) and getattr(cfg, side, language) is None:
            setattr(cfg, side, language)
    return task


def _require_two_languages(pairs: Any) -> None:
    """Raise UserError unless all of ``--lang-pairs``, a list or a string, are two languages without hyphens."""
    named = pairs.split(",") if isinstance(pairs, str) else list(pairs or ())
    for pair in named if named != [""] else ():  # "" is the default of some tasks
        if pair.count("-") != 1:
            raise UserError(
                f"--lang-pairs {pair or repr(pair)} is not a pair of languages such as en-de; a language with a hyphen "
                "needs another name, such as zh_cn, in the data, too"
            )


def _require_same_dictionaries(folder: str, first: str) -> None:
    """Raise UserError if a data folder has another dictionary than the first one."""
    for path in glob(os.path.join(escape(folder), "dict.*.txt")):
        path_in_first = os.path.join(first, os.path.basename(path))
        if os.path.isfile(path_in_first) and _read_symbols(path) != _read_symbols(path_in_first):
            raise UserError(f"{path} differs from {path_in_first}; make all data with one dictionary, --srcdict")


def _read_symbols(dictionary: str) -> list[str]:
    """Return the symbols in a dictionary file, without their counts."""
    symbols = []
    with TextFile(dictionary) as file:
        for line in file:
            entry = line.rstrip().removesuffix(OVERWRITE)
            symbols.append(entry.rpartition(" ")[0])
    return symbols


@patch("fairseq.data.data_utils", function="infer_language_pair")
def infer_languages_with_hyphens(original: Any, path: str) -> tuple[str, str]:
    """A language with a hyphen is taken for a pair: from ``dict.zh-cn.txt`` fairseq infers a translation of zh into cn.

    A folder without data ends in a traceback. Here pairs are inferred from data files, and such a folder is refused.
    """
    pairs = pairs_in(path)
    if not pairs:
        raise UserError(
            f"{path} has no data of two languages, such as train.en-de.en.bin; give the --destdir of "
            "fairseq-preprocess, or --source-lang and --target-lang"
        )
    return pairs[0]


def pairs_in(folder: str) -> list[tuple[str, str]]:
    """Return the language pairs of a data folder, from file names such as ``train.en-de.de.idx``."""
    names = os.listdir(folder)
    pairs = []
    for name in names:
        # train.zh-cn-de.de.idx: the pair zh-cn-de, and the language de.
        parts = name.split(".")
        if len(parts) >= 3:
            pairs += _split_pair(parts[1], parts[2], names)
    return list(dict.fromkeys(pairs))  # each once, in the order of the names


def _split_pair(pair: str, language: str, names: list[str]) -> list[tuple[str, str]]:
    """Return the possible splits of a pair such as zh-cn-de into two languages, one of which is ``language``.

    If several are possible, only those whose two languages have dictionaries among ``names`` are returned.
    """
    # For each hyphen, what is before and what is after it.
    hyphens = [position for position, letter in enumerate(pair) if letter == "-"]
    splits = [(pair[:hyphen], pair[hyphen + 1 :]) for hyphen in hyphens]
    fitting = [languages for languages in splits if language in languages]
    # train.zh-cn-zh.zh.idx: zh-cn and zh, or zh and cn-zh? The dictionaries show which.
    known = []
    for source, target in fitting:
        if f"dict.{source}.txt" in names and f"dict.{target}.txt" in names:
            known.append((source, target))
    return known or fitting


def _choose_direction(
    pairs: list[tuple[str, str]], source: str | None, target: str | None, folder: str
) -> tuple[str, str]:
    """Return the only direction with the given source or target (the other is None); a pair serves both directions."""
    directions = {*pairs, *((second, first) for first, second in pairs)}  # files of en-de serve de-en, too
    fitting = sorted(pair for pair in directions if source in (None, pair[0]) and target in (None, pair[1]))
    if len(fitting) != 1:
        option = f"--source-lang {source!r}" if target is None else f"--target-lang {target!r}"
        known = ", ".join("-".join(pair) for pair in sorted(fitting or pairs))
        raise UserError(f"{option} fits {len(fitting)} directions of {folder}; it has {known}: give both languages")
    return fitting[0]


@patch("fairseq.tasks.translation", function="load_langpair_dataset")
def require_training_alignments(original: Any, data_path: str, split: str, *args: Any, **options: Any) -> Any:
    """``--load-alignments`` silently trains without alignments if the data has none.

    Here this is refused.
    """
    dataset = original(data_path, split, *args, **options)
    if options.get("load_alignments") and split.startswith("train") and dataset.align_dataset is None:
        raise UserError(
            f"--load-alignments: {data_path} has no alignments of {split} for this direction; make the data with "
            "fairseq-preprocess --align-suffix, or leave the option out"
        )
    return dataset


@patch(MANAGER, function="MultilingualDatasetManager.load_all_dictionaries")
def share_equal_dictionaries(original: Any, cls: Any, args: Any, languages: Any, load: Any, training: bool) -> Any:
    """With 100 languages, fairseq reads 200 equal dictionaries and keeps 101: 10 s and a gigabyte for 64,000 symbols.

    Here files with equal content share one dictionary, which is read once.
    """
    loaded: dict[bytes, Any] = {}  # content of a file -> dictionary

    def load_once(path: str) -> Any:
        content = Path(path).read_bytes()
        if content not in loaded:
            loaded[content] = load(path)
        return loaded[content]

    return original(cls, args, languages, load_once, training)


@patch(MANAGER, function="MultilingualDatasetManager.get_data_paths_and_lang_pairs")
def skip_directions_without_validation(original: Any, self: Any, split: str) -> tuple[dict[str, str], dict[str, Any]]:
    """A language pair without a validation set ends ``translation_multi_simple_epoch`` with a ``KeyError``.

    Five languages of OPUS-100 have none. Here such directions are trained but not validated, as long as others are.
    """
    from fairseq.utils import split_paths

    # By category of data: "main", and in training those of --extra-data.
    paths, pairs = original(self, split)
    if split != getattr(self.args, "train_subset", None):
        shards = self._get_shard_num_dict(split, split_paths(paths["main"]))
        with_data = []
        for pair in pairs["main"]:
            source, _, target = pair.partition("-")
            # Files of the reverse direction serve as well.
            if pair in shards or f"{target}-{source}" in shards:
                with_data.append(pair)
        pairs = {**pairs, "main": with_data or pairs["main"]}  # if none has data, the error names a file
    return paths, pairs


@patch("fairseq.tasks.translation", function="TranslationTask.build_dataset_for_inference")
def apply_source_options_to_lines(
    original: Any, self: Any, src_tokens: Any, src_lengths: Any, constraints: Any = None
) -> Any:
    """``fairseq-interactive`` and ``from_pretrained`` ignore ``--truncate-source`` and ``--left-pad-source``.

    Here both options are applied to their lines.
    """
    if getattr(self.cfg, "truncate_source", False):
        longest = self.cfg.max_source_positions
        src_tokens = list(src_tokens)
        for number, tokens in enumerate(src_tokens):
            if len(tokens) > longest:
                src_tokens[number] = torch.cat([tokens[: longest - 1], tokens[-1:]])  # keeps the end-of-sentence token
        src_lengths = [len(tokens) for tokens in src_tokens]
    dataset = original(self, src_tokens, src_lengths, constraints)  # always with the default of left_pad_source
    dataset.left_pad_source = getattr(self.cfg, "left_pad_source", dataset.left_pad_source)
    return dataset


@patch(MANAGER, before="MultilingualDatasetManager.get_split_data_param_list")
def require_data_of_pairs(self: Any, split: str) -> None:
    """A pair of ``--lang-pairs`` without data ends in a ``KeyError``.

    Here the error names the missing file.
    """
    shards = self.get_split_num_data_shards(split)
    paths, pairs = self.get_data_paths_and_lang_pairs(split)
    for part, path in paths.items():
        for pair in pairs.get(part, ()):
            source, _, target = pair.partition("-")
            # A pair of monolingual data is one language.
            if not shards.get(self.get_dataset_key(part, source, target or source)):
                file = f"{split}.{pair}.{source}.idx"
                raise UserError(f"--lang-pairs {pair}: {path} has no {file}; leave the pair out, or make its data")


@patch(MANAGER, before="MultilingualDatasetManager.get_sampling_ratios")
def check_sampling_weights(self: Any, datasets: Any) -> None:
    """``--sampling-weights`` that lack a pair end in a ``KeyError``, and extra pairs are silently ignored.

    The same is true of ``--sampling-weights-from-file``, and a ``--sampling-temperature`` of 0 divides by zero. Here
    all of these are refused.
    """
    option, weights, path = "--sampling-weights", self.args.sampling_weights, self.args.sampling_weights_from_file
    if path:
        option = f"--sampling-weights-from-file {path}"
        require_file(path)
        try:
            weights = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise UserError(f"{option} is not JSON ({error})") from None
    if weights:
        _require_weights(option, weights, [key for key, _ in datasets])  # keys such as main:en-de
    if self.args.sampling_method == "temperature" and not self.args.sampling_temperature > 0:
        raise UserError(
            f"--sampling-temperature {self.args.sampling_temperature} is out of range; give a number above 0"
        )


def _require_weights(option: str, weights: Any, keys: list[str]) -> None:
    """Raise UserError unless ``weights`` has a non-negative number for exactly these keys, and one is not 0."""
    if not isinstance(weights, dict) or sorted(weights) != sorted(keys):
        names = ", ".join(map(str, weights)) if isinstance(weights, dict) else repr(weights)
        raise UserError(f"{option} has {names}; write it as {{'{keys[0]}': 0.5}} with all of {', '.join(keys)}")
    numbers = list(weights.values())
    if not all(isinstance(number, (int, float)) and 0 <= number < math.inf for number in numbers) or not any(numbers):
        raise UserError(f"{option} has the weights {numbers}, which must be numbers of 0 or more, and not all 0")


@patch("fairseq.data.multilingual.sampling_method", before="SamplingMethod.sampling_method_selector")
def refuse_round_robin(self: Any) -> None:
    """``--sampling-method RoundRobin`` silently samples like ``concat``.

    Here it is refused.
    """
    if self.args.sampling_method == "RoundRobin":
        raise UserError("--sampling-method RoundRobin is not implemented in fairseq; give concat, which does the same")


@patch("fairseq.data.multilingual.sampled_multi_epoch_dataset", function="SampledMultiEpochDataset._next_virtual_epoch")
def restore_virtual_epoch_order(original: Any, self: Any, epoch: int) -> None:
    """With ``--virtual-epoch-size`` a resumed run repeats some sentences of a pass over the data, and skips others.

    fairseq draws the order of a pass in its first virtual epoch, but a resumed run draws it in the epoch in which it
    resumes. Here it draws the order of the first.
    """
    # The first virtual epoch of this pass over the data.
    first = epoch - (epoch - 1) % self.num_virtual_epochs
    if self._random_global_indices is None and first != epoch:
        original(self, first)
    original(self, epoch)
