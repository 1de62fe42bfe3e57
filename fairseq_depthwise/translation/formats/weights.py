"""The format ``safetensors``: unchanged weights, in a folder that is read like a checkpoint.

A folder has languages, dictionaries, and the options that the model's architecture declares. So it can only hold a
model that these options build again, and that decodes as ``--task translation`` does.
"""

from __future__ import annotations

from inspect import getattr_static
from typing import Any

import torch
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationTask
from torch import Tensor

from fairseq_compat import UserError
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.checkpoints.weights_folder import declared_options, model_options, write_weights

#: The methods that translate; a folder cannot hold a task derived from ``translation`` that overrides one of them.
_TRANSLATING = ("load_dictionary", "build_dataset_for_inference", "build_generator", "inference_step")

#: Length of the sentence on which the model and the exported one are compared.
_COMPARED_TOKENS = 4


def require_exportable(checkpoint: Checkpoint) -> None:
    """Accept every model; ``write`` checks what a folder can hold."""


def write(checkpoint: Checkpoint, model: Any, task: FairseqTask, folder: str, *, int8: bool) -> dict[str, Any]:
    """Write the weights of a checkpoint into a folder; return their part of its configuration.

    Raises:
        UserError: the folder cannot hold the model; nothing is written.
    """
    _require_translation(checkpoint, task)
    _require_same_model(checkpoint, model, task)
    return write_weights(checkpoint.state, checkpoint.architecture, folder)


def _require_translation(checkpoint: Checkpoint, task: FairseqTask) -> None:
    if not isinstance(task, TranslationTask):  # would be read as a model of one direction, without language tokens
        raise UserError(f"{checkpoint.path} translates in many directions; export each with --format onnx")
    for name in _TRANSLATING:
        if getattr_static(task, name) is not getattr_static(TranslationTask, name):
            trained_task = checkpoint.options_of("task").get("_name", type(task).__name__)
            raise UserError(
                f"{checkpoint.path} was trained with --task {trained_task}, which does not translate as --task "
                "translation does; --format safetensors has no place for that"
            )


def _require_same_model(checkpoint: Checkpoint, model: FairseqEncoderDecoderModel, task: FairseqTask) -> None:
    """Raise UserError if the options in the folder would not build the model that was trained."""
    architecture = checkpoint.architecture
    options = model_options(declared_options(checkpoint.state, architecture), architecture)
    # The checkpoint as it would be read back from the folder.
    in_folder = checkpoint.with_entries(args=None, cfg={"model": options}, exported={})
    problem = "they build a model that computes something else"
    try:
        trained_output = _output(model, task)
        output = _output(in_folder.build_model(task).float(), task)
        is_same = torch.allclose(output, trained_output, rtol=1e-4, atol=1e-4)
    except Exception as error:  # a model's code may raise anything
        is_same, problem = False, str(error)
    if not is_same:
        raise UserError(
            f"{checkpoint.path} holds a model of the architecture {architecture}, which takes more than the options "
            f"that it declares ({problem}); --format safetensors has no place for others"
        )


@torch.no_grad()
def _output(model: FairseqEncoderDecoderModel, task: FairseqTask) -> Tensor:
    """Return the decoder's output (1 x T x V) for a sentence pair of the dictionaries' first words."""
    inputs = []
    for dictionary in (task.source_dictionary, task.target_dictionary):
        last = min(dictionary.nspecial + _COMPARED_TOKENS, len(dictionary))
        inputs.append(torch.tensor([[*range(dictionary.nspecial, last), dictionary.eos()]]))
    # 1 x S and 1 x T. Rolled by one, the target starts with its end, like the decoder's input in training.
    source, target = inputs
    output: Tensor = model(source, torch.tensor([source.size(1)]), target.roll(1))[0]
    return output
