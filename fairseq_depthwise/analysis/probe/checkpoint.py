"""A checkpoint of a trained model with a linear map in place of one layer, as training it would have left it."""

from __future__ import annotations

import json
from typing import Any

from fairseq import checkpoint_utils
from omegaconf import OmegaConf

from fairseq_compat import checkpoints
from fairseq_depthwise.analysis.probe.linear_fit import LinearFit
from fairseq_depthwise.models.linearized.model import ARCHITECTURE, plain_options


def write_linearized(path: str, output: str, layer: str, state: str, fit: LinearFit) -> None:
    """Write the checkpoint of a ``linearized_transformer`` in which ``layer`` alone is replaced.

    Args:
        path: checkpoint of the trained model; it is only read.
        output: where to write; appears whole or not at all.
        layer: as ``encoder.1``.
        state: what of a pair is mapped, of ``linearized_layer.STATES``; empty where the layer passes on one vector.
        fit: the map.

    Raises:
        UserError: a file cannot be read or written.
    """
    trained = checkpoints.load_checkpoint(path, mapped=True)
    values = trained["model"]
    side, number = layer.split(".")
    prefix = f"{side}.layers.{int(number) - 1}."
    like = next(value for name, value in values.items() if name.startswith(prefix))
    model = {name.replace(prefix, f"{prefix}intact.", 1) if name.startswith(prefix) else name: value
             for name, value in values.items()}  # fmt: skip
    model[f"{prefix}linear.weight"] = fit.weight.to(like.dtype)
    model[f"{prefix}linear.bias"] = fit.bias.to(like.dtype)
    cfg: dict[str, Any] = trained.get("cfg") or OmegaConf.to_container(
        checkpoint_utils.load_checkpoint_to_cpu(path)["cfg"], resolve=True, enum_to_str=True
    )
    options = {
        "_name": ARCHITECTURE,
        "probe_path": path,
        "probe_layers": layer,
        "probe_state": state or "pair",
        "probe_model": json.dumps(plain_options(trained)),
    }
    checkpoints.save(
        {
            "args": None,
            "cfg": {**cfg, "model": options},
            "model": model,
            "optimizer_history": trained.get("optimizer_history"),
            "extra_state": {},
            "last_optimizer_state": None,
            "task_state": trained.get("task_state") or {},
        },
        output,
    )
