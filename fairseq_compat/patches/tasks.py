"""Patches of single tasks that fairseq cannot train, resume or generate with.

Each docstring opens with fairseq's fault, which ``doctor`` lists; the paragraph after it says what the patch does.
"""

from __future__ import annotations

import threading
from argparse import ArgumentError
from collections import defaultdict
from contextlib import suppress
from typing import Any

import torch
from omegaconf import DictConfig

from fairseq_compat.errors import UserError
from fairseq_compat.patching import patch, replaces


@patch("fairseq.tasks.denoising", function="DenoisingTask.add_args")
def keep_first_declarations(original: Any, parser: Any) -> None:
    """``--task denoising`` cannot start: BART and other Transformers also declare ``--max-source-positions``.

    Here the model's declaration takes precedence, as with other tasks.
    """
    original(_FirstDeclarations(parser))


class _FirstDeclarations:
    """An option parser that ignores repeated declarations."""

    def __init__(self, parser: Any) -> None:
        self._parser = parser

    def add_argument(self, *names: str, **options: Any) -> None:
        with suppress(ArgumentError):
            self._parser.add_argument(*names, **options)


@patch("fairseq.data.encoders.utils", function="get_whole_word_mask")
def check_whole_word_masking(original: Any, args: Any, dictionary: Any) -> Any:
    """``--mask-whole-words`` and ``--mask-length word`` end in tracebacks with subwords that mark the ends of words.

    So do tasks that receive only their own group of the configuration, which lacks ``--bpe``. Here ``--bpe`` is looked
    up in the configuration, and subwords that do not show where words begin are refused.
    """
    from fairseq.data import encoders

    # The task's group of the configuration; its parent has the other groups.
    if isinstance(args, DictConfig):
        configuration = args._get_parent()
        args = None if configuration is None else configuration.get("bpe")
    bpe = encoders.build_bpe(args)
    if bpe is not None and not hasattr(bpe, "is_beginning_of_word"):
        name = getattr(args, "_name", None) or getattr(args, "bpe", None)
        raise UserError(
            f"--bpe {name} does not show where words begin, so whole words cannot be masked; give sentencepiece, "
            "gpt2, bert or hf_byte_bpe, or leave --bpe out to mask tokens"
        )
    return original(args, dictionary)


@patch("fairseq.tasks.multilingual_masked_lm", function="MultiLingualMaskedLMTask._get_whole_word_mask")
def mask_words_without_bpe(original: Any, self: Any) -> Any:
    """``--task multilingual_masked_lm --mask-whole-words`` without ``--bpe`` stops with an error.

    Here each token counts as a word then.
    """
    from fairseq.data.encoders.utils import get_whole_word_mask

    return get_whole_word_mask(self.args, self.source_dictionary) if self.args.mask_whole_words else None


@patch("fairseq.tasks.legacy_masked_lm", function="LegacyMaskedLMTask.load_dataset")
def ignore_extra_loading_arguments(
    original: Any, self: Any, split: str, epoch: int = 1, combine: bool = False, **unused: Any
) -> None:
    """``--task legacy_masked_lm`` cannot start: the trainer passes more arguments than it accepts.

    Here the others are ignored.
    """
    original(self, split, epoch, combine)


@patch("fairseq.tasks.translation_multi_simple_epoch", function="TranslationMultiSimpleEpochTask.build_generator")
def build_multilingual_generator(
    original: Any,
    self: Any,
    models: Any,
    args: Any,
    seq_gen_cls: Any = None,
    extra_gen_cls_kwargs: Any = None,
    prefix_allowed_tokens_fn: Any = None,
) -> Any:
    """``translate`` of a ``translation_multi_simple_epoch`` model is a TypeError: the task accepts fewer arguments.

    And ``--keep-inference-langtok`` has no effect: the task looks for it among the generation options. Here it is read
    from the task's own options.
    """
    from fairseq.tasks import FairseqTask

    _, specification = self.args.langtoks["main"]
    settings = dict(extra_gen_cls_kwargs or {})
    if specification and not self.args.keep_inference_langtok:
        token = self.data_manager.get_decoder_langtok(self.args.target_lang, specification)
        settings["symbols_to_strip_from_output"] = {token}
    return FairseqTask.build_generator(self, models, args, seq_gen_cls, settings, prefix_allowed_tokens_fn)


@patch("fairseq.tasks.semisupervised_translation", function="SemisupervisedTranslationTask.train_step")
def initialize_loss_sums(
    original: Any,
    self: Any,
    sample: Any,
    model: Any,
    criterion: Any,
    optimizer: Any,
    update_num: int,
    ignore_grad: bool = False,
) -> tuple[float, float, Any]:
    """``--task semisupervised_translation`` stops in its first update: it adds to sums that do not exist.

    Here they start at 0; logged values have the key of their data as a prefix, as in ``multilingual_translation``.
    """
    model.train()
    if update_num > 0:
        self.update_step(update_num)
    parts: list[tuple[str, str, float]] = []  # (model, data, weight) of each loss
    for pair in self.lang_pairs:
        parts.append((pair, pair, self.lambda_parallel))
    for pair in self.lang_pairs:
        parts.append((pair, f"bt:{pair}", self.lambda_otf_bt))
    for pair in self.lang_pairs:
        target = pair.split("-")[1]
        parts.append((f"{target}-{target}", f"denoising:{pair}", self.lambda_denoising))

    total, size = 0.0, 0.0
    sums: defaultdict[str, float] = defaultdict(float)
    for name, key, weight in parts:
        if weight <= 0 or not sample.get(key):
            continue
        loss, sample_size, logged = criterion(model.models[name], sample[key])
        loss *= 0 if ignore_grad else weight
        optimizer.backward(loss)
        total += loss.detach().item()
        size += sample_size
        for entry, value in logged.items():
            sums[entry] += value
            sums[f"{key}:{entry}"] += value
    return total, size, sums


@patch("fairseq.data.resampling_dataset", function="ResamplingDataset.__init__")
def take_all_sentences_once(
    original: Any,
    self: Any,
    dataset: Any,
    weights: Any = None,
    replace: bool = True,
    size_ratio: float = 1.0,
    *args: Any,
    **kwargs: Any,
) -> None:
    """``--task multilingual_language_modeling`` stops if a language needs no resampling, by default every language.

    Here each of its sentences is then taken once.
    """
    # Without replacement fairseq draws fewer sentences than there are, and refuses to draw all.
    is_whole = size_ratio == 1.0 and not replace
    original(self, dataset, weights, replace or is_whole, size_ratio, *args, **kwargs)
    if is_whole:
        self.replace = False
        epoch, self._cur_epoch = self._cur_epoch, None
        self.set_epoch(epoch)


@patch("fairseq.data.denoising_dataset", function="DenoisingDataset.__getitem__")
def seed_noise_by_sentence(original: Any, self: Any, index: int) -> Any:
    """A resumed ``denoising`` training has other noise than an uninterrupted one.

    Half of it depends on all earlier random numbers. Here all of it depends on seed, epoch and sentence.
    """
    # Other threads must not set the global seed: the main thread may be training.
    if threading.current_thread() is not threading.main_thread():
        return original(self, index)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(hash((self.seed, self.epoch, int(index))))
        return original(self, index)


@patch("fairseq.tasks.multilingual_language_modeling", function="MultilingualLanguageModelingTask.eval_lm_dataloader")
def return_evaluation_batches(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """``fairseq-eval-lm`` cannot evaluate ``--task multilingual_language_modeling``: it gets an iterator over epochs.

    Here it gets the batches of one epoch.
    """
    return original(self, *args, **kwargs).next_epoch_itr(shuffle=False)


@patch("fairseq.tasks.cross_lingual_lm", function="CrossLingualLMTask.load_dataset")
def rotate_data_folders(
    original: Any, self: Any, split: str, epoch: int = 1, combine: bool = False, **unused: Any
) -> Any:
    """``--task cross_lingual_lm`` cannot be resumed: to log its name, it looks for a data folder for each epoch.

    Here the folders are repeated.
    """
    from fairseq.utils import split_paths

    folders = len(split_paths(self.args.data))
    return original(self, split, (epoch - 1) % folders + 1, combine)


@patch("fairseq.data.multi_corpus_sampled_dataset")
def seed_batch_languages(module: Any) -> None:
    """A resumed ``cross_lingual_lm`` training has batches of other languages than an uninterrupted one.

    The language of a batch depends on all earlier random numbers. Here it depends on the epoch and the sentences.
    """
    from fairseq.data.data_utils import numpy_seed

    dataset = module.MultiCorpusSampledDataset
    dataset.epoch = 1

    def set_epoch(self: Any, epoch: int) -> None:
        self.epoch = epoch

    dataset.set_epoch = set_epoch

    @replaces(dataset, "collater")
    def collater(original: Any, self: Any, samples: Any) -> Any:
        sentences = []
        for sample in samples:
            sentences += [int(sentence["id"]) for sentence in sample.values()]
        with numpy_seed(self.epoch, *sentences):
            return original(self, samples)
