"""The linearization probe: fit linear layers, replace one layer at a time, translate and score.

Source: "Transformer with Depth-Wise LSTM" (the first version of "Rewiring the Transformer with Depth-Wise LSTMs"),
Sections 4 and 5.5, Tables 6 and 7.
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from fairseq import utils
from fairseq.models import BaseFairseqModel
from torch import Tensor
from tqdm import tqdm

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_compat.outputs import begin_folder
from fairseq_compat.provenance import file_digest
from fairseq_depthwise.analysis.analysis import add_data_options
from fairseq_depthwise.analysis.loaded_model import load_model
from fairseq_depthwise.analysis.probe.linear_fit import LayerMoments, LinearFit
from fairseq_depthwise.analysis.probe.record import NONE, Fits, ProbeRecord, ProbeRow
from fairseq_depthwise.analysis.probe.report import ProbedModel, as_text, write_figure_of
from fairseq_depthwise.checkpoints.checkpoint import fairseq_warnings_only
from fairseq_depthwise.evaluation.scores import METRICS, TranslationMetric
from fairseq_depthwise.figures import titles_of
from fairseq_depthwise.models.linearized.model import (
    ARCHITECTURE,
    LinearizedTransformer,
    depths_of,
    layers_named,
    passes_pairs,
)
from fairseq_depthwise.options import between, require_extra
from fairseq_depthwise.translation.beam_search import BeamOptions, BeamSearch
from fairseq_depthwise.translation.text_codec import post_process_for

#: Options that finished rows depend on. More layers or states may be requested later.
_SETTINGS = ("train_subset", "max_tokens_used", "subset", "beam", "metric")


class Probe:
    """A model, and the finished part of its probe in a folder; everything is checked before hours of work.

    Attributes:
        layers: names of the layers to replace one at a time.
        states: what of a layer's state is replaced: "pair" and "output" for pairs (Out, Cell), "" for one output.
        references: the part of the data as words; unknown words are ``<<unk>>``, which no translation has.
        record: the results so far.
    """

    def __init__(self, checkpoint: str, folder: str, options: argparse.Namespace) -> None:
        self.options = options
        self.loaded = loaded = load_model(checkpoint, options.data, with_digest=True)
        if loaded.architecture == ARCHITECTURE:
            raise UserError(f"{checkpoint} holds a linearized model; give the trained model that it was made from")
        self.layers = layers_named(options.layers, depths_of(loaded.model), f"--layers {options.layers}", checkpoint)
        self.states: tuple[str, ...] = ("",)
        if passes_pairs(loaded.model):
            self.states = ("pair", "output") if options.probe_state == "both" else (options.probe_state,)
        self.metric = TranslationMetric(options.metric)
        self.post_process = post_process_for(loaded.task.target_dictionary)
        self.references = self._read_references()
        self.device = torch.device("cuda" if torch.cuda.is_available() and not options.cpu else "cpu")
        loaded.sentences(options.train_subset)  # which refuses one that is missing
        settings = {
            "checkpoint": os.path.basename(checkpoint),
            "checksum": loaded.checkpoint.digest,
            "data": digest_of_data(options.data, (options.train_subset, options.subset)),
            "post_process": self.post_process,
            "length_penalty": options.lenpen,
        }
        settings |= {name: getattr(options, name) for name in _SETTINGS}
        self.record = ProbeRecord(folder, settings, force=options.force)

    def _read_references(self) -> list[str]:
        dictionary = self.loaded.task.target_dictionary
        sentences: Any = self.loaded.sentences(self.options.subset)
        references = []
        for index in range(len(sentences)):
            target = sentences[index]["target"].int()
            references.append(dictionary.string(target, self.post_process, escape_unk=True))
        return references

    def run(self) -> ProbedModel:
        """Probe the model, without repeating what an earlier call finished."""
        loaded, record = self.loaded, self.record
        print(f"reading {loaded.path}", file=sys.stderr)
        model = LinearizedTransformer(loaded.model, self.layers).to(self.device)
        fits = self._fit(model)

        # The rows in the order of the table: one state after the other, layers from the lowest up.
        replaced = [(layer, state) for state, layer in product(self.states, self.layers)]
        if not self.options.no_checkpoints:
            record.write_checkpoints(loaded.checkpoint, {key: fits[key] for key in replaced})
        keys = [(NONE, ""), *replaced]
        for layer, state in keys:
            if (layer, state) not in record.rows:
                self._finish_row(model, layer, state, fits.get((layer, state)))
        rows = tuple(record.rows[key] for key in keys)
        return ProbedModel(loaded.path, loaded.architecture, rows)

    def _fit(self, model: LinearizedTransformer) -> Fits:
        """Return the linear layers of all layers and states, after fitting those that an earlier call has not."""
        options, record = self.options, self.record
        # An earlier call may have fitted some layers, or all.
        fits = record.fits()
        fitted = {layer for layer, _ in fits}
        if fitted.issuperset(self.layers):
            return fits
        batches = self.loaded.batches(
            options.train_subset, max_tokens_used=options.max_tokens_used, max_tokens=options.max_tokens
        )
        progress = tqdm(batches, f"fitting {len(self.layers)} layers", unit=" batches", disable=None)
        for layer, moments in collect_moments(model, progress, self.device).items():
            # Of a pair, the moments of its first half are those of Out alone.
            parts = {"": moments}
            if self.states != ("",):
                parts = {"pair": moments, "output": moments.of_first(moments.width // 2)}
            for state, part in parts.items():
                if (layer, state) not in fits:  # finished rows have the earlier ones
                    fits[layer, state] = part.fit()
        record.write_fits(fits)
        return fits

    def _finish_row(self, model: LinearizedTransformer, layer: str, state: str, fit: LinearFit | None) -> None:
        """Translate with one layer replaced, or with none where ``fit`` is None, and record the score."""
        if fit is not None:
            model.set_linear_layer(layer, fit.weight, fit.bias, state or "pair")
        model.replace_only(None if fit is None else layer)
        hypotheses = translate_subset(self, model)
        score = self.metric.score(hypotheses, [self.references])
        row = ProbeRow(layer, state, score.score, score.name, score.signature)
        if fit is not None:
            row = replace(row, error=fit.error, unexplained=fit.unexplained, positions=fit.positions)
        self.record.add(row, hypotheses)
        name = f"{layer}, {state}" if state else layer
        print(f"{name}: {score.name} {score.score:.2f}", file=sys.stderr)


def digest_of_data(data: str, subsets: Iterable[str]) -> str:
    """Return one digest of the dictionaries and of parts of the data, in each of several folders joined with ``:``."""
    patterns = ["dict.*", *(f"{subset}.*" for subset in dict.fromkeys(subsets))]
    # Names and contents, but not the paths, so that data may be moved.
    digests = []
    for number, folder in enumerate(data.split(os.pathsep)):
        for pattern in patterns:
            for file in sorted(glob.glob(pattern, root_dir=folder)):
                digests.append([number, file, file_digest(os.path.join(folder, file))])
    digest = hashlib.sha256(json.dumps(digests).encode()).hexdigest()
    return f"sha256:{digest[:16]}"


def collect_moments(
    model: LinearizedTransformer, batches: Iterable[dict[str, Any]], device: torch.device
) -> dict[str, LayerMoments]:
    """Run the intact model over batches, and return the moments of its layers by name."""
    # GPUs are slow in float64, which only the sums need.
    precision = torch.float64 if device.type == "cpu" else torch.float32
    moments: dict[str, LayerMoments] = {}

    def add(name: str, below: Tensor, above: Tensor) -> None:
        if name not in moments:
            moments[name] = LayerMoments(below.size(1), precision=precision, device=device)
        moments[name].add(below, above)

    for batch in batches:
        if device.type == "cuda":
            batch = utils.move_to_cuda(batch, device)
        inputs = batch["net_input"]
        model.observe(inputs["src_tokens"], inputs["src_lengths"], inputs["prev_output_tokens"], add)
    return moments


def translate_subset(probe: Probe, model: BaseFairseqModel) -> list[str]:
    """Translate a part of the data, in its order; sentences that are too long for the model stay empty."""
    loaded, options = probe.loaded, probe.options
    batches = loaded.batches(options.subset, max_tokens=options.max_tokens)
    # The search of `translate`, so that scores are comparable with its translations'.
    search = BeamSearch(loaded.task, [model], BeamOptions(options.beam, options.lenpen), probe.device)
    # Batches are of similar lengths: their sentences come in another order.
    translations = [""] * len(loaded.sentences(options.subset))
    for batch in tqdm(batches, unit=" batches", leave=False, disable=None):
        for index, hypotheses in zip(batch["id"].tolist(), search.hypotheses(batch), strict=True):
            translations[index] = search.text(hypotheses[0]["tokens"], probe.post_process)
    return translations


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", help="a checkpoint of this plugin's families, or of fairseq's transformer"
    )
    add_data_options(parser, subset="test", about="part of the data to translate")
    parser.add_argument(
        "--output",
        required=True,
        metavar="DIR",
        help="folder for table, figure, linear layers, translations and checkpoints; repeat the command to continue",
    )
    parser.add_argument("--compare", metavar="OTHER", help="checkpoint of another model of the same data")
    parser.add_argument(
        "--layers", default="all", metavar="LIST", help="layers to replace, as encoder.1,decoder.6 (default: all)"
    )
    parser.add_argument(
        "--probe-state",
        choices=("both", "pair", "output"),
        default="both",
        help="what a depth-wise LSTM layer's replacement computes: the pair of output and cell, or the output, with "
        "the cell passed on (default: both, one after the other)",
    )
    parser.add_argument(
        "--max-tokens-used",
        type=between(0, 2**62, int),
        default=1_000_000,
        metavar="N",
        help="target tokens to fit on, chosen at random; 0 for all (default: 1000000)",
    )
    parser.add_argument(
        "--train-subset", default="train", metavar="NAME", help="part of the data to fit on (default: train)"
    )
    parser.add_argument("--beam", type=between(1, 10_000, int), default=4, metavar="N", help="beam size (default: 4)")
    parser.add_argument(
        "--lenpen", type=between(-1000, 1000), default=0.6, metavar="X", help="length penalty (default: 0.6)"
    )
    parser.add_argument(
        "--metric",
        choices=METRICS,
        default="tokenized",
        help="as in `fairseq-depthwise score`; sacrebleu for data that was not tokenized (default: tokenized)",
    )
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")
    parser.add_argument("--no-checkpoints", action="store_true", help="do not write a checkpoint for each row")
    parser.add_argument("--force", action="store_true", help="start again where DIR holds a probe with other settings")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> None:
    require_extra("analysis", "matplotlib")
    begin_folder("--output", options.output, "probe")
    checkpoints, folders = [options.checkpoint], [options.output]
    if options.compare:
        checkpoints.append(options.compare)
        folders.append(os.path.join(options.output, "compared"))
    with fairseq_warnings_only():
        # Both are checked before the first is run.
        probes = [Probe(path, folder, options) for path, folder in zip(checkpoints, folders, strict=True)]
        models = [probe.run() for probe in probes]
    _write(options, models, titles_of(checkpoints))


def _write(options: argparse.Namespace, models: Sequence[ProbedModel], titles: Sequence[str]) -> None:
    """Write table and figure, and print the table."""
    text = as_text(models)
    document = {"data": options.data, "models": [model.document() for model in models]}
    json_text = json.dumps(document, indent=2) + "\n"
    for name, content in (("table.txt", text), ("table.json", json_text)):
        with atomic_write(os.path.join(options.output, name)) as file:
            file.write(content.encode())
    for suffix in ("svg", "pdf", "png"):
        write_figure_of(os.path.join(options.output, f"figure.{suffix}"), models, titles)
    print(json_text if options.json else text, end="")
    print(f"table and figure are in {options.output}", file=sys.stderr)
