"""The Multi-Unit Transformer: several parallel units in every encoder layer, biased inputs, a learned order.

Source: "Multi-Unit Transformers for Neural Machine Translation". The layer is in ``layers.py``, the
decoder is the ordinary one with relative positions. See ``docs/mute.md``.
"""

from dataclasses import dataclass
from typing import Optional

import torch
from fairseq.models import register_model
from torch import Tensor, nn

from fairseq_compat import UserError
from fairseq_depthwise.models.base.assembly import build_relative_positions
from fairseq_depthwise.models.base.config import distance, option, probability, register_presets
from fairseq_depthwise.models.base.model import AuxiliaryLoss, StackModel
from fairseq_depthwise.models.base.residual_stacks import ResidualConfig, ResidualStacks
from fairseq_depthwise.models.mute.attention import UnitAttention
from fairseq_depthwise.models.mute.layers import MultiUnitEncoderLayer, UnitFeedForward
from fairseq_depthwise.models.mute.noise import NOISES, UnitInputs
from fairseq_depthwise.models.mute.order import UnitOrder, penalty, project
from fairseq_depthwise.models.mute.presets import PRESETS

#: The weight of the penalty for each target token. The authors' program adds 1.0 on each of four GPUs, and divides by
#: the 16 thousand tokens of all four.
PENALTY = 2.5e-4


# fairseq reads these annotations at run time: no `from __future__ import annotations` here, and Optional[...] because
# it does not know "... | None".
@dataclass
class MuteTransformerConfig(ResidualConfig):
    """Options of ``mute_transformer``; the default dropout is the paper's for WMT14 English-German."""

    dropout: float = probability(0.2, "dropout of embeddings and sub-layer outputs")
    activation_dropout: float = probability(0.2, "dropout inside the feed-forward nets")
    max_relative_positions: int = distance(16)
    relative_position_terms: str = option(
        "key-value",
        "what relative positions act on: keys, or keys and values, which have one table here",
        one_of=("key-value", "key"),
    )
    # The units, and their biased inputs (Section 3.2).
    encoder_units: int = option(4, "parallel units of each encoder layer", at_least=1, at_most=8)
    unit_inputs: str = option(
        "identity",
        f"noise of each unit's input in training, separated by commas: {', '.join(NOISES)}; a single name applies to "
        "all units",
        changes_parameters=False,
    )
    unit_mask_rate: float = option(
        0.0,
        "0 masks one position of each sentence; otherwise each position with this probability",
        at_least=0,
        at_most=1,
        changes_parameters=False,
    )
    unit_noise_rate: float = option(
        0.85,
        "probability that a layer's noise is on in a training forward",
        at_least=0,
        at_most=1,
        changes_parameters=False,
    )
    unit_sharing: str = option(
        "none",
        "what the units of a layer share: nothing, the attention, or the feed-forward net",
        one_of=("none", "attention", "ffn"),
    )
    # Their learned order (Section 3.3).
    unit_sequential: bool = option(False, "accumulate the units' outputs in a learned order")
    permutation_penalty: Optional[float] = option(  # noqa: UP045  # see above the class
        None,
        f"with --unit-sequential: weight of the penalty that makes the order a permutation, {PENALTY:g} unless given; "
        "needs --criterion label_smoothed_cross_entropy_with_auxiliary",
        at_least=0,
        changes_parameters=False,
    )
    permutation_at_inference: str = option(
        "soft",
        "with --unit-sequential: use the learned matrix, or the nearest permutation",
        one_of=("soft", "hard"),
        changes_parameters=False,
    )

    def check(self) -> None:
        super().check()
        noises = self.noises()
        for name, noise in NOISES.items():
            if noise.rate_option is not None and name not in noises:
                self.require_defaults((noise.rate_option,), f"goes with --unit-inputs {name}")
        if self.encoder_units == 1:
            self.require_defaults(("unit_sharing", "unit_sequential"), "goes with --encoder-units of 2 to 8")
        if not self.unit_sequential:
            names = ("permutation_penalty", "permutation_at_inference")
            self.require_defaults(names, "goes with --unit-sequential")

    def noises(self) -> list[str]:
        """Return the name of each unit's noise; raise UserError unless ``--unit-inputs`` gives each a known one."""
        names = [name.strip() for name in self.unit_inputs.split(",")]
        if len(names) == 1:
            names = names * self.encoder_units
        if len(names) != self.encoder_units or not set(names) <= set(NOISES):
            raise UserError(
                f"--unit-inputs {self.unit_inputs} with --encoder-units {self.encoder_units}: give one name for all "
                f"units, or one for each, of {', '.join(NOISES)}"
            )
        return names

    def rates_of_noises(self) -> dict[str, float]:
        """Return the rate of each noise that has one."""
        return {
            name: getattr(self, noise.rate_option) for name, noise in NOISES.items() if noise.rate_option is not None
        }

    @property
    def penalty_weight(self) -> float:
        """The penalty's weight for each target token."""
        if not self.unit_sequential:
            return 0.0
        return PENALTY if self.permutation_penalty is None else self.permutation_penalty


class UnitStacks(ResidualStacks):
    """An encoder of multi-unit layers, and a decoder of residual layers."""

    # As in the authors' program: Xavier-uniform initialization, without a smaller gain for queries, keys and values,
    # and one table of relative positions for keys and values.
    input_gain = 1.0
    one_position_table = True

    def layers(self, side: str) -> list[nn.Module]:
        if side == "decoder":
            return super().layers(side)
        return [self._build_unit_layer() for _ in range(self.depth(side))]

    def _build_unit_layer(self) -> MultiUnitEncoderLayer:
        config = self.config
        units = config.encoder_units

        # 1 stands for a part that all units share.
        attentions = 1 if config.unit_sharing == "attention" else units
        feed_forwards = 1 if config.unit_sharing == "ffn" else units

        # Parts draw their initial parameters in this order, which a seed's results depend on.
        relative_positions = build_relative_positions(
            config, heads=config.encoder_attention_heads, one_table=True, units=attentions
        )
        self_attention = UnitAttention(
            units=attentions,
            embed_dim=self.width,
            heads=config.encoder_attention_heads,
            dropout=config.attention_dropout,
            relative_positions=relative_positions,
        )
        feed_forward = UnitFeedForward(
            units=feed_forwards,
            embed_dim=self.width,
            hidden_dim=config.encoder_ffn_embed_dim,
            activation=config.activation_fn,
            activation_dropout=config.activation_dropout,
        )
        inputs = UnitInputs(
            noises=config.noises(),
            embed_dim=self.width,
            noise_rate=config.unit_noise_rate,
            rates_of_noises=config.rates_of_noises(),
        )
        order = None
        if config.unit_sequential:
            order = UnitOrder(units=units, at_inference=config.permutation_at_inference)
        return MultiUnitEncoderLayer(
            units=units,
            embed_dim=self.width,
            self_attention=self_attention,
            feed_forward=feed_forward,
            inputs=inputs,
            order=order,
            dropout=config.dropout,
        )


@register_model("mute_transformer", dataclass=MuteTransformerConfig)
class MuteTransformer(StackModel):
    """Pre-norm encoder whose layers have several units, pre-norm decoder."""

    options = MuteTransformerConfig
    stacks = UnitStacks

    def auxiliary_losses(self, encoder_out: dict[str, list[Tensor]]) -> dict[str, AuxiliaryLoss]:
        """Return the penalty of each layer's matrix (Equations 19 and 20), unless its weight is 0."""
        weight = self.config.penalty_weight
        if not weight:
            return {}

        # The matrices of all layers are projected at once: L x I x I.
        matrices = project(torch.stack([layer.order.raw for layer in self.encoder.layers]))
        losses = {}
        for number, value in enumerate(penalty(matrices), start=1):
            losses[f"permutation_penalty_{number}"] = AuxiliaryLoss(value, weight, "--permutation-penalty")
        return losses


register_presets("mute_transformer", PRESETS)
