"""``units``: diversity, weights and attention of the units of multi-unit models."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fairseq_compat import UserError
from fairseq_depthwise.commands.parsers import add_data_options, add_forms, add_parser, positive_int, print_reports

if TYPE_CHECKING:
    from fairseq_depthwise.analysis.loaded_model import LoadedModel
    from fairseq_depthwise.analysis.units.figures import AttentionRow
    from fairseq_depthwise.analysis.units.report import UnitReport


def add_to(subcommands: Any) -> None:
    parser = add_parser(
        subcommands,
        "units",
        run=run,
        help="measure the diversity of the units of mute_transformer models, and show their weights and attention",
        example="fairseq-depthwise units checkpoints/checkpoint_best.pt --data data-bin --output weights.png\n"
        "  fairseq-depthwise units mute.pt biased.pt --data data-bin --sentence-index 3 --attention-output maps.pdf",
    )
    parser.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT", help="checkpoints of mute_transformer models")
    add_data_options(parser)
    parser.add_argument(
        "--include-self", action="store_true",
        help="compute diversity as the authors' program does: over all pairs of units, including those of a unit with "
        "itself, and of feed-forward outputs with their residual",
    )  # fmt: skip
    parser.add_argument("--output", metavar="FIGURE", help="draw the weights of the units: .png, .pdf or .svg")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--sentence", metavar="TEXT", help="a tokenized sentence for --attention-output")
    which.add_argument(
        "--sentence-index", type=int, metavar="N", help="or one of the subset, counted from 0 as fairseq-generate does"
    )
    parser.add_argument("--attention-output", metavar="FIGURE", help="draw the attention of the units in the sentence")
    parser.add_argument("--layer", type=positive_int, metavar="N", help="the layer of that figure (default: the last)")
    parser.add_argument("--force", action="store_true", help="replace figures that exist")
    add_forms(parser)


def run(options: argparse.Namespace) -> int:
    _check(options)

    from fairseq_depthwise import figures
    from fairseq_depthwise.analysis.units import figures as unit_figures
    from fairseq_depthwise.analysis.units import report as unit_report
    from fairseq_depthwise.checkpoints.checkpoint import fairseq_warnings_only

    for option in ("output", "attention_output"):
        if (path := getattr(options, option)) is not None:
            name = f"--{option.replace('_', '-')}"
            path = figures.figure_path(name, path, force=options.force, inputs=options.checkpoints)
            setattr(options, option, path)

    titles = figures.titles_of(options.checkpoints)
    with fairseq_warnings_only():
        reports, attention = _measure_all(options, titles)

    print_reports(options, reports, as_json=unit_report.as_json, as_csv=unit_report.as_csv, as_text=unit_report.as_text)
    if options.output is not None:
        panels = [
            unit_figures.WeightsPanel(title, [layer.weights for layer in report.weights], of_places=report.sequential)
            for title, report in zip(titles, reports, strict=True)
        ]
        unit_figures.write_weights(options.output, panels)
        print(f"{options.output} written", file=sys.stderr)
    if options.attention_output is not None:
        unit_figures.write_attention(options.attention_output, attention)
        print(f"{options.attention_output} written", file=sys.stderr)
    return 0


def _measure_all(options: argparse.Namespace, titles: Sequence[str]) -> tuple[list[UnitReport], list[AttentionRow]]:
    """Measure one checkpoint after the other, so that one model is in memory."""
    from fairseq_depthwise.analysis.loaded_model import load_model
    from fairseq_depthwise.analysis.units.report import report_on

    reports: list[UnitReport] = []
    attention: list[AttentionRow] = []
    for path, title in zip(options.checkpoints, titles, strict=True):
        print(f"reading {path}", file=sys.stderr)
        loaded = load_model(path, options.data, family="mute_transformer")
        _require_units(loaded)
        if options.attention_output is not None:
            attention.append(_attention_row(loaded, title, options))
        report = report_on(
            loaded,
            options.subset,
            max_sentences=options.max_sentences,
            max_tokens=options.max_tokens,
            include_self=options.include_self,
        )
        reports.append(report)
    return reports, attention


def _check(options: argparse.Namespace) -> None:
    """Raise UserError for options that do not go together."""
    sentence = options.sentence is not None or options.sentence_index is not None
    if options.attention_output is not None and not sentence:
        raise UserError(
            f"--attention-output {options.attention_output} needs a sentence; give --sentence or --sentence-index"
        )
    if options.attention_output is None:
        for name in ("sentence", "sentence_index", "layer"):
            if getattr(options, name) is not None:
                raise UserError(f"--{name.replace('_', '-')} is for --attention-output FIGURE, which is not given")
    if options.output is not None and os.path.realpath(options.output) == os.path.realpath(
        options.attention_output or os.devnull
    ):
        raise UserError(f"--output and --attention-output are both {options.output}; give two names")


def _require_units(loaded: LoadedModel) -> None:
    if len(loaded.model.encoder.layers[0].unit_weights) == 1:
        raise UserError(f"{loaded.path} has one unit in each layer, and so no pairs to compare; give a model of 2 to 8")


#: Tokens of a sentence whose attention is drawn; a cell for each pair takes matplotlib seconds here, hours with more.
_LONGEST_DRAWN = 300


def _attention_row(loaded: LoadedModel, title: str, options: argparse.Namespace) -> AttentionRow:
    from fairseq_depthwise.analysis.units.figures import AttentionRow
    from fairseq_depthwise.analysis.units.recorder import attention_maps

    layers = len(loaded.model.encoder.layers)
    layer = options.layer or layers
    if layer > layers:
        raise UserError(f"--layer {layer} is out of range; the encoder of {loaded.path} has {layers} layers")
    if options.sentence is not None:
        tokens = loaded.encode(options.sentence)
    else:
        tokens = loaded.sentence(options.subset, options.sentence_index)
    if (length := tokens.size(-1)) > _LONGEST_DRAWN:
        option = "--sentence" if options.sentence is not None else f"--sentence-index {options.sentence_index}"
        raise UserError(
            f"{option} has {length} tokens, its end included, and a figure of the attention shows at most "
            f"{_LONGEST_DRAWN}; give a shorter one"
        )
    maps = attention_maps(loaded.model.encoder, tokens, layer - 1)
    return AttentionRow(f"{title}, layer {layer}", loaded.words(tokens), maps)
