"""How a family's presets become architectures on fairseq's command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairseq.models import register_model_architecture


def both_sides(**sizes: int) -> dict[str, int]:
    """``embed_dim=512`` to the options ``encoder_embed_dim`` and ``decoder_embed_dim``."""
    return {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()}


def register_presets(model: str, presets: Mapping[str, Mapping[str, Any]]) -> None:
    """Register ``--arch MODEL_NAME`` for each preset: it sets those defaults and nothing else."""
    for name, defaults in presets.items():
        _register(model, f"{model}_{name}", defaults)


def _register(model: str, arch: str, defaults: Mapping[str, Any]) -> None:
    def set_defaults(args: Any) -> None:
        for option, value in defaults.items():
            if getattr(args, option, None) is None:
                setattr(args, option, value)

    register_model_architecture(model, arch)(set_defaults)
