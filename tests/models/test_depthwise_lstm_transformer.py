"""The whole model: the paper's layers read a second time, published parameter counts, decoding, precision."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from second_reading import read_features
from tiny_models import EOS, PAD, SOURCE, TARGET, build_tiny, task_of

from fairseq_depthwise.models.depthwise_lstm_transformer import DepthwiseLSTMTransformer, DepthwiseLSTMTransformerConfig

# --- the equations -----------------------------------------------------------------------------------------------


def test_forward_is_the_paper_sentence_by_sentence() -> None:
    """Also shows that padding and the other sentences of a batch change nothing."""
    model = build_tiny().double()
    with torch.no_grad():
        batched = model(SOURCE, None, TARGET)[0]
        for b in range(3):
            source, target = SOURCE[b][SOURCE[b] != PAD], TARGET[b][TARGET[b] != PAD]
            alone = model(source[None], None, target[None])[0][0]
            read = F.linear(read_features(model, source, target, {}), model.decoder.output_projection.weight)
            torch.testing.assert_close(alone, read, rtol=1e-5, atol=1e-5)  # the package's sinusoids are float32
            torch.testing.assert_close(batched[b, : len(target)], alone)


# --- decoding ----------------------------------------------------------------------------------------------------


def test_step_by_step_is_all_at_once() -> None:
    model = build_tiny().double()
    with torch.no_grad():
        encoded = model.encoder(SOURCE)
        whole = model.decoder(TARGET, encoded)[0]
        state: dict[str, Any] = {}
        for t in range(TARGET.size(1)):
            step = model.decoder(TARGET[:, : t + 1], encoded, incremental_state=state)[0]
            real = TARGET[:, t] != PAD  # the beam search feeds no padding
            torch.testing.assert_close(step[real, 0], whole[real, t])


def test_step_by_step_follows_beams_and_finished_sentences() -> None:
    """What beam search does: repeat each sentence, exchange beams, drop a finished sentence."""
    model = build_tiny().double()
    beams = torch.tensor([0, 0, 1, 1, 2, 2])
    target = TARGET[beams].clone()
    target[1::2, 1] = 7  # the second beams differ
    with torch.no_grad():
        encoded = model.encoder.reorder_encoder_out(model.encoder(SOURCE), beams)
        state: dict[str, Any] = {}
        for t in range(2):
            model.decoder(target[:, : t + 1], encoded, incremental_state=state)
        order = torch.tensor([1, 1, 5, 4])  # sentence 0 keeps its second beam twice, 1 is done, 2 swaps
        target, encoded = target[order], model.encoder.reorder_encoder_out(encoded, order)
        model.decoder.reorder_incremental_state_scripting(state, order)
        step = model.decoder(target[:, :3], encoded, incremental_state=state)[0]
        torch.testing.assert_close(step[:, 0], model.decoder(target[:, :3], encoded)[0][:, 2])


def test_a_copied_layer_has_a_cache_of_its_own() -> None:
    """Growth copies layers; caches keyed by something that is copied along would collide."""
    model = build_tiny().double()
    model.decoder.layers.append(copy.deepcopy(model.decoder.layers[-1]))
    with torch.no_grad():
        encoded = model.encoder(SOURCE)
        whole = model.decoder(TARGET, encoded)[0]
        state: dict[str, Any] = {}
        for t in range(TARGET.size(1)):
            step = model.decoder(TARGET[:, : t + 1], encoded, incremental_state=state)[0]
            real = TARGET[:, t] != PAD  # the beam search feeds no padding
            torch.testing.assert_close(step[real, 0], whole[real, t])


def test_alignment_is_a_distribution_over_the_source() -> None:
    model = build_tiny()
    with torch.no_grad():
        attention = model(SOURCE, None, TARGET)[1]["attn"][0]
        chosen = model.decoder(TARGET, model.encoder(SOURCE), alignment_layer=0, alignment_heads=1)[1]["attn"][0]
    assert attention.shape == chosen.shape == (3, 4, 5)
    torch.testing.assert_close(attention.sum(-1), torch.ones(3, 4))
    assert attention[SOURCE.eq(PAD)[:, None].expand_as(attention)].max() == 0
    assert not torch.allclose(attention, chosen)
    model.train()
    assert model(SOURCE, None, TARGET)[1]["attn"] == [None]


def test_left_padded_targets() -> None:
    model = build_tiny().double()
    left = torch.tensor([[PAD, EOS, 6, 5]])
    with torch.no_grad():
        padded = model(SOURCE[1:2], None, left)[0]
        torch.testing.assert_close(padded[:, 1:], model(SOURCE[1:2], None, left[:, 1:])[0])


def test_every_layer_is_visible() -> None:
    model = build_tiny(encoder_layers=2)
    encoded = model.encoder(SOURCE, return_all_hiddens=True)
    assert [tuple(hidden.shape) for hidden in encoded["encoder_states"]] == [(5, 3, 16)] * 3
    assert len(model.decoder(TARGET, encoded)[1]["inner_states"]) == 4
    assert encoded["src_lengths"][0].tolist() == [[3], [5], [4]]


# --- parameters ----------------------------------------------------------------------------------------------------


def count_on_meta(**options: Any) -> int:
    """Number of parameters with the vocabulary and tying of the papers' tables, without allocating any."""
    vocabulary = 35_627
    with torch.device("meta"):
        model = DepthwiseLSTMTransformer.build_model(
            SimpleNamespace(share_all_embeddings=True, **options), task_of(vocabulary, vocabulary)
        )
    # The published counts include the classifier's bias, which fairseq's tied projection does not have.
    return sum(parameter.numel() for parameter in model.parameters()) + vocabulary


@pytest.mark.parametrize(
    ("layers", "published"),
    [(3, "46.63"), (12, "122.23"), (18, "172.63"), (24, "223.02")],
    ids=lambda value: f"{value}",
)
def test_published_parameter_counts(layers: int, published: str) -> None:
    """Table 6; its 6-layer row shares one set of gates across both stacks, which is not the default."""
    assert f"{count_on_meta(encoder_layers=layers, decoder_layers=layers) / 1e6:.2f}" == published


def test_parameter_count_of_the_base_model() -> None:
    """6+6 layers as the text says it: one set of gates for each stack (the paper's table has one for both)."""
    d, hidden, vocabulary = 512, 2048, 35_627
    attention, norm = 4 * d * d, 2 * d
    net = 2 * d * hidden + 2 * hidden + hidden // 2 * d
    gates = 3 * (2 * d * d + norm)
    layers = 6 * (attention + net) + 6 * (2 * attention + net)
    norms = (6 - 1) * norm + 2 * (6 - 1) * norm + 2 * norm
    assert count_on_meta() == vocabulary * d + vocabulary + layers + 2 * gates + norms


def test_embeddings_are_tied_as_asked() -> None:
    def tables(**options: Any) -> int:
        model = build_tiny(**options)
        weights = (model.encoder.embedding.tokens, model.decoder.embedding.tokens, model.decoder.output_projection)
        return len({module.weight.data_ptr() for module in weights})

    assert tables() == 3
    assert tables(share_decoder_input_output_embed=True) == 2
    assert tables(share_all_embeddings=True) == 1


# --- the rest --------------------------------------------------------------------------------------------------------


def test_a_configuration_from_an_older_version_is_completed() -> None:
    config = DepthwiseLSTMTransformerConfig.complete(SimpleNamespace(encoder_layers=2))
    assert (config.encoder_layers, config.depthwise_hidden_dim) == (2, 2048)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_forward_is_near(dtype: torch.dtype) -> None:
    model = build_tiny()
    with torch.no_grad():
        expected = model(SOURCE, None, TARGET)[0].softmax(-1)
        found = model.to(dtype)(SOURCE, None, TARGET)[0].float().softmax(-1)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.05)
