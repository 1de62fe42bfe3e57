"""Explain one translation: attention to the source, and, where a model has them, LSTM gates and unit weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fairseq_compat import UserError
from fairseq_depthwise.analysis.analysis import StackBatch
from fairseq_depthwise.analysis.gates import CellStatistics, find_gated_cells, measure_gates
from fairseq_depthwise.models.mute.layers import MultiUnitEncoderLayer
from fairseq_depthwise.modules.stack import SIDES
from fairseq_depthwise.translation.languages import target_start

if TYPE_CHECKING:
    from fairseq_depthwise.translation.translator import LoadedTranslator


@torch.no_grad()
def explain(translator: LoadedTranslator, line: str, rank: int, source_lang: str, target_lang: str) -> dict[str, Any]:
    """Translate a line, and explain hypothesis number ``rank`` (from 0) with the first model of the ensemble.

    Returns:
        A JSON object, such as ``{"source": ["Hallo", "</s>"], "target": ["hello", "</s>"], "attention": [[0.9, 0.1],
        [0.2, 0.8]], "text": "hello", "models": 1, "gates": {"encoder": [{"layer": "1", "forget": 0.5, ...}], ...}}``:

        - ``source``: S tokens.
        - ``target``: T tokens.
        - ``attention``: T x S, last decoder layer, mean over heads.
        - ``text``: the translation.
        - ``models``: size of the ensemble.
        - ``gates`` (depth-wise LSTM only): per side, one entry per cell.
        - ``units`` (multi-unit only): coefficients per encoder layer.

    Raises:
        UserError: the line is empty or has several pieces, there is no hypothesis of this rank, or the model does not
            know a language.
    """
    direction = translator.direction(source_lang, target_lang)
    pieces = direction.read(line, constraints=()).pieces
    if len(pieces) != 1:
        raise UserError(f"line has {len(pieces)} pieces for the model; only a line of one piece is explained")
    (piece,) = pieces
    direction.search_all(pieces, nbest=rank + 1)  # fills piece.hypotheses
    if rank >= len(piece.hypotheses):
        raise UserError(f"rank is {rank}, and the line has {len(piece.hypotheses)} translations; count from 0")

    # Model inputs: source tokens (1 x S); and the start symbol followed by all but the last target token (1 x T).
    target = piece.hypotheses[rank]["tokens"].to(translator.device).long()
    # The task's own dataset adds what the model expects around the source, such as language tokens.
    dataset: Any = direction.task.build_dataset_for_inference([piece.tokens], [len(piece.tokens)])
    batch = dataset.collater([dataset[0]])
    source = batch["net_input"]["src_tokens"].to(translator.device)
    start, _ = target_start(direction.task)
    previous_tokens = torch.cat([target.new_tensor([start]), target[:-1]])[None]

    # The model runs once more on the hypothesis, since the search returns neither gates nor all attention.
    model = translator.models[0]
    encoded = model.encoder(source, src_lengths=torch.tensor([source.size(1)], device=source.device))
    _, extra = model.decoder(previous_tokens, encoder_out=encoded)
    attention = extra["attn"][0]  # last layer, mean over heads: 1 x T x S
    document = {
        "source": _look_up_symbols(source[0], direction.task.source_dictionary),
        "target": _look_up_symbols(target, direction.task.target_dictionary),
        "attention": [_round_values(row) for row in attention[0]],
        "text": direction.codec.decode(direction.search.text(target)),
        "models": len(translator.models),
    }
    if find_gated_cells(model.encoder):
        document["gates"] = _compute_mean_gates(model, source, previous_tokens)
    layers = model.encoder.layers
    if isinstance(layers[0], MultiUnitEncoderLayer):
        document["units"] = [_round_values(layer.coefficients()) for layer in layers]
    return document


def _compute_mean_gates(model: Any, source: Tensor, previous_tokens: Tensor) -> dict[str, list[dict[str, Any]]]:
    """Return the mean of each gate of each cell, by side."""
    # One sentence has no padding.
    padding = {
        "encoder": torch.zeros_like(source, dtype=torch.bool),
        "decoder": torch.zeros_like(previous_tokens, dtype=torch.bool),
    }
    batch = StackBatch(model, {"src_tokens": source, "prev_output_tokens": previous_tokens}, padding)
    gates = {}
    for side, cells in measure_gates(model, SIDES, [batch]).items():
        gates[side] = [_list_mean_gates(statistics) for statistics in cells]
    return gates


def _list_mean_gates(statistics: CellStatistics) -> dict[str, Any]:
    # "3", or "3a" and "3b" for the two cells of a decoder layer.
    means: dict[str, Any] = {"layer": f"{statistics.layer}{statistics.cell or ''}"}
    for name, gate in statistics.gates.items():
        means[name.removesuffix("_gate")] = round(gate.mean, 4)
    return means


def _look_up_symbols(tokens: Tensor, dictionary: Any) -> list[str]:
    return [dictionary[token] for token in tokens.tolist()]


def _round_values(values: Tensor) -> list[float]:
    return [round(value, 4) for value in values.tolist()]
