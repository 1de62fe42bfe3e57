"""Numbers that make no sense, such as ``--beam 0`` or ``--lr -1``, are computed with, or end in a page of traceback.

Here every command checks the numbers of all its options after it has read them: :mod:`fairseq_compat.commands.ranges`.
"""

import functools
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from omegaconf import OmegaConf

from fairseq_compat.commands.ranges import ANY, check_options, options_of, range_of
from fairseq_compat.patching import check_before_training


def adjust(module: Any) -> Iterator[None]:
    yield

    if module.__name__ == "fairseq_cli.train":  # fairseq-hydra-train, too, which reads no options of a command line
        check_before_training(module, lambda cfg: check_options(dict(options_of(OmegaConf.to_container(cfg)))))
        return
    if module.__name__ == "fairseq_cli.preprocess":
        preprocess = module.main

        @functools.wraps(preprocess)
        def main(args: Any) -> Any:
            check_options(vars(args))
            return preprocess(args)

        module.main = main
        return
    if module.__name__ == "fairseq_cli.score":
        get_parser = module.get_parser

        @functools.wraps(get_parser)
        def get_checked_parser() -> ArgumentParser:
            parser: ArgumentParser = get_parser()
            parser.__class__ = _CheckedParser
            return parser

        module.get_parser = get_checked_parser
        return
    original = module.parse_args_and_arch

    @functools.wraps(original)
    def parse_args_and_arch(parser: ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        _describe(parser)
        result = original(parser, *args, **kwargs)
        check_options(vars(result[0] if isinstance(result, tuple) else result))
        return result

    module.parse_args_and_arch = parse_args_and_arch


class _CheckedParser(ArgumentParser):
    """A parser that checks numbers after it has read them."""

    def parse_args(self, *args: Any, **kwargs: Any) -> Any:
        options = super().parse_args(*args, **kwargs)
        check_options(vars(options))
        return options


def _describe(parser: ArgumentParser) -> None:
    """Show the ranges in ``--help``, and what a list of numbers is called in an error."""
    for action in parser._actions:
        if getattr(action.type, "__name__", None) == "<lambda>" and action.dest in ("lr", "update_freq"):
            action.type.__name__ = "list of numbers"  # type: ignore[union-attr]  # a function
        limits = range_of(action.dest)
        if limits is not ANY and action.help and f"({limits})" not in action.help:
            action.help += f" ({limits})"
