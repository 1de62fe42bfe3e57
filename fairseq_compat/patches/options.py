"""Patches of options, warnings and logs, and of how fairseq's commands end."""

from __future__ import annotations

import ast
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
    "num_workers": (0, 1024),
    "data_buffer_size": (0, math.inf),
    **dict.fromkeys(("encoder_layers", "decoder_layers"), (0, 10_000)),
    **dict.fromkeys(("beam", "nbest"), (1, 10_000)),
    "lr": (0, math.inf),
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
def values_of_options(original: Any, *args: Any, **kwargs: Any) -> Any:
    """``--bf16`` stops (``'NoneType' object has no attribute 'xla_device'``); ``--max-tokens -1`` fills the memory.

    fairseq's option parser takes every ``--bf16`` run for a TPU run. Without PyTorch/XLA there is no TPU. And some
    numbers, such as ``--num-workers 99999``, fill the memory or never end. Without ``--arch`` it ends with no word.
    """
    try:
        result = original(*args, **kwargs)
    except RuntimeError as error:
        if error.args:
            raise
        raise UserError("--arch is missing; give an architecture, such as transformer") from error
    given = result[0] if isinstance(result, tuple) else result
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
