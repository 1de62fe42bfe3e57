"""The maps that the criterion's objective leads to by its gradients are those in closed form."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from probe_checkpoints import model_and_options
from tiny_models import PAD
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fairseq_depthwise.analysis.probe.linear_fit import LayerMoments
from fairseq_depthwise.models.linearized.model import LinearizedTransformer


def descend(parameters: list[nn.Parameter], loss: Callable[[], Tensor]) -> None:
    """Conjugate gradients: to the minimum of a quadratic function, from its gradients alone."""

    def gradient_at(values: Tensor) -> Tensor:
        vector_to_parameters(values, parameters)
        return parameters_to_vector(torch.autograd.grad(loss(), parameters))

    values = parameters_to_vector(parameters).detach()
    residual = direction = -gradient_at(values)
    for _ in range(200):
        curvature = gradient_at(values + direction) + residual
        step = residual.dot(residual) / direction.dot(curvature)
        values = values + step * direction
        new = -gradient_at(values)
        direction = new + new.dot(new - residual) / residual.dot(residual) * direction
        residual = new
        if residual.norm() < 1e-12:
            break
    vector_to_parameters(values, parameters)


@pytest.mark.parametrize(
    ("kind", "which", "layers", "near"),
    [
        ("transformer", "pair", ["encoder.2", "decoder.2"], 1e-6),
        ("depthwise_lstm_transformer", "output", ["decoder.2"], 1e-6),
        # Half of the features vary little beside the others; the last of the way to the minimum takes long.
        ("depthwise_lstm_transformer", "pair", ["encoder.2"], 1e-4),
    ],
)
def test_training_ends_at_the_closed_form(kind: str, which: str, layers: list[str], near: float) -> None:
    """The same objective in two ways, on more positions than a map has rows."""
    model = LinearizedTransformer(model_and_options(kind)[0], layers, which).double()
    draw = torch.Generator().manual_seed(4)
    source, target = (torch.randint(4, 12, (40, length), generator=draw) for length in (7, 6))
    source[::3, :2], target[::2, 4:] = PAD, PAD
    moments: dict[str, LayerMoments] = {}

    def take(name: str, below: Tensor, above: Tensor) -> None:
        moments[name] = LayerMoments(below.size(1))
        moments[name].add(below, above)

    def errors() -> dict[str, Tensor]:
        distilled = model(source, None, target, distill=True)[1]["distilled"]
        return {name: nn.functional.mse_loss(*pair) for name, pair in distilled.items()}

    model.observe(source, None, target, take)
    maps = [one for one in model.parameters() if one.requires_grad]
    descend(maps, lambda: sum(errors().values(), torch.zeros(())))
    for name, error in errors().items():
        fit = moments[name].fit()
        assert 1e-4 < fit.unexplained < 0.9
        assert error.item() == pytest.approx(fit.error, rel=near)
        linear = model.linearized[name].linear
        # The ridge moves W most where the data hardly varies.
        torch.testing.assert_close(linear.weight, fit.weight, rtol=0, atol=100 * near)
        torch.testing.assert_close(linear.bias, fit.bias, rtol=0, atol=100 * near)
