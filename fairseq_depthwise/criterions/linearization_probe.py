"""What the linear layers of a linearized Transformer learn: outputs of layers, or to translate in their places.

Source: "Transformer with Depth-Wise LSTM" (the first version of "Rewiring the Transformer with Depth-Wise LSTMs"),
Section 4, Equations 11 and 12.
"""

from dataclasses import dataclass
from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.logging import metrics
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from fairseq_compat import UserError
from fairseq_depthwise.models.base.config import check_values, option
from fairseq_depthwise.models.base.model import unwrapped
from fairseq_depthwise.models.linearized.model import LinearizedTransformer

OBJECTIVES = ("distill", "task")

#: Before the name of a layer, what is summed over its positions.
_ERROR, _POSITIONS = "error:", "positions:"


@dataclass
class LinearizationProbeCriterionConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """Options of ``linearization_probe``; those of the label-smoothed loss are for the objective ``task``."""

    probe_objective: str = option(
        "distill",
        "what the linear layers learn: the output of the layers that they replace, or to translate in their place",
        one_of=OBJECTIVES,
    )


@register_criterion("linearization_probe", dataclass=LinearizationProbeCriterionConfig)
class LinearizationProbeCriterion(LabelSmoothedCrossEntropyCriterion):
    """``distill``: the mean squared error of the chosen layers' outputs; ``task``: the label-smoothed translation loss.

    For ``distill`` all layers are fed by the intact model, so no linear layer knows of another. A position counts
    once for each layer, and padding not at all; the sample size is the number of positions of all chosen layers. The
    loss of an update is then the mean over layers, positions and features, however the batches are cut. Each layer's
    own error is logged as ``mse_encoder.1``.
    """

    objective: str

    @classmethod
    def build_criterion(
        cls, cfg: LinearizationProbeCriterionConfig, task: FairseqTask
    ) -> "LinearizationProbeCriterion":
        check_values(LinearizationProbeCriterionConfig, cfg)
        criterion: LinearizationProbeCriterion = super().build_criterion(cfg, task)
        criterion.objective = cfg.probe_objective
        return criterion

    def forward(
        self, model: nn.Module, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Compute the loss of a batch, summed; the sample size; the logging output."""
        if not isinstance(inner := unwrapped(model), LinearizedTransformer):
            raise UserError(
                "--criterion linearization_probe trains --arch linearized_transformer; the model is a "
                f"{type(inner).__name__}"
            )
        if self.objective == "task":
            output: tuple[Tensor, int, dict[str, Any]] = super().forward(model, sample, reduce)
            return output
        _, extra = model(**sample["net_input"], distill=True)
        logging_output: dict[str, Any] = {"ntokens": sample["ntokens"], "nsentences": sample["target"].size(0)}
        losses = []
        sample_size = 0
        for name, (predicted, expected) in extra["distilled"].items():
            # 16 bits overflow in the square, and lose what sums up.
            error = (predicted.float() - expected.float()).square().mean(dim=-1).sum()
            losses.append(error)
            sample_size += len(expected)
            logging_output |= {_ERROR + name: error.data, _POSITIONS + name: len(expected)}
        loss = sum(losses[1:], losses[0])
        return loss, sample_size, {**logging_output, "loss": loss.data, "sample_size": sample_size}

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log the means over all batches and processes of an update."""
        names = dict.fromkeys(
            key.removeprefix(_ERROR) for log in logging_outputs for key in log if key.startswith(_ERROR)
        )
        if not names:
            super().reduce_metrics(logging_outputs)
            return
        loss, size = (sum(log.get(key, 0) for log in logging_outputs) for key in ("loss", "sample_size"))
        metrics.log_scalar("loss", loss / size, size, round=6)
        for name in names:
            error, positions = (sum(log.get(key + name, 0) for log in logging_outputs) for key in (_ERROR, _POSITIONS))
            metrics.log_scalar(f"mse_{name}", error / positions, positions, round=6)
