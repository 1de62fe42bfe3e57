"""The label-smoothed translation loss, plus the model's auxiliary losses."""

from __future__ import annotations

from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.logging import metrics
from fairseq.models.transformer import TransformerModel
from torch import Tensor, nn

from fairseq_depthwise.models.base.model import AuxiliaryLoss, StackModel, take_auxiliary_losses, unwrapped
from fairseq_depthwise.modules.label_smoothed_loss import label_smoothed_loss

#: Prefix of an auxiliary loss in a logging output, which also has fairseq's own entries.
_PREFIX = "auxiliary:"


@register_criterion("label_smoothed_cross_entropy_with_auxiliary", dataclass=LabelSmoothedCrossEntropyCriterionConfig)
class LabelSmoothedCrossEntropyWithAuxiliaryCriterion(LabelSmoothedCrossEntropyCriterion):
    """fairseq's ``label_smoothed_cross_entropy``, its options included, plus the losses that the model offers.

    With n the sample size (target tokens, or sentences with ``--sentence-avg``) and v_k the value of the loss k::

        loss = translation loss, summed + sum_k weight_k * v_k * n

    fairseq divides the gradient of an update by the sum of n over its batches and processes, so a weight means the same
    whatever their number and size. For models without auxiliary losses, such as stock models, this is fairseq's
    criterion.

    Each value is logged under its name, in training and validation; ``loss`` includes all of them, ``nll_loss`` none.

    Where probabilities are the softmax of scores, the translation loss is computed from the scores
    (:mod:`fairseq_depthwise.modules.label_smoothed_loss`), which takes less time and memory; it equals fairseq's up to
    rounding. On a CPU, our own models project only the positions that count to the vocabulary, and no padding.
    """

    #: The auxiliary losses of the model's last output.
    _auxiliary_losses: dict[str, AuxiliaryLoss]

    def forward(
        self, model: nn.Module, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Compute the loss of a batch; return it with the sample size n and the logging output.

        Without ``reduce`` the translation loss of each target position is returned, as fairseq's criterion does; an
        auxiliary loss belongs to no position, it is logged only.
        """
        # On a GPU, selecting positions would wait for the device in the middle of the step.
        on_cpu = sample["target"].device.type == "cpu"
        if reduce and on_cpu and isinstance(unwrapped(model), StackModel) and _is_softmax_of_scores(model):
            scored = self._find_counted(sample["target"])
            sample = {**sample, "net_input": {**sample["net_input"], "scored": scored}}

        loss, sample_size, logging_output = super().forward(model, sample, reduce)

        auxiliary_losses = self._auxiliary_losses
        self._auxiliary_losses = {}  # releases their graphs
        for name, auxiliary in auxiliary_losses.items():
            # In 16 bits the product would overflow.
            value = auxiliary.value.float() * sample_size
            logging_output[_PREFIX + name] = value.data
            if reduce:
                loss = loss + auxiliary.weight * value
                logging_output["loss"] = loss.data
        return loss, sample_size, logging_output

    def compute_loss(
        self, model: nn.Module, net_output: tuple[Tensor, Any], sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Compute the translation loss and the negative log-likelihood: sums, or N x 1 without ``reduce``."""
        self._auxiliary_losses = take_auxiliary_losses(net_output)
        if not _is_softmax_of_scores(model):
            loss, nll_loss = super().compute_loss(model, net_output, sample, reduce=reduce)
            return loss, nll_loss
        scores, target = self.get_lprobs_and_target(model, net_output, sample)
        loss, nll_loss = label_smoothed_loss(scores, target, self.eps, self.padding_idx)
        return (loss.sum(), nll_loss.sum()) if reduce else (loss[:, None], nll_loss[:, None])

    def get_lprobs_and_target(
        self, model: Any, net_output: tuple[Tensor, Any], sample: dict[str, Any]
    ) -> tuple[Tensor, Tensor]:
        """Return N x V and N, without the first positions that ``--ignore-prefix-size`` leaves out.

        Where probabilities are the softmax of scores, N x V are these scores; they rank words in the same order.
        """
        if not _is_softmax_of_scores(model):
            log_probabilities, target = super().get_lprobs_and_target(model, net_output, sample)
            return log_probabilities, target
        scores = net_output[0]
        target = model.get_targets(sample, net_output)
        if scores.dim() == 2:
            # Only the positions that count were projected.
            return scores, target[self._find_counted(target)]
        scores = scores[:, self.ignore_prefix_size :]
        target = target[:, self.ignore_prefix_size :]
        return scores.reshape(-1, scores.size(-1)), target.reshape(-1)

    def _find_counted(self, target: Tensor) -> Tensor:
        """Return the mask (B x T) of the target positions that the loss sums over."""
        is_counted = target.ne(self.padding_idx)
        is_counted[:, : self.ignore_prefix_size] = False
        return is_counted

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log the means over all batches and processes of an update; auxiliary losses are weighted by sample size."""
        super().reduce_metrics(logging_outputs)
        sample_size = sum(log.get("sample_size", 0) for log in logging_outputs)
        totals: dict[str, Any] = {}
        for log in logging_outputs:
            for key, value in log.items():
                if key.startswith(_PREFIX):
                    totals[key] = totals.get(key, 0) + value
        for key, total in totals.items():
            metrics.log_scalar(key.removeprefix(_PREFIX), total / sample_size, sample_size, round=5)


def _is_softmax_of_scores(model: nn.Module) -> bool:
    """Return whether a model is one of ours or fairseq's Transformer; others may normalize in another way."""
    model = unwrapped(model)
    is_known = isinstance(model, StackModel) or type(model) is TransformerModel
    return is_known and getattr(model.decoder, "adaptive_softmax", None) is None
