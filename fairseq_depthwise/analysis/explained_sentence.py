"""An explanation of one translation: attention to the source, gates by layer, weights of units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fairseq_compat import UserError
from fairseq_depthwise.analysis.analysis import StackBatch
from fairseq_depthwise.analysis.gates import CellStatistics, gated_cells, measure_gates
from fairseq_depthwise.models.mute.layers import MultiUnitEncoderLayer
from fairseq_depthwise.modules.stack import SIDES
from fairseq_depthwise.translation.languages import target_start

if TYPE_CHECKING:
    from fairseq_depthwise.translation.translator import LoadedTranslator


@torch.no_grad()
def explain(translator: LoadedTranslator, line: str, rank: int, source_lang: str, target_lang: str) -> dict[str, Any]:
    """Translate a line and explain the first model's hypothesis ``rank`` (from 0), as objects of JSON.

    Returns:
        ``source`` (S tokens), ``target`` (T tokens), ``attention`` (T x S, of the last decoder layer, mean of its
        heads), ``text``, ``models``; ``gates`` of each side's layers of a depth-wise LSTM, ``units`` of a multi-unit
        model.

    Raises:
        UserError: the line is empty, has several pieces or fewer hypotheses, or the model does not know a language.
    """
    direction = translator.direction(source_lang, target_lang)
    pieces = direction.read(line, ()).pieces
    if len(pieces) != 1:
        raise UserError(f"line has {len(pieces)} pieces for the model; only a line of one piece is explained")
    (piece,) = pieces
    direction.search_all(pieces, rank + 1)
    if rank >= len(piece.hypotheses):
        raise UserError(f"rank is {rank}, and the line has {len(piece.hypotheses)} translations; count from 0")

    # The tokens that the model reads: 1 x S, and the target without its last token after the symbol that begins it.
    target = piece.hypotheses[rank]["tokens"].to(translator.device).long()
    dataset: Any = direction.task.build_dataset_for_inference([piece.tokens], [len(piece.tokens)])
    source = dataset.collater([dataset[0]])["net_input"]["src_tokens"].to(translator.device)
    start, _ = target_start(direction.task)
    previous = torch.cat([target.new_tensor([start]), target[:-1]])[None]

    # The model runs once more on the hypothesis, since the search returns neither gates nor all attention.
    model = translator.models[0]
    encoded = model.encoder(source, src_lengths=torch.tensor([source.size(1)], device=source.device))
    _, extra = model.decoder(previous, encoder_out=encoded)
    of_last_layer = extra["attn"][0]  # 1 x T x S
    document = {
        "source": _symbols(source[0], direction.task.source_dictionary),
        "target": _symbols(target, direction.task.target_dictionary),
        "attention": [_rounded(row) for row in of_last_layer[0]],
        "text": direction.codec.decode(direction.search.text(target)),
        "models": len(translator.models),
    }
    if gated_cells(model.encoder):
        document["gates"] = _gates(model, source, previous)
    layers = model.encoder.layers
    if isinstance(layers[0], MultiUnitEncoderLayer):
        document["units"] = [_rounded(layer.coefficients()) for layer in layers]
    return document


def _gates(model: Any, source: Tensor, previous: Tensor) -> dict[str, list[dict[str, Any]]]:
    """Return the mean of each gate of each cell, by side."""
    # One sentence has no padding.
    padding = {
        "encoder": torch.zeros_like(source, dtype=torch.bool),
        "decoder": torch.zeros_like(previous, dtype=torch.bool),
    }
    batch = StackBatch(model, {"src_tokens": source, "prev_output_tokens": previous}, padding)
    gates = {}
    for side, cells in measure_gates(model, SIDES, [batch]).items():
        gates[side] = [_mean_gates(cell) for cell in cells]
    return gates


def _mean_gates(cell: CellStatistics) -> dict[str, Any]:
    means: dict[str, Any] = {"layer": f"{cell.layer}{cell.cell or ''}"}
    for name, gate in cell.gates.items():
        means[name.removesuffix("_gate")] = round(gate.mean, 4)
    return means


def _symbols(tokens: Tensor, dictionary: Any) -> list[str]:
    return [dictionary[token] for token in tokens.tolist()]


def _rounded(values: Tensor) -> list[float]:
    return [round(value, 4) for value in values.tolist()]
