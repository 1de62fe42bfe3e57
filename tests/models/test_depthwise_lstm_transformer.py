"""The whole model: the paper's layers read a second time, published parameter counts, decoding, options."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, FairseqEncoderDecoderModel
from tiny_models import TINY, build_tiny, task_of
from torch import Tensor, nn

from fairseq_compat import UserError
from fairseq_depthwise.models.depthwise_lstm_transformer import DepthwiseLSTMTransformer, DepthwiseLSTMTransformerConfig

PAD, EOS = 1, 2

SOURCE = torch.tensor([[PAD, PAD, 5, 6, EOS], [4, 7, 8, 9, EOS], [PAD, 10, 11, 4, EOS]])
TARGET = torch.tensor([[EOS, 6, 5, PAD], [EOS, 9, 8, 7], [EOS, 4, 11, PAD]])


# --- the equations, read again -----------------------------------------------------------------------------------


def read_cell(cell: nn.Module, attended: Tensor, output: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
    """Eqs 1-8 gate by gate, with the functional forms and slices of the stored parameters."""
    width = output.size(-1)
    joined = torch.cat((output, attended), -1)

    def gate(index: int) -> Tensor:
        rows = cell.gates.projection.weight[index * width : (index + 1) * width]
        weight, bias = cell.gates.norm_weight[index], cell.gates.norm_bias[index]
        return torch.sigmoid(F.layer_norm(F.linear(joined, rows), (width,), weight, bias, 1e-6))

    net = cell.hidden_net
    wide = F.layer_norm(
        F.linear(joined, net.first.weight), (net.norm.weight.numel(),), net.norm.weight, net.norm.bias, 1e-6
    )
    left, right = wide.chunk(2, -1)
    new = past * gate(1) + F.linear(left * right.sigmoid(), net.second.weight) * gate(0)
    return new * gate(2), new


def read_attention(attention: nn.Module, query: Tensor, source: Tensor, hidden: Tensor) -> Tensor:
    """``hidden`` (T x S or S, True where not to look) for one sentence: query T x C, source S x C."""
    heads, width = attention.heads, query.size(-1)

    def split(layer: nn.Linear, x: Tensor) -> Tensor:
        return layer(x).view(x.size(0), heads, width // heads).transpose(0, 1)

    scores = split(attention.query_projection, query) @ split(attention.key_projection, source).transpose(1, 2)
    scores = (scores / (width // heads) ** 0.5).masked_fill(hidden, float("-inf"))
    joined = scores.softmax(-1) @ split(attention.value_projection, source)
    return attention.output_projection(joined.transpose(0, 1).reshape(-1, width))


def read_model(model: FairseqEncoderDecoderModel, source: Tensor, target: Tensor) -> Tensor:
    """The scores (T x V) of one sentence without padding: Sections 2.2 and 2.3 layer by layer."""
    encoder, decoder = model.encoder, model.decoder
    output = cell = encoder.embedding(source[None])[:, 0]
    nothing = torch.zeros(len(source), dtype=torch.bool)
    for number, layer in enumerate(encoder.layers, start=1):
        x = output if number == 1 else layer.input_norm(output)
        output, cell = read_cell(layer.cell, read_attention(layer.self_attention, x, x, nothing), output, cell)
    encoded = encoder.connection.final_norm(output)

    output = cell = decoder.embedding(target[None])[:, 0]
    future = torch.ones(len(target), len(target), dtype=torch.bool).triu(1)
    for number, layer in enumerate(decoder.layers, start=1):
        x = output if number == 1 else layer.input_norm(output)
        s = read_attention(layer.self_attention, x, x, future)
        query = s + output if number == 1 else layer.query_norm(s + output)
        c = read_attention(layer.cross_attention, query, encoded, nothing)
        output, cell = read_cell(layer.cell, s + c, output, cell)
    return decoder.connection.final_norm(output) @ decoder.output_projection.weight.T


def test_forward_is_the_paper_sentence_by_sentence() -> None:
    """Also shows that padding and the other sentences of a batch change nothing."""
    model = build_tiny().double()
    with torch.no_grad():
        batched = model(SOURCE, None, TARGET)[0]
        for b in range(3):
            source, target = SOURCE[b][SOURCE[b] != PAD], TARGET[b][TARGET[b] != PAD]
            alone = model(source[None], None, target[None])[0][0]
            torch.testing.assert_close(alone, read_model(model, source, target))
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
    """Table 5; its 6-layer row shares one set of gates across both stacks, which is not the default."""
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


def test_gates_are_one_per_stack_and_hidden_nets_one_per_layer() -> None:
    model = build_tiny()
    encoder_gates = {layer.cell.gates.projection.weight.data_ptr() for layer in model.encoder.layers}
    decoder_gates = {layer.cell.gates.projection.weight.data_ptr() for layer in model.decoder.layers}
    nets = {layer.cell.hidden_net.first.weight.data_ptr() for layer in [*model.encoder.layers, *model.decoder.layers]}
    assert len(encoder_gates) == len(decoder_gates) == 1
    assert encoder_gates != decoder_gates
    assert len(nets) == 6


def test_every_parameter_gets_a_gradient() -> None:
    model = build_tiny().train()
    model(SOURCE, None, TARGET)[0].logsumexp(-1).sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_activation_checkpointing_changes_memory_only() -> None:
    gradients = []
    for checkpointed in (False, True):
        model = build_tiny(checkpoint_activations=checkpointed, dropout=0.3).train()
        torch.manual_seed(5)
        model(SOURCE, None, TARGET)[0].square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for plain, recomputed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, recomputed)


def test_embeddings_are_tied_as_asked() -> None:
    def tables(**options: Any) -> int:
        model = build_tiny(**options)
        weights = (model.encoder.embedding.tokens, model.decoder.embedding.tokens, model.decoder.output_projection)
        return len({module.weight.data_ptr() for module in weights})

    assert tables() == 3
    assert tables(share_decoder_input_output_embed=True) == 2
    assert tables(share_all_embeddings=True) == 1


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"dropout": 1.5}, "--dropout 1.5 is out of range; it must be at least 0 and below 1"),
        ({"dropout": -0.1}, "--dropout -0.1 is out of range"),
        ({"encoder_layers": 0}, "--encoder-layers 0 is out of range; it must be at least 1"),
        ({"encoder_attention_heads": 3}, "--encoder-attention-heads 3 does not divide --encoder-embed-dim 16; 2 does"),
        ({"depthwise_hidden_dim": 25}, "--depthwise-hidden-dim 25 is odd"),
        ({"decoder_embed_dim": 32}, "--encoder-embed-dim 16 and --decoder-embed-dim 32 differ"),
        ({"share_all_embeddings": True, "decoder_embed_path": "x"}, "--decoder-embed-path x contradicts"),
    ],
)
def test_bad_values_are_named(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as error:
        DepthwiseLSTMTransformer.build_model(SimpleNamespace(**(TINY | options)), task_of())
    assert sentence in str(error.value)


def test_one_table_needs_one_dictionary() -> None:
    with pytest.raises(UserError, match="12 and 15 entries; run fairseq-preprocess with --joined-dictionary"):
        DepthwiseLSTMTransformer.build_model(SimpleNamespace(**TINY, share_all_embeddings=True), task_of(12, 15))


def test_a_configuration_from_an_older_version_is_completed() -> None:
    config = DepthwiseLSTMTransformerConfig.complete(SimpleNamespace(encoder_layers=2))
    assert (config.encoder_layers, config.depthwise_hidden_dim) == (2, 2048)


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("iwslt_de_en", {"encoder_embed_dim": 512, "decoder_attention_heads": 4, "depthwise_hidden_dim": 1024}),
        ("wmt_en_de_big", {"decoder_embed_dim": 1024, "encoder_attention_heads": 16, "depthwise_hidden_dim": 4096}),
        ("wmt_en_fr_big", {"encoder_embed_dim": 1024, "depthwise_hidden_dim": 4096}),
        ("wmt_en_de", {}),
    ],
)
def test_presets_set_defaults_and_only_defaults(preset: str, expected: dict[str, Any]) -> None:
    name = f"depthwise_lstm_transformer_{preset}"
    assert ARCH_MODEL_REGISTRY[name] is DepthwiseLSTMTransformer
    args = SimpleNamespace(dropout=0.25, encoder_layers=9)
    ARCH_CONFIG_REGISTRY[name](args)
    assert {key: getattr(args, key) for key in expected} == expected
    assert (args.dropout, args.encoder_layers) == (0.25, 9)
    DepthwiseLSTMTransformerConfig.complete(args)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_forward_is_near(dtype: torch.dtype) -> None:
    model = build_tiny()
    with torch.no_grad():
        expected = model(SOURCE, None, TARGET)[0].softmax(-1)
        found = model.to(dtype)(SOURCE, None, TARGET)[0].float().softmax(-1)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.05)
