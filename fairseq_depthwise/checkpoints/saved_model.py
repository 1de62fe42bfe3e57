"""Checkpoints of any family to models: what is in the file, the task that reads its data, and the model."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from fairseq import checkpoint_utils, tasks
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY, FairseqEncoderDecoderModel
from fairseq.tasks import FairseqTask
from omegaconf import DictConfig, open_dict
from omegaconf.errors import OmegaConfBaseException
from torch import Tensor

from fairseq_compat import UserError, checkpoints
from fairseq_compat.finite import require_finite

#: What a word embedding is called: in our models, and in fairseq's own.
_TABLES = ("embedding.tokens.weight", "embed_tokens.weight")


@dataclass(frozen=True)
class SavedModel:
    """What a checkpoint has of a model, without the state of its training.

    Attributes:
        path: the file.
        architecture: as given in training, with ``--arch``.
        cfg: all options of the training.
        values: the parameters, by name.
    """

    path: str
    architecture: str
    cfg: DictConfig
    values: Mapping[str, Tensor]

    def task(self, data: str, **languages: str | None) -> FairseqTask:
        """The task of the training, for another folder of data.

        Args:
            data: a folder that ``fairseq-preprocess`` made.
            languages: ``source_lang`` and ``target_lang`` in place of the training's.

        Raises:
            UserError: the task is not known, or the folder holds no data.
        """
        # Tasks without a dataclass get their options as a namespace, and change it.
        options = copy.deepcopy(self.cfg.task)
        with open_dict(options) if isinstance(options, DictConfig) else nullcontext():
            options.data = data
            for side, language in languages.items():
                setattr(options, side, language)
            if getattr(options, "eval_bleu", False):
                options.eval_bleu = False  # would build a beam search, and load a tokenizer
        if (name := getattr(options, "_name", None)) not in tasks.TASK_REGISTRY:
            raise UserError(f"{self.path} was trained with --task {name}, which is not known here")
        try:
            with self._recorded_options():
                return tasks.setup_task(options)
        except Exception as error:
            if not str(error).startswith("Could not infer language pair"):
                raise
            raise UserError(
                f"--data {data} holds no binarised data; give a folder that fairseq-preprocess made"
            ) from error

    @contextmanager
    def _recorded_options(self) -> Iterator[None]:
        """Within, an option that a class does not have, or of another type, is an error about the file."""
        try:
            yield
        except OmegaConfBaseException as error:
            name, reason = getattr(error, "full_key", None), str(error).splitlines()[0]
            raise UserError(f"{self.path} records the option {name} wrongly: {reason}") from error

    def model(self, task: FairseqTask, data: str) -> FairseqEncoderDecoderModel:
        """The model on the CPU in evaluation mode, in float32.

        Args:
            task: from :meth:`task`, of this checkpoint or of another one of the same data.
            data: the task's folder, for messages.

        Raises:
            UserError: the parameters do not fit the options or the dictionaries, or some are not numbers.
        """
        _require_same_dictionaries(self.values, task, data, self.path)
        options = self.cfg.model
        for name in ("encoder_embed_path", "decoder_embed_path"):
            if getattr(options, name, None):
                setattr(options, name, None)
        with self._recorded_options():
            model = task.build_model(options, from_checkpoint=True)
        try:
            model.load_state_dict(self.values, strict=True, model_cfg=options)
        except RuntimeError as error:
            details = [line.strip() for line in str(error).splitlines()[1:2]]
            raise UserError("; ".join([f"{self.path} does not fit its own options", *details]).rstrip(".")) from error
        require_finite(model.named_parameters(), self.path)
        return model.eval()


def read_model(path: str, *, family: str | None = None) -> SavedModel:
    """Read a checkpoint of any architecture that is registered.

    Args:
        path: the file.
        family: the model must be one of this name, or of its presets.

    Raises:
        UserError: the file is no checkpoint, or of another family.
    """
    architecture = _architecture(path, family)
    try:
        state = checkpoint_utils.load_checkpoint_to_cpu(path)
    except KeyError as error:
        raise UserError(f"{path} cannot be loaded: its record of the training has no {error}") from error
    return SavedModel(path, architecture, state["cfg"], state["model"])


@contextmanager
def fairseq_warnings_only() -> Iterator[None]:
    """Within, fairseq's log says what is wrong and nothing else."""
    logger = logging.getLogger("fairseq")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _architecture(path: str, family: str | None) -> str:
    """The architecture, before anything large is read."""
    options: dict[str, Any] = checkpoints.options_in(checkpoints.load_checkpoint(path, mapped=True))
    architecture = options.get("_name") or options.get("arch")
    if family is not None and ARCH_MODEL_NAME_REGISTRY.get(architecture, architecture) != family:
        raise UserError(f"{path} holds a model of the architecture {architecture}; it must be {family} or a preset")
    if architecture not in ARCH_MODEL_REGISTRY:
        raise UserError(f"{path} holds a model of the architecture {architecture}, which is not known here")
    return str(architecture)


def _require_same_dictionaries(values: Mapping[str, Tensor], task: FairseqTask, data: str, path: str) -> None:
    """A checkpoint has no dictionary, only the size of one."""
    for side, dictionary in (("encoder", task.source_dictionary), ("decoder", task.target_dictionary)):
        for table in _TABLES:
            if (found := values.get(f"{side}.{table}")) is not None and len(found) != len(dictionary):
                language = "source" if side == "encoder" else "target"
                raise UserError(
                    f"--data {data}: the {language} dictionary has {len(dictionary):,} entries, and {path} was trained "
                    f"with {len(found):,}; give data made with the dictionaries of the training"
                )
