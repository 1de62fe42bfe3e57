"""The checkpoints of a translator: searched with the models themselves, or with graphs that are made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from fairseq import utils
from fairseq.tasks import FairseqTask

from fairseq_compat import UserError
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.checkpoints.recorded_paths import checkpoint_files
from fairseq_depthwise.modules.decoding.graph_search import Graphs
from fairseq_depthwise.serving.beam_search import BeamSearch
from fairseq_depthwise.serving.compiled_graphs import compiled_graphs
from fairseq_depthwise.serving.directions import has_language_token, recorded_task
from fairseq_depthwise.serving.onnx_graphs import int8_graphs
from fairseq_depthwise.serving.options import TranslatorOptions
from fairseq_depthwise.serving.text_codec import TextSettings, settings_for
from fairseq_depthwise.serving.traced_graphs import refuse_unless_ours

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class TrainedModels:
    """One checkpoint, or several whose probabilities are averaged; arguments as of ``LoadedTranslator``.

    Attributes:
        task: of the first.
        text: how text becomes tokens.
        around: tokens before and after a source sentence, which the task puts there itself.
    """

    around: tuple[tuple[int, ...], list[int] | None] = ((), None)

    def __init__(
        self, model: str, data: str | None, languages: tuple[str | None, str | None], options: TranslatorOptions, *,
        device: torch.device, say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.files, self.device, self._options = checkpoint_files(model), device, options
        first, *others = map(Checkpoint, self.files)
        first.require_family()
        self.data, self.task = recorded_task(first, data, languages)
        self.text: TextSettings = settings_for(
            options.text, first.cfg, self.task.source_dictionary, path=first.path, data=self.data,
            recorded=first.belongs_to,
        )  # fmt: skip
        for other in others:
            self.text.require(other.path, other.belongs_to)
            for kind in ("tokenizer", "bpe"):
                said = options.text.tokenized or getattr(options.text, kind) or getattr(self.text, kind)
                if kind in other.belongs_to and not said:
                    raise UserError(
                        f"{other.path} was trained with --{kind} {other.belongs_to[kind]}, and {first.path} names "
                        f"none; give --{kind}, or --tokenized"
                    )
        dtype = _TYPES.get(options.precision, torch.float32)
        self.models: list[Any] = [one.model(self.task, self.data).to(device, dtype) for one in (first, *others)]
        BeamSearch(self.task, self.models, options.beam, device)  # makes them ready
        self._graphs = self._made_graphs(say)

    def _made_graphs(self, say: Callable[[str], None]) -> Graphs | None:
        """Return graphs where options ask for them; models that cannot be compiled translate as they are."""
        path, int8 = ":".join(self.files), self._options.precision == "int8"
        if not (int8 or self._options.compile):
            return None
        try:
            for model in self.models:
                refuse_unless_ours(path, model)
            if self.device.type != "cpu":
                raise UserError(f"{'--int8' if int8 else '--compile'} is for CPUs, and a GPU is in use; add --cpu")
            return (int8_graphs if int8 else compiled_graphs)(self.models, path, say)
        except UserError as error:
            if int8:
                raise
            say(f"not compiled, and slower: {error}")
            return None

    def search(self, task: FairseqTask) -> BeamSearch:
        """Return the search of a direction."""
        return BeamSearch(task, self.models, self._options.beam, self.device, self._graphs)

    def longest(self, task: FairseqTask) -> int:
        """Return how many source tokens all models take, the end of the sentence among them."""
        positions = utils.resolve_max_positions(task.max_positions(), *(model.max_positions() for model in self.models))
        longest: int = positions[0] if isinstance(positions, tuple | list) else positions
        return longest - has_language_token(task)
