"""Our models decoded through graphs: compiled ahead of time, or written as ONNX and run by onnxruntime."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import torch
from fairseq.data import Dictionary
from workloads import BEAM, Batch, Decoding, Side

from fairseq_depthwise.modules.decoding.graph_search import Graphs, GraphSearch, SearchLimits
from fairseq_depthwise.serving.compiled_graphs import compiled_graphs
from fairseq_depthwise.serving.onnx_graphs import OnnxGraphs, int8_graphs, write_onnx_files
from fairseq_depthwise.serving.traced_graphs import graph_files, trace


class GraphDecoding:
    """As :class:`workloads.Decoding`: called with a batch and a beam, it translates the batch.

    Sentences are as long as there, forced in the same way.
    """

    def __init__(self, side: Side, dictionary: Dictionary, kind: str) -> None:
        self.model = Decoding(side, dictionary, "cpu", "fp32").model
        self.model.eval()
        self.eos = dictionary.eos()
        self.search = GraphSearch(_graphs(self.model, kind), eos=self.eos, vocabulary=len(dictionary))
        self.steps: list[int] = []

    def __call__(self, batch: Batch, beam: int = BEAM) -> None:
        sources = batch["net_input"]["src_tokens"]
        length = sources.size(1)
        self.search(sources, SearchLimits(beam, 1.0, length, self.eos, min_length=length))
        self.steps.append(length + 1)

    def encode(self, batch: Batch) -> None:
        """Run the encoder alone."""
        with torch.inference_mode():
            self.search.graphs.encode(batch["net_input"]["src_tokens"])

    def unused_bytes(self) -> int:
        """Return 0: every weight is read."""
        return 0


def _graphs(model: Any, kind: str) -> Graphs:
    if kind == "compiled":
        return compiled_graphs([model], "the model", lambda sentence: None)
    if kind == "int8":
        return int8_graphs([model], "the model", lambda sentence: None)
    with tempfile.TemporaryDirectory() as folder:
        functions = graph_files([model], ".onnx")
        files = {name: os.path.join(folder, about["file"]) for name, about in functions.items()}
        graphs = trace([model], "the model", in_place=False)
        write_onnx_files(graphs, [model], "the model", files, functions, int8=False)
        return OnnxGraphs(*files.values(), threads=torch.get_num_threads())
