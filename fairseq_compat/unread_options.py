"""Options that fairseq's commands accept and ignore, or ignore without another one: they are refused.

fairseq's commands share their options: ``fairseq-generate`` accepts ``--patience``, ``fairseq-preprocess`` accepts
``--bpe``, and neither reads it. Only the words of a command line are checked, so that files of options, checkpoints and
programs that call fairseq are as free as before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec

from fairseq_compat.errors import UserError

# Options in fairseq's configuration that several commands read.
_LOGGED = ("no_progress_bar", "log_interval", "log_format")
_PLACE = ("seed", "cpu", "fp16", "memory_efficient_fp16", "user_dir", "all_gather_list_size")
_COMMON = (*_LOGGED, *_PLACE)
_LOADING = ("num_workers", "data_buffer_size", "skip_invalid_size_inputs_valid_test", "dataset_impl")
_BATCHES = (*_LOADING, "max_tokens", "batch_size", "required_batch_size_multiple", "required_seq_len_multiple")
_SHARDS = ("gen_subset", "num_shards", "shard_id")
_SUFFIX = ("checkpoint_suffix", "checkpoint_shard_count")

#: Command -> class of fairseq's configuration -> the options in it that the command reads, or that do no harm, such as
#: the number of processes that load data where none is loaded. It reads all options of other classes that it accepts.
_READ: dict[str, dict[str, tuple[str, ...]]] = {
    "preprocess": {"CommonConfig": ("no_progress_bar", "seed", "cpu", "user_dir")},
    "generate": {
        "CommonConfig": _COMMON,
        "DatasetConfig": (*_BATCHES, *_SHARDS),
        "CheckpointConfig": _SUFFIX,
        # It is one process; --num-shards divides the data.
        "DistributedTrainingConfig": ("pipeline_model_parallel", "fp16", "memory_efficient_fp16"),
    },
    "interactive": {
        "CommonConfig": _COMMON,
        # Those of shards are refused by the command itself, with a remedy.
        "DatasetConfig": (*_BATCHES, "num_shards", "shard_id"),
        "CheckpointConfig": _SUFFIX,
    },
    "validate": {
        "CommonConfig": _COMMON,
        "DatasetConfig": (*_BATCHES, "valid_subset"),
        "CommonEvalConfig": ("path", "model_overrides"),
    },
    "eval-lm": {
        "CommonConfig": _COMMON,
        "DatasetConfig": (*_BATCHES, *_SHARDS),
        "CommonEvalConfig": ("path", "post_process", "model_overrides"),
    },
}

# Parts of a training that other commands accept as well, with the options of the default scheduler.
_OF_TRAINING = ("--optimizer", "--lr-scheduler", "--force-anneal", "--lr-shrink", "--warmup-updates")
_OF_DATA = ("--load-alignments", "--upsample-primary")
_OF_TEXT = ("--tokenizer", "--bpe", "--scoring")

#: Options of a validation that computes BLEU.
_OF_BLEU = (
    "--eval-bleu-args",
    "--eval-bleu-detok",
    "--eval-bleu-detok-args",
    "--eval-tokenized-bleu",
    "--eval-bleu-remove-bpe",
    "--eval-bleu-print-samples",
)

#: Command -> other options that it accepts and does not read.
_UNREAD: dict[str, tuple[str, ...]] = {
    "train": (
        "--gen-subset",
        "--num-shards",
        "--shard-id",
        "--reset-logging",
        "--suppress-crashes",
        "--checkpoint-shard-count",
    ),
    "preprocess": ("--criterion", "--optimizer", "--lr-scheduler", *_OF_TEXT),
    "generate": ("--criterion", *_OF_TRAINING, *_OF_DATA, "--eval-bleu", *_OF_BLEU),
    "interactive": ("--criterion", *_OF_TRAINING, *_OF_DATA, "--eval-bleu", *_OF_BLEU, "--scoring"),
    "validate": (*_OF_TRAINING, *_OF_DATA, *_OF_TEXT),  # --criterion brings its own options
    "eval-lm": (*_OF_TRAINING, *_OF_TEXT),
}

#: Command -> options that do nothing there and are accepted, since fairseq's own pages give them.
_ON_PAGES = {"generate": ("--train-subset", "--distributed-no-spawn")}

#: Options that do nothing in any command, and why.
_RETIRED = {
    "--no-early-stop": "fairseq has not stopped early since 2020",
    "--no-beamable-mm": "fairseq has had no BeamableMM since 2019",
    "--fast-stat-sync": "each criterion decides it",
    "--pad": "a score takes this symbol from the dictionary",
    "--eos": "a score takes this symbol from the dictionary",
    "--unk": "a score takes this symbol from the dictionary",
    "--write-checkpoints-asynchronously": "a checkpoint is flushed and renamed before the training goes on",
    "--save-async": "a checkpoint is flushed and renamed before the training goes on",
}

#: Options, or options with their value -> those that do nothing without them; one of several is enough.
_NEEDED: dict[tuple[str, ...], tuple[str, ...]] = {
    ("--aim-repo",): ("--aim-run-hash",),
    ("--distributed-world-size", "--distributed-init-method", "--distributed-port"): ("--distributed-rank",),
    ("--sentencepiece-enable-sampling",): ("--sentencepiece-alpha",),
    ("--sampling-method temperature",): ("--sampling-temperature",),
    ("--fp16", "--memory-efficient-fp16"): (
        "--fp16-no-flatten-grads",
        "--fp16-init-scale",
        "--fp16-scale-window",
        "--fp16-scale-tolerance",
        "--threshold-loss-scale",
    ),
    ("--fp16", "--memory-efficient-fp16", "--bf16", "--memory-efficient-bf16"): ("--on-cpu-convert-precision",),
    ("--fp16", "--memory-efficient-fp16", "--amp"): ("--min-loss-scale",),
    ("--amp",): ("--amp-batch-retries", "--amp-init-scale", "--amp-scale-window"),
    ("--use-plasma-view",): ("--plasma-path",),
    ("--save-interval-updates",): ("--keep-interval-updates",),
    ("--keep-interval-updates",): ("--keep-interval-updates-pattern",),
    ("--store-ema",): ("--ema-decay", "--ema-start-update", "--ema-seed-model", "--ema-update-freq", "--ema-fp32"),
    ("--eval-bleu",): _OF_BLEU,
    # Schedulers that are named here warm up by default.
    ("--warmup-updates", "--lr-scheduler inverse_sqrt", "--lr-scheduler inverse_sqrt_restart"): ("--warmup-init-lr",),
    ("--lr-period-updates",): ("--t-mult",),
    ("--max-update",): ("--phase-ratio",),
    ("--retain-dropout",): ("--retain-dropout-modules",),
    ("--ddp-backend slowmo",): ("--slowmo-momentum", "--slowmo-base-algorithm", "--localsgd-frequency"),
    ("--ddp-backend fully_sharded",): (
        "--no-reshard-after-forward",
        "--fp32-reduce-scatter",
        "--cpu-offload",
        "--use-sharded-state",
        "--not-fsdp-flatten-parameters",
    ),
    ("--pipeline-model-parallel",): (
        "--pipeline-balance",
        "--pipeline-devices",
        "--pipeline-chunks",
        "--pipeline-encoder-balance",
        "--pipeline-encoder-devices",
        "--pipeline-decoder-balance",
        "--pipeline-decoder-devices",
        "--pipeline-checkpoint",
    ),
}

#: Option -> options, or options with their value, that do nothing with it.
_EXCLUDED: dict[str, tuple[str, ...]] = {
    "--disable-validation": (
        "--patience",
        "--keep-best-checkpoints",
        "--best-checkpoint-metric",
        "--maximize-best-checkpoint-metric",
        "--lr-scheduler reduce_lr_on_plateau",
    ),
    "--no-epoch-checkpoints": ("--keep-last-epochs",),
    "--no-save": ("--keep-last-epochs", "--keep-best-checkpoints"),
    "--only-source": ("--thresholdtgt", "--nwordstgt"),
    "--dict-only": ("--validpref", "--testpref", "--dataset-impl", "--align-suffix", "--alignfile"),
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
    options, settings = _options_in(words)
    unread = unread_options(command)
    if "--distributed-world-size 1" in settings:  # which is so
        unread.discard("--distributed-world-size")
    for option in options:
        if option in unread:
            raise UserError(f"{option} has no effect on fairseq-{command}; leave it out")
        if option in _RETIRED:
            raise UserError(f"{option} has no effect ({_RETIRED[option]}); leave it out")
        packages = _PACKAGES.get(option, ())
        if packages and not any(map(_is_installed, packages)):
            raise UserError(f"{option} needs the package {' or '.join(packages)}; install it, or leave the option out")
    for option, excluded in _EXCLUDED.items():
        for setting in excluded:
            # fairseq leaves an option out whose value is -1.
            if {option, setting} <= settings and f"{setting} -1" not in settings:
                raise UserError(f"{setting} has no effect with {option}; leave one of them out")
    for needed, dependent in _NEEDED.items():
        ignored = [option for option in options if option in dependent]
        if ignored and settings.isdisjoint(needed):
            raise UserError(
                f"{ignored[0]} has no effect without {' or '.join(needed)}; give that, too, or leave it out"
            )


def _options_in(words: Iterable[str]) -> tuple[list[str], set[str]]:
    """Return the options of a command line, and these as well as "option value" for each that has one."""
    options: list[str] = []
    settings: set[str] = set()
    for word in words:
        # argparse takes no value that begins like an option.
        if word.startswith("--"):
            option, equals, value = word.partition("=")
            options.append(option)
            settings.update([option, f"{option} {value}"] if equals else [option])
        elif options:
            settings.add(f"{options[-1]} {word}")
    return options, settings


def unread_options(command: str) -> set[str]:
    """Return the options, by all of their names, that a command accepts and does not read."""
    from fairseq.dataclass import configs

    unread = set(_UNREAD.get(command, ()))
    for name, read_options in _READ.get(command, {}).items():
        for field in dataclasses.fields(getattr(configs, name)):
            if field.name not in read_options and not field.name.startswith("_"):
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
