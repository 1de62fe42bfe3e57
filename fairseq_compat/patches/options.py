"""Patches of options, warnings and logs, and of how fairseq's commands end."""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import importlib.util
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from fairseq_compat import UserError, import_hook
from fairseq_compat.commands.run import open_closed_streams, run_command, without_traceback_option
from fairseq_compat.literals import evaluate
from fairseq_compat.patching import Overlay, patch, replaces
from fairseq_compat.ranges import require_ranges
from fairseq_compat.unread_options import require_effects

#: Beginning of a warning (a regular expression) and its category.
KNOWN_WARNINGS: tuple[tuple[str, type[Warning]], ...] = (
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

#: What a truth value may be given as.
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

#: fairseq's commands whose words are options; those of hydra_train are keys.
_COMMANDS = tuple(
    f"fairseq_cli.{command}"
    for command in ("eval_lm", "generate", "interactive", "preprocess", "score", "train", "validate")
)


@patch("fairseq.dataclass.configs", "fairseq.models.transformer.transformer_config")
def allow_dataclass_defaults(module: Any) -> Iterator[None]:
    """Python 3.11 and newer refuse the configuration classes' defaults (``mutable default ... use default_factory``).

    ``dataclasses`` considers a default mutable if its class has no ``__hash__``, and a dataclass with ``__eq__`` has
    none. While these modules execute, their own dataclasses keep ``object.__hash__``. ``default_factory`` would not do:
    ``fairseq.dataclass.initialize.hydra_init`` reads each field's ``.default``.
    """
    original = dataclasses.dataclass

    def dataclass(cls: type | None = None, /, **options: Any) -> Any:
        if cls is None:
            return lambda decorated: dataclass(decorated, **options)
        decorated_class: Any = original(cls, **options)
        if decorated_class.__module__ == module.__name__ and decorated_class.__hash__ is None:
            decorated_class.__hash__ = object.__hash__
        return decorated_class

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
def evaluate_literals_only(module: Any) -> Iterator[None]:
    """fairseq evaluates option values as Python, also those in a checkpoint, and so runs code from a file.

    Every module of fairseq that mentions ``eval`` gets :func:`fairseq_compat.literals.evaluate` under that name and in
    place of ``ast.literal_eval``. Documented values, such as ``[(512, 3)] * 15``, are read as before.
    """
    module.eval = evaluate
    yield
    if getattr(module, "ast", None) is ast:
        module.ast = Overlay(ast, literal_eval=evaluate)
    if getattr(module, "literal_eval", None) is ast.literal_eval:
        module.literal_eval = evaluate


@patch("fairseq.utils", before="import_user_module")
def patch_examples_as_user_dir(args: Any) -> None:
    """A folder of fairseq's own examples, given with ``--user-dir``, is imported under a name that no patch is for.

    Its models, such as data2vec's, evaluate the options in a checkpoint. Here its modules get the patches for what they
    mention, like those of fairseq. A folder of the user's own is left alone.
    """
    import fairseq

    fairseq_folder = os.path.dirname(os.path.realpath(fairseq.__file__))
    user_dir = getattr(args, "user_dir", None)
    # fairseq looks for it in the current folder, then in its own.
    for folder in (os.path.abspath(user_dir), os.path.join(fairseq_folder, user_dir)) if user_dir else ():
        if os.path.realpath(folder).startswith(os.path.join(fairseq_folder, "examples", "")):
            import_hook.PACKAGES.add(os.path.basename(folder))


@patch("fairseq")
def silence_warnings(module: Any) -> Iterator[None]:
    """Every log starts with warnings about calls inside fairseq, and a wrong option logs all options of a command.

    Exactly the warnings of ``KNOWN_WARNINGS`` are silenced. The error itself names the option.
    """
    for message, category in KNOWN_WARNINGS:
        warnings.filterwarnings("ignore", message=message, category=category)
    logging.getLogger("fairseq.dataclass.utils").setLevel(logging.CRITICAL)
    yield


@patch("fairseq.logging.progress_bar", function="progress_bar")
def open_log_file_once(original: Any, *args: Any, log_file: str | None = None, **kwargs: Any) -> Any:
    """With ``--log-file`` each epoch writes its lines once more than the epoch before.

    fairseq opens the file for every progress bar and adds it to its log again. Here it is opened once.
    """
    # The log's handlers are kept from epoch to epoch.
    opened = {getattr(handler, "baseFilename", None) for handler in logging.getLogger(original.__module__).handlers}
    if log_file is not None and os.path.abspath(log_file) in opened:
        log_file = None
    return original(*args, log_file=log_file, **kwargs)


@patch("fairseq.options", function="parse_args_and_arch")
def fix_parsed_options(original: Any, parser: Any, input_args: Any = None, *args: Any, **kwargs: Any) -> Any:
    """``--bf16`` stops (``'NoneType' object has no attribute 'xla_device'``); ``--max-tokens -1`` fills the memory.

    fairseq takes every ``--bf16`` run for a TPU run. Without PyTorch/XLA there is no TPU. Numbers such as
    ``--num-workers 99999`` fill the memory or never end. ``--no-seed-provided`` is forgotten, and a missing ``--arch``
    is a traceback without a message.
    """
    try:
        result = original(parser, input_args, *args, **kwargs)
    except RuntimeError as error:
        if error.args:
            raise
        raise UserError("--arch is missing; fairseq-train --help lists the architectures") from error
    # With parse_known=True there are also the words that are no options.
    options = result[0] if isinstance(result, tuple) else result
    if "--no-seed-provided" in (sys.argv[1:] if input_args is None else input_args):
        options.no_seed_provided = True
    if importlib.util.find_spec("torch_xla") is None:
        options.tpu = False
    require_ranges(vars(options))
    return result


@patch("fairseq.options", function="get_validation_parser")
def set_default_validation_task(original: Any, default_task: str | None = None) -> Any:
    """``fairseq-validate`` without ``--task`` stops with ``KeyError: None``; other commands take ``translation``."""
    return original(default_task or "translation")


@patch(*_COMMANDS)
def refuse_options_without_effect(module: Any) -> None:
    """Options that a command does not read, such as ``fairseq-preprocess --bpe``, are accepted and do nothing.

    So do some without another one, such as ``--ema-decay`` without ``--store-ema``, and some in every command. Here
    they are refused (:mod:`fairseq_compat.unread_options`).
    """
    command = module.__name__.rpartition(".")[2].replace("_", "-")

    @replaces(module, "cli_main")
    def cli_main(original: Any, *args: Any, **kwargs: Any) -> Any:
        require_effects(command, sys.argv[1:])
        return original(*args, **kwargs)


@patch(*_COMMANDS, "fairseq_cli.hydra_train")
def report_errors_in_one_sentence(module: Any) -> Iterator[None]:
    """Every error ends in a page of traceback, also a missing ``--max-tokens`` or a key that hydra does not know.

    Here fairseq's commands end as ours do (:mod:`fairseq_compat.commands.run`): one sentence, and status 1. The
    traceback of an unexpected error is kept in a file; ``--traceback`` prints it.
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
        results: list[Any] = []  # what the command returns is no status
        if status := run_command(command, lambda: results.append(original(*args, **kwargs))):
            sys.exit(status)
        return results[0]


@patch("fairseq.dataclass.configs")
def correct_help_texts(module: Any) -> None:
    """The help of some options says the opposite of what they do, or what another option does.

    With ``--skip-remainder-batch`` the last batches of an epoch are left out, not included.
    """
    for (part, name), words in HELPS.items():
        field = getattr(module, part).__dataclass_fields__[name]
        field.metadata = {**field.metadata, "help": words}


@patch("fairseq.dataclass.utils", function="gen_parser_from_dataclass")
def parse_values_by_type(
    original: Any, parser: Any, dataclass_instance: Any, delete_default: bool = False, with_prefix: str | None = None
) -> None:
    """``--left-pad-source``, "pad the source on the left", pads on the right, and some options take any text.

    An option that is true by default takes no value in fairseq, and giving it makes it false. Those whose default is
    another option's, such as ``--max-tokens-valid``, take texts, which end in errors without the option's name.
    """
    for field in dataclasses.fields(dataclass_instance):
        kind = _kind(field)
        default = dataclass_instance._get_default(field.name)
        is_other_option = isinstance(default, str) and default.startswith("${") and "help" in field.metadata
        if kind is None or not (is_other_option or default is True):
            continue

        name = field.name.replace("_", "-")
        flags = [f"{with_prefix}-{name}" if with_prefix else f"--{name}"]
        if "argparse_alias" in field.metadata:
            flags.append(field.metadata["argparse_alias"])
        settings: dict[str, Any] = {"help": field.metadata.get("help"), "type": kind}
        if kind is truth:
            settings |= {"nargs": "?", "const": True, "metavar": "BOOL"}
        if not delete_default:
            settings["default"] = None if is_other_option else default
        with contextlib.suppress(argparse.ArgumentError):  # it is there already, as in fairseq
            parser.add_argument(*flags, **settings)
    for name in getattr(dataclass_instance, "retired", ()):  # command lines of earlier versions may have it
        if not hasattr(dataclass_instance, name):
            with contextlib.suppress(argparse.ArgumentError):
                parser.add_argument(f"--{name.replace('_', '-')}", help=argparse.SUPPRESS, default=argparse.SUPPRESS)
    original(parser, dataclass_instance, delete_default, with_prefix)


def _kind(field: Any) -> Callable[[str], Any] | None:
    """Return what converts a text for a dataclass field that is an integer or a truth value."""
    from fairseq.dataclass.utils import interpret_dc_type

    kinds: dict[Any, Callable[[str], Any]] = {bool: truth, int: int}
    return kinds.get(interpret_dc_type(field.type))


def truth(text: str) -> bool:
    """Return the truth value of a text such as ``True``.

    Raises:
        ValueError: it has none.
    """
    if text.lower() not in _TRUTH:
        raise ValueError(f"{text!r} is neither True nor False")
    return _TRUTH[text.lower()]


@patch("fairseq.registry", function="setup_registry")
def register_empty_options(original: Any, registry_name: str, *args: Any, **kwargs: Any) -> Any:
    """``--bpe characters`` and ``--bpe bytes`` are offered and end in ``Could not find 'bpe/characters'``.

    A tokenizer, a kind of subwords or a score needs a class of options, even an empty one.
    """
    registry = original(registry_name, *args, **kwargs)
    if registry is None or registry_name not in ("--tokenizer", "--bpe", "--scoring"):
        return registry
    from fairseq.dataclass import FairseqDataclass

    build, register, *registries = registry

    def register_with_options(name: str, dataclass: Any = None) -> Any:
        return register(name, dataclass=dataclass or FairseqDataclass)

    return (build, register_with_options, *registries)
