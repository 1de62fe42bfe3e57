"""The parser of subcommands, and options that several of them share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

from fairseq_compat import UserError
from fairseq_depthwise.options import positive_int as positive_int
from fairseq_depthwise.options import similar_option


class SubcommandParser(argparse.ArgumentParser):
    """Accepts files after options as well as before them: ``translate best.pt --beam 5 text.en``.

    Errors suggest the closest option for a misspelled one.
    """

    #: Imports the subcommand's module when it is needed; see :mod:`fairseq_depthwise.cli`.
    command: Callable[[], Any] | None = None
    #: Whether words that are no options of the subcommand are collected in ``other``, and not refused.
    takes_others = False
    _takes_options_first = False
    _words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        # 1. Only the module of the subcommand in use is ever imported, now.
        if self.command is not None:
            module, self.command = self.command(), None
            self.formatter_class = argparse.RawDescriptionHelpFormatter
            self.epilog = "".join((module.__doc__ or "").partition("example:")[1:])
            module.add_to(self)
        # 2. Two passes, options first: in a single one, argparse takes all files from one place of the command line.
        positionals = self._get_positional_actions()
        if self._takes_options_first:
            return self._parse_pass(args, namespace)
        # fairseq's own commands take the rest of the line as it is, which argparse cannot parse in two passes.
        if any(action.nargs == argparse.REMAINDER for action in positionals):
            return super().parse_known_args(args, namespace)
        self._takes_options_first = True  # argparse calls this method again, for the options and then for the rest
        self._words = args
        try:
            namespace, unknown = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._takes_options_first = False
        if self.takes_others:
            namespace.other, unknown = unknown, []
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return namespace, unknown

    def error(self, message: str) -> NoReturn:
        super().error("; ".join([message, *self._corrections()]))

    def _corrections(self) -> Iterator[str]:
        """Yield the option that is meant by each of the command line that is not known, if there is one like it."""
        words = list(self._words)
        end = words.index("--") if "--" in words else len(words)
        known = list(self._option_string_actions)
        for word in words[:end]:
            name = word.partition("=")[0]
            is_known = any(option.startswith(name) for option in known)  # argparse accepts the beginning of a name
            similar = None if is_known or not name.startswith("--") else similar_option(name, known)
            if similar is not None:
                yield f"did you mean {similar} by {name}?"

    def _parse_pass(self, args: list[str], namespace: Any) -> Any:
        """Parse the options, or in a second pass the positionals that are left.

        The first pass of argparse drops ``--``; the second would then take a file called ``-x`` for an option.
        """
        # In its first pass argparse suppresses all positionals.
        is_first = all(action.nargs == argparse.SUPPRESS for action in self._get_positional_actions())
        end = args.index("--") if is_first and "--" in args else len(args)
        namespace, rest = super().parse_known_args(args[:end], namespace)
        return namespace, rest + args[end:]


def refuse_unread(options: argparse.Namespace, names: Iterable[str], where: str) -> None:
    """Raise UserError if any of the options is on the command line; their default must be None."""
    for name in names:
        if getattr(options, name) is not None:
            raise UserError(f"--{name.replace('_', '-')} has no effect {where}; leave it out")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def add_languages(parser: argparse.ArgumentParser, *, source: str, target: str) -> None:
    """Add the options that replace the recorded data and languages of the training."""
    parser.add_argument("--data", metavar="BIN", help="the folder with the dictionaries")
    parser.add_argument("-s", "--source-lang", metavar="LANG", help=source)
    parser.add_argument("-t", "--target-lang", metavar="LANG", help=target)
