"""What a model does with one sentence: attention to the source, gates by layer, weights of units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fairseq_compat import UserError
from fairseq_depthwise.analysis.analysis import StackBatch
from fairseq_depthwise.analysis.gates import CellStatistics, measure_gates
from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseLSTMCell
from fairseq_depthwise.models.mute.layers import MultiUnitEncoderLayer
from fairseq_depthwise.modules.stack import SIDES
from fairseq_depthwise.translation.languages import target_start

if TYPE_CHECKING:
    from fairseq_depthwise.translation.translator import LoadedTranslator


@torch.no_grad()
def explain(translator: LoadedTranslator, line: str, rank: int, source_lang: str, target_lang: str) -> dict[str, Any]:
    """Translate a line and return what the first model does with its hypothesis ``rank`` (from 0): objects of JSON.

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
    direction.search_all(pieces, rank + 1)
    (hypotheses,) = (piece.hypotheses for piece in pieces)
    if rank >= len(hypotheses):
        raise UserError(f"rank is {rank}, and the line has {len(hypotheses)} translations; count from 0")
    target = hypotheses[rank]["tokens"].to(translator.device).long()
    dataset: Any = direction.task.build_dataset_for_inference([pieces[0].tokens], [len(pieces[0].tokens)])
    source = dataset.collater([dataset[0]])["net_input"]["src_tokens"].to(translator.device)
    start, _ = target_start(direction.task)
    previous = torch.cat([target.new_tensor([start]), target[:-1]])[None]
    model = translator.models[0]
    encoded = model.encoder(source, src_lengths=torch.tensor([source.size(1)], device=source.device))
    decoded = model.decoder(previous, encoder_out=encoded)
    dictionaries = direction.task.source_dictionary, direction.task.target_dictionary
    document = {
        "source": _symbols(source[0], dictionaries[0]),
        "target": _symbols(target, dictionaries[1]),
        "attention": _rounded(decoded[1]["attn"][0][0]),  # of the last layer
        "text": direction.codec.decode(direction.search.text(target)),
        "models": len(translator.models),
    }
    layers = model.encoder.layers
    if isinstance(getattr(layers[0], "cell", None), DepthwiseLSTMCell):
        document["gates"] = _gates(model, source, previous)
    if isinstance(layers[0], MultiUnitEncoderLayer):
        document["units"] = [_rounded(layer.coefficients()) for layer in layers]
    return document


def _gates(model: Any, source: Tensor, previous: Tensor) -> dict[str, list[dict[str, Any]]]:
    tokens = dict(zip(SIDES, (source, previous), strict=True))
    padding = {side: torch.zeros_like(of_side, dtype=torch.bool) for side, of_side in tokens.items()}
    batch = StackBatch(model, {"src_tokens": source, "prev_output_tokens": previous}, padding)
    return {side: list(map(_mean_gates, cells)) for side, cells in measure_gates(model, SIDES, [batch]).items()}


def _mean_gates(cell: CellStatistics) -> dict[str, Any]:
    gates = {"input": cell.input_gate, "forget": cell.forget_gate, "output": cell.output_gate}
    return {"layer": f"{cell.layer}{cell.cell or ''}", **{name: round(gate.mean, 4) for name, gate in gates.items()}}


def _symbols(tokens: Tensor, dictionary: Any) -> list[str]:
    return [dictionary[token] for token in tokens.tolist()]


def _rounded(values: Tensor) -> Any:
    return [_rounded(row) for row in values] if values.dim() > 1 else [round(value, 4) for value in values.tolist()]
