"""The search over graphs against fairseq's own with the same models: the same hypotheses, for every variant."""

from __future__ import annotations

import pytest
import torch
from graph_checks import ALL_VARIANTS, assert_same_hypotheses, eager_graphs, sentences
from tiny_models import build_tiny

from fairseq_depthwise.backends.graphs import best_candidates


@pytest.mark.parametrize("variant", ALL_VARIANTS)
def test_hypotheses_are_those_of_fairseq(variant: str) -> None:
    torch.manual_seed(3)
    model = build_tiny(**ALL_VARIANTS[variant]).eval()
    in_place, functional = (eager_graphs([model], in_place=in_place) for in_place in (True, False))
    assert_same_hypotheses([model], in_place, sentences(model, 5, 1, 3, 6), beam=3, longest=20)
    assert_same_hypotheses([model], functional, sentences(model, 4, 2), beam=2, longest=18)


@pytest.mark.parametrize("family", ["depthwise_lstm_transformer", "mute_transformer", "sdt_transformer"])
@pytest.mark.parametrize(
    "limits",
    [
        {"beam": 1, "longest": 12},
        {"beam": 4, "longest": 40, "min_length": 35},
        {"beam": 3, "longest": 12, "prefix": (7, 5)},
        {"beam": 3, "longest": 2, "prefix": (7, 5, 6)},
        {"beam": 5, "longest": 1},
    ],
    ids=str,
)
def test_limits_are_those_of_fairseq(family: str, limits: dict[str, int]) -> None:
    """Greedy search, more positions than are allocated at first, and translations whose beginning is given."""
    torch.manual_seed(4)
    model = build_tiny(family).eval()
    graphs = eager_graphs([model], in_place=True)
    assert_same_hypotheses([model], graphs, sentences(model, 3, 7, 2), **limits)


def test_several_models_average_their_probabilities() -> None:
    models = []
    for seed, family in enumerate(("depthwise_lstm_transformer", "mute_transformer", "sdt_transformer")):
        torch.manual_seed(seed)
        models.append(build_tiny(family, decoder_layers=1 + seed).eval())
    for in_place in (True, False):
        graphs = eager_graphs(models, in_place=in_place)
        assert_same_hypotheses(models, graphs, sentences(models[0], 4, 6), beam=3, longest=20)


@pytest.mark.parametrize("vocabulary", [4, 5, 7, 9, 64, 777, 8000])
def test_the_best_candidates_are_those_of_a_sort(vocabulary: int) -> None:
    """Vocabularies that are divided into groups, and ones that are not; also where most tokens are impossible."""
    for beams in (1, 2, 5):
        totals = torch.randn(3, beams, vocabulary)
        totals[1] = torch.where(totals[1] < totals[1].max(), -torch.inf, totals[1])
        best, numbers = best_candidates(totals, 2 * beams)
        assert torch.equal(best, totals.flatten(1).topk(2 * beams).values)
        assert torch.equal(totals.flatten(1).gather(1, numbers), best)
        assert all(len(set(row)) == 2 * beams for row in numbers.tolist())
