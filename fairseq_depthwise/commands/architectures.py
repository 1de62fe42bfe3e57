"""What ``train`` answers instead of training: the architectures, and the options of one of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fairseq_depthwise.tables import aligned

#: The option that shows the help of fairseq's own command.
HELP_ALL = "--help-all"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that are answered here, for the help of ``train``."""
    group = parser.add_argument_group("architectures")
    group.add_argument("--list", action="store_true", help="list architectures and presets with their sizes")
    group.add_argument(
        HELP_ALL,
        action="store_true",
        help="show all options of fairseq-train; `train --arch ARCH -h` shows those of an architecture of the plugin",
    )


def answer(arguments: Sequence[str]) -> bool:
    """Print what a command line of ``train`` asks about architectures; return whether it asks anything."""
    from fairseq_depthwise.evaluation.architectures import is_ours

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("-a", "--arch")
    asked, _ = parser.parse_known_args(arguments)
    if asked.list:
        _print_list()
        return True
    if asked.help and asked.arch and is_ours(asked.arch):
        _print_options(asked.arch)
        return True
    return False


def _print_list() -> None:
    from fairseq_depthwise.evaluation.architectures import DEFAULT_WORDS, our_architectures

    rows = [["--arch", "encoder", "decoder", "width", "parameters"]]
    for architecture in our_architectures():
        sizes = (architecture.encoder_layers, architecture.decoder_layers, architecture.width)
        rows.append([architecture.name, *map(str, sizes), f"{architecture.parameters / 1e6:.1f} M"])
    print(aligned(rows), end="")
    print(f"layers and width; parameters with {DEFAULT_WORDS:,} words and --share-all-embeddings")
    print("`params --arch ARCH OPTIONS` counts another model, `train --arch ARCH -h` shows the options")


def _print_options(architecture: str) -> None:
    from fairseq_depthwise.evaluation.architectures import options_of_architecture

    parser = argparse.ArgumentParser(
        prog=f"fairseq-depthwise train DATA --arch {architecture}",
        add_help=False,
        usage="%(prog)s [OPTIONS of the model] [OPTIONS of fairseq-train]",
        epilog=f"{HELP_ALL} shows those of fairseq-train; `params --arch {architecture} OPTIONS` counts parameters",
    )
    group = parser.add_argument_group("options of the model")
    for option in options_of_architecture(architecture):
        help = option.help.replace("%", "%%")
        if isinstance(option.default, bool):
            group.add_argument(
                option.flag, action="store_true", help=f"{help}{' (default: on)' if option.default else ''}"
            )
            continue
        default = "" if option.default is None else f" (default: {option.default})"
        group.add_argument(option.flag, metavar="X", help=f"{help}{default}")
    print(parser.format_help(), end="")
