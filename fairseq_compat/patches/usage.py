"""Patches of what fairseq says where its options contradict one another, or do nothing."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from omegaconf import OmegaConf

from fairseq_compat.errors import UserError, chain
from fairseq_compat.patching import as_configuration, patch, replaces
from fairseq_compat.unread_options import require_effects

#: fairseq's commands that check options with assertions.
_COMMANDS = ("eval_lm", "generate", "interactive", "preprocess", "score", "train", "validate")


@patch(*(f"fairseq_cli.{command}" for command in _COMMANDS))
def checks_of_options(module: Any) -> None:
    """A missing ``--max-tokens``, or ``--nbest`` with sampling, ends as if fairseq had failed, with a traceback.

    fairseq's commands check their options with assertions. Here one that says something is a mistake of the user's,
    if it is in the module of a command itself.
    """

    def said(original: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except AssertionError as error:
            if error.args and _raised_in(error) is vars(module):
                raise UserError(str(error)) from error
            raise

    for name in ("main", "cli_main"):
        if hasattr(module, name):
            replaces(module, name)(said)


def _raised_in(error: BaseException) -> Any:
    """Return the global names of the code that an error comes from."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return None if traceback is None else traceback.tb_frame.f_globals


@patch(*(f"fairseq_cli.{command}" for command in _COMMANDS))
def options_without_effect(module: Any) -> None:
    """Options that a command takes and does not read, such as ``fairseq-preprocess --bpe``, do nothing without a word.

    So do some without another one, such as ``--ema-decay`` without ``--store-ema``, and some in every command. Here
    they are refused (:mod:`fairseq_compat.unread_options`).
    """
    command = module.__name__.rpartition(".")[2].replace("_", "-")

    @replaces(module, "cli_main")
    def cli_main(original: Any, *args: Any, **kwargs: Any) -> Any:
        require_effects(command, sys.argv[1:])
        return original(*args, **kwargs)


@patch("fairseq.dataclass.utils", function="convert_namespace_to_omegaconf")
def values_of_parts(original: Any, args: Any) -> Any:
    """``--tokenizer moses`` without languages ends in a line of all options and a traceback, as other values do."""
    logging.getLogger("fairseq.dataclass.utils").setLevel(logging.CRITICAL)  # it logs all options
    with _configuration_errors():
        return original(args)


@patch("fairseq_cli.hydra_train", function="cli_main")
def keys_of_configurations(original: Any, *args: Any, **kwargs: Any) -> Any:
    """A key or a value that fairseq does not know, in a file or on the command line of hydra, ends in a traceback."""
    with _configuration_errors():
        return original(*args, **kwargs)


@contextmanager
def _configuration_errors() -> Iterator[None]:
    """Turn errors of hydra and its files into mistakes of the user that name a key of the configuration."""
    import yaml
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        keys = [getattr(part, "full_key", None) for part in chain(error)]
        key = next(filter(None, keys), None)
        option = f" at {key}, option --{key.rpartition('.')[2].replace('_', '-')}" if key else ""
        # hydra adds pages of what it looked at.
        reasons = [" ".join(str(part).split("full_key")[0].split())[:300] for part in chain(error)]
        raise UserError(f"the configuration cannot be used{option}: {'; '.join(reasons[:2])}") from error


@patch("fairseq_cli.train", function="main")
def parts_of_configurations(original: Any, cfg: Any, *args: Any, **kwargs: Any) -> Any:
    """A model, a task or another part that a file of hydra leaves out, or whose name is unknown, is a traceback."""
    from fairseq import utils

    cfg = as_configuration(cfg)
    utils.import_user_module(cfg.common)  # which may have it
    for part in ("task", "model", "criterion", "optimizer", "lr_scheduler"):
        _require_part(cfg, part)
    return original(cfg, *args, **kwargs)


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
        given = f"{part}._name {name} is unknown" if name else f"{option} or {part}._name is missing"
        raise UserError(f"{given}; give one of {', '.join(sorted(names))}")
    if part == "task" and getattr(options, "data", "") is None:
        raise UserError("task.data is missing; give the folder of the data")


@patch("fairseq.models", function="build_model")
def options_of_models(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Options of a model that contradict one another, or the data, as ``--share-all-embeddings`` may, end so, too."""
    try:
        return original(*args, **kwargs)
    except (AssertionError, ValueError) as error:
        if error.args and not isinstance(error, UserError):
            raise UserError(str(error)) from error
        raise


@patch("fairseq.tasks.fairseq_task", function="FairseqTask.build_generator")
def options_of_search(original: Any, self: Any, models: Any, args: Any, *more: Any, **kwargs: Any) -> Any:
    """Options of generation that contradict one another end with a traceback; beam groups, in the first search only."""
    beam, groups = getattr(args, "beam", 1), getattr(args, "diverse_beam_groups", -1)
    if groups > 0 and beam % groups:
        raise UserError(
            f"--diverse-beam-groups {groups} does not divide --beam {beam}; give a multiple of it as --beam"
        )
    try:
        return original(self, models, args, *more, **kwargs)
    except (AssertionError, ValueError) as error:
        if error.args and not isinstance(error, UserError):
            raise UserError(str(error)) from error
        raise
