"""What the stacks of every family do: decoding step by step, alignment, padding, tied tables, precision."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tiny_models import EOS, FAMILIES, PAD, SOURCE, TARGET, build_tiny

from fairseq_depthwise.models.base.model import StackModel

every_family = pytest.mark.parametrize("family", FAMILIES)

# --- decoding ----------------------------------------------------------------------------------------------------


@every_family
def test_step_by_step_is_all_at_once(family: str) -> None:
    require_steps_give_the_whole(build_tiny(family).double())


def require_steps_give_the_whole(model: StackModel) -> None:
    """The decoder, a position at a time, has the scores that it has for all positions at once."""
    with torch.no_grad():
        encoded = model.encoder(SOURCE)
        whole = model.decoder(TARGET, encoded)[0]
        state: dict[str, Any] = {}
        for t in range(TARGET.size(1)):
            step = model.decoder(TARGET[:, : t + 1], encoded, incremental_state=state)[0]
            real = TARGET[:, t] != PAD  # the beam search feeds no padding
            torch.testing.assert_close(step[real, 0], whole[real, t])


@every_family
def test_step_by_step_follows_beams_and_finished_sentences(family: str) -> None:
    """What beam search does: repeat each sentence, exchange beams, drop a finished sentence."""
    model = build_tiny(family).double()
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


@every_family
def test_a_copied_layer_has_a_cache_of_its_own(family: str) -> None:
    """Growth copies layers; caches keyed by something that is copied along would collide."""
    model = build_tiny(family).double()
    model.decoder.layers.append(copy.deepcopy(model.decoder.layers[-1]))
    require_steps_give_the_whole(model)


@every_family
def test_alignment_is_a_distribution_over_the_source(family: str) -> None:
    model = build_tiny(family)
    with torch.no_grad():
        attention = model(SOURCE, None, TARGET)[1]["attn"][0]
        chosen = model.decoder(TARGET, model.encoder(SOURCE), alignment_layer=0, alignment_heads=1)[1]["attn"][0]
    assert attention.shape == chosen.shape == (3, 4, 5)
    torch.testing.assert_close(attention.sum(-1), torch.ones(3, 4))
    assert attention[SOURCE.eq(PAD)[:, None].expand_as(attention)].max() == 0
    assert not torch.allclose(attention, chosen)
    model.train()
    assert model(SOURCE, None, TARGET)[1]["attn"] == [None]


@every_family
def test_left_padded_targets(family: str) -> None:
    model = build_tiny(family).double()
    left = torch.tensor([[PAD, EOS, 6, 5]])
    with torch.no_grad():
        padded = model(SOURCE[1:2], None, left)[0]
        torch.testing.assert_close(padded[:, 1:], model(SOURCE[1:2], None, left[:, 1:])[0])


@every_family
def test_every_layer_is_visible(family: str) -> None:
    model = build_tiny(family, encoder_layers=2)
    encoded = model.encoder(SOURCE, return_all_hiddens=True)
    assert [tuple(hidden.shape) for hidden in encoded["encoder_states"]] == [(5, 3, 16)] * 3
    assert len(model.decoder(TARGET, encoded)[1]["inner_states"]) == 4
    assert encoded["src_lengths"][0].tolist() == [[3], [5], [4]]


@every_family
def test_embeddings_are_tied_as_asked(family: str) -> None:
    def tables(**options: Any) -> int:
        model = build_tiny(family, **options)
        weights = (model.encoder.embedding.tokens, model.decoder.embedding.tokens, model.decoder.output_projection)
        return len({module.weight.data_ptr() for module in weights})

    assert tables() == 3
    assert tables(share_decoder_input_output_embed=True) == 2
    assert tables(share_all_embeddings=True) == 1


# --- precision -------------------------------------------------------------------------------------------------------


@every_family
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_forward_is_near(family: str, dtype: torch.dtype) -> None:
    model = build_tiny(family)
    with torch.no_grad():
        expected = model(SOURCE, None, TARGET)[0].softmax(-1)
        found = model.to(dtype)(SOURCE, None, TARGET)[0].float().softmax(-1)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.05)
