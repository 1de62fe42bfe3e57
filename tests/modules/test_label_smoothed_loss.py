"""The loss in pieces is fairseq's; its gradient is right; nothing as large as the scores is in float32."""

from __future__ import annotations

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from torch import Tensor

from fairseq_depthwise.modules import label_smoothed_loss as module
from fairseq_depthwise.modules.label_smoothed_loss import label_smoothed_loss

PADDING = 1


def _batch(positions: int, words: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    scores = 4 * torch.randn(positions, words, generator=generator)
    target = torch.randint(2, words, (positions,), generator=generator)
    target[::4] = PADDING
    return scores.to(dtype).requires_grad_(), target


@pytest.fixture(params=[1, 50, 2**18], ids=lambda size: f"pieces of {size}")
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CPU_CHUNK", request.param)


@pytest.mark.usefixtures("piece")
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_is_fairseqs(smoothing: float) -> None:
    scores, target = _batch(13, 17)
    others = scores.detach().clone().requires_grad_()
    loss, nll = label_smoothed_loss(scores, target, smoothing, PADDING)
    expected_loss, expected_nll = label_smoothed_nll_loss(
        others.log_softmax(-1), target, smoothing, ignore_index=PADDING, reduce=False
    )
    torch.testing.assert_close(loss, expected_loss.squeeze(-1))
    torch.testing.assert_close(nll, expected_nll.squeeze(-1))
    weights = torch.rand(13)
    (loss * weights).sum().backward()
    (expected_loss.squeeze(-1) * weights).sum().backward()
    torch.testing.assert_close(scores.grad, others.grad)
    assert not nll.requires_grad


def test_large_scores_do_not_overflow() -> None:
    scores = torch.tensor([[6e4, -6e4, 0.0, 1.0]], dtype=torch.float16, requires_grad=True)
    loss, _ = label_smoothed_loss(scores, torch.tensor([2]), 0.1, PADDING)
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()
