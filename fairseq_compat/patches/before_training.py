"""Patches of what fails at the first validation or the first save: it is tried before the first update."""

from __future__ import annotations

import logging
import os
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

from fairseq_compat import checkpoints
from fairseq_compat.commands.generation import require_recorded
from fairseq_compat.errors import UserError, mistake, named
from fairseq_compat.generation_options import generation_arguments, json_object, require_post_process
from fairseq_compat.literals import dictionary
from fairseq_compat.patching import as_configuration, patch

logger = logging.getLogger(__name__)

#: Metrics of fairseq's validations by which the highest, or the lowest, is the best.
_HIGHER_IS_BETTER = ("bleu", "accuracy", "acc", "f1", "chrf")
_LOWER_IS_BETTER = ("loss", "nll_loss", "ppl", "wer", "uer", "cer")

#: Sentences of a validation set in which the metric of the best checkpoint must appear.
_TRIED = 8


@patch("fairseq_cli.train", before="main")
def check_training_options(cfg: Any) -> None:
    """Mistakes in ``--eval-bleu-args``, ``--eval-bleu-detok`` and others end a training without naming the option.

    A name that generation does not take is ignored, and a metric of the wrong direction makes the worst model the best.
    A part that a configuration of hydra leaves out is a traceback. Here all are checked before any data is read.
    """
    from fairseq import utils

    cfg = as_configuration(cfg)
    utils.import_user_module(cfg.common)  # its models, tasks and tokenizers
    for part in ("task", "model", "criterion", "optimizer", "lr_scheduler"):
        _require_part(cfg, part)
    _require_direction(cfg.checkpoint.best_checkpoint_metric, cfg.checkpoint.maximize_best_checkpoint_metric)
    for part in ("tokenizer", "bpe"):
        _require_complete(part, cfg[part])
    if cfg.dataset.combine_valid_subsets and cfg.dataset.valid_subset != "valid":
        subsets = cfg.dataset.valid_subset
        raise UserError(f"--valid-subset {subsets} does not go with --combine-valid-subsets; leave one of them out")
    _require_device(cfg.common)
    _require_bleu(cfg)


@patch("fairseq_cli.validate", before="main")
def check_validation_options(cfg: Any) -> None:
    """``fairseq-validate`` ignores a ``--criterion`` other than the checkpoint's, and misspelt ``--model-overrides``.

    Mistakes in these, and in the options of BLEU, end it without their names.
    """
    cfg = as_configuration(cfg)
    require_recorded(dictionary("--model-overrides", cfg.common_eval.model_overrides), cfg)
    _require_criterion(cfg)
    _require_bleu(cfg)


def _require_criterion(cfg: Any) -> None:
    """Raise UserError where a command line asks for another criterion than that of the checkpoint, which is used."""
    from fairseq import utils

    criterion = getattr(cfg.criterion, "_name", None)
    if criterion in (None, "cross_entropy"):  # the default, which nobody may have given
        return
    path = utils.split_paths(cfg.common_eval.path)[0]
    if not os.path.isfile(path):
        return
    recorded = checkpoints.options_in(checkpoints.load_checkpoint(path, mapped=True), "criterion")
    trained = recorded.get("_name") or recorded.get("criterion")
    if trained and trained != criterion:
        raise UserError(f"--criterion {criterion}: {path} was trained with {trained}, which validates it; give that")


def _require_part(cfg: Any, part: str) -> None:
    """Raise UserError unless a configuration has a part with a name that fairseq or a plugin knows."""
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_REGISTRY

    known = {"task": TASK_REGISTRY, "model": {**MODEL_REGISTRY, **ARCH_MODEL_REGISTRY}}
    names = known[part] if part in known else REGISTRIES[part]["registry"]
    options = None if OmegaConf.is_missing(cfg, part) else cfg[part]
    name = options if isinstance(options, str) else getattr(options, "_name", None)
    if name not in names:
        option = "--arch" if part == "model" else f"--{part.replace('_', '-')}"
        problem = f"{part}._name {name} is unknown" if name else f"{option} or {part}._name is missing"
        raise UserError(f"{problem}; give one of {', '.join(sorted(names))}")
    if part == "task" and getattr(options, "data", "") is None:
        raise UserError("task.data is missing; give the folder of the data")


def _require_complete(part: str, options: Any) -> None:
    """Raise UserError where an option is missing that the tokenizer or the subwords of a training need."""
    for name in options if OmegaConf.is_config(options) else ():
        if OmegaConf.is_missing(options, name):
            raise UserError(f"--{part} {options['_name']} is given without --{name.replace('_', '-')}, which it needs")


def _require_direction(metric: str, maximizes: bool) -> None:
    """Raise UserError where the best model by a metric would be the worst."""
    if metric in _HIGHER_IS_BETTER and not maximizes:
        raise UserError(f"--best-checkpoint-metric {metric} is best if high; add --maximize-best-checkpoint-metric")
    if metric in _LOWER_IS_BETTER and maximizes:
        raise UserError(
            f"--maximize-best-checkpoint-metric would keep the highest {metric}, the worst; leave it out, or give "
            "another --best-checkpoint-metric"
        )


def _require_device(common: Any) -> None:
    """Raise UserError where a precision needs a GPU, and there is none."""
    if torch.cuda.is_available() and not common.cpu:
        return
    remedy = "needs a GPU, and there is none; leave it out, or give --bf16, which a CPU computes"
    if common.fp16 and not (common.memory_efficient_fp16 or common.fp16_no_flatten_grads or common.tpu):
        raise UserError(f"--fp16 {remedy}")  # it would stop after reading the data
    if getattr(common, "amp", False):
        raise UserError(f"--amp {remedy}")  # it would compute in float32


def _require_bleu(cfg: Any) -> None:
    """Raise UserError unless a validation with BLEU, if there is one, can generate, join subwords and detokenize."""
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
        raise UserError(f"--eval-bleu-detok {tokenizer} is no tokenizer; give one of {known}")
    try:
        encoders.build_tokenizer(Namespace(tokenizer=tokenizer, **arguments))
    except Exception as error:  # each tokenizer has its own
        raise UserError(
            f"--eval-bleu-detok {tokenizer} with --eval-bleu-detok-args {arguments} cannot be set up: {named(error)}"
        ) from error


@patch("fairseq_cli.train", function="train")
def try_validation_and_save_first(original: Any, cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Any:
    """What fails at the first validation or the first save fails after the first epoch, which is then lost.

    This is ``--best-checkpoint-metric`` that the validation does not compute, a sentence too long for the model, a
    full disk. Here one sentence of every validation set is validated before the first update, and room for a checkpoint
    is looked for. Neither changes what is trained: the random numbers of training are the same without it.
    """
    # fairseq calls this function for each epoch.
    if not getattr(trainer, "validation_was_tried", False):
        trainer.validation_was_tried = True
        if trainer.is_data_parallel_master and not cfg.checkpoint.no_save:
            _require_room(cfg, trainer)
        if not cfg.dataset.disable_validation:
            for subset in cfg.dataset.valid_subset.split(","):
                # The sentences of the training set are in order for training.
                if subset != cfg.dataset.train_subset:
                    with _unchanged(trainer):
                        _try_validation(cfg, trainer, task, subset)
    return original(cfg, trainer, task, epoch_itr)


@contextmanager
def _unchanged(trainer: Any) -> Iterator[None]:
    """Restore random numbers, and the batch that fills up those of other processes, on leaving."""
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
    """Validate a sentence of a subset, or a few until the metric of the best checkpoint appears.

    Raises:
        UserError: a sentence is too long, or the metric does not appear.
    """
    from fairseq import utils
    from fairseq.logging import metrics

    trainer.get_valid_iterator(subset)  # which fails if a sentence is too long
    # One sentence at a time, in this process: the data of the training stay untouched.
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
    # Apart from the meters of the training, which would count these sentences.
    with metrics.aggregate(new_root=True) as validation:
        for number, sample in enumerate(sentences, start=1):
            try:
                trainer.valid_step(sample)
            except Exception as error:
                problem = mistake(error)
                if problem is None:
                    raise
                how = " with --eval-bleu-args" if getattr(cfg.task, "eval_bleu", False) else ""
                raise UserError(f"the validation on {subset}{how} would fail: {problem}") from error
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
    folder = cfg.checkpoint.save_dir
    needed = _size_of_checkpoint(cfg, trainer)
    available = shutil.disk_usage(folder).free
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit != resource.RLIM_INFINITY:
        available = min(available, limit)
    if needed > available:
        raise UserError(
            f"--save-dir {folder} has room for {available >> 20:,} MiB (disk, ulimit -f), and a checkpoint takes "
            f"{needed >> 20:,} MiB; free some, or give another folder"
        )


def _size_of_checkpoint(cfg: Any, trainer: Any) -> int:
    """Return the bytes that a checkpoint takes at least: parameters, and what the optimizer keeps of each."""
    size, trained = 0, 0
    for parameter in trainer.get_model().parameters():
        size += parameter.numel() * parameter.element_size()
        trained += parameter.numel() if parameter.requires_grad else 0
    if cfg.checkpoint.no_save_optimizer_state:
        return size
    # All groups have the same options.
    (group, *_) = getattr(trainer.optimizer, "param_groups", None) or [{}]
    moments = 0
    if "betas" in group:  # as Adam
        moments = 2
    elif group.get("momentum"):
        moments = 1
    # Half-precision trainings keep the float32 values, too.
    masters = 1 if cfg.common.fp16 or cfg.common.bf16 else 0
    return size + 4 * trained * (moments + masters)


@patch("fairseq_cli.train", function="validate")
def limit_validation_batches(original: Any, cfg: Any, *args: Any, **kwargs: Any) -> Any:
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
def save_when_validation_fails(
    original: Any, cfg: Any, trainer: Any, task: Any, epoch_itr: Any, subsets: Sequence[str]
) -> Any:
    """A validation that fails costs all updates since the last checkpoint, as it comes before the save.

    Here a checkpoint is saved first, from which the training resumes at the end of the validation.
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
def compute_bleu_of_empty_translations(
    original: Any, self: Any, logging_outputs: Sequence[dict[str, Any]], criterion: Any
) -> None:
    """``--eval-bleu`` has no BLEU where all translations are empty, and the training ends with ``KeyError: 'bleu'``.

    A batch of empty translations is left out even of the length of references, so that BLEU is too high. Here such a
    batch counts as any other, and BLEU may be 0.
    """
    from fairseq.logging import metrics
    from fairseq.tasks.translation import EVAL_BLEU_ORDER
    from sacrebleu.metrics import BLEU

    original(self, logging_outputs, criterion)
    validated = [output for output in logging_outputs if "_bleu_sys_len" in output]
    ngrams = 0
    for output in validated:
        ngrams += sum(output.get(f"_bleu_totals_{order}", 0) for order in range(EVAL_BLEU_ORDER))
    if not self.cfg.eval_bleu or not validated or ngrams:  # fairseq has computed BLEU, if any
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

    Other commands divide by zero or look for a missing loss. Here it is a mistake, whatever the command, as is a
    sentence that is too long and not skipped.
    """
    try:
        remaining = original(self, *args, **kwargs)
    except Exception as error:
        # fairseq raises a plain Exception, which names this option as a remedy.
        if "--skip-invalid-size-inputs-valid-test" in str(error):
            raise UserError(
                f"{error}, or give --max-source-positions, --max-target-positions or --tokens-per-sample that fit"
            ) from error
        raise
    if not len(remaining) and self.datasets:  # fairseq-interactive has none, and a buffer may be skipped whole
        raise UserError(
            "no sentence is left: the data is empty, or each is longer than the model, --tokens-per-sample, "
            "--max-source-positions or --max-target-positions allow"
        )
    return remaining


@patch("fairseq.data.data_utils", before="batch_by_size")
def refuse_sentences_over_max_tokens(indices: Any, num_tokens_fn: Any, num_tokens_vec: Any, max_tokens: Any) -> None:
    """A sentence of more than ``--max-tokens`` is an assertion without the name of an option."""
    if max_tokens is None or max_tokens <= 0 or not len(indices):
        return
    lengths = num_tokens_vec if num_tokens_vec is not None else [num_tokens_fn(index) for index in indices]
    longest = int(numpy.max(lengths))
    if longest > max_tokens:
        raise UserError(
            f"--max-tokens {max_tokens} (or --max-tokens-valid) is less than the {longest} tokens of a sentence; give "
            "more, or leave out longer sentences with --max-source-positions and --max-target-positions"
        )
