"""The subcommands that analyze trained models: each a module of ``analysis`` that has an ``ANALYSIS``."""

from __future__ import annotations

import argparse
import functools
from importlib import import_module
from typing import Any

#: Name of the module -> its line in the list of subcommands, which is shown without importing it.
ANALYSES = {
    "units": "measure the diversity of the units of mute_transformer models",
    "probe": "replace each layer of a trained model by a linear layer, and measure the loss in BLEU",
    "similarity": "measure the cosine similarity of the outputs of layers",
    "gates": "measure gates of depthwise_lstm_transformer models, or weights of connections",
}


def add_to(subcommands: Any) -> None:
    for name, help in ANALYSES.items():
        parser = subcommands.add_parser(name, help=help, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_options_to = functools.partial(_add_options, name)


def _add_options(name: str, parser: argparse.ArgumentParser) -> None:
    analysis = import_module(f"fairseq_depthwise.analysis.{name}").ANALYSIS
    parser.description = f"{analysis.help[0].upper()}{analysis.help[1:]}."
    parser.epilog = f"example:\n  {analysis.example}"
    parser.set_defaults(run=analysis.run)
    analysis.add_options(parser)
