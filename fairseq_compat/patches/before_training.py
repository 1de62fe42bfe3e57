"""Patches that make a training fail before its first update if its first validation or save would fail.

Each docstring opens with fairseq's fault, which ``doctor`` lists; the paragraph after it says what the patch does.
"""

from __future__ import annotations

import logging
import math
import os
import random
import resource
import shutil
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy
import torch
from omegaconf import OmegaConf

from fairseq_compat import checkpoints
from fairseq_compat.commands.generation import require_path, require_recorded
from fairseq_compat.errors import UserError, mistake, named
from fairseq_compat.generation_options import generation_arguments, json_object, require_post_process
from fairseq_compat.literals import dictionary
from fairseq_compat.patching import as_configuration, patch
from fairseq_compat.ranges import require_ranges

logger = logging.getLogger(__name__)

#: Validation metrics where higher, or lower, is better.
_HIGHER_IS_BETTER = ("bleu", "accuracy", "acc", "f1", "chrf")
_LOWER_IS_BETTER = ("loss", "nll_loss", "ppl", "wer", "uer", "cer")

#: --bpe -> what marks a symbol as a part of a word, or the first part.
_SUBWORD_MARKS = {"subword_nmt": "@@", "fastbpe": "@@", "sentencepiece": "\u2581"}

#: --best-checkpoint-metric must be computed within this many sentences of a validation set.
_MAX_TRIED_SENTENCES = 8


@patch("fairseq_cli.train", before="main")
def check_training_options(cfg: Any) -> None:
    """Mistakes in ``--eval-bleu-args``, ``--eval-bleu-detok`` and others end a training without naming the option.

    Unknown names in ``--eval-bleu-args`` are ignored, a metric with the wrong direction makes the worst model the best,
    and a group missing from a hydra configuration ends in a traceback. Here all of these are checked before any data is
    read.
    """
    from fairseq import utils

    cfg = as_configuration(cfg)
    utils.import_user_module(cfg.common)  # registers its models, tasks and tokenizers
    for part in ("task", "model", "criterion", "optimizer", "lr_scheduler"):
        _require_known_choice(cfg, part)
    for part in cfg:
        _require_ranges_of_part(cfg, part)
    _require_metric_direction(cfg.checkpoint.best_checkpoint_metric, cfg.checkpoint.maximize_best_checkpoint_metric)
    for part in ("tokenizer", "bpe"):
        _require_all_options(part, cfg[part])
    if cfg.dataset.combine_valid_subsets and cfg.dataset.valid_subset != "valid":
        subsets = cfg.dataset.valid_subset
        raise UserError(f"--valid-subset {subsets} does not go with --combine-valid-subsets; leave one of them out")
    _require_device_for_precision(cfg.common)
    _require_valid_bleu_options(cfg)


@patch("fairseq_cli.validate", before="main")
def check_validation_options(cfg: Any) -> None:
    """``fairseq-validate`` ignores a ``--criterion`` other than the checkpoint's, and misspelled ``--model-overrides``.

    Mistakes in them, and in the BLEU options, stop it without naming the option. Here all of these are checked before
    any data is read.
    """
    cfg = as_configuration(cfg)
    require_path(cfg)
    require_recorded(dictionary("--model-overrides", cfg.common_eval.model_overrides), cfg)
    _require_criterion_of_checkpoint(cfg)
    _require_valid_bleu_options(cfg)


def _require_criterion_of_checkpoint(cfg: Any) -> None:
    """Raise UserError if --criterion differs from the checkpoint's, which fairseq uses regardless."""
    from fairseq import utils

    criterion = getattr(cfg.criterion, "_name", None)
    if criterion in (None, "cross_entropy"):  # cross_entropy is the default, and perhaps not on the command line
        return
    path = utils.split_paths(cfg.common_eval.path)[0]
    if not os.path.isfile(path):
        return
    recorded = checkpoints.options_in(checkpoints.load_checkpoint(path, mapped=True), "criterion")
    trained = recorded.get("_name") or recorded.get("criterion")
    if trained and trained != criterion:
        raise UserError(
            f"--criterion {criterion}: {path} was trained with {trained}, and fairseq-validate always uses that; give "
            f"--criterion {trained}, or leave it out"
        )


def _require_known_choice(cfg: Any, part: str) -> None:
    """Raise UserError unless the configuration has the group ``part``, with a name that fairseq or a plugin knows."""
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_REGISTRY

    registries = {"task": TASK_REGISTRY, "model": {**MODEL_REGISTRY, **ARCH_MODEL_REGISTRY}}
    names = registries[part] if part in registries else REGISTRIES[part]["registry"]
    options: Any = None if OmegaConf.is_missing(cfg, part) else cfg[part]
    name = options if isinstance(options, str) else getattr(options, "_name", None)
    if name not in names:
        option = "--arch" if part == "model" else f"--{part.replace('_', '-')}"
        problem = f"{part}._name {name} is unknown" if name else f"{option} or {part}._name is missing"
        raise UserError(f"{problem}; give one of {', '.join(sorted(names))}")
    if part == "task" and hasattr(options, "data") and options.data is None:
        raise UserError("task.data is missing; give the folder of the data")


def _require_ranges_of_part(cfg: Any, part: str) -> None:
    """Raise UserError if a number in a group of the configuration is out of range."""
    options: Any = None if OmegaConf.is_missing(cfg, part) else cfg[part]
    if isinstance(options, Namespace):
        require_ranges(vars(options))
    elif OmegaConf.is_dict(options):
        # The default of --total-num-update is --max-update; what options of models refer to may be missing.
        require_ranges(OmegaConf.to_container(options, resolve=part == "lr_scheduler"))


def _require_all_options(part: str, options: Any) -> None:
    """Raise UserError if --tokenizer or --bpe lacks an option that it requires."""
    for name in options if OmegaConf.is_config(options) else ():
        if OmegaConf.is_missing(options, name):
            raise UserError(f"--{part} {options['_name']} is given without --{name.replace('_', '-')}, which it needs")


def _require_metric_direction(metric: str, maximizes: bool) -> None:
    """Raise UserError if --maximize-best-checkpoint-metric does not fit the metric."""
    if metric in _HIGHER_IS_BETTER and not maximizes:
        raise UserError(
            f"--best-checkpoint-metric {metric} is better the higher it is; add --maximize-best-checkpoint-metric"
        )
    if metric in _LOWER_IS_BETTER and maximizes:
        raise UserError(
            f"--maximize-best-checkpoint-metric would keep the highest {metric}, the worst; leave it out, or give "
            "another --best-checkpoint-metric"
        )


def _require_device_for_precision(common: Any) -> None:
    """Raise UserError if --fp16 or --amp is given without a GPU."""
    if torch.cuda.is_available() and not common.cpu:
        return
    remedy = "needs a GPU, and there is none; leave it out, or give --bf16, which also works on a CPU"
    if common.fp16 and not (common.memory_efficient_fp16 or common.fp16_no_flatten_grads or common.tpu):
        raise UserError(f"--fp16 {remedy}")  # fairseq would stop after reading the data
    if getattr(common, "amp", False):
        raise UserError(f"--amp {remedy}")  # fairseq would compute in float32


def _require_valid_bleu_options(cfg: Any) -> None:
    """Raise UserError if --eval-bleu is given with options that make generation or detokenization fail."""
    from fairseq.data import encoders

    task = cfg.task
    if not getattr(task, "eval_bleu", False):
        return
    generation_arguments("--eval-bleu-args", getattr(task, "eval_bleu_args", None))
    require_post_process("--eval-bleu-remove-bpe", getattr(task, "eval_bleu_remove_bpe", None))

    arguments = json_object("--eval-bleu-detok-args", getattr(task, "eval_bleu_detok_args", None))
    tokenizer = task.eval_bleu_detok
    if tokenizer not in encoders.TOKENIZER_REGISTRY:
        known = ", ".join(sorted(encoders.TOKENIZER_REGISTRY))
        raise UserError(f"--eval-bleu-detok {tokenizer} is not a tokenizer; give one of {known}")
    try:
        encoders.build_tokenizer(Namespace(tokenizer=tokenizer, **arguments))
    except Exception as error:  # each tokenizer raises its own type
        raise UserError(
            f"--eval-bleu-detok {tokenizer} with --eval-bleu-detok-args {arguments} cannot be set up: {named(error)}"
        ) from error


@patch("fairseq_cli.train", before="train")
def check_data_and_schedule(cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> None:
    """A training on words is recorded as one on subwords, and a rate that never reaches ``--lr`` is not mentioned.

    Such a model translates raw text badly: ``--bpe`` splits what it has seen whole. Here a dictionary without a single
    subword is refused, and a warm-up that is longer than the training is a warning before the first update.
    """
    # fairseq calls this function once per epoch.
    if getattr(trainer, "schedule_was_checked", False):
        return
    trainer.schedule_was_checked = True
    _require_subwords(cfg.bpe, task)
    warm_up = max(getattr(cfg.lr_scheduler, name, None) or 0 for name in ("warmup_updates", "warmup_steps"))
    updates = _count_updates(cfg.optimization, trainer.get_num_updates(), epoch_itr)
    if warm_up > updates and trainer.is_data_parallel_master:
        logger.warning(
            "this training ends after about %d updates, before its warm-up does (%d updates): the learning rate never "
            "reaches --lr; give fewer --warmup-updates, or more --max-epoch or --max-update",
            updates,
            warm_up,
        )


def _require_subwords(options: Any, task: Any) -> None:
    """Raise UserError if --bpe names subwords, and no symbol of the dictionaries is marked as a part of a word."""
    name = getattr(options, "_name", None)
    if name not in _SUBWORD_MARKS:
        return
    mark = getattr(options, "bpe_separator", _SUBWORD_MARKS[name])
    symbols: list[str] = []
    for side in ("source_dictionary", "target_dictionary"):
        with suppress(NotImplementedError):  # tasks of speech have none
            symbols += getattr(getattr(task, side), "symbols", ())
    if symbols and not any(mark in symbol for symbol in symbols):
        raise UserError(
            f"--bpe {name} does not fit the data, whose dictionaries have no symbol with {mark}: its text was not "
            "split into subwords; split it before fairseq-preprocess, or leave --bpe out"
        )


def _count_updates(options: Any, updates: int, epoch_itr: Any) -> float:
    """Return after about how many updates a training ends that has done ``updates``; infinite without a limit."""
    # Epochs are counted from 1; the one that follows may have begun.
    remaining = math.inf
    if options.max_epoch:
        of_epoch = math.ceil(len(epoch_itr) / options.update_freq[-1])
        in_this_epoch = of_epoch - math.ceil(epoch_itr.iterations_in_epoch / options.update_freq[-1])
        remaining = in_this_epoch + (options.max_epoch - epoch_itr.next_epoch_idx) * of_epoch
    return min(updates + remaining, options.max_update or math.inf)


@patch("fairseq_cli.train", function="train")
def try_validation_and_save_first(original: Any, cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Any:
    """What fails at the first validation or the first save fails after the first epoch, which is then lost.

    Examples: a ``--best-checkpoint-metric`` that validation does not compute, a sentence too long for the model, a full
    disk. Here a sentence of each validation set is validated before the first update, and the disk space for a
    checkpoint is checked. The training is not affected: its random states are restored.
    """
    # fairseq calls this function once per epoch.
    if not getattr(trainer, "validation_was_tried", False):
        trainer.validation_was_tried = True
        if trainer.is_data_parallel_master and not cfg.checkpoint.no_save:
            _require_disk_space(cfg, trainer)
        if not cfg.dataset.disable_validation:
            for subset in cfg.dataset.valid_subset.split(","):
                # The training set is not tried: its data set is already in the order of the first epoch.
                if subset != cfg.dataset.train_subset:
                    with _restoring_state(trainer):
                        _try_validation(cfg, trainer, task, subset)
    return original(cfg, trainer, task, epoch_itr)


@contextmanager
def _restoring_state(trainer: Any) -> Iterator[None]:
    """Restore the random states and the trainer's dummy batch on leaving (get_valid_iterator replaces the latter)."""
    numpy_state, python_state = numpy.random.get_state(), random.getstate()
    batch = trainer._dummy_batch
    devices = [torch.cuda.current_device()] if trainer.cuda else []
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        numpy.random.set_state(numpy_state)
        random.setstate(python_state)
        trainer._dummy_batch = batch


def _try_validation(cfg: Any, trainer: Any, task: Any, subset: str) -> None:
    """Validate the first sentence of a subset, and more until --best-checkpoint-metric is computed.

    Raises:
        UserError: a sentence is too long, or the metric is not computed.
    """
    from fairseq import utils
    from fairseq.logging import metrics

    trainer.get_valid_iterator(subset)  # called only for its check: raises if a sentence is too long
    # One sentence at a time, without workers, so that the training data loader is unaffected.
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
    # A separate metrics root, so that training meters do not count these sentences.
    with metrics.aggregate(new_root=True) as validation:
        for number, sample in enumerate(sentences, start=1):
            try:
                trainer.valid_step(sample)
            except Exception as error:
                problem = mistake(error)
                if problem is None:
                    raise
                suffix = " with --eval-bleu-args" if getattr(cfg.task, "eval_bleu", False) else ""
                raise UserError(f"the validation on {subset}{suffix} would fail: {problem}") from error
            computed = validation.get_smoothed_values()
            if metric in computed or number == _MAX_TRIED_SENTENCES:
                break
    # Tasks with post_validate may add metrics only after the full validation.
    if metric not in computed and metric != "num_updates" and not hasattr(task, "post_validate"):
        names = ", ".join(sorted(name for name in computed if not name.startswith("_")))
        raise UserError(
            f"--best-checkpoint-metric {metric} is not computed by the validation on {subset}, which has {names}; give "
            "one of these, or the option that computes it, such as --eval-bleu for bleu"
        )


def _require_disk_space(cfg: Any, trainer: Any) -> None:
    """Raise UserError if ``--save-dir`` has too little disk space for a checkpoint."""
    folder = cfg.checkpoint.save_dir
    needed = _estimate_checkpoint_bytes(cfg, trainer)
    available = shutil.disk_usage(folder).free
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit != resource.RLIM_INFINITY:
        available = min(available, limit)
    if needed > available:
        raise UserError(
            f"--save-dir {folder}: a checkpoint takes at least {needed >> 20:,} MiB, but only {available >> 20:,} MiB "
            "are available (disk space or ulimit -f); free some space, or give another folder"
        )


def _estimate_checkpoint_bytes(cfg: Any, trainer: Any) -> int:
    """Return a lower bound of a checkpoint's size: the parameters, and the optimizer's state for each of them."""
    parameter_bytes, trained_values = 0, 0
    for parameter in trainer.get_model().parameters():
        parameter_bytes += parameter.numel() * parameter.element_size()
        if parameter.requires_grad:
            trained_values += parameter.numel()
    if cfg.checkpoint.no_save_optimizer_state:
        return parameter_bytes

    param_groups = getattr(trainer.optimizer, "param_groups", None) or [{}]
    options = param_groups[0]  # all groups have the same options
    moments = 0
    if "betas" in options:  # Adam and its variants
        moments = 2
    elif options.get("momentum"):
        moments = 1
    # Half-precision trainings also save the float32 parameters that the optimizer updates.
    float32_copies = 1 if cfg.common.fp16 or cfg.common.bf16 else 0
    return parameter_bytes + 4 * trained_values * (moments + float32_copies)


@patch("fairseq_cli.train", function="validate")
def limit_validation_batches(original: Any, cfg: Any, *args: Any, **kwargs: Any) -> Any:
    """``--max-valid-steps N`` evaluates N + 1 batches.

    fairseq stops after the batch with the number N, counted from 0. Here it stops after N batches.
    """
    steps = getattr(cfg.dataset, "max_valid_steps", None)
    if steps is None:
        return original(cfg, *args, **kwargs)
    cfg.dataset.max_valid_steps = steps - 1
    try:
        return original(cfg, *args, **kwargs)
    finally:
        cfg.dataset.max_valid_steps = steps


@patch("fairseq_cli.train", function="validate")
def save_when_validation_fails(
    original: Any, cfg: Any, trainer: Any, task: Any, epoch_itr: Any, subsets: Sequence[str]
) -> Any:
    """A validation that fails costs all updates since the last checkpoint, because it comes before the save.

    Here a checkpoint is saved when the validation fails, before the error is raised again; training resumes after that
    validation.
    """
    try:
        return original(cfg, trainer, task, epoch_itr, subsets)
    except Exception:
        from fairseq import checkpoint_utils

        # With sharded state every process must take part in saving, and the others may not have failed.
        if not trainer.is_fsdp and cfg.distributed_training.zero_sharding == "none":
            checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
            logger.error("the validation failed; a checkpoint was saved in %s", cfg.checkpoint.save_dir)
        raise


@patch("fairseq.tasks.translation", function="TranslationTask.reduce_metrics")
def compute_bleu_of_empty_translations(
    original: Any, self: Any, logging_outputs: Sequence[dict[str, Any]], criterion: Any
) -> None:
    """``--eval-bleu`` logs no BLEU if all translations are empty, and the training ends with ``KeyError: 'bleu'``.

    Batches with only empty translations are not even counted in the reference length, which makes BLEU too high. Here
    they count like any other batch, and BLEU may be 0.
    """
    from fairseq.logging import metrics
    from fairseq.tasks.translation import EVAL_BLEU_ORDER
    from sacrebleu.metrics import BLEU

    original(self, logging_outputs, criterion)
    validated = [output for output in logging_outputs if "_bleu_sys_len" in output]
    ngrams = 0
    for output in validated:
        ngrams += sum(output.get(f"_bleu_totals_{order}", 0) for order in range(EVAL_BLEU_ORDER))
    if not self.cfg.eval_bleu or not validated or ngrams:  # no BLEU is due, or fairseq has computed it
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
def refuse_empty_selection(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """If every sentence is skipped for its length, ``fairseq-eval-lm`` prints a perplexity of 1, with status 0.

    Other commands divide by zero or look for a missing loss. Here every command refuses an empty selection, and a
    sentence that is too long and not skipped.
    """
    try:
        remaining = original(self, *args, **kwargs)
    except Exception as error:
        # fairseq raises a plain Exception, whose message names this option as a remedy.
        if "--skip-invalid-size-inputs-valid-test" in str(error):
            raise UserError(
                f"{error}, or give --max-source-positions, --max-target-positions or --tokens-per-sample that fit"
            ) from error
        raise
    # fairseq-interactive's task has no datasets; there a whole input buffer may be skipped.
    if not len(remaining) and self.datasets:
        raise UserError(
            "no sentence is left: the data is empty, or each is longer than the model, --tokens-per-sample, "
            "--max-source-positions or --max-target-positions allow"
        )
    return remaining


@patch("fairseq.data.data_utils", before="batch_by_size")
def refuse_sentences_over_max_tokens(indices: Any, num_tokens_fn: Any, num_tokens_vec: Any, max_tokens: Any) -> None:
    """A sentence longer than ``--max-tokens`` fails an assertion that does not name the option.

    Here the error names it.
    """
    # The names of the parameters are those of fairseq's batch_by_size (fairseq_compat.patching.patch).
    if max_tokens is None or max_tokens <= 0 or not len(indices):
        return
    lengths = num_tokens_vec if num_tokens_vec is not None else [num_tokens_fn(index) for index in indices]
    longest = int(numpy.max(lengths))
    if longest > max_tokens:
        raise UserError(
            f"--max-tokens {max_tokens} (or --max-tokens-valid) is less than the {longest} tokens of a sentence; give "
            "more, or leave out longer sentences with --max-source-positions and --max-target-positions"
        )
