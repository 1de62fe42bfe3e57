"""Patches for command-line options, warnings, logging and exit status.

Each docstring opens with fairseq's fault, which ``doctor`` lists; the paragraph after it says what the patch does.
"""

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
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fairseq_compat import UserError, import_hook
from fairseq_compat.commands.run import open_closed_streams, run_command, without_traceback_option
from fairseq_compat.literals import evaluate
from fairseq_compat.patching import Overlay, patch, replaces
from fairseq_compat.ranges import require_ranges
from fairseq_compat.unread_options import require_effects

#: Warnings to silence: a regular expression for the start of the message, and the category.
IGNORED_WARNINGS: tuple[tuple[str, type[Warning]], ...] = (
    # DataLoader is asked to pin memory whether or not there is a device to pin it for.
    (r"'pin_memory' argument is set as true but", UserWarning),
    # fairseq.trainer and fairseq.tasks use the older spelling of torch.amp.autocast("cuda").
    (r"`torch\.cuda\.amp\.autocast\(.*\)` is deprecated", FutureWarning),
    # The stock attention gives a float causal mask together with a boolean padding mask.
    (r"Support for mismatched (src_)?key_padding_mask and (attn_)?mask is deprecated", UserWarning),
    # --ddp-backend pytorch_ddp is made with an argument that PyTorch 2.13 has renamed.
    (r"`broadcast_buffers` is deprecated", FutureWarning),
    # fairseq compiles its functions with torch.jit.script.
    (r"`torch\.jit\.script` is deprecated", FutureWarning),
    # fairseq uses hydra 1.0's compose API, which hydra 1.3 still supports.
    (r"\s*(hydra\.experimental\.|The version_base parameter|The strict flag in the compose API)", UserWarning),
    (r"\s*(In '.*': Usage of deprecated keyword|'.*' is validated against ConfigStore schema)", UserWarning),
)

#: (config class, option) -> corrected help text, where fairseq's own is wrong.
HELP_TEXTS = {
    ("CommonConfig", "bf16"): "use bfloat16, on any device",
    ("DistributedTrainingConfig", "find_unused_parameters"): (
        "look for parameters that a batch does not use, such as those of skipped layers (not with --ddp-backend "
        "legacy_ddp)"
    ),
    ("DatasetConfig", "combine_valid_subsets"): "validate on valid, valid1, valid2 and so on as one set",
    ("OptimizationConfig", "skip_remainder_batch"): (
        "drop the last batches of an epoch if they do not fill an update (default: keep them)"
    ),
    ("EMAConfig", "store_ema"): "keep an exponential moving average of the model in each checkpoint",
}

#: How the architectures of the plugin beside this package begin, which fairseq does not know without ``--user-dir``.
PLUGIN_ARCHITECTURES = ("depthwise_lstm_transformer", "linearized_transformer", "mute_transformer", "sdt_transformer")

#: Accepted spellings of a boolean.
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

#: Modules of fairseq's commands that take --options; hydra_train takes key=value, and is left out.
_COMMANDS = tuple(
    f"fairseq_cli.{command}"
    for command in ("eval_lm", "generate", "interactive", "preprocess", "score", "train", "validate")
)


@patch("fairseq.tasks.text_to_speech")
def import_speech_task_silently(module: Any) -> Iterator[None]:
    """Where tensorboardX is not installed, every command asks for it (``Please install tensorboardX``).

    Only this task would use it. ``--tensorboard-logdir`` without it is an error (:mod:`fairseq_compat.unread_options`).
    """
    logger = logging.getLogger(module.__name__)
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = False


@patch("fairseq.dataclass.configs", "fairseq.models.transformer.transformer_config")
def allow_dataclass_defaults(module: Any) -> Iterator[None]:
    """Python 3.11 and newer refuse the configuration classes' defaults (``mutable default ... use default_factory``).

    ``dataclasses`` considers a default mutable if its class has no ``__hash__``, and a dataclass with ``__eq__`` has
    none. Here, while these modules execute, theirs keep ``object.__hash__``. ``default_factory`` would not do:
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
        # Modules first imported meanwhile may have bound our wrapper (from dataclasses import dataclass).
        for imported in list(sys.modules.values()):
            if imported is not module and getattr(imported, "__dict__", {}).get("dataclass") is patched:
                imported.dataclass = original  # type: ignore[attr-defined]  # checked on the line above
        dataclasses.dataclass = original


@patch(mentioned="eval")  # every module of fairseq whose source contains "eval", and so literal_eval as well
def evaluate_literals_only(module: Any) -> Iterator[None]:
    """fairseq evaluates option values as Python, even those in a checkpoint, and so runs code from a file.

    Here every module of fairseq that mentions ``eval`` gets :func:`fairseq_compat.literals.evaluate` under that name
    and in place of ``ast.literal_eval``. Documented values, such as ``[(512, 3)] * 15``, are read as before.
    """
    module.eval = evaluate
    yield
    if getattr(module, "ast", None) is ast:
        module.ast = Overlay(ast, literal_eval=evaluate)
    if getattr(module, "literal_eval", None) is ast.literal_eval:
        module.literal_eval = evaluate


@patch("fairseq.utils", before="import_user_module")
def patch_examples_as_user_dir(args: Any) -> None:
    """A folder of fairseq's examples given as ``--user-dir`` is imported as a top-level package, which no patch covers.

    Its models, such as data2vec's, evaluate the options in a checkpoint. Here its modules get the patches for what they
    mention, like those of fairseq. The user's own folders are left alone.
    """
    import fairseq

    fairseq_folder = os.path.dirname(os.path.realpath(fairseq.__file__))
    user_dir = getattr(args, "user_dir", None)
    if not user_dir:
        return
    candidates = (os.path.abspath(user_dir), os.path.join(fairseq_folder, user_dir))  # fairseq's search order
    for folder in candidates:
        if os.path.realpath(folder).startswith(os.path.join(fairseq_folder, "examples", "")):
            import_hook.PACKAGES.add(os.path.basename(folder))


@patch("fairseq")
def silence_warnings(module: Any) -> Iterator[None]:
    """Every log starts with warnings about calls inside fairseq, and a wrong option logs all options of a command.

    Here exactly ``IGNORED_WARNINGS`` are silenced, and the list of options is not logged: the error names the option.
    """
    for message, category in IGNORED_WARNINGS:
        warnings.filterwarnings("ignore", message=message, category=category)
    logging.getLogger("fairseq.dataclass.utils").setLevel(logging.CRITICAL)
    yield


@patch("fairseq.logging.progress_bar", function="progress_bar")
def open_log_file_once(original: Any, *args: Any, log_file: str | None = None, **kwargs: Any) -> Any:
    """With ``--log-file`` each epoch writes its lines once more than the epoch before.

    fairseq adds a handler for the file with every progress bar. Here the file is opened once.
    """
    handlers = logging.getLogger(original.__module__).handlers
    open_files = {handler.baseFilename for handler in handlers if isinstance(handler, logging.FileHandler)}
    if log_file is not None and os.path.abspath(log_file) in open_files:
        log_file = None  # the handler of an earlier epoch is still there
    return original(*args, log_file=log_file, **kwargs)


@patch("fairseq.options", function="parse_args_and_arch")
def fix_parsed_options(original: Any, parser: Any, input_args: Any = None, *args: Any, **kwargs: Any) -> Any:
    """``--bf16`` stops (``'NoneType' object has no attribute 'xla_device'``); ``--max-tokens -1`` fills the memory.

    fairseq takes every ``--bf16`` run for a TPU run, forgets ``--no-seed-provided``, and ends without a message if
    ``--arch`` is missing. Here only PyTorch/XLA has TPUs, ``--no-seed-provided`` is set, a missing ``--arch`` is named,
    and numbers that fill the memory or never end, such as ``--num-workers 99999``, are refused.
    """
    _require_known_architecture(sys.argv[1:] if input_args is None else input_args)
    try:
        result = original(parser, input_args, *args, **kwargs)
    except RuntimeError as error:
        # fairseq raises a bare RuntimeError() exactly when --arch is missing.
        if error.args:
            raise
        raise UserError("--arch is missing; fairseq-train --help lists the architectures") from error
    # With parse_known=True the result is (options, unknown arguments).
    options = result[0] if isinstance(result, tuple) else result
    if "--no-seed-provided" in (sys.argv[1:] if input_args is None else input_args):
        options.no_seed_provided = True
    if importlib.util.find_spec("torch_xla") is None:
        options.tpu = False
    require_ranges(vars(options))
    _require_device_to_profile(options)
    return result


def _require_device_to_profile(options: argparse.Namespace) -> None:
    """Raise UserError if --profile, which marks what a GPU computes, is given without one."""
    import torch

    if getattr(options, "profile", False) and (options.cpu or not torch.cuda.is_available()):
        raise UserError("--profile needs a GPU, and there is none; leave it out")


def _require_known_architecture(words: Sequence[str]) -> None:
    """Raise UserError if --arch names a model of the plugin that is not loaded; argparse would list all others."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--arch", "-a", nargs="?")
    arch = parser.parse_known_args(words)[0].arch or ""
    if arch.startswith(PLUGIN_ARCHITECTURES) and arch not in ARCH_MODEL_REGISTRY:
        raise UserError(
            f"--arch {arch} is not an architecture of fairseq; `fairseq-depthwise train` knows those of this plugin, "
            "and lists them with --help"
        )


@patch("fairseq.options", function="get_validation_parser")
def set_default_validation_task(original: Any, default_task: str | None = None) -> Any:
    """``fairseq-validate`` without ``--task`` stops with ``KeyError: None``.

    Here its default is ``translation``, as in other commands.
    """
    return original(default_task or "translation")


@patch(*_COMMANDS)
def refuse_options_without_effect(module: Any) -> None:
    """Options that a command does not read, such as ``fairseq-preprocess --bpe``, are accepted and do nothing.

    The same goes for options that need another one (``--ema-decay`` without ``--store-ema``), and for some that no
    command reads. Here all of them are refused (:mod:`fairseq_compat.unread_options`).
    """
    command = module.__name__.rpartition(".")[2].replace("_", "-")

    @replaces(module, "cli_main")
    def cli_main(original: Any, *args: Any, **kwargs: Any) -> Any:
        require_effects(command, sys.argv[1:])
        return original(*args, **kwargs)


@patch(*_COMMANDS, "fairseq_cli.hydra_train")
def report_errors_in_one_sentence(module: Any) -> Iterator[None]:
    """Every error prints a page of traceback, even a missing ``--max-tokens`` or a key that hydra does not know.

    Here fairseq's commands end with one sentence and status 1 (:mod:`fairseq_compat.commands.run`). The traceback of an
    unexpected error goes to a file; ``--traceback`` prints it.
    """
    open_closed_streams()  # before the module sets up logging
    yield
    name = module.__name__.rpartition(".")[2]

    @replaces(module, "cli_main")
    def cli_main(original: Any, *args: Any, **kwargs: Any) -> Any:
        # By default hydra prints an abridged traceback and exits; with this it lets the exception through.
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")
        sys.argv[1:] = without_traceback_option(sys.argv[1:])
        command = "fairseq-" + name.replace("_", "-")
        results: list[Any] = []

        # run_command takes a return value for an exit status, so the command's result is stored instead.
        def run_original() -> None:
            results.append(original(*args, **kwargs))

        if status := run_command(command, run_original):
            sys.exit(status)
        return results[0]


@patch("fairseq.dataclass.configs")
def correct_help_texts(module: Any) -> None:
    """The help of some options says the opposite of what they do, or what another option does.

    For example, ``--skip-remainder-batch`` drops the last batches of an epoch; fairseq's help says that it includes
    them. Here these options get ``HELP_TEXTS``.
    """
    for (config_class, option), help_text in HELP_TEXTS.items():
        field = getattr(module, config_class).__dataclass_fields__[option]
        field.metadata = {**field.metadata, "help": help_text}


@patch("fairseq.dataclass.utils", function="gen_parser_from_dataclass")
def parse_values_by_type(
    original: Any, parser: Any, dataclass_instance: Any, delete_default: bool = False, with_prefix: str | None = None
) -> None:
    """``--left-pad-source``, "pad the source on the left", pads on the right, and some options take any text.

    In fairseq an option that is true by default takes no value, and giving it makes it false. Options whose default
    refers to another option, such as ``--max-tokens-valid``, accept any text and fail later with an error that does not
    name them. Here the former take an optional boolean, and the latter an integer or a boolean.
    """
    for field in dataclasses.fields(dataclass_instance):
        convert = _find_converter(field)
        default = dataclass_instance._get_default(field.name)
        # An OmegaConf interpolation: the default is another option's value.
        is_interpolation = isinstance(default, str) and default.startswith("${") and "help" in field.metadata
        if convert is None or not (is_interpolation or default is True):
            continue

        name = field.name.replace("_", "-")
        flags = [f"{with_prefix}-{name}" if with_prefix else f"--{name}"]
        if "argparse_alias" in field.metadata:
            flags.append(field.metadata["argparse_alias"])
        settings: dict[str, Any] = {"help": field.metadata.get("help"), "type": convert}
        if convert is parse_bool:
            settings |= {"nargs": "?", "const": True, "metavar": "BOOL"}
        if not delete_default:
            settings["default"] = None if is_interpolation else default
        with contextlib.suppress(argparse.ArgumentError):  # already defined: fairseq ignores that, too
            parser.add_argument(*flags, **settings)

    # A config class may list removed options in "retired": old command lines may have them, so accept and ignore them.
    for name in getattr(dataclass_instance, "retired", ()):
        if not hasattr(dataclass_instance, name):
            with contextlib.suppress(argparse.ArgumentError):
                parser.add_argument(f"--{name.replace('_', '-')}", help=argparse.SUPPRESS, default=argparse.SUPPRESS)

    # fairseq adds the remaining options, and skips those added above.
    original(parser, dataclass_instance, delete_default, with_prefix)


@patch("fairseq.dataclass.utils", function="eval_str_list")
def refuse_fractions_of_whole_numbers(original: Any, x: Any, x_type: type = float) -> Any:
    """``--update-freq 2.5`` is taken as 2, like every other list of whole numbers.

    Here it is refused.
    """
    values = original(x, x_type)
    if x_type is int and values != original(x, float):
        raise argparse.ArgumentTypeError(f"{x} is out of range; give whole numbers")
    return values


def _find_converter(field: Any) -> Callable[[str], Any] | None:
    """Return the converter from a string for an integer or boolean field of a dataclass; None for other types."""
    from fairseq.dataclass.utils import interpret_dc_type

    converters: dict[Any, Callable[[str], Any]] = {bool: parse_bool, int: int}
    return converters.get(interpret_dc_type(field.type))


def parse_bool(text: str) -> bool:
    """Return the boolean that a string such as ``True`` spells.

    Raises:
        argparse.ArgumentTypeError: it spells none; argparse prints the message.
    """
    if text.lower() not in _BOOLEANS:
        raise argparse.ArgumentTypeError(
            f"{text!r}, which follows it, is neither True nor False; write {text} elsewhere, or True before it"
        )
    return _BOOLEANS[text.lower()]


@patch("fairseq.registry", function="setup_registry")
def register_empty_options(original: Any, registry_name: str, *args: Any, **kwargs: Any) -> Any:
    """``--bpe characters`` and ``--bpe bytes`` are offered and end in ``Could not find 'bpe/characters'``.

    fairseq finds choices of ``--tokenizer``, ``--bpe`` and ``--scoring`` only if they are registered with a config
    dataclass. Here those without options are registered with an empty one.
    """
    registry = original(registry_name, *args, **kwargs)
    if registry is None or registry_name not in ("--tokenizer", "--bpe", "--scoring"):
        return registry
    from fairseq.dataclass import FairseqDataclass

    build, register, *registries = registry

    def register_with_options(name: str, dataclass: Any = None) -> Any:
        return register(name, dataclass=dataclass or FairseqDataclass)

    return (build, register_with_options, *registries)
