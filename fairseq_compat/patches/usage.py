"""Patches of what fairseq says where its options contradict one another."""

from __future__ import annotations

from typing import Any

from fairseq_compat.errors import UserError
from fairseq_compat.patching import patch, replaces

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


@patch("fairseq.dataclass.utils", function="convert_namespace_to_omegaconf")
def values_of_configurations(original: Any, args: Any) -> Any:
    """An option that is missing, as ``--lr-scheduler polynomial_decay`` needs one, ends in hydra's words."""
    from hydra.errors import ConfigCompositionException

    try:
        return original(args)
    except ConfigCompositionException as error:
        option = str(getattr(error.__cause__, "full_key", None) or "").rpartition(".")[2].replace("_", "-")
        if not option:
            raise
        reason = str(error.__cause__).splitlines()[0]
        raise UserError(f"--{option} is missing, or has a value of another kind ({reason})") from error


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
