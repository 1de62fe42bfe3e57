"""The shallow-to-deep model: fairseq's own Transformer where nothing is added, block connections, the penalty."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.models import FairseqEncoderDecoderModel
from fairseq.models.transformer import TransformerModel
from fairseq.models.transformer.transformer_legacy import base_architecture
from second_reading_sdt import read_encoder
from tiny_models import FAMILIES, PAD, SOURCE, TARGET, build_tiny, task_of
from torch import Tensor, nn

from fairseq_depthwise.checkpoints.stock_transformer import names_of_sdt

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


# --- block connections -----------------------------------------------------------------------------------------------


def sentences() -> list[tuple[int, Tensor, Tensor]]:
    """Number, what is real of the padded source (S), and the source without padding."""
    return [(b, SOURCE[b] != PAD, SOURCE[b][SOURCE[b] != PAD]) for b in range(3)]


def encoder_layers_that_run(model: FairseqEncoderDecoderModel) -> set[int]:
    """Filled in the next forward."""
    ran: set[int] = set()
    for number, layer in enumerate(model.encoder.layers):
        layer.register_forward_hook(lambda *_, number=number: ran.add(number))
    return ran


@every_block_size
@pytest.mark.parametrize("layerdrop", [0.5, 1 - 1e-9])
def test_skipped_layers_leave_the_blocks_as_they_are(block_size: int, layerdrop: float) -> None:
    """Also where no layer is left but the connection."""
    seen = set()
    model = build(block_size, encoder_layerdrop=layerdrop, **NO_DROPOUT).double().train()
    ran = encoder_layers_that_run(model)
    with torch.no_grad():
        for seed in range(12 if layerdrop == 0.5 else 1):
            ran.clear()
            torch.manual_seed(seed)
            output = model.encoder(SOURCE)["encoder_out"][0]
            skipped = {0, 1, 2, 3} - ran
            seen.add(frozenset(skipped))
            for b, real, source in sentences():
                read = read_encoder(model, source, {"encoder_block_size": block_size}, skipped).output
                torch.testing.assert_close(output[real, b], read, **TOLERANCE)
    assert len(seen) > 6 or seen == {frozenset(range(4))}
