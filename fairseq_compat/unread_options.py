"""Options that fairseq's commands take and do nothing with, or nothing without another one: they are refused.

fairseq's commands share their options: ``fairseq-generate`` takes ``--patience``, ``fairseq-preprocess`` takes
``--bpe``, and neither reads it. What is given is looked for in the words of a command line, so that files of options,
checkpoints and programs that call fairseq are as free as before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from itertools import pairwise

from fairseq_compat.errors import UserError

_LOGGED = ("no_progress_bar", "log_interval", "log_format")
_PLACE = ("seed", "cpu", "fp16", "memory_efficient_fp16", "user_dir", "all_gather_list_size")
_BATCHES = (
    "num_workers", "data_buffer_size", "skip_invalid_size_inputs_valid_test", "max_tokens", "batch_size",
    "required_batch_size_multiple", "required_seq_len_multiple", "dataset_impl",
)  # fmt: skip
_SHARDS = ("gen_subset", "num_shards", "shard_id")
_SUFFIX = ("checkpoint_suffix", "checkpoint_shard_count")

#: Command -> class of fairseq's configuration -> the options in it that the command reads, or that do no harm, such as
#: the number of processes that load data where none is loaded. Of other classes it reads all that it takes.
_READ: dict[str, dict[str, tuple[str, ...]]] = {
    "preprocess": {"CommonConfig": ("no_progress_bar", "seed", "cpu", "user_dir")},
    "generate": {
        "CommonConfig": (*_LOGGED, *_PLACE),
        "DatasetConfig": (*_BATCHES, *_SHARDS),
        "CheckpointConfig": _SUFFIX,
        # It is one process; --num-shards divides the data.
        "DistributedTrainingConfig": ("pipeline_model_parallel", "fp16", "memory_efficient_fp16"),
    },
    "interactive": {
        "CommonConfig": (*_LOGGED, *_PLACE),
        # Those of shards are refused by themselves, as they are for fairseq-generate.
        "DatasetConfig": (*_BATCHES, "num_shards", "shard_id"),
        "CheckpointConfig": _SUFFIX,
    },
    "validate": {
        "CommonConfig": (*_LOGGED, *_PLACE),
        "DatasetConfig": (*_BATCHES, "valid_subset"),
        "CommonEvalConfig": ("path", "model_overrides"),
    },
    "eval-lm": {
        "CommonConfig": (*_LOGGED, *_PLACE),
        "DatasetConfig": (*_BATCHES, *_SHARDS),
        "CommonEvalConfig": ("path", "post_process", "model_overrides"),
    },
}

#: Options of a validation that computes BLEU.
_EVAL_BLEU = (
    "--eval-bleu", "--eval-bleu-args", "--eval-bleu-detok", "--eval-bleu-detok-args", "--eval-tokenized-bleu",
    "--eval-bleu-remove-bpe", "--eval-bleu-print-samples",
)  # fmt: skip

#: Parts of a training that other commands take as well, with the options of the default scheduler.
_OF_TRAINING = ("--optimizer", "--lr-scheduler", "--force-anneal", "--lr-shrink", "--warmup-updates")

#: Command -> other options that it takes and does not read.
_UNREAD: dict[str, tuple[str, ...]] = {
    "train": ("--gen-subset", "--num-shards", "--shard-id", "--reset-logging", "--suppress-crashes"),
    "preprocess": ("--criterion", "--optimizer", "--lr-scheduler", "--tokenizer", "--bpe", "--scoring"),
    "generate": ("--criterion", *_OF_TRAINING, "--load-alignments", "--upsample-primary", *_EVAL_BLEU),
    "interactive": ("--criterion", *_OF_TRAINING, "--scoring", "--load-alignments", "--upsample-primary", *_EVAL_BLEU),
    "validate": (  # --criterion brings its own options
        *_OF_TRAINING, "--tokenizer", "--bpe", "--scoring", "--load-alignments", "--upsample-primary",
    ),
    "eval-lm": (*_OF_TRAINING, "--tokenizer", "--bpe", "--scoring"),
}  # fmt: skip

#: Command -> options that do nothing there and are taken, since fairseq's own pages give them.
_ON_PAGES = {"generate": ("--train-subset", "--distributed-no-spawn")}

#: Options that do nothing in any command, and why.
_RETIRED = {
    "--no-early-stop": "fairseq has not stopped early since 2020",
    "--no-beamable-mm": "fairseq has had no BeamableMM since 2019",
    "--fast-stat-sync": "each criterion decides it",
    **dict.fromkeys(("--pad", "--eos", "--unk"), "a score takes these symbols from the dictionary"),
    "--write-checkpoints-asynchronously": "a checkpoint is flushed and renamed before the training goes on",
    "--save-async": "a checkpoint is flushed and renamed before the training goes on",
}

_FP16 = ("--fp16", "--memory-efficient-fp16")
_PIPELINE = ("--pipeline-model-parallel",)

#: Option -> the ones without which it does nothing; one of them is enough.
_NEEDED: dict[str, tuple[str, ...]] = {
    "--aim-run-hash": ("--aim-repo",),
    "--distributed-rank": ("--distributed-world-size", "--distributed-init-method", "--distributed-port"),
    "--sampling-temperature": ("--sampling-method",),
    "--fp16-no-flatten-grads": _FP16,
    "--fp16-init-scale": _FP16,
    "--fp16-scale-window": _FP16,
    "--fp16-scale-tolerance": _FP16,
    "--threshold-loss-scale": _FP16,
    "--on-cpu-convert-precision": (*_FP16, "--bf16", "--memory-efficient-bf16"),
    "--min-loss-scale": (*_FP16, "--amp"),
    "--amp-batch-retries": ("--amp",),
    "--amp-init-scale": ("--amp",),
    "--amp-scale-window": ("--amp",),
    "--plasma-path": ("--use-plasma-view",),
    "--keep-interval-updates": ("--save-interval-updates",),
    "--keep-interval-updates-pattern": ("--keep-interval-updates",),
    "--ema-decay": ("--store-ema",),
    "--ema-start-update": ("--store-ema",),
    "--ema-seed-model": ("--store-ema",),
    "--ema-update-freq": ("--store-ema",),
    "--ema-fp32": ("--store-ema",),
    **dict.fromkeys(_EVAL_BLEU[1:], _EVAL_BLEU[:1]),
    "--retain-dropout-modules": ("--retain-dropout",),
    "--slowmo-momentum": ("--ddp-backend",),
    "--slowmo-base-algorithm": ("--ddp-backend",),
    "--localsgd-frequency": ("--ddp-backend",),
    "--pipeline-balance": _PIPELINE,
    "--pipeline-devices": _PIPELINE,
    "--pipeline-chunks": _PIPELINE,
    "--pipeline-encoder-balance": _PIPELINE,
    "--pipeline-encoder-devices": _PIPELINE,
    "--pipeline-decoder-balance": _PIPELINE,
    "--pipeline-decoder-devices": _PIPELINE,
    "--pipeline-checkpoint": _PIPELINE,
    "--no-reshard-after-forward": ("--ddp-backend",),
    "--fp32-reduce-scatter": ("--ddp-backend",),
    "--cpu-offload": ("--ddp-backend",),
    "--use-sharded-state": ("--ddp-backend",),
    "--not-fsdp-flatten-parameters": ("--ddp-backend",),
}

#: Option -> the packages that it needs, one of which is enough; without them fairseq writes a line, or nothing.
_PACKAGES: dict[str, tuple[str, ...]] = {
    "--aim-repo": ("aim",),
    "--wandb-project": ("wandb",),
    "--azureml-logging": ("azureml",),
    "--tensorboard-logdir": ("tensorboard", "tensorboardX"),
    "--tpu": ("torch_xla",),
    "--fp16-adam-stats": ("apex",),
    "--encoder-xformers-att-config": ("xformers",),
    "--decoder-xformers-att-config": ("xformers",),
    "--use-plasma-view": ("pyarrow.plasma",),
}


def require_effects(command: str, words: Iterable[str]) -> None:
    """Raise UserError where an option in the words of a command line has no effect on the command, such as train."""
    words = list(words)
    given = given_options(words)
    unread = unread_options(command)
    if ("--distributed-world-size", "1") in pairwise(words):  # which is so
        unread.discard("--distributed-world-size")
    for option in given:
        if option in unread:
            raise UserError(f"{option} has no effect on fairseq-{command}; leave it out")
        if option in _RETIRED:
            raise UserError(f"{option} has no effect ({_RETIRED[option]}); leave it out")
        needed = _NEEDED.get(option)
        if needed is not None and not any(other in given for other in needed):
            raise UserError(f"{option} has no effect without {' or '.join(needed)}; give that, too, or leave it out")
        packages = _PACKAGES.get(option)
        if packages is not None and not any(map(_is_installed, packages)):
            raise UserError(f"{option} needs the package {' or '.join(packages)}; install it, or leave the option out")


def given_options(words: Iterable[str]) -> list[str]:
    """Return the long options among the words of a command line; argparse takes no value that begins like one."""
    return [word.partition("=")[0] for word in words if word.startswith("--")]


def unread_options(command: str) -> set[str]:
    """Return the options, by all of their names, that a command takes and does not read."""
    from fairseq.dataclass import configs

    unread = set(_UNREAD.get(command, ()))
    for name, read in _READ.get(command, {}).items():
        for field in dataclasses.fields(getattr(configs, name)):
            if field.name not in read and not field.name.startswith("_"):
                unread.update(_names(field.name, field.metadata))
    return unread.difference(_ON_PAGES.get(command, ()))


def _names(name: str, metadata: Mapping[str, str]) -> Sequence[str]:
    """Return the names that an option has on a command line."""
    names = [f"--{name.replace('_', '-')}"]
    if "argparse_alias" in metadata:
        names.append(metadata["argparse_alias"])
    return names


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of the package that it is part of
        return False
