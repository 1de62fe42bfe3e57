"""The reader of checkpoints: options, task and model of any registered architecture."""

from __future__ import annotations

import copy
import glob
import logging
import os
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial
from typing import Any

from fairseq import checkpoint_utils, tasks
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY, FairseqEncoderDecoderModel
from fairseq.tasks import FairseqTask
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import Tensor

from fairseq_compat import UserError, checkpoints, provenance
from fairseq_compat.checkpoints import require_finite, require_same_kinds_of_numbers
from fairseq_compat.recorded_files import FILES_OF_TASKS
from fairseq_depthwise import register_with_fairseq
from fairseq_depthwise.checkpoints.exported_weights import exported_task, read_weights
from fairseq_depthwise.checkpoints.recorded_paths import WEIGHTS, moved_file


class Checkpoint:
    """A checkpoint of fairseq: its options, its task and its model.

    The file is checked at once, and its tensors stay in it until they are used. ``named``: what errors call it.
    """

    def __init__(self, path: str, named: str = "") -> None:
        register_with_fairseq()  # a program may have imported no more than what reads checkpoints
        self.path = path
        self.named = named or path
        if not os.path.isfile(path):
            raise UserError(f"{self.named or repr(path)} does not exist; give the path of a checkpoint")
        #: What is in the file, as fairseq wrote it.
        read = read_weights if os.path.basename(path) == WEIGHTS else partial(checkpoints.load_checkpoint, mapped=True)
        self.state = read(path)

    def options(self, part: str = "model") -> dict[str, Any]:
        """Return the recorded options of a part of fairseq: "model", "task", "lr_scheduler" and so on."""
        return checkpoints.options_in(self.state, part)

    @property
    def architecture(self) -> str:
        """As given in training, with ``--arch``; "None" where it is not recorded."""
        options = self.options()
        return str(options.get("_name") or options.get("arch"))

    @property
    def belongs_to(self) -> provenance.Record:
        """What the training recorded of dictionaries, languages and text; empty where it was an older one."""
        return provenance.recorded_in(self.state)

    @property
    def updates(self) -> int:
        """Updates that the model was trained for."""
        return checkpoints.updates_in(self.state)

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        """Name -> value, as in the file."""
        values: Mapping[str, Tensor] = self.state["model"]
        return values

    @cached_property
    def cfg(self) -> DictConfig:
        """All options of the training as fairseq reads them, those of older versions renamed."""
        cfg: DictConfig = self._upgraded["cfg"]
        return cfg

    @cached_property
    def _upgraded(self) -> dict[str, Any]:
        if "exported" in self.state:
            return {**self.state, "cfg": OmegaConf.create(self.state["cfg"], flags={"allow_objects": True})}
        upgraded: dict[str, Any] = checkpoint_utils.load_checkpoint_to_cpu(self.path)
        return upgraded

    def require_family(self, family: str | None = None) -> None:
        """Check that the architecture is registered, and that the model is of a family or one of its presets."""
        architecture = self.architecture
        if family is not None and ARCH_MODEL_NAME_REGISTRY.get(architecture, architecture) != family:
            raise UserError(
                f"{self.path} holds a model of the architecture {architecture}; it must be {family} or a preset"
            )
        if architecture not in ARCH_MODEL_REGISTRY:
            raise UserError(f"{self.path} holds a model of the architecture {architecture}, which is not known here")

    def task(self, data: str, **languages: str | None) -> FairseqTask:
        """Set up the task of the training for another folder of data, and perhaps other languages."""
        if not glob.glob(os.path.join(glob.escape(data.split(os.pathsep)[0]), "dict*.txt")):
            raise UserError(f"--data {data} has no dictionaries; give a folder that fairseq-preprocess made")
        # Tasks without a dataclass get their options as a namespace, and change it.
        options = copy.deepcopy(self.cfg.get("task"))
        if (name := getattr(options, "_name", None)) not in tasks.TASK_REGISTRY:
            raise UserError(f"{self.path} was trained with --task {name}, which is not known here")
        with open_dict(options) if isinstance(options, DictConfig) else nullcontext():
            options.data = data
            for side, language in languages.items():
                setattr(options, side, language)
            if getattr(options, "eval_bleu", False):
                options.eval_bleu = False  # would build a beam search, and load a tokenizer
            for name in FILES_OF_TASKS:
                if file := getattr(options, name, None):
                    setattr(options, name, moved_file(file, self.path, data, f"--{name.replace('_', '-')}"))
        if "exported" in self.state and data == self.options("task")["data"]:
            return exported_task(data, self.state["exported"])
        return tasks.setup_task(options)

    def require_task(self, task: FairseqTask, data: str) -> None:
        """Raise UserError where a task has other dictionaries or languages than the training had."""
        recorded = {**provenance.languages_in(Namespace(**self.options("task"))), **self.belongs_to}
        provenance.require_same(self.path, recorded, provenance.of_task(task), f"--data {data}")

    def model(self, task: FairseqTask, data: str) -> FairseqEncoderDecoderModel:
        """Build the model on the CPU in evaluation mode, in float32, for the task of this or of another checkpoint."""
        self.require_family()
        values = self._upgraded["model"]
        self.require_task(task, data)
        options = self.cfg.model
        checkpoints.forget_initial_values(options)
        with checkpoints.built_within(values, self.path):
            model = task.build_model(options, from_checkpoint=True)
        try:
            model.load_state_dict(values, strict=True, model_cfg=options)
        except RuntimeError as error:
            details = [line.strip() for line in str(error).splitlines()[1:2]]
            reason = "; ".join([f"{self.path} does not fit its own options or --data {data}", *details])
            raise UserError(reason.rstrip(".")) from error
        require_same_kinds_of_numbers(model, values, self.path)
        require_finite(model.named_parameters(), self.path)
        return model.eval()


def from_pretrained(folder: str) -> tuple[FairseqEncoderDecoderModel, FairseqTask]:
    """Return the model of a folder that ``export --format safetensors`` wrote, and its task with both dictionaries."""
    folder = os.path.normpath(folder)
    checkpoint = Checkpoint(os.path.join(folder, WEIGHTS))
    task = checkpoint.task(folder)
    return checkpoint.model(task, folder), task


@contextmanager
def fairseq_warnings_only() -> Iterator[None]:
    """Silence fairseq's log but for warnings and errors."""
    logger = logging.getLogger("fairseq")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
