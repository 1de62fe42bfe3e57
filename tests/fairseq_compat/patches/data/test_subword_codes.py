"""Codes of subword-nmt are UTF-8 in every locale, and their subwords are those of subword-nmt."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fairseq.data.encoders.subword_nmt_bpe import SubwordNMTBPE, SubwordNMTBPEConfig

CODE = """
import sys
from fairseq.data.encoders.subword_nmt_bpe import SubwordNMTBPE, SubwordNMTBPEConfig
bpe = SubwordNMTBPE(SubwordNMTBPEConfig(bpe_codes=sys.argv[1]))
print(ascii(bpe.encode("\\u00e4b b\\u00e4")), ascii(bpe.decode("\\u00e4@@ b b")))
"""


@pytest.fixture
def codes(tmp_path: Path) -> str:
    path = tmp_path / "codes"
    path.write_text("#version: 0.2\n\u00e4 b</w>\n", encoding="utf-8")
    return str(path)


def test_locale(codes: str, run_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    result = run_python(CODE, codes, env=env)
    assert result.stdout == "'\\xe4b b@@ \\xe4' '\\xe4b b'\n", result.stderr


def test_separator(codes: str) -> None:
    bpe = SubwordNMTBPE(SubwordNMTBPEConfig(bpe_codes=codes, bpe_separator="~"))
    assert bpe.encode("cd \u00e4b") == "c~ d \u00e4b"
    assert bpe.decode("c~ d e") == "cd e"


def test_no_codes() -> None:
    with pytest.raises(ValueError, match="--bpe-codes is required"):
        SubwordNMTBPE(SubwordNMTBPEConfig(bpe_codes=None))
