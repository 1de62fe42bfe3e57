"""Every variant of every family: the equations, decoding, saving, gradients, padding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import second_reading
import second_reading_mute
import second_reading_sdt
import torch
from fairseq.models import FairseqEncoderDecoderModel
from second_reading import read_log_probabilities
from tiny_models import EOS, MUTE_VARIANTS, PAD, SDT_VARIANTS, SOURCE, TARGET, VARIANTS, build_tiny
from torch import Tensor

ALL = VARIANTS | SDT_VARIANTS | MUTE_VARIANTS
every_variant = pytest.mark.parametrize("options", ALL.values(), ids=ALL)

READINGS = {
    "depthwise_lstm_transformer": second_reading.read_features,
    "sdt_transformer": second_reading_sdt.read_features,
    "mute_transformer": second_reading_mute.read_features,
}


def sentences() -> Iterator[tuple[int, Tensor, Tensor]]:
    """Number, source and target of each sentence, without padding."""
    for b in range(3):
        yield b, SOURCE[b][SOURCE[b] != PAD], TARGET[b][TARGET[b] != PAD]


def features(model: FairseqEncoderDecoderModel, source: Tensor, target: Tensor) -> Tensor:
    """B x T x C, what the output projection gets."""
    return model.decoder(target, model.encoder(source), features_only=True)[0]


def log_probabilities(model: FairseqEncoderDecoderModel, source: Tensor, target: Tensor) -> Tensor:
    """B x T x V."""
    return model.get_normalized_probs(model(source, None, target), log_probs=True)


@every_variant
def test_forward_is_the_paper(options: dict[str, Any]) -> None:
    model = build_tiny(**options).double()
    read_features = READINGS[options.get("name", "depthwise_lstm_transformer")]
    with torch.no_grad():
        for _, source, target in sentences():
            read = read_features(model, source, target, options)
            # The package's sinusoids are float32.
            found = features(model, source[None], target[None])[0]
            torch.testing.assert_close(found, read, rtol=1e-5, atol=1e-5)
            found = log_probabilities(model, source[None], target[None])[0].double()
            torch.testing.assert_close(found, read_log_probabilities(model, read), rtol=1e-5, atol=1e-5)


@every_variant
def test_padding_and_neighbors_change_nothing(options: dict[str, Any]) -> None:
    model = build_tiny(**options).double()
    with torch.no_grad():
        batched = features(model, SOURCE, TARGET)
        for b, source, target in sentences():
            torch.testing.assert_close(batched[b, : len(target)], features(model, source[None], target[None])[0])


def search(model: FairseqEncoderDecoderModel, dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
    """Each step of a search that exchanges beams and drops finished sentences, three with two beams at first.

    Yields the newest position's features (N x C), and for each row its sentence's number and its target so far.
    """
    rows = torch.tensor([0, 0, 1, 1, 2, 2])
    tokens = torch.tensor([[EOS], [EOS], [EOS], [EOS], [EOS], [EOS]])
    encoded = model.encoder.reorder_encoder_out(model.encoder(SOURCE), rows)
    state: dict[str, Any] = {}
    generator = torch.Generator().manual_seed(3)
    orders = {
        1: [1, 0, 2, 2, 5, 5],  # sentence 0 swaps its beams, 1 goes on with its first, 2 with its second
        2: [1, 1, 5, 4],  # sentence 1 is finished
        4: [2, 3],  # sentence 0 is finished
    }
    for t in range(6):
        if t in orders:
            order = torch.tensor(orders[t])
            rows, tokens = rows[order], tokens[order]
            encoded = model.encoder.reorder_encoder_out(encoded, order)
            model.decoder.reorder_incremental_state_scripting(state, order)
        step = model.decoder(tokens, encoded, incremental_state=state, features_only=True)[0]
        assert step.shape[1] == 1
        assert step.dtype == dtype
        yield step[:, 0], torch.cat([rows[:, None], tokens], dim=1)
        chosen = torch.randint(4, 12, (len(rows), 1), generator=generator)
        tokens = torch.cat([tokens, chosen], dim=1)


@every_variant
def test_step_by_step_is_all_at_once(options: dict[str, Any]) -> None:
    model = build_tiny(**options).double()
    fast = build_tiny(**options)
    fast.make_generation_fast_()
    with torch.no_grad():
        for (step, history), (packed_step, _) in zip(
            search(model, torch.float64), search(fast, torch.float32), strict=True
        ):
            whole = features(model, SOURCE[history[:, 0]], history[:, 1:])[:, -1]
            torch.testing.assert_close(step, whole)
            torch.testing.assert_close(packed_step, whole.float(), rtol=1e-4, atol=1e-4)


@every_variant
def test_preparing_for_generation_changes_no_value(options: dict[str, Any]) -> None:
    model = build_tiny(**options)
    with torch.no_grad():
        before = log_probabilities(model, SOURCE, TARGET)
        model.make_generation_fast_()
        torch.testing.assert_close(log_probabilities(model, SOURCE, TARGET), before, rtol=1e-5, atol=1e-5)


@every_variant
def test_saved_and_loaded_is_the_same(options: dict[str, Any], tmp_path: Path) -> None:
    model = build_tiny(**options)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    other = build_tiny(**options)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    other.load_state_dict(torch.load(tmp_path / "model.pt"))
    with torch.no_grad():
        assert torch.equal(log_probabilities(other, SOURCE, TARGET), log_probabilities(model, SOURCE, TARGET))


@every_variant
def test_every_parameter_gets_a_gradient(options: dict[str, Any]) -> None:
    model = build_tiny(**options).double().train()
    log_probabilities(model, SOURCE, TARGET).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # A softmax does not change when all its scores move by the same amount, so this one's gradient is zero.
        if not name.endswith("key_projection.bias"):
            assert parameter.grad.abs().max() > 1e-9, name
