"""Patches of training: devices, processes, updates, and when a training ends.

Each docstring opens with fairseq's fault, which ``doctor`` lists; the paragraph after it says what the patch does.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_compat.errors import UserError, chain, mistake
from fairseq_compat.literals import evaluate
from fairseq_compat.outputs import make_folder
from fairseq_compat.patches.saving import get_patience_counts
from fairseq_compat.patching import Overlay, as_configuration, patch, replaces
from fairseq_compat.process import describe_waiting, keep_freed_memory
from fairseq_compat.ranges import RANGES

logger = logging.getLogger(__name__)

#: The name of the lock file in ``--save-dir``.
LOCK = ".training.lock"

#: Seconds to wait for the lock: the process of a killed run may take a while to end.
LOCK_TIMEOUT = 10.0

#: How the sentence about a training that diverged begins, by which programs recognize it (``recipes/sweep.py``).
DIVERGED = "the training diverged"

#: What is in the error by which fairseq ends a training that diverged -> what it means.
_NOT_FINITE = {
    "gradients are Nan/Inf": "gradients are NaN or infinite",
    "Minimum loss scale reached": "gradients overflow float16 even at --min-loss-scale",
}


@patch("fairseq_cli.train", function="main")
def lock_save_dir(original: Any, cfg: Any, *args: Any, **kwargs: Any) -> Any:
    """Two trainings in one ``--save-dir`` overwrite each other's checkpoints; with ``python -O`` nothing is checked.

    Here the first process of a training locks its folder before anything is written, and a second training is refused.
    So is ``-O``, because fairseq's checks are assertions.
    """
    from fairseq.distributed.utils import is_master

    cfg = as_configuration(cfg)
    if cfg.checkpoint.no_save or not is_master(cfg.distributed_training):
        return original(cfg, *args, **kwargs)
    if not __debug__:
        raise UserError("fairseq's checks are assertions, which -O and PYTHONOPTIMIZE remove; train without them")
    # The lock ends with the process, even if it is killed.
    with ExitStack() as stack:
        _lock_folder(cfg.checkpoint.save_dir, stack)
        return original(cfg, *args, **kwargs)


def _lock_folder(folder: str, stack: ExitStack) -> None:
    """Lock a folder until the end of ``stack``; on file systems without locks, log a warning."""
    from filelock import FileLock, Timeout

    make_folder("--save-dir", folder)
    path = os.path.join(folder, LOCK)
    if os.path.isfile(path) and os.stat(path).st_nlink > 1:  # a hard link: locking would empty the other file
        os.remove(path)
    try:
        stack.enter_context(FileLock(path, timeout=LOCK_TIMEOUT))
    except Timeout:
        user = Path(path).read_text()[:200]
        raise UserError(f"--save-dir {folder} is in use by {user}; stop it, or give another folder") from None
    except OSError as error:
        logger.warning("--save-dir %s cannot be locked (%s); make sure no other training writes there", folder, error)
        return
    Path(path).write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
    stack.callback(Path(path).unlink, missing_ok=True)  # before the lock is released


@patch("fairseq_cli.train", function="train")
def stop_finished_runs(original: Any, cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Any:
    """A run that has reached ``--max-update`` or ran out of ``--patience`` trains on if its command is repeated.

    fairseq checks the limits after an update, so that repeating a command until it succeeds gives other weights. Here
    they are checked before an epoch begins as well.
    """
    limit, updates = cfg.optimization.max_update, trainer.get_num_updates()
    if limit and updates >= limit:
        logger.info("nothing is left to train: %d updates are done, and --max-update is %d", updates, limit)
        return [None], True
    patience = cfg.checkpoint.patience
    if 0 < patience <= get_patience_counts().get("num_runs", 0):
        logger.info("nothing is left to train: the last %d validations, --patience, were no better", patience)
        return [None], True
    return original(cfg, trainer, task, epoch_itr)


@patch("fairseq.trainer", function="Trainer.save_checkpoint")
def save_no_crash_for_mistakes(original: Any, self: Any, filename: str, extra_state: Any) -> None:
    """A mistake that shows in the first update, such as a criterion that the model refuses, leaves a ``crash.pt``.

    It is as large as a checkpoint, and has nothing that was trained. Here only other errors leave one.
    """
    error = sys.exc_info()[1]
    if os.path.basename(filename) == "crash.pt" and error is not None and mistake(error) is not None:
        return
    original(self, filename, extra_state)


@patch("fairseq.trainer")
def look_for_nan_in_outputs_only(module: Any) -> None:
    """The report on NaN ends in ``StopIteration``, which hides the error that it is about.

    fairseq repeats an update whose gradients are not finite, and logs the modules with such values. Its hooks of the
    backward pass fail on outputs such as an encoder's, a dictionary of lists. Here only outputs of the forward pass are
    looked at; the norms of all gradients are logged as before.
    """
    module.NanDetector = partial(module.NanDetector, backward=False)


@patch("fairseq.trainer", function="Trainer.train_step")
def say_that_a_training_diverged(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """A training that diverges ends with a traceback, which does not name the update or a remedy.

    Here it ends with one sentence, which begins with ``DIVERGED``.
    """
    try:
        return original(self, *args, **kwargs)
    except Exception as error:
        # The repeated update may have failed, too, and then its error comes first.
        problems = " ".join(str(cause) for cause in chain(error) if isinstance(cause, FloatingPointError))
        meanings = [meaning for text, meaning in _NOT_FINITE.items() if text in problems]
        if not meanings:
            raise
        raise UserError(
            f"{DIVERGED} in update {self.get_num_updates() + 1}: {_describe_weights(self.get_model()) or meanings[0]}; "
            "try a lower --lr, more --warmup-updates or --clip-norm, and check the options of --optimizer; checkpoints "
            "saved before are whole"
        ) from error


def _describe_weights(model: Any) -> str | None:
    """Return what to say about weights that are not finite; None if all are."""
    for name, weight in model.named_parameters():
        if not weight.isfinite().all():
            return f"weights are NaN or infinite, such as {name}"
    return None


@patch("fairseq.logging.metrics", function="log_start_time")
def log_milliseconds(original: Any, key: str, priority: int = 40, round: int | None = None) -> None:
    """``train_wall``, the seconds of training steps, is logged in whole seconds: an epoch of 1.4 s as 1.

    Hours of training are summed over epochs (``fairseq_depthwise.reports.training_hours``), so that a small training
    could lose a third of its time. Here the log has milliseconds.
    """
    original(key, priority, 3 if key == "train_wall" else round)


@patch("fairseq.trainer", function="Trainer.train_step")
def drop_empty_batches(original: Any, self: Any, samples: list[Any], *args: Any, **kwargs: Any) -> Any:
    """At the end of an epoch, an empty batch of an update removes the sentences before it from the update's size.

    With ``--update-freq`` above 1, where the batches of an epoch are no multiple of the processes, fairseq fills up the
    last update of some processes with empty batches, and then does not count their sentences: the gradient is divided
    by too small a number. Here a process leaves out its empty batches if it has others.
    """
    # Empty batches are {}, [] or None.
    filled = [sample for sample in samples if sample]
    # Where layers communicate, all processes must run the same number of batches.
    if filled and not self.is_fsdp and not getattr(self.cfg.model, "base_layers", 0):
        samples = filled
    return original(self, samples, *args, **kwargs)


@patch("fairseq.optim.fairseq_optimizer", function="FairseqOptimizer.all_reduce_grads")
def call_finish_gradient(original: Any, self: Any, module: Any) -> None:
    """A model has no hook for the complete gradient of an update: it can only change the gradients of single batches.

    A nonlinear change, such as setting positive entries to 0, gives another result for a batch than for its parts
    (``--update-freq``, several processes). Here each module with a method ``finish_gradient`` is called once per
    update: after gradients are summed over batches and processes, before the norm is computed and clipped, and before
    they are copied to the float32 parameters.
    """
    original(self, module)
    for part in module.modules():
        # On an instance, hasattr would also find the methods of what a wrapper of fairseq wraps.
        if hasattr(type(part), "finish_gradient"):
            part.finish_gradient()


@patch("fairseq.trainer", function="Trainer.get_valid_iterator")
def separate_validation_iterator(original: Any, self: Any, subset: str, disable_iterator_cache: bool = False) -> Any:
    """With ``--valid-subset train`` the epochs count double, and a validation within an epoch ends it.

    fairseq keeps one iterator for each data set. Here validation on the training set gets its own.
    """
    return original(self, subset, disable_iterator_cache or subset == self.cfg.dataset.train_subset)


@patch("fairseq.modules.transformer_layer", "fairseq.models.transformer.transformer_encoder")
def disable_encoder_fast_path(module: Any) -> None:
    """Generation with the stock Transformer stops with ``Mask Type should be defined``.

    From PyTorch 1.12 on, fairseq's encoder calls a fused kernel whose signature has changed since. Two modules select
    it by PyTorch's version, parsed with ``int``, which fails for vendor builds such as ``2.6.0a0``. Here both see a
    version that predates the kernel; the ordinary path computes the same.
    """
    module.torch = Overlay(module.torch, __version__="1.11.0")


@patch("fairseq.models.distributed_fairseq_model")
def adapt_pytorch_ddp(module: Any) -> None:
    """``--ddp-backend pytorch_ddp``, the default, stops on CPUs, and in an update of the stock Transformer.

    fairseq passes a GPU number even for a model on a CPU. And PyTorch waits for the gradients of all parameters, even
    for those of layers that LayerDrop skips, and for a second copy of the encoder layers' weights, which only the fused
    kernel uses. Here the copies are ignored, and LayerDrop implies ``--find-unused-parameters``.
    """
    backend = module.DistributedDataParallel

    def adapted_backend(module: Any, *, device_ids: Any = None, output_device: Any = None, **options: Any) -> Any:
        from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

        copies = []
        for name, layer in module.named_modules():
            if isinstance(layer, TransformerEncoderLayerBase):
                prefix = f"{name}." if name else ""
                copies += [f"{prefix}{copy}" for copy, _ in layer.named_parameters(recurse=False)]
        if copies:
            backend._set_params_and_buffers_to_ignore_for_model(module, copies)
        if any(_skips_layers(part) for part in module.modules()):
            options["find_unused_parameters"] = True
        # PyTorch accepts device numbers only for models on GPUs.
        if not any(parameter.device.type == "cpu" for parameter in module.parameters()):
            options |= {"device_ids": device_ids, "output_device": output_device}
        return backend(module=module, **options)

    module.DistributedDataParallel = adapted_backend


def _skips_layers(module: Any) -> bool:
    """Return whether a module of a model, fairseq's or ours, skips layers at random."""
    from fairseq.modules import LayerDropModuleList

    probability = module.p if isinstance(module, LayerDropModuleList) else getattr(module, "layerdrop", None)
    return isinstance(probability, float) and probability > 0


@patch("fairseq.distributed.utils", before="call_main")
def reuse_freed_memory(cfg: Any) -> None:
    """On a CPU a step of training or of a beam search is slower than necessary.

    Each operation maps memory from the system, page by page, and returns it. Here a command that computes on a CPU
    keeps freed memory for reuse (:mod:`fairseq_compat.process`).
    """
    import torch

    if cfg.common.cpu or not torch.cuda.is_available():
        keep_freed_memory()


@patch("fairseq_cli.train", before="main")
def log_how_threads_wait(cfg: Any) -> None:
    """Beside one busy process, a training on two cores falls to an eighth of its speed, and no line says why.

    Threads that wait for each other keep their cores busy for milliseconds, while the last one has to share its core.
    Here they soon sleep (:mod:`fairseq_compat.process`), and a line of the log names the setting.
    """
    import torch

    on_cpu = as_configuration(cfg).common.cpu or not torch.cuda.is_available()
    if on_cpu and torch.get_num_threads() > 1:
        logger.info(describe_waiting(torch.get_num_threads()))


@patch("fairseq.distributed.utils", before="call_main")
def require_processes_to_start(cfg: Any) -> None:
    """``--distributed-init-method`` without GPUs starts no process: a training that trained nothing has status 0.

    Here it is refused.
    """
    import torch

    distributed = cfg.distributed_training
    starts = distributed.distributed_init_method is not None and not distributed.distributed_no_spawn
    if starts and not torch.cuda.device_count():
        raise UserError(
            f"--distributed-init-method {distributed.distributed_init_method} starts a process for each GPU, and there "
            "is none; add --distributed-no-spawn and --distributed-rank, or start processes with torchrun"
        )


@patch("fairseq.models.transformer.transformer_config")
def parse_layers_to_keep_as_text(module: Any) -> None:
    """``--encoder-layers-to-keep`` ends in ``'list' object has no attribute 'split'``: the models expect a string.

    Here the option stays a string.
    """
    for part in (module.EncDecBaseConfig, module.DecoderConfig):
        part.__dataclass_fields__["layers_to_keep"].type = str


@patch("fairseq.optim.lr_scheduler.manual_lr_scheduler", function="ManualSchedule.parse_manuallr_args")
def read_rates_by_number(original: Any, self: Any, lr_args_str: str) -> Any:
    """``--epoch2lr '{1: 0.5}'`` ends in a ``TypeError``, since epochs must be texts, and rates below 0 are accepted.

    Here numbers and texts are read alike, and everything else is refused.
    """
    try:
        rates = {str(numbers): rate for numbers, rate in evaluate(lr_args_str).items()}
        rates = original(self, str(rates))
    except (UserError, AttributeError, TypeError, ValueError):
        rates = None
    if rates is None or not all(rate in RANGES["lr"] for rate in rates.values()):
        raise UserError(
            f"--epoch2lr or --update2lr {lr_args_str!r} is no dictionary of learning rates by epochs or updates; write "
            "it as {'1-3': 0.001, '4': 0.0005}"
        )
    return rates


@patch("fairseq.optim.fp16_optimizer")
def set_bf16_scale_window(module: Any) -> None:
    """``--bf16`` with several ``--update-freq`` stops without ``--fp16-scale-window``, which it never reads.

    Here it gets a value.
    """
    for optimizer in (module.FP16Optimizer, module.MemoryEfficientFP16Optimizer):

        @replaces(optimizer, "__init__")
        def __init__(original: Any, self: Any, cfg: Any, *args: Any, **options: Any) -> None:  # noqa: N807  # a method
            if cfg.common.bf16 and cfg.common.fp16_scale_window is None and len(cfg.optimization.update_freq) > 1:
                cfg = cfg.copy()
                cfg.common.fp16_scale_window = 1  # any value: bf16 has no loss scale
            original(self, cfg, *args, **options)
