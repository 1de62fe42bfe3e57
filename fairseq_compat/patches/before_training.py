"""Patches of what fails at the first validation or the first save: it is tried before the first update."""

from __future__ import annotations

import logging
import random
import resource
import shutil
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from omegaconf import OmegaConf

from fairseq_compat.errors import UserError, named
from fairseq_compat.generation_options import generation_arguments, json_object, require_post_process
from fairseq_compat.literals import dictionary
from fairseq_compat.patching import as_configuration, patch

logger = logging.getLogger(__name__)

#: Metrics of fairseq's validations that are the better the higher they are, and those that are the better the lower.
_HIGHER_IS_BETTER = ("bleu", "accuracy", "acc", "f1", "chrf")
_LOWER_IS_BETTER = ("loss", "nll_loss", "ppl", "wer", "uer", "cer")

#: Sentences of a validation set in which the metric of the best checkpoint must appear.
_TRIED = 8


@patch("fairseq_cli.train", function="main")
def options_of_validation(original: Any, cfg: Any, *args: Any, **kwargs: Any) -> Any:
    """Mistakes in ``--eval-bleu-args``, ``--eval-bleu-detok`` and others end a training without naming the option.

    A name that generation does not take is ignored, and a metric of the wrong direction makes the worst model the best.
    Here all of them are read before any data is.
    """
    from fairseq import utils

    cfg = as_configuration(cfg)
    if cfg.optimizer is None:
        raise UserError("--optimizer is missing; give one, such as adam")
    _require_direction(cfg.checkpoint.best_checkpoint_metric, cfg.checkpoint.maximize_best_checkpoint_metric)
    utils.import_user_module(cfg.common)  # its tokenizers
    for part in ("tokenizer", "bpe"):
        _require_whole(part, cfg[part])
    subsets = cfg.dataset.valid_subset
    if cfg.dataset.combine_valid_subsets and subsets != "valid":
        raise UserError(
            f"--combine-valid-subsets makes one set of valid, valid1 and so on; it does not go with --valid-subset "
            f"{subsets}, so leave one of them out"
        )
    _require_bleu(cfg)
    return original(cfg, *args, **kwargs)


@patch("fairseq_cli.validate", function="main")
def options_of_validate(original: Any, cfg: Any, *args: Any, **kwargs: Any) -> Any:
    """Mistakes in ``--model-overrides`` and in the options of BLEU end ``fairseq-validate`` without their names."""
    cfg = as_configuration(cfg)
    dictionary("--model-overrides", cfg.common_eval.model_overrides)
    _require_bleu(cfg)
    return original(cfg, *args, **kwargs)


def _require_bleu(cfg: Any) -> None:
    """Raise UserError unless a validation with BLEU can be computed, if it is asked for."""
    if getattr(cfg.task, "eval_bleu", False):
        generation_arguments("--eval-bleu-args", getattr(cfg.task, "eval_bleu_args", None))
        require_post_process("--eval-bleu-remove-bpe", getattr(cfg.task, "eval_bleu_remove_bpe", None))
        _require_tokenizer(cfg.task)


def _require_whole(part: str, options: Any) -> None:
    """Raise UserError where an option is missing that the tokenizer or the subwords of a training need."""
    for name in options if OmegaConf.is_config(options) else ():
        if OmegaConf.is_missing(options, name):
            raise UserError(f"--{part} {options['_name']} is given without --{name.replace('_', '-')}, which it needs")


def _require_direction(metric: str, maximizes: bool) -> None:
    """Raise UserError where the best model by a metric would be the worst."""
    if metric in _HIGHER_IS_BETTER and not maximizes:
        raise UserError(
            f"--best-checkpoint-metric {metric} is the better the higher it is, and the lowest would be kept; add "
            "--maximize-best-checkpoint-metric"
        )
    if metric in _LOWER_IS_BETTER and maximizes:
        raise UserError(
            f"--maximize-best-checkpoint-metric would keep the model with the highest {metric}, the worst; leave it "
            "out, or give --best-checkpoint-metric bleu or another one"
        )


def _require_tokenizer(task: Any) -> None:
    """Raise UserError unless the tokenizer of a validation with BLEU can be made."""
    from fairseq.data import encoders

    arguments = json_object("--eval-bleu-detok-args", getattr(task, "eval_bleu_detok_args", None))
    name = task.eval_bleu_detok
    if name not in encoders.TOKENIZER_REGISTRY:
        known = ", ".join(sorted(encoders.TOKENIZER_REGISTRY))
        raise UserError(f"--eval-bleu-detok {name} is no tokenizer; give one of {known}")
    try:
        encoders.build_tokenizer(Namespace(tokenizer=name, **arguments))
    except Exception as error:
        raise UserError(
            f"--eval-bleu-detok {name} with --eval-bleu-detok-args {arguments} cannot be set up: {named(error)}"
        ) from error


@patch("fairseq_cli.train", function="train")
def tried_first(original: Any, cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Any:
    """What fails at the first validation or the first save fails after the first epoch, which is then lost.

    This is ``--best-checkpoint-metric`` that the validation does not compute, a sentence too long for the model, a
    full disk. Here one sentence of every validation set is validated before the first update, and room for a checkpoint
    is looked for. Neither changes what is trained: the random numbers of training are the same without it.
    """
    if not getattr(trainer, "validation_was_tried", False):
        trainer.validation_was_tried = True
        if trainer.is_data_parallel_master and not cfg.checkpoint.no_save:
            _require_room(cfg, trainer)
        if not cfg.dataset.disable_validation:
            for subset in cfg.dataset.valid_subset.split(","):
                if subset != cfg.dataset.train_subset:  # whose sentences are in order for training
                    with _unchanged(trainer):
                        _try_validation(cfg, trainer, task, subset)
    return original(cfg, trainer, task, epoch_itr)


@contextmanager
def _unchanged(trainer: Any) -> Iterator[None]:
    """Give random numbers, and the batch that fills up those of other processes, the state of before afterwards."""
    states = numpy.random.get_state(), random.getstate()
    batch = trainer._dummy_batch
    devices = [torch.cuda.current_device()] if trainer.cuda else []
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        numpy.random.set_state(states[0])
        random.setstate(states[1])
        trainer._dummy_batch = batch


def _try_validation(cfg: Any, trainer: Any, task: Any, subset: str) -> None:
    """Validate a sentence of a subset, or a few until the metric of the best checkpoint appears.

    Raises:
        UserError: a sentence is too long, or the metric does not appear.
    """
    from fairseq import utils
    from fairseq.logging import metrics

    trainer.get_valid_iterator(subset)  # in which all sentences must have their places
    sentences = task.get_batch_iterator(
        dataset=task.dataset(subset),
        max_tokens=cfg.dataset.max_tokens_valid,
        max_sentences=1,
        max_positions=utils.resolve_max_positions(task.max_positions(), trainer.model.max_positions()),
        ignore_invalid_inputs=True,
        seed=cfg.common.seed,
        num_workers=0,
        epoch=1,
        disable_iterator_cache=True,
    ).next_epoch_itr(shuffle=False, set_dataset_epoch=False)
    metric = cfg.checkpoint.best_checkpoint_metric
    computed: dict[str, Any] = {}
    with metrics.aggregate(new_root=True) as validation:
        for number, sample in enumerate(sentences, start=1):
            try:
                trainer.valid_step(sample)
            except UserError as error:
                how = " with --eval-bleu-args" if getattr(cfg.task, "eval_bleu", False) else ""
                raise UserError(f"the validation on {subset}{how} would fail: {error}") from error
            computed = validation.get_smoothed_values()
            if metric in computed or number == _TRIED:
                break
    # A task may add others after a whole validation.
    if metric not in computed and metric != "num_updates" and not hasattr(task, "post_validate"):
        names = ", ".join(sorted(name for name in computed if not name.startswith("_")))
        raise UserError(
            f"--best-checkpoint-metric {metric} is not computed by the validation on {subset}, which has {names}; give "
            "one of these, or the option that computes it, such as --eval-bleu for bleu"
        )


def _require_room(cfg: Any, trainer: Any) -> None:
    """Raise UserError where ``--save-dir`` has no room for a checkpoint."""
    folder, needed = cfg.checkpoint.save_dir, _size_of_checkpoint(cfg, trainer)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"--save-dir {folder} has {free >> 20:,} MiB left, and a checkpoint takes {needed >> 20:,} MiB; free some, "
            "or give another folder"
        )
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit != resource.RLIM_INFINITY and needed > limit:
        raise UserError(
            f"--save-dir {folder}: a checkpoint takes {needed >> 20:,} MiB, and files may have {limit >> 20:,} MiB; "
            "raise the limit, ulimit -f"
        )


def _size_of_checkpoint(cfg: Any, trainer: Any) -> int:
    """Return the bytes that a checkpoint has at least: parameters, and what the optimizer keeps of each."""
    size, trained = 0, 0
    for parameter in trainer.get_model().parameters():
        size += parameter.numel() * parameter.element_size()
        trained += parameter.numel() if parameter.requires_grad else 0
    if cfg.checkpoint.no_save_optimizer_state:
        return size
    (group, *_) = getattr(trainer.optimizer, "param_groups", None) or [{}]
    moments = 2 if "betas" in group else 1 if group.get("momentum") else 0
    masters = 1 if cfg.common.fp16 or cfg.common.bf16 else 0
    return size + 4 * trained * (moments + masters)


@patch("fairseq_cli.train", function="validate")
def batches_of_validation(original: Any, cfg: Any, *args: Any, **kwargs: Any) -> Any:
    """``--max-valid-steps N`` evaluates N + 1 batches."""
    steps = getattr(cfg.dataset, "max_valid_steps", None)
    if steps is None:
        return original(cfg, *args, **kwargs)
    cfg.dataset.max_valid_steps = steps - 1  # the number of the last one, from 0
    try:
        return original(cfg, *args, **kwargs)
    finally:
        cfg.dataset.max_valid_steps = steps


@patch("fairseq_cli.train", function="validate")
def saved_before_failure(
    original: Any, cfg: Any, trainer: Any, task: Any, epoch_itr: Any, subsets: Sequence[str]
) -> Any:
    """A validation that fails costs all updates since the last checkpoint, as it comes before the save.

    Here a checkpoint is saved first, from which the training goes on where the validation would have ended.
    """
    try:
        return original(cfg, trainer, task, epoch_itr, subsets)
    except Exception:
        from fairseq import checkpoint_utils

        # Where processes have parts of a state, all have to save, and others may have validated well.
        if not trainer.is_fsdp and cfg.distributed_training.zero_sharding == "none":
            checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
            logger.error("the validation failed; what was trained is in %s", cfg.checkpoint.save_dir)
        raise


@patch("fairseq.tasks.translation", function="TranslationTask.reduce_metrics")
def bleu_of_nothing(original: Any, self: Any, logging_outputs: Sequence[dict[str, Any]], criterion: Any) -> None:
    """``--eval-bleu`` has no BLEU where all translations are empty, and the training ends with ``KeyError: 'bleu'``.

    A batch of empty translations is left out even of the length of references, so that BLEU is too high. Here such a
    batch counts as any other, and BLEU may be 0.
    """
    from fairseq.logging import metrics
    from fairseq.tasks.translation import EVAL_BLEU_ORDER
    from sacrebleu.metrics import BLEU

    original(self, logging_outputs, criterion)
    validated = [output for output in logging_outputs if "_bleu_sys_len" in output]
    totals = [output.get(f"_bleu_totals_{order}", 0) for output in validated for order in range(EVAL_BLEU_ORDER)]
    if not self.cfg.eval_bleu or not validated or any(totals):
        return

    def bleu(meters: Any) -> float:
        score = BLEU.compute_bleu(
            correct=meters["_bleu_counts"].sum,
            total=meters["_bleu_totals"].sum,
            sys_len=int(meters["_bleu_sys_len"].sum),
            ref_len=int(meters["_bleu_ref_len"].sum),
            smooth_method="exp",
        )
        return round(float(score.score), 2)

    metrics.log_scalar("_bleu_counts", numpy.zeros(EVAL_BLEU_ORDER, int))
    metrics.log_scalar("_bleu_totals", numpy.zeros(EVAL_BLEU_ORDER, int))
    metrics.log_scalar("_bleu_sys_len", 0)
    metrics.log_scalar("_bleu_ref_len", sum(int(output["_bleu_ref_len"]) for output in validated))
    metrics.log_derived("bleu", bleu)


@patch("fairseq.tasks.fairseq_task", function="FairseqTask.filter_indices_by_size")
def sentences_of_all_sizes(
    original: Any, self: Any, indices: Any, dataset: Any, max_positions: Any = None, ignore_invalid_inputs: bool = False
) -> Any:
    """A sentence that is too long for a model ends a command with a traceback, and one of many is named."""
    if not ignore_invalid_inputs:
        _, ignored = dataset.filter_indices_by_size(indices, max_positions)
        if len(ignored):
            size = dataset.size(ignored[0])
            tokens = " and ".join(str(int(length)) for length in (size if isinstance(size, tuple) else (size,)))
            larger = "larger --max-source-positions and --max-target-positions"
            allowed = larger if isinstance(max_positions, tuple) else "smaller --tokens-per-sample"
            raise UserError(
                f"{len(ignored)} sentences have more tokens than model and task allow, {max_positions}, such as "
                f"number {ignored[0]} with {tokens}; give {allowed}, where the model was trained so, or leave them out "
                "with --skip-invalid-size-inputs-valid-test"
            )
    return original(self, indices, dataset, max_positions, ignore_invalid_inputs)


@patch("fairseq.data.data_utils", function="batch_by_size")
def sentences_in_batches(
    original: Any, indices: Any, num_tokens_fn: Any, num_tokens_vec: Any = None, max_tokens: Any = None, *args: Any,
    **kwargs: Any,
) -> Any:  # fmt: skip
    """A sentence of more than ``--max-tokens`` is an assertion without the name of an option."""
    if max_tokens is not None and max_tokens > 0 and len(indices):
        lengths = num_tokens_vec if num_tokens_vec is not None else [num_tokens_fn(index) for index in indices]
        longest = int(numpy.max(lengths))
        if longest > max_tokens:
            raise UserError(
                f"--max-tokens {max_tokens} (or --max-tokens-valid) is less than the {longest} tokens of a sentence; "
                "give at least as many, or leave out longer sentences with --max-source-positions and "
                "--max-target-positions"
            )
    return original(indices, num_tokens_fn, num_tokens_vec, max_tokens, *args, **kwargs)
