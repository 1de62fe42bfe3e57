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

#: The weight of the penalty for each target token: the 1.0 of the authors' program, which is added on each of four GPUs
#: and divided by the 16 thousand tokens of all.
PENALTY = 2.5e-4


# fairseq reads these annotations at run time, see ``config.py``.
@dataclass
class MuteTransformerConfig(ResidualConfig):
    """Options of ``mute_transformer``; dropout is the paper's for WMT14 English-German."""

    dropout: float = probability(0.2, "dropout of embeddings and sub-layer outputs")
    activation_dropout: float = probability(0.2, "dropout inside the feed-forward nets")
    max_relative_positions: int = distance(16)
    relative_position_terms: str = option(
        "key-value",
        "what relative positions act on: keys, or keys and values, which have one table here",
        one_of=("key-value", "key"),
    )
    encoder_units: int = option(4, "parallel units of each encoder layer", at_least=1, at_most=8)
    unit_inputs: str = option(
        "identity",
        f"noise of each unit's input in training, separated by commas: {', '.join(NOISES)}; a single name holds for "
        "all units",
        changes_parameters=False,
    )
    unit_mask_rate: float = option(
        0.0, "0 masks one position of each sentence; otherwise each position with this probability", at_least=0,
        at_most=1, changes_parameters=False,
    )  # fmt: skip
    unit_noise_rate: float = option(
        0.85, "probability that a layer's noise is on in a training forward", at_least=0, at_most=1,
        changes_parameters=False,
    )  # fmt: skip
    unit_sharing: str = option(
        "none", "what the units of a layer share: nothing, the attention, or the feed-forward net",
        one_of=("none", "attention", "ffn"),
    )  # fmt: skip
    unit_sequential: bool = option(False, "accumulate the units' outputs in a learned order")
    permutation_penalty: Optional[float] = option(  # noqa: UP045  # see above the class
        None,
        f"with --unit-sequential: weight of the penalty that makes the order a permutation, {PENALTY:g} unless given; "
        "needs --criterion label_smoothed_cross_entropy_with_auxiliary",
        at_least=0,
        changes_parameters=False,
    )
    permutation_at_inference: str = option(
        "soft", "with --unit-sequential: use the learned matrix, or the nearest permutation", one_of=("soft", "hard"),
        changes_parameters=False,
    )  # fmt: skip

    def check(self) -> None:
        super().check()
        if "mask" not in self.noises():
            self.require_defaults(("unit_mask_rate",), "goes with --unit-inputs mask")
        if self.encoder_units == 1:
            self.require_defaults(("unit_sharing", "unit_sequential"), "goes with --encoder-units of 2 to 8")
        if not self.unit_sequential:
            names = ("permutation_penalty", "permutation_at_inference")
            self.require_defaults(names, "goes with --unit-sequential")

    def noises(self) -> list[str]:
        """Return the noise of each unit; raise UserError where a name is unknown, or their number is not the units'."""
        names = [name.strip() for name in self.unit_inputs.split(",")]
        names = names * self.encoder_units if len(names) == 1 else names
        if len(names) != self.encoder_units or not set(names) <= set(NOISES):
            raise UserError(
                f"--unit-inputs {self.unit_inputs} with --encoder-units {self.encoder_units}: give one name for all "
                f"units, or one for each, of {', '.join(NOISES)}"
            )
        return names

    @property
    def penalty_weight(self) -> float:
        """The penalty's weight for each target token."""
        if not self.unit_sequential:
            return 0.0
        return PENALTY if self.permutation_penalty is None else self.permutation_penalty


class UnitStacks(ResidualStacks):
    """An encoder of multi-unit layers, and the residual decoder."""

    # As the authors' program: all weights as Glorot and Bengio have it.
    input_gain = 1.0
    one_position_table = True

    def layers(self, side: str) -> list[nn.Module]:
        return super().layers(side) if side == "decoder" else [self._unit_layer() for _ in range(self.depth(side))]

    def _unit_layer(self) -> MultiUnitEncoderLayer:
        config, heads = self.config, self.config.encoder_attention_heads
        noises = config.noises()
        attentions, nets = (1 if config.unit_sharing == part else len(noises) for part in ("attention", "ffn"))
        positions = build_relative_positions(config, heads=heads, one_table=True, units=attentions)
        return MultiUnitEncoderLayer(
            units=len(noises),
            embed_dim=self.width,
            self_attention=UnitAttention(
                units=attentions,
                embed_dim=self.width,
                heads=heads,
                dropout=config.attention_dropout,
                relative_positions=positions,
            ),
            feed_forward=UnitFeedForward(
                units=nets,
                embed_dim=self.width,
                hidden_dim=config.encoder_ffn_embed_dim,
                activation=config.activation_fn,
                activation_dropout=config.activation_dropout,
            ),
            inputs=UnitInputs(
                noises=noises,
                embed_dim=self.width,
                noise_rate=config.unit_noise_rate,
                mask_rate=config.unit_mask_rate,
            ),
            order=UnitOrder(units=len(noises), at_inference=config.permutation_at_inference)
            if config.unit_sequential
            else None,
            dropout=config.dropout,
        )


@register_model("mute_transformer", dataclass=MuteTransformerConfig)
class MuteTransformer(StackModel):
    """Pre-norm encoder whose layers have several units, pre-norm decoder."""

    options = MuteTransformerConfig
    stacks = UnitStacks

    def auxiliary_losses(self, encoder_out: dict[str, list[Tensor]]) -> dict[str, AuxiliaryLoss]:
        """Return the penalty of each layer's matrix (Equations 19 and 20), where it has a weight."""
        if not (weight := self.config.penalty_weight):
            return {}
        penalties = penalty(project(torch.stack([layer.order.raw for layer in self.encoder.layers])))
        return {
            f"permutation_penalty_{number}": AuxiliaryLoss(value, weight, "--permutation-penalty")
            for number, value in enumerate(penalties, start=1)
        }


register_presets("mute_transformer", PRESETS)
