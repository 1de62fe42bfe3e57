"""The shallow-to-deep model: fairseq's own Transformer where nothing is added, block connections, the penalty."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.models.transformer import TransformerModel
from fairseq.models.transformer.transformer_legacy import base_architecture
from fairseq.sequence_generator import SequenceGenerator
from second_reading_sdt import read_encoder
from tiny_models import FAMILIES, PAD, SOURCE, TARGET, build_tiny, task_of
from torch import Tensor, nn

from fairseq_depthwise.checkpoints.stock_transformer import names_of_sdt
from fairseq_depthwise.models.base.config import both_sides
from fairseq_depthwise.models.sdt.model import SDTTransformer
from fairseq_depthwise.models.sdt.similarity import inter_similarity_penalty
from fairseq_depthwise.modules.dropout import Dropout

SDT = "sdt_transformer"
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}

#: Stock fairseq's softmax and both models' sinusoids are float32, also in a double model.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}

#: p = 0 (no connections), 1 (dense), 2 and L, in an encoder of four layers.
every_block_size = pytest.mark.parametrize("block_size", [0, 1, 2, 4])


def build(block_size: int, **options: Any) -> FairseqEncoderDecoderModel:
    return build_tiny(SDT, encoder_block_size=block_size, **options)


# --- what remains without connections and relative positions ---------------------------------------------------------


def stock_and_ours(**options: Any) -> tuple[FairseqEncoderDecoderModel, FairseqEncoderDecoderModel]:
    """fairseq's pre-norm ``transformer``, every parameter random, and the model of ours that has its parameters."""
    torch.manual_seed(1)
    args = SimpleNamespace(
        **(FAMILIES[SDT] | NO_DROPOUT | options), encoder_normalize_before=True, decoder_normalize_before=True
    )
    base_architecture(args)
    stock = TransformerModel.build_model(args, task_of())
    for name, parameter in stock.named_parameters():
        if "norm" in name or "bias" in name:
            nn.init.normal_(parameter, mean=0.5, std=0.5)
    ours = build(0, max_relative_positions=0, **NO_DROPOUT, **options)
    names, _ = names_of_sdt(stock.state_dict(), "the stock model")
    ours.load_state_dict(names)
    return stock.double().eval(), ours.double()


@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask:UserWarning")  # the stock encoder's call
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"activation_fn": "gelu"},
        {"share_all_embeddings": True},
        {"encoder_learned_pos": True, "decoder_learned_pos": True},
    ],
    ids=str,
)
def test_without_connections_it_is_fairseqs_pre_norm_transformer(options: dict[str, Any]) -> None:
    stock, ours = stock_and_ours(**options)
    sources, targets = SOURCE.ne(PAD).T, TARGET.ne(PAD)
    with torch.no_grad():
        encoded = [model.encoder(SOURCE)["encoder_out"][0][sources] for model in (stock, ours)]
        torch.testing.assert_close(encoded[1], encoded[0], **TOLERANCE)
        scores = [model(SOURCE, None, TARGET)[0][targets] for model in (stock, ours)]
        torch.testing.assert_close(scores[1], scores[0], **TOLERANCE)

    gradients = []
    for model in (stock.train(), ours.train()):
        model(SOURCE, None, TARGET)[0][targets].log_softmax(-1)[:, 5].sum().backward()
        gradients.append({name: one.grad for name, one in model.named_parameters() if one.grad is not None})
    expected, _ = names_of_sdt(gradients[0], "the stock model")
    assert gradients[1].keys() == expected.keys()
    for name, gradient in gradients[1].items():
        torch.testing.assert_close(gradient, expected[name], **TOLERANCE, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask:UserWarning")
def test_a_beam_search_finds_what_it_finds_in_fairseqs() -> None:
    batch = {"net_input": {"src_tokens": SOURCE, "src_lengths": SOURCE.ne(PAD).sum(1)}}
    found = []
    for model in stock_and_ours():
        search = SequenceGenerator([model], task_of().target_dictionary, beam_size=3, max_len_b=6)
        found.append([[(h["tokens"].tolist(), h["score"]) for h in beams] for beams in search.generate([model], batch)])
    assert [len(beams) for beams in found[0]] == [3, 3, 3]
    for stocks, ours in zip(*found, strict=True):
        assert [tokens for tokens, _ in ours] == [tokens for tokens, _ in stocks]
        assert [float(score) for _, score in ours] == pytest.approx([float(score) for _, score in stocks], rel=1e-5)


def test_it_starts_as_the_authors_program() -> None:
    """Uniform up to sqrt(6 / (rows + columns)) for queries, keys and values together; no bias; norms do nothing."""
    d, wide, head = 64, 256, 32
    ends = {
        "query_projection.weight": math.sqrt(6 / (3 * d + d)),
        "key_projection.weight": math.sqrt(6 / (3 * d + d)),
        "value_projection.weight": math.sqrt(6 / (3 * d + d)),
        "output_projection.weight": math.sqrt(6 / (d + d)),
        "feed_forward.first.weight": math.sqrt(6 / (wide + d)),
        "feed_forward.second.weight": math.sqrt(6 / (d + wide)),
        "relative_positions.key_table": math.sqrt(6 / (17 + head)),
    }
    sizes = {"embed_dim": d, "ffn_embed_dim": wide, "attention_heads": 2, "layers": 6}
    torch.manual_seed(1)
    model = SDTTransformer.build_model(SimpleNamespace(**both_sides(**sizes)), task_of(200, 200))
    for name, parameter in model.named_parameters():
        if "layers" in name and parameter.dim() == 2:
            end = next(value for ending, value in ends.items() if name.endswith(ending))
            assert 0.98 * end < parameter.abs().max() <= end, name
            assert parameter.std().item() == pytest.approx(end / math.sqrt(3), rel=0.05), name
        elif parameter.dim() == 2:
            assert parameter[2:].std().item() == pytest.approx(d**-0.5, rel=0.05), name
        elif "connection.rows" not in name:
            assert set(parameter.tolist()) == {1.0 if name.endswith("weight") else 0.0}, name
    assert not model.encoder.embedding.tokens.weight[PAD].any()


# --- block connections -----------------------------------------------------------------------------------------------


def sentences() -> list[tuple[int, Tensor, Tensor]]:
    """Number, what is real of the padded source (S), and the source without padding."""
    return [(b, SOURCE[b] != PAD, SOURCE[b][SOURCE[b] != PAD]) for b in range(3)]


@every_block_size
def test_the_encoder_and_each_of_its_layers_are_the_papers(block_size: int) -> None:
    """In a padded batch, read sentence by sentence without padding."""
    model = build(block_size).double()
    with torch.no_grad():
        encoded = model.encoder(SOURCE, return_all_hiddens=True)
        assert len(encoded["encoder_states"]) == 5
        for b, real, source in sentences():
            read = read_encoder(model, source, {"encoder_block_size": block_size})
            torch.testing.assert_close(encoded["encoder_out"][0][real, b], read.output, **TOLERANCE)
            for found, state in zip(encoded["encoder_states"], read.states, strict=True):
                torch.testing.assert_close(found[real, b], state, **TOLERANCE)


def encoder_layers_that_run(model: FairseqEncoderDecoderModel) -> set[int]:
    """Filled in the next forward."""
    ran: set[int] = set()
    for number, layer in enumerate(model.encoder.layers):
        layer.register_forward_hook(lambda *_, number=number: ran.add(number))
    return ran


@every_block_size
def test_skipped_layers_keep_the_borders_of_blocks(block_size: int) -> None:
    seen = set()
    model = build(block_size, encoder_layerdrop=0.5, **NO_DROPOUT).double().train()
    ran = encoder_layers_that_run(model)
    with torch.no_grad():
        for seed in range(12):
            ran.clear()
            torch.manual_seed(seed)
            output = model.encoder(SOURCE)["encoder_out"][0]
            skipped = {0, 1, 2, 3} - ran
            seen.add(frozenset(skipped))
            for b, real, source in sentences():
                read = read_encoder(model, source, {"encoder_block_size": block_size}, skipped).output
                torch.testing.assert_close(output[real, b], read, **TOLERANCE)
    assert len(seen) > 6


@every_block_size
def test_without_any_layer_the_connection_remains(block_size: int) -> None:
    model = build(block_size, encoder_layerdrop=1 - 1e-9, **NO_DROPOUT).double().train()
    ran = encoder_layers_that_run(model)
    with torch.no_grad():
        output = model.encoder(SOURCE)["encoder_out"][0]
        for b, real, source in sentences():
            read = read_encoder(model, source, {"encoder_block_size": block_size}, range(4)).output
            torch.testing.assert_close(output[real, b], read, **TOLERANCE)
    assert ran == set()


def test_the_decoder_has_no_connections() -> None:
    """Only the encoder's grows; the authors' decoder allocates weights that it never reads."""
    names = [name for name, _ in build(1).named_parameters() if "connection" in name]
    assert {name for name in names if name.startswith("decoder")} == {
        f"decoder.connection.final_norm.{part}" for part in ("weight", "bias")
    }
    assert len([name for name in names if name.startswith("encoder.connection.rows")]) == 5


# --- training --------------------------------------------------------------------------------------------------------


def loss_and_gradients(model: FairseqEncoderDecoderModel, seed: int = 5) -> tuple[Tensor, dict[str, Tensor | None]]:
    """Of the translation and, where there is one, the penalty."""
    torch.manual_seed(seed)
    scores, extra = model.train()(SOURCE, None, TARGET)
    loss = -scores.float().log_softmax(-1)[TARGET.ne(PAD)][:, 5].mean()
    for auxiliary in extra["auxiliary_losses"].values():
        loss = loss + auxiliary.weight * auxiliary.value
    loss.backward()
    return loss.detach(), {name: one.grad for name, one in model.named_parameters()}


def test_every_dropout_has_its_option() -> None:
    model = build_tiny(SDT, dropout=0.1, attention_dropout=0.2, activation_dropout=0.3)
    found = {name: part.probability for name, part in model.named_modules() if isinstance(part, Dropout)}
    expected = {"encoder.embedding.dropout": 0.1, "decoder.embedding.dropout": 0.1}
    for side, layers, attentions in (("encoder", 4, ["self"]), ("decoder", 3, ["self", "cross"])):
        for layer in (f"{side}.layers.{number}" for number in range(layers)):
            expected |= {f"{layer}.dropout": 0.1, f"{layer}.feed_forward.activation_dropout": 0.3}
            expected |= {f"{layer}.{attention}_attention.dropout": 0.2 for attention in attentions}
    assert found == expected


@every_block_size
@pytest.mark.parametrize("layerdrop", [0.0, 0.4])
def test_activation_checkpointing_changes_memory_only(block_size: int, layerdrop: float) -> None:
    """With the penalty, which reads what each layer returned."""
    found = [
        loss_and_gradients(
            build(block_size, inter_similarity_weight=0.5, encoder_layerdrop=layerdrop, checkpoint_activations=given)
        )
        for given in (False, True)
    ]
    torch.testing.assert_close(*found)


@every_block_size
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_trains(block_size: int, dtype: torch.dtype) -> None:
    options = {"inter_similarity_weight": 0.5, **NO_DROPOUT}
    expected_loss, expected = loss_and_gradients(build(block_size, **options))
    loss, gradients = loss_and_gradients(build(block_size, **options).to(dtype))
    assert loss.item() == pytest.approx(expected_loss.item(), rel=0.05)
    for name, gradient in gradients.items():
        assert gradient is not None, name
        assert gradient.dtype == dtype
        assert gradient.isfinite().all(), name
        largest = expected[name].abs().max().item()
        assert (gradient.float() - expected[name]).abs().max() < 0.25 * largest + 1e-3, name


# --- the penalty -----------------------------------------------------------------------------------------------------


def naive_penalty(model: FairseqEncoderDecoderModel, block_size: int) -> float:
    """1 - the mean over layers and real positions of the cosine with the sentence's mean, from the second reading."""
    cosines: list[list[float]] = [[] for _ in model.encoder.layers]
    for _, _, source in sentences():
        layers = read_encoder(model, source, {"encoder_block_size": block_size}).states[1:]
        for number, states in enumerate(layers):
            mean = sum(states) / len(states)
            cosines[number] += [float(x @ mean / (x.norm() * mean.norm())) for x in states]
    return 1 - sum(sum(one) / len(one) for one in cosines) / len(cosines)


@every_block_size
@pytest.mark.parametrize("training", [True, False])
def test_the_penalty_is_one_minus_inter_similarity(block_size: int, training: bool) -> None:
    model = build(block_size, inter_similarity_weight=0.25, **NO_DROPOUT).double().train(training)
    with torch.no_grad():
        offered = model(SOURCE, None, TARGET)[1]["auxiliary_losses"]
        assert list(offered) == ["inter_similarity_penalty"]
        value, weight = offered["inter_similarity_penalty"][:2]
        assert value.item() == pytest.approx(naive_penalty(model, block_size), rel=1e-5)
    assert weight == 0.25


def test_the_penalty_reaches_the_layers_and_makes_positions_alike() -> None:
    model = build(2, inter_similarity_weight=1.0, **NO_DROPOUT).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    values = []
    for _ in range(10):
        optimizer.zero_grad()
        value = model(SOURCE, None, TARGET)[1]["auxiliary_losses"]["inter_similarity_penalty"].value
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert all(parameter.grad is not None for parameter in model.encoder.layers.parameters())
    assert values[-1] < 0.8 * values[0]


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_states_are_kept_only_where_the_penalty_reads_them(weight: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With weight 0 there is none; a beam search computes none, whatever the weight."""
    asked: list[bool] = []
    model = build(2, inter_similarity_weight=weight)
    encode = type(model.encoder).forward

    def record(self: nn.Module, *args: Any, **kwargs: Any) -> dict[str, list[Tensor]]:
        encoded = encode(self, *args, **kwargs)
        asked.append(bool(encoded["encoder_states"]))
        return encoded

    monkeypatch.setattr(type(model.encoder), "forward", record)
    offered = model.train()(SOURCE, None, TARGET)[1]["auxiliary_losses"]
    assert bool(offered) == asked.pop() == (weight > 0)
    search = SequenceGenerator([model.eval()], task_of().target_dictionary, beam_size=2, max_len_b=4)
    search.generate([model], {"net_input": {"src_tokens": SOURCE, "src_lengths": SOURCE.ne(PAD).sum(1)}})
    assert asked == [False]


def test_the_penalty_changes_no_other_number() -> None:
    plain, regular = build(2, **NO_DROPOUT), build(2, inter_similarity_weight=0.5, **NO_DROPOUT)
    assert torch.equal(plain(SOURCE, None, TARGET)[0], regular(SOURCE, None, TARGET)[0])
    assert plain.state_dict().keys() == regular.state_dict().keys()
    states = plain.encoder(SOURCE, return_all_hiddens=True)["encoder_states"]
    offered = regular(SOURCE, None, TARGET)[1]["auxiliary_losses"]["inter_similarity_penalty"]
    assert offered.value.item() == pytest.approx(inter_similarity_penalty(states[1:], SOURCE.eq(PAD)).item())
