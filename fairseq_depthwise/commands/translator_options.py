"""What ``translate`` and ``serve`` have in common: a translator from the options of a command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairseq_compat import UserError
from fairseq_depthwise.checkpoints.recorded_paths import checkpoint_files
from fairseq_depthwise.commands.parsers import add_languages
from fairseq_depthwise.options import add_options, between, options_of
from fairseq_depthwise.translation.export_formats import format_of_graphs
from fairseq_depthwise.translation.translation_options import TranslatorOptions

if TYPE_CHECKING:
    from fairseq_depthwise.translation.translator import LoadedTranslator


def add_translator_options(parser: argparse.ArgumentParser, *, without: Sequence[str] = ()) -> None:
    """Add the options that say what translates, where, and how."""
    add_languages(parser, source="language of the text", target="language of the translations")
    parser.add_argument("--cpu", action="store_true", help="do not use GPUs")
    parser.add_argument("--threads", type=between(1, 2**16, int), metavar="N", help="of PyTorch, on a CPU")
    add_options(parser, TranslatorOptions, without=without)


def require_model(model: str) -> None:
    """Raise UserError unless there is a checkpoint, several joined with ``:``, or an exported folder."""
    if format_of_graphs(model) is None:
        checkpoint_files(model)


def load_translator(arguments: argparse.Namespace, options: TranslatorOptions | None = None) -> LoadedTranslator:
    """Load the translator that a command line names, and describe it on stderr."""
    import torch

    from fairseq_depthwise.checkpoints.checkpoint import fairseq_warnings_only
    from fairseq_depthwise.translation.translator import LoadedTranslator

    # ``serve`` passes its own: requests may ask for more translations than its command line.
    options = options or options_of(TranslatorOptions, arguments)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    device = "cuda" if torch.cuda.is_available() and not arguments.cpu else "cpu"
    if options.precision == "fp16" and device == "cpu":
        raise UserError("--fp16 needs a GPU; --bf16 runs on a CPU, too")
    with fairseq_warnings_only():
        translator = LoadedTranslator(
            arguments.model,
            data=arguments.data,
            source_lang=arguments.source_lang,
            target_lang=arguments.target_lang,
            options=options,
            device=device,
            say=lambda sentence: print(sentence, file=sys.stderr),
        )
    source, target = translator.languages
    where = f"{source} to {target}, on {translator.device}"
    print(f"{', '.join(translator.files)} with {translator.data}: {where}", file=sys.stderr)
    return translator
