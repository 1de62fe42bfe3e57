"""Train the linear layers of a linearized Transformer: to reproduce layers' outputs, or to translate in their place.

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

#: Values of ``--probe-objective``.
OBJECTIVES = ("distill", "task")

#: Prefixes of a layer's name in a logging output: its summed error, and the number of its positions.
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

    With ``distill`` all layers read the outputs of the intact model, so linear layers do not affect each other. A
    position counts once for each layer, and padding not at all; the sample size is the number of positions of all
    chosen layers. The loss of an update is then the mean over layers, positions and features, however sentences are
    batched. Each layer's error is logged as ``mse_encoder.1`` and so on.
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
        inner_model = unwrapped(model)
        if not isinstance(inner_model, LinearizedTransformer):
            raise UserError(
                "--criterion linearization_probe trains --arch linearized_transformer; the model is a "
                f"{type(inner_model).__name__}"
            )
        if self.objective == "task":
            output: tuple[Tensor, int, dict[str, Any]] = super().forward(model, sample, reduce)
            return output
        _, extra = model(**sample["net_input"], distill=True)
        logging_output: dict[str, Any] = {"ntokens": sample["ntokens"], "nsentences": sample["target"].size(0)}
        losses = []
        sample_size = 0
        for name, (predicted, expected) in extra["distilled"].items():
            # In 16 bits the square would overflow, and the sum lose its small terms.
            error = (predicted.float() - expected.float()).square().mean(dim=-1).sum()
            losses.append(error)
            sample_size += len(expected)
            logging_output |= {_ERROR + name: error.data, _POSITIONS + name: len(expected)}
        loss = sum(losses[1:], losses[0])
        return loss, sample_size, {**logging_output, "loss": loss.data, "sample_size": sample_size}

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log the means over all batches and processes of an update."""

        def total(key: str) -> Any:
            return sum(log.get(key, 0) for log in logging_outputs)

        names: list[str] = []
        for log in logging_outputs:
            for key in log:
                name = key.removeprefix(_ERROR)
                if key.startswith(_ERROR) and name not in names:
                    names.append(name)
        if not names:
            # The objective is ``task``.
            super().reduce_metrics(logging_outputs)
            return

        metrics.log_scalar("loss", total("loss") / total("sample_size"), total("sample_size"), round=6)
        for name in names:
            positions = total(_POSITIONS + name)
            metrics.log_scalar(f"mse_{name}", total(_ERROR + name) / positions, positions, round=6)
