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
from typing import Any

import torch
from fairseq import utils
from fairseq.models import BaseFairseqModel
from torch import Tensor
from tqdm import tqdm

from fairseq_compat import UserError
from fairseq_compat.files import atomic_write
from fairseq_compat.provenance import file_digest
from fairseq_depthwise.analysis.loaded_model import load_model
from fairseq_depthwise.analysis.probe.linear_fit import LayerMoments, LinearFit
from fairseq_depthwise.analysis.probe.record import BASELINE, Fits, ProbeRecord, ProbeRow
from fairseq_depthwise.analysis.probe.report import ProbedModel, format_tables, write_probe_figure
from fairseq_depthwise.checkpoints.checkpoint import fairseq_warnings_only
from fairseq_depthwise.evaluation.scores import TranslationMetric
from fairseq_depthwise.figures import make_titles
from fairseq_depthwise.models.linearized.model import (
    ARCHITECTURE,
    LinearizedTransformer,
    depths_of,
    layers_named,
    passes_pairs,
)
from fairseq_depthwise.tables import json_text
from fairseq_depthwise.translation.beam_search import BeamSearch
from fairseq_depthwise.translation.text_codec import post_process_for
from fairseq_depthwise.translation.translation_options import BeamOptions

#: Options that must not change when a probe is continued. ``--layers`` and ``--probe-state`` may, as each row depends
#: on its own.
_SETTINGS = ("train_subset", "max_tokens_used", "subset", "beam", "metric")


class Probe:
    """The probe of one model, resumable from its folder. The constructor checks all input, since a run takes hours.

    Attributes:
        layers: names of the layers to replace, one at a time.
        states: what the linear layer replaces: "pair" (Out and Cell) or "output" (Out only) in a depth-wise LSTM; "" in
            models with a single vector.
        references: reference translations in words, as post-processing joins subwords; unknown words are written
            ``<<unk>>``, which never matches.
        record: the results so far.
    """

    def __init__(self, checkpoint: str, folder: str, options: argparse.Namespace) -> None:
        self.options = options
        loaded = load_model(checkpoint, options.data, with_digest=True)
        self.loaded = loaded
        if loaded.architecture == ARCHITECTURE:
            raise UserError(f"{checkpoint} holds a linearized model; give the trained model that it was made from")
        self.layers = layers_named(options.layers, depths_of(loaded.model), f"--layers {options.layers}", checkpoint)
        self.states: tuple[str, ...]
        if not passes_pairs(loaded.model):
            self.states = ("",)
        elif options.probe_state == "both":
            self.states = ("pair", "output")
        else:
            self.states = (options.probe_state,)
        self.metric = TranslationMetric(options.metric)
        self.post_process = post_process_for(loaded.task.target_dictionary)
        self.references = self._read_references()
        self.device = torch.device("cuda" if torch.cuda.is_available() and not options.cpu else "cpu")
        loaded.dataset(options.train_subset)  # raises now if the subset is missing
        settings = {
            "checkpoint": os.path.basename(checkpoint),
            "checksum": loaded.checkpoint.digest,
            "data": compute_data_digest(options.data, (options.train_subset, options.subset)),
            "post_process": self.post_process,
            "length_penalty": options.lenpen,
        }
        settings |= {name: getattr(options, name) for name in _SETTINGS}
        self.record = ProbeRecord(folder, settings, force=options.force)

    def _read_references(self) -> list[str]:
        dictionary = self.loaded.task.target_dictionary
        dataset: Any = self.loaded.dataset(self.options.subset)
        references = []
        for index in range(len(dataset)):
            target = dataset[index]["target"].int()
            references.append(dictionary.string(target, self.post_process, escape_unk=True))
        return references

    def run(self) -> ProbedModel:
        """Probe the model; results of an earlier call are not computed again."""
        loaded, record = self.loaded, self.record
        print(f"reading {loaded.path}", file=sys.stderr)
        # 1. Fit.
        model = LinearizedTransformer(loaded.model, self.layers).to(self.device)
        fits = self._fit_layers(model)

        # The rows in the order of the table: one state after the other, layers from the lowest up.
        replaced = []
        for state in self.states:
            for layer in self.layers:
                replaced.append((layer, state))

        # 2. Write checkpoints.
        if not self.options.no_checkpoints:
            record.write_checkpoints(loaded.checkpoint, {key: fits[key] for key in replaced})

        # 3. Score each row.
        keys = [(BASELINE, ""), *replaced]
        for layer, state in keys:
            if (layer, state) not in record.rows:
                self._score_row(model, layer, state, fits.get((layer, state)))
        rows = tuple(record.rows[key] for key in keys)
        return ProbedModel(loaded.path, loaded.architecture, rows)

    def _fit_layers(self, model: LinearizedTransformer) -> Fits:
        """Return the fitted linear layers, fitting those that are missing."""
        options, record = self.options, self.record
        # An earlier call may have fitted some layers, or all.
        fits = record.read_fits()
        fitted = {layer for layer, _ in fits}
        if fitted.issuperset(self.layers):
            return fits
        batches = self.loaded.batches(
            options.train_subset,
            max_tokens=options.max_tokens,
            target_token_budget=options.max_tokens_used or None,  # the option's 0 stands for all
        )
        progress = tqdm(batches, f"fitting {len(self.layers)} layers", unit=" batches", disable=None)
        for layer, moments in collect_moments(model, progress, self.device).items():
            # A pair is [Out, Cell]: its first half gives the moments of Out alone.
            moments_by_state = {"": moments}
            if self.states != ("",):
                moments_by_state = {"pair": moments, "output": moments.select_first_features(moments.width // 2)}
            for state, state_moments in moments_by_state.items():
                if (layer, state) not in fits:  # keep earlier fits, on which finished rows are based
                    fits[layer, state] = state_moments.fit()
        record.write_fits(fits)
        return fits

    def _score_row(self, model: LinearizedTransformer, layer: str, state: str, fit: LinearFit | None) -> None:
        """Translate with one layer replaced, or with none where ``fit`` is None, and record the score."""
        if fit is None:
            model.replace_only(None)
        else:
            # Models with a single vector use "pair", too: all of it.
            model.set_linear_layer(layer, fit.weight, fit.bias, which=state or "pair")
            model.replace_only(layer)
        hypotheses = self.translate_subset(model)
        score = self.metric.score(hypotheses, [self.references])
        row = ProbeRow(layer, state, score.score, score.name, score.signature)
        if fit is not None:
            row = replace(row, error=fit.error, unexplained=fit.unexplained, positions=fit.positions)
        self.record.add_row(row, hypotheses)
        name = f"{layer}, {state}" if state else layer
        print(f"{name}: {score.name} {score.score:.2f}", file=sys.stderr)

    def translate_subset(self, model: BaseFairseqModel) -> list[str]:
        """Translate a subset of the data, in its order; sentences that are too long for the model stay empty."""
        loaded, options = self.loaded, self.options
        batches = loaded.batches(options.subset, max_tokens=options.max_tokens)
        # Same search as the translate command, so that scores are comparable.
        search = BeamSearch(loaded.task, [model], BeamOptions(options.beam, options.lenpen), self.device)
        # Batches group sentences by length; restore the order of the data.
        translations = [""] * len(loaded.dataset(options.subset))
        for batch in tqdm(batches, unit=" batches", leave=False, disable=None):
            for index, hypotheses in zip(batch["id"].tolist(), search.hypotheses(batch), strict=True):
                translations[index] = search.text(hypotheses[0]["tokens"], self.post_process)
        return translations


def compute_data_digest(data: str, subsets: Iterable[str]) -> str:
    """Return one digest of the dictionaries and subsets in ``data``: a folder, or several joined with ``:``."""
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
    # float64 is slow on GPUs; only the accumulated sums need it.
    precision = torch.float64 if device.type == "cpu" else torch.float32
    moments: dict[str, LayerMoments] = {}

    def add(name: str, layer_input: Tensor, layer_output: Tensor) -> None:
        if name not in moments:
            moments[name] = LayerMoments(layer_input.size(1), precision=precision, device=device)
        moments[name].add(layer_input, layer_output)

    for batch in batches:
        if device.type == "cuda":
            batch = utils.move_to_cuda(batch, device)
        inputs = batch["net_input"]
        model.observe(inputs["src_tokens"], inputs["src_lengths"], inputs["prev_output_tokens"], add)
    return moments


def report_probes(options: argparse.Namespace) -> None:
    """Probe the models that ``fairseq-depthwise probe`` names; write and print the results."""
    checkpoints, folders = [options.checkpoint], [options.output]
    if options.compare:
        checkpoints.append(options.compare)
        folders.append(os.path.join(options.output, "compared"))
    with fairseq_warnings_only():
        # Both are checked before the first is run.
        probes = [Probe(path, folder, options) for path, folder in zip(checkpoints, folders, strict=True)]
        models = [probe.run() for probe in probes]
    _write_results(options, models, make_titles(checkpoints))


def _write_results(options: argparse.Namespace, models: Sequence[ProbedModel], titles: Sequence[str]) -> None:
    """Write table and figure, and print the table."""
    text = format_tables(models)
    document = {"data": options.data, "models": [model.to_json() for model in models]}
    table = json_text(document) + "\n"
    for name, content in (("table.txt", text), ("table.json", table)):
        with atomic_write(os.path.join(options.output, name)) as file:
            file.write(content.encode())
    for suffix in ("svg", "pdf", "png"):
        write_probe_figure(os.path.join(options.output, f"figure.{suffix}"), models, titles)
    print(table if options.json else text, end="")
    print(f"table and figure are in {options.output}", file=sys.stderr)
