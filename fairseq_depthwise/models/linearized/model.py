"""A trained, frozen Transformer in which linear layers replace some of the layers.

Source: "Transformer with Depth-Wise LSTM" (the first version of "Rewiring the Transformer with Depth-Wise LSTMs"),
Section 4. The trained model is one of ours or fairseq's own ``transformer``. Only the linear layers are trained. The
checkpoint holds the whole model and its options, so it is decoded and averaged like any other, and does not need the
file of the trained model.
"""

import json
import os
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Optional

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.models import FairseqEncoderDecoderModel, build_model, register_model
from fairseq.models.transformer import TransformerModelBase
from fairseq.tasks import FairseqTask
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from fairseq_compat import UserError, checkpoints, provenance
from fairseq_depthwise.models.base.config import check_values, option
from fairseq_depthwise.models.base.model import StackModel
from fairseq_depthwise.models.depthwise_lstm.layers import DepthwiseEncoderLayer
from fairseq_depthwise.models.linearized.layer import STATES, LayerObserver, LinearizedLayer
from fairseq_depthwise.modules.stack import SIDES

#: The architecture's name.
ARCHITECTURE = "linearized_transformer"


@dataclass
class LinearizedTransformerConfig(FairseqDataclass):
    """Options of ``linearized_transformer``."""

    probe_path: Optional[str] = option(  # noqa: UP045  # read by fairseq
        None, "checkpoint of the trained model", changes_parameters=False
    )
    probe_layers: str = option(
        "", "layers to replace, counted from 1: encoder.1,decoder.6, or all; after training all of them are replaced"
    )
    probe_state: str = option(
        "pair",
        "what a linear layer maps in the depth-wise LSTM model: the pair of output and cell, or the output alone, with "
        "the cell passed on",
        one_of=STATES,
    )
    probe_model: Optional[str] = option(  # noqa: UP045  # read by fairseq
        None,
        "the trained model's options, as JSON; checkpoints have it, and need no --probe-path",
        changes_parameters=False,
        options_of_model=True,
    )


@register_model(ARCHITECTURE, dataclass=LinearizedTransformerConfig)
class LinearizedTransformer(FairseqEncoderDecoderModel):
    """The encoder and decoder of a trained model, with a ``LinearizedLayer`` in each of the named places."""

    def __init__(self, model: nn.Module, names: Iterable[str], which: str = "pair") -> None:
        depths_of(model)  # refuses other kinds of models
        super().__init__(model.encoder, model.decoder)
        self.full_context_alignment = getattr(model, "full_context_alignment", False)
        model.requires_grad_(False)
        #: Name -> layer, in the order of ``names``. Each is a module of the encoder or the decoder.
        self.linearized: dict[str, LinearizedLayer] = {}
        vectors = 2 if which == "pair" and passes_pairs(model) else 1
        # A decoder layer also returns attention weights; one of fairseq's own decoder the padding mask as well.
        returned_besides = {"encoder": 0, "decoder": 1 if isinstance(model, StackModel) else 2}
        for name in names:
            side, number = name.split(".")
            layers, index = getattr(self, side).layers, int(number) - 1
            layers[index] = LinearizedLayer(
                layers[index],
                width=vectors * get_width(model, side),
                which=which,
                returned_besides=returned_besides[side],
            )
            self.linearized[name] = layers[index]
        self.eval()

    @classmethod
    def build_model(cls, cfg: LinearizedTransformerConfig, task: FairseqTask) -> "LinearizedTransformer":
        """Build the trained model from ``--probe-path``; when loading a checkpoint, from the options recorded there."""
        check_values(LinearizedTransformerConfig, cfg)
        if cfg.probe_model:
            model = build_trained_model(json.loads(cfg.probe_model), task)
            name = "the checkpoint"
        else:
            model, options = _load_trained_model(cfg.probe_path, task)
            _record_options(cfg, json.dumps(options))
            name = str(cfg.probe_path)
        names = layers_named(cfg.probe_layers, depths_of(model), f"--probe-layers {cfg.probe_layers}", name)
        if cfg.probe_state == "output" and not passes_pairs(model):
            raise UserError(
                f"--probe-state output: the layers of {name} pass on no cell, only one vector; leave it at pair"
            )
        return cls(model, names, cfg.probe_state)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor],  # noqa: UP045  # fairseq inspects signatures
        prev_output_tokens: Tensor,
        distill: bool = False,
        **options: Any,
    ) -> tuple[Optional[Tensor], dict[str, Any]]:  # noqa: UP045  # as above
        """Encode and decode through the linear layers; ``options``: those of the decoder.

        With ``distill`` there are no scores. Instead, the dictionary has ``distilled``: name of a layer -> the output
        of its linear layer and of the layer itself (non-padding positions x width each). Both read the outputs of
        the intact model.
        """
        if not distill:
            encoder_out = self.encoder(src_tokens, src_lengths=src_lengths)
            output: tuple[Tensor, dict[str, Any]] = self.decoder(
                prev_output_tokens, encoder_out=encoder_out, src_lengths=src_lengths, **options
            )
            return output
        distilled: dict[str, tuple[Tensor, Tensor]] = {}

        @torch.enable_grad()
        def distill_layer(name: str, layer_input: Tensor, layer_output: Tensor) -> None:
            distilled[name] = self.linearized[name].linear(layer_input), layer_output

        self.observe(src_tokens, src_lengths, prev_output_tokens, distill_layer)
        return None, {"distilled": distilled}

    @torch.no_grad()
    def observe(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None,
        prev_output_tokens: Tensor,
        callback: Callable[[str, Tensor, Tensor], None],
    ) -> None:
        """Run the intact model on a batch (B x S, B, B x T), and call ``callback`` for each linearized layer.

        It is called with the layer's name, its input and its output, non-padding positions x width each.
        """
        # True where there is no padding: S x B and T x B.
        is_token = {
            "encoder": src_tokens.ne(self.encoder.dictionary.pad()).t(),
            "decoder": prev_output_tokens.ne(self.decoder.dictionary.pad()).t(),
        }

        def observer(name: str) -> LayerObserver:
            side, _, _ = name.partition(".")
            positions = is_token[side]
            return lambda layer_input, layer_output: callback(name, layer_input[positions], layer_output[positions])

        for name, layer in self.linearized.items():
            layer.observer = observer(name)
        try:
            encoder_out = self.encoder(src_tokens, src_lengths=src_lengths)
            if any(name.startswith("decoder") for name in self.linearized):
                self.decoder(prev_output_tokens, encoder_out=encoder_out, features_only=True, src_lengths=src_lengths)
        finally:
            for layer in self.linearized.values():
                layer.observer = None

    def set_linear_layer(self, name: str, weight: Tensor, bias: Tensor, which: str = "pair") -> None:
        """Set a layer's linear layer, W (width x width) and b (width); ``which``: one of ``STATES``."""
        layer = self.linearized[name]
        old = layer.linear.weight
        layer.which = which
        layer.linear = nn.Linear(weight.size(1), weight.size(0), device=old.device, dtype=old.dtype)
        with torch.no_grad():
            layer.linear.weight.copy_(weight)
            layer.linear.bias.copy_(bias)

    def replace_only(self, name: str | None) -> None:
        """Use the linear layer in one place only, and the trained layers elsewhere; None replaces nothing."""
        for layer_name, layer in self.linearized.items():
            layer.replaced = layer_name == name

    def train(self, mode: bool = True) -> "LinearizedTransformer":
        """Keep the frozen model in evaluation mode: its dropout would be noise for the linear layers."""
        super().train(False)
        self.training = mode
        return self


def plain_options(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return those options of a checkpoint's model that JSON can represent."""
    options = {name: value for name, value in checkpoints.options_in(state).items() if _is_json(value)}
    options.setdefault("_name", options.get("arch"))
    return options


def build_trained_model(options: Mapping[str, Any], task: FairseqTask) -> nn.Module:
    """Build a trained model's architecture from its options, without its parameters."""
    completed = {**options, "encoder_embed_path": None, "decoder_embed_path": None, "checkpoint_activations": False}
    # fairseq's Transformer groups its options by side in a hydra file.
    grouped = any(isinstance(value, Mapping) for value in completed.values())
    cfg = OmegaConf.create(completed) if grouped else Namespace(**completed)
    model: nn.Module = build_model(cfg, task, from_checkpoint=True)
    return model


def depths_of(model: nn.Module) -> dict[str, int]:
    """Return side -> number of layers; raise UserError for models that cannot be linearized."""
    is_known = isinstance(model, StackModel | TransformerModelBase)
    if isinstance(model, StackModel):
        is_known = all(getattr(model, side).connection.sublayers == 1 for side in SIDES)
    if not is_known:
        raise UserError(
            f"a {type(model).__name__} cannot be linearized; only models of this plugin's families and fairseq's own "
            "transformer can, if layers are connected as a whole (--connection-unit layer)"
        )
    return {side: len(getattr(model, side).layers) for side in SIDES}


def layers_named(text: str, depths: Mapping[str, int], option_text: str, name: str) -> list[str]:
    """Return the names in ``encoder.1,decoder.6`` in the model's order; raise UserError for unknown layers."""
    known: list[str] = []
    for side in SIDES:
        known += [f"{side}.{number}" for number in range(1, depths[side] + 1)]
    if text.strip() == "all":
        return known

    names = {layer.strip() for layer in text.split(",") if layer.strip()}
    if not names or not names <= set(known):
        existing = f"encoder.1 to encoder.{depths['encoder']} and decoder.1 to decoder.{depths['decoder']}"
        raise UserError(f"{option_text}: give some of the layers of {name}, {existing}")
    return [layer for layer in known if layer in names]


def passes_pairs(model: nn.Module) -> bool:
    """Return whether the model's layers pass on the pair (Out, Cell), or only one vector."""
    layers: Any = model.get_submodule("encoder.layers")
    return isinstance(layers[0], DepthwiseEncoderLayer)


def get_width(model: nn.Module, side: str) -> int:
    """Return d, the width of a stack."""
    stack = getattr(model, side)
    if isinstance(model, StackModel):
        return int(stack.embedding.tokens.embedding_dim)
    layer = stack.layers[0]
    return int(getattr(layer, "intact", layer).embed_dim)


def _load_trained_model(path: str | None, task: FairseqTask) -> tuple[nn.Module, dict[str, Any]]:
    """Read the model with its parameters, and those of its options that JSON can represent."""
    if not path:
        raise UserError("--arch linearized_transformer needs --probe-path, the checkpoint of the trained model")
    if not os.path.isfile(path):
        raise UserError(f"--probe-path {path}: there is no such file")
    state = checkpoints.load_checkpoint(path)
    data = provenance.of_dictionaries(task)
    provenance.require_same(f"--probe-path {path}", provenance.recorded_in(state), data, provenance.data_of(task))
    options = plain_options(state)
    model = build_trained_model(options, task)
    model.load_state_dict(state["model"], strict=True)
    return model, options


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True


def _record_options(cfg: Any, text: str) -> None:
    """Record the model's options in the configuration that checkpoints are written from.

    fairseq builds models from a copy of it, whose parent is the original.
    """
    cfg.probe_model = text
    parent = cfg._get_parent() if isinstance(cfg, DictConfig) else None
    if parent is not None and "model" in parent:
        parent.model.probe_model = text
