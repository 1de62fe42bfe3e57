"""Errors that name what the caller gave: options to somebody at the command line, arguments to a Python program.

What is checked deep inside names options. :class:`~fairseq_depthwise.serving.loaded_translator.LoadedTranslator`, the
interface for programs, raises :class:`ArgumentError` in its place; the command takes the options' names back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from fairseq_compat import UserError

#: Option -> what a program gives instead; all others are of a training, and are called the same everywhere.
_ARGUMENTS = {
    "--cpu": 'device="cpu"',
    "--bf16": "dtype=torch.bfloat16",
    "--lenpen": "length_penalty",
    "--max-len-b": "max_length",
    "--print-alignment": "alignment",
    "--constraints": "constraints",
    **{
        "--" + name.replace("_", "-"): name
        for name in (
            *("data", "source_lang", "target_lang", "tokenizer", "bpe", "bpe_codes", "sentencepiece_model"),
            *("tokenized", "nbest", "beam", "max_tokens", "batch_size", "max_line_tokens", "int8", "compile"),
            *("sampling", "sampling_topk"),
        )
    },
}
_OPTION = re.compile(r"--[a-z][a-z0-9-]*(?![\w-])")


class ArgumentError(UserError):
    """An error in which options are called as arguments.

    Attributes:
        of_options: the same sentence with the options' names.
    """

    def __init__(self, of_options: str) -> None:
        super().__init__(_OPTION.sub(lambda found: _ARGUMENTS.get(found[0], found[0]), of_options))
        self.of_options = of_options


@contextmanager
def arguments_named() -> Iterator[None]:
    """Let errors within name arguments; for what a program calls."""
    try:
        yield
    except ArgumentError:
        raise
    except UserError as error:
        raise ArgumentError(str(error)) from error


@contextmanager
def options_named() -> Iterator[None]:
    """Let errors within name options, whatever is called; for commands."""
    try:
        yield
    except ArgumentError as error:
        raise UserError(error.of_options) from error
