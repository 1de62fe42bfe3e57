"""One error, as a program and as somebody at the command line reads it."""

from __future__ import annotations

import pytest

from fairseq_compat import UserError
from fairseq_depthwise.serving.argument_names import ArgumentError, arguments_named, options_named


@arguments_named()
def called(sentence: str) -> None:
    raise UserError(sentence)


@pytest.mark.parametrize(
    ("of_options", "of_arguments"),
    [
        ("--bpe-codes x is not a file", "bpe_codes x is not a file"),
        ("choose one with --source-lang and --target-lang", "choose one with source_lang and target_lang"),
        ("give --bpe, or --bpe-codes", "give bpe, or bpe_codes"),
        ("use --cpu", 'use device="cpu"'),
        ("trained with --task translation", "trained with --task translation"),  # an option of the training
        ("--database is another word", "--database is another word"),
    ],
)
def test_both_readings(of_options: str, of_arguments: str) -> None:
    with pytest.raises(ArgumentError) as by_program:
        called(of_options)
    assert str(by_program.value) == of_arguments
    with pytest.raises(UserError) as by_command, options_named():
        called(of_options)
    assert str(by_command.value) == of_options
    assert not isinstance(by_command.value, ArgumentError)
