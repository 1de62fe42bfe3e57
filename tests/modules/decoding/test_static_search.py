"""Searches in fixed tensors against searches whose tensors grow: the same scores at every step, whatever happens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_models import build_tiny
from torch import Tensor

from fairseq_depthwise.modules.decoding.static_search import StaticSearch, StaticSteps

FAMILIES = ("depthwise_lstm_transformer", "mute_transformer", "sdt_transformer")
BEAMS = 2


class Searches:
    """A static search beside the decoder's own, fed with the same tokens and exchanges."""

    def __init__(self, family: str, lengths: list[int], **options: Any) -> None:
        torch.manual_seed(1)
        self.model: Any = build_tiny(family, **options).eval()
        pad = self.model.decoder.dictionary.pad()
        tokens = torch.randint(4, 12, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(2))
        for row, length in enumerate(lengths):
            tokens[row, : max(lengths) - length] = pad
        self.encoder_out = self.model.encoder(tokens)
        rows = torch.arange(len(lengths)).repeat_interleave(BEAMS)
        self.encoder_out = self.model.encoder.reorder_encoder_out(self.encoder_out, rows)
        self.history = torch.full((rows.size(0), 1), self.model.decoder.dictionary.eos())
        self.state: dict[str, Any] = {}
        self.steps = StaticSteps(self.model.decoder)
        self.begin()

    def begin(self) -> None:
        source, padding = self.encoder_out["encoder_out"][0], self.encoder_out["encoder_padding_mask"][0]
        self.search = StaticSearch(self.steps, source, padding if padding.any() else None, BEAMS)

    def step(self, seed: int) -> None:
        expected, _ = self.model.decoder(self.history, self.encoder_out, incremental_state=self.state)
        found = self.search.step(self.history[:, -1])
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        drawn = torch.randint(4, 12, (self.history.size(0), 1), generator=torch.Generator().manual_seed(seed))
        self.history = torch.cat([self.history, drawn], dim=1)

    def reorder(self, order: Tensor) -> None:
        self.history = self.history[order]
        self.model.decoder.reorder_incremental_state_scripting(self.state, order)
        self.search.reorder(order)


def exchanged(sentences: list[int], seed: int) -> Tensor:
    """Rows that go on from any beam of the sentences that are kept."""
    chosen = torch.randint(0, BEAMS, (len(sentences), BEAMS), generator=torch.Generator().manual_seed(seed))
    return (torch.tensor(sentences)[:, None] * BEAMS + chosen).flatten()


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_sentences_finish_and_positions_run_out(family: str) -> None:
    relative = {"max_relative_positions": 3} if family == "depthwise_lstm_transformer" else {}
    searches = Searches(family, [5, 3, 7, 2, 6], max_target_positions=40, **relative)
    for seed in range(3):
        searches.step(seed)
        searches.reorder(exchanged([0, 1, 2, 3, 4], seed))
    searches.reorder(exchanged([0, 2, 4], 5))  # of eight places three are taken, and four are enough
    for seed in range(40):  # beyond the room that is made at first
        searches.step(seed)
        searches.reorder(exchanged([0, 1, 2], seed))
    searches.reorder(exchanged([2], 5))
    searches.step(9)
    assert {shape.sentences for shape in searches.steps._steps} == {8, 4, 1}
    assert {shape.capacity for shape in searches.steps._steps} == {32, 64}


@torch.no_grad()
def test_a_second_search_uses_the_same_tensors() -> None:
    searches = Searches("sdt_transformer", [5, 3])
    searches.step(1)
    steps = dict(searches.steps._steps)
    first = searches.search
    searches.state, searches.history = {}, searches.history[:, :1]
    searches.begin()
    searches.step(2)
    searches.step(3)
    assert dict(searches.steps._steps) == steps
    with pytest.raises(ValueError, match="another search"):
        first.step(searches.history[:, -1])


@torch.no_grad()
def test_changed_weights_are_seen() -> None:
    searches = Searches("mute_transformer", [4])
    searches.step(1)
    for parameter in searches.model.parameters():
        parameter.mul_(1.1)
    before = next(iter(searches.steps._steps.values()))
    searches.state, searches.history = {}, searches.history[:, :1]
    searches.begin()
    searches.step(2)
    assert next(iter(searches.steps._steps.values())) is not before


@torch.no_grad()
def test_rows_must_stay_with_their_sentences() -> None:
    searches = Searches("sdt_transformer", [5, 3])
    searches.step(1)
    with pytest.raises(ValueError, match="another sentence"):
        searches.search.reorder(torch.tensor([0, 2, 1, 3]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: there are no CUDA graphs without")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_replayed_graphs_are_the_steps(family: str, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    model: Any = build_tiny(family, cuda_graphs=True).eval().to(device="cuda", dtype=dtype)
    tokens = torch.randint(4, 12, (5, 9), device="cuda")
    scores = []
    for graphs in (False, True):
        model.decoder.cuda_graphs = graphs
        rows = torch.arange(5, device="cuda").repeat_interleave(BEAMS)
        encoder_out = model.encoder.reorder_encoder_out(model.encoder(tokens), rows)
        state: dict[str, Any] = {}
        history = torch.full((10, 1), model.decoder.dictionary.eos(), device="cuda")
        found = []
        for step in range(40):
            found.append(model.decoder(history, encoder_out, incremental_state=state)[0].float().clone())
            history = torch.cat([history, history[:, -1:] % 8 + 4], dim=1)
            order = exchanged([0, 1, 2, 3, 4], step).cuda()
            model.decoder.reorder_incremental_state_scripting(state, order)
        scores.append(torch.stack(found))
    tolerance = 1e-3 if dtype == torch.float32 else 0.1
    torch.testing.assert_close(scores[1], scores[0], rtol=tolerance, atol=tolerance)
