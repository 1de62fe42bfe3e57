"""Patches of options, warnings and logs, and of how fairseq's commands end."""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import importlib.util
import logging
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from fairseq_compat import UserError, import_hook
from fairseq_compat.commands.run import open_closed_streams, run_command, without_traceback_option
from fairseq_compat.literals import evaluate
from fairseq_compat.patching import Overlay, patch, replaces

#: Beginning of a warning (a regular expression) and its category.
KNOWN: tuple[tuple[str, type[Warning]], ...] = (
    # DataLoader is asked to pin memory whether or not there is a device to pin it for.
    (r"'pin_memory' argument is set as true but", UserWarning),
    # fairseq.trainer and fairseq.tasks use the older spelling of torch.amp.autocast("cuda").
    (r"`torch\.cuda\.amp\.autocast\(.*\)` is deprecated", FutureWarning),
    # The stock attention gives a float causal mask together with a boolean padding mask.
    (r"Support for mismatched (src_)?key_padding_mask and (attn_)?mask is deprecated", UserWarning),
    # --ddp-backend pytorch_ddp is made with an argument that PyTorch 2.13 has renamed.
    (r"`broadcast_buffers` is deprecated", FutureWarning),
    # fairseq's own functions are compiled as it was done before PyTorch 2.14.
    (r"`torch\.jit\.script` is deprecated", FutureWarning),
    # Every command composes its configuration in the way of hydra 1.0, which hydra 1.3 still understands.
    (r"\s*(hydra\.experimental\.|The version_base parameter|The strict flag in the compose API)", UserWarning),
    (r"\s*(In '.*': Usage of deprecated keyword|'.*' is validated against ConfigStore schema)", UserWarning),
)

#: Options whose numbers could fill the memory, start programs without end, or never end: the lowest and the highest.
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("max_tokens", "max_tokens_valid", "batch_size", "batch_size_valid"), (1, math.inf)),
    **dict.fromkeys(("required_batch_size_multiple", "required_seq_len_multiple", "update_freq"), (1, math.inf)),
    "max_valid_steps": (1, math.inf),
    "num_workers": (0, 1024),
    "data_buffer_size": (0, math.inf),
    **dict.fromkeys(("encoder_layers", "decoder_layers"), (0, 10_000)),
    **dict.fromkeys(("beam", "nbest"), (1, 10_000)),
    "lr": (0, math.inf),
    "seed": (0, 2**32 - 1),  # NumPy's
    **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout", "relu_dropout", "label_smoothing"), (0, 1)),
}

#: Class of fairseq's configuration and option -> what it does, where fairseq's help says something else.
HELPS = {
    ("CommonConfig", "bf16"): "use bfloat16, on any device",
    ("DistributedTrainingConfig", "find_unused_parameters"): (
        "look for parameters that a batch does not use, as layers that are skipped (not with --ddp-backend legacy_ddp)"
    ),
    ("DatasetConfig", "combine_valid_subsets"): "validate on valid, valid1, valid2 and so on as one set",
    ("OptimizationConfig", "skip_remainder_batch"): (
        "leave out the last batches of an epoch where they are less than an update (default: take them)"
    ),
    ("EMAConfig", "store_ema"): "keep an exponential moving average of the model in each checkpoint",
}

#: fairseq's commands.
_COMMANDS = ("eval_lm", "generate", "hydra_train", "interactive", "preprocess", "score", "train", "validate")


@patch("fairseq.dataclass.configs", "fairseq.models.transformer.transformer_config")
def dataclass_defaults(module: Any) -> Iterator[None]:
    """Python 3.11 and newer refuse the configuration classes' defaults (``mutable default ... use default_factory``).

    ``dataclasses`` takes a default for mutable when its class has no ``__hash__``, and a dataclass with ``__eq__`` has
    none. While these modules execute, their own dataclasses keep ``object.__hash__``. Rewriting the defaults as
    ``default_factory`` is no way out: ``fairseq.dataclass.initialize.hydra_init`` reads each field's ``.default``.
    """
    original = dataclasses.dataclass

    def dataclass(cls: type | None = None, /, **options: Any) -> Any:
        if cls is None:
            return lambda decorated: dataclass(decorated, **options)
        made: Any = original(cls, **options)
        if made.__module__ == module.__name__ and made.__hash__ is None:
            made.__hash__ = object.__hash__
        return made

    patched: Callable[..., Any] = dataclass
    dataclasses.dataclass = patched
    try:
        yield
    finally:
        # Modules that this one imported for the first time may have taken the stand-in by name; it is not for them.
        for imported in list(sys.modules.values()):
            if imported is not module and getattr(imported, "__dict__", {}).get("dataclass") is patched:
                imported.dataclass = original  # type: ignore[attr-defined]  # it has it
        dataclasses.dataclass = original


@patch(mentioned="eval")  # literal_eval, too
def literal_options(module: Any) -> Iterator[None]:
    """fairseq evaluates option values as Python, those that a checkpoint records, too, and so runs code from a file.

    Every module of fairseq that mentions ``eval`` gets :func:`fairseq_compat.literals.evaluate` under that name, and in
    the place of ``ast.literal_eval``. Values that fairseq's options are documented with, such as ``[(512, 3)] * 15``,
    are what they were.
    """
    module.eval = evaluate
    yield
    if getattr(module, "ast", None) is ast:
        module.ast = Overlay(ast, literal_eval=evaluate)
    if getattr(module, "literal_eval", None) is ast.literal_eval:
        module.literal_eval = evaluate


@patch("fairseq.utils", function="import_user_module")
def examples_as_user_dir(original: Any, args: Any) -> None:
    """A folder of fairseq's own examples, given with ``--user-dir``, is imported under a name that no patch is for.

    The models in it, data2vec's for one, evaluate the options that a checkpoint records. Here its modules get the
    patches for what they mention, as those of fairseq do. A folder of the user's own is left alone.
    """
    import fairseq

    own = os.path.dirname(os.path.realpath(fairseq.__file__))
    given = getattr(args, "user_dir", None)
    # fairseq looks for it from here, then from its own folder.
    for folder in (os.path.abspath(given), os.path.join(own, given)) if given else ():
        if os.path.realpath(folder).startswith(os.path.join(own, "examples", "")):
            import_hook.PACKAGES.add(os.path.basename(folder))
    original(args)


@patch("fairseq")
def known_warnings(module: Any) -> Iterator[None]:
    """Every log starts with warnings about calls inside fairseq that its users cannot change.

    Exactly the messages of ``KNOWN`` are silenced; all others are shown as before.
    """
    for message, category in KNOWN:
        warnings.filterwarnings("ignore", message=message, category=category)
    yield


@patch("fairseq.logging.progress_bar", function="progress_bar")
def log_file_once(original: Any, *args: Any, log_file: str | None = None, **kwargs: Any) -> Any:
    """With ``--log-file`` each epoch writes its lines once more than the epoch before.

    fairseq opens the file anew, and adds it to its log, for every bar of progress. Here a bar whose file is open
    already is made without one.
    """
    opened = {getattr(handler, "baseFilename", None) for handler in logging.getLogger(original.__module__).handlers}
    if log_file is not None and os.path.abspath(log_file) in opened:
        log_file = None
    return original(*args, log_file=log_file, **kwargs)


@patch("fairseq.options", function="parse_args_and_arch")
def values_of_options(original: Any, parser: Any, input_args: Any = None, *args: Any, **kwargs: Any) -> Any:
    """``--bf16`` stops (``'NoneType' object has no attribute 'xla_device'``); ``--max-tokens -1`` fills the memory.

    fairseq's option parser takes every ``--bf16`` run for a TPU run. Without PyTorch/XLA there is no TPU. And some
    numbers, such as ``--num-workers 99999``, fill the memory or never end. ``--no-seed-provided`` is forgotten, and
    a missing ``--arch`` is a traceback without a word.
    """
    try:
        result = original(parser, input_args, *args, **kwargs)
    except RuntimeError as error:
        if error.args:
            raise
        raise UserError("--arch is missing; fairseq-train --help lists the architectures") from error
    given = result[0] if isinstance(result, tuple) else result
    if "--no-seed-provided" in (sys.argv[1:] if input_args is None else input_args):
        given.no_seed_provided = True
    if importlib.util.find_spec("torch_xla") is None:
        given.tpu = False
    for name, (lowest, highest) in RANGES.items():
        value = getattr(given, name, None)
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, (int, float)) and not (lowest <= number <= highest and number < math.inf):
                option = f"--{name.replace('_', '-')}"
                raise UserError(f"{option} {number} is out of range: {lowest} to {highest}, finite")
    return result


@patch("fairseq.options", function="get_validation_parser")
def task_of_validation(original: Any, default_task: str | None = None) -> Any:
    """``fairseq-validate`` without ``--task`` stops with ``KeyError: None``; other commands take ``translation``."""
    return original(default_task or "translation")


@patch(*(f"fairseq_cli.{command}" for command in _COMMANDS))
def ends_of_commands(module: Any) -> Iterator[None]:
    """Whatever goes wrong ends in a page of traceback.

    Here fairseq's commands end as ours do (:mod:`fairseq_compat.commands.run`): one sentence, and status 1. The
    traceback of an error that nobody expects is kept in a file; ``--traceback`` prints it.
    """
    open_closed_streams()  # before the module sets up logging
    yield
    name = module.__name__.rpartition(".")[2]

    @replaces(module, "cli_main")
    def cli_main(original: Any, *args: Any, **kwargs: Any) -> Any:
        # hydra would print an abridged traceback and exit by itself; with this it lets the exception through.
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")
        sys.argv[1:] = without_traceback_option(sys.argv[1:])
        command = "fairseq-" + name.replace("_", "-")
        results: list[Any] = []  # they are no status
        if status := run_command(command, lambda: results.append(original(*args, **kwargs))):
            sys.exit(status)
        return results[0]


@patch("fairseq.dataclass.configs")
def helps_of_options(module: Any) -> None:
    """The help of some options says the opposite of what they do, or what another option does.

    With ``--skip-remainder-batch`` the last batches of an epoch are left out, not taken in.
    """
    for (part, name), words in HELPS.items():
        field = getattr(module, part).__dataclass_fields__[name]
        field.metadata = {**field.metadata, "help": words}


@patch("fairseq.dataclass.utils", function="gen_parser_from_dataclass")
def kinds_of_values(
    original: Any, parser: Any, dataclass_instance: Any, delete_default: bool = False, with_prefix: str | None = None
) -> None:
    """``--left-pad-source``, "pad the source on the left", pads on the right, and values of some options are any text.

    An option that is true unless it is given a value takes none in fairseq, and makes it false. Those whose default is
    that of another option, such as ``--max-tokens-valid``, take texts, which end in errors without the option's name.
    """
    for field in dataclasses.fields(dataclass_instance):
        kind = _kind(field)
        default = dataclass_instance._get_default(field.name)
        is_other = isinstance(default, str) and default.startswith("${") and "help" in field.metadata
        if kind is None or not (is_other or default is True):
            continue
        name = field.name.replace("_", "-")
        flags = [f"{with_prefix}-{name}" if with_prefix else f"--{name}"]
        if "argparse_alias" in field.metadata:
            flags.append(field.metadata["argparse_alias"])
        words: dict[str, Any] = {"help": field.metadata.get("help"), "type": kind}
        if kind is truth:
            words |= {"nargs": "?", "const": True, "metavar": "BOOL", "type": truth}
        if not delete_default:
            words["default"] = None if is_other else default
        with contextlib.suppress(argparse.ArgumentError):  # it is there already, as in fairseq
            parser.add_argument(*flags, **words)
    original(parser, dataclass_instance, delete_default, with_prefix)


def _kind(field: Any) -> Callable[[str], Any] | None:
    """Return what makes a value of a text, for a field of a dataclass that is a whole number or a truth value."""
    from fairseq.dataclass.utils import interpret_dc_type

    kinds: dict[Any, Callable[[str], Any]] = {bool: truth, int: int}
    return kinds.get(interpret_dc_type(field.type))


def truth(text: str) -> bool:
    """Return what a text such as ``True`` says.

    Raises:
        ValueError: it says neither.
    """
    values = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in values:
        raise ValueError(f"{text!r} is neither True nor False")
    return values[text.lower()]


@patch("fairseq.registry", function="setup_registry")
def parts_without_options(original: Any, registry_name: str, *args: Any, **kwargs: Any) -> Any:
    """``--bpe characters`` and ``--bpe bytes`` are offered and end in ``Could not find 'bpe/characters'``.

    A tokenizer, a kind of subwords or a score has to have a class of options, if an empty one.
    """
    made = original(registry_name, *args, **kwargs)
    if made is None or registry_name not in ("--tokenizer", "--bpe", "--scoring"):
        return made
    from fairseq.dataclass import FairseqDataclass

    build, register, *registries = made

    def register_with_options(name: str, dataclass: Any = None) -> Any:
        return register(name, dataclass=dataclass or FairseqDataclass)

    return (build, register_with_options, *registries)
