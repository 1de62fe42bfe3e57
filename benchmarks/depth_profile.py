"""What happens over depth: forget gates, gradients and dropout's noise by layer, at the start and after training.

    python benchmarks/depth_profile.py --data WORK/long/data stock=WORK/long:stock:1/checkpoint_last.pt paper=...

Writes docs/records/depth_profile.json and docs/figures/depth_profile.svg. The start is the same model with other first
values than the trained one had (seed 1). Noise: each layer's output after a layer norm, computed with several masks of
the dropout that the model was trained with; its variance over the masks, divided by the mean square of their mean.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from records import setup_of, write_record
from torch import Tensor, nn

from fairseq_depthwise.analysis.loaded_model import load_model
from fairseq_depthwise.checkpoints.checkpoint import Checkpoint
from fairseq_depthwise.figures import COLORS, MARKERS, write_figure
from fairseq_depthwise.models.depthwise_lstm.cell import DepthwiseLSTMCell

DOCS = Path(__file__).parents[1] / "docs"
MASKS, SENTENCES = 8, 128
SIDES = ("encoder", "decoder")

#: What is measured -> the title of its column.
PARTS = {
    "forget": "mean of the forget gate",
    "gradient": "gradient of the value projection,\ndivided by the top layer's",
    "noise": "noise of dropout, divided by signal",
}


def output_of(result: Any) -> Tensor:
    """Return the output of a layer, T x B x C, whatever else it returns."""
    while isinstance(result, tuple):
        result = result[0]
    return result


def measure(model: Any, batches: list[Any]) -> dict[str, dict[str, list[float]]]:
    """Return part -> side -> a number for each layer."""
    outputs: dict[tuple[str, int], list[Tensor]] = defaultdict(list)
    gates: dict[tuple[str, int], list[float]] = defaultdict(list)
    hooks = []
    layers = {(side, index): layer for side in SIDES for index, layer in enumerate(getattr(model, side).layers)}

    def keep(place: tuple[str, int]) -> Any:
        return lambda layer, given, result: outputs[place].append(
            F.layer_norm(output_of(result).detach(), output_of(result).shape[-1:]).double()
        )

    def watch(place: tuple[str, int]) -> Any:
        return lambda cell, given: gates[place].append(float(cell.gate_values(*given)[1].detach().mean()))

    for place, layer in layers.items():
        hooks.append(layer.register_forward_hook(keep(place)))
        hooks += [
            cell.register_forward_pre_hook(watch(place))
            for cell in layer.modules()
            if isinstance(cell, DepthwiseLSTMCell)
        ]
    noise: dict[tuple[str, int], list[float]] = defaultdict(list)
    for batch in batches:
        inputs = batch["net_input"]
        model.train()
        outputs.clear()
        torch.manual_seed(1)
        with torch.no_grad():
            for _ in range(MASKS):
                model(**inputs)
        for place, several in outputs.items():
            stacked = torch.stack(several)
            variance = stacked.var(dim=0).mean()
            noise[place].append(float(variance / (stacked.mean(dim=0).square().mean() - variance / MASKS)))
        # The gradient is that of the loss without dropout, summed over batches.
        model.eval()
        logits, _ = model(**inputs)
        F.cross_entropy(logits.transpose(1, 2), batch["target"], ignore_index=1, reduction="sum").backward()
    for hook in hooks:
        hook.remove()

    def by_side(numbers: dict[tuple[str, int], float]) -> dict[str, list[float]]:
        return {side: [round(value, 4) for (one, _), value in sorted(numbers.items()) if one == side] for side in SIDES}

    def mean(several: dict[tuple[str, int], list[float]]) -> dict[tuple[str, int], float]:
        return {place: sum(values) / len(values) for place, values in several.items()}

    norms = {place: float(_value_projection(layer).weight.grad.norm()) for place, layer in layers.items()}
    top = {side: norms[side, len(getattr(model, side).layers) - 1] for side in SIDES}
    relative = {place: norm / top[place[0]] for place, norm in norms.items()}
    return {"forget": by_side(mean(gates)), "gradient": by_side(relative), "noise": by_side(mean(noise))}


def _value_projection(layer: nn.Module) -> Any:
    attention = getattr(layer, "self_attn", None)  # fairseq's name
    return layer.self_attention.value_projection if attention is None else attention.v_proj


def draw(figure: Any, rows: dict[str, dict[str, Any]]) -> None:
    """Draw a row of axes for each side, a column for each part: dashed at the start, solid after training."""
    axes = figure.subplots(len(SIDES), len(PARTS), sharex=True)
    for line, side in zip(axes, SIDES, strict=True):
        for axis, (part, title) in zip(line, PARTS.items(), strict=True):
            for (name, moments), color, marker in zip(rows.items(), COLORS, MARKERS, strict=False):
                for moment, style in (("start", "--"), ("trained", "-")):
                    if values := moments[moment][part][side]:
                        numbers = range(1, len(values) + 1)
                        label = f"{name}, {moment}" if part == "noise" else None
                        axis.plot(numbers, values, style, color=color, marker=marker, markersize=4, label=label)
                        axis.set_xticks(numbers)
            axis.set_ylim(0, 1 if part == "forget" else None)
            axis.grid(visible=True)
            if side == "encoder":
                axis.set_title(title, fontsize=10)
            else:
                axis.set_xlabel("layer")
        line[0].set_ylabel(side)
    figure.legend(*axes[0][-1].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME=CHECKPOINT")
    parser.add_argument("--data", required=True)
    options = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    for name, _, path in (model.partition("=") for model in options.models):
        loaded = load_model(path, options.data)
        batches = list(loaded.batches("valid", max_sentences=SENTENCES, max_tokens=4000))
        torch.manual_seed(1)
        fresh = loaded.task.build_model(Checkpoint(path).cfg.model)
        rows[name] = {"start": measure(fresh, batches), "trained": measure(loaded.model, batches)}
    setup = setup_of("depth_profile", sys.argv[1:], masks=MASKS, sentences=SENTENCES)
    write_record(DOCS / "records", "depth_profile", {"setup": setup, "rows": rows})
    write_figure(str(DOCS / "figures" / "depth_profile.svg"), (9.0, 5.4), lambda figure: draw(figure, rows))


if __name__ == "__main__":
    main()
