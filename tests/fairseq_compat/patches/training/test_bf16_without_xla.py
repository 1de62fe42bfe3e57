"""``--bf16`` is a matter of the number format and no longer means a TPU."""

from __future__ import annotations

import importlib.util
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest


def parsed(stock_data: Path, *added: str, **keywords: Any) -> Namespace:
    from fairseq import options

    arguments = [str(stock_data), "--arch", "transformer", "--optimizer", "adam", *added]
    return options.parse_args_and_arch(options.get_training_parser(), arguments, **keywords)


@pytest.mark.parametrize("option", ["--bf16", "--memory-efficient-bf16"])
def test_bf16_is_on_and_tpu_is_off(option: str, stock_data: Path) -> None:
    options = parsed(stock_data, option, "--cpu")
    assert options.bf16
    assert options.cpu
    assert not options.tpu
    assert parsed(stock_data, option, "--tpu").tpu  # asked for by name


def test_with_xla_installed_nothing_changes(stock_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And this is the fault itself: fairseq turns ``tpu`` on by itself."""
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: object() if name == "torch_xla" else real(name, *rest)
    )
    assert parsed(stock_data, "--bf16").tpu


def test_options_that_the_parser_does_not_know_are_handed_back(stock_data: Path) -> None:
    options, unknown = parsed(stock_data, "--bf16", "--something-else", parse_known=True)
    assert not options.tpu
    assert unknown == ["--something-else"]


def test_options_of_the_command_line_are_read_where_none_are_given(
    stock_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairseq import options

    monkeypatch.setattr(sys, "argv", ["fairseq-train", str(stock_data), "--arch", "transformer", "--bf16", "--tpu"])
    assert options.parse_args_and_arch(options.get_training_parser()).tpu
    monkeypatch.setattr(sys, "argv", sys.argv[:-1])
    assert not options.parse_args_and_arch(options.get_training_parser()).tpu
