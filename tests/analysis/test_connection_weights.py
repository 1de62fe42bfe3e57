"""Weights of connections over a data set: whatever the batches, padding left out, and the model left as it was."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_checkpoints import checkpoint_of

from fairseq_compat import checkpoints
from fairseq_depthwise.analysis.analysis import SIDES, prepare_batches
from fairseq_depthwise.analysis.connection_sources import Trace, find_sources
from fairseq_depthwise.analysis.connection_weights import SourceWeight, measure_weights
from fairseq_depthwise.analysis.loaded_model import LoadedModel, load_model
from fairseq_depthwise.modules.stack import stream_of

FORMS = ("average", "attention", "hyper", "value-residual")


def model_of(folder: Path, data: str, form: str, **options: Any) -> LoadedModel:
    """A model whose connections are far from their first values."""
    connections = {"encoder_connection": form, "decoder_connection": form, "encoder_block_size": 0}
    path = checkpoint_of(folder, "sdt_transformer", **{**connections, **options})
    state = checkpoints.load_checkpoint(path)
    draw = torch.Generator().manual_seed(4)
    for name, value in state["model"].items():
        if ".connection." in name and "final_norm" not in name:
            value += 0.5 * torch.randn(value.shape, generator=draw)
    torch.save(state, path)
    return load_model(path, data)


def measured(
    loaded: LoadedModel, max_tokens: int, sides: tuple[str, ...] = SIDES, **options: bool
) -> dict[str, list[SourceWeight]]:
    batches = loaded.batches("valid", max_sentences=1000, max_tokens=max_tokens)
    return measure_weights(loaded.model, sides, prepare_batches(loaded, batches, sides), **options)


@torch.no_grad()
def read_weights(loaded: LoadedModel) -> dict[str, dict[tuple[int | str, str], list[float]]]:
    """Return all weights, from sentences that are run alone, layer by layer."""
    values: dict[str, dict[tuple[int | str, str], list[float]]] = {side: {} for side in SIDES}
    model = loaded.model
    for sentence in loaded.dataset("valid"):
        target = sentence["target"]
        encoded = model.encoder(sentence["source"][None], return_all_hiddens=True)
        inputs = {"encoder": (sentence["source"][None],), "decoder": (torch.cat([target[-1:], target[:-1]])[None],)}
        for side in SIDES:
            stack = getattr(model, side)
            outputs: list[Any] = []
            hooks = [
                layer.register_forward_hook(lambda *given, into=outputs: into.append(given[2]))
                for layer in stack.layers
            ]
            if side == "encoder":
                embedded = stack(*inputs[side], return_all_hiddens=True)["encoder_states"][0]
            else:
                embedded = stack(*inputs[side], encoder_out=encoded, features_only=True)[1]["inner_states"][0]
            for hook in hooks:
                hook.remove()
            states, added = [stack.connection.initial_state(embedded)], []
            for index, output in enumerate([*outputs, None]):
                sublayers = stack.connection.sublayers
                place = index + 1 if sublayers == 1 else f"{index // sublayers + 1}{'abc'[index % sublayers]}"
                if output is None:
                    place = "output"
                for name, source in find_sources(stack.connection, Trace(states, added)).items():
                    weights = source.weight.expand(embedded.shape[:2]).flatten().tolist()
                    values[side].setdefault((place, name), []).extend(weights)
                if output is not None:
                    above = output[0] if side == "decoder" else output
                    added.append(stream_of(above) - stream_of(states[-1]))
                    states.append(stack.connection.update(states[-1], index, above))
    return values


@pytest.mark.parametrize(("form", "unit"), [*((form, "layer") for form in FORMS), ("average", "sub-layer"),
                                           ("attention", "sub-layer"), ("hyper", "sub-layer")])  # fmt: skip
def test_is_the_second_reading_whatever_the_batches(form: str, unit: str, tmp_path: Path, data: str) -> None:
    loaded = model_of(tmp_path, data, form, connection_unit=unit)
    expected = read_weights(loaded)
    for max_tokens in (1, 15, 1000):
        for side, rows in measured(loaded, max_tokens).items():
            assert [(row.layer, row.source) for row in rows] == list(expected[side])
            for row in rows:
                values = torch.tensor(expected[side][row.layer, row.source], dtype=torch.float64)
                assert row.weight.mean == pytest.approx(float(values.mean()), rel=1e-6, abs=1e-5)
                assert row.weight.deviation == pytest.approx(float(values.std(correction=0)), rel=1e-6, abs=1e-5)


def read_loss(loaded: LoadedModel) -> float:
    """Bits a token, from sentences that are run alone."""
    bits, tokens = 0.0, 0
    for sentence in loaded.dataset("valid"):
        target = sentence["target"]
        logits, _ = loaded.model(sentence["source"][None], None, torch.cat([target[-1:], target[:-1]])[None])
        bits -= float(logits[0].log_softmax(dim=-1).gather(1, target[:, None]).sum()) / math.log(2)
        tokens += len(target)
    return bits / tokens


@torch.no_grad()
@pytest.mark.parametrize(("form", "block_size"), [("average", 0), ("value-residual", 0), ("blocks", 2)])
def test_cost_is_that_of_a_weight_of_0(form: str, block_size: int, tmp_path: Path, data: str) -> None:
    options = {"encoder_block_size": block_size, "decoder_connection": "average"}
    loaded = model_of(tmp_path, data, form, **options)
    whole = read_loss(loaded)
    for side, rows in measured(loaded, 15, ablate=True).items():
        weights = [(row, place) for row in getattr(loaded.model, side).connection.rows for place in range(len(row))]
        for (row, place), one in zip(weights, rows, strict=True):
            kept, row[place] = float(row[place]), 0
            assert one.cost == pytest.approx(read_loss(loaded) - whole, abs=1e-5)
            row[place] = kept
    assert read_loss(loaded) == whole


@pytest.mark.parametrize("form", ["attention", "hyper"])
def test_cost_of_weights_by_content_does_not_depend_on_batches(form: str, tmp_path: Path, data: str) -> None:
    loaded = model_of(tmp_path, data, form, connection_unit="sub-layer")
    costs = [[row.cost for row in measured(loaded, size, ablate=True)["decoder"]] for size in (15, 1000)]
    assert costs[0] == pytest.approx(costs[1], abs=1e-5)
    assert all(costs[0])


def test_a_weight_of_0_costs_nothing_and_the_only_source_much(tmp_path: Path, data: str) -> None:
    options = {"encoder_connection": "average", "decoder_connection": "average", "encoder_block_size": 0}
    loaded = load_model(checkpoint_of(tmp_path, "sdt_transformer", **options), data)
    model = loaded.model
    for stack in (model.encoder, model.decoder):
        for row in stack.connection.rows:
            row.data = torch.eye(len(row))[-1]  # each layer reads the one below alone
    optimizer = torch.optim.Adam([one for name, one in model.named_parameters() if "connection.rows" not in name], 5e-3)
    (batch,) = loaded.batches("valid", max_tokens=1000)
    for _ in range(60):
        logits, _ = model(**batch["net_input"])
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits.transpose(1, 2), batch["target"], ignore_index=1).backward()
        optimizer.step()
    for rows in measured(loaded, 1000, ablate=True).values():
        for row in rows:
            assert row.cost is not None
            if row.weight.mean == 0:
                assert row.cost == 0
            elif row.layer == "output":
                assert row.cost > 1
