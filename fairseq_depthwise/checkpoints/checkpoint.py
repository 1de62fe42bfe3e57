"""A trained model in a file, read and verified once, then carried to whatever uses it."""

from __future__ import annotations

import copy
import glob
import hashlib
import logging
import mmap
import os
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from fairseq import checkpoint_utils, tasks
from fairseq.models import (
    ARCH_MODEL_NAME_REGISTRY,
    ARCH_MODEL_REGISTRY,
    BaseFairseqModel,
    FairseqEncoderDecoderModel,
)
from fairseq.models.transformer import TransformerModel
from fairseq.tasks import FairseqTask
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import Tensor, nn

from fairseq_compat import UserError, checkpoints, provenance
from fairseq_compat.files import require_file
from fairseq_compat.provenance import Record
from fairseq_compat.recorded_files import FILES_OF_TASKS
from fairseq_depthwise import register_with_fairseq
from fairseq_depthwise.checkpoints.fairseq_transformer import options_of_sdt, parameters_of_sdt
from fairseq_depthwise.checkpoints.recorded_paths import WEIGHTS, moved_file, require_checkpoint
from fairseq_depthwise.checkpoints.sizes import build_with_words, family_of
from fairseq_depthwise.checkpoints.weights_folder import exported_task, read_weights
from fairseq_depthwise.models.base.config import EncoderDecoderConfig
from fairseq_depthwise.models.base.model import StackModel
from fairseq_depthwise.modules.stack import SIDES


class Checkpoint:
    """A trained model: its options, its parameters, and what its training recorded.

    :meth:`open` reads a checkpoint of fairseq, or the weights in an exported folder. Growing, averaging, exporting,
    analyzing and translating all take a checkpoint, so that the file is opened and verified once. Tensors stay in the
    file until they are used.

    Attributes:
        state: what fairseq writes: "model", "cfg" or "args", "optimizer_history", "extra_state" and so on.
        path: the file.
        name: the file's name in errors, with the option that names it, if any.
        remarks: what :meth:`converted` renamed or left out.
        digest: the SHA-256 of the file, if :meth:`open` was asked for it.
    """

    def __init__(self, state: dict[str, Any], path: str, name: str = "", remarks: tuple[str, ...] = ()) -> None:
        self.state = state
        self.path = path
        self.name = name or path
        self.remarks = remarks
        self.digest = ""

    @classmethod
    def open(cls, path: str, option: str = "", *, with_digest: bool = False) -> Checkpoint:
        """Read and verify a file; ``option`` is the one that named it.

        Raises:
            UserError: the file is missing, damaged, no checkpoint, or holds anything but plain values.
        """
        register_with_fairseq()  # a program may have imported nothing but this module
        name = f"{option} {path}".strip()
        require_checkpoint(path, option)
        if os.path.basename(path) == WEIGHTS:
            return cls(read_weights(path), path, name)
        require_file(path)
        with open(path, "rb") as file:
            state = checkpoints.load(file, mapped=True)
            checkpoints.require_checkpoint(state, path)
            checkpoint = cls(state, path, name)
            if with_digest:
                # Of the open file: the path may name another file by now.
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                    checkpoint.digest = hashlib.sha256(content).hexdigest()
        return checkpoint

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the checkpoint as fairseq does, into a file that appears whole or not at all."""
        checkpoints.save(self.state, path)

    def with_entries(self, **entries: Any) -> Checkpoint:
        """Return a copy of the checkpoint with other entries in its ``state``."""
        return Checkpoint({**self.state, **entries}, self.path, self.name, self.remarks)

    # What the file says.

    @cached_property
    def options(self) -> dict[str, Any]:
        """The recorded options of the model."""
        return self.options_of("model")

    def options_of(self, part: str) -> dict[str, Any]:
        """Return the recorded options of a part of fairseq: "model", "task", "lr_scheduler" and so on."""
        return checkpoints.options_in(self.state, part)

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The value of each parameter, by its name."""
        values: dict[str, Tensor] = self.state["model"]
        return values

    @cached_property
    def provenance(self) -> Record:
        """What the training recorded of dictionaries, languages and text; empty for older checkpoints."""
        return provenance.recorded_in(self.state)

    @property
    def updates(self) -> int:
        """The number of updates that the model was trained for."""
        return checkpoints.updates_in(self.state)

    @property
    def architecture(self) -> str:
        """The ``--arch`` of the training; "None" if it is not recorded."""
        return str(self.options.get("_name") or self.options.get("arch"))

    @cached_property
    def family(self) -> type[BaseFairseqModel] | None:
        """The class of the model; None if the architecture is not registered."""
        return family_of(self.architecture)

    @property
    def is_exported(self) -> bool:
        """Whether it was read from a folder that ``export`` wrote."""
        return "exported" in self.state

    def require_family(self, family: str | None = None) -> None:
        """Check that the architecture is registered, and that the model is of ``family`` or one of its presets."""
        architecture = self.architecture
        if family is not None and ARCH_MODEL_NAME_REGISTRY.get(architecture, architecture) != family:
            raise UserError(
                f"{self.path} holds a model of the architecture {architecture}; it must be {family} or a preset"
            )
        if architecture not in ARCH_MODEL_REGISTRY:
            raise UserError(f"{self.path} holds a model of the architecture {architecture}, which is not known here")

    def require_finite(self) -> None:
        """Raise UserError if a parameter is NaN or infinite."""
        checkpoints.require_finite(self.parameters.items(), self.name)

    # The model for a task, as fairseq builds it.

    @cached_property
    def cfg(self) -> DictConfig:
        """All options of the training, under their names in this version of fairseq."""
        # Copies, because fairseq renames options in place, and a model changes its own while it is built.
        cfg, args = (copy.deepcopy(self.state.get(entry)) for entry in ("cfg", "args"))
        if cfg is not None:
            cfg = OmegaConf.create(cfg, flags={"allow_objects": True})
        if self.is_exported:
            return cfg
        # fairseq also upgrades entries that are not options; these are the ones that it leaves unchanged.
        history = [{"optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}]
        position = {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}}
        state = {"args": args, "cfg": cfg, "optimizer_history": history, "extra_state": position}
        upgraded: DictConfig = checkpoint_utils._upgrade_state_dict(state)["cfg"]
        return upgraded

    def build_task(self, data: str, **languages: str | None) -> FairseqTask:
        """Set up the task of the training for another folder of data, and perhaps other languages."""
        if not glob.glob(os.path.join(glob.escape(data.split(os.pathsep)[0]), "dict*.txt")):
            raise UserError(f"--data {data} has no dictionaries; give a folder that fairseq-preprocess made")
        # An exported folder has dictionaries and languages, but no recorded task options.
        if self.is_exported and data == self.options_of("task")["data"]:
            return exported_task(data, self.state["exported"])

        # Tasks without a dataclass get their options as a namespace, and change it.
        options = copy.deepcopy(self.cfg.get("task"))
        name = getattr(options, "_name", None)
        if name not in tasks.TASK_REGISTRY:
            raise UserError(f"{self.path} was trained with --task {name}, which is not known here")
        # A DictConfig refuses new options unless it is opened; a namespace does not.
        with open_dict(options) if isinstance(options, DictConfig) else nullcontext():
            options.data = data
            for side, language in languages.items():
                setattr(options, side, language)
            if getattr(options, "eval_bleu", False):
                options.eval_bleu = False  # would build a beam search and load a tokenizer
            for file_option in FILES_OF_TASKS:
                file = getattr(options, file_option, None)
                if file:
                    moved = moved_file(file, self.path, data, f"--{file_option.replace('_', '-')}")
                    setattr(options, file_option, moved)
        return tasks.setup_task(options)

    def require_task(self, task: FairseqTask) -> None:
        """Raise UserError if a task has other dictionaries or languages than the training."""
        recorded = {**provenance.languages_in(Namespace(**self.options_of("task"))), **self.provenance}
        provenance.require_same(self.path, recorded, provenance.of_task(task), f"--data {provenance.data_of(task)}")

    def build_model(self, task: FairseqTask) -> FairseqEncoderDecoderModel:
        """Build the model on the CPU in evaluation mode, for the task of this or another checkpoint."""
        self.require_family()
        self.require_task(task)
        options = self.cfg.model
        checkpoints.forget_initial_values(options)
        with ExitStack() as stack:
            stack.enter_context(checkpoints.built_within(self.parameters, self.path))
            # Models of fairseq may keep initial values of what a checkpoint lacks; ours take everything from it.
            if self.family is not None and issubclass(self.family, StackModel):
                stack.enter_context(_without_initialization())
            model = task.build_model(options, from_checkpoint=True)
        try:
            # fairseq's method; with model_cfg it also drops layers that --encoder-layers-to-keep leaves out.
            model.load_state_dict(self.parameters, strict=True, model_cfg=options)
        except RuntimeError as error:
            # The first line of PyTorch's message names the class, the second a parameter that does not fit.
            details = [line.strip() for line in str(error).splitlines()[1:2]]
            problem = f"{self.path} does not fit its own options or --data {provenance.data_of(task)}"
            raise UserError("; ".join([problem, *details]).rstrip(".")) from error
        checkpoints.require_same_kinds_of_numbers(model, self.parameters, self.path)
        checkpoints.require_finite(model.named_parameters(), self.path)
        return model.eval()

    # The model by itself, without a task.

    @property
    def is_fairseq_transformer(self) -> bool:
        """Whether it holds fairseq's own ``transformer``."""
        return self.family is TransformerModel

    def converted(self) -> Checkpoint:
        """Return a checkpoint of one of this plugin's families; fairseq's own transformer becomes an sdt_transformer.

        Raises:
            UserError: it is another model, no sdt_transformer computes the same, or a value is NaN or infinite.
        """
        self.require_finite()
        if self.is_fairseq_transformer:
            options = {**options_of_sdt(self.options, self.name), "_name": "sdt_transformer"}
            parameters, remarks = parameters_of_sdt(self.parameters, self.name)
            recorded = self.state.get("cfg") or {}
            state = {**self.state, "args": None, "cfg": {**recorded, "model": options}, "model": parameters}
            return Checkpoint(state, self.path, self.name, remarks)
        family = self.family
        if family is None or not issubclass(family, StackModel):
            raise UserError(
                f"{self.name} holds a model of the architecture {self.architecture}; it must be one of this plugin's, "
                "such as sdt_transformer, or fairseq's transformer"
            )
        return self

    @cached_property
    def config(self) -> EncoderDecoderConfig:
        """The options of a model of this plugin, completed with defaults."""
        config: EncoderDecoderConfig = provenance.options_class(self.architecture).complete(
            SimpleNamespace(**self.options)
        )
        return config

    def depth(self, side: str) -> int:
        """Return the number of layers of the encoder or the decoder."""
        layers: int = getattr(self.config, f"{side}_layers")
        return layers

    def build_untrained(self, **changes: Any) -> StackModel:
        """Build a new model with the same options except ``changes``, and with dictionaries of the same sizes."""
        options = {**vars(self.config), "encoder_embed_path": None, "decoder_embed_path": None, **changes}
        # Embeddings are V x d: the sizes of the dictionaries are known without the dictionaries.
        words = [self.parameters[f"{side}.embedding.tokens.weight"].size(0) for side in SIDES]
        assert self.family is not None
        model: StackModel = build_with_words(self.family, options, *words)
        return model


#: PyTorch's functions that draw initial values.
_RANDOM_INITIALIZATIONS = (
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
)


@contextmanager
def _without_initialization() -> Iterator[None]:
    """Build a model without drawing initial values, which takes longer than reading those of a checkpoint.

    All of its parameters must be loaded afterwards: until then they hold whatever was in memory.
    """
    functions = {name: getattr(nn.init, name) for name in _RANDOM_INITIALIZATIONS}
    try:
        for name in functions:
            setattr(nn.init, name, lambda tensor, *arguments, **options: tensor)
        yield
    finally:
        for name, function in functions.items():
            setattr(nn.init, name, function)


def from_pretrained(folder: str) -> tuple[FairseqEncoderDecoderModel, FairseqTask]:
    """Return the model of a folder that ``export --format safetensors`` wrote, and its task with both dictionaries."""
    folder = os.path.normpath(folder)
    checkpoint = Checkpoint.open(os.path.join(folder, WEIGHTS))
    task = checkpoint.build_task(folder)
    return checkpoint.build_model(task), task


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
