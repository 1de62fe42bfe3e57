"""``inspect``: what a checkpoint holds."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fairseq_compat import checkpoints
from fairseq_depthwise.commands.parsers import add_parser

if TYPE_CHECKING:
    from fairseq_depthwise.evaluation.checkpoint_summary import CheckpointSummary


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "inspect",
        run=run,
        help="show what a checkpoint holds: its model, how far it was trained and how, which versions wrote it",
        example="fairseq-depthwise inspect checkpoints/checkpoint_last.pt\n"
        "  fairseq-depthwise inspect --json checkpoints/checkpoint_last.pt",
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a checkpoint of fairseq, of any architecture")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    from fairseq_depthwise.evaluation.checkpoint_summary import summarize

    path = options.checkpoint
    summary = summarize(checkpoints.load_checkpoint(path, mapped=True), path)
    size = os.path.getsize(path)
    if options.json:
        print(json.dumps({"file": path, "bytes": size, **asdict(summary)}, indent=2, default=str))
        return 0
    lines = [("file", f"{path}, {size / 1e6:,.1f} MB"), *describe(summary)]
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        print(f"{name:{width}}  {text}")
    return 0


def describe(summary: CheckpointSummary) -> list[tuple[str, str]]:
    """Return the lines that are printed: what each is about, and what it says."""
    lines = [("architecture", _architecture(summary))]
    for side in ("encoder", "decoder"):
        layers, width, heads = (
            getattr(summary, f"{side}_{name}") for name in ("layers", "embed_dim", "attention_heads")
        )
        if layers is not None:
            parts = (_number(layers, "layer"), width and f"width {width}", heads and _number(heads, "head"))
            lines.append((side, ", ".join(part for part in parts if part)))
    lines.append(("parameters", _parameters(summary)))
    lines.append(("updates", _training(summary)))
    if summary.lr_scheduler is not None:
        lines.append(("learning rate", _learning_rate(summary)))
    if summary.growth_stages is not None:
        lines.append(("stage", _stage(summary)))
    if summary.metric is not None:
        scores = (("at this point", summary.val_score), ("best so far", summary.best_score))
        text = ", ".join(f"{score:g} {when}" for when, score in scores if score is not None)
        lines.append(("validation", f"{summary.metric} {text}"))
    lines.append(("optimizer state", "yes" if summary.optimizer_state else "no"))
    lines.append(("moving average", "yes (EMA)" if summary.moving_average else "no"))
    if summary.averaged_from:
        lines.append(("averaged from", ", ".join(summary.averaged_from)))
    if summary.grown_from:
        lines.append(("grown from", summary.grown_from))
    versions = summary.versions or {}
    lines.append(("versions", ", ".join(f"{name} {version}" for name, version in versions.items()) or "not recorded"))
    return lines


def _architecture(summary: CheckpointSummary) -> str:
    if summary.family is None:
        return f"{summary.architecture or 'not recorded'}, which is not known here"
    return summary.family if summary.family == summary.architecture else f"{summary.architecture} ({summary.family})"


def _parameters(summary: CheckpointSummary) -> str:
    tied = "" if summary.ties_known else ", tied ones perhaps counted twice"
    copies = f"; beside them {summary.unused_copies:,} in copies of encoder weights that fairseq never reads"
    return f"{summary.parameters:,}, {summary.dtype}{tied}{copies if summary.unused_copies else ''}"


def _training(summary: CheckpointSummary) -> str:
    if summary.updates is None:
        return "not recorded"
    where = "within" if summary.mid_epoch else "to the end of"
    return f"{summary.updates:,}{f', {where} epoch {summary.epoch}' if summary.epoch else ''}"


def _learning_rate(summary: CheckpointSummary) -> str:
    peak = "" if summary.peak_lr is None else f", peak {summary.peak_lr:g}"
    restarts = ", ".join(map(str, summary.restarts))
    return f"{summary.lr_scheduler}{peak}{f', restarted after update {restarts}' if restarts else ''}"


def _stage(summary: CheckpointSummary) -> str:
    depth = summary.decoder_layers if summary.growth_side == "decoder" else summary.encoder_layers
    layers = _number(depth or 0, "layer")
    where = f"{summary.stage} of {summary.stages} ({layers})" if summary.stage else f"none has {layers}"
    return f"{where}, of the plan {summary.growth_stages} ({summary.growth_side}, {summary.growth_strategy})"


def _number(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
